//! Field numbers of Perfetto's messages, from its `protos/perfetto/trace/*.proto`.

/// Fields of `TracePacket`.
pub(super) mod packet {
    pub const FTRACE_EVENTS: u32 = 1;
    pub const PROCESS_TREE: u32 = 2;
    pub const CLOCK_SNAPSHOT: u32 = 6;
    pub const TIMESTAMP: u32 = 8;
    pub const SEQUENCE: u32 = 10;
    pub const TRACK_EVENT: u32 = 11;
    pub const INTERNED_DATA: u32 = 12;
    pub const SEQUENCE_FLAGS: u32 = 13;
    pub const TRACE_CONFIG: u32 = 33;
    pub const FTRACE_STATS: u32 = 34;
    pub const INCREMENTAL_STATE_CLEARED: u32 = 41;
    pub const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub const SYSTEM_INFO: u32 = 45;
    pub const COMPRESSED: u32 = 50;
    pub const CLOCK: u32 = 58;
    pub const TRACK_DESCRIPTOR: u32 = 60;
    pub const SERVICE_EVENT: u32 = 69;
    pub const TRACE_UUID: u32 = 89;
    pub const COMPRESSED_ZSTD: u32 = 133;
}

/// `SEQ_INCREMENTAL_STATE_CLEARED`: drops the interned data of the sequence.
pub(super) const STATE_CLEARED: u64 = 1;
/// `SEQ_NEEDS_INCREMENTAL_STATE`: the packet refers to interned data of its sequence.
pub(super) const NEEDS_STATE: u64 = 2;

/// `InternedData.kernel_symbols`.
pub(super) const KERNEL_SYMBOLS: u32 = 26;

/// `BUILTIN_CLOCK_MONOTONIC` and `BUILTIN_CLOCK_BOOTTIME`.
pub(super) const MONOTONIC: u64 = 3;
pub(super) const BOOTTIME: u64 = 6;

/// `FtraceStats.phase`.
pub(super) const START_OF_TRACE: u64 = 1;
pub(super) const END_OF_TRACE: u64 = 2;

/// `TrackEvent.type`.
pub(super) const SLICE_BEGIN: u64 = 1;
pub(super) const SLICE_END: u64 = 2;

/// The scheduling policy in `ProcessTree.Thread`: our own field, since Perfetto has none for it.
/// Perfetto's readers skip fields that they do not know.
pub(super) const POLICY: u32 = 7201;
