//! Track descriptors and slices of Perfetto's track events.

use super::proto;
use super::wire::Stop;
use crate::Slice;
use crate::input::{LABEL_BYTES, Limits, below};
use prost::Message;
use std::collections::HashMap;

/// The tracks of a trace.
#[derive(Default)]
pub(super) struct Tracks {
    tracks: HashMap<u64, Track>,
    /// Slices that have begun, over all tracks.
    open: usize,
    /// Bytes of the names of tracks and slices.
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
    pub fn descriptor(&mut self, bytes: &[u8], limits: &Limits) -> Result<(), Stop> {
        let descriptor = proto::TrackDescriptor::decode(bytes).map_err(|_| Stop::Damaged)?;
        let name = descriptor.name.unwrap_or_default();
        self.charge(name.len())?;
        let uuid = descriptor.uuid.unwrap_or_default();
        let track = self.tracks.entry(uuid).or_default();
        track.name = name;
        track.parent = descriptor.parent_uuid.unwrap_or_default();
        let thread = descriptor.thread.and_then(|thread| thread.tid);
        track.tid = thread.map(|tid| tid as i32);
        Ok(below(self.tracks.len(), limits.slices, "tracks")?)
    }

    /// Reads a `TrackEvent`. Slices whose names are interned are left out.
    pub fn event(
        &mut self,
        bytes: &[u8],
        time: u64,
        slices: &mut Vec<Slice>,
        limits: &Limits,
    ) -> Result<(), Stop> {
        let event = proto::TrackEvent::decode(bytes).map_err(|_| Stop::Damaged)?;
        let uuid = event.track_uuid.unwrap_or_default();
        match event.kind {
            Some(proto::SLICE_BEGIN) => self.begin(uuid, event.name.unwrap_or_default(), time)?,
            Some(proto::SLICE_END) => slices.extend(self.end(uuid, time)?),
            _ => {}
        }
        Ok(below(slices.len() + self.open, limits.slices, "slices")?)
    }

    fn begin(&mut self, uuid: u64, name: String, time: u64) -> Result<(), Stop> {
        if !self.tracks.contains_key(&uuid) {
            return Ok(());
        }
        self.charge(name.len())?;
        if let Some(track) = self.tracks.get_mut(&uuid) {
            track.open.push((name, time));
            self.open += 1;
        }
        Ok(())
    }

    fn end(&mut self, uuid: u64, time: u64) -> Result<Option<Slice>, Stop> {
        let Some(track) = self.tracks.get_mut(&uuid) else {
            return Ok(None);
        };
        let Some((name, start_ns)) = track.open.pop() else {
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
