//! Zstandard as a stream of one or more frames.

use std::io::{self, Read};

use zstd_safe::{DCtx, InBuffer, OutBuffer, get_error_name};

/// Bytes per read.
const STEP: usize = 128 << 10;

/// A reader that decodes compressed bytes.
pub struct Reader<R> {
    input: R,
    context: DCtx<'static>,
    buffer: Vec<u8>,
    /// The part of the buffer that has not been decoded yet.
    left: std::ops::Range<usize>,
    /// Whether the decoder may have more output without new input.
    full: bool,
    /// The number of bytes that the decoder wants for the rest of the frame: 0 between frames.
    hint: usize,
}

impl<R: Read> Reader<R> {
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            context: DCtx::create(),
            buffer: vec![0; STEP],
            left: 0..0,
            full: false,
            hint: 0,
        }
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.left.is_empty() && !self.full {
                self.left = 0..self.input.read(&mut self.buffer)?;
                if self.left.is_empty() {
                    return match self.hint {
                        0 => Ok(0),
                        _ => Err(io::ErrorKind::UnexpectedEof.into()),
                    };
                }
            }
            let mut from = InBuffer::around(&self.buffer[self.left.clone()]);
            let mut to = OutBuffer::around(bytes);
            let decoded = self.context.decompress_stream(&mut to, &mut from);
            self.hint = decoded.map_err(|code| io::Error::other(get_error_name(code)))?;
            let made = to.pos();
            self.full = made == to.capacity();
            self.left.start += from.pos();
            if made > 0 {
                return Ok(made);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(bytes.len()));
        zstd_safe::compress(&mut frame, bytes, 3).unwrap();
        frame
    }

    #[test]
    fn frames_follow_each_other_and_none_is_cut_short() {
        let zeros = vec![0; 5 << 20];
        let frames = [packed(&zeros), packed(b"end")].concat();
        let mut out = Vec::new();
        Reader::new(&frames[..]).read_to_end(&mut out).unwrap();
        assert!(out.len() == zeros.len() + 3 && out.ends_with(b"\0end"));
        let cut = &frames[..frames.len() - 2];
        let error = Reader::new(cut).read_to_end(&mut out).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        Reader::new(&b"no frame"[..])
            .read_to_end(&mut out)
            .unwrap_err();
    }
}
