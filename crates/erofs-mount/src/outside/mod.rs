//! The processes of a mount, as the commands find them: only what no other user can fabricate
//! counts as evidence.

mod connection;
mod family;
mod helpers;
mod process;
mod record;

pub(crate) use connection::{only_holder, stopped_holder};
pub(crate) use family::{Family, Look};
pub(crate) use helpers::{HelperProcess, helpers_of, server_of};
pub(crate) use record::MountRecord;
