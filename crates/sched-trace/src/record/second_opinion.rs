//! The same buffer read twice: as binary pages by the crate, and as text by the few lines below,
//! which share nothing with it. Counts must be equal and averages within one per cent.

use super::*;
use crate::Kind;
use crate::latency::WaitKind;
use std::collections::{HashMap, HashSet};

/// Waits after wake-ups by thread: count and sum in microseconds. Deliberately simple-minded: a
/// thread is asleep, woken or running, and only `sched_waking` and `sched_switch` are read.
fn opinion(text: &str) -> HashMap<i32, (u64, f64)> {
    let (mut asleep, mut woken) = (HashMap::new(), HashMap::new());
    let mut waits: HashMap<i32, (u64, f64)> = HashMap::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |key: &str| -> i32 {
            words
                .iter()
                .find_map(|w| w.strip_prefix(key))
                .and_then(|n| n.parse().ok())
                .unwrap_or(0)
        };
        let Some(at) = words
            .iter()
            .position(|w| w.starts_with("sched_") && w.ends_with(':'))
        else {
            continue;
        };
        let time: f64 = words[at - 1].trim_end_matches(':').parse().unwrap();
        match words[at] {
            "sched_waking:" => {
                let pid = number("pid=");
                if asleep.remove(&pid).is_some() {
                    woken.insert(pid, time);
                }
            }
            "sched_switch:" => {
                let (prev, next) = (number("prev_pid="), number("next_pid="));
                let runnable = words.iter().any(|w| w.starts_with("prev_state=R"));
                if !runnable {
                    asleep.insert(prev, time);
                }
                if let Some(since) = woken.remove(&next) {
                    let entry = waits.entry(next).or_default();
                    *entry = (entry.0 + 1, entry.1 + (time - since) * 1e6);
                }
            }
            _ => {}
        }
    }
    waits
}

#[test]
fn a_second_parser_of_the_same_buffer_agrees() {
    let options = RecordOptions {
        drain: Drain::AtStop,
        ..RecordOptions::default()
    };
    let recorder = match Recorder::start(&options) {
        Ok(recorder) => recorder,
        Err(error) => return println!("skipped: {error}"),
    };
    let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(ping_pong)).collect();
    let pids: Vec<i32> = threads
        .into_iter()
        .flat_map(|t| t.join().unwrap())
        .collect();
    recorder.instance.switch(false).unwrap();
    let text = std::fs::read_to_string(recorder.instance.dir().join("trace")).unwrap();
    let trace = recorder.stop().unwrap();
    assert_eq!(trace.lost_events, 0);
    if !super::tests::tells_all_switches(&trace) {
        return;
    }
    let report = crate::latency::analyse(&trace);
    let theirs = opinion(&text);
    let mut compared = 0;
    for pid in pids {
        let (count, total) = theirs[&pid];
        let ours = own_waits(&trace, &report, pid);
        let average = ours.iter().sum::<f64>() / ours.len() as f64;
        let other = total / count as f64;
        println!(
            "thread {pid}: {} waits of {average:.3} us, {count} of {other:.3} us",
            ours.len()
        );
        // On a busy machine a thread may be preempted on its way to sleep, and woken before it is
        // asleep: one parser calls that a wait, the other does not.
        let differ = (ours.len() as u64).abs_diff(count);
        assert!(differ * 50 <= count, "{} and {count} waits", ours.len());
        compared += count;
        if differ > 0 {
            continue;
        }
        // The text's times are cut to microseconds. A wait is the difference of two, which errs by
        // 0.41 us (standard deviation); the average of them by as much less as there are waits.
        let cut = 4.0 * 0.41 / (count as f64).sqrt();
        assert!(
            (average - other).abs() <= (other / 100.0).max(cut),
            "{average} and {other}"
        );
    }
    assert!(compared > 1000, "{compared} waits");
}

/// Waits in microseconds that began with a `sched_waking`. Others follow a thread's creation or a
/// wake-up that raced with going to sleep, which the second parser leaves out.
fn own_waits(trace: &Trace, report: &crate::latency::Report, pid: i32) -> Vec<f64> {
    let of_pid = |kind| matches!(kind, Kind::Waking { pid: woken, .. } if woken == pid);
    let wakings = trace.events.iter().filter(|event| of_pid(event.kind));
    let begins: HashSet<u64> = wakings.map(|event| event.time_ns).collect();
    let waits = report
        .waits
        .iter()
        .filter(|w| w.pid == pid && w.kind == WaitKind::Wakeup);
    let plain = waits.filter(|wait| begins.contains(&wait.start_ns));
    plain.map(|wait| wait.length_ns() as f64 / 1e3).collect()
}

/// Two threads that wake each other a few hundred times; returns their ids.
fn ping_pong() -> Vec<i32> {
    use std::sync::mpsc::channel;
    let (to, from) = channel::<()>();
    let (back, answer) = channel::<()>();
    let me = || rustix::thread::gettid().as_raw_nonzero().get();
    let other = std::thread::spawn(move || {
        for () in from {
            back.send(()).unwrap();
        }
        me()
    });
    for _ in 0..300 {
        to.send(()).unwrap();
        answer.recv().unwrap();
    }
    drop(to);
    vec![me(), other.join().unwrap()]
}
