//! Non-overlapping intervals of time, in order.

/// Whether any of these non-overlapping intervals overlaps the interval from `from_ns` to
/// `until_ns`.
pub(super) fn touches(all: &[(u64, u64)], from_ns: u64, until_ns: u64) -> bool {
    let at = all.partition_point(|(_, end)| *end <= from_ns);
    all.get(at).is_some_and(|(start, _)| *start < until_ns)
}

/// Merges overlapping intervals.
pub(super) fn union(mut all: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    all.sort_unstable();
    let mut union: Vec<(u64, u64)> = Vec::new();
    for (from, until) in all {
        match union.last_mut() {
            // Intervals that only touch stay separate: a thread's state may be known between them.
            Some((_, last)) if *last > from => *last = until.max(*last),
            _ => union.push((from, until)),
        }
    }
    union
}
