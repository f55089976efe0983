//! Slices of [`crate::Trace`] as Perfetto tracks: one for each track name and thread.

use super::proto::{self, packet};
use super::wire::Message;
use crate::{Slice, Trace};
use std::collections::BTreeMap;

/// First track ID. IDs of thread tracks are higher, so the two ranges do not overlap.
const TRACKS: u64 = 0x1000;
const THREADS: u64 = 1 << 32;

/// The packets of all tracks: descriptors first, then the beginnings and ends of slices, ordered by
/// time on each track.
pub(super) fn packets(trace: &Trace, offset: u64) -> Vec<Message> {
    let lanes = lanes(trace);
    let mut packets = Vec::new();
    let mut pids: Vec<i32> = lanes.keys().filter_map(|(_, pid)| *pid).collect();
    pids.sort_unstable();
    pids.dedup();
    packets.extend(pids.into_iter().map(|pid| thread_track(trace, pid)));
    let lanes = lanes
        .iter()
        .flat_map(|(key, lanes)| lanes.iter().map(move |lane| (key, lane)));
    for (uuid, (&(name, pid), lane)) in (TRACKS..).zip(lanes) {
        packets.push(named_track(name, pid, uuid));
        packets.extend(edges(lane, uuid, offset));
    }
    packets
}

/// Slices of one track and thread. Within a lane they nest or follow one another, as a track
/// requires.
type Lanes<'a> = BTreeMap<(&'a str, Option<i32>), Vec<Vec<&'a Slice>>>;

fn lanes(trace: &Trace) -> Lanes<'_> {
    let mut order: Vec<&Slice> = trace.slices.iter().collect();
    order.sort_by_key(|slice| (slice.start_ns, std::cmp::Reverse(slice.end_ns)));
    let mut lanes = Lanes::new();
    for slice in order {
        let own = lanes.entry((slice.track.as_str(), slice.pid)).or_default();
        match own.iter_mut().find(|lane| fits(lane, slice)) {
            Some(lane) => lane.push(slice),
            None => own.push(vec![slice]),
        }
    }
    lanes
}

/// Whether a slice fits into a lane: no slice that is open when the new one starts may end before
/// the new one ends.
fn fits(lane: &[&Slice], slice: &Slice) -> bool {
    let open = lane
        .iter()
        .rev()
        .find(|other| other.end_ns > slice.start_ns);
    open.is_none_or(|open| open.end_ns >= slice.end_ns)
}

/// A `TrackDescriptor` with a `ThreadDescriptor`.
fn thread_track(trace: &Trace, pid: i32) -> Message {
    let process = trace.threads.get(&pid).map(|thread| thread.tgid);
    let process = process.filter(|tgid| *tgid != 0).unwrap_or(pid);
    with(packet::TRACK_DESCRIPTOR, |track| {
        track.number(1, THREADS + pid as u64).message(4, |thread| {
            thread.number(1, process as u64).number(2, pid as u64);
        });
    })
}

fn named_track(name: &str, pid: Option<i32>, uuid: u64) -> Message {
    with(packet::TRACK_DESCRIPTOR, |track| {
        track.number(1, uuid).bytes(2, name.as_bytes());
        if let Some(pid) = pid {
            track.number(5, THREADS + pid as u64);
        }
    })
}

fn with(tag: u32, fill: impl FnOnce(&mut Message)) -> Message {
    let mut message = Message::default();
    message.message(tag, fill);
    message
}

/// Beginnings and ends of a lane's slices. A slice ends before the next one begins; outer slices
/// begin first and end last.
fn edges(lane: &[&Slice], uuid: u64, offset: u64) -> Vec<Message> {
    let mut packets = Vec::new();
    let mut open: Vec<u64> = Vec::new();
    let mut add = |name, time: u64| packets.push(edge(uuid, name, time.saturating_add(offset)));
    for slice in lane {
        while let Some(end) = open.pop_if(|end| *end <= slice.start_ns) {
            add(None, end);
        }
        add(Some(&slice.name), slice.start_ns);
        open.push(slice.end_ns.max(slice.start_ns));
    }
    open.into_iter().rev().for_each(|end| add(None, end));
    packets
}

/// The beginning (with a name) or end of a slice: a `TrackEvent`.
fn edge(track: u64, name: Option<&String>, time: u64) -> Message {
    let kind = if name.is_some() {
        proto::SLICE_BEGIN
    } else {
        proto::SLICE_END
    };
    let mut message = with(packet::TRACK_EVENT, |event| {
        event.number(9, kind).number(11, track);
        if let Some(name) = name {
            event.bytes(23, name.as_bytes());
        }
    });
    message
        .number(packet::TIMESTAMP, time)
        .number(packet::CLOCK, proto::BOOTTIME);
    message
}
