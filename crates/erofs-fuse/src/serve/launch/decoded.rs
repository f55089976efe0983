//! Keeps what launches read decoded, so that the next replay copies instead of decoding.

use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};

use erofs_engine::Engine;
use launch_profile::{Decoded, DecodedIndex, Program, Window};

use super::names;
use super::state::Launch;
use super::stretches::{Stretch, stretches};
use crate::error::Error;
use crate::helper::Broker;

/// They are written again if one byte in this many, or more, is new.
const NEW_SHARE: u64 = 20;

/// The nice value of the thread that keeps them. It gives way to others, but not for long: a reader
/// may wait for what it decodes.
const LOW: i32 = 10;

/// Keeps what launches of one mount read.
#[derive(Debug)]
pub(in super::super) struct DecodedBytes {
    /// That of earlier mounts, until it is needed.
    unread: Option<File>,
    /// Most bytes that are kept.
    most: u64,
    /// What was kept last.
    kept: Option<Arc<Decoded>>,
    keeping: Option<JoinHandle<Option<Decoded>>>,
}

impl DecodedBytes {
    /// `file`: what earlier mounts kept. It must be open before the threads that store begin: they
    /// have descriptors of their own.
    pub(in super::super) fn new(file: Option<File>, most: u64) -> Self {
        Self {
            unread: file,
            most,
            kept: None,
            keeping: None,
        }
    }

    /// What earlier mounts kept, at the first call. What is damaged, or of another image, is
    /// written again.
    pub(super) fn read(&mut self, engine: &Engine) -> Option<Arc<Decoded>> {
        let decoded = Decoded::open(self.unread.take()?).ok()?;
        let decoded = Some(decoded).filter(|it| it.image == names::identity(engine));
        self.kept = decoded.map(Arc::new);
        self.kept.clone()
    }

    /// Has a thread of its own do it, behind everything else: it takes a while.
    pub(super) fn keep(
        &mut self,
        programs: Vec<Program>,
        engine: Weak<Engine>,
        broker: &Arc<Broker>,
        launch: &Arc<Launch>,
    ) {
        self.end();
        let (broker, launch) = (Arc::clone(broker), Arc::clone(launch));
        let (before, most) = (self.kept.clone(), self.most);
        let work = move || {
            // Without it, this takes the time of others.
            let _ = rustix::process::nice(LOW);
            let kept = keep(
                &programs,
                most,
                before.as_deref(),
                &*engine.upgrade()?,
                &broker,
            );
            kept.unwrap_or_else(|error| {
                launch.fail(error.to_string());
                None
            })
        };
        let thread = thread::Builder::new().name("erofs_decoded".to_owned());
        self.keeping = thread.spawn(work).ok();
    }

    /// A panic was printed, and leaves what there was before.
    fn end(&mut self) {
        let ended = self.keeping.take().map(JoinHandle::join);
        if let Some(Ok(Some(kept))) = ended {
            self.kept = Some(Arc::new(kept));
        }
    }
}

impl Drop for DecodedBytes {
    fn drop(&mut self) {
        self.end();
    }
}

/// The pages of these programs, each once, of at most `most` bytes.
fn wanted(programs: &[Program], most: u64) -> Vec<Stretch> {
    let (mut seen, mut bytes) = (HashMap::new(), 0);
    let mut wanted = Vec::new();
    for program in programs {
        for window in &program.profile.windows {
            let file = &program.profile.files[window.file as usize];
            let seen: &mut u32 = seen.entry((file.nid, window.number)).or_default();
            let pages = window.pages & !*seen;
            *seen |= pages;
            let new = stretches(file.nid, Window { pages, ..*window }, file.size);
            wanted.extend(new.take_while(|stretch| {
                bytes += stretch.length as u64;
                bytes <= most
            }));
        }
    }
    wanted
}

/// Writes them where the file of earlier launches lacks many of them, and returns the new one. What
/// cannot be read any more, since the mount ends, is left out.
fn keep(
    programs: &[Program],
    most: u64,
    before: Option<&Decoded>,
    engine: &Engine,
    broker: &Broker,
) -> Result<Option<Decoded>, Error> {
    let wanted = wanted(programs, most);
    if wanted.is_empty() || before.is_some_and(|before| has_most(before, &wanted)) {
        return Ok(None);
    }
    let (mut index, mut buffer) = (DecodedIndex::default(), Vec::new());
    for stretch in wanted {
        buffer.resize(stretch.length, 0);
        let known =
            before.is_some_and(|before| before.read(stretch.nid, stretch.offset, &mut buffer));
        if !known && !decode(stretch, engine, &mut buffer) {
            continue;
        }
        if !index.add(stretch.nid, stretch.offset, &buffer) {
            break;
        }
        broker.add_decoded(&buffer)?;
    }
    broker.add_decoded(&index.into_bytes(names::identity(engine)))?;
    let written = broker.commit_decoded()?;
    Ok(written.and_then(|file| Decoded::open(file).ok()))
}

fn has_most(before: &Decoded, wanted: &[Stretch]) -> bool {
    let bytes = |new: bool| -> u64 {
        let has = |it: &&Stretch| before.has(it.nid, it.offset, it.length);
        let counted = wanted.iter().filter(|it| !new || !has(it));
        counted.map(|stretch| stretch.length as u64).sum()
    };
    !before.is_damaged() && bytes(true) * NEW_SHARE <= bytes(false)
}

fn decode(stretch: Stretch, engine: &Engine, out: &mut [u8]) -> bool {
    let inode = engine.inode(stretch.nid);
    let read = inode.and_then(|inode| engine.prefetch_at(&inode, stretch.offset, out));
    read.is_ok()
}
