//! Properties of the Perfetto format: what is written is read back.

use super::proto::packet;
use super::wire::Message;
use super::*;
use crate::error::Fault;
use crate::input::ReadOptions;
use crate::latency::analyse;
use crate::script::{rename, trace};
use crate::{Comm, Event, Kind, Notice, Slice, Task, Thread, Trace};
use std::io::Cursor;

/// One event of each kind.
fn sample() -> Trace {
    let mut trace = trace(
        "1 1 7 queue 18446612682386300536 decompress erofs_worker; 2 0 7 waking 42 1;
         3 1 7 wakeup 42 1; 4 0 7 new 42 1; 5 1 7 migrate 42 0 1; 6 0 7 R+ 42;
         7 1 7 start 18446612682386300536 decompress; 8 0 7 end 18446612682386300536 decompress;
         9 1 7 end 9; 10 0 7 kqueue 1 decompress; 11 1 7 kstart 1 decompress; 12 0 7 kend 1;
         13 1 7 thread 8; 14 0 7 asks 15",
    );
    rename(&mut trace, 42, "kworker/u9:2", 98);
    trace.kernel = "6.12.0".into();
    trace.kernel_version = "#1 SMP; preemption none; autogroup on".into();
    trace.boot_offset_ns = 500;
    let comm = Comm::from("true");
    let task = Task {
        comm,
        pid: 8,
        prio: 120,
    };
    let fork = Kind::Fork {
        parent_comm: "sh".into(),
        parent_pid: 7,
        child_comm: "fio".into(),
        child_pid: 8,
    };
    let filename = trace.names.intern("/bin/true");
    let exec = Kind::Exec {
        filename,
        pid: 8,
        old_pid: -1,
    };
    let rename = Kind::Rename { pid: 8, comm };
    let kinds = [fork, exec, rename, Kind::Exit { task }];
    trace
        .events
        .extend((20_000..).zip(kinds).map(|(time_ns, kind)| Event {
            time_ns,
            cpu: 0,
            pid: 7,
            kind,
        }));
    for (pid, comm) in [(7, "fio"), (8, "true")] {
        let comm = comm.into();
        let policy = (pid == 7).then_some(crate::Policy::Idle);
        trace.threads.insert(
            pid,
            Thread {
                comm,
                tgid: 7,
                policy,
            },
        );
    }
    trace
}

fn write_out(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(trace, &mut bytes).unwrap();
    bytes
}

fn read_in(bytes: &[u8]) -> Result<Trace, Fault> {
    read(Cursor::new(bytes), ReadOptions::default())
}

/// The event with its names as text, to compare traces with different string tables.
fn plain(trace: &Trace, event: &Event, shift: u64) -> String {
    let mut event = *event;
    event.time_ns += shift;
    let mut text = format!("{event:?}");
    for (name, string) in trace.names.iter() {
        text = text.replace(&format!("{name:?}"), string);
    }
    text
}

#[test]
fn every_kind_of_event_comes_back_as_it_was() {
    let mut trace = sample();
    trace.lost_events = 12;
    let back = read_in(&write_out(&trace)).unwrap();
    assert_eq!(back.events.len(), trace.events.len());
    for (a, b) in trace.events.iter().zip(&back.events) {
        // Times are CLOCK_BOOTTIME.
        assert_eq!(plain(&trace, a, 500), plain(&back, b, 0));
    }
    let head = (back.kernel.as_str(), back.boot_offset_ns, back.lost_events);
    assert_eq!(head, ("6.12.0", 500, 12));
    let scheduler = analyse(&back).scheduler;
    assert_eq!(scheduler.to_string(), "preemption none, autogroup on");
    assert_eq!(back.threads[&8].tgid, 7);
}

#[test]
fn joined_files_are_read_with_a_seam_or_refused_where_they_overlap() {
    let (first, mut second) = (sample(), sample());
    second
        .events
        .iter_mut()
        .for_each(|event| event.time_ns += 1_000_000);
    let begins = second.events[0].time_ns + 500;
    let [first, second] = [first, second].map(|trace| write_out(&trace));
    for joined in [[first.clone(), second.clone()], [second, first.clone()]] {
        let trace = read_in(&joined.concat()).unwrap();
        assert_eq!(trace.claims.seams, [begins]);
        assert_eq!(trace.events.len(), 2 * sample().events.len());
    }
    // The second recording begins when the first, which has only one event, ends.
    let mut short = sample();
    short.events.truncate(1);
    let short = write_out(&short);
    for joined in [[short.clone(), first.clone()], [first.clone(), short]] {
        let trace = read_in(&joined.concat()).unwrap();
        assert!(trace.events.is_sorted_by_key(|event| event.time_ns));
    }
    match read_in(&[first.clone(), first].concat()) {
        Err(Fault::Broken { reason, .. }) => assert!(reason.contains("jumps back"), "{reason}"),
        read => panic!("{read:?}"),
    }
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
        trace.slices.push(own);
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
    let read = read(Cursor::new(write_out(&sample())), options);
    assert!(matches!(read, Err(Fault::TooBig { limit: 5, .. })));
}

/// A trace of packets with one bundle each.
fn packets(bundles: &[&dyn Fn(&mut Message)]) -> Vec<u8> {
    let mut trace = Message::default();
    for fill in bundles {
        trace.message(1, |packet| {
            packet.message(packet::FTRACE_EVENTS, fill);
        });
    }
    trace.0
}

/// Compact scheduling data of one CPU, as Perfetto's recorder writes them: columns by field.
fn compact(bundle: &mut Message, names: &[&str], columns: &[(u32, &[u64])]) {
    bundle.message(4, |compact| {
        for name in names {
            compact.bytes(5, name.as_bytes());
        }
        for (tag, column) in columns {
            for number in *column {
                compact.number(*tag, *number);
            }
        }
    });
}

/// The CPU is idle; 7 is woken at 1010 and runs at 1030; 8 is woken at 1035, preempts 7 at 1040,
/// and 7 returns at 1100.
fn preempted() -> Vec<u8> {
    packets(&[&|bundle| {
        let columns: [(u32, &[u64]); 10] = [
            (1, &[1000, 30, 10, 60]),
            (2, &[1, 0, 0x100, 1]),
            (3, &[0, 7, 8, 7]),
            (4, &[120, 120, 98, 120]),
            (6, &[0, 1, 2, 1]),
            (7, &[1010, 25]),
            (8, &[7, 8]),
            (9, &[0, 0]),
            (10, &[120, 98]),
            (11, &[1, 2]),
        ];
        compact(bundle, &["swapper/0", "fio", "worker"], &columns);
    }])
}

fn waits(bytes: &[u8]) -> Vec<(i32, u64)> {
    let waits = analyse(&read_in(bytes).unwrap()).waits.into_iter();
    waits.map(|wait| (wait.pid, wait.length_ns())).collect()
}

#[test]
fn compact_and_compressed_events_give_the_same_waits() {
    let bytes = preempted();
    assert_eq!(waits(&bytes), [(7, 20), (8, 5), (7, 60)]);
    let mut outer = Message::default();
    let packed = miniz_oxide::deflate::compress_to_vec_zlib(&bytes, 6);
    outer.message(1, |packet| {
        packet.bytes(packet::COMPRESSED, &packed);
    });
    assert_eq!(waits(&outer.0), waits(&bytes));
}

/// Two CPUs, one of which has overwritten everything before 1000 ns. Thread 50 runs there from 1100
/// ns on, and 51 from 1200 ns; on the other CPU a new thread runs at 500, 600, 1100 and 1200 ns.
/// trace_processor has three slices from 1100 ns on, and one at the beginning of each CPU.
#[test]
fn a_ring_buffer_counts_from_where_all_cpus_have_events() {
    let columns = |bundle: &mut Message, cpu: u64, before: u64, times: &[u64], pids: &[u64]| {
        bundle.number(1, cpu).number(10, before);
        let nothing = vec![0; times.len()];
        let columns: Vec<(u32, &[u64])> = vec![
            (1, times),
            (2, &nothing),
            (3, pids),
            (4, &nothing),
            (6, &nothing),
        ];
        compact(bundle, &["t"], &columns);
    };
    let bytes = packets(&[
        &|bundle| columns(bundle, 3, 1000, &[1100, 100], &[50, 51]),
        &|bundle| columns(bundle, 6, 0, &[500, 100, 500, 100], &[40, 41, 42, 43]),
    ]);
    let trace = read_in(&bytes).unwrap();
    assert_eq!(trace.span(), Some((1100, 1200)));
    let wrapped = Notice::Wrapped {
        overwritten: 0,
        from_ns: 1000,
    };
    assert_eq!(trace.notices, [wrapped]);
    let mut unfinished = analyse(&trace).unfinished;
    unfinished.sort_by_key(|wait| (wait.start_ns, wait.pid));
    let begins = unfinished.iter().map(|wait| (wait.pid, wait.start_ns));
    assert_eq!(
        begins.collect::<Vec<_>>(),
        [(41, 1100), (42, 1200), (50, 1200)]
    );
}

/// A packet of switches `time, from, to`, each of a runnable thread, on a CPU.
fn switches(cpu: u64, list: &[(u64, u64, u64)]) -> impl Fn(&mut Message) {
    move |bundle| {
        bundle.number(1, cpu);
        for (time, from, to) in list {
            bundle.message(2, |event| {
                event.number(1, *time).message(4, |switch| {
                    switch.number(2, *from).number(6, *to).bytes(5, b"t");
                });
            });
        }
    }
}

/// Before `tracing_started` at 100 ns some events were not recorded yet: trace_processor has one
/// slice of thread 1 from 100 to 110 ns, and then one of thread 2.
#[test]
fn what_was_recorded_before_the_recording_had_started_is_left_out() {
    let mut bytes = packets(&[
        &switches(0, &[(50, 1, 2), (60, 2, 1), (70, 1, 2), (80, 2, 0)]),
        &switches(2, &[(80, 0, 1), (90, 1, 2), (100, 2, 1), (110, 1, 2)]),
    ]);
    let mut started = Message::default();
    started.message(1, |packet| {
        packet
            .number(packet::TIMESTAMP, 100)
            .message(packet::SERVICE_EVENT, |event| {
                event.number(2, 1);
            });
    });
    bytes.extend(started.0);
    let trace = read_in(&bytes).unwrap();
    assert_eq!((trace.span(), trace.notices.len()), (Some((100, 110)), 0));
    assert_eq!(waits(&bytes), [(2, 10)]);
}

/// Threads that run, are preempted and run again on two CPUs. trace_processor counts the runnable
/// threads: 1, 1, 2, 2, 2, 3, 2 and 2 from each of these times on.
#[test]
fn as_many_threads_can_run_at_each_time_as_trace_processor_counts() {
    let second = [
        (50, 4, 1),
        (120, 1, 2),
        (170, 2, 0),
        (250, 0, 2),
        (390, 2, 4),
    ];
    let bytes = packets(&[
        &switches(0, &[(1, 1, 3), (100, 3, 2), (115, 2, 3)]),
        &switches(1, &second),
    ]);
    let report = analyse(&read_in(&bytes).unwrap());
    let count = |time: u64| {
        let (ended, open) = (report.waits.iter(), report.unfinished.iter());
        let ended = ended.filter(|wait| (wait.start_ns..wait.end_ns).contains(&time));
        ended.count() + open.filter(|wait| wait.start_ns <= time).count()
    };
    let counts = [1, 50, 100, 115, 120, 170, 250, 390].map(count);
    assert_eq!(counts, [1, 1, 2, 2, 2, 3, 2, 2]);
}

/// A thread belongs to its creator's process, which a later packet names. If a pid is reused, the
/// new thread belongs to the process of its own creator.
#[test]
fn threads_that_are_created_belong_to_the_process_of_their_creator() {
    let created = |list: &'static [(u64, u64, u64, u64)]| {
        move |bundle: &mut Message| {
            for (time, by, pid, flags) in list {
                bundle.message(2, |event| {
                    event.number(1, *time).number(2, *by).message(235, |task| {
                        task.number(1, *pid).bytes(2, b"t").number(3, *flags);
                    });
                });
            }
        }
    };
    let mut bytes = packets(&[&created(&[
        (22, 31, 32, 0x10000),
        (23, 31, 33, 0x10000),
        (25, 32, 34, 0x10000),
        (27, 32, 40, 0),
        (30, 40, 31, 0x10000),
        (31, 99, 50, 0x10000),
    ])]);
    let mut tree = Message::default();
    tree.message(1, |packet| {
        packet.message(packet::PROCESS_TREE, |tree| {
            tree.message(2, |thread| {
                thread.number(1, 31).number(3, 30);
            });
        });
    });
    bytes.extend(tree.0);
    let trace = read_in(&bytes).unwrap();
    let process = |pid| trace.threads[&pid].tgid;
    assert_eq!([31, 32, 33, 34, 40].map(process), [40, 30, 30, 30, 40]);
    assert_eq!(process(50), 0, "nothing names the process of its creator");
}

#[test]
fn a_recorded_file_reads_back_with_the_same_counts() {
    let recorder = match crate::record::Recorder::start(&crate::record::RecordOptions::default()) {
        Ok(recorder) => recorder,
        Err(error) => return println!("skipped: {error}"),
    };
    std::thread::sleep(std::time::Duration::from_millis(100));
    let trace = recorder.stop().unwrap();
    let back = read_in(&write_out(&trace)).unwrap();
    assert_eq!(back.events.len(), trace.events.len());
    let (live, file) = (analyse(&trace), analyse(&back));
    assert_eq!(live.waits.len(), file.waits.len());
    assert_eq!(live.to_json()["tasks"], file.to_json()["tasks"]);
    assert_eq!(live.to_json()["workqueues"], file.to_json()["workqueues"]);
}
