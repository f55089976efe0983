//! What an experiment measured, in the form that tables, charts, comparisons and exports have in
//! common.

mod words;

pub(crate) use words::{amount, percent, tally, verdict};

use crate::statistics::{Comparison, Summary};

/// One measured quantity, or one test.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Figure {
    /// "launch time".
    pub(crate) name: String,
    /// What it is of, where the name alone does not say it.
    pub(crate) of: &'static str,
    /// Of the samples.
    pub(crate) unit: String,
    /// The first one is what the others are compared with.
    pub(crate) rows: Vec<Row>,
}

/// An engine, or a way to get buffers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// In the order of the run; none where one is unknown.
    pub(crate) samples: Vec<f64>,
    pub(crate) against_first: Option<Comparison>,
}

impl Row {
    pub(crate) fn summary(&self) -> Option<Summary> {
        Summary::of(&self.samples)
    }
}
