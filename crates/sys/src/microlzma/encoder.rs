//! A MicroLZMA encoder, for tests of the decoder.

use liblzma_sys as lzma;

use super::{end, new_stream, run};

/// Encodes as much of `input` as fits into `room` bytes. Returns the number of encoded bytes and
/// the block.
///
/// `None` if liblzma refuses: `room` under 6, or unknown parameters.
pub fn encode(
    input: &[u8],
    room: usize,
    parameters: EncoderParameters,
) -> Option<(usize, Vec<u8>)> {
    let mut stream = new_stream();
    let mut block = vec![0; room];
    let status =
        start_encoder(&mut stream, parameters).then(|| run(&mut stream, input, &mut block));
    let (taken, made) = (input.len() - stream.avail_in, room - stream.avail_out);
    end(&mut stream);
    block.truncate(made);
    (status == Some(lzma::LZMA_STREAM_END)).then_some((taken, block))
}

/// Parameters that [`encode`] leaves to its caller.
#[derive(Clone, Copy, Debug)]
pub struct EncoderParameters {
    /// 0 to 9, as in xz.
    pub preset: u32,
    /// Size in bytes.
    pub dictionary: u32,
    /// Literal context bits, literal position bits, position bits.
    pub lc_lp_pb: (u32, u32, u32),
}

fn start_encoder(stream: &mut lzma::lzma_stream, parameters: EncoderParameters) -> bool {
    // SAFETY: plain numbers and pointers, for which all-zero is a valid value; they are set below.
    let mut options: lzma::lzma_options_lzma = unsafe { std::mem::zeroed() };
    // SAFETY: `options` is writable; an unknown preset is refused.
    let refused = unsafe { lzma::lzma_lzma_preset(&mut options, parameters.preset) } != 0;
    options.dict_size = parameters.dictionary;
    (options.lc, options.lp, options.pb) = parameters.lc_lp_pb;
    // SAFETY: `stream` is zeroed and `options` lives through the call, which copies it.
    !refused && unsafe { lzma::lzma_microlzma_encoder(stream, &options) } == lzma::LZMA_OK
}
