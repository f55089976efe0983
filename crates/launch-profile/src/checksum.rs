//! FNV-1a, 64 bits: finds damage, and is no protection against intent.

const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

pub(crate) fn fnv1a(parts: &[&[u8]]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.iter());
    bytes.fold(OFFSET, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(PRIME)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_hash_is_that_of_the_published_test_vectors() {
        assert_eq!(super::fnv1a(&[b""]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(super::fnv1a(&[b"foo", b"bar"]), 0x8594_4171_f739_67e8);
    }
}
