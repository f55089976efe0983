//! Landlock: limits the files that can be opened, and forbids TCP.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use landlock::{
    ABI, Access, AccessNet, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

pub use landlock::{AccessFs, BitFlags};

/// The newest ABI whose rights can all be dropped here. Older kernels know fewer rights.
const NEWEST: ABI = ABI::V7;

/// The version of the interface that is requested from the kernel.
pub const NEWEST_VERSION: i32 = NEWEST as i32;

/// What Landlock restricts in this process.
#[derive(Clone, Copy, Debug)]
pub struct Landlock {
    /// Version of the kernel's interface.
    pub version: i32,
    /// Whether the kernel knows every right that is dropped.
    pub complete: bool,
}

/// A file or directory, and the kinds of access that are allowed to it and to everything below it.
pub type Rule = (OwnedFd, BitFlags<AccessFs>);

/// Creates a rule for each of these paths that exists.
pub fn beneath(paths: &[(&Path, BitFlags<AccessFs>)]) -> Vec<Rule> {
    let rules = paths.iter().filter_map(|(path, access)| {
        let place = PathFd::new(path).ok()?;
        Some((place.as_fd().try_clone_to_owned().ok()?, *access))
    });
    rules.collect()
}

/// Restricts the calling thread and those it creates to what the rules allow.
///
/// # Errors
/// Returns a one-line error if the kernel lacks Landlock.
pub fn restrict_to(rules: Vec<Rule>) -> Result<Landlock, String> {
    let describe = |error: landlock::RulesetError| error.to_string();
    let mut set = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|set| set.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|set| set.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(describe)?;
    for (place, access) in rules {
        set = set
            .add_rule(PathBeneath::new(place, access))
            .map_err(describe)?;
    }
    let outcome = set.restrict_self().map_err(describe)?;
    let complete = outcome.ruleset == RulesetStatus::FullyEnforced;
    match (outcome.ruleset, outcome.landlock) {
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
        ) => Ok(Landlock {
            version: kernel_abi.unwrap_or(effective_abi as i32),
            complete,
        }),
        (_, LandlockStatus::NotEnabled) => Err("not enabled in this kernel".to_owned()),
        _ => Err("not in this kernel".to_owned()),
    }
}
