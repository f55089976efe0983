//! containerd's calls, implemented on the database, the directories and the mounts of layers.

use std::collections::HashSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::directories::{Directories, usage};
use super::mapped::Mapped;
use super::mounts::{Mappings, Mount, Upper, mounts};
use super::record::{Kind, Labels, Record, TARGET, Usage};
use super::store::{Store, must_be_active};
use crate::failure::Failure;
use crate::layer::layers::{Held, Layers, Mounted};
use crate::layer::reference::Wanted;
use crate::metrics::{Metrics, Outcome};

type Result<T> = std::result::Result<T, Failure>;

/// Executes containerd's calls.
#[derive(Debug)]
pub struct Snapshotter {
    store: Arc<Store>,
    directories: Directories,
    mapped: Mapped,
    layers: Layers,
    metrics: Arc<Metrics>,
    /// The time limit of a call.
    limit: Duration,
}

impl Snapshotter {
    /// Creates the snapshotter, and removes the remains of one that was killed.
    pub fn new(
        root: &Path,
        store: Arc<Store>,
        layers: Layers,
        metrics: Arc<Metrics>,
        limit: Duration,
    ) -> Result<Self> {
        let directories = Directories::new(root).map_err(Failure::at(root.display()))?;
        let mapped = Mapped::new(root).map_err(Failure::at(root.display()))?;
        let snapshotter = Self {
            store,
            directories,
            mapped,
            layers,
            metrics,
            limit,
        };
        snapshotter.cleanup()?;
        Ok(snapshotter)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// All snapshots with their names.
    pub fn list(&self) -> Result<Vec<(String, Record)>> {
        self.store.snapshots()
    }

    /// Returns a snapshot.
    pub fn stat(&self, key: &str) -> Result<Record> {
        self.store.snapshot(key)
    }

    /// Prepares a writable snapshot. If the labels name a layer that is EROFS or can be converted,
    /// the layer is mounted and committed instead, and [`Failure::AlreadyExists`] is returned.
    pub fn prepare(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        match self.store.snapshot(key) {
            Err(Failure::NotFound(_)) => {}
            Ok(_) => return Err(Failure::AlreadyExists(format!("snapshot {key}"))),
            Err(other) => return Err(other),
        }
        let deadline = self.deadline();
        if let Some(target) = labels.get(TARGET).cloned() {
            match self.commit_mounted(&target, parent, &labels, deadline) {
                Ok(false) => {}
                Ok(true) => return Err(Failure::AlreadyExists(format!("snapshot {target}"))),
                // Let containerd unpack the layer: every image should run.
                Err(Failure::Unavailable(why)) => self.metrics.log(&why),
                Err(other) => return Err(other),
            }
        }
        self.create(key, Kind::Active, parent, labels, deadline)
    }

    /// Mounts the layer that the labels name, and commits it as `target`, the name of its chain of
    /// layers. Returns whether the snapshot `target` now exists.
    fn commit_mounted(
        &self,
        target: &str,
        parent: &str,
        labels: &Labels,
        deadline: Instant,
    ) -> Result<bool> {
        let Some(wanted) = Wanted::of(labels)? else {
            return Ok(false);
        };
        if self.has_target(target, parent)? {
            self.metrics.pulled(Outcome::Shared);
            return Ok(true);
        }
        let Wanted { image, digest, .. } = &wanted;
        let conversion = self.conversion(&wanted, parent);
        if self.layers.is_known_as_other(digest) && conversion.is_none() {
            self.metrics.pulled(Outcome::Unpacked);
            return Ok(false);
        }
        if self.layers.is_slow(image) {
            self.metrics.pulled(Outcome::Failed);
            return Ok(false);
        }
        let last = conversion.map_or(deadline, |(_, last)| last.max(deadline));
        let held = self.layers.hold(digest, last)?;
        let (mounted, outcome) = self.mount(&held, &wanted, parent, (deadline, conversion));
        self.metrics.pulled(outcome);
        let committed = match mounted {
            Ok(Mounted::At(_)) => {
                let inserted = self.insert_layer(target, parent, labels, digest);
                inserted.map(|()| true)
            }
            other => other.map(|_| false),
        };
        if !matches!(committed, Ok(true)) {
            held.release_if_unused()?;
        }
        if committed.is_err() && Instant::now() >= deadline {
            self.layers.note_slow(image, self.limit);
        }
        committed
    }

    /// The manifest of a layer that may be converted, and the deadline of the conversion.
    fn conversion<'w>(&self, wanted: &'w Wanted, parent: &str) -> Option<(&'w str, Instant)> {
        let manifest = wanted.manifest.as_deref()?;
        let is_left = !parent.is_empty() && self.layers.is_for_containerd(&wanted.digest);
        let last = self.layers.conversion_deadline().filter(|_| !is_left)?;
        Some((manifest, last))
    }

    /// Mounts a layer directly if it is EROFS. Otherwise converts it first, if that is allowed.
    fn mount(
        &self,
        held: &Held<'_>,
        wanted: &Wanted,
        parent: &str,
        (deadline, conversion): (Instant, Option<(&str, Instant)>),
    ) -> (Result<Mounted>, Outcome) {
        let Wanted { image, digest, .. } = wanted;
        let as_it_is = match self.layers.is_known_as_other(digest) {
            true => Ok(Mounted::NotErofs),
            false => held.mount(image, None, deadline),
        };
        let (mounted, outcome) = match (as_it_is, conversion) {
            (Ok(Mounted::NotErofs), Some((manifest, last))) => {
                let converted = held.mount(image, Some(manifest), last);
                (converted, Outcome::Converted)
            }
            (mounted, _) => (mounted, Outcome::Mounted),
        };
        match mounted {
            Ok(Mounted::At(point))
                if !parent.is_empty() && held.needs_containerd(image, &point) =>
            {
                (Ok(Mounted::NotErofs), Outcome::Unpacked)
            }
            Ok(Mounted::NotErofs) => (Ok(Mounted::NotErofs), Outcome::Unpacked),
            Err(error) => (Err(error), Outcome::Failed),
            at => (at, outcome),
        }
    }

    fn has_target(&self, target: &str, parent: &str) -> Result<bool> {
        let snapshots = self.store.snapshots()?;
        Ok(snapshots.iter().any(|(_, record)| {
            record.kind == Kind::Committed
                && record.parent == parent
                && record.labels.get(TARGET).map(String::as_str) == Some(target)
        }))
    }

    /// Commits a layer under the name of its chain. If the name is taken by a snapshot on another
    /// parent (one that has the same layers, but unpacked), the new snapshot gets a different name,
    /// and containerd finds it by its label.
    fn insert_layer(
        &self,
        target: &str,
        parent: &str,
        labels: &Labels,
        digest: &str,
    ) -> Result<()> {
        let insert = |name: &str| {
            let (kind, labels) = (Kind::Committed, labels.clone());
            self.store.insert(name, kind, parent, labels, Some(digest))
        };
        match insert(target) {
            Err(Failure::AlreadyExists(_)) if self.has_target(target, parent)? => Ok(()),
            Err(Failure::AlreadyExists(_)) => insert(&format!("{target} above {parent}")).map(drop),
            other => other.map(drop),
        }
    }

    /// Prepares a read-only snapshot.
    pub fn view(&self, key: &str, parent: &str, labels: Labels) -> Result<Vec<Mount>> {
        self.create(key, Kind::View, parent, labels, self.deadline())
    }

    fn create(
        &self,
        key: &str,
        kind: Kind,
        parent: &str,
        labels: Labels,
        deadline: Instant,
    ) -> Result<Vec<Mount>> {
        // Record the snapshot first, since a directory without a record is removed.
        let record = self.store.insert(key, kind, parent, labels, None)?;
        self.mounts_of(&record, deadline).inspect_err(|_| {
            if self.store.remove(key).is_ok() {
                let _ = self.remove_files(record.id);
            }
        })
    }

    /// The mounts of a container's snapshot. Layers below it that are not mounted, as after a
    /// reboot, are mounted first.
    pub fn mounts(&self, key: &str) -> Result<Vec<Mount>> {
        let record = self.store.snapshot(key)?;
        if record.kind == Kind::Committed {
            return Err(Failure::Precondition(format!(
                "snapshot {key} is Committed and has no mounts"
            )));
        }
        self.mounts_of(&record, self.deadline())
    }

    fn mounts_of(&self, record: &Record, deadline: Instant) -> Result<Vec<Mount>> {
        let mut below = self.below(&record.parent, deadline)?;
        let files = self.directories.files(record.id);
        let mappings = Mappings::of(&record.labels);
        let root = mappings.as_ref().and_then(Mappings::root);
        let like = below.first().map(PathBuf::as_path);
        let made = self.directories.make(record.id, like, root);
        made.map_err(Failure::at(files.display()))?;
        if let Some(mappings) = mappings {
            let mapped = self.mapped.make(record.id, &below, &mappings);
            below = mapped.map_err(Failure::at("cannot map the owners of layers"))?;
        }
        let work = self.directories.work(record.id);
        Ok(match (record.kind, &below[..]) {
            (Kind::View, []) => mounts(&[files], None),
            (Kind::View, below) => mounts(below, None),
            (_, below) => mounts(below, Some(&Upper { files, work })),
        })
    }

    /// The directories of the layers from `parent` down. Mounts those layers that are not mounted.
    fn below(&self, parent: &str, deadline: Instant) -> Result<Vec<PathBuf>> {
        let (mut paths, mut name) = (Vec::new(), parent.to_owned());
        while !name.is_empty() {
            let record = self.store.snapshot(&name)?;
            paths.push(match &record.layer {
                None => self.directories.files(record.id),
                Some(digest) => self.mounted(digest, deadline)?,
            });
            name = record.parent;
        }
        Ok(paths)
    }

    fn mounted(&self, digest: &str, deadline: Instant) -> Result<PathBuf> {
        let known = self.store.layer(digest)?;
        let known = known.ok_or_else(|| Failure::NotFound(format!("layer {digest}")))?;
        let converts = known.manifest.as_ref();
        let last = converts.and_then(|_| self.layers.conversion_deadline());
        let deadline = last.map_or(deadline, |last| last.max(deadline));
        let held = self.layers.hold(digest, deadline)?;
        match held.mount(&known.image, known.manifest.as_deref(), deadline)? {
            Mounted::At(path) => Ok(path),
            Mounted::NotErofs => Err(Failure::Unavailable(format!(
                "image {}: layer {digest}: no longer an EROFS image",
                known.image
            ))),
        }
    }

    /// Turns the changes in `key` into the layer `name`.
    pub fn commit(&self, name: &str, key: &str, labels: Labels) -> Result<()> {
        let record = self.store.snapshot(key)?;
        must_be_active(key, &record)?;
        let usage = self.directory_usage(record.id)?;
        self.store.commit(name, key, labels, usage)
    }

    fn directory_usage(&self, id: u64) -> Result<Usage> {
        let files = self.directories.files(id);
        usage(&files).map_err(Failure::at(files.display()))
    }

    /// Removes a snapshot, and unmounts its layer if no other snapshot uses that layer.
    pub fn remove(&self, key: &str) -> Result<()> {
        let record = self.store.remove(key)?;
        if let Some(digest) = &record.layer {
            // If somebody is mounting the layer just now, a later clean-up checks whether it is
            // unused.
            let held = self.layers.hold(digest, self.deadline());
            return held.map_or(Ok(()), |held| held.release_if_unused());
        }
        let failed = format!("cannot remove files of snapshot {key}");
        self.remove_files(record.id).map_err(Failure::at(failed))
    }

    fn remove_files(&self, id: u64) -> io::Result<()> {
        self.mapped.remove(id)?;
        self.directories.remove(id)
    }

    /// Bytes and files that are removed with the snapshot. A mounted layer has none: its fetched
    /// data is in erofast's cache, which has its own limit.
    pub fn usage(&self, key: &str) -> Result<Usage> {
        let record = self.store.snapshot(key)?;
        match (record.kind, &record.layer) {
            (Kind::Active, _) => self.directory_usage(record.id),
            _ => Ok(record.usage),
        }
    }

    /// Changes labels: all of them, or those named by `paths` (`labels`, `labels.NAME`).
    pub fn update(&self, key: &str, labels: Labels, paths: Option<Vec<String>>) -> Result<Record> {
        let paths = paths.unwrap_or_default();
        let is_label = |path: &&String| *path == "labels" || path.starts_with("labels.");
        if let Some(other) = paths.iter().find(|path| !is_label(path)) {
            return Err(Failure::Invalid(format!(
                "cannot update {other:?} of snapshot {key}: only labels can be changed"
            )));
        }
        self.store.update(key, |known| {
            if paths.is_empty() || paths.iter().any(|path| path == "labels") {
                *known = labels;
                return;
            }
            for name in paths.iter().filter_map(|path| path.strip_prefix("labels.")) {
                match labels.get(name).filter(|value| !value.is_empty()) {
                    Some(value) => drop(known.insert(name.into(), value.clone())),
                    None => drop(known.remove(name)),
                }
            }
        })
    }

    /// Removes directories and mounts that belong to no snapshot.
    pub fn cleanup(&self) -> Result<()> {
        self.layers.clean()?;
        // Read the directories first: a snapshot is recorded before its directory is created.
        let failed = "cannot clean up directories of snapshots";
        let present = self.directories.present();
        let mut present = present.map_err(Failure::at(failed))?;
        present.extend(self.mapped.present().map_err(Failure::at(failed))?);
        let snapshots = self.store.snapshots()?;
        let owned: HashSet<_> = snapshots.iter().map(|(_, record)| record.id).collect();
        for id in present.into_iter().filter(|id| !owned.contains(id)) {
            self.remove_files(id).map_err(Failure::at(failed))?;
        }
        Ok(())
    }

    /// Mount points of layers.
    pub fn mounted_layers(&self) -> Vec<PathBuf> {
        self.layers.mounted()
    }
}
