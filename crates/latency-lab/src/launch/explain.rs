//! Explains the figures, and makes the notices of a run.

use super::measures::Experiment;
use super::report::{EngineReport, LaunchReport};
use crate::engine::Engine;
use crate::figure::amount;

/// The meaning of "cold" in this experiment.
pub(super) fn cold(experiment: Experiment) -> &'static str {
    match experiment {
        Experiment::Launch => {
            "a fresh mount for each launch: new inodes, no dentries, no decompressed page; the \
             image itself stays warm in the page cache, so no launch waits for the disk"
        }
        Experiment::Run => {
            "a new process for each launch, after --prepare; nothing else is reset, so caches are \
             as the previous launch left them"
        }
    }
}

/// The legend, which is printed below the table.
pub const EXPLANATION: &str = "\
scheduling latency  how long the threads that decompressed for one launch were runnable but not
                    running, added up over the launch. In the kernel: kworkers while they run
                    z_erofs_decompressqueue_work for this mount; an engine that decompresses in the
                    program's own thread has none. For a FUSE mount: all threads of its daemon,
                    unless they read ahead for the daemon itself.
  wake-up           the part from being woken to running
  preempted         the part from being preempted to running again
reads ahead         waits of erofast's companion, which reads ahead, and of the daemon's threads
                    that serve it, unless the program waited for them: one of its requests was
                    pending at that thread, or the thread woke it. Included in no other figure.
                    Before Linux 6.10, only the waits of the companion's own threads; the others
                    are in the scheduling latency.
whole path          how long the program's first thread was off the CPU, whatever served it: blocked
                    (from a page fault, a read or a wait of its own to running again) and preempted.
                    Defined alike for every engine.
queue               delay from queueing a work item to its start. It contains waits of the \
worker, so
                    it is never added to the scheduling latency. n/a for FUSE mounts: their requests
                    queue in the kernel; the whole path has that time.
n/a                 unknown, because the kernel did not record all switches in more than a quarter
                    of the launches, or because this engine has no such figure; 0 means that nothing
                    waited
interrupts          the part of the CPU time that interrupts and softirqs took (timer and
                    inter-processor interrupts of x86 are not traced)
quota               how long the CPU quota of the lab's cgroup, or of one above it, throttled \
threads, on
                    all CPUs together; the waits of these threads include that time
launch time         from starting the program to the end of its last process
load, idle          CPU time of the load, and idle time, during that engine's launches, as shares of
                    the time of all CPUs
shift               from the first engine to this one within the rounds of the run \
(Hodges-Lehmann); in
                    parentheses if nothing is claimed. A difference is claimed if its interval
                    excludes zero, at 1 in 100 for all comparisons of this report; \"no difference\"
                    if the interval, averages and 90th percentiles are within 10 %; otherwise it is
                    inconclusive.
cold                a fresh mount each time, nothing decompressed; the image is in the page cache
";

/// The legend for commands.
pub(super) const OF_COMMANDS: &str = "\
time                from starting the command to the end of its last process
CPU time            of all its threads, including interrupts
interrupts          the part of the CPU time that interrupts and softirqs took (timer and
                    inter-processor interrupts of x86 are not traced)
quota               how long the CPU quota of the lab's cgroup, or of one above it, throttled \
threads, on
                    all CPUs together; the waits of these threads include that time
waits for a CPU     how long its threads were runnable but not running, added up over all of them
  wake-up           the part from being woken to running
  preempted         the part from being preempted to running again
blocked             how long its first thread slept: in a page fault, a read or a wait of its own
queue delay         from queueing a work item to its start, added up over the items that its threads
                    had the kernel's workers execute
preemptions         how often one of its threads was preempted
migrations          how often one of them was moved to the run queue of another CPU
n/a                 unknown, because the kernel did not record all switches in more than a quarter
                    of the launches
load, idle          CPU time of the load, and idle time, during that command's launches, as shares
                    of the time of all CPUs
shift               from the first command to this one within the rounds of the run \
(Hodges-Lehmann); in
                    parentheses if nothing is claimed. A difference is claimed if its interval
                    excludes zero, at 1 in 100 for all comparisons of this report; \"no difference\"
                    if the interval, averages and 90th percentiles are within 10 %; otherwise it is
                    inconclusive.
";

/// If a hypervisor took more than this fraction of the CPU time, figures of different runs are hard
/// to compare.
const STOLEN: f64 = 0.05;

pub(super) fn notices(report: &LaunchReport) -> Vec<String> {
    let (environment, load) = (&report.environment, report.load_seen.as_ref());
    let mut notices = Vec::new();
    let engines = report.engines.iter();
    let asleep = engines.filter(|it| it.command.is_empty() && it.wakeups() == Some(0.0));
    notices.extend(asleep.map(|engine| {
        let is_kernel = engine.engine.parse().is_ok_and(|it: Engine| it.is_kernel());
        format!(
            "{}: none of its threads was woken for a launch: {}",
            engine.label(),
            match is_kernel {
                true =>
                    "it decompressed in the thread of the program, whose waits are part of the \
                     launch time",
                // Every request to a FUSE mount wakes a thread of its daemon.
                false => "the program read nothing from the mount",
            }
        )
    }));
    notices.extend(report.engines.iter().filter_map(others));
    if let Some(throttled) = environment.cgroup_throttled_us.filter(|us| *us > 0) {
        notices.push(format!(
            "the CPU quota of the lab's cgroup throttled threads for {} of the run, on all CPUs \
             together: the figures include such waits",
            amount(throttled as f64, "us")
        ));
    }
    if let Some(load) = load.filter(|load| load.stolen_cpu_share > STOLEN) {
        notices.push(format!(
            "a hypervisor took {:.0} % of the CPU time",
            load.stolen_cpu_share * 100.0
        ));
    }
    if load.is_some_and(|load| load.jobs > 0) && environment.sched_autogroup_enabled == Some(1) {
        notices.push(
            "sched_autogroup_enabled is 1: each fio job is a scheduling group of its own; the lab, \
             its daemons and the launched program share one; kernel threads are in none"
                .into(),
        );
    }
    notices
}

/// A notice that the kernel also decompressed for other mounts.
fn others(engine: &EngineReport) -> Option<String> {
    let items: u64 = engine.samples.iter().map(|sample| sample.other_works).sum();
    (items > 0).then(|| {
        format!(
            "{}: other EROFS mounts were read: their {items} decompression work items are left out",
            engine.label()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::LoadReport;

    #[test]
    fn an_engine_that_was_not_woken_is_explained_by_what_it_is() {
        let sample = crate::launch::Sample::default();
        let engine = |name: &str| EngineReport {
            engine: name.into(),
            samples: vec![sample.clone()],
            ..EngineReport::default()
        };
        let lines = notices(&LaunchReport {
            engines: ["kernel", "erofast:percpu", "erofsfuse"].map(engine).into(),
            ..LaunchReport::default()
        });
        assert!(
            lines[0].contains("it decompressed in the thread of the program"),
            "{lines:?}"
        );
        for line in &lines[1..] {
            assert!(
                line.ends_with("the program read nothing from the mount"),
                "{line}"
            );
        }
    }

    #[test]
    fn the_quota_that_stopped_threads_is_named() {
        let mut report = LaunchReport::default();
        report.environment.cgroup_throttled_us = Some(1_500_000);
        let lines = notices(&report);
        assert!(
            lines[0].contains("throttled threads for 1.50 s of the run"),
            "{lines:?}"
        );
    }

    #[test]
    fn autogroups_of_fio_are_a_matter_of_runs_with_fio() {
        let mut report = LaunchReport::default();
        report.environment.sched_autogroup_enabled = Some(1);
        assert!(notices(&report).is_empty());
        report.load_seen = Some(LoadReport {
            jobs: 8,
            ..LoadReport::default()
        });
        assert!(notices(&report)[0].contains("each fio job"));
    }
}
