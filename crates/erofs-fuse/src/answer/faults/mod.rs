//! Logs each fault of the image once, and counts its repetitions.
//!
//! A serving thread that meets a fault records it in a [table], under a lock with priority
//! inheritance, and continues. A separate thread at normal priority [finds](find_path) the path of
//! the file and writes to the [log](crate::log), so a log that is slow, full or gone delays no
//! request.

mod entry;
mod fault;
mod find_path;
mod rate;
mod recorder;
mod report;
mod table;

pub(crate) use recorder::FaultRecorder;
pub(crate) use report::FaultFigures;
