//! Promises of the Perfetto format: what is written is read back.

use super::*;
use crate::error::Fault;
use crate::input::{Limits, ReadOptions};
use crate::latency::analyse;
use crate::read::open;
use crate::{Comm, Event, Kind, Slice, TaskState, Thread, Trace};
use prost::Message;
use std::io::Cursor;
use std::path::PathBuf;

/// One event of each kind.
fn sample() -> Trace {
    let mut trace = Trace::new("mono");
    trace.kernel = "6.12.0".into();
    trace.kernel_version = "#1 SMP; preemption none; autogroup on".into();
    trace.boot_offset_ns = 500;
    let function = trace.intern("z_erofs_decompressqueue_work");
    let queue = Some(trace.intern("erofs_worker"));
    let filename = trace.intern("/bin/true");
    let comm = Comm::from("kworker/u9:2");
    let (pid, prio, target_cpu) = (42, 120, 1);
    let kinds = [
        Kind::WorkQueued {
            work: 0xffff_8880_1234_5678,
            function,
            queue,
            cpu: 1,
        },
        Kind::Waking {
            pid,
            comm,
            prio,
            target_cpu,
        },
        Kind::Wakeup {
            pid,
            comm,
            prio,
            target_cpu,
        },
        Kind::WakeupNew {
            pid,
            comm,
            prio,
            target_cpu,
        },
        Kind::Migrate {
            pid,
            comm,
            prio,
            from_cpu: 0,
            to_cpu: 1,
        },
        Kind::Switch {
            prev_pid: 7,
            prev_comm: "fio".into(),
            prev_prio: 139,
            prev_state: TaskState::PREEMPTED,
            next_pid: pid,
            next_comm: comm,
            next_prio: prio,
        },
        Kind::WorkStart {
            work: 0xffff_8880_1234_5678,
            function,
        },
        Kind::WorkEnd {
            work: 0xffff_8880_1234_5678,
            function: Some(function),
        },
        Kind::WorkEnd {
            work: 9,
            function: None,
        },
        Kind::KthreadWorkQueued {
            work: 1,
            function,
            worker: 3,
        },
        Kind::KthreadWorkStart { work: 1, function },
        Kind::KthreadWorkEnd {
            work: 1,
            function: Some(function),
        },
        Kind::Fork {
            child_pid: 8,
            child_comm: "fio".into(),
            parent_pid: 7,
            parent_comm: "sh".into(),
        },
        Kind::Exec {
            pid: 8,
            old_pid: 8,
            filename,
        },
        Kind::Rename {
            pid: 8,
            comm: "true".into(),
        },
        Kind::Exit {
            pid: 8,
            comm: "true".into(),
            prio: 120,
        },
        Kind::FuseSent {
            connection: 44,
            unique: 2,
            opcode: 15,
        },
    ];
    for (i, kind) in kinds.into_iter().enumerate() {
        trace.events.push(Event {
            time_ns: 1000 + i as u64,
            cpu: i as u32 % 2,
            pid: 7,
            kind,
        });
    }
    trace.threads.insert(
        7,
        Thread {
            comm: "fio".into(),
            tgid: 7,
        },
    );
    trace.threads.insert(
        8,
        Thread {
            comm: "true".into(),
            tgid: 7,
        },
    );
    trace
}

fn write_out(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(trace, &mut bytes).unwrap();
    bytes
}

fn read_in(bytes: &[u8]) -> Result<Trace, Fault> {
    read(Cursor::new(bytes), Limits::new(&ReadOptions::default()))
}

/// The event with its names as text, for comparing traces with different string tables.
fn plain(trace: &Trace, event: &Event, shift: u64) -> String {
    let mut text = format!(
        "{:?}",
        Event {
            time_ns: event.time_ns + shift,
            ..*event
        }
    );
    for (name, string) in trace.names.iter() {
        text = text.replace(&format!("{name:?}"), string);
    }
    text
}

#[test]
fn every_kind_of_event_comes_back_as_it_was() {
    let trace = sample();
    let back = read_in(&write_out(&trace)).unwrap();
    assert_eq!(back.events.len(), trace.events.len());
    for (a, b) in trace.events.iter().zip(&back.events) {
        assert_eq!(
            plain(&trace, a, 500),
            plain(&back, b, 0),
            "times are CLOCK_BOOTTIME"
        );
    }
    assert_eq!(
        (back.kernel.as_str(), back.boot_offset_ns, back.lost_events),
        ("6.12.0", 500, 0)
    );
    let scheduler = analyse(&back).scheduler;
    assert_eq!(scheduler.to_string(), "preemption none, autogroup on");
    assert_eq!(back.threads[&8].tgid, 7);
}

#[test]
fn losses_are_kept() {
    let trace = Trace {
        lost_events: 12,
        ..sample()
    };
    assert_eq!(read_in(&write_out(&trace)).unwrap().lost_events, 12);
}

#[test]
fn slices_of_our_own_nest_follow_or_get_a_track_beside() {
    let slice = |name: &str, start_ns, end_ns| Slice {
        name: name.into(),
        track: "requests".into(),
        start_ns,
        end_ns,
        pid: Some(8),
    };
    let mut trace = sample();
    for own in [
        slice("request", 100, 200),
        slice("queue", 100, 120),
        slice("decompress", 120, 200),
        slice("overlaps", 150, 260),
        slice("next", 200, 210),
    ] {
        trace.add_slice(own);
    }
    let mut back = read_in(&write_out(&trace)).unwrap().slices;
    let shifted = trace.slices.iter().map(|s| Slice {
        start_ns: s.start_ns + 500,
        end_ns: s.end_ns + 500,
        ..s.clone()
    });
    let mut expected: Vec<Slice> = shifted.collect();
    let key = |slice: &Slice| (slice.start_ns, slice.end_ns, slice.name.clone());
    back.sort_by_key(key);
    expected.sort_by_key(key);
    assert_eq!(back, expected);
}

#[test]
fn any_cut_is_an_error_or_a_shorter_trace_but_never_a_panic() {
    let bytes = write_out(&sample());
    let mut errors = 0;
    for end in 0..bytes.len() {
        errors += usize::from(read_in(&bytes[..end]).is_err());
    }
    assert!(
        errors > bytes.len() * 9 / 10,
        "only cuts between packets may pass: {errors}"
    );
}

#[test]
fn damaged_bytes_never_panic() {
    let bytes = write_out(&sample());
    for at in 0..bytes.len() {
        for value in [0, 0x7f, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] = value;
            let _ = read_in(&damaged);
        }
    }
}

#[test]
fn too_many_events_are_refused() {
    let options = ReadOptions {
        max_events: 5,
        ..ReadOptions::default()
    };
    let read = read(Cursor::new(write_out(&sample())), Limits::new(&options));
    assert!(matches!(read, Err(Fault::TooBig { limit: 5, .. })));
}

/// Compact scheduling data as Perfetto's recorder writes it for one CPU.
#[derive(Clone, PartialEq, Message)]
struct CompactSched {
    #[prost(uint64, repeated, tag = "1")]
    switch_timestamp: Vec<u64>,
    #[prost(int64, repeated, tag = "2")]
    switch_prev_state: Vec<i64>,
    #[prost(int32, repeated, tag = "3")]
    switch_next_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "4")]
    switch_next_prio: Vec<i32>,
    #[prost(string, repeated, tag = "5")]
    intern_table: Vec<String>,
    #[prost(uint32, repeated, tag = "6")]
    switch_next_comm_index: Vec<u32>,
    #[prost(uint64, repeated, tag = "7")]
    waking_timestamp: Vec<u64>,
    #[prost(int32, repeated, tag = "8")]
    waking_pid: Vec<i32>,
    #[prost(int32, repeated, tag = "9")]
    waking_target_cpu: Vec<i32>,
    #[prost(int32, repeated, tag = "10")]
    waking_prio: Vec<i32>,
    #[prost(uint32, repeated, tag = "11")]
    waking_comm_index: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct CompactBundle {
    #[prost(uint32, optional, tag = "1")]
    cpu: Option<u32>,
    #[prost(message, optional, tag = "4")]
    compact_sched: Option<CompactSched>,
}

#[derive(Clone, PartialEq, Message)]
struct CompactPacket {
    #[prost(message, optional, tag = "1")]
    ftrace_events: Option<CompactBundle>,
    #[prost(bytes = "vec", optional, tag = "50")]
    compressed_packets: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct CompactTrace {
    #[prost(message, repeated, tag = "1")]
    packet: Vec<CompactPacket>,
}

/// Idle; 7 is woken at 1010 and runs at 1030; 8 is woken at 1035, 7 is preempted by it at 1040 and
/// comes back at 1100.
fn compact() -> CompactTrace {
    let compact = CompactSched {
        switch_timestamp: vec![1000, 30, 10, 60],
        switch_prev_state: vec![1, 0, 0x100, 1],
        switch_next_pid: vec![0, 7, 8, 7],
        switch_next_prio: vec![120, 120, 98, 120],
        intern_table: vec!["swapper/0".into(), "fio".into(), "worker".into()],
        switch_next_comm_index: vec![0, 1, 2, 1],
        waking_timestamp: vec![1010, 25],
        waking_pid: vec![7, 8],
        waking_target_cpu: vec![0, 0],
        waking_prio: vec![120, 98],
        waking_comm_index: vec![1, 2],
    };
    let bundle = CompactBundle {
        cpu: Some(0),
        compact_sched: Some(compact),
    };
    CompactTrace {
        packet: vec![CompactPacket {
            ftrace_events: Some(bundle),
            ..Default::default()
        }],
    }
}

fn compact_waits(bytes: &[u8]) -> Vec<(i32, u64)> {
    let trace = read_in(bytes).unwrap();
    analyse(&trace)
        .waits
        .iter()
        .map(|wait| (wait.pid, wait.length_ns()))
        .collect()
}

#[test]
fn compact_events_give_the_same_waits() {
    assert_eq!(
        compact_waits(&compact().encode_to_vec()),
        [(7, 20), (8, 5), (7, 60)]
    );
}

#[test]
fn compressed_packets_are_unpacked() {
    let inner = compact().encode_to_vec();
    let compressed = miniz_oxide::deflate::compress_to_vec_zlib(&inner, 6);
    let packet = CompactPacket {
        compressed_packets: Some(compressed),
        ..Default::default()
    };
    let outer = CompactTrace {
        packet: vec![packet],
    };
    assert_eq!(compact_waits(&outer.encode_to_vec()).len(), 3);
}

#[test]
fn a_recorded_file_reads_back_with_the_same_counts() {
    let recorder = match crate::record::Recorder::start(&crate::record::RecordOptions::default()) {
        Ok(recorder) => recorder,
        Err(error) => return println!("skipped: {error}"),
    };
    std::thread::sleep(std::time::Duration::from_millis(100));
    let trace = recorder.stop().unwrap();
    let path = Scratch::new("recorded.pftrace");
    save(&trace, &path.0).unwrap();
    let back = open(&path.0, &ReadOptions::default()).unwrap();
    assert_eq!(back.events.len(), trace.events.len());
    let (live, file) = (analyse(&trace), analyse(&back));
    assert_eq!(live.waits.len(), file.waits.len());
    assert_eq!(live.to_json()["tasks"], file.to_json()["tasks"]);
    assert_eq!(live.to_json()["workqueues"], file.to_json()["workqueues"]);
}

/// A file of this process, removed at the end of the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("sched-trace-{}-{name}", std::process::id())))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
