//! Reads /proc: processes, threads, and the machine's CPU time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use super::lead::INHERITED;

/// The flag of kernel threads, from linux/sched.h.
const PF_KTHREAD: u64 = 0x0020_0000;

/// The value in the line `NAME: VALUE`.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = fields.find(|(key, _)| key.trim() == name)?;
    Some(value.trim())
}

/// The value of the line `NAME: VALUE` in a file.
pub(crate) fn value_in(path: &str, name: &str) -> Option<String> {
    value(&fs::read_to_string(path).ok()?, name).map(str::to_owned)
}

/// The leading number of the line `NAME: VALUE` in a file.
pub(crate) fn number_in(path: &str, name: &str) -> Option<u64> {
    value_in(path, name)?.split(' ').next()?.parse().ok()
}

/// The fields of a /proc/PID/stat after the name, starting with field 3 (state).
fn fields(path: &str) -> Option<Vec<String>> {
    let stat = fs::read_to_string(path).ok()?;
    let after = stat.rsplit_once(')')?.1;
    Some(after.split_ascii_whitespace().map(str::to_owned).collect())
}

/// Field `number`, counted as in proc(5).
fn field(path: &str, number: usize) -> Option<u64> {
    fields(path)?.get(number - 3)?.parse().ok()
}

/// When a process started, in clock ticks since boot.
pub(crate) fn started(pid: u32) -> Option<u64> {
    field(&format!("/proc/{pid}/stat"), 22)
}

/// User and system time of a process with all its threads, in clock ticks.
pub(crate) fn cpu_ticks(pid: u32) -> Option<u64> {
    let path = format!("/proc/{pid}/stat");
    Some(field(&path, 14)? + field(&path, 15)?)
}

/// The CPUs on which this process and its children may run.
pub(crate) fn allowed_cpus() -> BTreeSet<u32> {
    let set = rustix::thread::sched_getaffinity(None).unwrap_or_default();
    let cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    cpus.map(|cpu| cpu as u32).collect()
}

/// Scheduling policies by their numbers in linux/sched.h; 4 is unused.
const POLICIES: [&str; 8] = [
    "other", "fifo", "rr", "batch", "4", "idle", "deadline", "ext",
];

/// The scheduling policy that this process was started with, and its priority if it is real-time:
/// "fifo 1".
pub(crate) fn policy() -> Option<String> {
    let inherited = INHERITED.get().copied().flatten();
    let (priority, policy) = match inherited {
        Some(inherited) => (inherited.priority as u64, inherited.policy as u64),
        None => {
            let [priority, policy] = [40, 41].map(|number| field("/proc/self/stat", number));
            (priority?, policy?)
        }
    };
    let name = POLICIES.get(usize::try_from(policy).ok()?)?;
    Some(match priority {
        0 => (*name).into(),
        priority => format!("{name} {priority}"),
    })
}

/// Why figures from a trace would be wrong here; none if they would be right. A trace has the
/// process IDs of the whole machine, but /proc has those of this namespace.
pub(crate) fn foreign_pids() -> Option<&'static str> {
    // PROC_PID_INIT_INO of linux/proc_ns.h, unchanged since Linux 3.8.
    let first = "pid:[4026531836]";
    let own = fs::read_link("/proc/self/ns/pid").ok()?;
    (own.as_os_str() != first).then_some(
        "needs the process ids of the whole machine, which scheduler traces have: run it outside \
         of containers (docker: --pid=host)",
    )
}

/// The path of our own group, from the line of /proc/self/cgroup whose controllers `wanted`
/// accepts.
pub(crate) fn cgroup(groups: &str, wanted: impl Fn(&str) -> bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        fields.next().filter(|_| wanted(controllers))
    })
}

fn numbers(directory: &str) -> Vec<u32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.collect()
}

pub(crate) fn process_threads(pid: u32) -> Vec<u32> {
    numbers(&format!("/proc/{pid}/task"))
}

/// How often each thread of a process has left its CPU; none unless all threads sleep.
pub(crate) fn sleeping_threads(pid: u32) -> Option<Vec<(u32, u64)>> {
    let mut threads = process_threads(pid);
    threads.sort_unstable();
    let switches = |thread: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{thread}/status")).ok()?;
        Some((thread, switches_of_a_sleeper(&status)?))
    };
    threads.into_iter().map(switches).collect()
}

fn switches_of_a_sleeper(status: &str) -> Option<u64> {
    let number = |name: &str| value(status, name)?.parse::<u64>().ok();
    let sleeps = value(status, "State")?.starts_with('S');
    sleeps.then_some(number("voluntary_ctxt_switches")? + number("nonvoluntary_ctxt_switches")?)
}

pub(crate) fn name(pid: u32) -> Option<String> {
    value_in(&format!("/proc/{pid}/status"), "Name")
}

pub(crate) fn children(parent: u32) -> BTreeSet<u32> {
    let is_child = |pid: &u32| field(&format!("/proc/{pid}/stat"), 4) == Some(parent.into());
    numbers("/proc").into_iter().filter(is_child).collect()
}

/// The children of `root`, their children, and so on.
pub(crate) fn descendants(root: u32) -> Vec<u32> {
    let mut children: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    for pid in numbers("/proc") {
        if let Some(parent) = field(&format!("/proc/{pid}/stat"), 4) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let mut left = vec![root];
    let mut found = BTreeSet::new();
    while let Some(parent) = left.pop() {
        let its = children.remove(&parent.into()).unwrap_or_default();
        found.extend(&its);
        left.extend(its);
    }
    found.into_iter().collect()
}

/// All threads that belong to the kernel.
pub(crate) fn kernel_threads() -> Vec<u32> {
    let is_kernel = |pid: &u32| {
        field(&format!("/proc/{pid}/stat"), 9).is_some_and(|flags| flags & PF_KTHREAD != 0)
    };
    numbers("/proc").into_iter().filter(is_kernel).collect()
}

/// Clock ticks of every process except kernel threads and the processes in `but`. A process's ticks
/// include those of ended children that it waited for, so no ticks are lost when a process ends.
pub(crate) fn ticks(but: &[u32]) -> BTreeMap<u32, u64> {
    let ticks = |pid: u32| {
        let fields = fields(&format!("/proc/{pid}/stat"))?;
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        if number(9)? & PF_KTHREAD != 0 {
            return None;
        }
        Some((pid, number(14)? + number(15)? + number(16)? + number(17)?))
    };
    let others = numbers("/proc")
        .into_iter()
        .filter(|pid| !but.contains(pid));
    others.filter_map(ticks).collect()
}

/// Time of all CPUs since boot, in clock ticks, for each state in /proc/stat: user, nice, system,
/// idle, iowait, irq, softirq, steal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Machine([u64; 8]);

/// Indices in [`Machine`].
const IDLE: [usize; 2] = [3, 4];
const STEAL: usize = 7;

impl Machine {
    /// Time in which CPUs were neither idle nor waiting for a disk.
    pub(crate) fn busy(&self) -> u64 {
        let waits = IDLE.iter().map(|&state| self.0[state]).sum::<u64>();
        self.total() - waits
    }

    /// All time except what a hypervisor took.
    pub(crate) fn total(&self) -> u64 {
        self.0[..STEAL].iter().sum()
    }

    /// Time that a hypervisor took.
    pub(crate) fn stolen(&self) -> u64 {
        self.0[STEAL]
    }

    /// The time since `before`. None if a counter went backwards, because no part of the sum is
    /// known then: idle time goes backwards when a CPU goes offline, and stolen time when a virtual
    /// machine migrates. A decrease of a few ticks is due to the kernel's rounding.
    pub(crate) fn since(&self, before: &Machine) -> Option<Machine> {
        const ROUNDING: u64 = 10;
        let mut states = [0; 8];
        for (state, of) in states.iter_mut().enumerate() {
            let (now, then) = (self.0[state], before.0[state]);
            if then > now + ROUNDING {
                return None;
            }
            *of = now.saturating_sub(then);
        }
        Some(Machine(states))
    }
}

/// The machine's clock ticks since boot.
pub(crate) fn machine_ticks() -> Option<Machine> {
    parse_machine(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_machine(stat: &str) -> Option<Machine> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line
        .split_ascii_whitespace()
        .filter_map(|field| field.parse().ok())
        .collect();
    // Guest time, the next field, is part of user time.
    Some(Machine(*ticks.first_chunk()?))
}

/// Clock ticks per second, as /proc counts them.
pub(crate) fn ticks_per_second() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_busy_when_not_idle_and_not_waiting() {
        let machine = parse_machine("cpu  10 20 30 400 50 6 7 8 9 0\ncpu0 1 2 3\n").unwrap();
        assert_eq!(
            [machine.busy(), machine.total(), machine.stolen()],
            [73, 523, 8]
        );
        assert_eq!(parse_machine("intr 1"), None);
    }

    #[test]
    fn time_that_went_backwards_is_not_known() {
        let at = |idle, steal| Machine([100, 0, 0, idle, 0, 0, 0, steal]);
        let since = |now: Machine, before| now.since(&before).map(|it| (it.total(), it.stolen()));
        assert_eq!(since(at(80, 20), at(0, 0)), Some((80, 20)));
        assert_eq!(since(at(1000, 20), at(9000, 0)), None, "a CPU went offline");
        assert_eq!(since(at(1000, 0), at(0, 500)), None);
        assert_eq!(since(at(999, 20), at(1000, 0)), Some((0, 20)), "rounding");
    }

    #[test]
    fn only_sleepers_rest() {
        let status = |state: &str| {
            format!(
                "Name:\tx\nState:\t{state}\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t2\n"
            )
        };
        assert_eq!(switches_of_a_sleeper(&status("S (sleeping)")), Some(9));
        assert_eq!(switches_of_a_sleeper(&status("R (running)")), None);
        assert_eq!(
            sleeping_threads(std::process::id()),
            None,
            "this thread runs"
        );
    }

    #[test]
    fn this_process_has_a_start_threads_and_time() {
        let me = std::process::id();
        assert!(started(me).is_some() && cpu_ticks(me).is_some());
        assert!(process_threads(me).contains(&me));
        assert!(!kernel_threads().contains(&me));
    }
}
