//! Every valid image reads exactly as its manifest says, on every path through the engine.

use crate::common::{TestImage, all_good_images, manifest, verify};
use erofs_engine::{Engine, EngineOptions, Offset, SyncDecompress, WorkersMode};

/// Verifies all images with options derived from theirs by `change`.
fn verify_all(change: impl Fn(&TestImage, EngineOptions) -> EngineOptions) {
    let mut report = Vec::new();
    let images = all_good_images();
    for image in &images {
        let options = change(image, image.options());
        let differences = match Engine::open(&image.path, &options) {
            Ok(engine) => verify::differences(&engine, &manifest::read(&image.manifest), &[]),
            Err(error) => vec![format!("cannot open: {error}")],
        };
        report.extend(
            differences
                .iter()
                .take(5)
                .map(|d| format!("{}: {d}", image.name)),
        );
    }
    println!("{} images", images.len());
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn every_image_reads_exactly() {
    verify_all(|_, options| options);
}

#[test]
fn every_image_reads_exactly_without_threads_cache_and_pool() {
    verify_all(|_, options| EngineOptions {
        workers: WorkersMode::Inline,
        cache_bytes: 0,
        ..options
    });
}

#[test]
fn every_image_reads_exactly_when_only_workers_decompress() {
    verify_all(|_, options| EngineOptions {
        workers: WorkersMode::Unbound,
        sync_decompress: SyncDecompress::Off,
        reserved_pages: 64,
        cache_bytes: 256 << 10,
        ..options
    });
}

#[test]
fn an_image_inside_of_a_larger_file_is_found() {
    let mut found = 0;
    for image in all_good_images().iter().filter(|image| image.offset > 0) {
        let options = EngineOptions {
            offset: Offset::Auto,
            ..image.options()
        };
        let engine = Engine::open(&image.path, &options).expect("it is there");
        let differences = verify::differences(&engine, &manifest::read(&image.manifest), &[]);
        assert!(differences.is_empty(), "{differences:?}");
        found += 1;
    }
    println!("{found} images at an offset");
}
