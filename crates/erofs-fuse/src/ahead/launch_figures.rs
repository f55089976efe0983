//! The counters about launches, as reported by the companion.

use serde::{Deserialize, Serialize};

figures::figures! {
    /// Launches that were learned, and data read ahead of them.
    #[derive(Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub(crate) struct LaunchFigures {
        /// Directories that were listed ahead.
        listed_directories: u64,
        /// Bytes read ahead according to launch profiles.
        prefetched_bytes: u64 => counter "profile_prefetched_bytes_total",
        /// Bytes that a reader requested before they were read ahead.
        late_bytes: u64,
        /// Windows that could not be read ahead.
        refused_windows: u64,
        /// State of the launch profile: learning, replaying or replayed.
        pub(crate) state: String => gauge "profile_info{state}",
        /// Number of windows in the replayed profiles.
        windows: usize,
        /// Windows left out to see whether a launch requests them.
        probes: u64,
        /// Probes that a launch requested.
        probes_hit: u64,
        /// Bytes read ahead that launches used, estimated from probes.
        used_bytes: Option<u64>,
        /// Bytes read ahead that no program read, estimated from probes.
        wasted_bytes: Option<u64> => gauge "profile_wasted_bytes",
        /// Bytes that earlier launches had decoded and this mount used.
        pub(crate) kept_bytes: u64,
        /// Programs that were learned.
        programs: Vec<ProgramFigures>,
        /// A problem that does not stop learning and replaying.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) error: Option<String>,
    }
}

figures::figures! {
    /// A program that was learned.
    #[derive(Clone, Debug, Default, Serialize, Deserialize)]
    #[serde(default)]
    pub(crate) struct ProgramFigures {
        /// Its path; empty if unknown.
        path: String,
        /// Always null: profiles name programs by their paths.
        nid: Option<u64>,
        /// Where its profile came from: here, beside (the image), registry or image.
        origin: String,
        /// Launches that were learned.
        launches: u32,
        /// Number of windows in its profile.
        windows: usize,
        /// Bytes in these windows.
        bytes: u64,
        /// Windows of the profile that the last launch requested; null without a launch.
        windows_asked: Option<usize>,
    }
}
