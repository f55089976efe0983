//! Every way to read a file returns the bytes of the tree that the image was made from.
//!
//! `EROFS_FUSE_READ_SECONDS=600` makes it a long run.

use std::fs::{self, File};
use std::io::{IoSliceMut, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use erofs_mount::{mount, umount};
use rustix::fs::{Advice, copy_file_range, fadvise, sendfile};
use rustix::io::Errno;
use rustix::pipe::{SpliceFlags, pipe, splice};

use crate::built::{BuiltImage, Random};
use crate::place::Place;
use crate::{Test, request};

pub const TESTS: &[Test] = tests![every_way_of_reading_returns_the_original_bytes];

const THREADS: u64 = 4;

/// Variations of the images: codecs, sizes of pclusters, packing.
const IMAGES: &[&[&str]] = &[
    &["-zlz4hc", "-C65536"],
    &["-zlz4hc", "-C4096", "-Eztailpacking"],
    &["-zlzma", "-C65536", "-Efragments"],
    &["-zzstd", "-C65536", "-Ededupe,fragments"],
    &["-zdeflate", "-C16384"],
    &[],
];

fn every_way_of_reading_returns_the_original_bytes() {
    let seconds = std::env::var("EROFS_FUSE_READ_SECONDS");
    let seconds: f64 = seconds.ok().and_then(|s| s.parse().ok()).unwrap_or(6.0);
    let each = Duration::from_secs_f64(seconds / (2 * IMAGES.len()) as f64);
    let mut reads = 0;
    for (number, options) in IMAGES.iter().enumerate() {
        let Some(built) = BuiltImage::new(&format!("read{number}"), options, 12) else {
            continue;
        };
        for transport in ["io_uring=off", "io_uring=on"] {
            let place = Place::new();
            match mount(&request(&built.image(), &place, transport)) {
                Err(error) if transport == "io_uring=on" => {
                    println!("skipped: {error}");
                    continue;
                }
                outcome => outcome.unwrap(),
            }
            reads += read_for(each, &built, &place.path, number as u64);
            umount(&place.path, false).unwrap();
        }
    }
    println!("{reads} random reads, all bytes correct");
}

/// Reads for `duration`, and returns the number of reads.
fn read_for(duration: Duration, built: &BuiltImage, mounted: &Path, seed: u64) -> usize {
    let originals: Vec<_> = fs::read_dir(built.tree().join("data"))
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap()))
        .collect();
    let originals = Arc::new(originals);
    let end = Instant::now() + duration;
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (originals, mounted) = (Arc::clone(&originals), mounted.to_owned());
            thread::spawn(move || {
                let mut random = Random::new(seed * THREADS + thread + 1);
                let mut reads = 0;
                // Make at least some reads, however slow the machine is.
                while reads < 50 || Instant::now() < end {
                    let (name, original) = &originals[random.below(originals.len())];
                    if !original.is_empty() {
                        read_once(&mounted.join("data").join(name), original, &mut random);
                        reads += 1;
                    }
                }
                reads
            })
        })
        .collect();
    threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum()
}

fn read_once(path: &Path, original: &[u8], random: &mut Random) {
    let way = random.below(9);
    let direct = if way == 0 {
        rustix::fs::OFlags::DIRECT.bits()
    } else {
        0
    };
    let mut options = File::options();
    let mut file = options
        .read(true)
        .custom_flags(direct as i32)
        .open(path)
        .unwrap();
    if random.below(4) == 0 {
        // Read without the kernel's cache of the file.
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
    let from = random.below(original.len());
    let longest = if random.below(8) == 0 {
        1_500_000
    } else {
        20_000
    };
    let length = (1 + random.below(longest)).min(original.len() - from);
    let (from, length) = if way == 0 {
        (from & !511, length)
    } else {
        (from, length)
    };
    let expected = &original[from..(from + length).min(original.len())];
    let mut bytes = vec![0xAA; expected.len()];
    match way {
        0 | 1 => file.read_exact_at(&mut bytes, from as u64).unwrap(),
        2 => {
            file.seek(SeekFrom::Start(from as u64)).unwrap();
            file.read_exact(&mut bytes).unwrap();
        }
        3 => vectored(&file, from, &mut bytes),
        4 => {
            let page = from & !4095;
            let mut mapped = vec![0xAA; from - page + bytes.len()];
            sys::mapped_read::read(&file, page as u64, &mut mapped).unwrap();
            bytes.copy_from_slice(&mapped[from - page..]);
        }
        5 => through_a_pipe(&file, from, &mut bytes),
        6 => {
            let mut copy = scratch();
            let mut at = from as u64;
            while (at as usize) < from + bytes.len() {
                let left = from + bytes.len() - at as usize;
                assert!(sendfile(&copy, &file, Some(&mut at), left).unwrap() > 0);
            }
            copy.rewind().unwrap();
            copy.read_exact(&mut bytes).unwrap();
        }
        7 => copied(&file, from, &mut bytes),
        // Ask for one byte more than is left, which gives a short read.
        _ => {
            let mut rest = vec![0xAA; original.len() - from + 1];
            let mut done = 0;
            while let read @ 1.. = file
                .read_at(&mut rest[done..], (from + done) as u64)
                .unwrap()
            {
                done += read;
            }
            assert_eq!(done, original.len() - from, "{}: its end", path.display());
            bytes.copy_from_slice(&rest[..length]);
        }
    }
    let differs = bytes.iter().zip(expected).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!(
            "{}: way {way}, {} bytes at {from}: byte {} is {:#x}, not {:#x}",
            path.display(),
            expected.len(),
            from + at,
            bytes[at],
            expected[at]
        );
    }
}

fn vectored(file: &File, from: usize, bytes: &mut [u8]) {
    let mut done = 0;
    while done < bytes.len() {
        let rest = &mut bytes[done..];
        let (first, second) = rest.split_at_mut(rest.len() / 3);
        let mut slices = [IoSliceMut::new(first), IoSliceMut::new(second)];
        let read = rustix::io::preadv(file, &mut slices, (from + done) as u64).unwrap();
        assert!(read > 0);
        done += read;
    }
}

/// Copies like cp(1): the kernel refuses to copy between unrelated filesystems, so the bytes are
/// read.
fn copied(file: &File, from: usize, bytes: &mut [u8]) {
    let mut copy = scratch();
    let (mut at, end) = (from as u64, (from + bytes.len()) as u64);
    while at < end {
        let left = (end - at) as usize;
        match copy_file_range(file, Some(&mut at), &copy, None, left) {
            Ok(copied) => assert!(copied > 0),
            Err(Errno::XDEV) => return file.read_exact_at(bytes, from as u64).unwrap(),
            Err(error) => panic!("copy_file_range: {error}"),
        }
    }
    copy.rewind().unwrap();
    copy.read_exact(bytes).unwrap();
}

fn through_a_pipe(file: &File, from: usize, bytes: &mut [u8]) {
    let (reader, writer) = pipe().unwrap();
    let mut reader = File::from(reader);
    let mut done = 0;
    while done < bytes.len() {
        let mut at = (from + done) as u64;
        let left = bytes.len() - done;
        let moved = splice(
            file,
            Some(&mut at),
            &writer,
            None,
            left.min(65536),
            SpliceFlags::empty(),
        );
        let moved = moved.unwrap();
        assert!(moved > 0);
        reader.read_exact(&mut bytes[done..done + moved]).unwrap();
        done += moved;
    }
}

/// A file without a name.
fn scratch() -> File {
    let name = rustix::fs::memfd_create("scratch", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    File::from(name)
}
