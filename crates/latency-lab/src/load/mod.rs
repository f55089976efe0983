//! The background load of measurements, and the check that it reached its share.

mod burn;
mod file;
mod fio;

pub use burn::{LoadReport, Moment, Spent};
pub use fio::Fio;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::LabError;

/// Which load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LoadChoice {
    /// fio: sorting burners on every CPU and a direct random reader.
    #[default]
    Fio,
    /// No load.
    None,
}

impl fmt::Display for LoadChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            LoadChoice::Fio => "fio",
            LoadChoice::None => "none",
        })
    }
}

impl FromStr for LoadChoice {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        match name {
            "fio" => Ok(LoadChoice::Fio),
            "none" => Ok(LoadChoice::None),
            _ => Err(LabError::Usage(format!(
                "load {name}: unknown; there are fio and none"
            ))),
        }
    }
}
