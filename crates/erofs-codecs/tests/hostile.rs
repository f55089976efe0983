//! Whatever a stream contains, decoding ends in bounded time, writes only to the output, and leaves
//! the decoder usable. All inputs are the same in every run.

use crate::common::{Course, encode, fenced, pad, sample};
use erofs_codecs::{Codec, Decoder, Reason, Settings};

const LENGTH: usize = 6000;

fn decoders() -> [Decoder; 2] {
    [true, false].map(|lz4_zero_padding| {
        Decoder::new(Settings {
            lz4_zero_padding,
            ..Settings::default()
        })
    })
}

/// Decodes `input` whole and partially, into outputs shorter and longer than a reasonable one.
fn attack(decoder: &mut Decoder, codec: Codec, input: &[u8]) {
    for length in [1, LENGTH / 2, LENGTH, LENGTH + 1000] {
        decode_over_old_bytes(decoder, codec, input, length);
    }
}

/// Checks that the fences are intact, and that the output reveals nothing of its old contents,
/// which may have been another file's data.
fn decode_over_old_bytes(decoder: &mut Decoder, codec: Codec, input: &[u8], length: usize) {
    for partial in [false, true] {
        let [one, other] = [0xee, 0x11].map(|old| {
            fenced(length, |output| {
                output.fill(old);
                decoder.decode(codec, input, output, partial)
            })
        });
        assert_eq!(one.0, other.0, "{codec}");
        assert!(
            one.0.is_err() || one.1 == other.1,
            "{codec}: old bytes show"
        );
    }
}

fn still_works(decoder: &mut Decoder, codec: Codec, good: &[u8], plain: &[u8]) {
    for (length, partial) in [(LENGTH, false), (LENGTH / 3, true)] {
        let (result, output) = fenced(length, |output| {
            decoder.decode(codec, good, output, partial)
        });
        assert_eq!(result, Ok(()), "{codec}");
        assert_eq!(output, plain[..length], "{codec}");
    }
}

#[test]
fn truncated_streams_end_in_an_error() {
    let plain = sample(LENGTH, 20);
    for codec in Codec::ALL {
        let stream = encode(codec, &plain);
        for decoder in &mut decoders() {
            for cut in 0..stream.len() {
                let (result, _) = fenced(LENGTH, |output| {
                    decoder.decode(codec, &stream[..cut], output, false)
                });
                assert!(
                    result.is_err(),
                    "{codec}: {cut} of {} bytes were enough",
                    stream.len()
                );
            }
            still_works(decoder, codec, &stream, &plain);
        }
    }
}

#[test]
fn a_prefix_out_of_a_truncated_stream_is_right_or_an_error() {
    let plain = sample(LENGTH, 21);
    for codec in Codec::ALL {
        let stream = encode(codec, &plain);
        let mut decoder = Decoder::new(Settings::default());
        for cut in (0..stream.len()).step_by(7) {
            for length in [1, 64, LENGTH / 2] {
                let (result, output) = fenced(length, |output| {
                    decoder.decode(codec, &stream[..cut], output, true)
                });
                assert!(
                    result.is_err() || output == plain[..length],
                    "{codec}: {cut}, {length}"
                );
            }
        }
    }
}

#[test]
fn mutated_streams_stay_inside_of_the_output() {
    let plain = sample(LENGTH, 22);
    let mut course = Course::new(23);
    for codec in Codec::ALL {
        let good = encode(codec, &plain);
        for decoder in &mut decoders() {
            for round in 0..1500 {
                let mut bad = good.clone();
                for _ in 0..1 + course.below(4) {
                    mutate(&mut bad, &mut course);
                }
                attack(decoder, codec, &bad);
                if round % 100 == 0 {
                    still_works(decoder, codec, &good, &plain);
                }
            }
        }
    }
}

fn mutate(bytes: &mut Vec<u8>, course: &mut Course) {
    let at = course.below(bytes.len());
    match course.below(5) {
        0 => bytes[at] ^= 1 << course.below(8),
        1 => bytes[at] = course.next() as u8,
        2 => bytes[at] = 0xff,
        3 => bytes.insert(at, course.next() as u8),
        _ => bytes.truncate(at.max(1)),
    }
}

#[test]
fn the_first_bytes_take_every_value() {
    let plain = sample(LENGTH, 24);
    for codec in Codec::ALL {
        let good = encode(codec, &plain);
        let mut decoder = Decoder::new(Settings::default());
        for at in 0..12 {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[at] = value;
                attack(&mut decoder, codec, &bad);
            }
        }
        still_works(&mut decoder, codec, &good, &plain);
    }
}

#[test]
fn garbage_is_survived() {
    let mut course = Course::new(25);
    for codec in Codec::ALL {
        for decoder in &mut decoders() {
            for _ in 0..1000 {
                let length = 1 + course.below(300);
                let input: Vec<u8> = (0..length).map(|_| course.next() as u8).collect();
                attack(decoder, codec, &input);
            }
            for byte in 0..=255 {
                attack(decoder, codec, &[byte; 4096]);
            }
        }
    }
}

#[test]
fn blocks_of_one_byte_are_errors_as_in_the_malformed_images() {
    for (codec, byte) in [
        (Codec::Lz4, 0xff),
        (Codec::Lzma, 0x5a),
        (Codec::Deflate, 0xff),
        (Codec::Zstd, 0x28),
    ] {
        for decoder in &mut decoders() {
            let (result, _) = fenced(30_000, |output| {
                decoder.decode(codec, &[byte; 16384], output, false)
            });
            assert!(result.is_err(), "{codec}");
        }
    }
}

#[test]
fn empty_input_and_zeros_are_reported() {
    let [mut padded, mut bare] = decoders();
    for codec in Codec::ALL {
        for partial in [false, true] {
            let mut reason = |input: &[u8]| {
                fenced(100, |out| padded.decode(codec, input, out, partial))
                    .0
                    .unwrap_err()
                    .reason
            };
            assert_eq!(reason(&[]), Reason::Empty, "{codec}");
            assert_eq!(reason(&[0; 4096]), Reason::AllZero, "{codec}");
            assert_eq!(reason(&[0; 9]), Reason::AllZero, "{codec}");
        }
    }
    let (result, _) = fenced(100, |out| bare.decode(Codec::Lz4, &[], out, true));
    assert_eq!(result.unwrap_err().reason, Reason::Empty);
}

#[test]
fn a_second_stream_behind_the_first_is_not_taken_for_its_rest() {
    let plain = sample(LENGTH, 26);
    for codec in Codec::ALL {
        let input = [encode(codec, &plain), encode(codec, &plain)].concat();
        for partial in [false, true] {
            let mut decoder = Decoder::new(Settings::default());
            let (result, _) = fenced(LENGTH * 2, |output| {
                decoder.decode(codec, &pad(&input, 4096), output, partial)
            });
            assert!(result.is_err(), "{codec}, partial: {partial}");
        }
    }
}

#[test]
fn lz4_matches_at_distance_zero_show_no_old_bytes() {
    for literals in [1, 2, 3, 8, 14, 15, 40, 200] {
        for length in (4..80).chain([127, 128, 129, 269, 270, 1039, 9000]) {
            for tail in [5, 12, 40] {
                let mut input = lz4_sequence(literals, Some((0, length)));
                input.extend(lz4_sequence(tail, None));
                let whole = literals + length + tail;
                for decoder in &mut decoders() {
                    for wanted in whole.saturating_sub(60).max(1)..=whole {
                        decode_over_old_bytes(decoder, Codec::Lz4, &input, wanted);
                    }
                }
            }
        }
    }
}

/// A sequence of `literals` literals, then a match of (distance, length).
fn lz4_sequence(literals: usize, copy: Option<(u16, usize)>) -> Vec<u8> {
    let (distance, length) = copy.map_or((None, 0), |(d, l)| (Some(d), l - 4));
    let mut bytes = vec![(literals.min(15) << 4 | length.min(15)) as u8];
    bytes.extend(lz4_length(literals));
    bytes.extend((0..literals).map(|i| b'a' + (i % 26) as u8));
    bytes.extend(distance.map(u16::to_le_bytes).into_iter().flatten());
    bytes.extend(lz4_length(length));
    bytes
}

/// The bytes after the token for a length of 15 or more.
fn lz4_length(length: usize) -> Vec<u8> {
    let Some(rest) = length.checked_sub(15) else {
        return vec![];
    };
    let mut bytes = vec![255; rest / 255];
    bytes.push((rest % 255) as u8);
    bytes
}

#[test]
fn lz4_prefixes_of_marks_are_right() {
    // The byte that `prefix` marks its output with, here as genuine content.
    for length in [100, 127, 128, 129, 5000] {
        let plain = vec![0xa9; length];
        let stream = encode(Codec::Lz4, &plain);
        let mut decoder = Decoder::new(Settings::default());
        for wanted in 1..=length {
            let (result, output) = fenced(wanted, |output| {
                decoder.decode(Codec::Lz4, &stream, output, true)
            });
            assert_eq!(result, Ok(()));
            assert_eq!(output, plain[..wanted]);
        }
    }
}
