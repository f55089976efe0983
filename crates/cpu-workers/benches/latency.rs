//! The time from queueing to start, for a sleeping worker: `cargo bench -p cpu-workers`.
//!
//! The queueing thread is pinned to the first CPU, so that `same CPU` and `other CPU` are well
//! defined. The variants are interleaved so that a busy moment affects all of them alike. The last
//! figure is the cost of a push to a worker that is awake.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use cpu_workers::{Cpus, Mode, Priority, SystemCpus, WorkerOptions, Workers};

const ROUNDS: usize = 4000;
const PUSHES: u32 = 100_000;

struct Way {
    name: String,
    workers: Arc<Workers>,
    cpu: Option<usize>,
    delays: Vec<u64>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let cpus = SystemCpus::new()?;
    let usable = cpus.usable()?;
    let mut ways = Vec::new();
    for priority in [Priority::Normal, Priority::High] {
        let pool = |mode| {
            Workers::start(WorkerOptions {
                mode,
                priority,
                ..Default::default()
            })
        };
        let (pinned, unbound) = (pool(Mode::PerCpu)?, pool(Mode::Unbound)?);
        for (index, &cpu) in usable.iter().take(2).enumerate() {
            let name = format!("{priority:?} {} CPU", ["same", "other"][index]);
            let (workers, delays) = (Arc::clone(&pinned), Vec::new());
            ways.push(Way {
                name,
                workers,
                cpu: Some(cpu),
                delays,
            });
        }
        let name = format!("{priority:?} unbound");
        ways.push(Way {
            name,
            workers: unbound,
            cpu: None,
            delays: Vec::new(),
        });
        pinned.notices().iter().for_each(|line| println!("{line}"));
    }
    let own = rustix::thread::gettid().as_raw_nonzero().get();
    cpus.pin(own, *usable.first().ok_or("no CPU")?)?;
    for _ in 0..ROUNDS {
        ways.iter_mut().for_each(Way::round);
    }
    ways.iter_mut().for_each(Way::print);
    ways[0].print_push();
    Ok(())
}

impl Way {
    /// Queues one job for a worker that has had time to fall asleep.
    fn round(&mut self) {
        std::thread::sleep(Duration::from_micros(100));
        let (sender, receiver) = channel();
        let job = move |context: &cpu_workers::WorkerContext| {
            let _ = sender.send(context.started_ns - context.queued_ns);
        };
        self.workers.queue(self.cpu, Box::new(job));
        self.delays.extend(receiver.recv());
    }

    fn print(&mut self) {
        self.delays.sort_unstable();
        let at = |per_mille: usize| self.delays[(self.delays.len() - 1) * per_mille / 1000];
        println!(
            "queue to start, {:<18} median {:>6} ns, p99 {:>7} ns, p99.9 {:>8} ns",
            self.name,
            at(500),
            at(990),
            at(999)
        );
    }

    /// Measures queueing behind a running job, which needs no wake-up.
    fn print_push(&self) {
        let (open, gate) = channel::<()>();
        self.workers
            .queue(self.cpu, Box::new(move |_| gate.recv().unwrap_or_default()));
        let start = Instant::now();
        (0..PUSHES).for_each(|_| self.workers.queue(self.cpu, Box::new(|_| ())));
        let push = start.elapsed() / PUSHES;
        drop(open);
        let start = Instant::now();
        let (sender, receiver) = channel();
        self.workers.queue(
            self.cpu,
            Box::new(move |_| sender.send(()).unwrap_or_default()),
        );
        let _ = receiver.recv();
        println!(
            "push to a busy worker {push:?}; taking and running an empty job {:?}",
            start.elapsed() / PUSHES
        );
    }
}
