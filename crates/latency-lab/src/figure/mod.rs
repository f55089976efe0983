//! The measurements of an experiment, in the form shared by tables, charts, comparisons and
//! exports.

mod groups;
mod names;
mod words;

pub(crate) use names::{label, numbers, stored};
pub(crate) use words::{amount, count, judged, medians, percent, tally, verdict};

use crate::statistics::{Comparison, Summary, compare};

/// A measured quantity or a test, with the samples of each row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// "launch time".
    pub(crate) name: String,
    /// What the figure measures, if the name alone does not say it.
    pub(crate) of: &'static str,
    /// Unit of the samples.
    pub(crate) unit: String,
    /// The rows; each is compared with the first one.
    pub(crate) rows: Vec<Row>,
}

/// The samples of an engine, or of a way to get buffers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// Samples in the order of the run; empty if any is unknown.
    pub(crate) samples: Vec<f64>,
    pub(crate) against_first: Option<Comparison>,
}

/// Compares each row with the first one, if both have samples.
pub(crate) fn compared(rows: impl Iterator<Item = (String, Vec<f64>)>) -> Vec<Row> {
    let mut all: Vec<Row> = Vec::new();
    for (name, samples) in rows {
        let first = all.first().map(|row| &row.samples);
        let first = first.filter(|first| !first.is_empty() && !samples.is_empty());
        all.push(Row {
            name,
            against_first: first.map(|first| compare(first, &samples)),
            samples,
        });
    }
    all
}

/// All comparisons of these figures, for the correction for the number of comparisons.
pub(crate) fn comparisons(figures: &mut [Figure]) -> impl Iterator<Item = &mut Comparison> {
    let rows = figures.iter_mut().flat_map(|figure| &mut figure.rows);
    rows.filter_map(|row| row.against_first.as_mut())
}

/// The figures that have samples, as a report shows them: without claims if the run is not valid.
pub(crate) fn shown(mut figures: Vec<Figure>, valid: bool) -> Vec<Figure> {
    figures.retain(|figure| figure.rows.iter().any(|row| !row.samples.is_empty()));
    let rows = figures.iter_mut().flat_map(|figure| &mut figure.rows);
    rows.filter(|_| !valid)
        .for_each(|row| row.against_first = None);
    figures
}

impl Row {
    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}
