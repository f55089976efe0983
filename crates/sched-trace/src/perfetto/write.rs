//! Writing a trace in Perfetto's format.
//!
//! Order of packets: system and clocks, processes and threads, the events in bundles of one CPU
//! each, the slices, and the losses. Function names travel as interned kernel symbols.

use super::proto::{self, Data, Event as Proto, FtraceEvent, TracePacket};
use super::tracks;
use crate::{Comm, Error, Event, Kind, Name, Result, Trace, UNKNOWN_PID};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Events of one bundle. Perfetto itself writes packets of some tens of KiB.
const BUNDLE: usize = 512;

/// Packet sequences: ftrace, and the tracks of slices.
const SEQUENCE_FTRACE: u32 = 1;
const SEQUENCE_TRACKS: u32 = 2;

/// Writes the trace to a file that ui.perfetto.dev and trace_processor open.
pub fn save(trace: &Trace, path: &Path) -> Result<()> {
    let file = File::create(path).map(BufWriter::new);
    file.and_then(|mut file| write(trace, &mut file).and_then(|()| file.flush()))
        .map_err(|source| Error::Io {
            path: path.into(),
            source,
        })
}

/// Writes the trace.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let mut packets = Packets {
        out,
        buffer: Vec::new(),
        offset: boot_offset(trace),
    };
    packets.head(trace)?;
    packets.process_tree(trace)?;
    packets.events(trace)?;
    for packet in tracks::packets(trace, packets.offset) {
        let packet = TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE_TRACKS),
            ..packet
        };
        packets.put(&packet)?;
    }
    packets.stats(proto::END_OF_TRACE, trace.lost_events)
}

/// Offset from the trace's times to CLOCK_BOOTTIME, Perfetto's clock.
fn boot_offset(trace: &Trace) -> u64 {
    if trace.clock == "mono" {
        trace.boot_offset_ns
    } else {
        0
    }
}

struct Packets<'a, W> {
    out: &'a mut W,
    buffer: Vec<u8>,
    offset: u64,
}

impl<W: Write> Packets<'_, W> {
    /// One packet: field 1 of the message `Trace`.
    fn put(&mut self, packet: &TracePacket) -> io::Result<()> {
        self.buffer.clear();
        prost::encoding::message::encode(1, packet, &mut self.buffer);
        self.out.write_all(&self.buffer)
    }

    fn data(&mut self, data: Data) -> io::Result<()> {
        self.put(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE_FTRACE),
            data: Some(data),
            ..TracePacket::default()
        })
    }

    fn head(&mut self, trace: &Trace) -> io::Result<()> {
        if !trace.kernel.is_empty() {
            let utsname = proto::Utsname {
                sysname: Some("Linux".into()),
                version: Some(trace.kernel_version.clone()).filter(|version| !version.is_empty()),
                release: Some(trace.kernel.clone()),
            };
            self.data(Data::SystemInfo(proto::SystemInfo {
                utsname: Some(utsname),
            }))?;
        }
        let (first, _) = trace.span().unwrap_or_default();
        let clock = |clock_id, timestamp| proto::Clock {
            clock_id: Some(clock_id),
            timestamp: Some(timestamp),
        };
        let mut clocks = vec![clock(proto::BOOTTIME, first.saturating_add(self.offset))];
        if trace.clock == "mono" {
            clocks.push(clock(proto::MONOTONIC, first));
        }
        let primary_trace_clock = Some(proto::BOOTTIME as i32);
        self.data(Data::ClockSnapshot(proto::ClockSnapshot {
            clocks,
            primary_trace_clock,
        }))?;
        self.stats(proto::START_OF_TRACE, 0)
    }

    fn stats(&mut self, phase: i32, lost: u64) -> io::Result<()> {
        // The CPU that lost them is not known any more; readers use the sum.
        let cpu = proto::FtraceCpuStats {
            cpu: Some(0),
            overrun: Some(lost),
            ..Default::default()
        };
        let stats = proto::FtraceStats {
            phase: Some(phase),
            cpu_stats: vec![cpu],
        };
        self.data(Data::FtraceStats(stats))
    }

    fn process_tree(&mut self, trace: &Trace) -> io::Result<()> {
        let mut tree = proto::ProcessTree::default();
        for (&pid, thread) in trace.threads.iter().filter(|(_, thread)| thread.tgid != 0) {
            let name = thread.comm.as_bytes().to_vec();
            if thread.tgid == pid {
                tree.processes.push(proto::Process {
                    pid: Some(pid),
                    cmdline: vec![name.clone()],
                });
            }
            tree.threads.push(proto::Thread {
                tid: Some(pid),
                name: Some(name),
                tgid: Some(thread.tgid),
            });
        }
        self.data(Data::ProcessTree(tree))
    }

    /// All symbols go with the first packet of the sequence, then every bundle refers to them.
    fn events(&mut self, trace: &Trace) -> io::Result<()> {
        let symbols = trace
            .names
            .iter()
            .map(|(name, text)| proto::InternedString {
                iid: Some(iid(name)),
                str: Some(text.as_bytes().to_vec()),
            });
        self.put(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE_FTRACE),
            sequence_flags: Some(proto::SEQ_INCREMENTAL_STATE_CLEARED),
            interned_data: Some(proto::InternedData {
                kernel_symbols: symbols.collect(),
            }),
            ..TracePacket::default()
        })?;
        let mut bundles: BTreeMap<u32, Vec<FtraceEvent>> = BTreeMap::new();
        for event in &trace.events {
            let bundle = bundles.entry(event.cpu).or_default();
            bundle.push(self.event(trace, event));
            if bundle.len() == BUNDLE {
                let full = std::mem::take(bundle);
                self.bundle(event.cpu, full)?;
            }
        }
        for (cpu, rest) in bundles.into_iter().filter(|(_, rest)| !rest.is_empty()) {
            self.bundle(cpu, rest)?;
        }
        Ok(())
    }

    fn bundle(&mut self, cpu: u32, event: Vec<FtraceEvent>) -> io::Result<()> {
        let bundle = proto::FtraceEventBundle {
            cpu: Some(cpu),
            event,
            lost_events: None,
        };
        self.put(&TracePacket {
            trusted_packet_sequence_id: Some(SEQUENCE_FTRACE),
            sequence_flags: Some(proto::SEQ_NEEDS_INCREMENTAL_STATE),
            data: Some(Data::FtraceEvents(bundle)),
            ..TracePacket::default()
        })
    }

    fn event(&self, trace: &Trace, event: &Event) -> FtraceEvent {
        FtraceEvent {
            timestamp: Some(event.time_ns.saturating_add(self.offset)),
            pid: (event.pid != UNKNOWN_PID).then_some(event.pid as u32),
            event: Some(kind(trace, &event.kind)),
        }
    }
}

/// Interning ids begin with 1: 0 means "not set".
fn iid(name: Name) -> u64 {
    name.index() as u64 + 1
}

fn bytes(comm: Comm) -> Option<Vec<u8>> {
    Some(comm.as_bytes().to_vec())
}

fn kind(trace: &Trace, kind: &Kind) -> Proto {
    let text = |name: Name| Some(trace.name(name).as_bytes().to_vec());
    let wake = |pid, comm, prio, target_cpu: u32| proto::SchedWake {
        comm: bytes(comm),
        pid: Some(pid),
        prio: Some(prio),
        target_cpu: Some(target_cpu as i32),
    };
    let execute = |work, function: Option<Name>| proto::WorkExecute {
        work: Some(work),
        function: function.map(iid),
    };
    match *kind {
        Kind::Switch {
            prev_pid,
            prev_comm,
            prev_prio,
            prev_state,
            next_pid,
            next_comm,
            next_prio,
        } => Proto::SchedSwitch(proto::SchedSwitch {
            prev_comm: bytes(prev_comm),
            prev_pid: Some(prev_pid),
            prev_prio: Some(prev_prio),
            prev_state: Some(i64::from(prev_state.0)),
            next_comm: bytes(next_comm),
            next_pid: Some(next_pid),
            next_prio: Some(next_prio),
        }),
        Kind::Waking {
            pid,
            comm,
            prio,
            target_cpu,
        } => Proto::SchedWaking(wake(pid, comm, prio, target_cpu)),
        Kind::Wakeup {
            pid,
            comm,
            prio,
            target_cpu,
        } => Proto::SchedWakeup(wake(pid, comm, prio, target_cpu)),
        Kind::WakeupNew {
            pid,
            comm,
            prio,
            target_cpu,
        } => Proto::SchedWakeupNew(wake(pid, comm, prio, target_cpu)),
        Kind::Migrate {
            pid,
            comm,
            prio,
            from_cpu,
            to_cpu,
        } => Proto::Migrate(proto::Migrate {
            comm: bytes(comm),
            pid: Some(pid),
            prio: Some(prio),
            orig_cpu: Some(from_cpu as i32),
            dest_cpu: Some(to_cpu as i32),
        }),
        Kind::WorkQueued {
            work,
            function,
            queue,
            cpu,
        } => Proto::WorkQueued(proto::WorkQueued {
            work: Some(work),
            function: Some(iid(function)),
            cpu: Some(cpu as i32),
            workqueue: queue.and_then(text),
        }),
        Kind::WorkStart { work, function } => Proto::WorkStart(execute(work, Some(function))),
        Kind::WorkEnd { work, function } => Proto::WorkEnd(execute(work, function)),
        Kind::KthreadWorkQueued {
            work,
            function,
            worker,
        } => generic(
            "sched_kthread_work_queue_work",
            &[("work", work), ("worker", worker)],
            text(function),
        ),
        Kind::KthreadWorkStart { work, function } => generic(
            "sched_kthread_work_execute_start",
            &[("work", work)],
            text(function),
        ),
        Kind::KthreadWorkEnd { work, function } => generic(
            "sched_kthread_work_execute_end",
            &[("work", work)],
            function.and_then(text),
        ),
        Kind::Fork {
            child_pid,
            child_comm,
            parent_pid,
            parent_comm,
        } => Proto::Fork(proto::Fork {
            parent_comm: bytes(parent_comm),
            parent_pid: Some(parent_pid),
            child_comm: bytes(child_comm),
            child_pid: Some(child_pid),
        }),
        Kind::Exec {
            pid,
            old_pid,
            filename,
        } => Proto::Exec(proto::Exec {
            filename: text(filename),
            pid: Some(pid),
            old_pid: Some(old_pid),
        }),
        Kind::Exit { pid, comm, prio } => Proto::Exit(proto::Exit {
            comm: bytes(comm),
            pid: Some(pid),
            prio: Some(prio),
        }),
        Kind::FuseSent {
            connection,
            unique,
            opcode,
        } => generic(
            "fuse_request_send",
            &[
                ("connection", connection.into()),
                ("unique", unique),
                ("opcode", opcode.into()),
            ],
            None,
        ),
        Kind::Rename { pid, comm } => Proto::Rename(proto::Rename {
            pid: Some(pid),
            newcomm: bytes(comm),
        }),
    }
}

/// An event without a message of its own. A symbol is written as text: readers resolve ids only
/// in fields known to be functions.
fn generic(name: &str, numbers: &[(&str, u64)], function: Option<Vec<u8>>) -> Proto {
    let field = |name: &str, value| proto::GenericField {
        name: Some(name.into()),
        value: Some(value),
    };
    let numbers = numbers
        .iter()
        .map(|&(name, n)| field(name, proto::GenericValue::Uint(n)));
    let function = function.map(|text| field("function", proto::GenericValue::Str(text)));
    Proto::Generic(proto::Generic {
        event_name: Some(name.into()),
        field: numbers.chain(function).collect(),
    })
}
