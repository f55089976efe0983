//! Threads of a server other than its workers.

mod on_demand;
mod spawn;

pub(crate) use on_demand::{Demand, OnDemand};
pub(crate) use spawn::{spawn, with_that_of_workers};
