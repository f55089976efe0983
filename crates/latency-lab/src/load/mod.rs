//! The load that runs in the background of measurements, and the check that it reached its share.

mod burn;
mod file;
mod fio;
mod running;

pub use burn::{LoadReport, Moment, Spent};
pub use fio::missing_fio;
pub use running::Load;

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::scratch::ON_DISK;
use crate::{Interrupt, Progress, Result};

/// The load to run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum LoadChoice {
    /// fio: jobs that sort on every CPU, and a direct random reader.
    #[default]
    Fio,
    /// No load.
    None,
    /// A shell command line, which must run as long as the experiment does.
    Line(String),
}

/// Starts the chosen load, and waits until fio reaches its share. fio's random reader reads a file
/// below `scratch`, or a disk; it never writes.
pub fn start(
    choice: &LoadChoice,
    (scratch, keep_file): (Option<&Path>, bool),
    disk: Option<&Path>,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<Option<Load>> {
    match choice {
        LoadChoice::None => return Ok(None),
        LoadChoice::Line(line) => return Load::of_line(line).map(Some),
        LoadChoice::Fio => {}
    }
    if let Some(missing) = missing_fio() {
        return Err(missing);
    }
    let scratch = scratch.unwrap_or(Path::new(ON_DISK));
    let file = match disk {
        Some(disk) => file::disk(disk),
        None => file::make(scratch, keep_file, interrupt, progress)?,
    };
    fio::start(file, interrupt, progress).map(Some)
}

impl fmt::Display for LoadChoice {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            LoadChoice::Fio => "fio",
            LoadChoice::None => "none",
            LoadChoice::Line(line) => line,
        })
    }
}

impl From<&str> for LoadChoice {
    fn from(name: &str) -> Self {
        match name {
            "fio" => LoadChoice::Fio,
            "none" => LoadChoice::None,
            line => LoadChoice::Line(line.into()),
        }
    }
}
