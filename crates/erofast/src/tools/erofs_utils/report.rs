//! Messages, numbers and names in the format of erofs-utils.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use erofs_engine::erofs_format::Inode;
use erofs_engine::{Engine, Error};

use crate::cli::tools::erofs_utils::TargetArgs;
use crate::tools::text;

/// Prints a line on standard error. `level` is `E`, `W` or `I`: an error, a warning or information.
pub fn message(level: char, what: impl Display) {
    let what = text::line(&what.to_string());
    let _ = io::stderr().write_all(format!("<{level}> erofs: {what}\n").as_bytes());
}

impl TargetArgs {
    /// The selected inode; `None` if neither option is given.
    pub fn find(&self, engine: &Engine) -> Result<Option<Arc<Inode>>, Error> {
        let found = match (&self.path, self.nid) {
            // As in erofs-utils, a slash may follow the name of any file.
            (Some(path), _) => {
                let end = path.as_bytes().iter().rposition(|&byte| byte != b'/');
                engine.resolve(&path.as_bytes()[..end.map_or(0, |end| end + 1)], false)
            }
            (None, Some(nid)) => engine.inode(nid),
            (None, None) => return Ok(None),
        };
        found.map(Some)
    }
}

/// The bytes of a name; on a terminal, control characters and the like are escaped.
pub fn shown(name: &[u8]) -> Vec<u8> {
    match io::stdout().is_terminal() {
        true => text::name(name).into_bytes(),
        false => name.to_vec(),
    }
}

/// `part` as a percentage of `whole`. For 0 of 0, C prints NaN with a sign.
pub fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, 0) => "-nan".to_owned(),
        (_, 0) => "inf".to_owned(),
        _ => format!("{:.2}", (part as f64 * 100.0) / whole as f64),
    }
}
