//! Properties of the live recorder. The tests need root and tracefs, and print a line if they are
//! skipped.

use super::*;
use crate::latency::{Filter, Wait, WaitKind, analyse};
use crate::{Kind, Wake};
use std::fs::File;
use std::io::{Cursor, Write};
use std::thread;
use std::time::Duration;

/// A recorder, or `None` after printing why there is none.
fn recorder(options: &RecordOptions) -> Option<Recorder> {
    match Recorder::start(options) {
        Ok(recorder) => Some(recorder),
        Err(Error::NoTracefs { reason }) => {
            println!("skipped: {reason}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Whether the kernel wrote all switches; prints a line if it did not.
fn tells_all_switches(trace: &Trace) -> bool {
    let missing = analyse(trace).missing_switches;
    if missing > 0 {
        println!("skipped: this kernel does not write all switches ({missing} are missing)");
    }
    missing == 0
}

const SLEEPS: usize = 50;

/// Runs a thread with this name that repeatedly sleeps and is woken by its timer.
fn sleeper(name: &str) {
    let sleeps = || (0..SLEEPS).for_each(|_| thread::sleep(Duration::from_millis(1)));
    thread::Builder::new()
        .name(name.into())
        .spawn(sleeps)
        .unwrap()
        .join()
        .unwrap();
}

/// The waits after wake-ups of all threads with this name.
fn wakeups(trace: &Trace, name: &str) -> Vec<Wait> {
    let own = |wait: &Wait| wait.comm == name.into() && wait.kind == WaitKind::Wakeup;
    let waits = analyse(trace).waits.into_iter();
    waits.filter(own).collect()
}

/// How often the threads with this name were woken, and how often they were preempted.
fn counts(trace: &Trace, name: &str) -> (usize, usize) {
    let (mut woken, mut preempted) = (0, 0);
    for event in &trace.events {
        match event.kind {
            Kind::Wake { wake, task, .. } if task.comm == name.into() => {
                woken += usize::from(wake == Wake::Begins);
            }
            Kind::Switch {
                prev, prev_state, ..
            } if prev.comm == name.into() => preempted += usize::from(prev_state.is_runnable()),
            _ => {}
        }
    }
    (woken, preempted)
}

#[test]
fn every_sleep_of_a_thread_gives_one_wait() {
    for drain in [Drain::AtStop, Drain::Stream] {
        let options = RecordOptions {
            drain,
            ..RecordOptions::default()
        };
        let Some(recorder) = recorder(&options) else {
            return;
        };
        let before = now_ns();
        sleeper("st-sleeper");
        let after = now_ns();
        let trace = recorder.stop().unwrap();
        assert_eq!(trace.lost_events, 0, "{:?}", trace.notices);
        if !tells_all_switches(&trace) {
            return;
        }
        let waits = wakeups(&trace, "st-sleeper");
        // A busy machine occasionally preempts the sleeper on its way to sleep: when its timer
        // fires, the thread is already runnable, so no wait begins. The sleeper's creation adds a
        // wait, if the thread already has its name.
        let (woken, preempted) = counts(&trace, "st-sleeper");
        assert!(woken >= SLEEPS, "{drain:?}: {woken} wake-ups");
        let expected = woken.saturating_sub(preempted)..=woken + 1;
        assert!(
            expected.contains(&waits.len()),
            "{drain:?}: {} of {expected:?}",
            waits.len()
        );
        // The time stamps use the caller's clock.
        assert!(
            waits
                .iter()
                .all(|wait| before <= wait.start_ns && wait.end_ns <= after)
        );
    }
}

#[test]
fn pieces_taken_while_recording_add_up() {
    let Some(mut recorder) = recorder(&RecordOptions::default()) else {
        return;
    };
    sleeper("st-first");
    let first = recorder.take().unwrap();
    sleeper("st-second");
    recorder.pause().unwrap();
    sleeper("st-unseen");
    recorder.resume().unwrap();
    let second = recorder.stop().unwrap();
    // Every sleep ends with a wake-up. On a busy machine a timer may fire before its thread is
    // really asleep; in that case there is nothing to wait for.
    assert!(counts(&first, "st-first").0 >= SLEEPS);
    assert!(counts(&second, "st-second").0 >= SLEEPS);
    assert_eq!(
        (wakeups(&second, "st-first"), wakeups(&second, "st-unseen")),
        (vec![], vec![])
    );
}

#[test]
fn a_buffer_that_overflows_is_told() {
    let options = RecordOptions {
        buffer_kib_per_cpu: 64,
        drain: Drain::AtStop,
        ..RecordOptions::default()
    };
    let Some(recorder) = recorder(&options) else {
        return;
    };
    for _ in 0..200 {
        sleeper("st-flood");
        let cpus = recorder.instance.cpus().unwrap();
        if cpus.iter().any(|&cpu| recorder.instance.lost(cpu) > 0) {
            break;
        }
    }
    let trace = recorder.stop().unwrap();
    assert!(trace.lost_events > 0);
    assert!(!analyse(&trace).is_valid());
}

#[test]
fn a_command_is_recorded_with_its_name_and_process() {
    let mut sleep = Command::new("/bin/sleep");
    let recorded = command(sleep.arg("0.01"), &RecordOptions::default(), || false);
    let (status, trace) = match recorded {
        Ok(recorded) => recorded,
        Err(Error::NoTracefs { reason }) => return println!("skipped: {reason}"),
        Err(error) => panic!("{error}"),
    };
    assert!(status.success());
    // Other programs with this name may also run, and may end before their process is looked up.
    let is_it = |(pid, thread): (&i32, &crate::Thread)| {
        (thread.comm, thread.tgid) == ("sleep".into(), *pid)
    };
    assert!(trace.threads.iter().any(is_it), "{:?}", trace.threads);
    let is_exec = |event: &crate::Event| matches!(event.kind, Kind::Exec { .. });
    assert!(trace.events.iter().any(is_exec));
}

#[test]
fn kworkers_are_named_by_what_they_did() {
    let Some(recorder) = recorder(&RecordOptions::default()) else {
        return;
    };
    // Output to a terminal passes through a work item.
    let terminal = File::options().read(true).write(true).open("/dev/ptmx");
    let Ok(mut terminal) = terminal else {
        return println!("skipped: no pseudo-terminals here");
    };
    for _ in 0..30 {
        terminal.write_all(b"x").unwrap();
        thread::sleep(Duration::from_millis(10));
    }
    let trace = recorder.stop().unwrap();
    let groups = analyse(&trace).workqueues(&Filter::default());
    assert!(!groups.is_empty());
    let mut functions = groups.iter().filter_map(|group| group.function);
    let unnamed = functions.any(|function| trace.names.get(function).starts_with("0x"));
    assert!(
        !unnamed || !trace.notices.is_empty(),
        "unknown functions are reported"
    );
}

#[test]
fn nothing_is_left_behind() {
    let Some(recorder) = recorder(&RecordOptions::default()) else {
        return;
    };
    let dir = recorder.instance.dir().to_path_buf();
    assert!(dir.exists());
    // Keeps the filesystem reachable after the recorder has released its own mount.
    let parent = File::open(dir.parent().unwrap()).unwrap();
    drop(recorder);
    use std::os::fd::AsRawFd;
    let instances = format!("/proc/self/fd/{}", parent.as_raw_fd());
    let name = dir.file_name().unwrap().to_owned();
    let left = std::fs::read_dir(instances)
        .unwrap()
        .flatten()
        .any(|e| e.file_name() == name);
    assert!(!left);
}

/// The switches, wake-ups and migrations of a CPU with their times, in order.
fn scheduling(trace: &Trace, cpu: u32) -> Vec<(u64, i32, Kind)> {
    let events = trace.events.iter().filter(|event| event.cpu == cpu);
    let of_scheduler = |kind| {
        matches!(
            kind,
            Kind::Switch { .. } | Kind::Wake { .. } | Kind::Migrate { .. }
        )
    };
    let events = events.filter(|event| of_scheduler(event.kind));
    events
        .map(|event| (event.time_ns, event.pid, event.kind))
        .collect()
}

#[test]
fn the_binary_pages_and_the_text_of_one_buffer_have_the_same_events() {
    let options = RecordOptions {
        drain: Drain::AtStop,
        ..RecordOptions::default()
    };
    let Some(recorder) = recorder(&options) else {
        return;
    };
    sleeper("st-twice");
    recorder.instance.switch(false).unwrap();
    let text = std::fs::read(recorder.instance.dir().join("trace")).unwrap();
    let binary = recorder.stop().unwrap();
    let text = crate::read(Cursor::new(text), "trace".as_ref(), &Default::default()).unwrap();
    assert_eq!((binary.lost_events, text.lost_events), (0, 0));
    let mut compared = 0;
    for cpu in analyse(&binary).cpus {
        let (pages, lines) = (scheduling(&binary, cpu), scheduling(&text, cpu));
        assert_eq!(pages.len(), lines.len(), "CPU {cpu}");
        for ((time, pid, kind), (near, same_pid, same)) in pages.iter().zip(&lines) {
            // Times in the text are in microseconds.
            assert!(time.abs_diff(*near) < 1000, "{time} {near}");
            assert_eq!((pid, kind), (same_pid, same));
        }
        compared += pages.len();
    }
    assert!(compared > 3 * SLEEPS, "{compared} events");
}

#[test]
fn the_policy_of_a_thread_that_is_gone_at_the_end_is_known() {
    // The program sleeps until it gets input, and lives until its input is closed.
    let idler = Command::new("chrt")
        .args(["-i", "0", "sh", "-c", "while read line; do :; done"])
        .stdin(std::process::Stdio::piped())
        .spawn();
    let Ok(mut idler) = idler else {
        return println!("skipped: no chrt");
    };
    let pid = idler.id() as i32;
    while policies::policy(&format!("/proc/{pid}/stat")) != Some(crate::Policy::Idle) {
        thread::sleep(Duration::from_millis(1));
    }
    let recorder = recorder(&RecordOptions::default());
    drop(idler.stdin.take());
    idler.wait().unwrap();
    let Some(recorder) = recorder else {
        return;
    };
    let trace = recorder.stop().unwrap();
    let thread = trace.threads[&pid];
    assert_eq!(
        (thread.policy, thread.tgid),
        (Some(crate::Policy::Idle), pid)
    );
    let mut file = Vec::new();
    crate::perfetto::write(&trace, &mut file).unwrap();
    let again = crate::read(Cursor::new(file), "again".as_ref(), &Default::default()).unwrap();
    assert_eq!(again.threads[&pid].policy, thread.policy);
}

#[test]
fn a_policy_that_changed_is_not_known_and_a_new_thread_has_that_of_its_creator() {
    let mut trace = Trace::new("mono");
    let new = |pid| crate::Event {
        time_ns: 1,
        cpu: 0,
        pid: 1 << 24,
        kind: Kind::NewTask {
            pid,
            comm: "new".into(),
            flags: 0,
        },
    };
    // No machine has such pids (PID_MAX_LIMIT is 1 << 22), and this process is a normal one.
    let (creator, child, own) = (1 << 24, (1 << 24) + 1, std::process::id() as i32);
    trace.events.push(new(child));
    for pid in [creator, child, own] {
        trace.threads.insert(pid, Thread::default());
    }
    let noted = [creator, own].map(|pid| (pid, (pid, Some(crate::Policy::Batch))));
    policies::Noted::of(noted).fill_in(&mut trace);
    let policy = |pid: i32| trace.threads[&pid].policy;
    let batch = Some(crate::Policy::Batch);
    assert_eq!([creator, child, own].map(policy), [batch, batch, None]);
}

#[test]
fn interrupts_within_slices_are_recorded_and_survive_a_file() {
    let options = RecordOptions {
        interrupts: true,
        ..RecordOptions::default()
    };
    let Some(recorder) = recorder(&options) else {
        return;
    };
    // This thread keeps its CPU for a few ticks, whose softirqs run within its slice.
    let until = std::time::Instant::now() + Duration::from_millis(300);
    while std::time::Instant::now() < until {
        std::hint::spin_loop();
    }
    let trace = recorder.stop().unwrap();
    let lost = |trace: &Trace| {
        let (report, timeline) = (analyse(trace), crate::timeline::Timeline::new(trace));
        let interrupts = crate::interrupts::Interrupts::of(trace);
        crate::interrupted::lost(&interrupts, &timeline, &report, &Filter::default())
    };
    let found = lost(&trace);
    assert!(found.recorded && found.total_us > 0.0, "{found:?}");
    assert!(
        // A slice may be cut off at an edge of the recording.
        found
            .threads
            .iter()
            .all(|it| it.ran_us == 0.0 || it.total_us <= it.ran_us),
        "{found:?}"
    );
    let mut file = Vec::new();
    crate::perfetto::write(&trace, &mut file).unwrap();
    let again = crate::read(Cursor::new(file), "again".as_ref(), &Default::default()).unwrap();
    assert_eq!(lost(&again), found);
}

/// A group with a quota, in a hierarchy of version 1; removed when dropped.
struct Group(std::path::PathBuf);

impl Group {
    fn new() -> std::io::Result<Self> {
        let name = format!("erofast-quota-{}", std::process::id());
        let group = Self(std::path::Path::new("/sys/fs/cgroup/cpu").join(name));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join("cpu.cfs_period_us"), "20000")?;
        std::fs::write(group.0.join("cpu.cfs_quota_us"), "2000")?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[test]
fn a_quota_that_stops_threads_is_noted_with_its_threads() {
    let group = match Group::new() {
        Ok(group) => group,
        Err(reason) => return println!("skipped: no group with a quota: {reason}"),
    };
    let Some(recorder) = recorder(&RecordOptions::default()) else {
        return;
    };
    let script =
        "echo $$ > \"$0/tasks\" && i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; echo; read x";
    let mut shell = Command::new("sh")
        .args(["-c", script])
        .arg(&group.0)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut done = [0];
    std::io::Read::read_exact(&mut shell.stdout.take().unwrap(), &mut done).unwrap();
    let trace = recorder.stop().unwrap();
    let pid = shell.id() as i32;
    drop(shell.stdin.take());
    shell.wait().unwrap();
    let report = analyse(&trace);
    let quotas = crate::quotas::quotas(&trace, &report, &Filter::default());
    let found = quotas
        .iter()
        .find(|it| it.threads.iter().any(|it| it.pid == pid));
    let Some(found) = found else {
        panic!("{quotas:?} of {pid}: {:?}", trace.threads.get(&pid));
    };
    assert!(
        found
            .quota
            .contains(": 2 of 20 ms (cpu.max), its threads were throttled for "),
        "{found:?}"
    );
}
