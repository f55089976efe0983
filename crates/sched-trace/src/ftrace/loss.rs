//! The `per_cpu/cpu*/stats` files of tracefs, which trace.dat stores as well.

/// Sum of the events that the kernel overwrote, failed to commit, or dropped.
pub(crate) fn lost_events(stats: &str) -> u64 {
    let values = stats.lines().filter_map(|line| line.split_once(':'));
    let lost = values
        .filter(|(name, _)| matches!(name.trim(), "overrun" | "commit overrun" | "dropped events"));
    lost.filter_map(|(_, value)| value.trim().parse::<u64>().ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_events_of_all_kinds_are_added() {
        let stats = "entries: 12\noverrun: 5\ncommit overrun: 1\nbytes: 480\n\
                     oldest event ts:  1.5\nnow ts: 2.5\ndropped events: 2\nread events: 9\n";
        assert_eq!(lost_events(stats), 8);
    }

    #[test]
    fn counts_of_lost_events_saturate() {
        let stats = format!("overrun: {}\ndropped events: 2\n", u64::MAX);
        assert_eq!(lost_events(&stats), u64::MAX);
    }
}
