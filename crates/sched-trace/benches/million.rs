//! Writes, reads back and analyses a trace of a million events. Prints times and memory; the target
//! for reading and analysing is 1.5 s and 300 MB.

use sched_trace::blame::blame;
use sched_trace::latency::{Filter, GroupBy, analyse};
use sched_trace::timeline::Timeline;
use sched_trace::{Comm, Event, Kind, ReadOptions, Task, TaskState, Trace, Wake, open, perfetto};
use std::time::Instant;

const EVENTS: u64 = 1_000_000;

fn main() {
    // The reader is measured in a separate process, so that building the trace does not count.
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, flag, file] = arguments.as_slice()
        && flag == "--measure"
    {
        return measure(file);
    }
    let path = std::env::temp_dir().join(format!("million-{}.pftrace", std::process::id()));
    let trace = synthetic();
    let start = Instant::now();
    perfetto::save(&trace, &path).expect("the temporary directory is writable");
    let size = std::fs::metadata(&path).expect("it was just written").len();
    println!("write:   {:?}, {} MB", start.elapsed(), size >> 20);
    drop(trace);
    let program = std::env::current_exe().expect("a path to this program");
    let status = std::process::Command::new(program)
        .arg("--measure")
        .arg(&path)
        .status();
    std::fs::remove_file(&path).expect("it is ours");
    assert!(status.is_ok_and(|status| status.success()));
}

fn measure(file: &str) {
    let start = Instant::now();
    let trace = open(file.as_ref(), &ReadOptions::default()).expect("it was just written");
    let read = start.elapsed();
    let report = analyse(&trace);
    let analysed = start.elapsed();
    let json = report.to_json();
    let groups = report.group(GroupBy::Comm, &Filter::default());
    let total = start.elapsed();
    let blame = blame(&Timeline::new(&trace), &report.waits);
    let with_blame = start.elapsed();
    println!("read:    {read:?} for {} events", trace.events.len());
    println!(
        "analyse: {:?} for {} waits",
        analysed - read,
        report.waits.len()
    );
    println!(
        "report:  {:?}, {} names, {} tasks",
        total - analysed,
        groups.len(),
        json["tasks"].as_array().map_or(0, Vec::len)
    );
    println!(
        "total:   {total:?} (promise: 1.5 s); {with_blame:?} with blame on {} blockers",
        blame.behind.len()
    );
    // On a machine that is busy with other things, only this figure is meaningful.
    let cpu = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    println!(
        "CPU:     {}.{:03} s in all",
        cpu.tv_sec,
        cpu.tv_nsec / 1_000_000
    );
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or("VmHWM: unknown");
    println!(
        "memory:  {} (promise: 300 MB)",
        peak.trim_start_matches("VmHWM:").trim()
    );
}

/// Eight CPUs and 200 threads that wake one another; every tenth thread executes a work item.
fn synthetic() -> Trace {
    let mut trace = Trace::new("mono");
    let function = trace.names.intern("z_erofs_decompressqueue_work");
    let queue = Some(trace.names.intern("erofs_worker"));
    let comm = |pid: i32| Comm::new(format!("worker/{pid}").as_bytes());
    let mut running = [0i32; 8];
    let (mut time_ns, mut next) = (1_000_000_000u64, 1i32);
    let mut random = 12345u64;
    while (trace.events.len() as u64) < EVENTS {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let cpu = (random >> 33) as usize % running.len();
        let waker = running[cpu];
        next = next % 200 + 1;
        if running.contains(&next) {
            continue;
        }
        let task = |pid| Task {
            comm: comm(pid),
            pid,
            prio: 120,
        };
        let mut add = |pid, kind| {
            time_ns += 500 + (random >> 50);
            trace.events.push(Event {
                time_ns,
                cpu: cpu as u32,
                pid,
                kind,
            });
        };
        let wake = |wake| Kind::Wake {
            wake,
            task: task(next),
            target_cpu: cpu as u32,
        };
        let (work, kthread) = (u64::from(next as u32), false);
        let is_kworker = next % 10 == 0;
        if is_kworker {
            let queued = Kind::WorkQueued {
                work,
                function,
                queue,
                kthread,
            };
            add(waker, queued);
        }
        add(waker, wake(Wake::Begins));
        add(waker, wake(Wake::Done));
        let switch = Kind::Switch {
            prev: task(waker),
            prev_state: if waker == 0 {
                TaskState::RUNNABLE
            } else {
                TaskState::SLEEPING
            },
            next: task(next),
        };
        add(waker, switch);
        if is_kworker {
            let start = Kind::WorkStart {
                work,
                function,
                kthread,
            };
            add(next, start);
            let end = Kind::WorkEnd {
                work,
                function: Some(function),
                kthread,
            };
            add(next, end);
        }
        running[cpu] = next;
    }
    trace
}
