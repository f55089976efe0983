//! Track descriptors and slices of Perfetto's track events.

use super::proto;
use super::wire::{Stop, Value, pick};
use crate::Slice;
use crate::input::{LABEL_BYTES, ReadOptions, below};
use std::collections::HashMap;

/// The tracks of a trace.
#[derive(Default)]
pub(super) struct Tracks {
    tracks: HashMap<u64, Track>,
    /// Number of slices that have begun, on all tracks together.
    open: usize,
    /// Total size in bytes of the names of tracks and slices.
    label_bytes: usize,
}

/// A track, with the slices that have begun.
#[derive(Default)]
struct Track {
    name: String,
    parent: u64,
    tid: Option<i32>,
    open: Vec<(String, u64)>,
}

impl Tracks {
    /// Reads a `TrackDescriptor`.
    pub fn descriptor(&mut self, bytes: &[u8], limits: &ReadOptions) -> Result<(), Stop> {
        let [uuid, name, thread, parent] = pick(bytes, [1, 2, 4, 5])?;
        let [tid] = pick(thread.bytes(), [2])?;
        self.charge(name.bytes().len())?;
        let track = self.tracks.entry(uuid.number()).or_default();
        track.name = String::from_utf8_lossy(name.bytes()).into_owned();
        track.parent = parent.number();
        track.tid = (tid != Value::Absent).then(|| tid.number() as i32);
        Ok(below(self.tracks.len(), limits.max_slices, "tracks")?)
    }

    /// Reads a `TrackEvent`. Slices with interned names are left out.
    pub fn event(
        &mut self,
        bytes: &[u8],
        time: u64,
        slices: &mut Vec<Slice>,
        limits: &ReadOptions,
    ) -> Result<(), Stop> {
        let [kind, uuid, name] = pick(bytes, [9, 11, 23])?;
        match kind.number() {
            proto::SLICE_BEGIN => self.begin(uuid.number(), name.bytes(), time)?,
            proto::SLICE_END => slices.extend(self.end(uuid.number(), time)?),
            _ => {}
        }
        Ok(below(
            slices.len() + self.open,
            limits.max_slices,
            "slices",
        )?)
    }

    fn begin(&mut self, uuid: u64, name: &[u8], time: u64) -> Result<(), Stop> {
        if let Some(track) = self.tracks.get_mut(&uuid) {
            let name = String::from_utf8_lossy(name).into_owned();
            let length = name.len();
            track.open.push((name, time));
            self.open += 1;
            self.charge(length)?;
        }
        Ok(())
    }

    fn end(&mut self, uuid: u64, time: u64) -> Result<Option<Slice>, Stop> {
        let track = self.tracks.get_mut(&uuid);
        let ended = track.and_then(|track| Some((track.open.pop()?, track)));
        let Some(((name, start_ns), track)) = ended else {
            return Ok(None);
        };
        let (own, parent, label) = (track.tid, track.parent, track.name.clone());
        self.open -= 1;
        self.charge(label.len())?;
        Ok(Some(Slice {
            name,
            track: label,
            start_ns,
            end_ns: time.max(start_ns),
            pid: own.or_else(|| self.tracks.get(&parent)?.tid),
        }))
    }

    fn charge(&mut self, bytes: usize) -> Result<(), Stop> {
        self.label_bytes = self.label_bytes.saturating_add(bytes);
        Ok(below(
            self.label_bytes,
            LABEL_BYTES,
            "bytes of names of slices",
        )?)
    }
}
