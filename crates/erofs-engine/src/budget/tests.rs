use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::*;
use crate::control::{Control, LongRequests, for_thread};

const NID: Nid = 7;

fn control() -> ThreadControl {
    for_thread(&Arc::new(Control::new()))
}

#[test]
fn without_a_request_nothing_is_charged() {
    assert_eq!(charge(u64::MAX), Ok(()));
    assert_eq!(charge(u64::MAX), Ok(()));
}

#[test]
fn steps_and_bytes_of_nested_requests_add_up() {
    let control = control();
    let _outer = Scope::begin(&control, NID);
    for _ in 0..MAX_STEPS {
        let _inner = Scope::begin(&control, NID + 1);
        assert_eq!(step(), Ok(()));
    }
    assert_eq!(step(), Err(Exceeded::Steps));
    // Nothing goes on after that.
    assert_eq!(charge(1), Err(Exceeded::Steps));
}

#[test]
fn the_next_request_begins_anew() {
    let control = control();
    for _ in 0..2 {
        let scope = Scope::begin(&control, NID);
        assert_eq!(charge(MAX_BYTES), Ok(()));
        scope.renew();
        assert_eq!(charge(MAX_BYTES), Ok(()));
    }
}

/// A machine that was paused, or a hypervisor that ran others instead, makes any request slow.
#[test]
fn only_what_the_image_causes_is_remembered() {
    assert!(Exceeded::Steps.lasts() && Exceeded::Bytes.lasts());
    assert!(!Exceeded::Time.lasts());
}

#[test]
fn closing_ends_a_request_and_all_later_ones() {
    let control = control();
    let scope = Scope::begin(&control, NID);
    assert_eq!(charge(1), Ok(()));
    control.close();
    assert_eq!(charge(1), Err(Exceeded::Closed));
    drop(scope);
    let _later = Scope::begin(&control, NID);
    assert_eq!(step(), Err(Exceeded::Closed));
}

/// A listing that is found one entry after the other can be ended too.
#[test]
fn closing_ends_a_request_that_begins_again_and_again() {
    let control = control();
    let scope = Scope::begin(&control, NID);
    control.close();
    let ended = (0..CLOCK_STEPS).any(|_| {
        scope.renew();
        step() == Err(Exceeded::Closed)
    });
    assert!(ended);
}

/// Counts its calls.
#[derive(Default)]
struct Server {
    interrupted: AtomicBool,
    long: AtomicUsize,
    ended: AtomicUsize,
}

struct Counting(Arc<Server>);

impl LongRequests for Counting {
    fn is_interrupted(&self) -> bool {
        self.0.interrupted.load(Ordering::Relaxed)
    }

    fn begin(&self) {
        self.0.long.fetch_add(1, Ordering::Relaxed);
    }

    fn end(&self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

fn served() -> (ThreadControl, Arc<Server>) {
    let (control, server) = (control(), Arc::new(Server::default()));
    control.set_server(Box::new(Counting(Arc::clone(&server))));
    (control, server)
}

#[test]
fn a_server_learns_once_that_a_request_is_long_and_once_that_it_ended() {
    let (control, server) = served();
    let counts = || {
        let load = |count: &AtomicUsize| count.load(Ordering::Relaxed);
        (load(&server.long), load(&server.ended))
    };
    let scope = Scope::for_content(&control, NID, 4096);
    charge(LONG_BYTES).unwrap();
    assert_eq!(counts(), (0, 0));
    for _ in 0..3 {
        charge(1 << 20).unwrap();
        assert_eq!(counts(), (1, 0));
    }
    drop(scope);
    assert_eq!(counts(), (1, 1));
}

/// 1 MiB of MicroLZMA takes 14 ms, of LZ4 none to speak of.
#[test]
fn decoding_that_will_take_long_makes_a_request_long_before_it_begins() {
    for (cost, long) in [(1 << 20, 0), (50 << 20, 1)] {
        let (control, server) = served();
        let _scope = Scope::for_content(&control, NID, 1 << 20);
        charge_decoding(1 << 20, cost).unwrap();
        assert_eq!(server.long.load(Ordering::Relaxed), long, "{cost}");
    }
}

fn work(time: Duration) {
    let begun = cpu_time();
    while cpu_time() - begun < time {
        std::hint::black_box(());
    }
}

#[test]
fn an_interrupt_ends_a_request_that_took_its_time_and_no_other() {
    let (control, server) = served();
    server.interrupted.store(true, Ordering::Relaxed);
    let _scope = Scope::begin(&control, NID);
    assert_eq!(charge(CLOCK_BYTES), Ok(()));
    work(INTERRUPTIBLE_CPU);
    assert_eq!(charge(1), Ok(()), "the clock is read later");
    assert_eq!(charge(CLOCK_BYTES), Err(Exceeded::Interrupted));
}

/// Beyond half of the budget, which no sound image comes to.
#[test]
fn of_one_inode_one_heavy_request_is_served_at_a_time() {
    let control = control();
    let heavy = MAX_BYTES / 2 + 1;
    let _first = Scope::begin(&control, NID);
    charge(heavy).unwrap();
    let elsewhere = |nid: Nid, bytes: u64| {
        let control = &control;
        let served = move || {
            let _scope = Scope::begin(control, nid);
            charge(bytes)
        };
        std::thread::scope(|scope| scope.spawn(served).join().unwrap())
    };
    assert_eq!(elsewhere(NID, 1), Err(Exceeded::Busy));
    assert_eq!(elsewhere(NID + 1, heavy), Ok(()));
    drop(_first);
    assert_eq!(elsewhere(NID, heavy), Ok(()));
}

#[test]
fn two_requests_that_become_heavy_side_by_side_do_not_both_go_on() {
    let control = control();
    let outcomes = Mutex::new(Vec::new());
    let both = std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let _scope = Scope::begin(&control, NID);
                both.wait();
                let outcome = charge(MAX_BYTES / 2 + 1);
                both.wait();
                outcomes.lock().unwrap().push(outcome);
            });
        }
    });
    let outcomes = outcomes.into_inner().unwrap();
    let going_on = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
    assert_eq!(going_on, 1, "{outcomes:?}");
    assert!(outcomes.contains(&Err(Exceeded::Busy)));
}

#[test]
fn a_thread_that_helps_has_a_budget_of_its_own_and_needs_no_turn() {
    let control = control();
    let _scope = Scope::begin(&control, NID);
    charge(MAX_BYTES / 2 + 1).unwrap();
    let share = share().expect("a request");
    let helped = || {
        let _scope = share.enter();
        (charge(MAX_BYTES), charge(1))
    };
    let (within, beyond) = std::thread::scope(|scope| scope.spawn(helped).join().unwrap());
    assert_eq!((within, beyond), (Ok(()), Err(Exceeded::Bytes)));
}

#[test]
fn the_most_that_a_request_took_is_what_it_was_allowed() {
    let control = control();
    for bytes in [1 << 20, MAX_BYTES] {
        let _scope = Scope::begin(&control, NID);
        for _ in 0..2 {
            let _ = charge(bytes);
            let _ = step();
        }
    }
    let peaks = control.peaks.read();
    assert_eq!((peaks.steps, peaks.bytes, peaks.long), (2, MAX_BYTES, 1));
    let _scope = Scope::begin(&control, NID);
    while step().is_ok() {}
    drop(_scope);
    assert_eq!(control.peaks.read().steps, MAX_STEPS);
}
