//! Zstandard frames, by the C library.

use crate::{Reason, ZSTD_WINDOW_LOG_MAX};
use std::fmt;
use zstd_safe::{DCtx, DParameter, InBuffer, OutBuffer, ResetDirective};

/// The smallest window limit that the library takes (`ZSTD_WINDOWLOG_ABSOLUTEMIN`).
const WINDOW_LOG_MIN: u32 = 10;

// Numbers of `ZSTD_ErrorCode`, pinned by the library's interface ("zstd_errors.h").
const WINDOW_TOO_LARGE: usize = 16;
const NO_MEMORY: usize = 64;
const OUTPUT_TOO_SMALL: usize = 70;
const INPUT_WRONG_SIZE: usize = 72;

/// One context for whole frames and prefixes.
pub(crate) struct Zstd(DCtx<'static>);

impl fmt::Debug for Zstd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zstd")
            .field("bytes", &self.0.sizeof())
            .finish()
    }
}

impl Zstd {
    pub(crate) fn new(window_log: u32) -> Result<Self, Reason> {
        if window_log > ZSTD_WINDOW_LOG_MAX {
            return Err(Reason::WindowTooLarge);
        }
        let mut context = DCtx::try_create().ok_or(Reason::OutOfMemory)?;
        let limit = DParameter::WindowLogMax(window_log.max(WINDOW_LOG_MIN));
        context.set_parameter(limit).map_err(reason_of)?;
        Ok(Zstd(context))
    }

    /// One frame that fills `output` exactly. It is decoded in place, so its window costs nothing
    /// and is not limited.
    pub(crate) fn whole(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
        // The library would take whatever follows as the next frame.
        let end = zstd_safe::find_frame_compressed_size(input).map_err(reason_of)?;
        let frame = input.get(..end).ok_or(Reason::Truncated)?;
        match self.0.decompress(output, frame).map_err(reason_of)? {
            produced if produced == output.len() => Ok(()),
            produced => Err(Reason::EndsEarly { produced }),
        }
    }

    /// The first bytes of a frame.
    pub(crate) fn prefix(&mut self, input: &[u8], output: &mut [u8]) -> Result<(), Reason> {
        self.0
            .reset(ResetDirective::SessionOnly)
            .map_err(reason_of)?;
        let wanted = output.len();
        let mut input = InBuffer::around(input);
        let mut output = OutBuffer::around(output);
        loop {
            let before = (input.pos(), output.pos());
            let hint = self
                .0
                .decompress_stream(&mut output, &mut input)
                .map_err(reason_of)?;
            let produced = output.pos();
            if produced == wanted {
                return Ok(());
            }
            if hint == 0 {
                return Err(Reason::EndsEarly { produced });
            }
            // Truncated input makes the library ask for more for ever.
            if before == (input.pos(), produced) {
                return Err(Reason::Truncated);
            }
        }
    }
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
            zstd.0.sizeof() < 170_000,
            "{} bytes for whole frames",
            zstd.0.sizeof()
        );
        zstd.prefix(&frame, &mut output[..2 << 20])
            .expect("decodes");
        assert_eq!(output, plain);
        assert!(
            zstd.0.sizeof() < 1_600_000,
            "{} bytes for prefixes",
            zstd.0.sizeof()
        );
    }
}
