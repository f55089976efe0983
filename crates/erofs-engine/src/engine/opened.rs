//! Resources that need privileges: opened and locked before the image is read.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use cpu_workers::SystemCpus;
use page_pool::{PAGE_SIZE, PagePool, PoolOptions};
use remote_image::Class;

use crate::device::verified::HashArea;
use crate::device::version::{Change, Version};
use crate::device::{Device, OpenFile, locate, open_file};
use crate::load::LoadFiles;
use crate::options::{EngineOptions, LowerImage, Offset, OneImage};
use crate::remote::{self, ImageFetcher};
use crate::request::budget::Request;
use crate::{Error, Result};

/// The bytes that hold the superblock and, in images written by mkfs.erofs, the root directory.
const BEGINNING: u64 = 32 << 10;

/// The first half of [`Engine::open`](crate::Engine::open): everything that needs privileges. A
/// process may drop its privileges between this and [`Engine::start`](crate::Engine::start), which
/// reads the images and creates all threads.
#[derive(Debug)]
pub struct Opened {
    pub(crate) options: EngineOptions,
    /// The images, the top one first.
    pub(crate) images: Vec<ImageFiles>,
    /// The page pool, already locked in memory if the system allowed that.
    pub(crate) pool: Arc<PagePool>,
    /// Memory of the cache's size, allocated as needed; `None` if there is no cache.
    pub(crate) cache_memory: Option<Arc<PagePool>>,
    /// The files that show the load; `None` if there are no workers.
    pub(crate) load_files: Option<io::Result<LoadFiles>>,
    /// Announces CPUs that are added or removed; `None` if there are no workers.
    pub(crate) cpus: Option<SystemCpus>,
    /// A warning about credential files, if an image is at a URL.
    pub(crate) exposed_files: Option<String>,
}

/// The open files of one image.
#[derive(Debug)]
pub(crate) struct ImageFiles {
    /// The image's name, as the caller specified it.
    pub name: Arc<str>,
    /// The offset of the image in the first device.
    pub offset: Offset,
    pub devices: Vec<Arc<Device>>,
    /// The hash tree of the first device; `None` if nothing is verified.
    pub hash_area: Option<HashArea>,
}

/// Opens a file of an image.
type OpenOf<'o> = &'o dyn Fn(&OneImage, &Path) -> io::Result<File>;

impl Opened {
    /// Opens the image and those below it with their extra devices, reserves the page pool, opens
    /// the files that show whether CPUs are contended, and listens for CPUs that are added or
    /// removed.
    ///
    /// # Errors
    /// One line that names the file.
    pub fn new(path: &Path, options: &EngineOptions) -> Result<Opened> {
        Self::fetched(None, path, options)
    }

    /// Like [`new`](Self::new), but opens files by calling `open` with their paths.
    ///
    /// # Errors
    /// The same errors as for `new`.
    pub fn with(path: &Path, options: &EngineOptions, open: OpenFile<'_>) -> Result<Opened> {
        Self::with_primary(None, path, options, &|_, file| open(file))
    }

    /// Also detects changes since another process opened the files; `versions` returns the version
    /// of a file at that time, by its path.
    pub fn were_opened_as(&self, versions: &dyn Fn(&Path) -> Option<Version>) {
        self.files()
            .for_each(|device| device.was_opened_as(versions));
    }

    /// How the files differ from those that were opened; a definite change takes precedence.
    pub fn change(&self) -> Option<Change> {
        let changes = self.files().filter_map(|device| device.change());
        changes.max_by_key(|change| change.is_certain)
    }

    fn files(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.images.iter().flat_map(|image| {
            let hashes = image.hash_area.as_ref().map(|area| &area.device);
            image.devices.iter().chain(hashes)
        })
    }

    /// Like [`new`](Self::new), with an image that is already open; messages call it `name`.
    ///
    /// # Errors
    /// The same errors as for `new`.
    pub fn from_file(file: File, name: &Path, options: &EngineOptions) -> Result<Opened> {
        let device = Device::from_file(file, name, base(options));
        let device = device.map_err(|source| Error::named(name.display(), source))?;
        Self::fetched(Some(Arc::new(device)), name, options)
    }

    /// Opens the images. Starts a process that fetches files if any file is at a URL.
    fn fetched(
        primary: Option<Arc<Device>>,
        path: &Path,
        options: &EngineOptions,
    ) -> Result<Opened> {
        let fetcher = ImageFetcher::default();
        let open = |image: &OneImage, file: &Path| {
            let Some(source) = remote::url(file) else {
                return open_file(file);
            };
            let (source, verity) = (source.map_err(io::Error::other)?, &image.options.verity);
            if verity.small_files().any(|small| small == file) {
                return remote::open_small(&[], &source, &options.fetching(path, &source, None));
            }
            let root = verity.root_hash.as_ref().filter(|_| file == image.path);
            fetcher.open(&source, &options.fetching(path, &source, root))
        };
        let opened = Self::with_primary(primary, path, options, &open)?;
        fetcher.watch().map_err(Error::start)?;
        Ok(opened)
    }

    fn with_primary(
        mut primary: Option<Arc<Device>>,
        path: &Path,
        options: &EngineOptions,
        open: OpenOf<'_>,
    ) -> Result<Opened> {
        options.check_images(path, options.lower.len() + 1)?;
        let mut images = Vec::new();
        let mut waiting = VecDeque::from(options.images(path));
        while let Some(image) = waiting.pop_front() {
            let files = ImageFiles::open(primary.take(), image, open)?;
            let listed = files.devices[0].layers().into_iter().map(LowerImage::new);
            images.push(files);
            for layer in listed.rev() {
                waiting.push_front(options.lower_image(&layer));
            }
            options.check_images(path, images.len() + waiting.len())?;
        }
        let cpus = options.workers.mode().map(|_| SystemCpus::new());
        let cpus = cpus.transpose().map_err(Error::start)?;
        Ok(Opened {
            images,
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

impl ImageFiles {
    /// Opens one image; `primary` is its first file, if already open.
    fn open(primary: Option<Arc<Device>>, image: OneImage, open: OpenOf<'_>) -> Result<Self> {
        let image = with_root_hash(image, open)?;
        let OneImage { path, options } = &image;
        let open = |file: &Path| open(&image, file);
        let primary = match primary {
            Some(primary) => primary,
            None => Device::open_named(path, base(options), &open)?,
        };
        let devices = with_extra_devices(primary, options, &open)?;
        let hash_area = HashArea::open(path, &devices[0], options, &open)?;
        Ok(Self {
            name: remote::shown(path).into(),
            offset: options.offset,
            devices,
            hash_area,
        })
    }

    /// Fetches the parts of an image at a URL that are read first, in parallel with other images.
    pub(crate) fn fetch_beginning(&self) {
        let whole = 0..self.devices[0].size.min(BEGINNING);
        self.devices[0].prefetch(std::slice::from_ref(&whole), Class::ReadAhead);
    }

    /// With `offset=auto`, makes the first file start where the image begins.
    pub(crate) fn locate(&mut self, request: &Request<'_>) -> Result<()> {
        if self.offset != Offset::Auto {
            return Ok(());
        }
        let primary = &mut self.devices[0];
        let located = locate::image(primary, request).map_err(|source| {
            primary.discard();
            Error::named(&self.name, source)
        })?;
        *primary = Arc::new(located);
        Ok(())
    }
}

/// Reads the root hash from the files that the options name for this image.
fn with_root_hash(mut image: OneImage, open: OpenOf<'_>) -> Result<OneImage> {
    let verity = image.options.verity.of_image(&image.path);
    if verity != image.options.verity && remote::is_in_registry(&image.path) {
        let what = "verity=auto: a registry has no files beside an image; give verity.roothash=";
        return Err(Error::verity(remote::shown(&image.path), what.into()));
    }
    image.options.verity = verity;
    let root = image.options.verity.root(&|file| open(&image, file));
    let root = root.map_err(|what| Error::verity(remote::shown(&image.path), what))?;
    image.options.verity.root_hash = root;
    image.options.verity.root_hash_file = None;
    Ok(image)
}

/// An out-of-memory error that names the option that requested the memory.
fn no_memory(option: &str, value: u64, error: &io::Error) -> Error {
    let what = format!("no memory for {option}={value}: {error}");
    Error::start(io::Error::new(error.kind(), what))
}

/// The offset at which to open the image's file.
fn base(options: &EngineOptions) -> u64 {
    match options.offset {
        Offset::Bytes(base) => base,
        // The search for the image begins after the process has dropped its privileges.
        Offset::Auto => 0,
    }
}

/// Opens the extra devices that the options name, or else those that the image's manifest lists.
fn with_extra_devices(
    primary: Arc<Device>,
    options: &EngineOptions,
    open: OpenFile<'_>,
) -> Result<Vec<Arc<Device>>> {
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

    /// A process drops its privileges between the two halves of opening an image, so nothing may be
    /// parsed in the first half.
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
