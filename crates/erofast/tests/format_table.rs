//! The table of docs/format.md, held to: each of its rows is a test of the same name here, which
//! opens an image and finds the outcome that the row states.
//!
//! Rows "read" compare whole images with their manifests; rows "refused" change a few bytes of a
//! good image and expect the error that names what is wrong, and all else of the image as it was. Images that are not in the checkout are skipped with a line.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{TestImage, good_images, image_sets, manifest, verify};
use erofs_engine::erofs_format::{Algorithm, Coding, Extent, ExtentKind, FileType, Inode};
use erofs_engine::{Engine, EngineOptions, Error, Offset, ReadContext};

use Algorithm::{Deflate, Lz4, Lzma, Zstd};
use Outcome::{Read, RefusedAtOpen, RefusedPerFile};

/// What the third column of the table may say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Read,
    RefusedAtOpen,
    RefusedPerFile,
}

impl Outcome {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "read" => Read,
            "refused at open" => RefusedAtOpen,
            "refused per file" => RefusedPerFile,
            _ => return None,
        })
    }
}

/// The rows of docs/format.md: those whose first column is one word in backquotes.
fn documented() -> BTreeMap<String, Outcome> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let text = std::fs::read_to_string(&path).expect("docs/format.md");
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let id = columns[1].trim_matches('`').to_owned();
        let outcome = Outcome::of(columns[3]).unwrap_or_else(|| panic!("{id}: {}", columns[3]));
        assert!(rows.insert(id.clone(), outcome).is_none(), "{id} twice");
    }
    rows
}

/// One test for each row, by the name of the row.
macro_rules! rows {
    ($($id:ident: $outcome:ident, $check:expr;)*) => {
        const ROWS: &[(&str, Outcome)] = &[$((stringify!($id), $outcome)),*];
        $(#[test] fn $id() { let hold: fn() = || $check; hold(); })*
    };
}

#[test]
fn the_table_and_the_tests_have_the_same_rows() {
    let tested: BTreeMap<String, Outcome> = ROWS
        .iter()
        .map(|&(id, outcome)| (id.to_owned(), outcome))
        .collect();
    assert_eq!(documented(), tested);
}

rows! {
    // Superblock and devices.
    checksum: Read, reads(&["meta"], "sb_chksum");
    checksum_absent: Read, {
        patched("meta").superblock(4, &[0; 4]).flip(1024 + 8, 1).reads();
        reads(&["plain-nosbcrc"], "mtime");
    };
    checksum_wrong: RefusedAtOpen,
        patched("meta").superblock(64, b"x").unsealed().refused("superblock checksum");
    magic: RefusedAtOpen, patched("meta").superblock(0, &[0]).refused("not an EROFS image: magic");
    too_short: RefusedAtOpen, patched("meta").cut(1100).refused("too few for a superblock");
    block_size: Read, {
        reads(&["tar-index", "plain-b512"], "bs=512");
        reads(&["plain-b1024", "zstd-b1024"], "bs=1024");
        reads(&["plain-b2048"], "bs=2048");
        reads(&["meta"], "bs=4096");
        reads(&["plain-b8192"], "bs=8192");
        reads(&["lz4-b16384"], "bs=16384");
        reads(&["plain-b65536"], "bs=65536");
    };
    block_size_other: RefusedAtOpen, {
        patched("meta").superblock(12, &[8]).refused("block size of 2^8");
        patched("meta").superblock(12, &[17]).refused("block size of 2^17");
    };
    compat_unknown: Read, patched("meta").flip(1024 + 11, 0x40).reads();
    incompat_unknown: RefusedAtOpen,
        patched("meta").flip(1024 + 83, 0x40).refused("feature_incompat 0x40000000 (bit 30)");
    reserved_fields: Read, patched("lz4-full-index-64k")
        .superblock(106, &[0xff; 2])
        .superblock(120, &[0xff; 8])
        .inode("noise-9000", 48, &[0xff; 16])
        .reads();
    directory_block_bits: RefusedAtOpen,
        patched("meta").superblock(90, &[1]).refused("dirblkbits 1");
    extension_slots: RefusedAtOpen,
        patched("meta").superblock(13, &[255]).refused("superblock of 4208 bytes");
    root_beyond: RefusedAtOpen,
        patched("meta").superblock(14, &[0xff; 2]).refused("nid 0xffff is beyond the end");
    root_no_directory: RefusedAtOpen, {
        let image = patched("lz4-full-index-64k");
        let nid = image.nid("noise-9000");
        image.superblock(14, &(nid as u16).to_le_bytes()).refused("is a Regular");
    };
    packed_beyond: RefusedAtOpen,
        patched("kitchen-sink").superblock(96, &[0xff; 4]).refused("is beyond the end");
    packed_no_file: RefusedAtOpen, {
        let image = patched("kitchen-sink");
        let root = image.nid("");
        image.superblock(96, &root.to_le_bytes()).refused("the packed inode");
    };
    metabox_without_slot: RefusedAtOpen,
        patched("metabox-dir").superblock(13, &[0]).refused("without the extension slot");
    metabox_in_itself: RefusedAtOpen,
        patched("metabox-dir").flip(1024 + 135, 0x80).refused("inside of itself");
    offset: Read, reads(&["offset-8192"], "bs=4096");
    offset_found: Read, {
        let image = patched("lz4-full-index-64k").shift(3 * 512);
        Patched { image: TestImage { offset: 0, ..image.image.clone() }, auto: true, ..image }
            .reads();
    };
    devices: Read, {
        reads(&["blobdev", "tar-index"], "devices=1");
        reads(&["multidev-merge"], "devices=2");
    };
    devices_in_one_file: Read, one_file_for_all();
    devices_missing: RefusedAtOpen,
        patched("blobdev").devices(0).refused("1 extra device(s) and 0 were given; missing: device 1");
    devices_needless: RefusedAtOpen, patched("blobdev").devices(2).refused("2 were given");
    device_table_beyond: RefusedAtOpen,
        patched("blobdev").superblock(88, &[0xff; 2]).refused("beyond the end of the primary device");
    label_and_alignment: Read, reads(&["plain-label-dsunit"], "bs=4096");
    incremental: Read, reads(&["incremental"], "bs=4096");
    tar_images: Read, reads(&["tar-index", "tar-full"], "sb_chksum");
    feature_48bit: Read, reads(&["zstd-48bit-unaligned", "chunk-48bit", "meta-48bit"], "48bit");

    // Compression settings.
    algorithms_unknown: RefusedAtOpen,
        patched("lz4-full-index-64k").flip(1024 + 84, 0x80).refused("compression algorithms 0x80");
    lz4_pcluster_limit: RefusedAtOpen,
        patched("lz4-full-index-64k").config(4, &[0xe8, 3]).refused("lz4 pclusters of 1000 blocks");
    lzma_format: RefusedAtOpen,
        patched("lzma-lc0lp2pb0").config(6, &[1]).refused("lzma format 1");
    lzma_dictionary: RefusedAtOpen,
        patched("lzma-lc0lp2pb0").config(2, &[0, 0, 0, 0x40]).refused("lzma dictionary of 1073741824");
    deflate_window: RefusedAtOpen,
        patched("lcluster-16k-bigpcluster").config(16 + 2, &[16]).refused("deflate window of 2^16");
    zstd_format: RefusedAtOpen,
        patched("zstd-48bit-unaligned").config(2, &[1]).refused("zstd format 1");
    zstd_window: RefusedAtOpen,
        patched("zstd-48bit-unaligned").config(3, &[11]).refused("zstd window of 2^21");

    // Inodes.
    inode_compact: Read, reads(&["meta", "plain-compact-inodes"], "compact:");
    inode_extended: Read, reads(&["meta", "plain-extended-inodes"], "extended:");
    metadata: Read, reads(&["meta", "meta-b512", "meta-48bit"], "mtime");
    inode_format_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").inode_flip("noise-9000", 0, 0x20).refuses("noise-9000", "i_format");
    layout_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 0, &[0xf]).refuses("noise-9000", "data layout 7");
    type_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 5, &[0x01]).refuses("noise-9000", "mode 0o");
    size_impossible: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 15, &[0x80]).refuses("noise-9000", "are possible");
    symlink_too_long: RefusedPerFile,
        patched("lz4-full-index-64k").inode("link", 8, &4096u64.to_le_bytes()).refuses("link", "4095 are possible");
    nid_beyond: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 3);
        image.set(entry, &[0xff; 4]).refuses("t/s1", "is beyond the end");
    };

    // Plain data.
    flat_plain: Read, reads(&["meta", "plain-noinline"], "flat_plain:");
    flat_inline: Read, reads(&["meta", "plain"], "flat_inline:");
    inline_crosses_block: RefusedPerFile,
        patched("lz4-full-index-64k").inode("t/s50", 8, &4095u64.to_le_bytes()).refuses("t/s50", "crosses its block");
    data_beyond_device: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 16, &[0xff, 0xff, 0xff, 0x7f]).refuses("noise-9000", "beyond the end");
    data_cut_off: RefusedPerFile, {
        let image = patched("head2-lz4-deflate");
        let (path, address) = image.last_on_device();
        image.cut(address as usize + 100).refuses(&path, "cut off");
    };
    chunk_block_map: Read, reads(&["chunk-4k-blockmap", "chunk-64k", "chunk-b512"], "chunk-blockmap:");
    chunk_indexes: Read, reads(&["blobdev", "chunk-16k-indexes"], "chunk-indexes:");
    chunk_holes: Read, reads(&["chunk-sparse-4g"], "chunk-blockmap:");
    chunk_wide: Read, patched("blobdev").inode_flip("text-40000", 16, 0x40).reads();
    chunk_format_unknown: RefusedPerFile,
        patched("blobdev").inode_flip("noise-9000", 16, 0x80).refuses("noise-9000", "chunk format");
    chunk_beyond_device: RefusedPerFile,
        patched("blobdev").body("noise-9000", 8 + 4, &[0xff, 0xff, 0xff, 0x7f]).refuses("noise-9000", "beyond the end");
    chunk_device_unknown: RefusedPerFile,
        patched("blobdev").superblock(86, &[2]).devices(2).body("noise-9000", 2, &[3])
            .refuses("noise-9000", "device 3 of 2 extra devices");
    large_files: Read, reads(&["chunk-sparse-4g", "zstd-48bit-4g", "zstd-48bit-4g-frag"], "bs=4096");

    // Compressed data.
    lz4: Read, reads(&["lz4-full-index-64k", "lz4-4k", "lz4hc-16k"], "lz4");
    lz4_without_padding: Read, reads(&["lz4-no-padding"], "inode-alg-lz4");
    lzma: Read, reads(&["lzma-lc0lp2pb0", "lzma-4k", "lzma-1m-dict8m"], "inode-alg-lzma");
    deflate: Read, reads(&["lcluster-16k-bigpcluster", "deflate-4k", "deflate-window512"], "inode-alg-deflate");
    zstd: Read, reads(&["zstd-48bit-unaligned", "zstd-4k", "zstd-1m-dict1m"], "algs=zstd");
    algorithm_per_file: Read, reads(&["mixed-algorithms"], "algs=lz4+lzma+deflate+zstd");
    head2: Read, reads(&["head2-lz4-deflate", "head2-bigpcluster"], "lc-head2:");
    big_pclusters: Read, reads(&["lz4-full-index-64k", "lz4hc-1m", "lz4-max-extent"], "cblkcnt:");
    full_index: Read, reads(&["lz4-full-index-64k", "lz4-full-index"], "lc-head1:");
    compact_index: Read, reads(&["lzma-lc0lp2pb0", "lz4-4k"], "2B:");
    extents: Read, {
        reads(&["zstd-48bit-unaligned", "zstd-48bit-4g"], "extents-rec4:");
        reads(&["zstd-48bit-fragments"], "extents-rec8:");
        reads(&["zstd-48bit-unaligned"], "extents-rec16:");
        reads(&["zstd-48bit-4g-frag"], "extents-rec32:");
    };
    extent_unaligned: Read, reads(&["zstd-48bit-unaligned"], "extents-rec");
    extent_partial: Read, {
        let image = patched("zstd-48bit-unaligned");
        let path = image.path_of(|advise| advise >> 1 & 3 == 2);
        let at = image.extent(&path, 0) + 3;
        image.flip(at, 0x08).reads();
    };
    large_lclusters: Read, reads(&["lcluster-16k-bigpcluster", "lcluster-16k"], "lcluster=bs<<2");
    tail_packing: Read, reads(&["lz4-ztailpacking", "lzma-b512-ztail"], "ztail:");
    fragments: Read, {
        reads(&["kitchen-sink", "lzma-all-fragments"], "whole-fragment:");
        reads(&["lz4-fragments", "zstd-fragments-inode"], "frag-tail:");
    };
    interlaced: Read, reads(&["lz4-fragments", "zstd-fragments-inode"], "interlaced:");
    dedupe: Read, reads(&["lz4-dedupe", "lz4-ztail-frag-dedupe"], "partial-ref:");
    stream_broken: RefusedPerFile, {
        patched("lz4-full-index-64k").garbage("text-40000", Lz4, 0xff).refuses("text-40000", "lz4: ");
        patched("lzma-lc0lp2pb0").garbage("text-40000", Lzma, 0x5a).refuses("text-40000", "lzma: ");
        patched("lcluster-16k-bigpcluster").garbage("text", Deflate, 0xff).refuses("text", "deflate: ");
        patched("zstd-48bit-unaligned").garbage("text-40000", Zstd, 0x28).refuses("text-40000", "zstd: ");
    };
    algorithm_undeclared: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 6, &[3]).refuses("text-40000", "zstd is not declared");
    algorithm_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 6, &[7]).refuses("text-40000", "compression algorithm 7");
    big_pclusters_undeclared: RefusedPerFile, {
        let image = patched("lz4-full-index-64k").flip(1024 + 80, 2);
        let paths = image.paths(|inode| inode.is_compressed());
        image.refuses_all(&paths, "big pclusters in nid");
    };
    compact_index_one_size: RefusedPerFile,
        patched("lzma-lc0lp2pb0").body_flip("text-40000", 4, 4).refuses("text-40000", "one kind of heads only");
    compact_index_large_lclusters: RefusedPerFile,
        patched("lzma-lc0lp2pb0").body("text-40000", 7, &[3]).refuses("text-40000", "lclusters of 2^15 bytes");
    pcluster_limit: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16 + 8 + 4, &[0xff, 0x0f]).refuses("text-40000", "1 MiB for 12 MiB is the limit");
    pcluster_beyond_device: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16 + 4, &[0xff, 0xff, 0xff, 0x7f]).refuses("text-40000", "beyond the end");
    pcluster_plain_too_short: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16, &[0]).refuses("text-40000", "40000 uncompressed bytes in");
    head_missing: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16, &[2, 0, 0, 0, 1, 0, 0, 0]).refuses("text-40000", "has its head");
    head_beyond_lcluster: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16 + 2, &[0xff; 2]).refuses("text-40000", "begins at 65535 of its 4096");
    tail_crosses_block: RefusedPerFile,
        patched("lz4-full-index-64k").body_flip("text-40000", 4, 8).body("text-40000", 2, &[0xff; 2])
            .refuses("text-40000", "crosses its block");
    extents_too_many: RefusedPerFile, {
        let image = patched("zstd-48bit-unaligned");
        let path = image.path_of(|advise| advise >> 1 & 3 == 2);
        image.body(&path, 0, &[0xff; 4]).refuses(&path, "beyond the end");
    };
    extents_out_of_order: RefusedPerFile, {
        let image = patched("zstd-48bit-unaligned");
        let path = image.path_of(|advise| advise >> 1 & 3 == 2);
        let at = image.extent(&path, 0) + 12;
        image.set(at, &[0xff; 4]).refuses(&path, "out of order");
    };
    fragment_without_packed: RefusedPerFile,
        patched("lz4-full-index-64k").body_flip("text-40000", 7, 0x80).refuses("text-40000", "the image has no packed inode");
    fragment_beyond_packed: RefusedPerFile, {
        let image = patched("kitchen-sink");
        let path = image.path_of(|_| true);
        image.body(&path, 0, &[0xff; 4]).refuses(&path, "of the packed inode, which has");
    };
    fragment_of_itself: RefusedPerFile, {
        // Without the long xattr names, which are in the packed inode of that image.
        let image = patched("kitchen-sink").flip(1024 + 80, 0x40);
        let paths = image.paths(|inode| inode.is_compressed());
        let packed = image.engine.image().packed_nid().expect("a packed inode");
        let packed = image.engine.inode(packed).expect("the packed inode");
        let (inode, body) = (image.position(&packed), image.body_of(&packed));
        image.set(inode, &[3]).set(body, &[0, 0, 0, 0, 0, 0, 0, 0x80])
            .tolerating("cannot be a fragment of itself")
            .refuses_all(&paths, "cannot be a fragment of itself");
    };

    // Directories.
    directories: Read, reads(&["meta", "dir", "dir-b512"], "bs=");
    directory_compressed: Read, reads(&["metabox-dir", "dir-compressed"], "fragments/dedupe");
    directory_without_dot: Read, reads(&["dir-dot-omitted"], "dot-omitted:");
    metazone: Read, reads(&["metazone"], "bs=4096");
    metabox: Read, reads(&["metabox-dir", "metabox-plain", "metabox-lz4", "metabox-zstd-lzma"], "in-metabox:");
    entry_type_wrong: Read, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 3);
        image.set(entry + 10, &[2]).reads();
    };
    directory_unsorted: Read, {
        // s0 and s1 change places: names and nids.
        let image = patched("lz4-full-index-64k");
        let (one, two) = (image.dirent("t", 2), image.dirent("t", 3));
        let nids = [one, two].map(|at| image.bytes[at..at + 8].to_vec());
        let names = [one, two].map(|at| image.name_at(one - 24, at));
        image.set(one, &nids[1]).set(two, &nids[0]).set(names[0], b"s1").set(names[1], b"s0").reads();
    };
    entry_name_impossible: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 3);
        let name = image.name_at(entry - 36, entry);
        image.set(name, b"/").tolerating("entry 3 of the directory block").refuses("t/s1", "no such file or directory");
    };
    entry_name_outside: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 8);
        image.set(entry + 8, &[0xe8, 0xfd]).tolerating("of the directory block").refuses_all(&["t/s4097", "t/s50"], "no such file or directory");
    };
    directory_block_broken: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 0);
        let paths = ["t/s0", "t/s1", "t/s3000", "t/s4095", "t/s4096", "t/s4097", "t/s50"];
        image.set(entry + 8, &[13, 0]).tolerating("t: ").refuses_all(&paths, "");
    };

    // Extended attributes.
    xattrs_inline: Read, reads(&["meta", "xattr-inline"], "xattr-inodes:");
    xattrs_shared: Read, reads(&["xattr-prefixes", "xattr-shared"], "shared-xattr-refs:");
    xattr_filter: Read, reads(&["xattr-prefixes", "xattr"], "xattr_filter");
    xattr_filter_absent: Read, reads(&["xattr-nofilter"], "xattr-inodes:");
    xattr_prefixes: Read, {
        reads(&["xattr-prefixes", "xattr-prefixes-plain"], "plain_xattr_pfx");
        reads(&["kitchen-sink", "metabox-xattr"], "xattr_prefixes");
    };
    xattr_digest: Read, reads(&["xattr-digest"], "ishare_xattrs");
    xattr_namespace_unknown: Read,
        patched("lz4-full-index-64k").xattr("mixed-90000", 1, &[9]).reads_without_xattrs("mixed-90000");
    xattr_prefix_unknown: Read,
        patched("lz4-full-index-64k").xattr("mixed-90000", 1, &[0x85]).reads_without_xattrs("mixed-90000");
    xattr_prefixes_beyond: RefusedAtOpen,
        patched("xattr-prefixes").superblock(92, &[0xff; 4]).refused("beyond the end");
    xattr_digest_unknown: RefusedAtOpen,
        patched("xattr-prefixes").flip(1024 + 8, 0x20).superblock(105, &[200]).refused("digest xattr prefix 200 of 3");
    xattr_overflow: RefusedPerFile,
        patched("lz4-full-index-64k").xattr("mixed-90000", 0, &[0xff, 1, 0xff, 0xff]).refuses("mixed-90000", "bytes of name and value");
    xattr_shared_beyond: RefusedPerFile, {
        let image = patched("xattr-prefixes");
        let path = image.with_shared_xattrs().remove(0);
        image.xattr(&path, 0, &[0xff; 4]).refuses(&path, "beyond the end");
    };
    xattrs_shared_in_no_metabox: RefusedPerFile, {
        let image = patched("xattr-prefixes").flip(1024 + 8, 8);
        let paths = image.with_shared_xattrs();
        image.refuses_all(&paths, "metabox of an image without one");
    };
}

/// An image of either set.
fn find(name: &str) -> Option<(TestImage, PathBuf)> {
    image_sets().into_iter().find_map(|set| {
        let image = good_images(&set)
            .into_iter()
            .find(|image| image.name == name)?;
        Some((image, set))
    })
}

/// Each image reads as its manifest says, and has what its row is about.
fn reads(names: &[&str], occurs: &str) {
    for name in names {
        let Some((image, set)) = find(name) else {
            println!("skipped: {name} is only in the large set of images");
            continue;
        };
        let table = std::fs::read_to_string(set.join("manifest.tsv")).expect("manifest.tsv");
        let line = table
            .lines()
            .find(|line| line.starts_with(&format!("{name}\t")));
        assert!(
            line.expect("a line").contains(occurs),
            "{name} lacks {occurs}"
        );
        let engine = Engine::open(&image.path, &image.options()).expect(name);
        assert_same(&engine, &image, &[]);
    }
}

fn differences(engine: &Engine, image: &TestImage, skip: &[&str]) -> Vec<String> {
    verify::differences(engine, &manifest::read(&image.manifest), skip)
}

fn assert_same(engine: &Engine, image: &TestImage, skip: &[&str]) {
    let differences = differences(engine, image, skip);
    let shown = &differences[..differences.len().min(10)];
    assert!(shown.is_empty(), "{}: {}", image.name, shown.join("\n"));
}

/// A fixture of the checkout, to be changed.
fn patched(name: &str) -> Patched {
    let (image, _) = find(name).expect("a fixture");
    let engine = Engine::open(&image.path, &image.options()).expect("a good image");
    let bytes = std::fs::read(&image.path).expect("readable");
    Patched {
        image,
        bytes,
        engine,
        sealed: true,
        auto: false,
        also: None,
    }
}

/// A changed image, and the unchanged one to find things with.
struct Patched {
    image: TestImage,
    bytes: Vec<u8>,
    engine: Arc<Engine>,
    /// Its checksum is made right again.
    sealed: bool,
    /// To be found in its file.
    auto: bool,
    /// What else may be reported: the directory of an entry, or paths that are no text.
    also: Option<&'static str>,
}

const SUPERBLOCK: usize = 1024;
/// A nid counts slots of 32 bytes.
const SLOT: usize = 32;

impl Patched {
    fn set(mut self, at: usize, bytes: &[u8]) -> Self {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    fn flip(mut self, at: usize, bits: u8) -> Self {
        self.bytes[at] ^= bits;
        self
    }

    fn superblock(self, field: usize, bytes: &[u8]) -> Self {
        self.set(SUPERBLOCK + field, bytes)
    }

    /// In the records of compression settings, behind the superblock.
    fn config(self, field: usize, bytes: &[u8]) -> Self {
        let size = self.engine.image().superblock().size as usize;
        self.set(SUPERBLOCK + size + field, bytes)
    }

    fn inode(self, path: &str, field: usize, bytes: &[u8]) -> Self {
        let at = self.position(&self.found(path)) + field;
        self.set(at, bytes)
    }

    fn inode_flip(self, path: &str, field: usize, bits: u8) -> Self {
        let at = self.position(&self.found(path)) + field;
        self.flip(at, bits)
    }

    /// In what follows inode and xattrs: map header or chunk indexes.
    fn body(self, path: &str, field: usize, bytes: &[u8]) -> Self {
        let at = self.body_of(&self.found(path)) + field;
        self.set(at, bytes)
    }

    fn body_flip(self, path: &str, field: usize, bits: u8) -> Self {
        let at = self.body_of(&self.found(path)) + field;
        self.flip(at, bits)
    }

    /// Behind the 12 bytes that begin the inline xattrs.
    fn xattr(self, path: &str, field: usize, bytes: &[u8]) -> Self {
        let inode = self.found(path);
        let at = self.position(&inode) + inode_size(&inode) + 12 + field;
        self.set(at, bytes)
    }

    /// Fills the first pcluster of a file that is compressed so.
    fn garbage(self, path: &str, algorithm: Algorithm, byte: u8) -> Self {
        let inode = self.found(path);
        let mut offset = 0;
        loop {
            let extent = self.engine.image().map(&inode, offset).expect("an extent");
            offset = extent.end();
            if let ExtentKind::Compressed(pcluster) = extent.kind
                && pcluster.coding == Coding::Compressed(algorithm)
            {
                let at = pcluster.location.physical as usize;
                return self.set(at, &vec![byte; pcluster.length as usize]);
            }
        }
    }

    fn cut(mut self, length: usize) -> Self {
        self.bytes.truncate(length);
        self.sealed &= length >= 4096;
        self
    }

    /// Puts zeros in front of the image.
    fn shift(mut self, by: usize) -> Self {
        self.bytes = self.sealed_bytes();
        self.bytes.splice(0..0, std::iter::repeat_n(0, by));
        self.sealed = false;
        self
    }

    fn unsealed(mut self) -> Self {
        self.sealed = false;
        self
    }

    fn tolerating(mut self, report: &'static str) -> Self {
        self.also = Some(report);
        self
    }

    /// Gives so many extra devices, all of them the image's own.
    fn devices(mut self, count: usize) -> Self {
        let device = self.image.devices[0].clone();
        self.image.devices = vec![device; count];
        self
    }

    fn found(&self, path: &str) -> Arc<Inode> {
        self.engine.resolve(path.as_bytes(), false).expect(path)
    }

    fn nid(&self, path: &str) -> u64 {
        self.found(path).nid
    }

    fn position(&self, inode: &Inode) -> usize {
        let superblock = self.engine.image().superblock();
        superblock.meta_block as usize * superblock.block_size as usize + inode.nid as usize * SLOT
    }

    fn body_of(&self, inode: &Inode) -> usize {
        let xattrs = match usize::from(inode.xattr_icount) {
            0 => 0,
            count => 12 + 4 * (count - 1),
        };
        (self.position(inode) + inode_size(inode) + xattrs).next_multiple_of(8)
    }

    /// Encoded extent `index` of a file, of 16 bytes.
    fn extent(&self, path: &str, index: usize) -> usize {
        (self.body_of(&self.found(path)) + 8).next_multiple_of(16) + 16 * index
    }

    /// Entry `index` of a directory that is wholly behind its inode.
    fn dirent(&self, path: &str, index: usize) -> usize {
        let extent = self
            .engine
            .image()
            .map(&self.found(path), 0)
            .expect("an extent");
        let ExtentKind::Meta { physical, .. } = extent.kind else {
            panic!("{path} is not inline: {extent:?}");
        };
        physical as usize + 12 * index
    }

    /// The name of the entry at `entry`, in the directory block at `block`.
    fn name_at(&self, block: usize, entry: usize) -> usize {
        block
            + usize::from(u16::from_le_bytes([
                self.bytes[entry + 8],
                self.bytes[entry + 9],
            ]))
    }

    /// All paths whose inode is like that, in the order of the tree.
    fn paths(&self, like: impl Fn(&Inode) -> bool) -> Vec<String> {
        manifest::read(&self.image.manifest)
            .iter()
            .filter_map(|entry| String::from_utf8(entry.path()).ok())
            .filter(|path| like(&self.found(path)))
            .collect()
    }

    /// The first compressed file whose `h_advise` is like that.
    fn path_of(&self, like: impl Fn(u16) -> bool) -> String {
        let advise = |inode: &Inode| {
            let at = self.body_of(inode) + 4;
            u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
        };
        self.paths(|inode| inode.is_compressed() && inode.nlink == 1 && like(advise(inode)))
            .remove(0)
    }

    fn with_shared_xattrs(&self) -> Vec<String> {
        let shared = |inode: &Inode| self.bytes[self.position(inode) + inode_size(inode) + 4];
        self.paths(|inode| inode.xattr_icount > 0 && shared(inode) > 0)
    }

    /// The file whose data is the last of the device, and where it starts.
    fn last_on_device(&self) -> (String, u64) {
        let address = |path: &String| {
            let inode = self.found(path);
            let extent = (inode.file_type() == FileType::Regular && inode.size > 0).then(|| {
                self.engine
                    .image()
                    .map(&inode, inode.size - 1)
                    .expect("an extent")
            });
            match extent {
                Some(Extent {
                    kind: ExtentKind::Compressed(pcluster),
                    ..
                }) => pcluster.location.physical,
                _ => 0,
            }
        };
        let paths = self.paths(|inode| inode.is_compressed() && inode.nlink == 1);
        let last = paths
            .into_iter()
            .max_by_key(address)
            .expect("a compressed file");
        let address = address(&last);
        (last, address)
    }

    fn sealed_bytes(&self) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let block = 1usize << bytes[SUPERBLOCK + 12].clamp(9, 16);
        let length = if block > SUPERBLOCK {
            block - SUPERBLOCK
        } else {
            block
        };
        bytes[SUPERBLOCK + 4..][..4].fill(0);
        if bytes[SUPERBLOCK + 8] & 1 != 0 && bytes.len() >= SUPERBLOCK + length {
            let sum = crc32c(&bytes[SUPERBLOCK..SUPERBLOCK + length]);
            bytes[SUPERBLOCK + 4..][..4].copy_from_slice(&sum.to_le_bytes());
        }
        bytes
    }

    /// Opens what came of it. The file is gone afterwards; the engine has it open.
    fn open(&self) -> Result<Arc<Engine>, Error> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let bytes = if self.sealed {
            self.sealed_bytes()
        } else {
            self.bytes.clone()
        };
        std::fs::write(file.path(), bytes).expect("room for a temporary file");
        let mut options = self.image.options();
        if self.auto {
            options.offset = Offset::Auto;
        }
        Engine::open(
            file.path(),
            &EngineOptions {
                workers: erofs_engine::WorkersMode::Inline,
                ..options
            },
        )
    }

    /// It is as if nothing had been changed.
    fn reads(&self) {
        assert_same(&self.open().expect("it opens"), &self.image, &[]);
    }

    /// The attributes of one file are passed over; its content and everything else is there.
    fn reads_without_xattrs(&self, path: &str) {
        let engine = self.open().expect("it opens");
        let inode = engine.resolve(path.as_bytes(), false).expect(path);
        assert_eq!(engine.xattrs(&inode).expect("a list"), []);
        everything_of(&engine, path).expect(path);
        assert_same(&engine, &self.image, &[path]);
    }

    /// It does not open, and the error names the reason.
    fn refused(&self, says: &str) {
        match self.open() {
            Ok(_) => panic!("opens, instead of: {says}"),
            Err(error) => assert!(error.to_string().contains(says), "{error}, without: {says}"),
        }
    }

    /// One path fails with an error that names the reason; everything else is as it was.
    fn refuses(&self, path: &str, says: &str) {
        let group: BTreeSet<String> = match self.engine.resolve(path.as_bytes(), false) {
            Ok(inode) => self
                .paths(|other| other.nid == inode.nid)
                .into_iter()
                .collect(),
            Err(error) => panic!("{error}"),
        };
        let group: Vec<String> = group.into_iter().collect();
        self.refuses_all(&group, says);
    }

    fn refuses_all<S: AsRef<str>>(&self, paths: &[S], says: &str) {
        assert!(!paths.is_empty());
        let engine = self.open().expect("it opens");
        let paths: Vec<&str> = paths.iter().map(AsRef::as_ref).collect();
        for path in &paths {
            match everything_of(&engine, path) {
                Ok(()) => panic!("{path} reads, instead of: {says}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(text.contains(says), "{path}: {text}, without: {says}");
                }
            }
        }
        let also = |report: &&String| !self.also.is_some_and(|also| report.contains(also));
        let differences = differences(&engine, &self.image, &paths);
        let left: Vec<_> = differences.iter().filter(also).take(10).collect();
        assert!(left.is_empty(), "{}: {left:#?}", self.image.name);
    }
}

fn inode_size(inode: &Inode) -> usize {
    if inode.extended { 2 * SLOT } else { SLOT }
}

/// Everything that can be asked of a path.
fn everything_of(engine: &Arc<Engine>, path: &str) -> Result<(), Error> {
    let inode = engine.resolve(path.as_bytes(), false)?;
    engine.xattrs(&inode)?;
    match inode.file_type() {
        FileType::Symlink => engine.read_link(&inode).map(drop),
        FileType::Directory => {
            engine.read_dir(&inode, 0, &mut |_, _, _, _| ControlFlow::Continue(()))
        }
        FileType::Regular => {
            let mut buffer = vec![0; 1 << 20];
            let mut offset = 0;
            loop {
                let context = ReadContext::Reader { readahead: false };
                match engine.read_at(&inode, offset, &mut buffer, context)? {
                    0 => return Ok(()),
                    count => offset += count as u64,
                }
            }
        }
        _ => Ok(()),
    }
}

/// The blob behind the image, at the address that is written into the device table.
fn one_file_for_all() {
    let mut image = patched("blobdev");
    let superblock = image.engine.image().superblock();
    let (block, slot) = (
        superblock.block_size as usize,
        usize::from(superblock.device_slot) * 128,
    );
    let unified = image.bytes.len().div_ceil(block);
    image = image.set(slot + 68, &(unified as u32).to_le_bytes());
    image.bytes = image.sealed_bytes();
    image.bytes.resize(unified * block, 0);
    image
        .bytes
        .extend(std::fs::read(&image.image.devices[0]).expect("the blob"));
    image.devices(0).reads();
}

/// CRC-32C as EROFS stores it: from all ones, without the final inversion.
fn crc32c(bytes: &[u8]) -> u32 {
    bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            if crc & 1 != 0 {
                (crc >> 1) ^ 0x82f6_3b78
            } else {
                crc >> 1
            }
        })
    })
}
