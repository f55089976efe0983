//! Data and encoders for the tests and the benchmark.
use erofs_codecs::Codec;
use sys::microlzma::encoder::{self, EncoderParameters};

/// A generator with a fixed sequence (xorshift64), so that every run uses the same bytes.
#[derive(Clone, Debug)]
pub struct Course(u64);

impl Course {
    pub fn new(seed: u64) -> Self {
        Course(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Creates bytes that compress like those of a program: repeated words, numbers, runs, some noise.
pub fn sample(length: usize, seed: u64) -> Vec<u8> {
    let mut course = Course::new(seed);
    let mut bytes = Vec::with_capacity(length + 64);
    while bytes.len() < length {
        match course.below(16) {
            0..10 => bytes.extend_from_slice(word(course.below(512)).as_bytes()),
            10..12 => bytes.extend_from_slice(&(course.below(4096) as u32).to_le_bytes()),
            12 => bytes.extend(std::iter::repeat_n(0, course.below(40))),
            _ => bytes.extend_from_slice(&course.next().to_le_bytes()[..5]),
        }
    }
    bytes.truncate(length);
    bytes
}

fn word(index: usize) -> String {
    format!(
        "{:x}_{}",
        index * 2_654_435_761,
        ["load", "store", "call", "ret"][index % 4]
    )
}

/// Encodes `plain` as one stream of `codec`.
pub fn encode(codec: Codec, plain: &[u8]) -> Vec<u8> {
    match codec {
        Codec::Lz4 => encode_lz4(plain),
        Codec::Lzma => encode_lzma(plain, (3, 0, 2)),
        Codec::Deflate => encode_deflate(plain),
        Codec::Zstd => encode_zstd(plain, 17),
    }
}

pub fn encode_lz4(plain: &[u8]) -> Vec<u8> {
    let mut block = Vec::new();
    lzzzz::lz4_hc::compress_to_vec(plain, &mut block, 9).expect("lz4 encodes");
    block
}

pub fn encode_lzma(plain: &[u8], lc_lp_pb: (u32, u32, u32)) -> Vec<u8> {
    let parameters = EncoderParameters {
        preset: 6,
        dictionary: 1 << 20,
        lc_lp_pb,
    };
    let room = plain.len() + plain.len() / 8 + 64;
    let (taken, block) = encoder::encode(plain, room, parameters).expect("lzma encodes");
    assert_eq!(taken, plain.len());
    block
}

pub fn encode_deflate(plain: &[u8]) -> Vec<u8> {
    let level = libdeflater::CompressionLvl::new(9).expect("level 9 exists");
    let mut encoder = libdeflater::Compressor::new(level);
    let mut stream = vec![0; encoder.deflate_compress_bound(plain.len())];
    let made = encoder
        .deflate_compress(plain, &mut stream)
        .expect("deflate encodes");
    stream.truncate(made);
    stream
}

pub fn encode_zstd(plain: &[u8], window_log: u32) -> Vec<u8> {
    let mut encoder = zstd_safe::CCtx::create();
    encoder
        .set_parameter(zstd_safe::CParameter::CompressionLevel(9))
        .expect("level 9 exists");
    encoder
        .set_parameter(zstd_safe::CParameter::WindowLog(window_log))
        .expect("a window");
    let mut frame = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
    encoder.compress2(&mut frame, plain).expect("zstd encodes");
    frame
}

/// Puts enough zeros before `stream` to fill its last block.
pub fn pad(stream: &[u8], block_size: usize) -> Vec<u8> {
    let zeros = stream.len().next_multiple_of(block_size) - stream.len();
    let mut padded = vec![0; zeros];
    padded.extend_from_slice(stream);
    padded
}

const CANARY: u8 = 0xc7;
const FENCE: usize = 64;

/// Passes `body` an output of `length` bytes between fences, checks the fences, and returns the
/// output.
pub fn fenced<R>(length: usize, body: impl FnOnce(&mut [u8]) -> R) -> (R, Vec<u8>) {
    let mut memory = vec![CANARY; FENCE + length + FENCE];
    let result = body(&mut memory[FENCE..FENCE + length]);
    let outside = memory[..FENCE].iter().chain(&memory[FENCE + length..]);
    assert!(
        outside.into_iter().all(|&byte| byte == CANARY),
        "wrote outside of the output"
    );
    (result, memory[FENCE..FENCE + length].to_vec())
}
