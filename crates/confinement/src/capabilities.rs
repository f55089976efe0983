//! Capabilities of the calling thread and of all threads it creates.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// Needed to change the user.
pub const CHANGE_USER: CapabilitySet = CapabilitySet::SETUID.union(CapabilitySet::SETGID);

/// Needed for real-time workers.
pub const SYS_NICE: CapabilitySet = CapabilitySet::SYS_NICE;

/// Drops all capabilities that are not `wanted`, and returns those that are left.
///
/// # Errors
/// Returns the errors of capset(2).
pub fn keep(wanted: CapabilitySet) -> Result<CapabilitySet, Errno> {
    let had = capabilities(None)?.permitted;
    let left = had & wanted;
    // Kernels before 4.3 have no ambient set to clear.
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

/// Needed by root's companion, because launches may read files of any owner.
pub const READ_ANY: CapabilitySet = CapabilitySet::DAC_READ_SEARCH;
