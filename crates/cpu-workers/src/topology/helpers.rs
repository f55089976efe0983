//! The order in which other CPUs are asked to help: large ones first if their sizes differ, and
//! among equals those that share the caller's last-level cache.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;

use super::cpu_list;

/// The CPUs that share the last-level cache of `cpu`, from sysfs; `None` if `cpu` has no entry.
fn cache_siblings(cpu: usize) -> Option<BTreeSet<usize>> {
    let caches = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let level = |index: &usize| -> Option<u32> {
        let text = fs::read_to_string(format!("{caches}/index{index}/level")).ok()?;
        text.trim().parse().ok()
    };
    // Machines have indices 0 to 4 at most: two first-level caches and three others.
    let last = (0..8)
        .take_while(|index| level(index).is_some())
        .max_by_key(level)?;
    cpu_list::read(format!("{caches}/index{last}/shared_cpu_list"))
}

/// The capacity of `cpu`: 1024 for the largest CPUs, and for all CPUs if the kernel reports no
/// capacities because the sizes are equal.
fn capacity(cpu: usize) -> u32 {
    let text = fs::read_to_string(format!("/sys/devices/system/cpu/cpu{cpu}/cpu_capacity"));
    text.map_or(1024, |text| text.trim().parse().unwrap_or(1024))
}

/// All CPUs below `possible` except `cpu`, the largest first. Among equals, those that share its
/// last-level cache come first, and then the others in ascending order from the next higher number,
/// so that callers on different CPUs ask different helpers.
pub(crate) fn of(cpu: usize, possible: usize) -> Box<[usize]> {
    let near = cache_siblings(cpu).unwrap_or_default();
    order(cpu, possible, &near, capacity)
}

fn order(
    cpu: usize,
    possible: usize,
    near: &BTreeSet<usize>,
    capacity: impl Fn(usize) -> u32,
) -> Box<[usize]> {
    let others = (1..possible).map(|step| (cpu + step) % possible);
    let mut order: Vec<usize> = others.collect();
    order.sort_by_cached_key(|other| (Reverse(capacity(*other)), !near.contains(other)));
    order.into()
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_the_same_cache_come_first_and_the_next_number_before_lower_ones() {
        let equal = |cpu, possible, near: &[usize]| {
            let near = near.iter().copied().collect();
            order(cpu, possible, &near, |_| 1024)
        };
        assert_eq!(*equal(2, 8, &[0, 1, 2, 3]), [3, 0, 1, 4, 5, 6, 7]);
        assert_eq!(*equal(6, 8, &[4, 5, 6, 7]), [7, 4, 5, 0, 1, 2, 3]);
        assert_eq!(*equal(1, 4, &[]), [2, 3, 0]);
        assert_eq!(*equal(0, 1, &[0]), []);
    }

    #[test]
    fn large_cpus_come_before_small_ones_of_the_same_cache() {
        let capacity = |cpu| if cpu < 4 { 446 } else { 1024 };
        let near = BTreeSet::from([0, 1, 2, 3]);
        assert_eq!(*order(2, 6, &near, capacity), [4, 5, 3, 0, 1]);
        assert_eq!(*order(4, 6, &BTreeSet::new(), capacity), [5, 0, 1, 2, 3]);
    }

    #[test]
    fn a_cpu_shares_its_own_cache() {
        match cache_siblings(0) {
            Some(siblings) => assert!(siblings.contains(&0)),
            None => println!("skipped: sysfs does not describe the caches"),
        }
    }
}
