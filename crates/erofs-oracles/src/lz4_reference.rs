//! A slow LZ4 decoder for comparison, written from the specification of the block format.

/// The first `length` bytes of a block; `None` if the block is not valid that far.
pub(crate) fn decode(block: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut bytes = block.iter().copied();
    let mut output = Vec::with_capacity(length);
    loop {
        let token = bytes.next()?;
        for _ in 0..extended(usize::from(token >> 4), &mut bytes)? {
            output.push(bytes.next()?);
            if output.len() == length {
                return Some(output);
            }
        }
        let distance = usize::from(u16::from_le_bytes([bytes.next()?, bytes.next()?]));
        if distance == 0 || distance > output.len() {
            return None;
        }
        for _ in 0..extended(usize::from(token & 15), &mut bytes)? + 4 {
            output.push(output[output.len() - distance]);
            if output.len() == length {
                return Some(output);
            }
        }
    }
}

/// A length of 15 continues in the following bytes; the first of them that is not 255 is the last.
fn extended(length: usize, bytes: &mut impl Iterator<Item = u8>) -> Option<usize> {
    if length < 15 {
        return Some(length);
    }
    let mut sum = length;
    loop {
        let byte = bytes.next()?;
        sum += usize::from(byte);
        if byte != 255 {
            return Some(sum);
        }
    }
}
