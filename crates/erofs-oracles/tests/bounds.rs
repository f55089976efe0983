//! Hostile images through the engine: each request ends within its budget, and good files stay
//! readable.
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use erofs_engine::budget::MAX_BYTES;
use erofs_engine::{Engine, EngineOptions, Error, WorkersMode, errno};
use erofs_oracles::hostile::{self, Class};

/// Far longer than any machine needs; without a limit a request would take hours.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sparse image in a file that is removed when this value is dropped.
struct Image(PathBuf);

impl Image {
    fn new(class: Class) -> Self {
        // Tests run in parallel and may use images of the same class.
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = format!("hostile-{class:?}-{process}-{number}.erofs");
        let path = std::env::temp_dir().join(name);
        hostile::write(class, &path).expect("a file");
        Image(path)
    }

    fn open(&self, cache_bytes: u64) -> Arc<Engine> {
        let options = EngineOptions {
            workers: WorkersMode::Inline,
            cache_bytes,
            ..EngineOptions::default()
        };
        Engine::open(&self.0, &options).expect("the image opens")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Runs a request and checks its cost.
fn bounded<R>(engine: &Engine, request: impl FnOnce() -> Result<R, Error>) -> Result<R, Error> {
    let before = engine.stats();
    let started = Instant::now();
    let result = request();
    let after = engine.stats();
    let decoded = after.decoded_bytes - before.decoded_bytes;
    assert!(started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    // The last pcluster is charged before it is decoded.
    assert!(decoded <= MAX_BYTES, "{decoded} bytes decoded");
    result
}

fn list(engine: &Engine, path: &str) -> Result<u64, Error> {
    let directory = engine.resolve(path.as_bytes(), false)?;
    let mut count = 0;
    bounded(engine, || {
        engine.read_dir(&directory, 0, &mut |_, _, _, _| {
            count += 1;
            match count < 100_000 {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        })
    })?;
    Ok(count)
}

fn lookup(engine: &Engine, name: &str) -> Result<Option<u64>, Error> {
    let directory = engine.resolve(b"huge", false)?;
    bounded(engine, || {
        engine.lookup(&engine.waiting(), &directory, name.as_bytes())
    })
}

#[test]
fn the_good_file_of_every_hostile_image_reads() {
    for class in Class::ALL {
        let image = Image::new(class);
        let engine = image.open(8 << 20);
        let good = engine.resolve(b"good", false).expect("good");
        let mut content = [0; 16];
        let count = engine.read_at(&engine.waiting(), &good, 0, &mut content);
        assert_eq!(&content[..count.unwrap()], b"good\n", "{class:?}");
    }
}

#[test]
fn a_listing_of_broken_entries_without_end_ends() {
    for class in [Class::BrokenTerabyte, Class::BrokenSharedPcluster] {
        for cache in [0, 8 << 20] {
            let image = Image::new(class);
            let engine = image.open(cache);
            assert!(list(&engine, "huge").is_err(), "{class:?}");
            assert!(lookup(&engine, "absent").is_err(), "{class:?}");
        }
    }
}

/// Each part is as much as one READDIR of a mount asks for.
#[test]
fn a_part_of_a_listing_has_one_budget_and_the_next_part_goes_on_behind_it() {
    let image = Image::new(Class::SparseNames);
    let engine = image.open(8 << 20);
    let directory = engine.resolve(b"huge", false).expect("huge");
    let mut position = 0;
    for _ in 0..3 {
        let (before, mut count) = (position, 0);
        let part = || {
            engine.read_dir_part(&engine.waiting(), &directory, before, &mut |entry| {
                position = entry.map_or(position, |entry| entry.next);
                count += 1;
                ControlFlow::Continue(())
            })
        };
        bounded(&engine, part).expect("some names");
        println!("{count} names up to {position}");
        assert!(count > 0 && position > before);
    }
}

#[test]
fn an_absent_name_in_a_shared_pcluster_exceeds_the_budget_once() {
    for cache in [0, 8 << 20] {
        let image = Image::new(Class::DisorderSharedPcluster);
        let engine = image.open(cache);
        let error = lookup(&engine, "absent").unwrap_err();
        assert_eq!(error.errno(), errno::EIO, "{error}");
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
        let decoded = engine.stats().decoded_bytes;
        assert!(lookup(&engine, "absent").is_err());
        assert_eq!(engine.stats().decoded_bytes, decoded, "not remembered");
    }
}

#[test]
fn a_read_near_the_end_of_a_file_with_records_of_4_bytes_ends() {
    let image = Image::new(Class::SmallRecords);
    let engine = image.open(8 << 20);
    let huge = engine.resolve(b"huge", false).expect("huge");
    let mut bytes = [1; 4096];
    for offset in [huge.size - 4096, huge.size / 2, 1 << 36] {
        let read = || engine.read_at(&engine.waiting(), &huge, offset, &mut bytes);
        assert!(bounded(&engine, read).is_err(), "{offset}");
    }
    let read = || engine.read_at(&engine.waiting(), &huge, (1 << 36) - 4096, &mut bytes);
    assert_eq!(bounded(&engine, read).expect("within the limit"), 4096);
    assert_eq!(bytes, [0; 4096]);
}

#[test]
fn names_of_a_directory_that_repeats_itself_are_listed_as_long_as_a_caller_asks() {
    let image = Image::new(Class::RepeatedNames);
    let engine = image.open(8 << 20);
    assert_eq!(list(&engine, "huge").expect("sound entries"), 100_000);
    let _ = lookup(&engine, "absent");
}

#[test]
fn a_closed_engine_interrupts_what_takes_long() {
    let image = Image::new(Class::DisorderSharedPcluster);
    let engine = image.open(8 << 20);
    engine.close();
    let error = lookup(&engine, "absent").unwrap_err();
    assert_eq!(error.errno(), errno::EINTR, "{error}");
}
