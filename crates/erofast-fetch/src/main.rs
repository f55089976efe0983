//! Fetches blocks of a remote image into the cache, for `erofast` and programs with liberofast,
//! which start it. What to fetch comes over standard input, a socket; see `remote_image::message`.
#![forbid(unsafe_code)]

mod answer;
mod challenge;
mod client;
mod clients;
mod credentials;
mod dispatch;
mod endpoint;
mod failure;
mod fetch;
mod given_up;
mod http;
mod netrc;
mod opening;
mod pace;
mod proxy;
mod range;
mod registry;
mod room;
mod streams;
mod verification;
mod waiting;

use std::cell::OnceCell;
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::rc::Rc;

use remote_image::message::{News, Order, receive, send};
use rustix::process::{Signal, set_parent_process_death_signal};

fn main() -> ExitCode {
    let socket = rustix::stdio::stdin().try_clone_to_owned();
    let Some((socket, order)) = socket.ok().and_then(first) else {
        eprintln!("erofast-fetch: programs start it, with their orders on standard input");
        return ExitCode::from(2);
    };
    continue_without_parent();
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

/// A task that panics would leave its range in flight; the parent starts a dead fetcher again.
fn die_of_panics() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

/// The first packet, if standard input is a socket with one.
fn first(socket: OwnedFd) -> Option<(OwnedFd, (Order, Vec<OwnedFd>))> {
    let order = receive(&socket).ok()??;
    Some((socket, order))
}

fn fail(socket: &OwnedFd, line: &str, missing: bool) -> ExitCode {
    let line = line.to_owned();
    let _ = send(socket, &News::Failed { line, missing }, &[]);
    ExitCode::FAILURE
}

/// Has a stopped process continue when its parent dies: nobody else would end it.
fn continue_without_parent() {
    // Without it a process that is stopped stays stopped.
    let _ = set_parent_process_death_signal(Some(Signal::CONT));
}

/// Until the parent closes its end, and the readers theirs.
async fn run(socket: OwnedFd, (order, files): (Order, Vec<OwnedFd>)) -> ExitCode {
    let taken = socket.try_clone().and_then(clients::packets);
    let (
        Ok(orders),
        Order::Open {
            source,
            options,
            identity,
        },
    ) = (taken, order)
    else {
        return fail(&socket, "the first order opens no image", false);
    };
    let (parent, opened) = (Rc::new(socket), Rc::new(OnceCell::new()));
    let opening = Rc::clone(&opened);
    tokio::task::spawn_local(async move {
        let fetch = match identity {
            Some(identity) => opening::resume((source, *options), identity, files, &parent),
            None => {
                let shown = source.clone();
                let opened = opening::open((source, *options), &parent).await;
                opened.map_err(|failure| failure.about(shown))
            }
        };
        match fetch {
            Ok(fetch) => dispatch::run(opening.get_or_init(|| fetch)).await,
            Err(failure) => {
                fail(&parent, &failure.text, failure.missing);
                std::process::exit(1);
            }
        }
    });
    while let Some(client) = clients::next(&orders).await {
        // The parent has readers once the image is open.
        if let Some(fetch) = opened.get() {
            clients::serve(fetch, client);
        }
    }
    // Readers may outlive the parent; the last one of them ends this process.
    if opened.get().is_some_and(|fetch| fetch.has_clients()) {
        std::future::pending::<()>().await;
    }
    ExitCode::SUCCESS
}
