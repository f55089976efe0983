//! Resolves inode numbers to the names in a profile.
//!
//! The kernel learned of an inode by a lookup or a listing of its directory, and those directories
//! are recorded. So the names are in them, and the path of a directory follows its "..".

use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use erofs_engine::erofs_format::dir::Dirent;
use erofs_engine::erofs_format::{Inode, NID_IN_METABOX, Nid, Reader};
use erofs_engine::{Engine, Error};
use launch_profile::{Directory, ImageIdentity, Name, Profile, RecordedFile, Trim, Window, limits};

use super::recording::Recording;

/// Entries of a directory that are read: images may repeat them without end.
const MOST_ENTRIES: usize = 1 << 16;

/// If one in this many entries was requested, or more, the directory is listed whole. A lookup
/// takes 20 us, an entry of a listing 3.
const LIST_SHARE: usize = 6;

/// Directories above one another that are followed.
const DEPTH: usize = 256;

/// By which the launch profiles of the image are known.
pub fn identity(engine: &Engine) -> ImageIdentity {
    let superblock = engine.image().superblock();
    ImageIdentity {
        uuid: superblock.uuid,
        build_time: superblock
            .epoch
            .cast_unsigned()
            .wrapping_add(superblock.build_time.into()),
        build_time_nsec: superblock.fixed_nsec,
        blocks: superblock.blocks,
        inodes: superblock.inos,
        content: engine.with_image(&engine.waiting(), content),
    }
}

/// Bytes of metadata that tell images apart, from the root inode on. Inodes there have sizes and
/// addresses of data, and the root its names. A mount that is used reads them, too.
const SAMPLE: u64 = 16 << 10;

/// Of the superblock's block and of the metadata around the root, as far as there is so much.
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

/// The smallest block: an image ends with one.
const SAMPLE_STEP: usize = 512;

/// The profile of what was recorded below `root`.
pub(super) fn profile(engine: &Engine, root: Nid, recording: &Recording) -> Profile {
    let mut names = Names {
        engine,
        root,
        profile: Profile::default(),
        read: recording.windows.iter().map(|window| window.nid).collect(),
        places: HashMap::new(),
        files: HashMap::new(),
    };
    for directory in &recording.directories {
        names.directory(*directory, recording);
    }
    for (directory, name) in &recording.absent {
        if let Some(place) = names.place(*directory, 0) {
            let name = name.clone();
            names.profile.names.push(Name {
                directory: place,
                name,
            });
        }
    }
    for window in &recording.windows {
        if let Some(&file) = names.files.get(&window.nid) {
            names.profile.windows.push(Window {
                file,
                number: window.number,
                pages: window.pages,
                at_ms: window.at_ms,
            });
        }
    }
    let mut profile = names.profile;
    profile.trim(&Trim::default());
    profile
}

struct Names<'e> {
    engine: &'e Engine,
    root: Nid,
    profile: Profile,
    /// Files that were read.
    read: HashSet<Nid>,
    /// Places of directories in the profile.
    places: HashMap<Nid, Option<u32>>,
    /// Places of files.
    files: HashMap<Nid, u32>,
}

impl Names<'_> {
    /// Adds a directory and the files and links in it that were read; none where nothing was read
    /// and the launch did not list it: the replay of another program looks names up, too.
    fn directory(&mut self, nid: Nid, recording: &Recording) {
        let Some(inode) = self.inode(nid) else {
            return;
        };
        let (mut found, mut entries) = (Vec::new(), 0);
        let mut each = |entry: Result<Dirent<'_>, Error>| {
            entries += 1;
            if let Ok(Dirent { name, nid, .. }) = entry
                && (self.read.contains(&nid) || recording.links.contains(&nid))
            {
                found.push((nid, name.to_vec()));
            }
            match entries < MOST_ENTRIES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        let was_listed = recording.listed.contains(&nid);
        let read = self
            .engine
            .read_dir_part(&self.engine.waiting(), &inode, 0, &mut each);
        if read.is_err() || found.is_empty() && !was_listed {
            return;
        }
        let Some(place) = self.place(nid, 0) else {
            return;
        };
        let listed = was_listed || found.len() * LIST_SHARE >= entries;
        if let Some(place) = place {
            self.profile.directories[place as usize].listed = listed;
        }
        for (nid, name) in found {
            self.entry(
                nid,
                Name {
                    directory: place,
                    name,
                },
                listed,
                recording,
            );
        }
    }

    fn entry(&mut self, nid: Nid, name: Name, listed: bool, recording: &Recording) {
        let is_link = recording.links.contains(&nid);
        let room = self.profile.names.len() < limits::NAMES;
        // The way of the kernel to a file that no listing brings.
        if room && (is_link || !listed) {
            self.profile.names.push(name.clone());
        }
        let Some(inode) = self.inode(nid).filter(|_| !is_link) else {
            return;
        };
        if self.profile.files.len() < limits::NAMES && !self.files.contains_key(&nid) {
            self.files.insert(nid, self.profile.files.len() as u32);
            self.profile.files.push(RecordedFile {
                name,
                nid,
                size: inode.size,
            });
        }
    }

    /// The place of a directory, whose parents are added before it.
    fn place(&mut self, nid: Nid, depth: usize) -> Option<Option<u32>> {
        if nid == self.root {
            return Some(None);
        }
        if let Some(place) = self.places.get(&nid) {
            return Some(*place);
        }
        if depth > DEPTH || self.profile.directories.len() == limits::NAMES {
            return None;
        }
        let inode = self.inode(nid)?;
        let above = self
            .engine
            .lookup(&self.engine.waiting(), &inode, b"..")
            .ok()??;
        let parent = self.place(above, depth + 1)?;
        let name = self.name_in(above, nid)?;
        let place = Some(self.profile.directories.len() as u32);
        self.profile.directories.push(Directory {
            parent,
            listed: false,
            name,
        });
        self.places.insert(nid, place);
        Some(place)
    }

    fn name_in(&self, directory: Nid, wanted: Nid) -> Option<Vec<u8>> {
        let inode = self.inode(directory)?;
        let mut found = None;
        let mut each = |entry: Result<Dirent<'_>, Error>| {
            if let Ok(Dirent { name, nid, .. }) = entry
                && nid == wanted
                && !matches!(name, b"." | b"..")
            {
                found = Some(name.to_vec());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        self.engine
            .read_dir_part(&self.engine.waiting(), &inode, 0, &mut each)
            .ok()?;
        found
    }

    fn inode(&self, nid: Nid) -> Option<Arc<Inode>> {
        self.engine.inode(nid).ok()
    }
}
