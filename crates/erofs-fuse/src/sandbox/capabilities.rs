//! Capabilities of the calling thread and of all that it makes.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities,
};

/// Drops all but CAP_SYS_NICE, and that too unless it is wanted. Returns the names of those
/// that are left.
pub(super) fn keep(sys_nice: bool) -> Result<Vec<&'static str>, Errno> {
    let had = capabilities(None)?.permitted;
    let wanted = match sys_nice {
        true => CapabilitySet::SYS_NICE,
        false => CapabilitySet::empty(),
    };
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
    Ok(if left.is_empty() {
        Vec::new()
    } else {
        vec!["sys_nice"]
    })
}
