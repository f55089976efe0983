//! Connections to servers, shared by the images of a process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use remote_image::Options;
use reqwest::{Client, redirect};

use crate::failure::Failure;
use crate::proxy;
use crate::trust;

/// Clients, keyed by the options that matter for them.
#[derive(Debug, Default)]
pub struct Connections(RefCell<HashMap<Kind, Client>>);

#[derive(Debug, PartialEq, Eq, Hash)]
struct Kind {
    stalled: Duration,
    ca_file: Option<PathBuf>,
}

impl Connections {
    /// The client for these options.
    pub fn client(&self, options: &Options) -> Result<Client, Failure> {
        let kind = Kind {
            stalled: stalled(options),
            ca_file: options.ca_file.clone(),
        };
        let mut clients = self.0.borrow_mut();
        if let Some(client) = clients.get(&kind) {
            return Ok(client.clone());
        }
        let client = new_client(&kind)?;
        clients.insert(kind, client.clone());
        Ok(client)
    }
}

/// Maximum number of open connections to a server that are not in use. A request that is made while
/// a slow handshake is in progress opens a further connection.
const MOST_IDLE: usize = 16;

/// How long a server may be silent in the middle of an answer.
pub fn stalled(options: &Options) -> Duration {
    (options.timeout / 3).clamp(Duration::from_secs(1), Duration::from_secs(10))
}

/// Creates a client without connecting.
fn new_client(kind: &Kind) -> Result<Client, Failure> {
    Ok(proxy::client()
        .redirect(redirect::Policy::none())
        .connect_timeout(kind.stalled)
        .read_timeout(kind.stalled)
        .pool_idle_timeout(Duration::from_secs(60))
        .pool_max_idle_per_host(MOST_IDLE)
        .http2_initial_stream_window_size(2 << 20)
        .http2_initial_connection_window_size(32 << 20)
        .tls_backend_preconfigured(trust::config(kind.ca_file.as_deref())?)
        .user_agent(concat!("erofast/", env!("CARGO_PKG_VERSION")))
        .build()?)
}
