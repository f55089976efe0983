//! The images of the suite, which are made once from installed software and kept for the next run.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;
use serde::{Deserialize, Serialize};

use super::part::Part;
use super::tree::Tree;
use crate::error::Doing;
use crate::launch::command_at;
use crate::process::{Child, in_path, output, tool};
use crate::{Interrupt, LabError, Result};

/// Version of the images' layout; images with another version are made anew.
const LAYOUT: u32 = 2;
/// Time limit of mkfs.erofs, which compresses about 20 MB per second.
const LONGEST: std::time::Duration = std::time::Duration::from_secs(900);
/// The options that the documentation recommends for launches. The time stamp is not in 1970, since
/// some tools refuse files from that year.
const MKFS: [&str; 5] = [
    "--quiet",
    "-zlz4hc",
    "-C65536",
    "-T1700000000",
    "--all-root",
];

/// An image and the command that is launched from it.
#[derive(Debug)]
pub(super) struct SuiteImage {
    pub(super) path: PathBuf,
    /// The command; empty for a tree, which is read rather than launched.
    pub(super) command: Vec<String>,
}

impl SuiteImage {
    /// Whether the image is the root directory of the program.
    pub(super) fn is_root(&self) -> bool {
        is_root(&self.command)
    }
}

fn is_root(command: &[String]) -> bool {
    !command.iter().any(|word| word.contains("{}"))
}

/// The content of the file that is written beside an image once the image is complete.
#[derive(Debug, Serialize, Deserialize)]
struct Mark {
    layout: u32,
    command: Vec<String>,
}

/// The directory in which images are kept, unless the user names another.
pub(super) fn default_directory() -> PathBuf {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    let cache = cache.filter(|path| path.is_absolute()).or_else(home);
    cache
        .unwrap_or_else(|| PathBuf::from("/var/tmp"))
        .join("erofast-suite")
}

/// Checks the owner and mode of the directory, since commands that are kept there are run.
///
/// # Errors
/// Fails if the directory belongs to another user, or if every user may write to it.
pub(super) fn check_directory(directory: &Path) -> Result<()> {
    let status = fs::metadata(directory).doing("looking at", directory)?;
    let place = directory.display();
    let why = match status.uid() == geteuid().as_raw() {
        false => format!("belongs to user {}", status.uid()),
        true if status.mode() & 0o002 != 0 => "can be written by every user".to_owned(),
        true => return Ok(()),
    };
    let line = format!("lab suite: {place}: {why}; commands in it would be run as this user");
    Err(LabError::Usage(line))
}

/// Finds or makes the image of a part, below `directory`. The inner error says why the image cannot
/// be made on this machine.
pub(super) fn take_or_make(
    directory: &Path,
    part: &Part,
    interrupt: &Interrupt,
) -> Result<std::result::Result<SuiteImage, String>> {
    let name = part.name;
    let path = directory.join(format!("{name}.erofs"));
    let mark = directory.join(format!("{name}.json"));
    if let Some(command) = known(&path, &mark) {
        return Ok(Ok(SuiteImage { path, command }));
    }
    let tree = directory.join(format!("{name}.tree"));
    let _ = fs::remove_dir_all(&tree);
    let command = fill(&tree, part);
    let made = match &command {
        Ok(_) => mkfs(&tree, &path, interrupt),
        Err(_) => Ok(()),
    };
    let _ = fs::remove_dir_all(&tree);
    made?;
    let command = match command {
        Ok(command) => command,
        Err(reason) => return Ok(Err(reason.to_string())),
    };
    let text = serde_json::to_vec(&Mark {
        layout: LAYOUT,
        command: command.clone(),
    });
    fs::write(&mark, text.unwrap_or_default()).doing("writing", &mark)?;
    Ok(Ok(SuiteImage { path, command }))
}

fn known(path: &Path, mark: &Path) -> Option<Vec<String>> {
    let mark: Mark = serde_json::from_slice(&fs::read(mark).ok()?).ok()?;
    (mark.layout == LAYOUT && path.is_file()).then_some(mark.command)
}

/// Fills the tree and checks that its program runs with the tree as root directory.
fn fill(root: &Path, part: &Part) -> io::Result<Vec<String>> {
    let tree = Tree::new(root.to_owned())?;
    let command = (part.collect)(&tree)?;
    if command.is_empty() {
        return Ok(command);
    }
    let words: Vec<OsString> = command.iter().map(OsString::from).collect();
    let words = command_at(&words, is_root(&command), root);
    let alone = |why| io::Error::other(format!("it cannot run from a separate tree: {why}"));
    output(Command::new(&words[0]).args(&words[1..])).map_err(alone)?;
    Ok(command)
}

fn mkfs(tree: &Path, image: &Path, interrupt: &Interrupt) -> Result<()> {
    if in_path("mkfs.erofs").is_none() {
        let missing = "lab suite: mkfs.erofs is not installed (Debian package: erofs-utils)";
        return Err(LabError::Usage(missing.into()));
    }
    let part = image.with_extension("part");
    let what = format!("lab suite: mkfs.erofs {}", image.display());
    let mut mkfs = tool("mkfs.erofs");
    let made = Child::finish(
        &what,
        mkfs.args(MKFS).arg(&part).arg(tree),
        LONGEST,
        interrupt,
    );
    if made.is_err() {
        let _ = fs::remove_file(&part);
    }
    made?;
    fs::rename(&part, image).doing("renaming", &part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn commands_that_another_user_could_have_written_are_not_run() {
        let place = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let directory = place.path().join("suite");
        fs::create_dir(&directory).unwrap();
        check_directory(&directory).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o1777)).unwrap();
        let error = check_directory(&directory).unwrap_err().to_string();
        assert!(
            error.contains("suite: can be written by every user"),
            "{error}"
        );
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        if chown(&directory, Some(65534), None).is_err() {
            return println!("skipped: only root can give a directory to another user");
        }
        let error = check_directory(&directory).unwrap_err().to_string();
        assert!(error.contains("suite: belongs to user 65534"), "{error}");
    }
}
