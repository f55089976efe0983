//! Settings of the compression algorithms, stored after the superblock.
//!
//! If `COMPR_CFGS` is set, there is one record for each algorithm in the bitmap, in the order of
//! the bits. A record is a 16-bit length followed by that many bytes, and is aligned to 4 bytes
//! (`fs/erofs/erofs_fs.h`, `z_erofs_*_cfgs`). Otherwise LZ4 is the only algorithm, and the
//! superblock holds the largest distance of a match.

use zerocopy::little_endian::U16;

use crate::meta::{Meta, structure, word};
use crate::{Algorithm, Result};

/// The algorithms of an image and their settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompressionConfigs {
    /// Bitmap of the image's algorithms (see [`Algorithm::bit`]).
    pub available: u16,
    /// Settings of LZ4, if the image uses it.
    pub lz4: Option<Lz4Config>,
    /// Bytes in the dictionary of MicroLZMA, 4 KiB to 8 MiB, if the image uses it.
    pub lzma_dictionary: Option<u32>,
    /// Binary logarithm of the window of DEFLATE, 8 to 15, if the image uses it.
    pub deflate_window_bits: Option<u8>,
    /// Binary logarithm of the largest window of Zstandard, 10 to 20, if the image uses it.
    pub zstd_window_log: Option<u8>,
}

/// Settings of LZ4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lz4Config {
    /// Largest distance of a match, in bytes; 0 means 65535.
    pub max_distance: u16,
    /// Blocks in the largest pcluster.
    pub max_pcluster_blocks: u16,
}

/// Largest stored size of a pcluster (`Z_EROFS_PCLUSTER_MAX_SIZE`).
pub(crate) const MAX_PCLUSTER: u64 = 1 << 20;
/// Largest decoded size of a pcluster (`Z_EROFS_PCLUSTER_MAX_DSIZE`).
pub(crate) const MAX_DECODED: u64 = 12 << 20;
/// `Z_EROFS_LZMA_MAX_DICT_SIZE`.
const MAX_LZMA_DICT: u32 = 8 << 20;
const MIN_LZMA_DICT: u32 = 4096;
/// Bytes of a record that this reader uses; longer records have fields of later versions.
const RECORD: usize = 16;

pub(crate) fn read(
    meta: &Meta<'_>,
    configs: bool,
    algorithms_or_distance: u16,
    start: u64,
    block_size: u32,
) -> Result<CompressionConfigs> {
    if !configs {
        return Ok(CompressionConfigs {
            available: Algorithm::Lz4.bit(),
            lz4: Some(Lz4Config {
                max_distance: algorithms_or_distance,
                max_pcluster_blocks: 1,
            }),
            ..Default::default()
        });
    }
    let available = algorithms_or_distance;
    let unknown = available & !Algorithm::ALL.iter().fold(0, |bits, a| bits | a.bit());
    if unknown != 0 {
        return unsupported!("compression algorithms {unknown:#x} (bitmap)");
    }
    let mut parsed = CompressionConfigs {
        available,
        ..Default::default()
    };
    let mut offset = start;
    for algorithm in Algorithm::ALL {
        if available & algorithm.bit() != 0 {
            let (record, length, next) = read_record(meta, offset)?;
            parse_record(&mut parsed, algorithm, &record[..length], block_size)?;
            offset = next;
        }
    }
    Ok(parsed)
}

/// The record at `offset` (rounded up to 4): a buffer with its bytes, how many of them are valid,
/// and the offset of the record's end.
fn read_record(meta: &Meta<'_>, offset: u64) -> Result<([u8; RECORD], usize, u64)> {
    let offset = offset.next_multiple_of(4);
    // A length of 0 means 65536, as everywhere the kernel reads such records.
    let length = match meta.get::<U16>(offset)?.get() {
        0 => 65536,
        length => u64::from(length),
    };
    let mut record = [0; RECORD];
    let kept = length.min(RECORD as u64) as usize;
    meta.read(&mut record[..kept], offset + 2)?;
    Ok((record, kept, offset + 2 + length))
}

fn parse_record(
    parsed: &mut CompressionConfigs,
    algorithm: Algorithm,
    record: &[u8],
    block_size: u32,
) -> Result<()> {
    let needed = match algorithm {
        Algorithm::Lz4 | Algorithm::Lzma => 14,
        Algorithm::Deflate | Algorithm::Zstd => 6,
    };
    if record.len() < needed {
        let length = record.len();
        return corrupted!("the {algorithm} configuration has {length} bytes, but needs {needed}");
    }
    match algorithm {
        Algorithm::Lz4 => parsed.lz4 = Some(parse_lz4(record, block_size)?),
        Algorithm::Lzma => parsed.lzma_dictionary = Some(lzma_dictionary(record)?),
        Algorithm::Deflate => parsed.deflate_window_bits = Some(deflate_window_bits(record)?),
        Algorithm::Zstd => parsed.zstd_window_log = Some(zstd_window_log(record)?),
    }
    Ok(())
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    structure::<U16>(&record[at..at + 2]).get()
}

fn parse_lz4(record: &[u8], block_size: u32) -> Result<Lz4Config> {
    // 0 is reserved and treated as 1.
    let blocks = u16_at(record, 2).max(1);
    if u64::from(blocks) * u64::from(block_size) > MAX_PCLUSTER {
        return corrupted!(
            "lz4 pclusters of {blocks} blocks of {block_size} bytes; the limit is 1 MiB"
        );
    }
    Ok(Lz4Config {
        max_distance: u16_at(record, 0),
        max_pcluster_blocks: blocks,
    })
}

fn lzma_dictionary(record: &[u8]) -> Result<u32> {
    let format = u16_at(record, 4);
    if format != 0 {
        return unsupported!("lzma format {format}");
    }
    // 0 leaves the dictionary size to the reader; the largest size always suffices.
    let dict_size = match word(record, 0) {
        0 => MAX_LZMA_DICT,
        size => size,
    };
    if !(MIN_LZMA_DICT..=MAX_LZMA_DICT).contains(&dict_size) {
        return unsupported!("lzma dictionary of {dict_size} bytes");
    }
    Ok(dict_size)
}

fn deflate_window_bits(record: &[u8]) -> Result<u8> {
    match record[0] {
        bits @ ..=15 => Ok(bits.max(8)),
        bits => unsupported!("deflate window of 2^{bits} bytes"),
    }
}

fn zstd_window_log(record: &[u8]) -> Result<u8> {
    let (format, log) = (record[0], record[1]);
    if format != 0 {
        return unsupported!("zstd format {format}");
    }
    if log > 10 {
        return unsupported!("zstd window of 2^{} bytes", u32::from(log) + 10);
    }
    Ok(log + 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn parse(bytes: &[u8], configs: bool, bits: u16) -> Result<CompressionConfigs> {
        let bytes = bytes.to_vec();
        let meta = Meta {
            size: bytes.len() as u64,
            source: &crate::Readers::of(vec![std::sync::Arc::new(bytes)]),
            holder: crate::Holder::Device(0),
        };
        read(&meta, configs, bits, 0, 4096)
    }

    fn lz4(max_distance: u16, max_pcluster_blocks: u16) -> Option<Lz4Config> {
        Some(Lz4Config {
            max_distance,
            max_pcluster_blocks,
        })
    }

    #[test]
    fn an_image_without_configurations_is_lz4_only() {
        let parsed = parse(&[], false, 0).unwrap();
        assert_eq!(parsed.available, 1);
        assert_eq!(parsed.lz4, lz4(0, 1));
        assert_eq!(parse(&[], false, 4096).unwrap().lz4, lz4(4096, 1));
    }

    #[test]
    fn records_follow_each_other_in_the_order_of_the_bitmap() {
        let mut bytes = vec![14, 0, 0, 0x80, 16, 0];
        bytes.resize(16, 0);
        bytes.extend([6, 0, 15, 0, 0, 0, 0, 0]);
        bytes.extend([6, 0, 0, 7, 0, 0, 0, 0]);
        let parsed = parse(&bytes, true, 0b1101).unwrap();
        assert_eq!(parsed.lz4, lz4(0x8000, 16));
        assert_eq!(parsed.deflate_window_bits, Some(15));
        assert_eq!(parsed.zstd_window_log, Some(17));
        assert_eq!(parsed.lzma_dictionary, None);
    }

    #[test]
    fn settings_that_no_decoder_can_meet_are_refused() {
        let zstd = |format, log| parse(&[6, 0, format, log, 0, 0, 0, 0], true, 0b1000);
        assert!(matches!(zstd(0, 11), Err(Error::Unsupported { .. })));
        assert!(matches!(zstd(1, 0), Err(Error::Unsupported { .. })));
        assert!(matches!(
            parse(&[], true, 0x80),
            Err(Error::Unsupported { .. })
        ));
        assert!(matches!(
            parse(&[5, 0, 0, 0, 0, 0, 0], true, 8),
            Err(Error::Corrupted { .. })
        ));
        assert!(matches!(
            parse(&[6, 0, 0], true, 8),
            Err(Error::Corrupted { .. })
        ));
    }
}
