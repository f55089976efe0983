//! Records of the kernel's events to [`Event`]s.

use super::format::{EventFormat, Field};
use super::symbols::Addresses;
use crate::{Comm, Event, Kind, Notice, TaskState, Thread, Trace};

/// The events that are read: group, name, and whether a recording requires it.
pub(crate) const EVENTS: &[(&str, &str, Need)] = &[
    ("sched", "sched_switch", Need::Always),
    ("sched", "sched_waking", Need::Always),
    ("sched", "sched_wakeup", Need::IfThere),
    ("sched", "sched_wakeup_new", Need::IfThere),
    ("sched", "sched_migrate_task", Need::Migrations),
    ("workqueue", "workqueue_queue_work", Need::Work),
    ("workqueue", "workqueue_execute_start", Need::Work),
    ("workqueue", "workqueue_execute_end", Need::Work),
    ("sched", "sched_kthread_work_queue_work", Need::Work),
    ("sched", "sched_kthread_work_execute_start", Need::Work),
    ("sched", "sched_kthread_work_execute_end", Need::Work),
    ("sched", "sched_process_fork", Need::IfThere),
    ("sched", "sched_process_exec", Need::IfThere),
    ("sched", "sched_process_exit", Need::IfThere),
    ("task", "task_newtask", Need::IfThere),
    ("task", "task_rename", Need::IfThere),
    ("fuse", "fuse_request_send", Need::Requests),
];

/// When an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Always,
    IfThere,
    Work,
    Migrations,
    Requests,
}

/// `CLONE_THREAD` of clone(2): the new task is a thread of its parent's process.
const CLONE_THREAD: i64 = 0x10000;

/// Where the fields of each kind of event lie.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Switch([Field; 7]),
    Wake(Wake, [Field; 4]),
    Migrate([Field; 5]),
    WorkQueued {
        work: Field,
        function: Field,
        queue: Option<Field>,
        cpu: Field,
    },
    WorkStart([Field; 2]),
    WorkEnd(Field, Option<Field>),
    KthreadQueued([Field; 3]),
    KthreadStart([Field; 2]),
    KthreadEnd(Field, Option<Field>),
    Fork([Field; 4]),
    Exec([Field; 3]),
    Exit([Field; 3]),
    NewTask([Field; 3]),
    Rename([Field; 2]),
    FuseSent([Field; 3]),
}

#[derive(Clone, Copy, Debug)]
enum Wake {
    Waking,
    Wakeup,
    New,
}

/// Turns records into events of a trace.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Layouts by event id.
    layouts: Vec<Option<Layout>>,
    common_pid: Option<Field>,
    common_type: Field,
    addresses: Addresses,
    /// Records of known events that could not be read.
    pub broken: u64,
}

impl Decoder {
    /// Learns the layout of events; formats of other events are ignored.
    pub fn new<'a>(formats: impl IntoIterator<Item = &'a EventFormat>) -> Self {
        let mut decoder = Self {
            common_type: Field {
                offset: 0,
                size: 2,
                ..Field::default()
            },
            ..Self::default()
        };
        for format in formats {
            decoder.common_pid = decoder.common_pid.or_else(|| format.field("common_pid"));
            let Some(layout) = layout(format) else {
                continue;
            };
            let id = usize::from(format.id);
            if decoder.layouts.len() <= id {
                decoder.layouts.resize(id + 1, None);
            }
            decoder.layouts[id] = Some(layout);
        }
        decoder
    }

    /// Adds the event of a record to the trace, if it is of a kind that is read.
    pub fn record(&mut self, trace: &mut Trace, time_ns: u64, cpu: u32, record: &[u8]) {
        let Some(id) = self.common_type.int(record) else {
            self.broken += 1;
            return;
        };
        let Some(Some(layout)) = self.layouts.get(id as usize).copied() else {
            return;
        };
        match self.decode(trace, &layout, record) {
            Some(Decoded::Event(kind)) => {
                let pid = self.common_pid.and_then(|field| field.int(record));
                let pid = pid.map_or(crate::UNKNOWN_PID, |pid| pid as i32);
                trace.events.push(Event {
                    time_ns,
                    cpu,
                    pid,
                    kind,
                });
            }
            Some(Decoded::Thread(pid, thread)) => {
                trace.threads.insert(pid, thread);
            }
            None => self.broken += 1,
        }
    }

    /// Names the functions; see [`Addresses::resolve`].
    pub fn finish(
        &self,
        trace: &mut Trace,
        kallsyms: Option<&mut dyn std::io::BufRead>,
        remedy: &'static str,
    ) {
        self.addresses.resolve(trace, kallsyms, remedy);
        if self.broken > 0 {
            trace
                .notices
                .push(Notice::UndecodedRecords { count: self.broken });
        }
    }

    fn decode(&mut self, trace: &mut Trace, layout: &Layout, record: &[u8]) -> Option<Decoded> {
        let int = |field: &Field| field.int(record).map(|value| value as i32);
        let cpu = |field: &Field| field.int(record).map(|value| value as u32);
        let comm = |field: &Field| field.bytes(record).map(Comm::new);
        let pointer = |field: &Field| field.int(record).map(|value| value as u64);
        let mut function = |field: &Field| {
            pointer(field).map(|address| self.addresses.name(&mut trace.names, address))
        };
        let kind = match layout {
            Layout::Switch([pc, pp, pr, ps, nc, np, nr]) => Kind::Switch {
                prev_comm: comm(pc)?,
                prev_pid: int(pp)?,
                prev_prio: int(pr)?,
                prev_state: TaskState::from_bits(pointer(ps)?),
                next_comm: comm(nc)?,
                next_pid: int(np)?,
                next_prio: int(nr)?,
            },
            Layout::Wake(wake, [c, p, r, t]) => {
                let (comm, pid, prio, target_cpu) = (comm(c)?, int(p)?, int(r)?, cpu(t)?);
                match wake {
                    Wake::Waking => Kind::Waking {
                        pid,
                        comm,
                        prio,
                        target_cpu,
                    },
                    Wake::Wakeup => Kind::Wakeup {
                        pid,
                        comm,
                        prio,
                        target_cpu,
                    },
                    Wake::New => Kind::WakeupNew {
                        pid,
                        comm,
                        prio,
                        target_cpu,
                    },
                }
            }
            Layout::Migrate([c, p, r, from, to]) => Kind::Migrate {
                comm: comm(c)?,
                pid: int(p)?,
                prio: int(r)?,
                from_cpu: cpu(from)?,
                to_cpu: cpu(to)?,
            },
            Layout::WorkQueued {
                work,
                function: f,
                queue,
                cpu: c,
            } => Kind::WorkQueued {
                work: pointer(work)?,
                function: function(f)?,
                queue: match queue {
                    Some(field) => Some(trace.names.intern(&text(field.bytes(record)?))),
                    None => None,
                },
                cpu: cpu(c)?,
            },
            Layout::WorkStart([w, f]) => Kind::WorkStart {
                work: pointer(w)?,
                function: function(f)?,
            },
            Layout::WorkEnd(w, f) => Kind::WorkEnd {
                work: pointer(w)?,
                function: f.as_ref().and_then(function),
            },
            Layout::KthreadQueued([w, f, worker]) => Kind::KthreadWorkQueued {
                work: pointer(w)?,
                function: function(f)?,
                worker: pointer(worker)?,
            },
            Layout::KthreadStart([w, f]) => Kind::KthreadWorkStart {
                work: pointer(w)?,
                function: function(f)?,
            },
            Layout::KthreadEnd(w, f) => Kind::KthreadWorkEnd {
                work: pointer(w)?,
                function: f.as_ref().and_then(function),
            },
            Layout::Fork([pc, pp, cc, cp]) => Kind::Fork {
                parent_comm: comm(pc)?,
                parent_pid: int(pp)?,
                child_comm: comm(cc)?,
                child_pid: int(cp)?,
            },
            Layout::Exec([name, p, old]) => Kind::Exec {
                filename: trace.names.intern(&text(name.bytes(record)?)),
                pid: int(p)?,
                old_pid: int(old)?,
            },
            Layout::Exit([c, p, r]) => Kind::Exit {
                comm: comm(c)?,
                pid: int(p)?,
                prio: int(r)?,
            },
            Layout::NewTask([p, c, flags]) => {
                let (pid, comm) = (int(p)?, comm(c)?);
                let parent = self.common_pid.as_ref().and_then(int).unwrap_or(0);
                let process = |pid: i32| trace.threads.get(&pid).map_or(pid, |thread| thread.tgid);
                let is_thread = flags.int(record)? & CLONE_THREAD != 0;
                let tgid = if is_thread { process(parent) } else { pid };
                return Some(Decoded::Thread(pid, Thread { comm, tgid }));
            }
            Layout::FuseSent([connection, unique, opcode]) => Kind::FuseSent {
                connection: cpu(connection)?,
                unique: pointer(unique)?,
                opcode: cpu(opcode)?,
            },
            Layout::Rename([p, c]) => Kind::Rename {
                pid: int(p)?,
                comm: comm(c)?,
            },
        };
        Some(Decoded::Event(kind))
    }
}

/// Result of decoding a record.
enum Decoded {
    Event(Kind),
    /// A thread was made; its process is known now.
    Thread(i32, Thread),
}

/// A string field up to its NUL.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

fn layout(format: &EventFormat) -> Option<Layout> {
    let f = |name: &str| format.field(name);
    let wake = |wake| {
        Some(Layout::Wake(
            wake,
            [f("comm")?, f("pid")?, f("prio")?, f("target_cpu")?],
        ))
    };
    Some(match format.name.as_str() {
        "sched_switch" => Layout::Switch([
            f("prev_comm")?,
            f("prev_pid")?,
            f("prev_prio")?,
            f("prev_state")?,
            f("next_comm")?,
            f("next_pid")?,
            f("next_prio")?,
        ]),
        "sched_waking" => return wake(Wake::Waking),
        "sched_wakeup" => return wake(Wake::Wakeup),
        "sched_wakeup_new" => return wake(Wake::New),
        "sched_migrate_task" => Layout::Migrate([
            f("comm")?,
            f("pid")?,
            f("prio")?,
            f("orig_cpu")?,
            f("dest_cpu")?,
        ]),
        "workqueue_queue_work" => Layout::WorkQueued {
            work: f("work")?,
            function: f("function")?,
            // Before Linux 5.11 the field is a pointer, which names nothing.
            queue: f("workqueue").filter(|field| field.location != super::format::Location::Here),
            cpu: f("cpu")?,
        },
        "workqueue_execute_start" => Layout::WorkStart([f("work")?, f("function")?]),
        "workqueue_execute_end" => Layout::WorkEnd(f("work")?, f("function")),
        "sched_kthread_work_queue_work" => {
            Layout::KthreadQueued([f("work")?, f("function")?, f("worker")?])
        }
        "sched_kthread_work_execute_start" => Layout::KthreadStart([f("work")?, f("function")?]),
        "sched_kthread_work_execute_end" => Layout::KthreadEnd(f("work")?, f("function")),
        "sched_process_fork" => Layout::Fork([
            f("parent_comm")?,
            f("parent_pid")?,
            f("child_comm")?,
            f("child_pid")?,
        ]),
        "sched_process_exec" => Layout::Exec([f("filename")?, f("pid")?, f("old_pid")?]),
        "sched_process_exit" => Layout::Exit([f("comm")?, f("pid")?, f("prio")?]),
        "task_newtask" => Layout::NewTask([f("pid")?, f("comm")?, f("clone_flags")?]),
        "fuse_request_send" => Layout::FuseSent([f("connection")?, f("unique")?, f("opcode")?]),
        "task_rename" => Layout::Rename([f("pid")?, f("newcomm")?]),
        _ => return None,
    })
}
