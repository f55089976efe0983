//! Measures cached reads of 4 KiB by a growing number of threads: any state that the threads share
//! would keep them from scaling.
//!
//!     cargo bench -p erofs-engine --bench threads [-- IMAGE]
//!
//! Every thread does what a mount's worker does for a request: it names its client, looks up the
//! inode, and reads 4 KiB at a random offset. All pclusters are cached, so nothing is decoded. The
//! thread counts take turns, so that other load affects all of them alike; with more threads than
//! CPUs the rate should be the same as with one thread per CPU.
#![forbid(unsafe_code)]

use std::error::Error;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::{FileType, Nid};
use erofs_engine::{Engine, EngineOptions, WorkersMode};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const THREADS: [usize; 5] = [1, 2, 8, 32, 128];
const ROUNDS: usize = 9;
const TIME: Duration = Duration::from_millis(500);
const READ: usize = 4096;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let given = arguments.find(|argument| !argument.starts_with('-'));
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
    let image = given.map_or_else(|| fixtures.join("lz4-64k.erofs"), PathBuf::from);
    let options = EngineOptions {
        workers: WorkersMode::PerCpu,
        cache_bytes: 256 << 20,
        ..EngineOptions::default()
    };
    let engine = Engine::open(&image, &options)?;
    let places = compressed_pages(&engine)?;
    // Reads each page twice: the result of a single partial read may not be cached.
    for (nid, offset) in places.iter().chain(&places) {
        read(&engine, *nid, *offset, 0)?;
    }
    let before = engine.stats().decodes;
    println!("{}: {} pages", image.display(), places.len());
    let mut rates = [const { Vec::new() }; THREADS.len()];
    for round in 0..=ROUNDS {
        for turn in 0..THREADS.len() {
            let which = (turn + round) % THREADS.len();
            let rate = rate(&engine, &places, THREADS[which]);
            if round > 0 {
                rates[which].push(rate);
            }
        }
    }
    println!("  reads of 4 KiB a second: median (lowest to highest), share of two threads");
    for (threads, own) in THREADS.iter().zip(&rates) {
        let share = own.iter().zip(&rates[1]).map(|(rate, two)| rate / two);
        let low = own.iter().copied().fold(f64::INFINITY, f64::min);
        let high = own.iter().copied().fold(0.0, f64::max);
        println!(
            "    {threads:>3} threads {:>10.0} ({low:.0} to {high:.0}) {:>6.1} %",
            median(own.iter().copied()),
            median(share) * 100.0
        );
    }
    println!(
        "  {} pclusters decoded meanwhile",
        engine.stats().decodes - before
    );
    Ok(())
}

/// The inode and offset of every page of the compressed files.
fn compressed_pages(engine: &Engine) -> Result<Vec<(Nid, u64)>> {
    let (mut pages, mut waiting) = (Vec::new(), vec![engine.root()]);
    while let Some(nid) = waiting.pop() {
        let inode = engine.inode(nid)?;
        if inode.file_type() == FileType::Directory {
            engine.read_dir(&inode, 0, &mut |name, nid, _, _| {
                if name != b"." && name != b".." {
                    waiting.push(nid);
                }
                std::ops::ControlFlow::Continue(())
            })?;
        } else if inode.is_compressed() {
            let last = inode.size / READ as u64;
            pages.extend((0..last).map(|page| (nid, page * READ as u64)));
        }
    }
    match pages.is_empty() {
        true => Err("the image has no compressed file of 4 KiB or more".into()),
        false => Ok(pages),
    }
}

fn read(engine: &Engine, nid: Nid, offset: u64, client: u32) -> Result<()> {
    let mut buffer = [0; READ];
    let _busy = engine.asked_by(client);
    let inode = engine.borrow_inode(&engine.waiting(), nid)?;
    let read = engine.read_at(&engine.waiting(), &inode, offset, black_box(&mut buffer))?;
    assert_eq!(read, READ);
    Ok(())
}

/// Reads per second of all threads together.
fn rate(engine: &Engine, places: &[(Nid, u64)], threads: usize) -> f64 {
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        let (stop, start) = (&stop, &start);
        let one = move |seed: usize| {
            let (mut reads, mut random) = (0, seed as u64 * 2 + 1);
            start.wait();
            while !stop.load(Ordering::Relaxed) {
                // The constants of Knuth's MMIX generator, whose high bits are the random ones.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let (nid, offset) = places[(random >> 33) as usize % places.len()];
                read(engine, nid, offset, seed as u32).expect("a sound image");
                reads += 1;
            }
            reads
        };
        let running: Vec<_> = (0..threads)
            .map(|seed| scope.spawn(move || one(seed)))
            .collect();
        start.wait();
        let began = Instant::now();
        std::thread::sleep(TIME);
        stop.store(true, Ordering::Relaxed);
        let reads: u64 = running
            .into_iter()
            .map(|t| t.join().expect("no panic"))
            .sum();
        reads as f64 / began.elapsed().as_secs_f64()
    })
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
