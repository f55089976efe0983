//! `erofast upgrade`: replaces the server of a mount with a server of the program that is now
//! installed.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::mounting::{self, TableEntry};
use crate::outside::{self, HelperProcess};
use crate::stat::stat;
use erofs_fuse::error::Error;
use erofs_fuse::request::FSTYPE;

/// How long a mount helper may take to begin an upgrade.
const BEGIN: Duration = Duration::from_secs(15);

/// How long an upgrade may take: longer than the mount helper waits for a new server.
const END: Duration = Duration::from_secs(90);

/// How long the upgrades of all mounts of a user may take; they run at the same time. This limits
/// how long a user's processes can keep this process waiting.
const ALL: Duration = Duration::from_secs(120);

/// Interval between checks for the outcome.
const INTERVAL: Duration = Duration::from_millis(20);

/// Maximum number of characters of a reason that are shown: reasons come from a process of the user
/// who mounted.
const REASON_CHARS: usize = 2500;

/// How the upgrade of one mount ended.
#[derive(Debug)]
pub struct Upgraded {
    /// The mount, as the caller or the mount table named it.
    pub mountpoint: PathBuf,
    /// The error is one line: the path is not an erofast mount, its server cannot be replaced, or
    /// the new server did not start and the old one still serves.
    pub outcome: Result<(), Error>,
    /// Whether a failure makes the command fail. A failure of another user's mount does not, unless
    /// the caller named that mount, because any user can make a mount that looks like erofast's and
    /// cannot be upgraded.
    pub counts: bool,
}

/// Makes the mount helpers of these mounts start the program that is now installed, which takes
/// over the mounts. Returns the outcomes in order, once the new servers serve. A server that does
/// not answer is replaced too.
pub fn upgrade_each(mountpoints: &[PathBuf]) -> Vec<Upgraded> {
    let mounts = mountpoints
        .iter()
        .map(|path| (path.clone(), Mount::at(path)));
    upgrade_mounts(mounts.collect())
}

/// Upgrades all mounts of this user, or of all users as root, including those that this mount
/// namespace has only as layers of overlays. A mount that is unmounted meanwhile is not a failure.
///
/// # Errors
/// Returns a one-line error if the mount table cannot be read.
pub fn upgrade_all() -> Result<Vec<Upgraded>, Error> {
    let table = mounting::own_mounts()?;
    let hidden = hidden_mounts(&table);
    let listed = table
        .into_iter()
        .map(|entry| Mount::new(entry.mountpoint.clone(), entry, false));
    let mounts = listed.chain(hidden);
    Ok(upgrade_mounts(
        mounts
            .map(|mount| (mount.path.clone(), Ok(mount)))
            .collect(),
    ))
}

/// Mounts of this user that have no path but are still in use, for example as layers of an overlay.
fn hidden_mounts(table: &[TableEntry]) -> Vec<Mount> {
    let user = rustix::process::getuid().as_raw();
    // A user whose processes cannot be searched counts as having no helpers.
    let helpers = outside::helpers_of(user).unwrap_or_default();
    let is_listed = |device: &str| table.iter().any(|entry| entry.device == device);
    let hidden = helpers.iter().filter(|helper| {
        !is_listed(helper.device())
            && helper.offers_upgrades()
            && helper.is_in_this_namespace()
            && mounting::is_in_use(helper.device())
    });
    let mut devices = HashSet::new();
    let mounts = hidden.filter(|helper| devices.insert(helper.device()));
    let mounts = mounts.map(|helper| Mount {
        path: format!("(at no path, device {})", helper.device()).into(),
        device: helper.device().to_owned(),
        user: Some(user),
        id: None,
        named: false,
    });
    mounts.collect()
}

/// A mount to upgrade.
struct Mount {
    /// The path, as the caller or the mount table named it.
    path: PathBuf,
    /// `MAJOR:MINOR` of the filesystem.
    device: String,
    /// The user who mounted.
    user: Option<u32>,
    /// ID in the mount table, if it is listed.
    id: Option<u64>,
    /// Whether the caller named the mount, and so must be told if it is gone.
    named: bool,
}

impl Mount {
    fn new(path: PathBuf, entry: TableEntry, named: bool) -> Self {
        Self {
            path,
            device: entry.device,
            user: entry.user_id,
            id: Some(entry.id),
            named,
        }
    }

    fn at(path: &Path) -> Result<Self, Error> {
        let path = path.to_owned();
        match mounting::top_mount(&path)? {
            Some(entry) if entry.fstype == FSTYPE => Ok(Self::new(path, entry, true)),
            _ => {
                let why = "not the mount point of an erofast mount";
                Err(Error::mountpoint(&path, why))
            }
        }
    }

    /// Whether there is nothing left to upgrade.
    fn is_gone(&self) -> bool {
        let Some(id) = self.id else {
            return !mounting::is_in_use(&self.device);
        };
        let is_there = |mounts: Vec<TableEntry>| mounts.iter().any(|it| it.id == id);
        !self.named && mounting::own_mounts().is_ok_and(|mounts| !is_there(mounts))
    }

    /// Whether a failure of this mount's upgrade makes the command fail.
    fn counts(&self) -> bool {
        self.named || self.user == Some(rustix::process::getuid().as_raw())
    }

    fn cannot(&self, error: &Error) -> Error {
        Error::mountpoint(&self.path, format!("cannot be upgraded: {error}"))
    }

    /// Asks the mount helper for an upgrade. Returns the helper, and the number of its previous
    /// upgrade.
    fn begin<'h>(
        &self,
        helpers: &'h Result<Vec<HelperProcess>, Error>,
    ) -> Result<(&'h HelperProcess, u64), Error> {
        let helpers = helpers.as_ref().map_err(|error| self.cannot(error))?;
        let helper = HelperProcess::for_mount(helpers, &self.device);
        let Some(helper) = helper.filter(|helper| helper.offers_upgrades()) else {
            return Err(self.reason(helper));
        };
        let before = helper.begin().map_err(|error| self.cannot(&error))?;
        Ok((helper, before))
    }

    /// The reason why no helper can be asked.
    fn reason(&self, helper: Option<&HelperProcess>) -> Error {
        let own = rustix::process::getuid();
        if let Some(user) = self
            .user
            .filter(|user| !own.is_root() && *user != own.as_raw())
        {
            let why = format!("mounted by user {user}: only that user and root can upgrade it");
            return Error::mountpoint(&self.path, why);
        }
        let why = match stat(&self.path) {
            Err(error) => return error,
            Ok(counters) => match counters["restart"]["reason"].as_str() {
                Some(reason) => reason.to_owned(),
                None if helper.is_some() => "its server cannot be replaced".to_owned(),
                None => WITHOUT_RECORD.to_owned(),
            },
        };
        self.cannot(&Error::Server(why))
    }

    /// The outcome of an upgrade requested at time `since`; `None` while there is none.
    fn outcome(
        &self,
        helper: &HelperProcess,
        before: u64,
        since: Duration,
    ) -> Option<Result<(), Error>> {
        let cannot = |error: Error| self.cannot(&error);
        match helper.outcome(before).map_err(cannot) {
            Err(error) => Some(Err(error)),
            Ok(Some(Ok(()))) => Some(Ok(())),
            Ok(Some(Err(why))) => {
                let why: String = why.chars().take(REASON_CHARS).collect();
                let why = format!("not upgraded: {why}; the old server keeps serving");
                Some(Err(Error::mountpoint(&self.path, why)))
            }
            Ok(None) => {
                let has_begun = helper.begun().is_ok_and(|begun| begun > before);
                let is_late = since > if has_begun { END } else { BEGIN };
                is_late.then(|| {
                    let why = format!(
                        "not upgraded: {}; it will be upgraded when that process continues",
                        helper.why_silent()
                    );
                    Err(Error::mountpoint(&self.path, why))
                })
            }
        }
    }
}

/// The reason why a mount cannot be upgraded although its server reports that it can be replaced.
const WITHOUT_RECORD: &str = "its mount helper cannot be found or is not trusted (it was started \
                              in another PID namespace, or by a set-user-ID program): mount again";

/// Upgrades mounts, and returns the outcomes in order. Each user's mounts get a separate thread,
/// because a user's processes can delay the search for that user's mounts, but must not delay
/// others.
fn upgrade_mounts(mounts: Vec<(PathBuf, Result<Mount, Error>)>) -> Vec<Upgraded> {
    let deadline = Instant::now() + ALL;
    let mut upgraded = Vec::new();
    let mut users: BTreeMap<Option<u32>, Vec<(usize, Mount)>> = BTreeMap::new();
    for (number, (mountpoint, mount)) in mounts.into_iter().enumerate() {
        let counts = mount.as_ref().map_or(true, Mount::counts);
        let outcome = match mount {
            Ok(mount) => {
                users.entry(mount.user).or_default().push((number, mount));
                let why = "not upgraded: the processes of its user do not answer";
                Err(Error::mountpoint(&mountpoint, why))
            }
            Err(error) => Err(error),
        };
        upgraded.push(Upgraded {
            mountpoint,
            outcome,
            counts,
        });
    }
    let (sender, receiver) = mpsc::channel();
    for (user, mounts) in users {
        let sender = sender.clone();
        let numbers: Vec<usize> = mounts.iter().map(|(number, _)| *number).collect();
        let upgrade = move || {
            upgrade_mounts_of(user, &mounts, |number, outcome| {
                // Sending fails only after the time limit.
                let _ = sender.send((number, outcome));
            });
        };
        if let Err(error) = thread::Builder::new().spawn(upgrade) {
            let why = format!("not upgraded: {}", mounting::no_thread(&error));
            for number in numbers {
                let upgraded: &mut Upgraded = &mut upgraded[number];
                upgraded.outcome = Err(Error::mountpoint(&upgraded.mountpoint, &*why));
            }
        }
    }
    drop(sender);
    let left = || deadline.saturating_duration_since(Instant::now());
    while let Ok((number, outcome)) = receiver.recv_timeout(left()) {
        upgraded[number].outcome = outcome;
    }
    upgraded
}

/// Requests all upgrades, then waits; passes each outcome on with its number.
fn upgrade_mounts_of(
    user: Option<u32>,
    mounts: &[(usize, Mount)],
    mut ended: impl FnMut(usize, Result<(), Error>),
) {
    let helpers = user.map_or_else(|| Ok(Vec::new()), outside::helpers_of);
    let begin = Instant::now();
    let mut end = |number: usize, mount: &Mount, outcome: Result<(), Error>| {
        let is_gone = outcome.is_err() && mount.is_gone();
        ended(number, if is_gone { Ok(()) } else { outcome });
    };
    let mut asked = Vec::new();
    for (number, mount) in mounts {
        match mount.begin(&helpers) {
            Ok((helper, before)) => asked.push((*number, mount, helper, before)),
            Err(error) => end(*number, mount, Err(error)),
        }
    }
    while !asked.is_empty() {
        asked.retain(|(number, mount, helper, before)| {
            match mount.outcome(helper, *before, begin.elapsed()) {
                Some(outcome) => {
                    end(*number, mount, outcome);
                    false
                }
                None => true,
            }
        });
        thread::sleep(INTERVAL);
    }
}
