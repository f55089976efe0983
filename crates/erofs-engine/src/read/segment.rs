//! The segments of a read: which part of which extent goes where in the reader's buffer.

use std::sync::Arc;

use erofs_format::{Algorithm, Coding, Location, Pcluster};

use crate::read::claim::PclusterInFlight;

/// A part of one compressed extent, and the reader's bytes it fills.
#[derive(Debug)]
pub(crate) struct Segment<'a> {
    /// First byte of the file that the pcluster holds.
    pub logical: u64,
    /// First wanted byte, relative to `logical`.
    pub from: usize,
    /// The reader's bytes to fill.
    pub out: &'a mut [u8],
    /// Where and how the extent's bytes are stored.
    pub pcluster: Pcluster,
    /// Whether the reader's bytes have been filled.
    pub filled: bool,
    /// The pcluster, if another thread is decoding it; the reader waits for that thread after
    /// filling the other segments.
    pub joined: Option<Arc<PclusterInFlight>>,
}

impl Segment<'_> {
    /// End of the wanted bytes, relative to the beginning of the pcluster.
    pub(crate) fn to(&self) -> usize {
        self.from + self.out.len()
    }

    /// Copies the wanted bytes out of the decoded ones.
    pub(crate) fn place(&mut self, decoded: &[u8]) {
        let range = self.from..self.to();
        self.out.copy_from_slice(&decoded[range]);
    }

    /// Decoding time of the segment, as an equivalent number of LZ4 bytes.
    pub(crate) fn cost(&self) -> u64 {
        match self.pcluster.coding {
            Coding::Shifted | Coding::Interlaced => 0,
            Coding::Compressed(algorithm) => cost(algorithm, self.pcluster.decoded_length),
        }
    }
}

/// Decoding time of this many bytes, as an equivalent number of LZ4 bytes: accurate enough to
/// decide whether waking another CPU pays off. The ratios were measured with the C decoders, on one
/// thread, with 64 KiB pclusters.
pub(crate) fn cost(algorithm: Algorithm, decoded_bytes: u64) -> u64 {
    let slower = match algorithm {
        Algorithm::Lz4 => 1,
        Algorithm::Zstd => 4,
        Algorithm::Deflate => 7,
        Algorithm::Lzma => 50,
    };
    decoded_bytes * slower
}

/// Maximum length of one read of compressed bytes, unless a single pcluster is longer: long enough
/// to make the call cheap compared with decoding, short enough for a CPU's own cache.
pub(crate) const RUN_BYTES: u64 = 128 << 10;

/// Maximum work in one run, by [`Segment::cost`], unless a single pcluster takes more: CPUs share
/// runs, and the last run should not delay the request.
const RUN_COST: u64 = 512 << 10;

/// Divides segments into runs whose compressed bytes are adjacent: each run takes one read and is
/// one work item.
pub(crate) fn runs<'p, 'a>(segments: &'p mut [Segment<'a>]) -> Vec<&'p mut [Segment<'a>]> {
    let mut runs = Vec::new();
    let mut rest = segments;
    while let Some(first) = rest.first() {
        let start = first.pcluster.location;
        let (mut length, mut cost) = (u64::from(first.pcluster.length), first.cost());
        let more = rest[1..].iter().take_while(|segment| {
            let next = Location {
                physical: start.physical + length,
                ..start
            };
            length += u64::from(segment.pcluster.length);
            cost += segment.cost();
            segment.pcluster.location == next && length <= RUN_BYTES && cost <= RUN_COST
        });
        let (run, others) = rest.split_at_mut(1 + more.count());
        runs.push(run);
        rest = others;
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(physical: u64, length: u32, out: &mut [u8]) -> Segment<'_> {
        let location = Location {
            device: 0,
            metabox: false,
            physical,
        };
        let coding = Coding::Compressed(Algorithm::Lz4);
        let pcluster = Pcluster {
            location,
            length,
            coding,
            decoded_length: 1,
            partial: false,
            inline: false,
        };
        Segment {
            logical: 0,
            from: 0,
            out,
            pcluster,
            filled: false,
            joined: None,
        }
    }

    fn lengths(places: &[(u64, u32)]) -> Vec<usize> {
        lengths_of(Algorithm::Lz4, places)
    }

    /// The lengths of the runs of pclusters that each decode to twice their size.
    fn lengths_of(algorithm: Algorithm, places: &[(u64, u32)]) -> Vec<usize> {
        let mut out = vec![[0_u8; 1]; places.len()];
        let mut segments: Vec<_> = places
            .iter()
            .zip(&mut out)
            .map(|(&(physical, length), out)| segment(physical, length, out))
            .collect();
        for segment in &mut segments {
            segment.pcluster.coding = Coding::Compressed(algorithm);
            segment.pcluster.decoded_length = 2 * u64::from(segment.pcluster.length);
        }
        runs(&mut segments).iter().map(|run| run.len()).collect()
    }

    #[test]
    fn pclusters_side_by_side_are_one_run() {
        assert_eq!(lengths(&[(0, 4096), (4096, 4096), (8192, 8192)]), [3]);
    }

    #[test]
    fn a_gap_or_a_step_back_begins_another_run() {
        assert_eq!(lengths(&[(0, 4096), (8192, 4096), (4096, 4096)]), [1, 1, 1]);
    }

    #[test]
    fn a_run_stays_small_unless_one_pcluster_is_large() {
        assert_eq!(
            lengths(&[(0, 1 << 20), (1 << 20, 4096), ((1 << 20) + 4096, 4096)]),
            [1, 2]
        );
        assert_eq!(
            lengths(&[(0, 65536), (65536, 65536), (131072, 65536)]),
            [2, 1]
        );
    }

    #[test]
    fn a_run_is_little_work_too() {
        let places = [(0, 65536), (65536, 65536)];
        assert_eq!(lengths_of(Algorithm::Lz4, &places), [2]);
        assert_eq!(lengths_of(Algorithm::Zstd, &places), [1, 1]);
        let small = [(0, 4096), (4096, 4096), (8192, 4096)];
        assert_eq!(lengths_of(Algorithm::Zstd, &small), [3]);
        assert_eq!(lengths_of(Algorithm::Lzma, &small), [1, 1, 1]);
    }

    #[test]
    fn no_pieces_are_no_runs() {
        assert!(lengths(&[]).is_empty());
    }
}
