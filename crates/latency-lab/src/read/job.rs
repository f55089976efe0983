//! Runs the readers of one test.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{PoisonError, RwLock, mpsc};
use std::thread;
use std::time::Instant;

use fastrand::Rng;
use rustix::fs::{Advice, fadvise};

use super::cell::Test;
use super::content::{Content, Part, walk};
use crate::statistics::percentile;

/// Maximum number of reads in a random test; each reads a different place.
const RANDOM_READS: usize = 4000;

/// The result of one run of a test, in the test's unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Measured {
    pub(super) value: f64,
    /// 99th percentile of the latency of single reads; only in random tests.
    pub(super) p99_us: Option<f64>,
    pub(super) seconds: f64,
}

/// Runs a test on the mount at `point`.
pub(super) fn measure(
    test: Test,
    content: &Content,
    point: &Path,
    seed: u64,
) -> io::Result<Measured> {
    match test {
        Test::Sequential { readers } => sequential(content, point, readers),
        Test::Random { block, jobs } => {
            let places = places(content, block, RANDOM_READS, seed);
            random(places, content, point, block, jobs)
        }
        Test::Tree => timed(|| tree(point)),
        Test::Metadata => timed(|| walk(point, &mut |_, _| Ok(()))),
        Test::List => timed(|| list(point)),
    }
}

fn timed(work: impl FnOnce() -> io::Result<()>) -> io::Result<Measured> {
    let start = Instant::now();
    work()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok(Measured {
        value: seconds,
        p99_us: None,
        seconds,
    })
}

/// Runs `work` once for each of `shares`, all at the same time. The clock starts when all threads
/// are ready and stops when the last one has finished. If a thread cannot be started, none works.
fn together<S: Sync, R: Send>(
    shares: &[S],
    work: impl Fn(&S) -> io::Result<R> + Sync,
) -> io::Result<(f64, Vec<R>)> {
    together_in(|_| thread::Builder::new(), shares, work)
}

/// Like [`together`], but `thread` makes the builder of each thread, given the number of its share.
fn together_in<S: Sync, R: Send>(
    thread: impl Fn(usize) -> thread::Builder,
    shares: &[S],
    work: impl Fn(&S) -> io::Result<R> + Sync,
) -> io::Result<(f64, Vec<R>)> {
    // The threads wait until the lock is released, and work if it then holds `true`.
    let start = RwLock::new(false);
    thread::scope(|scope| {
        let mut started = start.write().unwrap_or_else(PoisonError::into_inner);
        let (ready, all_ready) = mpsc::channel();
        let mut readers = Vec::new();
        for (number, share) in shares.iter().enumerate() {
            let (start, work, ready) = (&start, &work, ready.clone());
            let reader = move || {
                let _ = ready.send(());
                if !*start.read().unwrap_or_else(PoisonError::into_inner) {
                    return Err(io::Error::other("not started"));
                }
                work(share)
            };
            let reader = thread(number).spawn_scoped(scope, reader);
            let refused = |error: io::Error| {
                let text = format!("cannot start reader {number}: {error}");
                io::Error::new(error.kind(), text)
            };
            readers.push(reader.map_err(refused)?);
        }
        all_ready.iter().take(shares.len()).for_each(drop);
        *started = true;
        drop(started);
        let start = Instant::now();
        let results: Vec<thread::Result<io::Result<R>>> = readers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        let seconds = start.elapsed().as_secs_f64();
        let results = results
            .into_iter()
            .map(|result| result.unwrap_or_else(|_| Err(io::Error::other("a reader panicked"))));
        Ok((seconds, results.collect::<io::Result<Vec<R>>>()?))
    })
}

fn sequential(content: &Content, point: &Path, readers: usize) -> io::Result<Measured> {
    let shares = content.shares(readers);
    let (seconds, _) = together(&shares, |share| {
        share.iter().try_for_each(|part| read_part(point, part))
    })?;
    Ok(Measured {
        value: content.bytes() as f64 / 1e6 / seconds,
        p99_us: None,
        seconds,
    })
}

fn read_part(point: &Path, part: &Part) -> io::Result<()> {
    let file = File::open(point.join(&part.path))?;
    let mut buffer = vec![0; Test::SEQUENTIAL_BLOCK];
    let (mut offset, end) = (part.start, part.start + part.length);
    while offset < end {
        let want = (end - offset).min(buffer.len() as u64) as usize;
        match file.read_at(&mut buffer[..want], offset)? {
            0 => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "a file is shorter than its size",
                ));
            }
            count => offset += count as u64,
        }
    }
    Ok(())
}

/// Places to read, in random order: each is the index of a part and an offset in that part, and no
/// block occurs twice.
fn places(content: &Content, block: usize, most: usize, seed: u64) -> Vec<(usize, u64)> {
    let block = block as u64;
    let blocks = |(number, part): (usize, &Part)| {
        (0..part.length / block)
            .map(move |place| (number, place * block))
            .collect::<Vec<_>>()
    };
    let mut places: Vec<_> = content.parts.iter().enumerate().flat_map(blocks).collect();
    Rng::with_seed(seed).shuffle(&mut places);
    places.truncate(most);
    places
}

fn random(
    places: Vec<(usize, u64)>,
    content: &Content,
    point: &Path,
    block: usize,
    jobs: usize,
) -> io::Result<Measured> {
    if places.is_empty() {
        return Err(io::Error::other(format!(
            "no file in the image has {block} bytes to read at random"
        )));
    }
    let used = places.iter().map(|place| place.0).max().unwrap_or(0) + 1;
    let files: Vec<File> = content.parts[..used]
        .iter()
        .map(|part| File::open(point.join(&part.path)))
        .collect::<io::Result<_>>()?;
    for file in &files {
        // Prevents read-ahead of the whole file, as fio does for random reads.
        fadvise(file, 0, None, Advice::Random)?;
    }
    let shares: Vec<&[(usize, u64)]> = places.chunks(places.len().div_ceil(jobs)).collect();
    let (seconds, latencies) = together(&shares, |share| read_places(share, &files, block))?;
    let latencies = latencies.concat();
    Ok(Measured {
        value: latencies.len() as f64 / seconds,
        p99_us: percentile(&latencies, 99.0),
        seconds,
    })
}

fn read_places(places: &[(usize, u64)], files: &[File], block: usize) -> io::Result<Vec<f64>> {
    let mut buffer = vec![0; block];
    let mut latencies = Vec::with_capacity(places.len());
    for &(file, offset) in places {
        let start = Instant::now();
        files[file].read_exact_at(&mut buffer, offset)?;
        latencies.push(start.elapsed().as_secs_f64() * 1e6);
    }
    Ok(latencies)
}

fn tree(point: &Path) -> io::Result<()> {
    walk(point, &mut |path, metadata| {
        if !metadata.is_file() {
            return Ok(());
        }
        read_part(
            point,
            &Part {
                path: path.to_owned(),
                start: 0,
                length: metadata.len(),
            },
        )
    })
}

/// Runs `ls` to its end. How many system calls it makes per entry depends on its version.
fn list(point: &Path) -> io::Result<()> {
    let output = Command::new("ls")
        .args(["-lR", "--"])
        .arg(point)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text.lines().next().unwrap_or("no message");
    Err(io::Error::other(format!("ls -lR: {first}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    fn content() -> Content {
        let part = |name: &str, length| Part {
            path: name.into(),
            start: 0,
            length,
        };
        Content {
            parts: vec![part("a", 100 << 10), part("b", 9000)],
        }
    }

    #[test]
    fn random_places_are_whole_blocks_and_never_the_same() {
        let mut all = places(&content(), 4096, usize::MAX, 3);
        assert_eq!(all.len(), 25 + 2);
        assert_ne!(all, places(&content(), 4096, usize::MAX, 4));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 27);
        assert_eq!(places(&content(), 4096, 5, 3).len(), 5);
    }

    #[test]
    fn a_thread_that_cannot_be_started_is_an_error_and_none_works() {
        let thread = |number: usize| match number {
            // No address space has room for this stack.
            2 => thread::Builder::new().stack_size(1 << 60),
            _ => thread::Builder::new(),
        };
        let work = |_: &()| -> io::Result<()> { panic!("a reader works") };
        let error = together_in(thread, &[(); 4], work).unwrap_err().to_string();
        assert!(error.starts_with("cannot start reader 2: "), "{error}");
    }

    #[test]
    fn every_test_reads_a_directory() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let directory = scratch.path();
        std::fs::write(directory.join("a"), vec![1; 100 << 10]).unwrap();
        std::fs::write(directory.join("b"), vec![1; 9000]).unwrap();
        for test in Test::all() {
            let result = measure(test, &content(), directory, 1);
            assert!(result.unwrap().value > 0.0, "{test:?}");
        }
        let mut too_long = content().parts[0].clone();
        too_long.length *= 2;
        let error = read_part(directory, &too_long).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = list(&directory.join("c")).unwrap_err().to_string();
        assert!(error.starts_with("ls -lR: ls: "), "{error}");
    }
}
