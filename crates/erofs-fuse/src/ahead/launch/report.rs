//! What the counters have of launches.

use serde::Serialize;

figures::figures! {
    /// What was learned of launches, and read ahead of them.
    #[derive(Debug, Default, Serialize)]
    pub(crate) struct LaunchFigures counted by pub(super) struct ReplayCounters {
        /// Directories that were listed ahead.
        pub(super) listed_directories,
        /// Bytes read ahead by the launch profile.
        pub(super) prefetched_bytes => counter "profile_prefetched_bytes_total",
        /// Bytes that a reader asked for before they were read ahead.
        pub(super) late_bytes,
        /// Windows that the kernel did not take.
        pub(super) refused_windows,
    } and {
        /// What the launch profile is used for: learning, replaying or replayed.
        pub(super) state: &'static str => gauge "profile_info{state}",
        /// Windows of the profiles that are replayed.
        pub(super) windows: usize,
        /// Windows left out to see whether a launch asks for them.
        pub(super) probes: u64,
        /// Probes that a launch asked for.
        pub(super) probes_hit: u64,
        /// Bytes read ahead that launches used, estimated from probes.
        pub(super) used_bytes: Option<u64>,
        /// Bytes read ahead that no program read, estimated from probes.
        pub(super) wasted_bytes: Option<u64> => gauge "profile_wasted_bytes",
        /// Bytes that earlier launches had decoded.
        pub(super) kept_bytes: u64,
        /// Programs that were learned.
        pub(super) programs: Vec<ProgramFigures>,
        /// What went wrong beside it.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(super) error: Option<String>,
    }
}

figures::figures! {
    /// A program that was learned.
    #[derive(Clone, Debug, Serialize)]
    pub(super) struct ProgramFigures {
        /// Its path; empty if that is unknown.
        pub(super) path: String,
        /// Its inode.
        pub(super) nid: u64,
        /// Launches that were learned.
        pub(super) launches: u32,
        /// Windows of its profile.
        pub(super) windows: usize,
        /// Their bytes.
        pub(super) bytes: u64,
        /// Windows of the profile that the last launch asked for; null without a launch.
        pub(super) windows_asked: Option<usize>,
    }
}
