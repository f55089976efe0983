//! The identity under which the launch profiles of an image are stored.

use erofs_engine::Engine;
use erofs_engine::erofs_format::{NID_IN_METABOX, Nid, Reader};
use launch_profile::ImageIdentity;
use look_ahead::PATH_IN_MOUNT;

/// The identity under which launch profiles are stored: that of the image or, for several images,
/// one that also depends on their order.
pub fn identity(engine: &Engine) -> ImageIdentity {
    let mut all = engine.roots().map(|root| identity_of(engine, root));
    let Some(mut identity) = all.next() else {
        return ImageIdentity::default();
    };
    let mut bytes = identity.content.to_le_bytes().to_vec();
    for lower in all {
        identity.blocks = identity.blocks.wrapping_add(lower.blocks);
        identity.inodes = identity.inodes.wrapping_add(lower.inodes);
        bytes.extend(lower.uuid);
        bytes.extend(lower.content.to_le_bytes());
        identity.content = ImageIdentity::content_of(&bytes);
    }
    identity
}

/// The identity of the image that has this root directory.
fn identity_of(engine: &Engine, root: Nid) -> ImageIdentity {
    let superblock = engine.image_of(root).superblock();
    ImageIdentity {
        uuid: superblock.uuid,
        build_time: superblock
            .epoch
            .cast_unsigned()
            .wrapping_add(superblock.build_time.into()),
        build_time_nsec: superblock.fixed_nsec,
        blocks: superblock.blocks,
        inodes: superblock.inos,
        content: engine.with_image(&engine.waiting(), root, content),
    }
}

/// Whether there is a launch profile in the root directory of a mount; `None` if finding out would
/// mean waiting for a network.
pub(crate) fn has_launches(engine: &Engine, root: Nid) -> Option<bool> {
    let request = engine.waiting().without_waiting();
    let directory = engine.borrow_inode(&request, root).ok()?;
    let found = engine.lookup(&request, &directory, PATH_IN_MOUNT.as_bytes());
    found.ok().map(|found| found.is_some())
}

/// Number of metadata bytes, from the root inode on, that are hashed to distinguish images. The
/// inodes there hold sizes and addresses of data, and the root directory holds names. Any mount in
/// use reads them too.
const SAMPLE: u64 = 16 << 10;

/// Hashes the superblock's block and the metadata that begins at the root inode, up to the end of
/// the image.
fn content(image: Reader<'_>) -> u64 {
    let superblock = image.superblock();
    let in_metabox = superblock.root_nid & NID_IN_METABOX != 0;
    let meta_area = match in_metabox {
        true => 0,
        false => u64::from(superblock.meta_block) << superblock.block_bits,
    };
    let root = meta_area.saturating_add((superblock.root_nid & !NID_IN_METABOX).saturating_mul(32));
    let root = root & !(SAMPLE_STEP as u64 - 1);
    let places = [(false, 1024, 4096 - 1024), (in_metabox, root, SAMPLE)];
    let mut bytes = Vec::new();
    for (metabox, begin, length) in places {
        for offset in (0..length).step_by(SAMPLE_STEP) {
            let mut step = [0; SAMPLE_STEP];
            let at = begin.saturating_add(offset);
            if image.read_meta(metabox, &mut step, at).is_err() {
                break;
            }
            bytes.extend(step);
        }
    }
    ImageIdentity::content_of(&bytes)
}

/// The smallest block: an image ends at a block boundary.
const SAMPLE_STEP: usize = 512;
