//! Capabilities of the calling thread and of all that it makes.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// What the change of user takes.
pub const CHANGE_USER: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// For real-time workers.
pub const SYS_NICE: CapabilitySet = CapabilitySet::SYS_NICE;

/// Drops all that are not `wanted`. Returns those that are left.
///
/// # Errors
/// Those of capset(2).
pub fn keep(wanted: CapabilitySet) -> Result<CapabilitySet, Errno> {
    let had = capabilities(None)?.permitted;
    let left = had & wanted;
    // Kernels before 4.3 know no ambient set, and have none to clear.
    let _ = clear_ambient_capability_set();
    set_capabilities(
        None,
        CapabilitySets {
            effective: left,
            permitted: left,
            inheritable: CapabilitySet::empty(),
        },
    )?;
    Ok(left)
}

/// What a companion of root needs to open what a launch may: files of any owner, to read.
pub const READ_ANY: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;
