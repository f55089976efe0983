//! The two hash functions of the format: CRC-32C for the superblock, xxHash32 for xattr names.

/// Polynomial of CRC-32C (Castagnoli), bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// CRC-32C without the final inversion, as EROFS stores it. Bit by bit: a mount computes it once,
/// over at most 64 KiB.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    let shifted = |crc: u32| (crc >> 1) ^ (POLYNOMIAL * (crc & 1));
    let add = |crc, &byte: &u8| (0..8).fold(crc ^ u32::from(byte), |crc, _| shifted(crc));
    bytes.iter().fold(!0, add)
}

const PRIMES: [u32; 5] = [
    0x9e37_79b1,
    0x85eb_ca77,
    0xc2b2_ae3d,
    0x27d4_eb2f,
    0x1656_67b1,
];

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// xxHash32 according to its specification.
pub(crate) fn xxh32(bytes: &[u8], seed: u32) -> u32 {
    let [p1, p2, p3, p4, p5] = PRIMES;
    let stripes = bytes.chunks_exact(16);
    let tail = stripes.remainder();
    let mut hash = if bytes.len() < 16 {
        seed.wrapping_add(p5)
    } else {
        let start = p1.wrapping_add(p2);
        let mut lanes = [
            seed.wrapping_add(start),
            seed.wrapping_add(p2),
            seed,
            seed.wrapping_sub(p1),
        ];
        for stripe in stripes {
            for (lane, input) in lanes.iter_mut().zip(stripe.chunks_exact(4)) {
                let mixed = lane.wrapping_add(word(input).wrapping_mul(p2));
                *lane = mixed.rotate_left(13).wrapping_mul(p1);
            }
        }
        lanes
            .iter()
            .zip([1, 7, 12, 18])
            .fold(0u32, |sum, (lane, turn)| {
                sum.wrapping_add(lane.rotate_left(turn))
            })
    };
    hash = hash.wrapping_add(bytes.len() as u32);
    let words = tail.chunks_exact(4);
    let rest = words.remainder();
    for input in words {
        hash = hash
            .wrapping_add(word(input).wrapping_mul(p3))
            .rotate_left(17)
            .wrapping_mul(p4);
    }
    for &byte in rest {
        hash = hash
            .wrapping_add(u32::from(byte).wrapping_mul(p5))
            .rotate_left(11)
            .wrapping_mul(p1);
    }
    hash = (hash ^ (hash >> 15)).wrapping_mul(p2);
    hash = (hash ^ (hash >> 13)).wrapping_mul(p3);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_gives_the_well_known_check_value() {
        assert_eq!(!crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn xxh32_gives_the_published_values() {
        assert_eq!(xxh32(b"", 0), 0x02cc_5d05);
        assert_eq!(xxh32(b"abc", 0), 0x32d1_53ff);
        assert_eq!(
            xxh32(b"Nobody inspects the spammish repetition", 0),
            0xe229_3b2f
        );
    }
}
