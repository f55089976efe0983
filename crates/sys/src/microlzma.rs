//! MicroLZMA through liblzma. The safe binding crate (`liblzma`) lacks only this decoder.
//!
//! A stream keeps its memory from one block to the next: about 30 KiB of probabilities plus the
//! dictionary, allocated by liblzma for the first block.

#[cfg(feature = "for-tests")]
pub mod encoder;

use liblzma_sys as lzma;
use std::fmt;

/// Why a block could not be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MicroLzmaError {
    /// The block is not MicroLZMA, or does not end where expected.
    Corrupted,
    /// The input ends before the output is full.
    EndsEarly,
    /// liblzma could not allocate memory.
    OutOfMemory,
}

/// A MicroLZMA decoder, reused for one block after another.
pub struct MicroLzma {
    // Boxed: liblzma does not promise that a stream in use may change its address.
    stream: Box<lzma::lzma_stream>,
    dictionary: u32,
}

// SAFETY: the stream owns all it points to, liblzma keeps no thread-local state, and every use
// needs `&mut self`.
unsafe impl Send for MicroLzma {}

impl fmt::Debug for MicroLzma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MicroLzma")
            .field("dictionary", &self.dictionary)
            .finish_non_exhaustive()
    }
}

impl MicroLzma {
    /// Creates a decoder with a dictionary of this many bytes. liblzma allocates nothing yet.
    pub fn new(dictionary: u32) -> Self {
        MicroLzma {
            stream: new_stream(),
            dictionary,
        }
    }

    /// Fills `output` from the block `input`.
    ///
    /// With `exact`, the block must decode to exactly `output.len()` bytes, and `input` must be the
    /// whole block; both are checked. Otherwise decoding stops as soon as `output` is full.
    pub fn decode(
        &mut self,
        input: &[u8],
        output: &mut [u8],
        exact: bool,
    ) -> Result<(), MicroLzmaError> {
        let stream = &mut *self.stream;
        let (input_len, output_len) = (input.len() as u64, output.len() as u64);
        // SAFETY: `stream` is a live stream (zeroed, or left by an earlier block, which liblzma
        // allows to be initialised again); the other arguments are plain numbers.
        let status = unsafe {
            lzma::lzma_microlzma_decoder(
                stream,
                input_len,
                output_len,
                exact.into(),
                self.dictionary,
            )
        };
        if status != lzma::LZMA_OK {
            return Err(error_of(status));
        }
        let status = run(stream, input, output);
        let produced = output.len() - stream.avail_out;
        forget_buffers(stream);
        match status {
            lzma::LZMA_STREAM_END if produced == output.len() => Ok(()),
            status => Err(error_of(status)),
        }
    }
}

impl Drop for MicroLzma {
    fn drop(&mut self) {
        end(&mut self.stream);
    }
}

/// Runs the coder until liblzma returns anything but OK. The loop ends even if the coder no longer
/// reads or writes: liblzma answers the second such step with BUF_ERROR.
fn run(stream: &mut lzma::lzma_stream, input: &[u8], output: &mut [u8]) -> lzma::lzma_ret {
    stream.next_in = input.as_ptr();
    stream.avail_in = input.len();
    stream.next_out = output.as_mut_ptr();
    stream.avail_out = output.len();
    loop {
        // SAFETY: the stream was initialised by the caller; its two buffers are the slices'
        // memory with their lengths, borrowed for the whole of this function.
        let status = unsafe { lzma::lzma_code(stream, lzma::LZMA_FINISH) };
        if status != lzma::LZMA_OK {
            return status;
        }
    }
}

/// Clears the pointers to the borrowed buffers, which the stream must not keep after the call.
fn forget_buffers(stream: &mut lzma::lzma_stream) {
    stream.next_in = std::ptr::null();
    stream.avail_in = 0;
    stream.next_out = std::ptr::null_mut();
    stream.avail_out = 0;
}

fn error_of(status: lzma::lzma_ret) -> MicroLzmaError {
    match status {
        lzma::LZMA_MEM_ERROR | lzma::LZMA_MEMLIMIT_ERROR => MicroLzmaError::OutOfMemory,
        lzma::LZMA_BUF_ERROR => MicroLzmaError::EndsEarly,
        _ => MicroLzmaError::Corrupted,
    }
}

fn new_stream() -> Box<lzma::lzma_stream> {
    // SAFETY: an all-zero lzma_stream is equivalent to LZMA_STREAM_INIT: null pointers, zero
    // numbers, and enumerations that have a member of value 0.
    Box::new(unsafe { std::mem::zeroed() })
}

fn end(stream: &mut lzma::lzma_stream) {
    // SAFETY: the stream is zeroed or initialised, and its owner does not use it again.
    unsafe { lzma::lzma_end(stream) }
}

#[cfg(test)]
mod tests {
    use super::encoder::{EncoderParameters, encode};
    use super::*;

    #[test]
    fn a_block_of_no_meaning_is_an_error() {
        let mut output = [0; 64];
        let mut decoder = MicroLzma::new(4096);
        for first in 0..=255_u8 {
            let input = [first; 32];
            assert!(
                decoder.decode(&input, &mut output, true).is_err(),
                "{first:#x}"
            );
        }
    }

    #[test]
    fn input_that_ends_is_an_error_of_its_own() {
        let mut output = [0; 64];
        let mut decoder = MicroLzma::new(4096);
        assert_eq!(
            decoder.decode(&[], &mut output, true),
            Err(MicroLzmaError::EndsEarly)
        );
        assert_eq!(
            decoder.decode(&[0xa2], &mut output, false),
            Err(MicroLzmaError::EndsEarly)
        );
    }

    #[test]
    fn what_was_encoded_comes_back_and_the_decoder_may_be_dropped_on_another_thread() {
        let text: Vec<u8> = (0..20_000_u32).map(|i| ((i * i) >> 7) as u8).collect();
        let parameters = EncoderParameters {
            preset: 6,
            dictionary: 65536,
            lc_lp_pb: (3, 0, 2),
        };
        let (taken, block) = encode(&text, 4096, parameters).unwrap();
        let mut decoder = MicroLzma::new(65536);
        let mut output = vec![0; taken];
        decoder.decode(&block, &mut output, true).unwrap();
        assert_eq!(output, text[..taken]);
        std::thread::spawn(move || drop(decoder)).join().unwrap();
    }
}
