//! The oracles of the stream decoders.

use crate::lz4_reference;
use erofs_codecs::{Codec, DecodeError, Decoder, Settings};

/// Bytes before the stream: flags, then the wanted output length minus one.
const HEAD: usize = 3;
const PARTIAL: u8 = 1;
const NO_PADDING: u8 = 2;
const FENCE: usize = 64;

/// LZ4: no panic, and nothing is written outside the output; if a plain reference decoder succeeds
/// too, it returns the same bytes.
pub fn lz4(data: &[u8]) {
    let Some(input) = Input::parse(data) else {
        return;
    };
    let Some(output) = check(Codec::Lz4, &input) else {
        return;
    };
    let stream = input.stream_of_lz4();
    if let Some(reference) = lz4_reference::decode(stream, output.len()) {
        assert_eq!(output, reference, "lz4 differs from the reference decoder");
    }
}

/// MicroLZMA: no panic, nothing is written outside the output, and whole and partial decoding agree
/// if both succeed.
pub fn lzma(data: &[u8]) {
    check_with_prefixes(Codec::Lzma, data);
}

/// DEFLATE: the promises of [`lzma`]; here, two different decoders do the whole and the partial
/// decoding.
pub fn deflate(data: &[u8]) {
    check_with_prefixes(Codec::Deflate, data);
}

/// Zstandard: the promises of [`lzma`].
pub fn zstd(data: &[u8]) {
    check_with_prefixes(Codec::Zstd, data);
}

/// The input of these oracles for `stream`, used for writing seeds.
pub fn codec_input(stream: &[u8], length: u16, partial: bool, padded: bool) -> Vec<u8> {
    let flags = if partial { PARTIAL } else { 0 } | if padded { 0 } else { NO_PADDING };
    let mut data = vec![flags];
    data.extend(length.saturating_sub(1).to_le_bytes());
    data.extend(stream);
    data
}

struct Input<'a> {
    partial: bool,
    padded: bool,
    length: usize,
    stream: &'a [u8],
}

impl<'a> Input<'a> {
    fn parse(data: &'a [u8]) -> Option<Self> {
        let (head, stream) = data.split_at_checked(HEAD)?;
        Some(Input {
            partial: head[0] & PARTIAL != 0,
            padded: head[0] & NO_PADDING == 0,
            length: usize::from(u16::from_le_bytes([head[1], head[2]])) + 1,
            stream,
        })
    }

    fn decoder(&self) -> Decoder {
        Decoder::new(Settings {
            lz4_zero_padding: self.padded,
            ..Settings::default()
        })
    }

    fn stream_of_lz4(&self) -> &'a [u8] {
        match self.padded {
            true => &self.stream[self.stream.iter().take_while(|&&byte| byte == 0).count()..],
            false => self.stream,
        }
    }
}

/// Decodes twice over different old bytes. Nothing outside the output changes, both runs have the
/// same outcome, and the result does not depend on what the output held before.
fn check(codec: Codec, input: &Input<'_>) -> Option<Vec<u8>> {
    let mut decoder = input.decoder();
    let one = fenced(&mut decoder, codec, input, input.length, 0xee);
    let other = fenced(&mut decoder, codec, input, input.length, 0x11);
    assert_eq!(one, other, "{codec}: two runs differ");
    one.ok()
}

fn fenced(
    decoder: &mut Decoder,
    codec: Codec,
    input: &Input<'_>,
    length: usize,
    old: u8,
) -> Result<Vec<u8>, DecodeError> {
    let mut memory = vec![old; FENCE + length + FENCE];
    let output = &mut memory[FENCE..FENCE + length];
    let result = decoder.decode(codec, input.stream, output, input.partial);
    let outside = memory[..FENCE].iter().chain(&memory[FENCE + length..]);
    assert!(
        outside.into_iter().all(|&byte| byte == old),
        "{codec}: wrote outside of the output"
    );
    result.map(|()| memory[FENCE..FENCE + length].to_vec())
}

fn check_with_prefixes(codec: Codec, data: &[u8]) {
    let Some(input) = Input::parse(data) else {
        return;
    };
    let Some(output) = check(codec, &input) else {
        return;
    };
    let mut decoder = input.decoder();
    for length in [output.len(), output.len().div_ceil(2)] {
        let prefix = Input {
            partial: true,
            ..input
        };
        if let Ok(bytes) = fenced(&mut decoder, codec, &prefix, length, 0x77) {
            assert_eq!(
                bytes,
                output[..length],
                "{codec}: a prefix of {length} bytes differs"
            );
        }
    }
}
