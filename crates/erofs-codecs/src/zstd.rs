//! Zstandard frames, using the C library.

use crate::{Reason, ZSTD_WINDOW_LOG_MAX};
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

/// The smallest window limit that the library accepts (`ZSTD_WINDOWLOG_ABSOLUTEMIN`).
const WINDOW_LOG_MIN: u32 = 10;

// Numbers of `ZSTD_ErrorCode`, pinned by the library's interface ("zstd_errors.h").
const WINDOW_TOO_LARGE: usize = 16;
const NO_MEMORY: usize = 64;
const OUTPUT_TOO_SMALL: usize = 70;
const INPUT_WRONG_SIZE: usize = 72;

/// The number that every frame begins with, `ZSTD_MAGICNUMBER`.
const MAGIC: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();

/// One context for whole frames and prefixes.
pub(crate) struct Zstd {
    context: DCtx<'static>,
    /// Maximum size of a window.
    window: u64,
}

impl Zstd {
    pub(crate) fn new(window_log: u32) -> Result<Self, Reason> {
        if window_log > ZSTD_WINDOW_LOG_MAX {
            return Err(Reason::WindowTooLarge);
        }
        let mut context = DCtx::try_create().ok_or(Reason::OutOfMemory)?;
        let window_log = window_log.max(WINDOW_LOG_MIN);
        let limit = DParameter::WindowLogMax(window_log);
        context.set_parameter(limit).map_err(reason_of)?;
        let window = 1 << window_log;
        Ok(Zstd { context, window })
    }

    /// Decodes a frame that must fill `output` exactly. It is decoded in place, so its window costs
    /// nothing, but the window has the same limit as for prefixes: otherwise a file could be read
    /// whole but not in part.
    pub(crate) fn whole(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
        // The library would treat bytes after the frame as the next frame.
        let end = zstd_safe::find_frame_compressed_size(input).map_err(reason_of)?;
        let frame = input.get(..end).ok_or(Reason::Truncated)?;
        if window_of(frame).is_some_and(|window| window > self.window) {
            return Err(Reason::WindowTooLarge);
        }
        match self.context.decompress(output, frame).map_err(reason_of)? {
            produced if produced == output.len() => Ok(()),
            produced => Err(Reason::EndsEarly { produced }),
        }
    }

    /// Decodes the first bytes of a frame.
    pub(crate) fn prefix(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
        self.context
            .reset(ResetDirective::SessionOnly)
            .map_err(reason_of)?;
        let wanted = output.len();
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(output);
        loop {
            let before = (input.pos(), output.pos());
            let hint = self
                .context
                .decompress_stream(&mut output, &mut input)
                .map_err(reason_of)?;
            let produced = output.pos();
            if produced == wanted {
                return Ok(());
            }
            if hint == 0 {
                return Err(Reason::EndsEarly { produced });
            }
            // On truncated input the library requests more bytes forever.
            if before == (input.pos(), produced) {
                return Err(Reason::Truncated);
            }
        }
    }
}

/// The window that a frame requests, in bytes (RFC 8878, 3.1.1.1): as its descriptor says, or as
/// large as the content if the frame is a single segment. `None` if this is not a frame: the
/// library will report that.
fn window_of(frame: &[u8]) -> Option<u64> {
    let header = frame.strip_prefix(&MAGIC)?;
    let (&descriptor, rest) = header.split_first()?;
    if descriptor & 0x20 == 0 {
        let window = *rest.first()?;
        let base = 1_u64 << (10 + (window >> 3));
        return Some(base + base / 8 * u64::from(window & 7));
    }
    let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let field = rest.get(dictionary..)?;
    let size = [1, 2, 4, 8][usize::from(descriptor >> 6)];
    let mut bytes = [0; 8];
    bytes[..size].copy_from_slice(field.get(..size)?);
    // A field of two bytes holds the size minus 256.
    Some(u64::from_le_bytes(bytes) + if size == 2 { 256 } else { 0 })
}

fn reason_of(code: zstd_safe::ErrorCode) -> Reason {
    match code.wrapping_neg() {
        WINDOW_TOO_LARGE => Reason::WindowTooLarge,
        NO_MEMORY => Reason::OutOfMemory,
        OUTPUT_TOO_SMALL => Reason::TooLong,
        INPUT_WRONG_SIZE => Reason::Truncated,
        _ => Reason::Corrupted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame of 300,000 bytes with a window of 2^`window_log`.
    fn frame_with_window(window_log: u32, pledged: bool) -> (Vec<u8>, Vec<u8>) {
        let plain: Vec<u8> = (0..300_000_u32)
            .map(|i| (i.wrapping_mul(i) >> 11) as u8)
            .collect();
        let mut encoder = zstd_safe::CCtx::create();
        let window = zstd_safe::CParameter::WindowLog(window_log);
        encoder.set_parameter(window).expect("a window");
        let size = zstd_safe::CParameter::ContentSizeFlag(pledged);
        encoder.set_parameter(size).expect("a flag");
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
        encoder.compress2(&mut frame, &plain).expect("encodes");
        (frame, plain)
    }

    #[test]
    fn whole_frames_and_prefixes_have_the_same_window_limit() {
        for (window_log, pledged) in [(15, true), (15, false), (17, false), (18, true), (20, true)]
        {
            let (frame, plain) = frame_with_window(window_log, pledged);
            for limit in [15, 16, 17, 19, 20] {
                let mut whole = vec![0; plain.len()];
                let mut part = vec![0; 4096];
                let whole = Zstd::new(limit).unwrap().whole(&frame, &mut whole);
                let part = Zstd::new(limit).unwrap().prefix(&frame, &mut part);
                assert_eq!(
                    whole, part,
                    "window 2^{window_log}, {pledged}, limit 2^{limit}"
                );
            }
        }
    }

    #[test]
    fn the_memory_of_a_context_stays_below_what_the_crate_states() {
        let plain: Vec<u8> = (0..3 << 20_u32)
            .map(|i: u32| (i.wrapping_mul(i) >> 9) as u8)
            .collect();
        let mut encoder = zstd_safe::CCtx::create();
        let window = zstd_safe::CParameter::WindowLog(ZSTD_WINDOW_LOG_MAX);
        encoder.set_parameter(window).expect("a window of 1 MiB");
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(plain.len()));
        encoder.compress2(&mut frame, &plain).expect("encodes");

        let mut zstd = Zstd::new(ZSTD_WINDOW_LOG_MAX).expect("a context");
        let mut output = vec![0; plain.len()];
        zstd.whole(&frame, &mut output).expect("decodes");
        assert!(
            zstd.context.sizeof() < 170_000,
            "{} bytes for whole frames",
            zstd.context.sizeof()
        );
        zstd.prefix(&frame, &mut output[..2 << 20])
            .expect("decodes");
        assert_eq!(output, plain);
        assert!(
            zstd.context.sizeof() < 1_600_000,
            "{} bytes for prefixes",
            zstd.context.sizeof()
        );
    }
}
