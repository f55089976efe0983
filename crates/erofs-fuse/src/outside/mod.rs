//! The processes of a mount, as the commands find them: evidence is only what no other user can
//! make.

mod helpers;
mod process;

pub(crate) use helpers::{HelperProcess, helpers_of, server_of};
