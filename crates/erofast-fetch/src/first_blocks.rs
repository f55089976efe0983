//! First blocks of the other layers and devices of an image, requested together with the image's
//! own first block.
//!
//! The parent opens the files one after another, and each of them would otherwise cost a round
//! trip.

use std::cell::RefCell;
use std::rc::Rc;

use remote_image::answers;
use remote_image::registry::Version;
use remote_image::store::BLOCK;
use remote_image::{ImageUrl, Options};
use reqwest::{Response, StatusCode};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, spawn_local};

use crate::failure::in_time;
use crate::http::Server;

/// Number of bytes in the first request. On a connection in slow start, a single block would take
/// just as long.
pub const FIRST: u64 = 2 * BLOCK;

/// Maximum number of simultaneous requests: a registry without HTTP/2 needs a connection for each.
const MOST: usize = 32;

/// A blob's server, with the credentials and redirects that it needed, and its answer.
type Answered = (Server, Response);

/// Answers that nobody has taken yet.
#[derive(Debug, Default)]
pub struct FirstBlocks(RefCell<Vec<Asked>>);

#[derive(Debug)]
struct Asked {
    source: ImageUrl,
    options: Options,
    answer: JoinHandle<Option<Answered>>,
}

impl FirstBlocks {
    /// Requests the first block of each blob that is not in the cache, without waiting for the
    /// answers.
    pub fn ask<'i>(
        &self,
        server: &Server,
        options: &Options,
        files: impl Iterator<Item = &'i ImageUrl>,
    ) {
        let turns = Rc::new(Semaphore::new(MOST));
        for source in files {
            let reference = source.reference().map(|reference| reference.version);
            let Some(Version::Blob(digest, _)) = reference else {
                continue;
            };
            let known = answers::of_digest(source);
            let is_cached = known.is_some_and(|known| known.is_cached(source, options));
            let server = server.blob(&digest).ok().filter(|_| !is_cached);
            let Some(server) = server else { continue };
            let turns = Rc::clone(&turns);
            let answer = spawn_local(async move {
                let _turn = turns.acquire().await.ok()?;
                let response = server.get(&(0..FIRST), None).await.ok()?;
                Some((server, response))
            });
            self.0.borrow_mut().push(Asked {
                source: source.clone(),
                options: shared(options),
                answer,
            });
        }
    }

    /// The answer with a file's first block, if it was requested. After a failure this is `None`,
    /// and the file is opened as if its block had not been requested.
    pub async fn take(&self, source: &ImageUrl, options: &Options) -> Option<Answered> {
        let wanted = shared(options);
        let asked = {
            let mut asked = self.0.borrow_mut();
            let mut known = asked.iter();
            let at = known.position(|asked| asked.source == *source && asked.options == wanted)?;
            asked.swap_remove(at)
        };
        let answered = async { Ok(asked.answer.await.ok().flatten()) };
        let (server, response) = in_time(options, answered).await.ok()??;
        let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
        is_part.then_some((server, response))
    }
}

/// The options, without those that differ between the files of an image.
fn shared(options: &Options) -> Options {
    Options {
        root_hash: None,
        launches: false,
        timeout: Options::default().timeout,
        ..options.clone()
    }
}
