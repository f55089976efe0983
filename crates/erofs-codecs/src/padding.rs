//! The zero bytes before a compressed stream.

use crate::Reason;

/// Returns `input` without its leading zeros, of which there must be fewer than `block_size`.
///
/// No stream of a codec that is stored with padding may begin with a zero byte: an encoder that
/// wrote one would produce an unreadable image.
pub(crate) fn skip(input: &[u8], block_size: u32) -> Result<&[u8], Reason> {
    if input.is_empty() {
        return Err(Reason::Empty);
    }
    let first_block = &input[..input.len().min(block_size as usize)];
    match first_block.iter().position(|&byte| byte != 0) {
        Some(zeros) => Ok(&input[zeros..]),
        None => Err(Reason::AllZero),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_without_padding_stays_as_it_is() {
        assert_eq!(skip(&[7, 0, 0], 512), Ok(&[7, 0, 0][..]));
    }

    #[test]
    fn zeros_are_skipped_up_to_the_last_byte_of_the_first_block() {
        let mut input = vec![0; 1024];
        input[511] = 9;
        assert_eq!(skip(&input, 512), Ok(&input[511..]));
    }

    #[test]
    fn a_whole_block_of_zeros_is_refused_even_when_data_follow() {
        let mut input = vec![0; 1024];
        input[512] = 9;
        assert_eq!(skip(&input, 512), Err(Reason::AllZero));
    }

    #[test]
    fn empty_input_and_only_zeros_are_different_errors() {
        assert_eq!(skip(&[], 512), Err(Reason::Empty));
        assert_eq!(skip(&[0; 20], 512), Err(Reason::AllZero));
    }
}
