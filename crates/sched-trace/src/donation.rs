//! Proxy execution: a thread that is blocked on a mutex stays on the run queue, and the mutex's
//! owner runs in its turn.
//!
//! `sched_switch` shows the blocked thread as sleeping and the owner with its own priority, so no
//! event says in whose turn a thread runs. Later events reveal this. The owner is the thread that
//! wakes the blocked one. The kernel moves a blocked thread to the owner's CPU without an event:
//! the blocked thread's wake-up then names that CPU, and `sched_migrate_task` reports the thread's
//! return.

use crate::interrupts::Interrupts;
use crate::{Kind, SchedulerSettings, TaskState, Trace, Wake};
use std::collections::HashMap;

/// Whether the kernel of this trace lets blocked threads lend their turns.
fn donates(trace: &Trace) -> bool {
    SchedulerSettings::of_version(&trace.kernel_version).proxy_execution == Some(true)
}

/// Where a thread is.
#[derive(Clone, Copy)]
struct Place {
    /// The CPU on which the thread last ran, or to whose run queue it has been moved since.
    cpu: u32,
    blocked: bool,
    /// The owner's CPU, if the wake-up of the blocked thread names it.
    lent_to: Option<u32>,
}

/// Removes the migrations by which blocked threads return from the owners' CPUs, and makes the
/// wake-ups of these threads name the CPUs where they blocked, since they never ran elsewhere.
pub(crate) fn remove_returns(trace: &mut Trace) {
    if !donates(trace) {
        return;
    }
    let mut places: HashMap<i32, Place> = HashMap::new();
    trace.events.retain_mut(|event| {
        match &mut event.kind {
            Kind::Switch {
                prev,
                prev_state,
                next,
            } => {
                for (pid, blocked) in [(prev.pid, !prev_state.is_runnable()), (next.pid, false)] {
                    let place = Place {
                        cpu: event.cpu,
                        blocked,
                        lent_to: None,
                    };
                    places.insert(pid, place);
                }
            }
            Kind::Wake {
                wake: Wake::Begins,
                task,
                target_cpu,
            } => {
                let place = places.get_mut(&task.pid);
                if let Some(place) = place.filter(|it| it.blocked && it.cpu != *target_cpu) {
                    place.lent_to = Some(*target_cpu);
                    *target_cpu = place.cpu;
                }
            }
            Kind::Migrate {
                task,
                from_cpu,
                to_cpu,
            } => {
                if let Some(place) = places.get_mut(&task.pid) {
                    let returns = place.lent_to.take() == Some(*from_cpu);
                    let home = place.cpu;
                    place.cpu = *to_cpu;
                    if returns && *to_cpu == home {
                        return false;
                    }
                    if returns {
                        *from_cpu = home;
                    }
                }
            }
            _ => {}
        }
        true
    });
}

/// An uninterruptible sleep that another thread ended. If the sleeper was blocked on a mutex, that
/// other thread owned the mutex, and also ran in the sleeper's turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Donation {
    pub(crate) start_ns: u64,
    pub(crate) end_ns: u64,
    /// Priority of the sleeper.
    pub(crate) prio: i32,
}

/// The donations to each owner, ordered by their end. Wake-ups by interrupts do not count, since an
/// interrupt owns no mutex.
pub(crate) fn donations(trace: &Trace) -> HashMap<i32, Vec<Donation>> {
    let mut found: HashMap<i32, Vec<Donation>> = HashMap::new();
    if !donates(trace) {
        return found;
    }
    let interrupts = Interrupts::of(trace);
    let mut blocked: HashMap<i32, (u64, i32)> = HashMap::new();
    for event in &trace.events {
        match event.kind {
            Kind::Switch {
                prev, prev_state, ..
            } if prev_state == TaskState::UNINTERRUPTIBLE => {
                blocked.insert(prev.pid, (event.time_ns, prev.prio));
            }
            Kind::Wake {
                wake: Wake::Begins,
                task,
                ..
            } => {
                let Some((start_ns, prio)) = blocked.remove(&task.pid) else {
                    continue;
                };
                let end_ns = event.time_ns;
                let mut within = interrupts.on(event.cpu, end_ns, end_ns + 1);
                if event.pid > 0 && within.next().is_none() {
                    found.entry(event.pid).or_default().push(Donation {
                        start_ns,
                        end_ns,
                        prio,
                    });
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::{Why, blame};
    use crate::latency::analyse;
    use crate::script::{rename, trace};
    use crate::timeline::Timeline;

    /// Thread 4, which is real-time, blocks on CPU 1 and is moved to CPU 0, where thread 1 owns the
    /// mutex. Thread 5, which is real-time too, waits behind thread 1; then thread 4 returns.
    const LENT: &str = "0 0 0 R 1; 5 1 0 R 4; 10 1 4 D 0; 20 0 0 waking 5; 4000 0 1 waking 4 0;
        4001 0 1 migrate 4 0 1; 4002 1 0 R 4; 4010 0 1 R+ 5; 5000 0 5 S 1; 6000 0 1 S 0";

    fn of_kernel(text: &str, version: &str) -> Trace {
        let mut trace = trace(text);
        rename(&mut trace, 4, "t4", 89);
        rename(&mut trace, 5, "t5", 94);
        trace.kernel_version = version.into();
        remove_returns(&mut trace);
        trace
    }

    fn moves(trace: &Trace) -> usize {
        let is_move = |kind: &Kind| matches!(kind, Kind::Migrate { .. });
        let kinds = trace.events.iter().map(|event| &event.kind);
        kinds.filter(|kind| is_move(kind)).count()
    }

    #[test]
    fn a_blocked_thread_that_returns_from_the_owners_cpu_was_not_moved() {
        let why = |version: &str, pid: i32| {
            let trace = of_kernel(LENT, version);
            let waits = analyse(&trace).waits;
            let waits = waits.iter().filter(|wait| wait.pid == pid);
            (
                moves(&trace),
                blame(&Timeline::new(&trace), waits).why[0].why,
            )
        };
        let on = "#1 SMP; proxy-execution on";
        assert_eq!(why(on, 4), (0, Why::AllBusy));
        assert_eq!(why("#1 SMP", 4), (1, Why::Moved));
        assert_eq!(why(on, 5).1, Why::Donated);
        assert_eq!(why("#1 SMP", 5).1, Why::NotPreempted);
    }

    #[test]
    fn one_that_is_woken_on_a_third_cpu_was_moved_from_its_own() {
        let text = "0 2 0 R 2; 5 1 0 R 4; 10 1 4 D 0; 40 0 1 waking 4 0; 41 0 1 migrate 4 0 2;
            50 2 2 S 4; 60 2 4 S 0";
        let trace = of_kernel(text, "#1 SMP; proxy-execution on");
        let moved = trace.events.iter().find_map(|event| match event.kind {
            Kind::Migrate {
                from_cpu, to_cpu, ..
            } => Some((from_cpu, to_cpu)),
            _ => None,
        });
        assert_eq!(moved, Some((1, 2)));
        assert_eq!(analyse(&trace).waits[0].queued_cpu, 1);
    }

    #[test]
    fn what_an_interrupt_wakes_or_a_less_urgent_thread_waits_for_is_no_donation() {
        let on = "#1 SMP; proxy-execution on";
        let donors = |text: &str| {
            donations(&of_kernel(text, on))
                .into_values()
                .flatten()
                .count()
        };
        assert_eq!(donors("5 1 0 R 4; 10 1 4 D 0; 20 0 1 waking 4"), 1);
        let interrupt = "5 1 0 R 4; 10 1 4 D 0; 20 0 1 irq 7; 21 0 1 waking 4; 22 0 1 irqend 7";
        assert_eq!(donors(interrupt), 0);
        assert_eq!(donors("5 1 0 R 4; 10 1 4 S 0; 20 0 1 waking 4"), 0);
        let nice = LENT.replace("4 D", "3 D").replace("waking 4", "waking 3");
        let trace = of_kernel(&nice, on);
        let waits = analyse(&trace).waits;
        let waits = waits.iter().filter(|wait| wait.pid == 5);
        let why = blame(&Timeline::new(&trace), waits).why;
        assert_eq!(why[0].why, Why::NotPreempted);
    }
}
