//! Resources that need privileges: opened and locked before the image is read.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cpu_workers::SystemCpus;
use page_pool::{PAGE_SIZE, PagePool, PoolOptions};

use crate::Error;
use crate::device::verified::HashArea;
use crate::device::version::{Change, Version};
use crate::device::{Device, OpenFile, open_file};
use crate::load::LoadFiles;
use crate::options::{EngineOptions, Offset};
use crate::remote::{self, ImageFetcher};
use crate::request::budget::Request;

/// The first half of [`Engine::open`](crate::Engine::open): all that needs privileges. A process
/// may drop its own between this and [`Engine::start`](crate::Engine::start), which reads
/// the image and creates all threads.
#[derive(Debug)]
pub struct Opened {
    /// As the image was named.
    pub(crate) name: Arc<str>,
    pub(crate) options: EngineOptions,
    pub(crate) devices: Vec<Arc<Device>>,
    /// The hash tree of the first device; `None` if nothing is verified.
    pub(crate) hash_area: Option<HashArea>,
    /// Its memory is locked already, where that was allowed.
    pub(crate) pool: Arc<PagePool>,
    /// Memory of the size of the cache, taken as it is needed; `None` without a cache.
    pub(crate) cache_memory: Option<Arc<PagePool>>,
    /// `None` where there are no workers.
    pub(crate) load_files: Option<std::io::Result<LoadFiles>>,
    /// Where CPUs that come and go are announced; `None` where there are no workers.
    pub(crate) cpus: Option<SystemCpus>,
    /// About files of credentials, if the image is at a URL.
    pub(crate) exposed_files: Option<String>,
}

impl Opened {
    /// Opens the image and its extra devices, reserves the page pool, opens what shows
    /// contended CPUs, and listens for CPUs that come and go.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn new(path: &Path, options: &EngineOptions) -> Result<Opened, Error> {
        let options = &EngineOptions {
            verity: options.verity.of_image(path),
            ..options.clone()
        };
        let fetcher = ImageFetcher::default();
        let open = |file: &Path| open_for(&fetcher, options, path, file);
        let options = &with_root_hash(path, options, &open)?;
        let open = |file: &Path| open_for(&fetcher, options, path, file);
        let opened = Self::with(path, options, &open)?;
        fetcher.watch().map_err(Error::start)?;
        Ok(opened)
    }

    /// As [`new`](Self::new), with files from `open`, which gets their paths.
    ///
    /// # Errors
    /// As for `new`.
    pub fn with(path: &Path, options: &EngineOptions, open: OpenFile<'_>) -> Result<Opened, Error> {
        let options = &with_root_hash(path, options, open)?;
        let primary = Device::open_named(path, base(options), open)?;
        Self::with_primary(primary, path, options, open)
    }

    /// Has changes of the files found that came after another process opened them, which had these
    /// versions by their paths.
    pub fn were_opened_as(&self, versions: &dyn Fn(&Path) -> Option<Version>) {
        self.files()
            .for_each(|device| device.was_opened_as(versions));
    }

    /// How the files differ from what was opened, the certain change first.
    pub fn change(&self) -> Option<Change> {
        let changes = self.files().filter_map(|device| device.change());
        changes.max_by_key(|change| change.is_certain)
    }

    fn files(&self) -> impl Iterator<Item = &Arc<Device>> {
        let hashes = self.hash_area.as_ref().map(HashArea::device);
        self.devices.iter().chain(hashes)
    }

    /// As [`new`](Self::new), with an image that is open already; messages call it `name`.
    ///
    /// # Errors
    /// As for `new`.
    pub fn from_file(file: File, name: &Path, options: &EngineOptions) -> Result<Opened, Error> {
        let device = Device::from_file(file, name, base(options));
        let device = device.map_err(|source| Error::Open {
            path: name.display().to_string(),
            source: Arc::new(source),
        })?;
        let fetcher = ImageFetcher::default();
        let open = |file: &Path| open_for(&fetcher, options, name, file);
        let options = &with_root_hash(name, options, &open)?;
        let open = |file: &Path| open_for(&fetcher, options, name, file);
        let opened = Self::with_primary(Arc::new(device), name, options, &open)?;
        fetcher.watch().map_err(Error::start)?;
        Ok(opened)
    }

    fn with_primary(
        primary: Arc<Device>,
        path: &Path,
        options: &EngineOptions,
        open: OpenFile<'_>,
    ) -> Result<Opened, Error> {
        if let below @ 1.. = primary.layers() {
            let line = format!("has {} layers; images of one layer are read", below + 1);
            return Err(Error::open(path, io::Error::other(line)));
        }
        let cpus = options.workers.mode().map(|_| SystemCpus::new());
        let cpus = cpus.transpose().map_err(Error::start)?;
        let devices = with_extra_devices(primary, options, open)?;
        let hash_area = HashArea::open(path, &devices[0], options, open)?;
        Ok(Opened {
            name: remote::shown(path).into(),
            devices,
            hash_area,
            pool: PagePool::new(&PoolOptions {
                reserved_pages: options.reserved_pages,
                prefill: options.prefill,
                lock: options.reserved_pages > 0,
                #[cfg(feature = "experiments")]
                measure: options.measure_allocations,
            })
            .map_err(|error| no_memory("reserved_pages", options.reserved_pages as u64, &error))?,
            cache_memory: match (options.cache_bytes / PAGE_SIZE as u64) as usize {
                0 => None,
                reserved_pages => Some(
                    PagePool::new(&PoolOptions {
                        reserved_pages,
                        ..PoolOptions::default()
                    })
                    .map_err(|error| no_memory("cache", options.cache_bytes, &error))?,
                ),
            },
            load_files: cpus.as_ref().map(LoadFiles::open),
            cpus,
            exposed_files: options.remote.exposed_files(),
            options: options.clone(),
        })
    }
}

/// With the root hash that the options name, and the files that they name for this image.
fn with_root_hash(
    image: &Path,
    options: &EngineOptions,
    open: OpenFile<'_>,
) -> Result<EngineOptions, Error> {
    let mut options = options.clone();
    options.verity = options.verity.of_image(image);
    let root = options.verity.root(open);
    options.verity.root_hash = root.map_err(|what| Error::verity(remote::shown(image), what))?;
    options.verity.root_hash_file = None;
    Ok(options)
}

/// Opens a file of an image, with a process that fetches it where it is at a URL.
fn open_for(
    fetcher: &ImageFetcher,
    options: &EngineOptions,
    image: &Path,
    path: &Path,
) -> io::Result<File> {
    let Some(source) = remote::url(path) else {
        return open_file(path);
    };
    let (source, verity) = (source.map_err(io::Error::other)?, &options.verity);
    if verity.small_files().any(|small| small == path) {
        return remote::open_small(&[], &source, &options.fetching(image, &source, None));
    }
    let root = verity.root_hash.as_ref().filter(|_| path == image);
    fetcher.open(&source, &options.fetching(image, &source, root))
}

/// The option that asked for the memory is named.
fn no_memory(option: &str, value: u64, error: &io::Error) -> Error {
    let what = format!("no memory for {option}={value}: {error}");
    Error::start(io::Error::new(error.kind(), what))
}

/// With `offset=auto`: the primary device from where the image begins.
pub(crate) fn locate_image(
    request: &Request<'_>,
    name: &str,
    options: &EngineOptions,
    devices: &mut [Arc<Device>],
) -> Result<(), Error> {
    if options.offset != Offset::Auto {
        return Ok(());
    }
    for primary in devices.iter_mut().take(1) {
        let located = crate::device::locate::superblock(primary, request)
            .ok_or_else(|| crate::device::locate::not_found(primary.size()))
            .and_then(|base| primary.with_base(base))
            .inspect_err(|_| primary.discard())
            .map_err(|source| Error::Open {
                path: name.to_owned(),
                source: Arc::new(source),
            })?;
        *primary = Arc::new(located);
    }
    Ok(())
}

/// Where to open the image's file.
fn base(options: &EngineOptions) -> u64 {
    match options.offset {
        Offset::Bytes(base) => base,
        // The image is searched for when the process has dropped its privileges.
        Offset::Auto => 0,
    }
}

/// Those of the options, or else of the image's manifest.
fn with_extra_devices(
    primary: Arc<Device>,
    options: &EngineOptions,
    open: OpenFile<'_>,
) -> Result<Vec<Arc<Device>>, Error> {
    let listed = match &options.devices[..] {
        [] => primary.extra_devices(),
        named => named.to_vec(),
    };
    let extra = listed.iter().map(|path| Device::open_named(path, 0, open));
    let extra = extra.collect::<Result<Vec<_>, _>>()?;
    Ok(std::iter::once(primary).chain(extra).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, WorkersMode};

    /// A process drops its rights between the two halves, so nothing may be parsed before.
    #[test]
    fn an_image_is_searched_for_after_the_files_are_open() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        let image = fixtures.join("kitchen-sink.erofs");
        let path = std::env::temp_dir().join(format!("erofast-auto-{}", std::process::id()));
        let mut later = vec![0; 64 << 10];
        later.extend(std::fs::read(image).unwrap());
        std::fs::write(&path, vec![0; later.len()]).unwrap();
        let options = EngineOptions {
            offset: Offset::Auto,
            workers: WorkersMode::Inline,
            ..EngineOptions::default()
        };
        let opened = Opened::new(&path, &options).unwrap();
        std::fs::write(&path, later).unwrap();
        let outcome = Engine::start(opened);
        std::fs::remove_file(&path).unwrap();
        outcome.unwrap();
    }
}
