//! Compares the decoder table with the C decoders themselves, and measures the cost of decoding
//! prefixes.
//!
//!     cargo bench -p erofs-codecs [-- FILE]
//!
//! Cuts FILE (default: this program) into blocks, encodes them, and decodes them in rounds that
//! alternate between the contenders, so that other load on the machine affects all of them alike.
//! The raw contenders call the binding crates, where each call is one call of the C library, and
//! reuse the stream and the output.
#![forbid(unsafe_code)]

#[path = "../tests/common/mod.rs"]
#[allow(dead_code)] // the benchmark uses only a part of it
mod common;

use common::encode;
use erofs_codecs::{Codec, Decoder, LZMA_DICTIONARY_MAX, Settings};
use std::hint::black_box;
use std::time::{Duration, Instant};

const ROUNDS: usize = 25;
const BLOCKS: usize = 48;

/// One encoded block: its stream and its decoded length.
struct Block {
    stream: Vec<u8>,
    length: usize,
}

type Contender = Box<dyn FnMut(&Block, &mut [u8])>;

fn main() {
    let file = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with('-'));
    let path = file.map_or_else(|| std::env::current_exe().expect("a program"), Into::into);
    let content = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    println!(
        "{}, {BLOCKS} blocks, {ROUNDS} rounds, one thread",
        path.display()
    );
    for size in [4096, 16384, 65536] {
        let plain: Vec<&[u8]> = spread(&content, size);
        println!("\nwhole blocks of {size} bytes: MB/s of output, median (lowest to highest)");
        for codec in Codec::ALL {
            whole(codec, &blocks(codec, &plain));
        }
    }
    println!("\nfirst bytes of blocks of 65536: us per block, median (lowest to highest)");
    let plain = spread(&content, 65536);
    for codec in Codec::ALL {
        prefixes(codec, &blocks(codec, &plain));
    }
}

/// Blocks spread evenly over the content.
fn spread(content: &[u8], size: usize) -> Vec<&[u8]> {
    let step = (content.len() / size / BLOCKS).max(1);
    content
        .chunks_exact(size)
        .step_by(step)
        .take(BLOCKS)
        .collect()
}

fn blocks(codec: Codec, plain: &[&[u8]]) -> Vec<Block> {
    plain
        .iter()
        .map(|p| Block {
            stream: encode(codec, p),
            length: p.len(),
        })
        .collect()
}

fn whole(codec: Codec, blocks: &[Block]) {
    let mut decoder = Decoder::new(Settings::default());
    let table = move |block: &Block, output: &mut [u8]| {
        decoder
            .decode(codec, &block.stream, output, false)
            .expect("decodes");
    };
    let contenders = [raw(codec), Box::new(table)];
    let [raw, table] = race(contenders, blocks);
    let bytes: usize = blocks.iter().map(|block| block.length).sum();
    let speed = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
    let ratio = median(
        raw.iter()
            .zip(&table)
            .map(|(r, t)| r.as_secs_f64() / t.as_secs_f64()),
    );
    println!(
        "  {:8} raw {}   table {}   table / raw {:.3}",
        codec.name(),
        summary(raw.iter().map(|&t| speed(t))),
        summary(table.iter().map(|&t| speed(t))),
        ratio
    );
}

fn prefixes(codec: Codec, blocks: &[Block]) {
    for length in [4096, 16384, 32768, 65536] {
        let mut decoder = Decoder::new(Settings::default());
        let mut other = Decoder::new(Settings::default());
        let prefix = move |block: &Block, output: &mut [u8]| {
            decoder
                .decode(codec, &block.stream, &mut output[..length], true)
                .expect("decodes");
        };
        let all = move |block: &Block, output: &mut [u8]| {
            other
                .decode(codec, &block.stream, output, false)
                .expect("decodes");
        };
        let [prefix, all] = race([Box::new(prefix), Box::new(all)], blocks);
        let each = |time: &Duration| time.as_secs_f64() * 1e6 / blocks.len() as f64;
        println!(
            "  {:8} {length:6} bytes {}   whole block {}",
            codec.name(),
            summary(prefix.iter().map(each)),
            summary(all.iter().map(each)),
        );
    }
}

/// The C decoder, called directly.
fn raw(codec: Codec) -> Contender {
    match codec {
        Codec::Lz4 => Box::new(|block, output| {
            lzzzz::lz4::decompress(&block.stream, output).expect("decodes");
        }),
        Codec::Lzma => {
            let mut stream = sys::microlzma::MicroLzma::new(LZMA_DICTIONARY_MAX);
            Box::new(move |block, output| {
                stream.decode(&block.stream, output, true).expect("decodes");
            })
        }
        Codec::Deflate => {
            let mut stream = libdeflater::Decompressor::new();
            Box::new(move |block, output| {
                stream
                    .deflate_decompress(&block.stream, output)
                    .expect("decodes");
            })
        }
        Codec::Zstd => {
            let mut context = zstd_safe::DCtx::create();
            Box::new(move |block, output| {
                context.decompress(output, &block.stream).expect("decodes");
            })
        }
    }
}

/// Times of the rounds of each contender, after a warm-up round that does not count. The order
/// changes from round to round.
fn race<const N: usize>(mut contenders: [Contender; N], blocks: &[Block]) -> [Vec<Duration>; N] {
    let mut output = vec![0; blocks.iter().map(|b| b.length).max().unwrap_or(0)];
    let mut times = [const { Vec::new() }; N];
    for round in 0..=ROUNDS {
        for turn in 0..N {
            let which = (turn + round) % N;
            let start = Instant::now();
            for block in blocks {
                contenders[which](block, black_box(&mut output[..block.length]));
            }
            if round > 0 {
                times[which].push(start.elapsed());
            }
        }
    }
    times
}

fn summary(values: impl Iterator<Item = f64>) -> String {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let digits = if values[0] < 100.0 { 1 } else { 0 };
    let (low, high) = (values[0], values[values.len() - 1]);
    format!(
        "{:.digits$} ({low:.digits$} to {high:.digits$})",
        values[values.len() / 2]
    )
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
