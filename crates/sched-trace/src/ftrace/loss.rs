//! The `per_cpu/cpu*/stats` files of tracefs, which trace.dat also stores.

/// Events of one CPU that the kernel wrote but the trace lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Loss {
    /// The CPU, if the file names it, as trace.dat does.
    pub cpu: Option<u32>,
    /// The oldest events, which newer ones replaced.
    pub overwritten: u64,
    /// Events that the kernel failed to commit, or dropped.
    pub dropped: u64,
    /// Events in the buffer, plus those read from it earlier.
    pub kept: u64,
}

impl Loss {
    /// Parses the lines `name: number`.
    pub fn of(stats: &str) -> Self {
        let mut loss = Self::default();
        for (name, value) in stats.lines().filter_map(|line| line.split_once(':')) {
            let Ok(value) = value.trim().parse::<u64>() else {
                continue;
            };
            match name.trim() {
                "CPU" => loss.cpu = u32::try_from(value).ok(),
                "entries" | "read events" => loss.kept = loss.kept.saturating_add(value),
                "overrun" => loss.overwritten = value,
                "commit overrun" | "dropped events" => {
                    loss.dropped = loss.dropped.saturating_add(value);
                }
                _ => {}
            }
        }
        loss
    }

    /// The sum of all losses.
    pub fn total(self) -> u64 {
        self.overwritten.saturating_add(self.dropped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwritten_events_are_told_from_lost_ones() {
        let stats = "CPU: 3\nentries: 12\noverrun: 5\ncommit overrun: 1\nbytes: 480\n\
                     oldest event ts:  1.5\nnow ts: 2.5\ndropped events: 2\nread events: 9\n";
        let loss = Loss::of(stats);
        assert_eq!((loss.cpu, loss.overwritten, loss.dropped), (Some(3), 5, 3));
        assert_eq!(loss.kept, 12 + 9);
        assert_eq!(loss.total(), 8);
    }

    #[test]
    fn counts_of_lost_events_saturate() {
        let stats = format!("overrun: {}\ndropped events: 2\n", u64::MAX);
        assert_eq!(Loss::of(&stats).total(), u64::MAX);
    }
}
