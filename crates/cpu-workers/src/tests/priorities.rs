//! Real-time priority if it is allowed, and an honest report if it is not.

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use super::fake::{FakeCpus, options, start, wait, where_it_runs};
use crate::{Mode, Policy, Priority, WorkerOptions, Workers};

fn high(mode: Mode) -> WorkerOptions {
    WorkerOptions {
        priority: Priority::High,
        ..options(mode)
    }
}

fn policies(workers: &Workers, pinned: bool) -> Vec<Policy> {
    let stats = workers
        .stats()
        .into_iter()
        .filter(|stats| stats.cpu.is_some() == pinned);
    stats.map(|stats| stats.policy.unwrap()).collect()
}

/// Makes all workers real-time, or all of them ordinary.
fn flip(workers: &Workers, priority: Priority) {
    let wanted = priority == Priority::High;
    workers.raise_on(&(0..8).filter(|_| wanted).collect());
}

/// Makes the workers real-time. If the system refuses, prints the reason and returns false.
fn raise(workers: &Workers, priority: Priority) -> bool {
    flip(workers, priority);
    let done = workers.is_real_time() == (priority == Priority::High);
    if !done {
        println!("skipped: SCHED_FIFO is refused here");
    }
    done
}

fn own_policy() -> sys::sched::Policy {
    sys::sched::policy(0).unwrap()
}

/// Runs `f` on a thread that may not raise priorities; the threads that it starts inherit this
/// limit.
fn without_privilege(f: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::SYS_NICE;
            sets.permitted -= CapabilitySet::SYS_NICE;
            set_capabilities(None, sets).unwrap();
            f();
        });
    });
}

/// Two threads change the priority of all workers at the same time, as serving threads do with
/// `hipri=auto`. Afterwards all workers have the same priority, the one that was set last.
#[test]
fn flips_at_the_same_time_leave_all_workers_with_the_same_priority() {
    let workers = Workers::start_on(high(Mode::PerCpu), FakeCpus::new(8, 0..8)).unwrap();
    if !workers.notices().is_empty() {
        println!("skipped: {:?}", workers.notices());
        return;
    }
    for round in 0..300 {
        std::thread::scope(|scope| {
            for priority in [Priority::High, Priority::Normal] {
                let workers = &workers;
                scope.spawn(move || flip(workers, priority));
            }
        });
        let policies = policies(&workers, true);
        let same = policies.iter().all(|policy| *policy == policies[0]);
        assert!(same, "round {round}: {policies:?}");
    }
}

#[test]
fn high_is_fifo_1_and_the_pool_behind_it_nice_minus_20() {
    let workers = Workers::start_on(high(Mode::PerCpu), FakeCpus::new(2, 0..2)).unwrap();
    if let Some(line) = workers
        .notices()
        .iter()
        .find(|line| line.contains("refused"))
    {
        println!("skipped: {line}");
        return;
    }
    assert_eq!(policies(&workers, true), [Policy::Fifo(1); 2]);
    where_it_runs(&workers, None);
    assert_eq!(policies(&workers, false), [Policy::Other { nice: -20 }]);
    let unbound = Workers::start_on(high(Mode::Unbound), FakeCpus::new(2, 0..2)).unwrap();
    assert_eq!(policies(&unbound, false), [Policy::Fifo(1); 2]);
}

#[test]
fn an_unbound_thread_that_a_worker_starts_has_neither_its_cpu_nor_its_priority() {
    for priority in [Priority::Normal, Priority::High] {
        let cpus = FakeCpus::new(2, 0..2);
        let workers = Workers::start_on(options(Mode::PerCpu), cpus.clone()).unwrap();
        if !raise(&workers, priority) {
            return;
        }
        let (sender, receiver) = std::sync::mpsc::channel();
        let inner = std::sync::Arc::downgrade(&workers);
        workers.queue(
            Some(1),
            Box::new(move |_: &_| {
                let job = move |_: &_| sender.send(crate::priority::own_tid()).unwrap();
                let workers = inner.upgrade().expect("held by the test");
                workers.queue(None, Box::new(job));
            }),
        );
        let tid = wait(&receiver);
        let nice = crate::priority::nice_of(crate::priority::own_tid()).unwrap() as i8;
        assert_eq!(policies(&workers, false), [Policy::Other { nice }]);
        assert!(!cpus.pins().contains_key(&tid));
    }
}

#[test]
fn normal_leaves_the_policy_untouched() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(2, 0..2));
    assert!(
        policies(&workers, true)
            .iter()
            .all(|policy| policy.to_string() == "other")
    );
    assert!(workers.notices().is_empty());
}

#[test]
fn a_thread_that_follows_has_what_the_workers_have_until_it_leaves() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let before = own_policy();
            let follows = workers.follow();
            assert_eq!(own_policy(), before, "no thread was raised yet");
            if !raise(&workers, Priority::High) {
                return;
            }
            assert_eq!(own_policy(), sys::sched::Policy::Fifo(1));
            assert_eq!(policies(&workers, true), [Policy::Fifo(1)]);
            raise(&workers, Priority::Normal);
            assert_eq!(own_policy(), before);
            drop(follows);
            raise(&workers, Priority::High);
            assert_eq!(own_policy(), before);
            let follows = workers.follow();
            let at_once = "a new follower is raised immediately";
            assert_eq!(own_policy(), sys::sched::Policy::Fifo(1), "{at_once}");
            drop(follows);
        });
    });
}

#[test]
fn a_thread_whose_work_panicked_is_followed_no_more() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    std::thread::spawn(move || {
        let before = own_policy();
        let work = std::panic::AssertUnwindSafe(|| {
            let _follows = workers.follow();
            panic!("as a test");
        });
        assert!(std::panic::catch_unwind(work).is_err());
        raise(&workers, Priority::High);
        assert_eq!(own_policy(), before);
    })
    .join()
    .unwrap();
}

#[test]
fn a_lowered_follower_gets_what_the_workers_have_by_then() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let follows = workers.follow();
            let ordinary = own_policy();
            crate::lower();
            if !raise(&workers, Priority::High) {
                return;
            }
            assert_eq!(own_policy(), ordinary, "its request takes long");
            crate::raise();
            assert_eq!(own_policy(), sys::sched::Policy::Fifo(1));
            crate::lower();
            raise(&workers, Priority::Normal);
            crate::raise();
            assert_eq!(own_policy(), ordinary);
            drop(follows);
        });
    });
}

#[test]
fn a_refusal_names_the_privilege_and_what_runs_instead() {
    without_privilege(|| {
        let workers = Workers::start_on(high(Mode::PerCpu), FakeCpus::new(2, 0..2)).unwrap();
        if policies(&workers, true)[0] == Policy::Fifo(1) {
            println!("skipped: RLIMIT_RTPRIO allows real-time without CAP_SYS_NICE here");
            return;
        }
        let notices = workers.notices();
        let lines: Vec<_> = notices
            .iter()
            .filter(|line| line.contains("refused"))
            .collect();
        assert_eq!(lines.len(), 1, "one line for all workers: {notices:?}");
        assert!(
            lines[0].contains("CAP_SYS_NICE") || lines[0].contains("cgroup"),
            "{}",
            lines[0]
        );
        assert!(lines[0].contains("running at"), "{}", lines[0]);
    });
}

#[test]
fn the_lowest_nice_value_that_the_limit_allows_is_taken() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let before = getrlimit(Resource::Nice);
    // 20 minus the nice value.
    let limit = Rlimit {
        current: Some(25),
        maximum: before.maximum.map(|most| most.max(25)),
    };
    if let Err(error) = setrlimit(Resource::Nice, limit) {
        println!("skipped: limits may not be set here: {error}");
        return;
    }
    without_privilege(|| {
        let workers = Workers::start_on(high(Mode::PerCpu), FakeCpus::new(1, [0])).unwrap();
        let policy = policies(&workers, true)[0];
        // RLIMIT_RTPRIO may allow more on this machine.
        assert!(
            matches!(policy, Policy::Fifo(_)) || policy.nice() == Some(-5),
            "{policy:?}"
        );
    });
    setrlimit(Resource::Nice, before).unwrap();
}

/// Raises workers as the thread that judges the load of each CPU does.
#[test]
fn each_worker_and_those_that_come_have_the_priority_of_their_cpu() {
    let cpus = FakeCpus::new(3, 0..2);
    let best = WorkerOptions {
        priority: Priority::Best,
        ..options(Mode::PerCpu)
    };
    let workers = Workers::start_on(best, cpus.clone()).unwrap();
    if !workers.is_real_time() {
        return;
    }
    let raised = |cpus: &[usize]| {
        workers.raise_on(&cpus.iter().copied().collect());
        let policies = policies(&workers, true).into_iter();
        let real_time = policies.map(|policy| matches!(policy, Policy::Fifo(_)));
        Vec::from_iter(real_time)
    };
    assert_eq!(raised(&[1]), [false, true]);
    assert_eq!(raised(&[0, 1, 2]), [true, true]);
    assert_eq!(raised(&[2]), [false, false]);
    cpus.set(&workers, 0..3);
    assert_eq!(workers.count(), 3);
    assert_eq!(raised(&[2]), [false, false, true]);
    assert_eq!(raised(&[]), [false; 3]);
}

/// Runs `f` on the worker of CPU 0 and returns its result.
fn on_worker<R: Send + 'static>(workers: &Workers, f: impl FnOnce() -> R + Send + 'static) -> R {
    let (sender, result) = std::sync::mpsc::channel();
    workers.queue(Some(0), Box::new(move |_: &_| sender.send(f()).unwrap()));
    result.recv().unwrap()
}

/// With `hipri=auto`, the priority of all workers may change while one worker is lowered.
#[test]
fn a_lowered_worker_gets_what_all_have_by_then_and_not_before() {
    use sys::sched::Policy::{Fifo, Other};
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    if !raise(&workers, Priority::High) {
        return;
    }
    for (change, raised) in [
        (None, Fifo(1)),
        (Some(Priority::Normal), Other),
        (Some(Priority::High), Fifo(1)),
    ] {
        let all = std::sync::Arc::clone(&workers);
        let seen = on_worker(&workers, move || {
            crate::lower();
            if let Some(priority) = change {
                flip(&all, priority);
            }
            let lowered = own_policy();
            crate::raise();
            (lowered, own_policy())
        });
        assert_eq!(seen, (Other, raised));
    }
}

#[test]
fn a_thread_that_is_no_worker_gets_its_own_priority_back() {
    std::thread::spawn(|| {
        use sys::sched::Policy::{Fifo, Other};
        crate::lower();
        crate::raise();
        assert_eq!(own_policy(), Other);
        if let Err(error) = sys::sched::set_policy(0, Fifo(1)) {
            println!("skipped: {error}");
            return;
        }
        crate::lower();
        assert_eq!(own_policy(), Other);
        crate::raise();
        assert_eq!(own_policy(), Fifo(1));
    })
    .join()
    .unwrap();
}
