//! Makes one mount and removes it: as root through system calls, otherwise through fusermount3.
//!
//! Only the mount that was made here is unmounted, whatever is at its path by then ([`Mounted`]).
//! Likewise, `erofast umount` unmounts exactly the mount that it examined ([`located`]). A mount
//! that the caller made ([`passed`]) is neither mounted nor unmounted here.

mod connection;
mod direct;
mod enable_uring;
mod expected;
mod fusermount;
mod identity;
mod located;
mod mount;
mod mounted;
pub(crate) mod passed;
mod place;
mod plan;
pub(crate) mod read_ahead;
mod table;
mod turn;
mod umount;
mod users;

pub(crate) use connection::{Connection, abort_file};
pub(crate) use enable_uring::{EnableUringGuard, EnableUringRestorer};
pub(crate) use expected::ExpectedMount;
pub(crate) use mount::mount;
pub(crate) use mounted::{Made, Mounted};
pub use place::{erofast_mount_at, mountpoint_of};
pub(crate) use place::{mounts_at, top_mount};
pub(crate) use table::{
    Entry as TableEntry, answer_within, cgroup_folder, covered_notice, device_number, no_thread,
    own as own_mounts, read as read_table, read_from as read_table_from, status,
};
pub use table::{mountpoints, mounts_of_others};
pub(crate) use turn::Turn;
pub(crate) use umount::{is_in_use, umount, unmount_dead};
