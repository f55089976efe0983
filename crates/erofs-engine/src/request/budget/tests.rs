use std::panic::AssertUnwindSafe;

use super::*;

fn request(control: &Control) -> Request<'_> {
    Request::new(control, ReadContext::Worker)
}

#[test]
fn without_a_call_nothing_is_charged() {
    let control = Control::default();
    let request = request(&control);
    assert_eq!(request.charge(u64::MAX), Ok(()));
    assert_eq!(request.charge(u64::MAX), Ok(()));
}

#[test]
fn steps_and_bytes_of_nested_requests_add_up() {
    let control = Control::default();
    let request = request(&control);
    let _outer = request.begin(0);
    for _ in 0..MAX_STEPS {
        let _inner = request.begin(0);
        assert_eq!(request.step(), Ok(()));
    }
    assert_eq!(request.step(), Err(Exceeded::Steps));
    // Nothing continues after the limit.
    assert_eq!(request.charge(1), Err(Exceeded::Steps));
}

/// Imitates a caller that reads files while it lists their directory.
#[test]
fn what_a_caller_does_in_the_middle_of_a_request_is_no_part_of_it() {
    let control = Control::default();
    let request = request(&control);
    let _listing = request.begin(0);
    request.charge(MAX_BYTES / 2 + 1).unwrap();
    for _ in 0..3 {
        request.outside(|| {
            let read = request.begin(0);
            assert!(read.is_outermost);
            // The inner call has its own limits, and may itself be heavy.
            assert_eq!(request.charge(MAX_BYTES), Ok(()));
            assert_eq!(request.charge(1), Err(Exceeded::Bytes));
        });
    }
    assert_eq!(request.charge(MAX_BYTES / 2 - 1), Ok(()));
    assert_eq!(request.charge(1), Err(Exceeded::Bytes));
}

#[test]
fn a_caller_that_panics_leaves_the_request_as_it_was() {
    let control = Control::default();
    let request = request(&control);
    let _listing = request.begin(0);
    request.charge(MAX_BYTES).unwrap();
    let caught = std::panic::catch_unwind(AssertUnwindSafe(|| {
        request.outside(|| panic!("a caller's fault"));
    }));
    assert!(caught.is_err());
    assert_eq!(request.charge(1), Err(Exceeded::Bytes));
}

#[test]
fn the_next_request_begins_anew() {
    let control = Control::default();
    let request = request(&control);
    for _ in 0..2 {
        let scope = request.begin(0);
        assert_eq!(request.charge(MAX_BYTES), Ok(()));
        scope.renew();
        assert_eq!(request.charge(MAX_BYTES), Ok(()));
    }
}

#[test]
fn only_limits_are_exceeded_again_by_the_same_request() {
    assert!(Exceeded::Steps.is_limit() && Exceeded::Bytes.is_limit());
    assert!(!Exceeded::Closed.is_limit() && !Exceeded::Busy.is_limit());
}

#[test]
fn closing_ends_a_request_and_all_later_ones() {
    let control = Control::default();
    let request = request(&control);
    let scope = request.begin(0);
    assert_eq!(request.charge(1), Ok(()));
    control.close();
    assert_eq!(request.charge(1), Err(Exceeded::Closed));
    // A listing in parts, one entry at a time, ends too.
    scope.renew();
    assert_eq!(request.charge(1), Err(Exceeded::Closed));
    drop(scope);
    let _later = request.begin(0);
    assert_eq!(request.step(), Err(Exceeded::Closed));
}

/// 1 MiB of MicroLZMA takes 14 ms to decode; with LZ4 the time is negligible.
#[test]
fn a_request_is_long_once_it_is_to_cost_more_than_any_of_lz4() {
    for (cost, long) in [(26 << 20, 0), (50 << 20, 1)] {
        let control = Control::default();
        let request = request(&control);
        let scope = request.begin(1 << 20);
        for _ in 0..3 {
            request.charge_decoding(1 << 20, cost / 3).unwrap();
        }
        drop(scope);
        assert_eq!(control.peaks().long, long, "{cost}");
    }
}

/// Heavy means beyond half of the budget, which no valid image reaches.
#[test]
fn one_heavy_request_is_served_at_a_time() {
    let (control, heavy) = (Control::default(), MAX_BYTES / 2 + 1);
    let request = request(&control);
    let first = request.begin(0);
    request.charge(heavy).unwrap();
    assert!(request.is_heavy());
    let elsewhere = |is_known: bool, bytes| {
        let control = &control;
        let served = move || {
            let request = Request::new(control, ReadContext::Worker);
            let _scope = match is_known {
                true => request.begin_heavy(0),
                false => request.begin(0),
            };
            request.charge(bytes)
        };
        std::thread::scope(|scope| scope.spawn(served).join().unwrap())
    };
    assert_eq!(elsewhere(false, 1), Ok(()));
    assert_eq!(elsewhere(false, heavy), Err(Exceeded::Busy));
    assert_eq!(elsewhere(true, 1), Err(Exceeded::Busy));
    drop(first);
    assert_eq!(elsewhere(true, heavy), Ok(()));
    assert_eq!(elsewhere(false, heavy), Ok(()));
}

#[test]
fn a_thread_that_helps_has_a_budget_of_its_own_and_needs_no_turn() {
    let control = Control::default();
    let request = request(&control);
    let _scope = request.begin(0);
    request.charge(MAX_BYTES / 2 + 1).unwrap();
    let share = request.share();
    let helped = || {
        let helper = share.enter();
        (helper.charge(MAX_BYTES), helper.charge(1))
    };
    let (within, beyond) = std::thread::scope(|scope| scope.spawn(helped).join().unwrap());
    assert_eq!((within, beyond), (Ok(()), Err(Exceeded::Bytes)));
}

#[test]
fn a_thread_that_helps_waits_if_the_request_does() {
    let control = Control::default();
    assert!(request(&control).share().enter().waits());
    let defers = request(&control).without_waiting();
    assert!(!defers.share().enter().waits() && !defers.lacks());
    assert!(defers.missing().is_none());
}

#[test]
fn the_most_that_a_request_took_is_what_it_was_allowed() {
    let control = Control::default();
    let request = request(&control);
    for bytes in [1 << 20, MAX_BYTES] {
        let _scope = request.begin(0);
        for _ in 0..2 {
            let _ = request.charge(bytes);
            let _ = request.step();
        }
    }
    let peaks = control.peaks();
    assert_eq!((peaks.steps, peaks.bytes, peaks.long), (2, MAX_BYTES, 1));
    let scope = request.begin(0);
    while request.step().is_ok() {}
    drop(scope);
    assert_eq!(control.peaks().steps, MAX_STEPS);
}
