//! Converts layers that are tar archives to images in the cache, each of them only once.
//!
//! The fetcher streams a blob to a process that unpacks it, rewrites the archive and passes it to
//! mkfs.erofs. The result is kept if the digest and the diff ID match and both processes succeed.
//! The fetcher itself parses no archive.

mod blob;
pub mod child;
mod pipeline;

use std::cell::{Cell, RefCell};
use std::fs;
use std::io;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use confinement::user::{self, NOBODY};
use remote_image::converted::{self, Begun, Making};
use remote_image::message::Identity;
use remote_image::registry::TarLayer;
use remote_image::store::Store;
use remote_image::{ImageUrl, Options, cache};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::failure::{Failure, ensure};
use crate::http::Server;
use crate::layers::Named;
use crate::wanted::Wanted;
use pipeline::{Mkfs, Pipeline};

/// Interval between checks of a layer that another process is converting.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between progress lines.
const PROGRESS: Duration = Duration::from_secs(5);
/// Maximum number of simultaneous conversions: each takes two processes and a connection.
const MOST: usize = 4;

/// The conversions of an image's layers.
struct Conversions {
    wanted: Wanted,
    turns: Semaphore,
    mkfs: RefCell<Option<Mkfs>>,
    progress: Progress,
    /// Held by threads that put an image into the cache.
    finishing: Arc<()>,
}

/// Progress, in bytes of layers.
struct Progress {
    came: Cell<u64>,
    all: u64,
    said: Cell<Instant>,
}

/// Converts the layers that are not in the cache; holding the result keeps them there. A failure
/// ends all conversions, and the error names the layer.
pub async fn convert(
    wanted: &Wanted,
    server: &Server,
    layers: Vec<Named>,
) -> Result<Vec<Store>, Failure> {
    let (mut there, missing) = sort(&wanted.source, &wanted.options, layers).await;
    if missing.is_empty() {
        return Ok(there);
    }
    let conversions = Rc::new(Conversions {
        wanted: wanted.clone(),
        turns: Semaphore::new(MOST),
        mkfs: RefCell::default(),
        progress: Progress {
            came: Cell::new(0),
            all: missing.iter().map(|named| named.layer.bytes).sum(),
            said: Cell::new(Instant::now()),
        },
        finishing: Arc::default(),
    });
    let (layers, all) = (count(missing.len()), conversions.progress.all);
    conversions.note(&format!("converting {layers} of {}", megabytes(all)));
    let mut tasks = JoinSet::new();
    for named in missing {
        let (conversions, server) = (Rc::clone(&conversions), server.blob(&named.layer.digest)?);
        tasks.spawn_local(async move {
            let outcome = conversions.one(&server, &named.layer).await;
            outcome.map_err(|failure| failure.about(&named.name))
        });
    }
    let mut outcome = Ok(());
    while outcome.is_ok()
        && let Some(ended) = tasks.join_next().await
    {
        let ended = ended.map_err(Failure::lasting).and_then(|ended| ended);
        outcome = ended.map(|store| there.push(store));
    }
    // The first failure ends the other conversions. Remove their unfinished images before reporting
    // the failure, because the parent kills this process as soon as it hears of the failure.
    tasks.shutdown().await;
    while Arc::strong_count(&conversions.finishing) > 1 {
        sleep(LOOK / 10).await;
    }
    outcome.map(|()| there)
}

/// Returns the images that exist, and the layers without an image. If an image was found damaged,
/// all others are checked too, so that disk damage is repaired in one go.
async fn sort(
    source: &ImageUrl,
    options: &Options,
    layers: Vec<Named>,
) -> (Vec<Store>, Vec<Named>) {
    let (mut there, mut missing, mut is_damaged) = (Vec::new(), Vec::new(), false);
    for named in layers {
        match find(source, options, &named.layer) {
            Some((_, store)) => there.push((named, store)),
            None => {
                let TarLayer { diff_id, .. } = &named.layer;
                is_damaged |= converted::is_damaged(source, options, diff_id);
                missing.push(named);
            }
        }
    }
    let mut good = Vec::new();
    for (named, store) in there {
        let looked = tokio::task::spawn_blocking(move || {
            let damaged = is_damaged && store.forget_damaged().unwrap_or(false);
            (store, damaged)
        });
        match looked.await {
            Ok((store, false)) => good.push(store),
            _ => missing.push(named),
        }
    }
    (good, missing)
}

/// The image of a layer, if it exists.
pub fn find(source: &ImageUrl, options: &Options, layer: &TarLayer) -> Option<(Identity, Store)> {
    converted::find(&of_layer(source, layer), options, &layer.diff_id)
}

/// The URL of a layer.
fn of_layer(source: &ImageUrl, layer: &TarLayer) -> ImageUrl {
    source.tar(layer).unwrap_or_else(|| source.clone())
}

impl Conversions {
    /// Sends one line for the log.
    fn note(&self, line: &str) {
        self.wanted.shared.note(&self.wanted.source, line);
    }

    /// Converts one layer, or waits while another process does so.
    async fn one(&self, server: &Server, layer: &TarLayer) -> Result<Store, Failure> {
        let options = &self.wanted.options;
        let source = of_layer(&self.wanted.source, layer);
        let _turn = self.turns.acquire().await.map_err(Failure::lasting)?;
        loop {
            let begun = converted::begin(&source, options, &layer.diff_id);
            match begun.map_err(no_room)? {
                Begun::There(store) => return Ok(store),
                Begun::Elsewhere => sleep(LOOK).await,
                Begun::Here(making) => match self.make(server, layer, *making).await {
                    Err(failure) if is_full(&failure) && self.shrink(layer) => {}
                    done => return done,
                },
            }
        }
    }

    /// Makes room on a full disk. Returns false if there is nothing to remove.
    fn shrink(&self, layer: &TarLayer) -> bool {
        let options = &self.wanted.options;
        let Some(root) = cache::directory(options).filter(|_| !options.share) else {
            return false;
        };
        let mut freed = 0;
        while freed < layer.bytes && cache::shrink(&root).unwrap_or(false) {
            freed += layer.bytes / 4 + 1;
        }
        freed > 0
    }

    async fn make(
        &self,
        server: &Server,
        layer: &TarLayer,
        making: Making,
    ) -> Result<Store, Failure> {
        let (begun, work) = (Instant::now(), making.work());
        hand_over(&work).map_err(no_room)?;
        let mkfs = self.mkfs(&work).await?;
        let options = &self.wanted.options;
        let most = options.cache_size;
        let started = Pipeline::start(&mkfs, layer, most, &work);
        let (pipeline, mut to) = started.map_err(Failure::lasting)?;
        let came = |bytes| self.came(bytes);
        let digest = blob::send(server, options, layer.bytes, &mut to, came).await?;
        drop(to);
        if let Some(digest) = &digest {
            ensure!(
                *digest == layer.digest,
                "the blob has a different digest: {digest}"
            );
        }
        let diff_id = pipeline.end(|line| self.note(line)).await?;
        ensure!(
            digest.is_some(),
            "unpacking ended before the end of the layer"
        );
        let is_it = diff_id == layer.diff_id;
        ensure!(
            is_it || layer.diff_id != layer.digest,
            "is compressed, but its media type says that it is not"
        );
        ensure!(is_it, "unpacks to a different diff ID: {diff_id}");
        let finishing = Arc::clone(&self.finishing);
        let finish = tokio::task::spawn_blocking(move || {
            let finished = making.finish();
            drop(finishing);
            finished
        });
        let (identity, store) = finish.await.map_err(Failure::lasting)?.map_err(no_room)?;
        self.note(&format!(
            "{} converted to {} by {} in {:.1} s",
            layer.digest,
            megabytes(identity.length),
            mkfs.name,
            begun.elapsed().as_secs_f64()
        ));
        Ok(store)
    }

    /// Finds mkfs.erofs, and asks for its version only once.
    async fn mkfs(&self, empty: &Path) -> Result<Mkfs, Failure> {
        let known = self.mkfs.borrow().clone();
        match known {
            Some(known) => Ok(known),
            None => {
                let found = Mkfs::find(empty).await?;
                self.mkfs.replace(Some(found.clone()));
                Ok(found)
            }
        }
    }

    fn came(&self, bytes: u64) {
        let Progress { came, all, said } = &self.progress;
        came.set(came.get() + bytes);
        if said.get().elapsed() >= PROGRESS {
            said.set(Instant::now());
            let (came, all) = (megabytes(came.get()), megabytes(*all));
            self.note(&format!("{came} of {all} received"));
        }
    }
}

/// If this process runs as root, gives the directory to the user nobody, because mkfs.erofs runs as
/// that user.
fn hand_over(work: &Path) -> io::Result<()> {
    let is_root = rustix::process::geteuid().is_root();
    match is_root && user::in_first_namespace() {
        true => std::os::unix::fs::chown(work, Some(NOBODY), Some(NOBODY)),
        false => fs::metadata(work).map(drop),
    }
}

fn no_room(error: io::Error) -> Failure {
    Failure::lasting(format!("the image cannot be kept: {error}"))
}

/// Whether a disk was full, judging by the system's error text, whichever program reported it.
fn is_full(failure: &Failure) -> bool {
    let texts = ["No space left on device", "Disk quota exceeded"];
    texts.iter().any(|text| failure.text.contains(text))
}

fn count(layers: usize) -> String {
    match layers {
        1 => "a layer".to_owned(),
        _ => format!("{layers} layers"),
    }
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}
