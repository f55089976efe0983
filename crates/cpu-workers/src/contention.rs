//! Tells when the CPUs are contended: for workers that are real-time only while that helps.
//!
//! The kernel's pressure stall information says how long runnable threads waited for a CPU. A
//! trigger on it wakes nobody while the machine is quiet.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{EventWaker, Waker};

const PRESSURE: &str = "/proc/pressure/cpu";

/// Without CAP_SYS_RESOURCE the kernel takes windows of multiples of two seconds only.
const ORDINARY_WINDOW: Duration = Duration::from_secs(2);

/// What counts as contended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ContentionOptions {
    /// Contended: in a window of this length (500 ms to 10 s) ...
    pub window: Duration,
    /// ... some thread waited for a CPU for this long in sum.
    pub stalled: Duration,
    /// Quiet again: for this long no window was contended. Longer than a window, or it flutters.
    pub calm: Duration,
}

impl Default for ContentionOptions {
    /// Half of the time stalled. A stream through a mount stalls its own reader for up to 40 % of
    /// it, where worker and reader share a CPU, and more CPUs than threads stand idle; under a load
    /// that keeps all CPUs busy it is 99 %. Half a second is the shortest window there is.
    fn default() -> Self {
        ContentionOptions {
            window: Duration::from_millis(500),
            stalled: Duration::from_millis(250),
            calm: Duration::from_secs(2),
        }
    }
}

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Contention {
    stop: Arc<AtomicBool>,
    waker: Arc<EventWaker>,
    thread: Option<JoinHandle<()>>,
}

/// What tells of contention, asked of the kernel. Apart from the watching, because the shorter
/// windows need privileges that the threads which watch need not keep.
#[derive(Debug)]
pub struct Trigger {
    file: File,
    options: ContentionOptions,
}

impl Trigger {
    /// Asks the kernel to tell.
    ///
    /// # Errors
    /// It does not tell here, or the options are none that it takes.
    pub fn new(options: ContentionOptions) -> io::Result<Self> {
        Ok(Trigger {
            file: trigger(options)?,
            options,
        })
    }
}

impl Contention {
    /// Calls `changed` with true when the CPUs become contended and with false when they are
    /// quiet again, on a thread of its own. The beginning counts as quiet; if the CPUs are contended
    /// already, that is told after a fiftieth of a second, and taken back a tenth later if it was
    /// but the work of starting.
    pub fn watch(
        trigger: Trigger,
        mut changed: impl FnMut(bool) + Send + 'static,
    ) -> io::Result<Self> {
        let Trigger { file, options } = trigger;
        let (stop, waker) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(EventWaker::new()?),
        );
        let body = {
            let (stop, waker) = (Arc::clone(&stop), Arc::clone(&waker));
            move || {
                // A thread that tells of contention should not wait for its end. Where that is
                // refused, it tells a little later.
                let _ = sys::sched::set_policy(0, sys::sched::Policy::Fifo(1));
                let contended = begin(&file, options, &waker, &stop, &mut changed);
                follow(&file, options.calm, &waker, &stop, contended, changed);
            }
        };
        let thread = thread::Builder::new()
            .name("cpu_contention".into())
            .spawn(body)?;
        Ok(Contention {
            stop,
            waker,
            thread: Some(thread),
        })
    }
}

impl Drop for Contention {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.waker.wake();
        let thread = self.thread.take();
        // `changed` itself may be what drops us.
        if let Some(thread) = thread.filter(|own| own.thread().id() != thread::current().id()) {
            let _ = thread.join();
        }
    }
}

/// With the window wished for, else with the one that needs no privilege.
fn trigger(options: ContentionOptions) -> io::Result<File> {
    let wished = register(options.stalled, options.window);
    wished.or_else(|error| {
        if options.window == ORDINARY_WINDOW {
            return Err(error);
        }
        let factor = ORDINARY_WINDOW.as_secs_f64() / options.window.as_secs_f64();
        register(options.stalled.mul_f64(factor), ORDINARY_WINDOW)
    })
}

fn register(stalled: Duration, window: Duration) -> io::Result<File> {
    let mut file = OpenOptions::new().read(true).write(true).open(PRESSURE)?;
    let line = format!("some {} {}\0", stalled.as_micros(), window.as_micros());
    file.write_all(line.as_bytes())?;
    Ok(file)
}

/// How long the beginning is looked at. The kernel's averages are of ten seconds and more: they lag
/// behind a load that has begun, and behind one that has ended.
const FIRST_LOOK: Duration = Duration::from_millis(20);

/// How long each further look at a contended beginning takes, until the trigger tells.
const NEXT_LOOK: Duration = Duration::from_millis(100);

/// Looks at the beginning; whether the CPUs are contended when it is over.
fn begin(
    trigger: &File,
    options: ContentionOptions,
    waker: &EventWaker,
    stop: &AtomicBool,
    changed: &mut impl FnMut(bool),
) -> bool {
    let (mut before, mut time) = (false, FIRST_LOOK);
    loop {
        let look = Look::begin(trigger);
        let told = wait(trigger, waker, Some(time));
        let now = match told {
            Told::Nothing => look.was_contended(trigger, options),
            Told::Contended => true,
            Told::Gone | Told::Woken => before,
        };
        if now != before {
            changed(now);
        }
        if !now || told != Told::Nothing || stop.load(Ordering::Acquire) {
            return now;
        }
        (before, time) = (true, NEXT_LOOK);
    }
}

/// A moment from which on stalls are counted.
struct Look {
    begin: Instant,
    stalled: Option<Duration>,
}

impl Look {
    fn begin(trigger: &File) -> Self {
        Self {
            begin: Instant::now(),
            stalled: stalled(trigger),
        }
    }

    /// Whether the time since then is as a contended window is.
    fn was_contended(&self, trigger: &File, options: ContentionOptions) -> bool {
        let (Some(before), Some(after)) = (self.stalled, stalled(trigger)) else {
            return false;
        };
        let share = options.stalled.as_secs_f64() / options.window.as_secs_f64();
        after.saturating_sub(before) >= self.begin.elapsed().mul_f64(share)
    }
}

/// How long threads waited for a CPU since the system was started.
fn stalled(pressure: &File) -> Option<Duration> {
    let mut text = [0; 512];
    let length = pressure.read_at(&mut text, 0).ok()?;
    stalled_in(std::str::from_utf8(&text[..length]).ok()?)
}

/// `total`, microseconds, of the line that starts with `some`.
fn stalled_in(pressure: &str) -> Option<Duration> {
    let some = pressure
        .lines()
        .find_map(|line| line.strip_prefix("some "))?;
    let total = some
        .split(' ')
        .find_map(|field| field.strip_prefix("total="));
    total?.parse().ok().map(Duration::from_micros)
}

fn follow(
    trigger: &File,
    calm: Duration,
    waker: &EventWaker,
    stop: &AtomicBool,
    mut contended: bool,
    mut changed: impl FnMut(bool),
) {
    while !stop.load(Ordering::Acquire) {
        // A quiet machine sleeps without a timeout.
        let told = wait(trigger, waker, contended.then_some(calm));
        let now = match told {
            Told::Contended => true,
            Told::Woken => contended,
            // The trigger is gone: nothing will ever be told again.
            Told::Nothing | Told::Gone => false,
        };
        if now != contended {
            contended = now;
            changed(contended);
        }
        if told == Told::Gone {
            return;
        }
    }
}

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Told {
    /// The time.
    Nothing,
    Contended,
    /// The end of the trigger.
    Gone,
    /// The waker, or a signal.
    Woken,
}

fn wait(trigger: &File, waker: &EventWaker, time: Option<Duration>) -> Told {
    let time = time.map(|time| Timespec {
        tv_sec: time.as_secs() as i64,
        tv_nsec: time.subsec_nanos().into(),
    });
    let mut polled = [
        PollFd::new(trigger, PollFlags::PRI),
        PollFd::new(waker, PollFlags::IN),
    ];
    let result = poll(&mut polled, time.as_ref());
    let events = polled[0].revents();
    match result {
        Ok(0) => Told::Nothing,
        Ok(_) if events.contains(PollFlags::ERR) => Told::Gone,
        Ok(_) if events.contains(PollFlags::PRI) => Told::Contended,
        _ => Told::Woken,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn a_load_is_told() {
        let (sender, receiver) = channel();
        let options = ContentionOptions {
            stalled: Duration::from_millis(5),
            calm: Duration::from_millis(100),
            ..ContentionOptions::default()
        };
        let watch = match Trigger::new(options).and_then(|trigger| {
            Contention::watch(trigger, move |now| sender.send(now).unwrap_or_default())
        }) {
            Ok(watch) => watch,
            Err(error) => {
                println!("skipped: no pressure trigger on {PRESSURE}: {error}");
                return;
            }
        };
        let stop = AtomicBool::new(false);
        let spin = || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let threads = thread::available_parallelism().map_or(2, usize::from) * 2;
        let told = thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(spin)));
            let told = receiver.recv_timeout(Duration::from_secs(30));
            stop.store(true, Ordering::Relaxed);
            told
        });
        assert_eq!(told, Ok(true), "twice as many threads as CPUs");
        // Quiet is told only where the machine is quiet, which a test cannot promise.
        drop(watch);
    }

    #[test]
    fn the_time_stalled_is_read() {
        let text = "some avg10=12.50 avg60=3.00 avg300=1.00 total=47\nfull avg10=0.00 total=3\n";
        assert_eq!(stalled_in(text), Some(Duration::from_micros(47)));
        assert_eq!(stalled_in(""), None);
    }

    #[test]
    fn a_trigger_tells_the_time_stalled_too() {
        match Trigger::new(ContentionOptions::default()) {
            Ok(trigger) => assert!(stalled(&trigger.file).is_some()),
            Err(error) => println!("skipped: no pressure trigger on {PRESSURE}: {error}"),
        }
    }

    #[test]
    fn nonsense_is_refused_by_the_kernel() {
        let options = ContentionOptions {
            stalled: Duration::ZERO,
            ..Default::default()
        };
        assert!(Trigger::new(options).is_err());
    }
}
