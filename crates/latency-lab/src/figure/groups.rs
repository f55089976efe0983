//! Describes samples that fall into two groups, which no single number can represent.

use super::{Figure, Row, amount};
use crate::statistics::{Modes, Summary, modes};

impl Figure {
    /// A line for each row whose samples fall into two groups, which a median hides.
    pub(crate) fn groups(&self) -> impl Iterator<Item = String> {
        let line = |row: &Row| {
            let (modes, summary) = (modes(&row.samples)?, row.summary()?);
            Some(format!(
                "{}, {}: {}",
                row.name,
                self.name,
                self.group(modes, summary)
            ))
        };
        self.rows.iter().filter_map(line)
    }

    fn group(&self, modes: Modes, summary: Summary) -> String {
        let amount = |value| amount(value, &self.unit);
        format!(
            "{} samples near {} and {} near {}; one number describes neither (average {}, maximum {})",
            modes.lower,
            amount(modes.lower_median),
            modes.upper,
            amount(modes.upper_median),
            amount(summary.average),
            amount(summary.maximum)
        )
    }
}
