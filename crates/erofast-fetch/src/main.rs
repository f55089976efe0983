//! Fetches blocks of a remote image into the cache, for `erofast` and programs that use liberofast,
//! which start it. Orders arrive over standard input, a socket; see `remote_image::message`. It
//! starts itself again to [convert] layers.
#![forbid(unsafe_code)]

mod ahead;
mod answer;
mod asking;
mod challenge;
mod client;
mod clients;
mod connections;
mod convert;
mod credentials;
mod dispatch;
mod endpoint;
mod failure;
mod fetch;
mod first_blocks;
mod given_up;
mod http;
mod launches;
mod layers;
mod link;
mod logins;
mod netrc;
mod offline;
mod opening;
mod proxy;
mod range;
mod readers;
mod registry;
mod room;
mod small_file;
mod streams;
mod trust;
mod verification;
mod waiting;
mod wanted;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;

use remote_image::message::{Identity, News, Order, receive, send};
use rustix::process::{Signal, set_parent_process_death_signal};

use fetch::{Fetch, Shared};
use wanted::Wanted;

fn main() -> ExitCode {
    if let Some(code) = convert::child::run() {
        return code;
    }
    if std::env::args_os()
        .nth(1)
        .is_some_and(|first| first == "--version")
    {
        let line = concat!("erofast-fetch ", env!("CARGO_PKG_VERSION"), "\n");
        let written = std::io::stdout().write_all(line.as_bytes());
        return written.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS);
    }
    let socket = rustix::stdio::stdin().try_clone_to_owned();
    let Some((socket, order)) = socket.ok().and_then(first) else {
        eprintln!(
            "erofast-fetch: erofast starts this program, with its requests on standard input; do \
             not run it by hand"
        );
        return ExitCode::from(2);
    };
    // If this process is stopped, it must continue when its parent dies: otherwise it would never
    // end. A failure of this call is ignored.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
    die_of_panics();
    let _ = rustls::crypto::ring::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    match runtime {
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, run(socket, order)),
        Err(error) => fail(&socket, &error.to_string(), false),
    }
}

/// Ends the process if a task panics; otherwise the range that the task was fetching would stay in
/// flight for ever. The parent restarts a dead fetcher.
fn die_of_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// The first packet from standard input, if that is a socket on which a packet has arrived.
fn first(socket: OwnedFd) -> Option<(OwnedFd, (Order, Vec<OwnedFd>))> {
    let order = receive(&socket).ok()??;
    Some((socket, order))
}

fn fail(socket: &OwnedFd, line: &str, missing: bool) -> ExitCode {
    let line = line.to_owned();
    let _ = send(socket, &News::Failed { line, missing }, &[]);
    ExitCode::FAILURE
}

/// Runs until the parent and all readers have closed their ends of the sockets.
async fn run(socket: OwnedFd, mut order: (Order, Vec<OwnedFd>)) -> ExitCode {
    let orders = match socket.try_clone().and_then(clients::packets) {
        Ok(orders) => orders,
        Err(error) => return fail(&socket, &error.to_string(), false),
    };
    let images = Images {
        shared: Rc::new(Shared::new(socket)),
        open: Rc::default(),
    };
    loop {
        images.take(order);
        match clients::next(&orders).await {
            Some(next) => order = next,
            None => break,
        }
    }
    // Readers may outlive the parent: this process ends with the last reader.
    images.shared.readers.end_with_last();
    std::future::pending().await
}

/// The images that this process fetches.
#[derive(Clone)]
struct Images {
    shared: Rc<Shared>,
    open: Rc<RefCell<BTreeMap<usize, Rc<Fetch>>>>,
}

impl Images {
    fn take(&self, (order, files): (Order, Vec<OwnedFd>)) {
        match order {
            Order::Open {
                image,
                source,
                options,
                identity,
            } => {
                let wanted = Wanted {
                    source,
                    options: *options,
                    shared: Rc::clone(&self.shared),
                };
                match identity {
                    Some(identity) => self.resume(image, wanted, identity, files),
                    None => self.open(image, wanted),
                }
            }
            Order::Client => self.join(0, files),
            Order::Reader { image } => self.join(image, files),
            Order::EndWithReaders => self.shared.readers.end_with_last(),
        }
    }

    fn resume(&self, image: usize, wanted: Wanted, identity: Identity, files: Vec<OwnedFd>) {
        match opening::resume(wanted, identity, files) {
            Ok(fetch) => self.serve(image, fetch),
            // The image's readers keep waiting: the parent starts another process for them.
            Err(failure) => {
                fail(&self.shared.parent, &failure.text, failure.missing);
                std::process::exit(1);
            }
        }
    }

    fn open(&self, image: usize, wanted: Wanted) {
        let images = self.clone();
        tokio::task::spawn_local(async move {
            let shown = wanted.source.clone();
            match opening::open(wanted).await {
                Ok(fetch) => images.serve(image, fetch),
                Err(failure) => {
                    let failure = failure.about(shown);
                    fail(&images.shared.parent, &failure.text, failure.missing);
                }
            }
        });
    }

    /// Adds a reader, if the image is open.
    fn join(&self, image: usize, files: Vec<OwnedFd>) {
        let client = files.into_iter().next().map(clients::packets);
        if let (Some(fetch), Some(Ok(client))) = (self.open.borrow().get(&image), client) {
            clients::serve(fetch, client);
        }
    }

    fn serve(&self, image: usize, fetch: Rc<Fetch>) {
        self.open.borrow_mut().insert(image, Rc::clone(&fetch));
        tokio::task::spawn_local(async move { dispatch::run(&fetch).await });
    }
}
