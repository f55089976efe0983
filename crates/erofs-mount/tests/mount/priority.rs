//! The priority of the workers of a daemon, with its default `hipri=auto`.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erofs_mount::{stat, umount};
use sys::sched::Policy;

use crate::place::Place;
use crate::{Test, happens, mounted};

pub const TESTS: &[Test] = tests![
    clients_that_sleep_do_not_hide_a_load,
    a_user_without_rights_is_served_within_a_short_slice,
];

/// Minimum pause between two lookups of a client.
const PAUSE: Duration = Duration::from_millis(20);

/// A client sleeps for this many times as long as its lookup took, so that clients cause no load
/// even on a slow machine.
const SLEEPS: u32 = 100;

/// Number of consecutive samples that must find all workers real-time. If, half of the time, the
/// requests of the clients kept the server from seeing the load, there would be no such sequence.
const SAMPLES: usize = 50;

/// The threads of the workers that are pinned to CPUs.
fn workers(place: &Place) -> Vec<i32> {
    let stat = stat(&place.path).unwrap();
    let workers = stat["workers"].as_array().unwrap().iter();
    let pinned = workers.filter(|worker| worker["cpu"].is_u64());
    pinned
        .map(|worker| worker["tid"].as_i64().unwrap() as i32)
        .collect()
}

fn are_real_time(workers: &[i32]) -> bool {
    let policies = workers.iter().map(|tid| sys::sched::policy(*tid).unwrap());
    policies
        .into_iter()
        .all(|policy| matches!(policy, Policy::Fifo(_)))
}

fn clients_that_sleep_do_not_hide_a_load() {
    let may = || sys::sched::set_policy(0, Policy::Fifo(1));
    if thread::spawn(may).join().unwrap().is_err() {
        println!("skipped: SCHED_FIFO is refused here");
        return;
    }
    let place = mounted("lz4-4k", "");
    let workers = workers(&place);
    let stop = &AtomicBool::new(false);
    let spin = || {
        while !stop.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    let ask = |client: usize| {
        for number in 0.. {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let (name, begin) = (format!("client-{client}-{number}"), Instant::now());
            assert!(fs::metadata(place.path.join(name)).is_err());
            thread::sleep(PAUSE.max(begin.elapsed() * SLEEPS));
        }
    };
    thread::scope(|scope| {
        (0..7 * workers.len()).for_each(|_| drop(scope.spawn(spin)));
        (0..64).for_each(|client| drop(scope.spawn(move || ask(client))));
        let mut row = 0;
        // Count samples instead of time, so that this holds on any slow machine.
        let lasted = happens(|| {
            row = if are_real_time(&workers) { row + 1 } else { 0 };
            row >= SAMPLES
        });
        stop.store(true, Ordering::Relaxed);
        assert!(lasted, "the workers did not stay real-time");
    });
    umount(&place.path, false).unwrap();
}

/// The daemon has no right to be real-time, because root starts it without that capability.
fn a_user_without_rights_is_served_within_a_short_slice() {
    let supported = || sys::sched::set_short_slice(0, 0).is_ok();
    if !thread::spawn(supported).join().unwrap() {
        println!("skipped: this kernel has no slices");
        return;
    }
    let nice = rustix::thread::CapabilitySet::SYS_NICE;
    let mount = move || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective -= nice;
        sets.permitted -= nice;
        sets.inheritable -= nice;
        rustix::thread::set_capabilities(None, sets).unwrap();
        let _ = rustix::thread::remove_capability_from_bounding_set(nice);
        ["hipri=auto", "hipri", "nohipri"].map(|options| mounted("lz4-4k", options))
    };
    let [auto, high, none] = thread::spawn(mount).join().unwrap();
    let policy = |place: &Place| {
        let worker = stat(&place.path).unwrap()["workers"][0].clone();
        worker["policy"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        [&auto, &high, &none].map(policy),
        ["slice", "slice", "other"]
    );
    let notices_of = |place: &Place| stat(&place.path).unwrap()["notices"].to_string();
    assert!(
        notices_of(&high).contains("slice of 100 us"),
        "{}",
        notices_of(&high)
    );
    assert!(
        !notices_of(&auto).contains("refused"),
        "{}",
        notices_of(&auto)
    );
    for place in [auto, high, none] {
        umount(&place.path, false).unwrap();
    }
}
