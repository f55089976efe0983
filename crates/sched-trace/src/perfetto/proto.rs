//! The Perfetto messages that the writer needs, with their field numbers.
//!
//! Numbers from Perfetto's `protos/perfetto/trace/*.proto`. Strings from the kernel are
//! `bytes` here: the encoding is the same, and names need not be UTF-8.

use prost::{Message, Oneof};

/// `TracePacket`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TracePacket {
    #[prost(uint64, optional, tag = "8")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "58")]
    pub timestamp_clock_id: Option<u32>,
    #[prost(uint32, optional, tag = "10")]
    pub trusted_packet_sequence_id: Option<u32>,
    #[prost(uint32, optional, tag = "13")]
    pub sequence_flags: Option<u32>,
    #[prost(message, optional, tag = "12")]
    pub interned_data: Option<InternedData>,
    #[prost(oneof = "Data", tags = "1, 2, 6, 11, 34, 45, 60")]
    pub data: Option<Data>,
}

/// Payload of a packet.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Data {
    #[prost(message, tag = "1")]
    FtraceEvents(FtraceEventBundle),
    #[prost(message, tag = "2")]
    ProcessTree(ProcessTree),
    #[prost(message, tag = "6")]
    ClockSnapshot(ClockSnapshot),
    #[prost(message, tag = "11")]
    TrackEvent(TrackEvent),
    #[prost(message, tag = "34")]
    FtraceStats(FtraceStats),
    #[prost(message, tag = "45")]
    SystemInfo(SystemInfo),
    #[prost(message, tag = "60")]
    TrackDescriptor(TrackDescriptor),
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: drops the interned data of the sequence.
pub(super) const SEQ_INCREMENTAL_STATE_CLEARED: u32 = 1;
/// The packet refers to interned data of its sequence.
pub(super) const SEQ_NEEDS_INCREMENTAL_STATE: u32 = 2;

/// `InternedData`: symbols that function fields refer to.
#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "26")]
    pub kernel_symbols: Vec<InternedString>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub str: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub clocks: Vec<Clock>,
    #[prost(int32, optional, tag = "2")]
    pub primary_trace_clock: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub timestamp: Option<u64>,
}

/// `BUILTIN_CLOCK_MONOTONIC` and `BUILTIN_CLOCK_BOOTTIME`.
pub(super) const MONOTONIC: u32 = 3;
pub(super) const BOOTTIME: u32 = 6;

#[derive(Clone, PartialEq, Message)]
pub(super) struct SystemInfo {
    #[prost(message, optional, tag = "1")]
    pub utsname: Option<Utsname>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Utsname {
    #[prost(string, optional, tag = "1")]
    pub sysname: Option<String>,
    #[prost(string, optional, tag = "2")]
    pub version: Option<String>,
    #[prost(string, optional, tag = "3")]
    pub release: Option<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ProcessTree {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
    #[prost(message, repeated, tag = "2")]
    pub threads: Vec<Thread>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Process {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub cmdline: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Thread {
    #[prost(int32, optional, tag = "1")]
    pub tid: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub name: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "3")]
    pub tgid: Option<i32>,
}

/// Losses; the readers of a trace subtract those at its start from those at its end.
#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceStats {
    #[prost(int32, optional, tag = "1")]
    pub phase: Option<i32>,
    #[prost(message, repeated, tag = "2")]
    pub cpu_stats: Vec<FtraceCpuStats>,
}

pub(super) const START_OF_TRACE: i32 = 1;
pub(super) const END_OF_TRACE: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceCpuStats {
    #[prost(uint64, optional, tag = "1")]
    pub cpu: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub overrun: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub commit_overrun: Option<u64>,
    #[prost(uint64, optional, tag = "8")]
    pub dropped_events: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    #[prost(message, optional, tag = "4")]
    pub thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub parent_uuid: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub tid: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TrackEvent {
    #[prost(int32, optional, tag = "9")]
    pub kind: Option<i32>,
    #[prost(uint64, optional, tag = "11")]
    pub track_uuid: Option<u64>,
    #[prost(string, optional, tag = "23")]
    pub name: Option<String>,
}

pub(super) const SLICE_BEGIN: i32 = 1;
pub(super) const SLICE_END: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceEventBundle {
    #[prost(uint32, optional, tag = "1")]
    pub cpu: Option<u32>,
    #[prost(message, repeated, tag = "2")]
    pub event: Vec<FtraceEvent>,
    #[prost(bool, optional, tag = "3")]
    pub lost_events: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FtraceEvent {
    #[prost(uint64, optional, tag = "1")]
    pub timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "2")]
    pub pid: Option<u32>,
    #[prost(
        oneof = "Event",
        tags = "4, 17, 20, 57, 58, 59, 114, 236, 237, 238, 239, 327, 491"
    )]
    pub event: Option<Event>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Event {
    #[prost(message, tag = "4")]
    SchedSwitch(SchedSwitch),
    #[prost(message, tag = "17")]
    SchedWakeup(SchedWake),
    #[prost(message, tag = "20")]
    SchedWaking(SchedWake),
    #[prost(message, tag = "57")]
    WorkEnd(WorkExecute),
    #[prost(message, tag = "58")]
    WorkStart(WorkExecute),
    #[prost(message, tag = "59")]
    WorkQueued(WorkQueued),
    #[prost(message, tag = "114")]
    SchedWakeupNew(SchedWake),
    #[prost(message, tag = "236")]
    Rename(Rename),
    #[prost(message, tag = "237")]
    Exec(Exec),
    #[prost(message, tag = "238")]
    Exit(Exit),
    #[prost(message, tag = "239")]
    Fork(Fork),
    /// Events that have no message of their own: `sched_kthread_work_*`.
    #[prost(message, tag = "327")]
    Generic(Generic),
    #[prost(message, tag = "491")]
    Migrate(Migrate),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SchedSwitch {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub prev_comm: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "2")]
    pub prev_pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prev_prio: Option<i32>,
    #[prost(int64, optional, tag = "4")]
    pub prev_state: Option<i64>,
    #[prost(bytes = "vec", optional, tag = "5")]
    pub next_comm: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "6")]
    pub next_pid: Option<i32>,
    #[prost(int32, optional, tag = "7")]
    pub next_prio: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SchedWake {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub comm: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prio: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub target_cpu: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WorkExecute {
    #[prost(uint64, optional, tag = "1")]
    pub work: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub function: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct WorkQueued {
    #[prost(uint64, optional, tag = "1")]
    pub work: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub function: Option<u64>,
    #[prost(int32, optional, tag = "5")]
    pub cpu: Option<i32>,
    /// Field 3 was the queue's address, later its name; 6 is its name.
    #[prost(bytes = "vec", optional, tag = "6")]
    pub workqueue: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Rename {
    #[prost(int32, optional, tag = "1")]
    pub pid: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub newcomm: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exec {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub filename: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub old_pid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Exit {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub comm: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub prio: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Fork {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub parent_comm: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "2")]
    pub parent_pid: Option<i32>,
    #[prost(bytes = "vec", optional, tag = "3")]
    pub child_comm: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "4")]
    pub child_pid: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Migrate {
    #[prost(bytes = "vec", optional, tag = "1")]
    pub comm: Option<Vec<u8>>,
    #[prost(int32, optional, tag = "2")]
    pub pid: Option<i32>,
    #[prost(int32, optional, tag = "3")]
    pub prio: Option<i32>,
    #[prost(int32, optional, tag = "4")]
    pub orig_cpu: Option<i32>,
    #[prost(int32, optional, tag = "5")]
    pub dest_cpu: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Generic {
    #[prost(string, optional, tag = "1")]
    pub event_name: Option<String>,
    #[prost(message, repeated, tag = "2")]
    pub field: Vec<GenericField>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct GenericField {
    #[prost(string, optional, tag = "1")]
    pub name: Option<String>,
    #[prost(oneof = "GenericValue", tags = "3, 4, 5")]
    pub value: Option<GenericValue>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum GenericValue {
    #[prost(bytes = "vec", tag = "3")]
    Str(Vec<u8>),
    #[prost(int64, tag = "4")]
    Int(i64),
    #[prost(uint64, tag = "5")]
    Uint(u64),
}
