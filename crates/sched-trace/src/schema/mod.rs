//! The events that are read: their names and fields in the kernel, in its text and in Perfetto.
//!
//! All readers fill the same [`Values`], from which [`kind`] makes an event. The writer of
//! Perfetto's format takes the values from [`values`].

mod events;

use crate::Name;
pub(crate) use events::{Naming, kind, values};

/// A kind of event.
pub(crate) struct EventType {
    pub what: What,
    /// Group of the event in tracefs.
    pub group: &'static str,
    pub name: &'static str,
    pub need: Need,
    /// Field number in Perfetto's `FtraceEvent`; [`GENERIC`] if the event has none of its own.
    pub tag: u32,
    /// Fields, in the order in which the kernel prints them.
    pub fields: &'static [FieldType],
}

impl EventType {
    /// The path of the event's file `name` in a tracing instance.
    pub fn file(&self, name: &str) -> String {
        format!("events/{}/{}/{name}", self.group, self.name)
    }
}

/// Perfetto's `FtraceEvent.generic`: the event and its fields by name.
pub(crate) const GENERIC: u32 = 327;

/// When an event is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Always,
    IfThere,
    Requests,
    Blocks,
    Interrupts,
}

/// The kinds of events, in the order of [`EVENTS`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Switch,
    Waking,
    Wakeup,
    WakeupNew,
    Migrate,
    WorkQueued,
    WorkStart,
    WorkEnd,
    KthreadQueued,
    KthreadStart,
    KthreadEnd,
    Fork,
    Exec,
    Exit,
    NewTask,
    Rename,
    FuseSent,
    FuseDone,
    RequestDone,
    BioDone,
    HandlerBegin,
    HandlerEnd,
    SoftirqBegin,
    SoftirqEnd,
    SleptIn,
}

/// A field of an event.
pub(crate) struct FieldType {
    pub name: &'static str,
    /// Number of the field in Perfetto's message.
    pub tag: u32,
    pub form: Form,
    /// Whether the field is missing in some kernels.
    pub optional: bool,
    /// The text before the value in the kernel's output, if not `NAME=`.
    pub key: &'static str,
}

/// The kind of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Number,
    /// A number printed in hexadecimal.
    Address,
    Text,
    Function,
    /// An address within a function.
    Place,
    State,
    /// The name of a work queue; before Linux 5.11 its address, which is not a name.
    Queue,
    /// A field that is not read; it only marks the end of the previous field in the kernel's text.
    Ignored,
}

const fn field(name: &'static str, tag: u32, form: Form) -> FieldType {
    FieldType {
        name,
        tag,
        form,
        optional: matches!(form, Form::Ignored | Form::Queue),
        key: "",
    }
}

const fn number(name: &'static str, tag: u32) -> FieldType {
    field(name, tag, Form::Number)
}

const fn text(name: &'static str, tag: u32) -> FieldType {
    field(name, tag, Form::Text)
}

const fn ignored(name: &'static str) -> FieldType {
    field(name, 0, Form::Ignored)
}

impl FieldType {
    const fn after(self, key: &'static str) -> Self {
        Self { key, ..self }
    }

    const fn optional(self) -> Self {
        Self {
            optional: true,
            ..self
        }
    }
}

const COMM: FieldType = text("comm", 1);
const PID: FieldType = number("pid", 2);
const PRIO: FieldType = number("prio", 3);
const WAKE: &[FieldType] = &[COMM, PID, PRIO, number("target_cpu", 5)];
const FUNCTION: FieldType = field("function", 2, Form::Function);
const WORK: FieldType = field("work", 1, Form::Address);
const START: &[FieldType] = &[WORK.after("work struct "), FUNCTION.after(": function ")];
const END: &[FieldType] = &[
    WORK.after("work struct "),
    FUNCTION.after(": function ").optional(),
];

use Need::{Always, IfThere};
use What::{Wakeup, WakeupNew, Waking};

const fn event(
    what: What,
    need: Need,
    (group, name): (&'static str, &'static str),
    tag: u32,
    fields: &'static [FieldType],
) -> EventType {
    EventType {
        what,
        group,
        name,
        need,
        tag,
        fields,
    }
}

/// All events that are read. The numbers are those of Perfetto's
/// `protos/perfetto/trace/ftrace/*.proto`.
#[rustfmt::skip]
pub(crate) static EVENTS: [EventType; 25] = [
    event(What::Switch, Always, ("sched", "sched_switch"), 4, &[
        text("prev_comm", 1), number("prev_pid", 2), number("prev_prio", 3),
        field("prev_state", 4, Form::State),
        // This key is longer than a thread name, so no name contains it.
        text("next_comm", 5).after(" ==> next_comm="), number("next_pid", 6), number("next_prio", 7),
    ]),
    event(Waking, Always, ("sched", "sched_waking"), 20, WAKE),
    event(Wakeup, IfThere, ("sched", "sched_wakeup"), 17, WAKE),
    event(WakeupNew, IfThere, ("sched", "sched_wakeup_new"), 114, WAKE),
    event(What::Migrate, IfThere, ("sched", "sched_migrate_task"), 491,
        &[COMM, PID, PRIO, number("orig_cpu", 4), number("dest_cpu", 5)]),
    event(What::WorkQueued, IfThere, ("workqueue", "workqueue_queue_work"), 59, &[
        WORK.after("work struct="), FUNCTION, field("workqueue", 6, Form::Queue),
        ignored("req_cpu"), ignored("cpu"),
    ]),
    event(What::WorkStart, IfThere, ("workqueue", "workqueue_execute_start"), 58, START),
    event(What::WorkEnd, IfThere, ("workqueue", "workqueue_execute_end"), 57, END),
    event(What::KthreadQueued, IfThere, ("sched", "sched_kthread_work_queue_work"), GENERIC,
        &[WORK.after("work struct="), FUNCTION, ignored("worker")]),
    event(What::KthreadStart, IfThere, ("sched", "sched_kthread_work_execute_start"), GENERIC,
        START),
    event(What::KthreadEnd, IfThere, ("sched", "sched_kthread_work_execute_end"), GENERIC, END),
    event(What::Fork, IfThere, ("sched", "sched_process_fork"), 239, &[
        text("parent_comm", 1).after("comm="), number("parent_pid", 2).after(" pid="),
        text("child_comm", 3), number("child_pid", 4),
    ]),
    event(What::Exec, IfThere, ("sched", "sched_process_exec"), 237,
        &[text("filename", 1), PID, number("old_pid", 3)]),
    event(What::Exit, IfThere, ("sched", "sched_process_exit"), 238,
        &[COMM, PID, number("prio", 4)]),
    event(What::NewTask, IfThere, ("task", "task_newtask"), 235, &[
        number("pid", 1), text("comm", 2), field("clone_flags", 3, Form::Address),
        ignored("oom_score_adj"),
    ]),
    // If the pid is missing, the thread that writes the event has renamed itself.
    event(What::Rename, IfThere, ("task", "task_rename"), 236, &[
        number("pid", 1).optional(), ignored("oldcomm"), text("newcomm", 3),
        ignored("oom_score_adj"),
    ]),
    event(What::FuseSent, Need::Requests, ("fuse", "fuse_request_send"), GENERIC, &[
        number("connection", 1).after("connection "), number("unique", 2).after(" req "),
        number("opcode", 3).after(" opcode "),
    ]),
    event(What::FuseDone, Need::Requests, ("fuse", "fuse_request_end"), GENERIC, &[
        number("connection", 1).after("connection "), number("unique", 2).after(" req "),
        ignored("len").after(" len "),
    ]),
    event(What::RequestDone, Need::Blocks, ("block", "block_rq_complete"), GENERIC,
        &[number("dev", 1)]),
    event(What::BioDone, Need::Blocks, ("block", "block_bio_complete"), GENERIC,
        &[number("dev", 1)]),
    event(What::HandlerBegin, Need::Interrupts, ("irq", "irq_handler_entry"), 36,
        &[number("irq", 1), text("name", 2)]),
    event(What::HandlerEnd, Need::Interrupts, ("irq", "irq_handler_exit"), 37,
        &[number("irq", 1), ignored("ret")]),
    event(What::SoftirqBegin, Need::Interrupts, ("irq", "softirq_entry"), 24, &[number("vec", 1)]),
    event(What::SoftirqEnd, Need::Interrupts, ("irq", "softirq_exit"), 25, &[number("vec", 1)]),
    event(What::SleptIn, IfThere, ("sched", "sched_blocked_reason"), 18, &[
        number("pid", 1), number("io_wait", 3).after(" iowait="), field("caller", 2, Form::Place),
    ]),
];

/// The type of an event by its name.
pub(crate) fn by_name(name: &str) -> Option<&'static EventType> {
    EVENTS.iter().find(|event| event.name == name)
}

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    Absent,
    Number(u64),
    Text(&'a [u8]),
    Name(Name),
}

/// The values of an event's fields, in the order of [`EventType::fields`].
pub(crate) type Values<'a> = [Value<'a>; 7];

/// No values yet.
pub(crate) const ABSENT: Values<'static> = [Value::Absent; 7];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_stand_in_the_order_of_their_kinds() {
        assert!(
            EVENTS
                .iter()
                .enumerate()
                .all(|(at, event)| event.what as usize == at)
        );
        assert_eq!(
            by_name("fuse_request_send").map(|event| event.what),
            Some(What::FuseSent)
        );
    }
}
