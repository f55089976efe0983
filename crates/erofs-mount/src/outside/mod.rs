//! Finds the processes of a mount for the commands. Only evidence that no other user can fabricate
//! counts.

mod connection;
mod family;
mod helpers;
mod process;
mod record;

pub(crate) use connection::{only_holder, stopped_holder};
pub(crate) use family::{Family, Look};
pub(crate) use helpers::{HelperProcess, helper_of, helpers_of, server_of};
pub(crate) use record::MountRecord;
