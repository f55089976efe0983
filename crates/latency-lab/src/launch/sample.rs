//! The sample of one launch.

use sched_trace::latency::{Wait, WaitKind};
use serde::{Deserialize, Deserializer, Serialize};

use super::elsewhere::Loss;
use super::picture::{Blocked, Picture};
use super::program::QueueWaits;
use crate::engine::Fetched;

/// One launch, in microseconds and counts. If `switches_missing` is set, all times except the
/// launch time are unknown: NaN, which is null in JSON.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Time from starting the program to the end of its last process.
    pub launch_us: f64,
    /// Total scheduling latency of the threads that decompressed: `wakeup_us` + `preempted_us`.
    #[serde(deserialize_with = "or_unknown")]
    pub sched_latency_us: f64,
    /// The part of the scheduling latency after wake-ups.
    #[serde(default = "unknown", deserialize_with = "or_unknown")]
    pub wakeup_us: f64,
    /// The part of the scheduling latency after preemptions.
    #[serde(default = "unknown", deserialize_with = "or_unknown")]
    pub preempted_us: f64,
    /// Time from queueing work items to their start; it includes waits of their workers, so it is
    /// never added to the scheduling latency. None for FUSE mounts: their requests queue in the
    /// kernel, which does not trace when a daemon takes one.
    pub queue_us: Option<f64>,
    /// Waits of a daemon's threads that delayed only the daemon's own read-ahead, not the program.
    /// They are not part of the scheduling latency. If the kernel does not trace requests to FUSE
    /// mounts, only the companion's own waits are known; none without a companion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ahead_us: Option<f64>,
    /// Time that the program's first thread slept: from blocking (in a page fault, a read or
    /// another wait) to running again, whichever threads served it.
    #[serde(deserialize_with = "or_unknown")]
    pub program_blocked_us: f64,
    /// Time that the program's first thread was runnable but did not run.
    #[serde(deserialize_with = "or_unknown")]
    pub program_preempted_us: f64,
    /// CPU time of the program's threads, including that of interrupts while they ran.
    #[serde(default = "unknown", deserialize_with = "or_unknown")]
    pub cpu_us: f64,
    /// The time that interrupts and softirqs took within `cpu_us`.
    #[serde(default = "unknown", deserialize_with = "or_unknown")]
    pub interrupted_us: f64,
    /// Interrupts and softirqs by source, longest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<Loss>,
    /// How long the quota of the lab's cgroup or of an ancestor throttled threads during the
    /// launch, summed over all CPUs. None without a quota.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub throttled_us: Option<f64>,
    /// Uninterruptible sleeps of the program's threads by kernel function, longest first, if the
    /// kernel traces them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub slept_in: Vec<Loss>,
    /// Total time that the program's threads spent in uninterruptible sleep.
    #[serde(default = "unknown", deserialize_with = "or_unknown")]
    pub uninterruptible_us: f64,
    /// How often a thread of the program was preempted while still runnable; none if the times are
    /// unknown.
    pub preemptions: Option<u64>,
    /// How often a thread of the program was moved to another CPU.
    pub migrations: Option<u64>,
    /// Work items that the kernel's workers executed for the program.
    pub by_workqueue: Vec<QueueWaits>,
    /// CPU time of the load within the launch, summed over all CPUs.
    #[serde(deserialize_with = "or_unknown")]
    pub load_us: f64,
    /// Idle time of all CPUs within the launch.
    #[serde(deserialize_with = "or_unknown")]
    pub idle_us: f64,
    /// How often threads that decompressed were woken.
    pub wakeups: u64,
    /// Number of threads that decompressed and waited at least once.
    pub threads: u64,
    /// Number of waits that had not ended when the recording ended: they lasted longer than
    /// counted.
    pub unfinished: u64,
    /// The waits of which the scheduling latency consists, added up for each thread.
    pub by_thread: Vec<ThreadWaits>,
    /// The threads behind which these waits were spent, longest first.
    pub behind: Vec<Blocked>,
    /// Launch time by the lab's own clock, including the lab's own wait for a CPU.
    pub seen_us: f64,
    /// Time from the start of mounting until programs can use the mount.
    pub mount_us: f64,
    /// What was fetched until the end of the launch, if the image is at a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched: Option<Fetched>,
    /// The launch's timeline; kept only for the launch with the median scheduling latency and the
    /// worst one.
    #[serde(rename = "timeline", skip_serializing_if = "Picture::is_empty")]
    pub picture: Picture,
    /// The file with the launch's trace in Perfetto's format; only for the same two launches, and
    /// only if traces are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
    /// Number of work items that decompressed; only for engines in the kernel.
    pub works: u64,
    /// Number of work items for other mounts of EROFS, which no figure includes.
    pub other_works: u64,
    /// CPU time of unrelated programs, and of the kernel's work for other mounts of EROFS.
    pub foreign_us: f64,
    /// The number of the round in which the launch was measured.
    pub iteration: usize,
    /// Set if the kernel omitted so many switches that only the launch time is known. No other
    /// figure includes this launch then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub switches_missing: Option<String>,
    /// What spoilt the launch, if anything did. A run that contains a spoilt launch is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spoilt: Option<String>,
}

/// Reads a figure that may be null, which means that it is unknown.
fn or_unknown<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

/// The value of a figure that is missing from a file.
fn unknown() -> f64 {
    f64::NAN
}

impl Sample {
    /// Whether more than the launch time is known.
    pub fn knows_scheduling(&self) -> bool {
        let figures = [self.sched_latency_us, self.program_off_cpu_us()];
        self.switches_missing.is_none() && !figures.iter().any(|it| it.is_nan())
    }

    /// The sample reduced to the launch time, with the reason why the scheduling is unknown.
    pub(super) fn without_scheduling(self, reason: String) -> Sample {
        let unknown = f64::NAN;
        Sample {
            launch_us: self.launch_us,
            seen_us: self.seen_us,
            mount_us: self.mount_us,
            fetched: self.fetched,
            sched_latency_us: unknown,
            wakeup_us: unknown,
            preempted_us: unknown,
            program_blocked_us: unknown,
            program_preempted_us: unknown,
            cpu_us: unknown,
            interrupted_us: unknown,
            uninterruptible_us: unknown,
            load_us: unknown,
            idle_us: unknown,
            foreign_us: self.foreign_us,
            switches_missing: Some(reason),
            ..Sample::default()
        }
    }

    /// Preemptions of the program's threads; NaN if unknown.
    pub fn preemptions(&self) -> f64 {
        self.preemptions.map_or(f64::NAN, |count| count as f64)
    }

    /// Migrations of the program's threads; NaN if unknown.
    pub fn migrations(&self) -> f64 {
        self.migrations.map_or(f64::NAN, |count| count as f64)
    }

    /// The queue delay; NaN if the engine has none.
    pub fn queue_us(&self) -> f64 {
        self.queue_us.unwrap_or(f64::NAN)
    }

    /// How long a quota throttled threads; NaN without a quota.
    pub(super) fn throttled_us(&self) -> f64 {
        self.throttled_us.unwrap_or(f64::NAN)
    }

    /// Waits for read-ahead; NaN if unknown.
    pub(super) fn ahead_us(&self) -> f64 {
        self.ahead_us.unwrap_or(f64::NAN)
    }

    /// Time from the start of mounting to the end of the first launch.
    pub fn ready_us(&self) -> f64 {
        self.mount_us + self.launch_us
    }

    /// MiB of the image that were fetched; NaN without a URL.
    pub(super) fn fetched_mib(&self) -> f64 {
        self.fetched.map_or(f64::NAN, |fetched| {
            fetched.bytes as f64 / f64::from(1 << 20)
        })
    }

    /// Requests for the image; NaN without a URL.
    pub(super) fn round_trips(&self) -> f64 {
        self.fetched
            .map_or(f64::NAN, |fetched| fetched.round_trips as f64)
    }

    /// Time that the program's first thread was off the CPU, blocked or preempted: the whole path.
    pub fn program_off_cpu_us(&self) -> f64 {
        self.program_blocked_us + self.program_preempted_us
    }
}

/// The waits of one thread within one launch.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadWaits {
    /// Name of the thread.
    pub comm: String,
    /// Priority as the kernel traces it: 120 is nice 0, 100 is nice -20, below 100 is real-time.
    pub priority: i32,
    /// How often the thread was woken.
    pub wakeups: u64,
    /// Sum of the thread's waits, after wake-ups and after preemptions.
    pub total_us: f64,
    /// The longest wait.
    pub longest_us: f64,
}

impl ThreadWaits {
    pub(super) fn add(&mut self, wait: &Wait) {
        self.comm = wait.comm.to_string();
        self.priority = wait.prio;
        self.wakeups += u64::from(wait.kind == WaitKind::Wakeup);
        self.total_us += wait.length_ns() as f64 / 1000.0;
        self.longest_us = self.longest_us.max(wait.length_ns() as f64 / 1000.0);
    }
}
