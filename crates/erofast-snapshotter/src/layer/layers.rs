//! Mounts of layers: one per digest, however many snapshots use it.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::hosts::{Host, hosts};
use super::login::Logins;
use super::mount_table::{Health, detach, health, mounted};
use super::program::Program;
use super::reference::repository;
use crate::failure::Failure;
use crate::folder::{if_there, make_private};
use crate::metrics::Metrics;
use crate::snapshot::record::LayerRecord;
use crate::snapshot::store::Store;

/// How long an existing mount may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The error of `erofast mount` for a blob that is not EROFS, such as a tar archive.
const NO_EROFS: &str = "not an EROFS image";

/// How many blobs are remembered as not being EROFS.
const REMEMBERED: usize = 10_000;

/// An attribute of a converted layer's root: the number of directories that have files in the
/// archive but no entry before these files.
const IMPLIES: &str = "trusted.overlay.erofast.implies";

/// The settings for mounting layers.
#[derive(Debug)]
pub struct Settings {
    /// The root, whose folder `layers` contains the mounts.
    pub root: PathBuf,
    /// containerd's `certs.d`.
    pub hosts: PathBuf,
    /// The program `erofast`.
    pub program: Program,
    /// Additional mount options.
    pub options: Vec<String>,
    /// How long converting an archive may take; `None` if archives are left to containerd.
    pub convert: Option<Duration>,
}

/// The outcome of mounting a layer.
#[derive(Debug, PartialEq, Eq)]
pub enum Mounted {
    /// The layer is mounted here.
    At(PathBuf),
    /// The blob is not an EROFS image.
    NotErofs,
}

/// The layers, each of which is mounted at most once.
#[derive(Debug)]
pub struct Layers {
    folder: PathBuf,
    settings: Settings,
    store: Arc<Store>,
    logins: Arc<Logins>,
    metrics: Arc<Metrics>,
    busy: Mutex<HashSet<String>>,
    free: Condvar,
    no_erofs: Mutex<HashSet<String>>,
    /// Digests of the archives that [`Layers::is_for_containerd`] reports.
    implying: Mutex<HashSet<String>>,
    /// Images with a layer that was not ready in time, and when their other layers may be tried
    /// again.
    slow: Mutex<HashMap<String, Instant>>,
}

/// The right to mount and unmount one layer.
#[derive(Debug)]
pub struct Held<'l> {
    layers: &'l Layers,
    digest: String,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.layers.lock(&self.layers.busy).remove(&self.digest);
        self.layers.free.notify_all();
    }
}

impl Layers {
    /// Creates the folder of mount points.
    pub fn new(
        settings: Settings,
        store: Arc<Store>,
        logins: Arc<Logins>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, Failure> {
        let folder = settings.root.join("layers");
        make_private(&folder).map_err(Failure::at(folder.display()))?;
        Ok(Self {
            folder,
            settings,
            store,
            logins,
            metrics,
            busy: Mutex::default(),
            free: Condvar::new(),
            no_erofs: Mutex::default(),
            implying: Mutex::default(),
            slow: Mutex::default(),
        })
    }

    fn lock<'m, T>(&self, mutex: &'m Mutex<T>) -> MutexGuard<'m, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The mount point of a layer.
    pub fn point(&self, id: u64) -> PathBuf {
        self.folder.join(id.to_string())
    }

    /// The mount points of all mounted layers.
    pub fn mounted(&self) -> Vec<PathBuf> {
        mounted(&self.folder).unwrap_or_default()
    }

    /// Waits until nobody else is mounting or unmounting the layer.
    pub fn hold(&self, digest: &str, deadline: Instant) -> Result<Held<'_>, Failure> {
        let mut busy = self.lock(&self.busy);
        while busy.contains(digest) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let why = "another mount of the layer was not ready in time";
                return Err(Failure::Unavailable(format!("layer {digest}: {why}")));
            }
            let waited = self.free.wait_timeout(busy, left);
            busy = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        busy.insert(digest.to_owned());
        Ok(self.held(digest))
    }

    /// Returns `None` if somebody is mounting or unmounting the layer now.
    fn try_hold(&self, digest: &str) -> Option<Held<'_>> {
        let mut busy = self.lock(&self.busy);
        busy.insert(digest.to_owned()).then(|| self.held(digest))
    }

    fn held(&self, digest: &str) -> Held<'_> {
        Held {
            layers: self,
            digest: digest.to_owned(),
        }
    }

    /// Whether the layer is known to be something other than EROFS.
    pub fn is_known_as_other(&self, digest: &str) -> bool {
        self.lock(&self.no_erofs).contains(digest)
    }

    /// The deadline for a conversion that begins now; `None` if archives are left to containerd.
    pub fn conversion_deadline(&self) -> Option<Instant> {
        Some(Instant::now() + self.settings.convert?)
    }

    /// Whether the layer is an archive that cannot be stacked on others: overlayfs shows the
    /// attributes of the upper of two directories, and this archive has files in a directory
    /// without an earlier entry for the directory itself. When containerd unpacks such an archive,
    /// it copies the attributes from the layer below.
    pub fn is_for_containerd(&self, digest: &str) -> bool {
        self.lock(&self.implying).contains(digest)
    }

    /// Whether a layer of the image has just exceeded the time limit. If so, no time should be
    /// spent on the image's other layers.
    pub fn is_slow(&self, image: &str) -> bool {
        let slow = self.lock(&self.slow);
        slow.get(image).is_some_and(|until| Instant::now() < *until)
    }

    /// Makes [`Layers::is_slow`] return true for the image until `limit` has passed.
    pub fn note_slow(&self, image: &str, limit: Duration) {
        let (mut slow, now) = (self.lock(&self.slow), Instant::now());
        slow.retain(|_, until| now < *until);
        slow.insert(image.to_owned(), now + limit);
    }

    /// Removes mounts that belong to no snapshot, which a snapshotter that was killed may have left
    /// behind.
    pub fn clean(&self) -> Result<(), Failure> {
        let known = self.store.layers()?;
        for (digest, _) in &known {
            if let Some(held) = self.try_hold(digest) {
                held.release_if_unused()?;
            }
        }
        // The mounts are read first: a layer is recorded before its mount point is created.
        let entries = fs::read_dir(&self.folder).map_err(Failure::at(self.folder.display()))?;
        let present: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        let known = self.store.layers()?;
        let owned = known.iter().map(|(_, layer)| self.point(layer.id));
        let owned: HashSet<_> = owned.collect();
        for path in present.iter().filter(|path| !owned.contains(*path)) {
            remove_point(path)?;
        }
        Ok(())
    }
}

impl Held<'_> {
    /// Mounts the layer, unless it is mounted already. An archive is converted if the manifest's
    /// digest is given.
    pub fn mount(
        &self,
        image: &str,
        manifest: Option<&str>,
        deadline: Instant,
    ) -> Result<Mounted, Failure> {
        let layers = self.layers;
        if let Some(known) = layers.store.layer(&self.digest)?
            && let Some(point) = self.usable(layers.point(known.id), image)?
        {
            return Ok(Mounted::At(point));
        }
        // Record the layer first, since a mount without a record is removed.
        let record = layers.store.insert_layer(&self.digest, image, manifest)?;
        let point = layers.point(record.id);
        let begun = Instant::now();
        let mounted = self.mount_from_hosts(&record, &point, deadline);
        match &mounted {
            Ok(Mounted::At(_)) => layers.metrics.ready(begun.elapsed()),
            // Without its mount point, a server that is ready too late cannot mount there.
            _ => {
                if let Err(error) = remove_point(&point) {
                    layers.metrics.log(&error.to_string());
                }
            }
        }
        mounted
    }

    /// The existing mount, if it is usable; a dead one is removed.
    fn usable(&self, point: PathBuf, image: &str) -> Result<Option<PathBuf>, Failure> {
        if !self.layers.mounted().contains(&point) {
            return Ok(None);
        }
        let why = match health(&point, ANSWER) {
            Ok(Health::Answers) => return Ok(Some(point)),
            Ok(Health::Dead) => {
                detach(&point).map_err(Failure::at(point.display()))?;
                return Ok(None);
            }
            Ok(Health::Silent) => "does not answer".to_owned(),
            Err(error) => format!("cannot be checked: {error}"),
        };
        let why = format!("the mount at {} {why}", point.display());
        Err(Failure::Unavailable(self.line(image, &why)))
    }

    fn line(&self, image: &str, why: &str) -> String {
        format!("image {image}: layer {}: {why}", self.digest)
    }

    fn mount_from_hosts(
        &self,
        record: &LayerRecord,
        point: &Path,
        deadline: Instant,
    ) -> Result<Mounted, Failure> {
        let image = &record.image;
        let unavailable = |why: &str| Failure::Unavailable(self.line(image, why));
        let (host, repository) =
            repository(image).ok_or_else(|| unavailable("the image name has no registry"))?;
        let layers = self.layers;
        let found = hosts(&layers.settings.hosts, host).map_err(|why| unavailable(&why))?;
        for notice in &found.notices {
            layers.metrics.log_once(notice);
        }
        make_private(point).map_err(Failure::at(point.display()))?;
        let mut last = unavailable("no usable host for its registry");
        for host in &found.hosts {
            match self.mount_from(host, repository, record, point, deadline) {
                Ok(()) => return Ok(Mounted::At(point.to_owned())),
                Err(why) if why.contains(NO_EROFS) => {
                    self.remember(&layers.no_erofs);
                    return Ok(Mounted::NotErofs);
                }
                Err(why) => last = unavailable(&why),
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(last)
    }

    fn remember(&self, digests: &Mutex<HashSet<String>>) {
        let mut known = self.layers.lock(digests);
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(self.digest.clone());
    }

    /// Whether the converted layer that is mounted here must be left to containerd (see
    /// [`Layers::is_for_containerd`]). If so, logs a line.
    pub fn needs_containerd(&self, image: &str, point: &Path) -> bool {
        let mut value = [0; 20];
        let Ok(length) = rustix::fs::getxattr(point, IMPLIES, &mut value[..]) else {
            return false;
        };
        let count = String::from_utf8_lossy(&value[..length]).into_owned();
        let why = format!("unpacked by containerd: directories not in its archive: {count}");
        self.layers.metrics.log_once(&self.line(image, &why));
        self.remember(&self.layers.implying);
        true
    }

    fn mount_from(
        &self,
        host: &Host,
        repository: &str,
        record: &LayerRecord,
        point: &Path,
        deadline: Instant,
    ) -> Result<(), String> {
        let layers = self.layers;
        let (address, prefix) = (&host.address, &host.prefix);
        let layer = match &record.manifest {
            Some(manifest) => format!("{manifest}#layer={}", self.digest),
            None => format!("{}#blob", self.digest),
        };
        let url = format!("oci://{address}/{prefix}{repository}@{layer}");
        let logins = layers.logins.options(record.id, &record.image, host);
        let mut options = logins.map_err(|error| format!("the login: {error}"))?;
        let plain = host.plain.map(|plain| if plain { "on" } else { "off" });
        options.extend(plain.map(|plain| format!("oci.plain_http={plain}")));
        // `idmap` is for pods with user namespaces, and `standby` for containers that outlive any
        // process of the mount. `fsname` is the name in /proc/mounts.
        options.push("ro,idmap,standby,silent".into());
        options.push(format!("fsname={}", self.digest));
        options.extend(layers.settings.options.iter().cloned());
        let options = options.join(",");
        let arguments = ["mount", "-o", &options, &url].map(OsStr::new);
        let arguments = [&arguments[..], &[point.as_os_str()]].concat();
        layers.settings.program.run(&arguments, deadline).map(drop)
    }

    /// Unmounts the layer and forgets it, unless a snapshot uses it.
    pub fn release_if_unused(&self) -> Result<(), Failure> {
        let layers = self.layers;
        if let Some(gone) = layers.store.remove_unused_layer(&self.digest)? {
            remove_point(&layers.point(gone.id))?;
            layers.logins.forget(gone.id);
        }
        Ok(())
    }
}

fn remove_point(point: &Path) -> Result<(), Failure> {
    detach(point).map_err(Failure::at(point.display()))?;
    let removed = if_there(fs::remove_dir(point));
    removed.map(drop).map_err(Failure::at(point.display()))
}
