//! The database: snapshots by name, layers by digest. Each change is on disk when the call that
//! makes it returns.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::record::{Kind, Labels, LayerRecord, Record, Usage, now};
use crate::failure::Failure;

const SNAPSHOTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("snapshots");
const LAYERS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("layers");
const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

type Result<T> = std::result::Result<T, Failure>;
type Table<'t> = redb::Table<'t, &'static str, &'static [u8]>;

/// The database.
#[derive(Debug)]
pub struct Store(Database);

impl Store {
    /// Opens or creates the database. Only one process at a time can have it open.
    pub fn open(path: &Path) -> Result<Self> {
        let shown = path.display();
        let database = Database::create(path).map_err(|error| {
            Failure::Internal(match error {
                redb::DatabaseError::DatabaseAlreadyOpen => {
                    format!("{shown}: in use by another erofast-snapshotter")
                }
                error => format!("cannot open the database {shown}: {error}"),
            })
        })?;
        let store = Self(database);
        // Create the tables, so that readers find them.
        store.write(|_, _, _| Ok(()))?;
        Ok(store)
    }

    /// Runs one transaction, which changes nothing if it fails.
    fn write<T>(
        &self,
        change: impl FnOnce(
            &mut Table<'_>,
            &mut Table<'_>,
            &mut redb::Table<'_, &'static str, u64>,
        ) -> Result<T>,
    ) -> Result<T> {
        let transaction = self.0.begin_write().map_err(broken)?;
        let changed = {
            let mut snapshots = transaction.open_table(SNAPSHOTS).map_err(broken)?;
            let mut layers = transaction.open_table(LAYERS).map_err(broken)?;
            let mut numbers = transaction.open_table(NUMBERS).map_err(broken)?;
            change(&mut snapshots, &mut layers, &mut numbers)?
        };
        transaction.commit().map_err(broken)?;
        Ok(changed)
    }

    /// The snapshot with this name.
    pub fn snapshot(&self, key: &str) -> Result<Record> {
        let transaction = self.0.begin_read().map_err(broken)?;
        let table = transaction.open_table(SNAPSHOTS).map_err(broken)?;
        found(&table, key)?.ok_or_else(|| missing(key))
    }

    /// All snapshots with their names.
    pub fn snapshots(&self) -> Result<Vec<(String, Record)>> {
        let transaction = self.0.begin_read().map_err(broken)?;
        all(&transaction.open_table(SNAPSHOTS).map_err(broken)?)
    }

    /// The layer with this digest, if it is known.
    pub fn layer(&self, digest: &str) -> Result<Option<LayerRecord>> {
        let transaction = self.0.begin_read().map_err(broken)?;
        found(&transaction.open_table(LAYERS).map_err(broken)?, digest)
    }

    /// All layers with their digests.
    pub fn layers(&self) -> Result<Vec<(String, LayerRecord)>> {
        let transaction = self.0.begin_read().map_err(broken)?;
        all(&transaction.open_table(LAYERS).map_err(broken)?)
    }

    /// Adds a snapshot; `layer` is the digest of the layer that is mounted for it.
    pub fn insert(
        &self,
        key: &str,
        kind: Kind,
        parent: &str,
        labels: Labels,
        layer: Option<&str>,
    ) -> Result<Record> {
        self.write(|snapshots, _, numbers| {
            if snapshots.get(key).map_err(broken)?.is_some() {
                return Err(Failure::AlreadyExists(format!("snapshot {key}")));
            }
            if !parent.is_empty() {
                must_be_committed(snapshots, parent)?;
            }
            let mut record = Record::new(next(numbers)?, kind, parent, labels);
            record.layer = layer.map(str::to_owned);
            put(snapshots, key, &record)?;
            Ok(record)
        })
    }

    /// Returns the record of the layer with this digest, and creates it if there is none. The
    /// record holds the image and the manifest from the latest call.
    pub fn insert_layer(
        &self,
        digest: &str,
        image: &str,
        manifest: Option<&str>,
    ) -> Result<LayerRecord> {
        self.write(|_, layers, numbers| {
            let known: Option<LayerRecord> = found(layers, digest)?;
            let id = known.map_or_else(|| next(numbers), |known| Ok(known.id))?;
            let record = LayerRecord {
                id,
                image: image.to_owned(),
                manifest: manifest.map(str::to_owned),
            };
            put(layers, digest, &record)?;
            Ok(record)
        })
    }

    /// Turns the active snapshot `key` into a layer with the name `name`.
    pub fn commit(&self, name: &str, key: &str, labels: Labels, usage: Usage) -> Result<()> {
        self.write(|snapshots, _, _| {
            let record: Option<Record> = found(snapshots, key)?;
            let mut record = record.ok_or_else(|| missing(key))?;
            must_be_active(key, &record)?;
            if snapshots.get(name).map_err(broken)?.is_some() {
                return Err(Failure::AlreadyExists(format!("snapshot {name}")));
            }
            snapshots.remove(key).map_err(broken)?;
            record.kind = Kind::Committed;
            record.labels = labels;
            record.updated = now();
            record.usage = usage;
            put(snapshots, name, &record)
        })
    }

    /// Changes the labels of a snapshot.
    pub fn update(&self, key: &str, change: impl FnOnce(&mut Labels)) -> Result<Record> {
        self.write(|snapshots, _, _| {
            let record: Option<Record> = found(snapshots, key)?;
            let mut record = record.ok_or_else(|| missing(key))?;
            change(&mut record.labels);
            record.updated = now();
            put(snapshots, key, &record)?;
            Ok(record)
        })
    }

    /// Removes a snapshot on which no other is stacked.
    pub fn remove(&self, key: &str) -> Result<Record> {
        self.write(|snapshots, _, _| {
            let record: Option<Record> = found(snapshots, key)?;
            let record = record.ok_or_else(|| missing(key))?;
            let above = all::<Record>(snapshots)?;
            let above = above.iter().find(|(_, other)| other.parent == key);
            if let Some((child, _)) = above {
                let why = format!("cannot remove snapshot {key}: {child} depends on it");
                return Err(Failure::Precondition(why));
            }
            snapshots.remove(key).map_err(broken)?;
            Ok(record)
        })
    }

    /// Forgets the layer, unless a snapshot uses it.
    pub fn remove_unused_layer(&self, digest: &str) -> Result<Option<LayerRecord>> {
        self.write(|snapshots, layers, _| {
            let records = all::<Record>(snapshots)?;
            let used = |record: &Record| record.layer.as_deref() == Some(digest);
            if records.iter().any(|(_, record)| used(record)) {
                return Ok(None);
            }
            let known = found(layers, digest)?;
            layers.remove(digest).map_err(broken)?;
            Ok(known)
        })
    }
}

/// Fails unless the snapshot can still be written to.
pub fn must_be_active(key: &str, record: &Record) -> Result<()> {
    match record.kind {
        Kind::Active => Ok(()),
        kind => Err(Failure::Precondition(format!(
            "snapshot {key} is {kind:?}, not Active"
        ))),
    }
}

fn must_be_committed(snapshots: &Table<'_>, parent: &str) -> Result<()> {
    let record: Option<Record> = found(snapshots, parent)?;
    match record.ok_or_else(|| missing(parent))?.kind {
        Kind::Committed => Ok(()),
        kind => Err(Failure::Invalid(format!(
            "parent {parent} is {kind:?}, not Committed"
        ))),
    }
}

fn next(numbers: &mut redb::Table<'_, &'static str, u64>) -> Result<u64> {
    let last = numbers.get("last").map_err(broken)?;
    let next = last.map_or(0, |last| last.value()) + 1;
    numbers.insert("last", next).map_err(broken)?;
    Ok(next)
}

fn found<T: DeserializeOwned>(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    key: &str,
) -> Result<Option<T>> {
    let value = table.get(key).map_err(broken)?;
    value.map(|value| parsed(value.value())).transpose()
}

fn all<T: DeserializeOwned>(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
) -> Result<Vec<(String, T)>> {
    let rows = table.iter().map_err(broken)?;
    rows.map(|row| {
        let (key, value) = row.map_err(broken)?;
        Ok((key.value().to_owned(), parsed(value.value())?))
    })
    .collect()
}

fn put<T: Serialize>(table: &mut Table<'_>, key: &str, value: &T) -> Result<()> {
    let json = serde_json::to_vec(value).map_err(broken)?;
    table.insert(key, json.as_slice()).map_err(broken)?;
    Ok(())
}

fn parsed<T: DeserializeOwned>(json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(broken)
}

fn missing(key: &str) -> Failure {
    Failure::NotFound(format!("snapshot {key}"))
}

fn broken(error: impl std::fmt::Display) -> Failure {
    Failure::Internal(format!("the snapshot database: {error}"))
}
