//! Layers that are archives: each is converted only once, and some are refused.

mod archive;
mod builders;
mod confined;
mod real;

use std::sync::Arc;

use remote_image::{Event, cache};
use serde_json::json;

use crate::repository::{Repository, TAR, digest};
use crate::*;
use archive::{COPY, GZIP, Place, ZSTD, archive, gzip, put_erofs, read_layers, zstd};

const LENGTH: usize = 300_000;

#[test]
fn layers_of_every_packing_become_images_once_and_are_listed_from_top_to_bottom() {
    let place = Place::new(COPY);
    let archives: Vec<_> = (1..=4).map(|seed| archive(LENGTH, seed)).collect();
    let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
    let types = [GZIP, TAR, ZSTD, docker];
    let layers: Vec<_> = archives.iter().map(|it| &it[..]).zip(types).collect();
    place.put_archives("v1", &layers);
    let options = place.options();
    let mut fetcher = place.start(":v1").unwrap();
    let found = read_layers(&mut fetcher, &options);
    assert!(found.iter().eq(archives.iter().rev()));
    let asked = place.asked_blobs();
    assert_eq!(asked.len(), 5, "the config and each blob: {asked:?}");
    // Another image shares one of the layers, and has a new one.
    let other = archive(LENGTH, 9);
    place.put_archives("v2", &[layers[0], (&other, GZIP)]);
    let mut second = place.start(":v2").unwrap();
    assert_eq!(
        read_layers(&mut second, &options),
        [other, archives[0].clone()]
    );
    assert_eq!(place.asked_blobs().len(), 2, "the config and the new one");
    let entries = cache::list(&place.cache.path().join("cache")).unwrap();
    assert_eq!(entries.len(), 5);
    let diff_ids = entries
        .iter()
        .filter_map(|entry| entry.record.identity.diff_id.as_ref());
    assert_eq!(diff_ids.count(), 5);
    drop((fetcher, second));
    assert_eq!(
        cache::prune(&place.cache.path().join("cache"), 0)
            .unwrap()
            .images
            .len(),
        5
    );
    assert_eq!(
        read_layers(&mut place.start(":v1").unwrap(), &options).len(),
        4
    );
}

#[test]
fn a_single_archive_is_the_image() {
    let place = Place::new(COPY);
    let bytes = archive(LENGTH, 1);
    for (tag, media_type) in [("plain", TAR), ("gzip", GZIP), ("zstd", ZSTD)] {
        place.put_archives(tag, &[(&bytes, media_type)]);
        let fetcher = &mut place.start(&format!(":{tag}")).unwrap();
        assert_eq!(
            read_layers(fetcher, &place.options()),
            std::slice::from_ref(&bytes)
        );
    }
    assert_eq!(place.left().len(), 1, "the same archive");
}

/// containerd looks at the bytes, too.
#[test]
fn how_a_layer_is_packed_is_seen_by_its_bytes() {
    let place = Place::new(COPY);
    let archives = [1, 2, 3, 4].map(|seed| archive(LENGTH, seed));
    let docker = "application/vnd.docker.image.rootfs.diff.tar";
    let put = |archive: &[u8], real, claimed: &str| {
        let mut layer = place.put(archive, real);
        layer["mediaType"] = json!(claimed);
        layer
    };
    let layers = [
        put(&archives[0], TAR, GZIP),
        put(&archives[1], ZSTD, GZIP),
        put(&archives[2], GZIP, ZSTD),
        put(&archives[3], GZIP, docker),
    ];
    let diff_ids = [0, 1, 2, 3].map(|number| digest(&archives[number]));
    place.put_image("v1", &layers, &diff_ids);
    let found = read_layers(&mut place.start(":v1").unwrap(), &place.options());
    assert!(found.iter().eq(archives.iter().rev()));
    let other = archive(LENGTH, 5);
    let alone = put(&other, ZSTD, docker);
    place.put_image("v2", &[alone], &[digest(&other)]);
    let found = read_layers(&mut place.start(":v2").unwrap(), &place.options());
    assert_eq!(found, [other]);
}

/// containerd also refuses an image if one of these layers is compressed.
#[test]
fn layers_that_are_all_called_uncompressed_must_be_so() {
    let place = Place::new(COPY);
    let archives = [archive(LENGTH, 1), archive(LENGTH, 2)];
    let mut packed = place.put(&archives[1], GZIP);
    packed["mediaType"] = json!(TAR);
    let layers = [place.put(&archives[0], GZIP), packed];
    let diff_ids = [digest(&archives[0]), digest(&archives[1])];
    place.put_image("v1", &layers[1..], &diff_ids[1..]);
    place.put_image("v2", &layers, &diff_ids);
    let plain = [place.put(&archives[0], TAR), layers[1].clone()];
    place.put_image("v3", &plain, &diff_ids);
    let why = "is compressed, but its media type says that it is not";
    for tag in [":v1", ":v3"] {
        let line = place.refused(tag);
        assert!(line.ends_with(why), "{line}");
    }
    // If one layer may be compressed, the diff IDs of all archives are taken from the config.
    let found = read_layers(&mut place.start(":v2").unwrap(), &place.options());
    assert_eq!(found, [archives[1].clone(), archives[0].clone()]);
}

/// An image begins with zeros, which also mark the end of an archive.
#[test]
fn an_image_that_is_called_an_archive_is_no_empty_layer() {
    let place = Place::new(COPY);
    let (low, mut erofs) = (archive(LENGTH, 1), image(LENGTH));
    erofs[..1024].fill(0);
    erofs[1024..1028].copy_from_slice(&[0xe2, 0xe1, 0xf5, 0xe0]);
    let low = (place.put(&low, GZIP), digest(&low));
    let raw = |media_type| place.registry.put_blob(&erofs, media_type);
    for top in [
        raw(GZIP),
        raw(TAR),
        place.put(&erofs, GZIP),
        place.put(&erofs, ZSTD),
    ] {
        let diff_ids = [low.1.clone(), digest(&erofs)];
        place.put_image("v1", &[low.0.clone(), top.clone()], &diff_ids);
        let line = place.refused(":v1");
        let why = "an EROFS image, but its media type says that it is an archive";
        assert!(line.contains(": layer 2 of 2 (sha256:"), "{line}");
        assert!(line.ends_with(why), "{line}");
        if top["mediaType"] == TAR {
            continue;
        }
        place.put_image("v2", &[top], &diff_ids[1..]);
        let line = place.refused(":v2");
        assert!(line.ends_with(why), "{line}");
    }
}

/// Builders make empty layers from steps that change nothing.
#[test]
fn a_layer_may_be_empty() {
    let place = Place::new(COPY);
    for media_type in [TAR, GZIP] {
        place.put_archives("v1", &[(&[0; 1024], media_type)]);
        let found = read_layers(&mut place.start(":v1").unwrap(), &place.options());
        assert_eq!(found.len(), 1);
        assert!(found[0].windows(2).any(|bytes| bytes == b"./"), "the root");
    }
    assert_eq!(place.left().len(), 1);
}

#[test]
fn an_image_may_have_layers_of_erofs_and_archives() {
    let place = Place::new(COPY);
    let (low, top) = (archive(LENGTH, 1), archive(LENGTH, 2));
    let layers = [
        place.put(&low, GZIP),
        put_erofs(&place, &image(LENGTH)),
        place.put(&top, ZSTD),
    ];
    let diff_ids = [&low, &image(LENGTH), &top].map(|bytes| digest(bytes));
    place.put_image("v1", &layers, &diff_ids);
    let mut fetcher = place.start(":v1").unwrap();
    let found = read_layers(&mut fetcher, &place.options());
    assert_eq!(found, [top, image(LENGTH), low.clone()]);
    // With EROFS layers only, no config is requested.
    let layers = [put_erofs(&place, b"low"), put_erofs(&place, b"top")];
    place
        .registry
        .put_manifest("v2", &json!({ "layers": layers }));
    let mut fetcher = place.start(":v2").unwrap();
    let found = read_layers(&mut fetcher, &place.options());
    assert_eq!(found, [b"top", b"low"]);
}

/// erofast-snapshotter names layers in this way; it will request the layers above next.
#[test]
fn a_layer_is_named_by_its_manifest() {
    let place = Place::new(COPY);
    let (low, middle, top) = (archive(LENGTH, 1), archive(LENGTH, 2), archive(LENGTH, 3));
    let layers = [
        place.put(&low, GZIP),
        place.put(&middle, ZSTD),
        put_erofs(&place, &image(LENGTH)),
        place.put(&top, GZIP),
    ];
    let diff_ids = [&low, &middle, &image(LENGTH), &top].map(|bytes| digest(bytes));
    let manifest = place.put_image("v1", &layers, &diff_ids);
    let blob = |layer: usize| layers[layer]["digest"].as_str().unwrap();
    let version = |layer: &str| format!("@{manifest}#layer={layer}");
    let read_one = |layer: usize| {
        let mut fetcher = place.start(&version(blob(layer))).unwrap();
        let found = read_layers(&mut fetcher, &place.options());
        assert_eq!(found.len(), 1);
        (fetcher, found.into_iter().next().unwrap())
    };
    let (first, found) = read_one(1);
    assert_eq!(found, middle);
    let begun = std::time::Instant::now();
    while place.left().len() < 2 || place.left().iter().any(|entry| entry.join("new").exists()) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the top layer is not converted"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(
        place.asked_blobs().len(),
        3,
        "the config, the layer and the one above"
    );
    assert_eq!(read_one(3).1, top);
    assert_eq!(place.asked_blobs().len(), 1, "the config");
    assert_eq!(read_one(2).1, image(LENGTH));
    place.asked_blobs();
    drop(first);
    // A reference by digest needs no server once all bytes are cached.
    assert_eq!(read_one(1).1, middle);
    assert!(place.registry.asked().is_empty());
    let line = place
        .start(&version(&digest(b"none")))
        .unwrap_err()
        .to_string();
    assert!(
        line.ends_with(&format!("the manifest lists no layer {}", digest(b"none"))),
        "{line}"
    );
}

#[test]
fn progress_is_noted() {
    let place = Place::new(COPY);
    place.put_archives(
        "v1",
        &[(&archive(LENGTH, 1), GZIP), (&archive(LENGTH, 2), GZIP)],
    );
    let mut fetcher = place.start(":v1").unwrap();
    let mut notes = Vec::new();
    while let Some(line) = fetcher.heard() {
        notes.push(line);
    }
    assert!(
        notes[0].contains(": converting 2 layers of 0.6 MB"),
        "{notes:?}"
    );
    let done = notes
        .iter()
        .filter(|line| line.contains(" by mkfs.erofs 1.9.9 in "));
    assert_eq!(done.count(), 2, "{notes:?}");
}

#[test]
fn what_is_wrong_with_a_layer_is_one_line_and_leaves_nothing() {
    let place = Place::new(COPY);
    let (bytes, other) = (archive(LENGTH, 1), archive(LENGTH, 2));
    let layers = [place.put(&bytes, GZIP), place.put(&other, GZIP)];
    let [low, top] = [&layers[0], &layers[1]].map(|layer| layer["digest"].as_str().unwrap());
    let diff_ids = [digest(&bytes), digest(&other)];
    let name = format!(": layer 1 of 2 ({low}): ");
    let has = |line: &str, why: &str| assert!(line.contains(&format!("{name}{why}")), "{line}");
    // A wrong diff ID.
    place.put_image("v1", &layers, &[digest(b"wrong"), diff_ids[1].clone()]);
    has(
        &place.refused(":v1"),
        &format!("unpacks to a different diff ID: {}", diff_ids[0]),
    );
    // Bytes that do not match the digest but unpack correctly.
    place.put_image("v1", &layers, &diff_ids);
    let path = Repository::blob_path(low);
    let put = |bytes: Vec<u8>| {
        place
            .registry
            .0
            .state()
            .files
            .insert(path.clone(), Arc::new(bytes));
    };
    let mut wrong = gzip(&bytes);
    wrong[4] ^= 1;
    put(wrong.clone());
    has(
        &place.refused(":v1"),
        &format!("the blob has a different digest: {}", digest(&wrong)),
    );
    // A wrong length.
    put(vec![7; 20]);
    let size = layers[0]["size"].as_u64().unwrap();
    let why = format!("the blob has 20 bytes, but the manifest says {size}");
    has(&place.refused(":v1"), &why);
    // Missing, or not accessible to everyone.
    place.registry.0.state().files.remove(&path);
    has(&place.refused(":v1"), "the server answered 404");
    for status in [401, 403] {
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
        place
            .registry
            .0
            .state()
            .answers
            .insert(path.clone(), answer);
        has(
            &place.refused(":v1"),
            &format!("the server answered {status}"),
        );
    }
    place.registry.0.state().answers.remove(&path);
    // Something other than an archive, and compressed data that ends too early.
    let diff_ids = [diff_ids[1].clone(), digest(b"")];
    let cut = gzip(&bytes)[..1000].to_vec();
    let mut cut_frame = zstd(&bytes);
    cut_frame.truncate(cut_frame.len() - 2);
    for (blob, why) in [
        (b"no gzip at all".to_vec(), "not a valid tar archive: "),
        (cut, "cannot be unpacked as tar+gzip: "),
        (cut_frame, "cannot be unpacked as tar+zstd: "),
    ] {
        let layer = place.registry.put_blob(&blob, GZIP);
        place.put_image("v2", &[layers[1].clone(), layer], &diff_ids);
        let line = place.refused(":v2");
        assert!(line.contains(": layer 2 of 2 (sha256:"), "{line}");
        assert!(line.contains(why), "{line}");
    }
    // The other layer was fine.
    assert!(top.starts_with("sha256:"));
}

#[test]
fn what_is_wrong_with_a_manifest_or_config_is_one_line() {
    let place = Place::new(COPY);
    let layer = place.put(&archive(LENGTH, 1), GZIP);
    let ends = |why: &str| {
        let line = place.refused(":v1");
        assert!(line.ends_with(why), "{line}");
    };
    let none: [serde_json::Value; 0] = [];
    place
        .registry
        .put_manifest("v1", &json!({ "layers": none }));
    ends("the manifest lists no layers");
    let many: Vec<_> = (0..10_000).map(|_| layer.clone()).collect();
    place
        .registry
        .put_manifest("v1", &json!({ "layers": many }));
    ends("has 10000 layers; the limit is 128");
    place
        .registry
        .put_manifest("v1", &json!({ "layers": [layer] }));
    ends("the manifest has no config");
    place.put_image("v1", std::slice::from_ref(&layer), &[]);
    ends("number of layers: 1 in the manifest, 0 in the config");
    place.put_image(
        "v1",
        std::slice::from_ref(&layer),
        &["sha256:../x".to_owned()],
    );
    ends("the config: not a sha256 diff ID: sha256:../x");
    let mut config = place.registry.put_blob(b"{}", "config");
    config["digest"] = json!(digest(b"other"));
    let manifest = json!({ "config": config, "layers": [layer] });
    place.registry.put_manifest("v1", &manifest);
    let line = place.refused(":v1");
    assert!(
        line.contains("the config of the image: the server answered 404"),
        "{line}"
    );
    let path = Repository::blob_path(&digest(b"other"));
    place
        .registry
        .0
        .state()
        .files
        .insert(path, Arc::new(b"[]".to_vec()));
    let line = place.refused(":v1");
    assert!(
        line.contains("the config of the image has a different digest"),
        "{line}"
    );
    let mut config = place.registry.put_blob(b"{}", "config");
    config["size"] = json!(3);
    let manifest = json!({ "config": config, "layers": [layer] });
    place.registry.put_manifest("v1", &manifest);
    ends("the config of the image has 2 bytes, but the manifest says 3");
}

#[test]
fn a_program_that_is_missing_too_old_or_fails_is_one_line() {
    let place = Place::empty();
    place.put_archives("v1", &[(&archive(LENGTH, 1), GZIP)]);
    let path = cache();
    let nowhere = program_with(path.path(), &[("PATH", path.path())]);
    let url = source(&place.registry.url(":v1"));
    let line = Fetcher::start_program(nowhere, &[], &url, &place.options()).unwrap_err();
    let line = line.to_string();
    assert!(
        line.contains("mkfs.erofs is not installed: converting tar layers"),
        "{line}"
    );
    assert!(place.left().is_empty());
    // This is what version 1.5 prints.
    place.program(
        "case $* in *--version*) echo \"mkfs.erofs: unrecognized option '--version'\" >&2; exit 1 ;;
        esac; echo 'mkfs.erofs 1.5'; exit 1",
    );
    let line = place.refused(":v1");
    let why = "bin/mkfs.erofs is 1.5, which is too old: converting tar layers needs \
               erofs-utils 1.7 or later (Debian 13";
    assert!(line.contains(why), "{line}");
    place.program("echo usage; exit 1");
    assert!(place.refused(":v1").contains("does not print its version"));
    let version = COPY.lines().next().unwrap();
    place.program(&format!(
        "{version}\necho '<E> erofs: invalid chksum @ 0' >&2; exit 1"
    ));
    let line = place.refused(":v1");
    assert!(
        line.ends_with(": mkfs.erofs: erofs: invalid chksum @ 0"),
        "{line}"
    );
    place.program(&format!("{version}\nkill -9 $$"));
    let line = place.refused(":v1");
    assert!(line.contains("mkfs.erofs"), "{line}");
    place.program(&format!("{version}\nexec true"));
    let line = place.refused(":v1");
    assert!(line.contains("the image cannot be kept: "), "{line}");
}

/// This must succeed whatever the server does in the middle of the stream, and however often.
#[test]
fn a_stream_that_breaks_off_goes_on_where_it_was() {
    let place = Place::new(COPY);
    let bytes = archive(1_000_000, 1);
    place.put_archives("v1", &[(&bytes, GZIP)]);
    let later = [
        Fault::Short,
        Fault::Closed,
        Fault::Status(503),
        Fault::Later("0"),
    ];
    let faults = [None, None].into_iter().chain(later.map(Some));
    place.registry.0.state().faults = faults.collect();
    let mut fetcher = place.start(":v1").unwrap();
    assert_eq!(read_layers(&mut fetcher, &place.options()), [bytes]);
    // A server that never comes back.
    place.put_archives("v2", &[(&archive(LENGTH, 2), GZIP)]);
    drop(fetcher);
    for fault in [
        Fault::Status(500),
        Fault::Status(429),
        Fault::Closed,
        Fault::Drip,
    ] {
        let options = Options {
            timeout: Duration::from_secs(3),
            ..place.options()
        };
        let after = |number| std::iter::repeat_n(None, number);
        let faults = after(2).chain(std::iter::repeat_n(Some(fault.clone()), 1000));
        place.registry.0.state().faults = faults.collect();
        let line = place.start_with(":v2", &options).unwrap_err().to_string();
        place.registry.0.state().faults.clear();
        assert!(line.contains(": layer sha256:"), "{fault:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{line}");
    }
    assert_eq!(place.left().len(), 1, "of the first image");
}

#[test]
fn several_processes_convert_a_layer_once() {
    let place = Place::new(COPY);
    let archives: Vec<_> = (1..=3).map(|seed| archive(LENGTH, seed)).collect();
    let layers: Vec<_> = archives.iter().map(|it| (&it[..], GZIP)).collect();
    place.put_archives("v1", &layers);
    let fetcher = place.fetcher();
    std::thread::scope(|scope| {
        let start = || {
            let url = source(&place.registry.url(":v1"));
            let options = place.options();
            let fetcher = Fetcher::start_program(fetcher.clone(), &[], &url, &options);
            read_layers(&mut fetcher.unwrap(), &options)
        };
        let all: Vec<_> = (0..4).map(|_| scope.spawn(start)).collect();
        for found in all {
            assert!(found.join().unwrap().iter().eq(archives.iter().rev()));
        }
    });
    let config = 4;
    assert_eq!(place.asked_blobs().len(), config + archives.len());
}

/// A fetcher is killed while it converts: its processes end, and the next fetcher does the work.
#[test]
fn a_conversion_that_is_killed_is_made_anew() {
    let place = Place::new(&format!(
        "{}\nexec sleep 1000",
        COPY.lines().next().unwrap()
    ));
    let bytes = archive(LENGTH, 1);
    place.put_archives("v1", &[(&bytes, GZIP)]);
    let (reader, writer) = std::io::pipe().unwrap();
    let (fetcher, url) = (place.fetcher(), source(&place.registry.url(":v1")));
    let options = place.options();
    let waiting = std::thread::spawn(move || {
        use std::os::fd::AsFd;
        // The fetcher's processes end when nobody is waiting any more.
        Fetcher::start_program(fetcher, &[reader.as_fd()], &url, &options).unwrap_err()
    });
    let has_begun = || {
        let left = place.left();
        left.first().is_some_and(|entry| entry.join("new").is_dir())
    };
    let begun = std::time::Instant::now();
    while !has_begun() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing begins");
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(writer);
    let error = waiting.join().unwrap().to_string();
    assert!(error.contains("nobody is waiting"), "{error}");
    place.program(COPY);
    let fetcher = &mut place.start(":v1").unwrap();
    assert_eq!(read_layers(fetcher, &place.options()), [bytes]);
    assert!(!place.left()[0].join("new").exists());
}

#[test]
fn a_block_that_was_damaged_is_an_error_and_the_layer_is_converted_anew() {
    let place = Place::new(COPY);
    let bytes = archive(LENGTH, 1);
    place.put_archives("v1", &[(&bytes, GZIP)]);
    let mut fetcher = place.start(":v1").unwrap();
    let file = RemoteFile::new(fetcher.client().unwrap());
    let mut damaged = std::fs::read(place.left()[0].join("data")).unwrap();
    damaged[100_000] ^= 1;
    std::fs::write(place.left()[0].join("data"), damaged).unwrap();
    let line = read(&file, 0..LENGTH).unwrap_err().to_string();
    assert!(
        line.contains(": damaged in the cache; the layer is converted again"),
        "{line}"
    );
    assert_eq!(read(&file, 0..16_384).unwrap(), bytes[..16_384]);
    let fetcher = &mut place.start(":v1").unwrap();
    assert_eq!(read_layers(fetcher, &place.options()), [bytes]);
}

#[test]
fn all_layers_that_were_damaged_are_converted_anew_at_once() {
    let place = Place::new(COPY);
    let archives = [1, 2, 3].map(|seed| archive(LENGTH, seed));
    let layers = [0, 1, 2].map(|number| (&archives[number][..], GZIP));
    place.put_archives("v1", &layers);
    let mut fetcher = place.start(":v1").unwrap();
    let options = place.options();
    for entry in place.left() {
        let mut damaged = std::fs::read(entry.join("data")).unwrap();
        if damaged != archives[1] {
            damaged[100_000] ^= 1;
            std::fs::write(entry.join("data"), damaged).unwrap();
        }
    }
    // A reader has found a damaged block in one of the layers.
    let first = RemoteFile::new(fetcher.client().unwrap());
    read(&first, 0..LENGTH).unwrap_err();
    place.asked_blobs();
    let again = read_layers(&mut place.start(":v1").unwrap(), &options);
    assert!(again.iter().eq(archives.iter().rev()));
    let config = 1;
    assert_eq!(
        place.asked_blobs().len(),
        config + 2,
        "those that were damaged"
    );
}

#[test]
fn a_layer_that_unpacks_to_more_than_the_cache_may_have_is_refused() {
    let place = Place::new(COPY);
    let zeros = vec![0; 4 << 20];
    place.put_archives("v1", &[(&zeros, GZIP)]);
    let options = Options {
        cache_size: 1 << 20,
        ..place.options()
    };
    let line = place.start_with(":v1", &options).unwrap_err().to_string();
    assert!(
        line.ends_with("unpacks to more than 1048576 bytes, the size of the cache (cache_size=)")
    );
    assert!(place.left().is_empty());
}

/// The line is sent after the image is open.
#[test]
fn a_tag_says_what_it_is_an_image_of() {
    let place = Place::new(COPY);
    let layers = [put_erofs(&place, b"low"), put_erofs(&place, b"top")];
    let manifest = place
        .registry
        .put_manifest("v1", &json!({ "layers": layers }));
    let mut fetcher = place.start(":v1").unwrap();
    let line = format!(
        "{}: manifest {manifest}; layers: 2",
        place.registry.url(":v1")
    );
    assert_eq!(fetcher.event().unwrap(), Event::Note(line));
}

#[test]
fn an_image_of_layers_needs_no_registry_once_it_is_there() {
    let place = Place::new(COPY);
    let (low, top) = (archive(LENGTH, 1), archive(LENGTH, 2));
    let layers = [
        place.put(&low, GZIP),
        put_erofs(&place, &image(LENGTH)),
        place.put(&top, ZSTD),
    ];
    let diff_ids = [&low, &image(LENGTH), &top].map(|bytes| digest(bytes));
    place.put_image("v1", &layers, &diff_ids);
    let options = place.options();
    let expected = [top, image(LENGTH), low];
    assert_eq!(
        read_layers(&mut place.start(":v1").unwrap(), &options),
        expected
    );
    place.program("exit 1");
    place.registry.0.state().always = Some(Fault::Closed);
    let mut fetcher = place.start(":v1").unwrap();
    let file = RemoteFile::new(fetcher.client().unwrap());
    assert!(
        file.offline()
            .unwrap()
            .starts_with("using the copy in the cache, confirmed ")
    );
    assert_eq!(file.layers().len(), 2);
    assert_eq!(read_layers(&mut fetcher, &options), expected);
}

/// Unused images are removed first. If that is not enough, there is one line, and nothing is left
/// over.
#[test]
fn a_disk_that_is_full_in_the_middle_is_one_line() {
    let Some(small) = crate::reading::SmallDisk::mount() else {
        println!("skipped: no right to mount a tmpfs");
        return;
    };
    let place = Place::new(COPY);
    // While a layer is being converted, it takes up twice its size.
    let (old, new, large) = (
        archive(200_000, 1),
        archive(200_000, 2),
        archive(400_000, 3),
    );
    for (tag, archive) in [("old", &old), ("new", &new), ("large", &large)] {
        place.put_archives(tag, &[(archive, GZIP)]);
    }
    let options = Options {
        cache_dir: Some(small.0.path().join("cache")),
        ..place.options()
    };
    let entries = || cache::list(&small.0.path().join("cache")).unwrap();
    drop(place.start_with(":old", &options).unwrap());
    // There is no room for both images.
    let mut fetcher = place.start_with(":new", &options).unwrap();
    assert_eq!(read_layers(&mut fetcher, &options), [new]);
    assert_eq!(entries().len(), 1);
    drop(fetcher);
    let line = place
        .start_with(":large", &options)
        .unwrap_err()
        .to_string();
    assert!(line.contains("No space left on device"), "{line}");
    assert_eq!(line.lines().count(), 1, "{line}");
    let folders = std::fs::read_dir(small.0.path().join("cache")).unwrap();
    let names = folders.map(|folder| folder.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["answers"]);
}
