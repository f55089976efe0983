//! Slices of [`crate::Trace`] as Perfetto tracks: one for each track name and thread.

use super::proto::{self, Data, TracePacket};
use crate::{Slice, Trace};
use std::collections::BTreeMap;

/// First track id. Ids of thread tracks are higher, so the two ranges do not overlap.
const TRACKS: u64 = 0x1000;
const THREADS: u64 = 1 << 32;

/// Descriptors first, then begins and ends in the order of time on each track.
pub(super) fn packets(trace: &Trace, offset: u64) -> Vec<TracePacket> {
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

/// Whether no slice that is still open when this one starts ends before it does.
fn fits(lane: &[&Slice], slice: &Slice) -> bool {
    let open = lane
        .iter()
        .rev()
        .find(|other| other.end_ns > slice.start_ns);
    open.is_none_or(|open| open.end_ns >= slice.end_ns)
}

fn thread_track(trace: &Trace, pid: i32) -> TracePacket {
    let tgid = trace
        .threads
        .get(&pid)
        .map_or(pid, |t| if t.tgid == 0 { pid } else { t.tgid });
    let thread = proto::ThreadDescriptor {
        pid: Some(tgid),
        tid: Some(i64::from(pid)),
    };
    descriptor(proto::TrackDescriptor {
        uuid: Some(THREADS + pid as u64),
        thread: Some(thread),
        ..Default::default()
    })
}

fn named_track(name: &str, pid: Option<i32>, uuid: u64) -> TracePacket {
    descriptor(proto::TrackDescriptor {
        uuid: Some(uuid),
        name: Some(name.into()),
        parent_uuid: pid.map(|pid| THREADS + pid as u64),
        thread: None,
    })
}

fn descriptor(track: proto::TrackDescriptor) -> TracePacket {
    TracePacket {
        data: Some(Data::TrackDescriptor(track)),
        ..TracePacket::default()
    }
}

/// Of adjacent slices the first ends before the next begins; outer ones begin first, end last.
fn edges(lane: &[&Slice], uuid: u64, offset: u64) -> Vec<TracePacket> {
    let mut packets = Vec::new();
    let mut open: Vec<u64> = Vec::new();
    for slice in lane {
        while let Some(end) = open.pop_if(|end| *end <= slice.start_ns) {
            packets.push(edge(uuid, None, end.saturating_add(offset)));
        }
        packets.push(edge(
            uuid,
            Some(&slice.name),
            slice.start_ns.saturating_add(offset),
        ));
        open.push(slice.end_ns.max(slice.start_ns));
    }
    packets.extend(
        open.into_iter()
            .rev()
            .map(|end| edge(uuid, None, end.saturating_add(offset))),
    );
    packets
}

/// The beginning (with a name) or end of a slice.
fn edge(track: u64, name: Option<&str>, time: u64) -> TracePacket {
    let kind = if name.is_some() {
        proto::SLICE_BEGIN
    } else {
        proto::SLICE_END
    };
    let event = proto::TrackEvent {
        kind: Some(kind),
        track_uuid: Some(track),
        name: name.map(Into::into),
    };
    TracePacket {
        timestamp: Some(time),
        timestamp_clock_id: Some(proto::BOOTTIME),
        data: Some(Data::TrackEvent(event)),
        ..TracePacket::default()
    }
}
