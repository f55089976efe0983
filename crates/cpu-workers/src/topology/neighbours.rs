//! Which CPUs share a last-level cache, so that helpers are chosen near their caller first.

use std::collections::BTreeSet;
use std::fs;

/// The CPUs which share the last-level cache of `cpu`, from sysfs; `None` if it has no entry.
fn cache_siblings(cpu: usize) -> Option<BTreeSet<usize>> {
    let caches = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
    let level = |index: &usize| -> Option<u32> {
        let text = fs::read_to_string(format!("{caches}/index{index}/level")).ok()?;
        text.trim().parse().ok()
    };
    // No machine has more than the indices 0 to 4: two first levels and three others.
    let last = (0..8)
        .take_while(|index| level(index).is_some())
        .max_by_key(level)?;
    sys::cpu_list::read(format!("{caches}/index{last}/shared_cpu_list"))
}

/// All CPUs below `possible` but `cpu`, those which share its last-level cache first; within each
/// group the next higher number first, so that callers on different CPUs ask different helpers.
pub(crate) fn by_distance(cpu: usize, possible: usize) -> Box<[usize]> {
    order(cpu, possible, &cache_siblings(cpu).unwrap_or_default())
}

fn order(cpu: usize, possible: usize, near: &BTreeSet<usize>) -> Box<[usize]> {
    let others = (1..possible).map(|step| (cpu + step) % possible);
    let (mut order, far): (Vec<usize>, Vec<usize>) = others.partition(|other| near.contains(other));
    order.extend(far);
    order.into()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn cpus_of_the_same_cache_come_first_and_the_next_number_before_lower_ones() {
        let near = BTreeSet::from([0, 1, 2, 3]);
        assert_eq!(*order(2, 8, &near), [3, 0, 1, 4, 5, 6, 7]);
        assert_eq!(
            *order(6, 8, &BTreeSet::from([4, 5, 6, 7])),
            [7, 4, 5, 0, 1, 2, 3]
        );
        assert_eq!(*order(1, 4, &BTreeSet::new()), [2, 3, 0]);
        assert_eq!(*order(0, 1, &near), []);
    }

    #[test]
    fn a_cpu_shares_its_own_cache() {
        match cache_siblings(0) {
            Some(siblings) => assert!(siblings.contains(&0)),
            None => println!("skipped: sysfs does not describe the caches"),
        }
    }
}
