//! Decoding returns what an encoder wrote, whole and from the front.

use crate::common::{encode, encode_lzma, encode_zstd, fenced, pad, sample};
use erofs_codecs::{Codec, DecodeError, Decoder, LZMA_DICTIONARY_MAX, Reason, Settings};

fn decode(
    decoder: &mut Decoder,
    codec: Codec,
    input: &[u8],
    length: usize,
    partial: bool,
) -> Result<Vec<u8>, DecodeError> {
    let (result, output) = fenced(length, |output| {
        decoder.decode(codec, input, output, partial)
    });
    result.map(|()| output)
}

#[test]
fn whole_streams_of_many_sizes() {
    let mut decoder = Decoder::new(Settings::default());
    for codec in Codec::ALL {
        for size in [
            1,
            2,
            13,
            100,
            4095,
            4096,
            4097,
            65_536,
            131_072,
            131_073,
            1 << 20,
        ] {
            let plain = sample(size, size as u64);
            let stream = encode(codec, &plain);
            let padded = pad(&stream, 4096);
            for input in [&stream, &padded] {
                let output = decode(&mut decoder, codec, input, size, false);
                assert_eq!(output.as_ref(), Ok(&plain), "{codec}, {size} bytes");
            }
        }
    }
}

#[test]
fn every_length_of_padding_below_a_block() {
    let plain = sample(700, 1);
    let mut decoder = Decoder::new(Settings {
        block_size: 512,
        ..Settings::default()
    });
    for codec in Codec::ALL {
        let stream = encode(codec, &plain);
        for zeros in 0..512 {
            let input = [vec![0; zeros], stream.clone()].concat();
            assert_eq!(
                decode(&mut decoder, codec, &input, 700, false).as_ref(),
                Ok(&plain)
            );
        }
        let input = [vec![0; 512], stream].concat();
        let error = decode(&mut decoder, codec, &input, 700, false).unwrap_err();
        assert_eq!(error.reason, Reason::AllZero, "{codec}");
    }
}

#[test]
fn prefixes_of_every_length() {
    let plain = sample(3000, 2);
    let mut decoder = Decoder::new(Settings::default());
    for codec in Codec::ALL {
        let input = pad(&encode(codec, &plain), 4096);
        for length in 0..=plain.len() {
            let output = decode(&mut decoder, codec, &input, length, true);
            assert_eq!(
                output.as_deref(),
                Ok(&plain[..length]),
                "{codec}, {length} bytes"
            );
        }
    }
}

#[test]
fn prefixes_of_a_stream_of_many_blocks() {
    let plain = sample(600_000, 3);
    let mut decoder = Decoder::new(Settings::default());
    for codec in Codec::ALL {
        let input = pad(&encode(codec, &plain), 4096);
        for length in [
            1, 4096, 65_537, 131_071, 131_072, 131_073, 400_000, 599_999, 600_000,
        ] {
            let output = decode(&mut decoder, codec, &input, length, true);
            assert_eq!(
                output.as_deref(),
                Ok(&plain[..length]),
                "{codec}, {length} bytes"
            );
        }
    }
}

#[test]
fn a_whole_stream_must_end_where_the_output_ends() {
    let plain = sample(5000, 4);
    let mut decoder = Decoder::new(Settings::default());
    for codec in Codec::ALL {
        let input = pad(&encode(codec, &plain), 4096);
        for wrong in [1, 4096, 4999, 5001, 5032, 9000] {
            let result = decode(&mut decoder, codec, &input, wrong, false);
            assert!(
                result.is_err(),
                "{codec}: {wrong} bytes out of a stream of 5000"
            );
        }
        assert!(
            decode(&mut decoder, codec, &input, 5000, false).is_ok(),
            "{codec}"
        );
    }
}

#[test]
fn no_prefix_is_longer_than_its_stream() {
    let plain = sample(5000, 5);
    let mut decoder = Decoder::new(Settings::default());
    for codec in Codec::ALL {
        let input = pad(&encode(codec, &plain), 4096);
        for wrong in [5001, 5032, 9000, 1 << 20] {
            let result = decode(&mut decoder, codec, &input, wrong, true);
            assert!(
                result.is_err(),
                "{codec}: {wrong} bytes out of a stream of 5000"
            );
        }
    }
}

#[test]
fn lz4_without_padding_ignores_what_follows_the_block() {
    let plain = sample(9000, 6);
    let block = encode(Codec::Lz4, &plain);
    let settings = Settings {
        lz4_zero_padding: false,
        ..Settings::default()
    };
    let mut decoder = Decoder::new(settings);
    for tail in [vec![], vec![0; 900], vec![0xff; 900], sample(900, 7)] {
        let input = [block.clone(), tail].concat();
        for partial in [false, true] {
            let output = decode(&mut decoder, Codec::Lz4, &input, 9000, partial);
            assert_eq!(output.as_ref(), Ok(&plain));
            let output = decode(&mut decoder, Codec::Lz4, &input, 100, partial);
            assert_eq!(output.as_deref(), Ok(&plain[..100]));
        }
    }
}

#[test]
fn every_property_byte_of_lzma() {
    let plain = sample(4000, 8);
    let mut decoder = Decoder::new(Settings::default());
    for lc in 0..=4 {
        for lp in 0..=4 - lc {
            for pb in 0..=4 {
                let input = encode_lzma(&plain, (lc, lp, pb));
                assert_eq!(
                    decode(&mut decoder, Codec::Lzma, &input, 4000, false),
                    Ok(plain.clone())
                );
            }
        }
    }
}

#[test]
fn lzma_honours_the_dictionary_of_the_image() {
    let half = sample(100_000, 9);
    let plain = [half.clone(), half].concat();
    let input = encode(Codec::Lzma, &plain);
    for (lzma_dictionary, fits) in [(1 << 20, true), (LZMA_DICTIONARY_MAX, true), (4096, false)] {
        let mut decoder = Decoder::new(Settings {
            lzma_dictionary,
            ..Settings::default()
        });
        let result = decode(&mut decoder, Codec::Lzma, &input, plain.len(), false);
        assert_eq!(result.is_ok(), fits, "dictionary of {lzma_dictionary}");
    }
}

#[test]
fn dictionaries_and_windows_over_the_limit_of_the_format_are_refused() {
    let plain = sample(100, 10);
    let settings = Settings {
        lzma_dictionary: LZMA_DICTIONARY_MAX + 1,
        zstd_window_log: 21,
        ..Settings::default()
    };
    for codec in [Codec::Lzma, Codec::Zstd] {
        let input = encode(codec, &plain);
        let error = decode(&mut Decoder::new(settings), codec, &input, 100, false).unwrap_err();
        assert_eq!(error.reason, Reason::WindowTooLarge, "{codec}");
    }
}

#[test]
fn a_zstd_frame_with_a_larger_window_than_declared_gets_no_memory() {
    let plain = sample(2 << 20, 11);
    let input = encode_zstd(&plain, 20);
    let mut narrow = Decoder::new(Settings {
        zstd_window_log: 16,
        ..Settings::default()
    });
    let error = decode(&mut narrow, Codec::Zstd, &input, 100, true).unwrap_err();
    assert_eq!(error.reason, Reason::WindowTooLarge);
    let mut wide = Decoder::new(Settings::default());
    assert_eq!(
        decode(&mut wide, Codec::Zstd, &input, 100, true).as_deref(),
        Ok(&plain[..100])
    );
}

#[test]
fn an_empty_output_needs_nothing() {
    let mut decoder = Decoder::new(Settings::default());
    for codec in Codec::ALL {
        for partial in [false, true] {
            assert_eq!(decode(&mut decoder, codec, &[], 0, partial), Ok(vec![]));
            assert_eq!(
                decode(&mut decoder, codec, &[0xff; 9], 0, partial),
                Ok(vec![])
            );
        }
    }
}

#[test]
fn errors_are_one_line_with_all_numbers() {
    let mut decoder = Decoder::new(Settings::default());
    let error = decode(&mut decoder, Codec::Zstd, &[0x28; 4096], 8192, false).unwrap_err();
    let line = "zstd: corrupted compressed data (4096 bytes in, 8192 bytes wanted)";
    assert_eq!(error.to_string(), line);
}

#[test]
fn a_decoder_may_move_to_another_thread() {
    fn is_send<T: Send + 'static>() {}
    is_send::<Decoder>();
}
