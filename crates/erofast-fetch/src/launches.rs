//! The launch profile that travels with an image: beside its URL, or in its registry. Opening and
//! reading the image does not wait for it.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::rc::Rc;

use remote_image::ImageUrl;
use remote_image::launches::{BEGIN, SUFFIX, are_known, known, remember};
use remote_image::message::{self, News};
use reqwest::header::HeaderMap;
use rustix::fs::{MemfdFlags, memfd_create};
use tokio::task::JoinHandle;

use crate::answer::few;
use crate::failure::{Failure, in_time};
use crate::fetch::Fetch;
use crate::http::Server;
use crate::registry::{self, Attached};
use crate::wanted::Wanted;

/// A search for a profile beside a URL, in progress.
pub struct Search(JoinHandle<Result<Vec<u8>, Failure>>);

impl Search {
    /// Starts a search in parallel with the first request for the image. Returns `None` if the
    /// profile is not wanted, or if the cache already knows whether there is one.
    pub fn begin(wanted: &Wanted) -> Option<Search> {
        let (source, options) = (wanted.source.clone(), wanted.options.clone());
        if !options.launches || source.reference().is_some() || are_known(&source, &options) {
            return None;
        }
        let server = wanted.server().ok()?;
        let search = async move { in_time(&options, beside(&server, &source)).await };
        Some(Search(tokio::task::spawn_local(search)))
    }
}

/// Passes the parent the profile once it arrives. `attached` says where a registry may have it.
pub fn deliver(fetch: &Rc<Fetch>, search: Option<Search>, attached: Option<Attached>) {
    if !fetch.options.launches || deliver_known(fetch) {
        return;
    }
    let fetch = Rc::clone(fetch);
    fetch.shared.link.searches_profile(1);
    tokio::task::spawn_local(async move {
        find_and_send(&fetch, search, attached).await;
        fetch.shared.link.searches_profile(-1);
    });
}

async fn find_and_send(fetch: &Rc<Fetch>, search: Option<Search>, attached: Option<Attached>) {
    let (source, options, identity) = (&fetch.source, &fetch.options, &fetch.identity);
    let found = match (search, &attached) {
        (Some(Search(search)), _) => search.await.unwrap_or_else(|_| Ok(Vec::new())),
        (None, Some(attached)) => {
            in_time(options, registry::find_launches(&fetch.server, attached)).await
        }
        (None, None) => in_time(options, beside(&fetch.server, source)).await,
    };
    match found {
        Ok(bytes) => {
            // If this fails, the next mount asks again.
            let _ = remember(source, options, identity, &bytes);
            send(fetch, &bytes);
        }
        Err(failure) => fetch.note(&format!("launch profile: {}", failure.text)),
    }
}

/// Passes the parent the profile that the cache knows. Returns true if the cache knows the profile,
/// or knows that there is none.
pub fn deliver_known(fetch: &Fetch) -> bool {
    let is_wanted = fetch.options.launches;
    let find = || known(&fetch.source, &fetch.options, &fetch.identity);
    let found = is_wanted.then(find).flatten();
    found.iter().for_each(|bytes| send(fetch, bytes));
    found.is_some()
}

/// Passes the parent the profile, unless it is empty, which means that there is none.
fn send(fetch: &Fetch, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let in_memory = || -> std::io::Result<File> {
        let mut file = File::from(memfd_create("launches", MemfdFlags::CLOEXEC)?);
        file.write_all(bytes)?;
        Ok(file)
    };
    fetch.shared.link.note_profile();
    // If this fails, the mount learns launches without the profile, or the parent is gone.
    if let Ok(file) = in_memory() {
        let _ = message::send(&fetch.shared.parent, &News::Launches, &[file.as_fd()]);
    }
}

async fn beside(server: &Server, source: &ImageUrl) -> Result<Vec<u8>, Failure> {
    let url = source.beside(SUFFIX);
    let response = server.get_beside(url.url(), &HeaderMap::new()).await?;
    if response.status().is_success() {
        let bytes = few(response, BEGIN).await?;
        // Some servers answer requests for missing files with a page.
        let is_one = bytes.starts_with(BEGIN);
        return Ok(if is_one { bytes } else { Vec::new() });
    }
    let failure = server.refused(&response);
    // For missing files, bucket servers answer 403 if listing is not allowed.
    match failure.missing || response.status().is_client_error() && failure.lasting {
        true => Ok(Vec::new()),
        false => Err(failure),
    }
}
