//! Finds images in both sets, and compares a whole image with its manifest.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use erofs_engine::erofs_format::FileType;
use erofs_engine::{Engine, Error, ReadContext};

use crate::common::{TestImage, good_images, image_sets, manifest, verify};

/// An image of either set.
pub fn find(name: &str) -> Option<(TestImage, PathBuf)> {
    image_sets().into_iter().find_map(|set| {
        let image = good_images(&set)
            .into_iter()
            .find(|image| image.name == name)?;
        Some((image, set))
    })
}

/// Checks that each image reads as its manifest says, and contains the feature of its row.
pub fn reads(names: &[&str], occurs: &str) {
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

pub fn differences(engine: &Engine, image: &TestImage, skip: &[&str]) -> Vec<String> {
    verify::differences(engine, &manifest::read(&image.manifest), skip)
}

pub fn assert_same(engine: &Engine, image: &TestImage, skip: &[&str]) {
    let differences = differences(engine, image, skip);
    let shown = &differences[..differences.len().min(10)];
    assert!(shown.is_empty(), "{}: {}", image.name, shown.join("\n"));
}

/// Makes every kind of request for a path.
pub fn everything_of(engine: &Arc<Engine>, path: &str) -> Result<(), Error> {
    let inode = engine.resolve(path.as_bytes(), false)?;
    engine.xattrs(&engine.waiting(), &inode)?;
    match inode.file_type() {
        FileType::Symlink => engine.read_link(&engine.waiting(), &inode).map(drop),
        FileType::Directory => {
            engine.read_dir(&inode, 0, &mut |_, _, _, _| ControlFlow::Continue(()))
        }
        FileType::Regular => {
            let mut buffer = vec![0; 1 << 20];
            let mut offset = 0;
            loop {
                let context = ReadContext::Reader { readahead: false };
                match engine.read_at(&engine.request(context), &inode, offset, &mut buffer)? {
                    0 => return Ok(()),
                    count => offset += count as u64,
                }
            }
        }
        _ => Ok(()),
    }
}
