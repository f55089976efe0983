//! Maps hand-made inodes that the format allows but that no mkfs writes.

use std::sync::Arc;

use super::*;
use crate::{
    Algorithm, Coding, ExtentKind, Image, Location, NID_IN_METABOX, Pcluster, ReadAt, Readers,
};

const BLOCK: u64 = 512;
/// Block 4: the root at nid 0, the inode under test at nid 2.
const META: usize = 2048;
/// Where the map, chunk table or inline data of the inode under test starts.
const BODY: usize = META + 2 * 32 + 64;

/// Contents of a hand-made image.
struct Maker {
    bytes: Vec<u8>,
    incompat: u32,
    packed: u64,
    devices: Vec<Arc<dyn ReadAt + Send + Sync>>,
}

impl Maker {
    /// An inode of this layout and size; its body is zeros.
    fn new(layout: u16, size: u64) -> Maker {
        let mut maker = Maker {
            bytes: vec![0; 32 * 1024],
            incompat: 0x3,
            packed: 0,
            devices: vec![],
        };
        maker.put(META + 4, &0o040755u16.to_le_bytes());
        let inode = META + 64;
        maker.put(inode, &(1 | layout << 1).to_le_bytes());
        maker.put(inode + 4, &0o100644u16.to_le_bytes());
        maker.put(inode + 8, &size.to_le_bytes());
        maker
    }

    fn put(&mut self, at: usize, bytes: &[u8]) -> &mut Maker {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    /// Sets the inode's `i_u`.
    fn union(&mut self, bits: u32) -> &mut Maker {
        self.put(META + 64 + 16, &bits.to_le_bytes())
    }

    /// Sets the map header.
    fn header(&mut self, first: u32, advise: u16, algorithms: u8, bits: u8) -> &mut Maker {
        self.put(BODY, &first.to_le_bytes());
        self.put(BODY + 4, &advise.to_le_bytes());
        self.put(BODY + 6, &[algorithms, bits])
    }

    /// Sets an entry of a full index.
    fn lcluster(&mut self, lcn: usize, advise: u16, clusterofs: u16, bits: u32) -> &mut Maker {
        let at = BODY + 16 + lcn * 8;
        self.put(at, &advise.to_le_bytes());
        self.put(at + 2, &clusterofs.to_le_bytes());
        self.put(at + 4, &bits.to_le_bytes())
    }

    fn words(&mut self, at: usize, words: &[u32]) -> &mut Maker {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.put(at, &bytes)
    }

    fn image(&self) -> Result<Opened> {
        let mut bytes = self.bytes.clone();
        let mut put = |at: usize, field: &[u8]| {
            bytes[1024 + at..1024 + at + field.len()].copy_from_slice(field);
        };
        put(0, &0xe0f5_e1e2u32.to_le_bytes());
        put(12, &[9]);
        put(40, &4u32.to_le_bytes());
        put(80, &self.incompat.to_le_bytes());
        // All algorithms, configured after the 128 bytes of the superblock.
        put(84, &0xfu16.to_le_bytes());
        put(86, &(self.devices.len() as u16).to_le_bytes());
        put(88, &(4096u16 / 128).to_le_bytes());
        put(96, &self.packed.to_le_bytes());
        put(128, &[14, 0, 0, 0, 1, 0]);
        put(144, &[14, 0, 0, 0, 16, 0, 0, 0]);
        put(160, &[6, 0, 15, 0, 0, 0, 0, 0, 6, 0, 0, 10]);
        let mut devices: Vec<Arc<dyn ReadAt + Send + Sync>> = vec![Arc::new(bytes)];
        devices.extend(self.devices.iter().cloned());
        let readers = Readers::of(devices);
        let image = Image::open(&readers)?;
        Ok(Opened { image, readers })
    }

    fn map(&self, offset: u64) -> Result<Extent> {
        let opened = self.image()?;
        let image = opened.reader();
        image.map(&image.inode(2)?, offset)
    }
}

/// An image and its source.
#[derive(Debug)]
struct Opened {
    image: Image,
    readers: Readers,
}

impl Opened {
    fn reader(&self) -> Reader<'_> {
        self.image.reader(&self.readers)
    }
}

fn raw(device: u16, physical: u64) -> ExtentKind {
    ExtentKind::Raw { device, physical }
}

fn pcluster(extent: &Extent) -> Pcluster {
    match &extent.kind {
        ExtentKind::Compressed(pcluster) => *pcluster,
        other => panic!("{other:?}"),
    }
}

#[test]
fn chunk_indexes_may_have_addresses_of_48_bits() {
    let mut maker = Maker::new(4, 2 * BLOCK);
    maker.put(BODY, &[1, 0, 0, 0]).words(BODY + 4, &[0]);
    maker.put(BODY + 8, &[0, 0, 0, 0]).words(BODY + 12, &[8]);
    // Without the 48-bit flag of the chunk format, the upper half of an address is ignored.
    maker.union(0x20);
    let extent = maker.map(0).unwrap();
    assert_eq!(extent.kind, raw(0, 0));
    maker.union(0x60);
    let error = maker.map(0).unwrap_err().to_string();
    assert!(error.contains("0x20000000000 is beyond"), "{error}");
    let extent = maker.map(600).unwrap();
    assert_eq!((extent.logical, extent.length), (512, 512));
    assert_eq!(extent.kind, raw(0, 8 * BLOCK));
    maker.put(BODY, &[0xff; 2]).put(BODY + 4, &[0xff; 4]);
    assert_eq!(maker.map(0).unwrap().kind, ExtentKind::Hole);
}

#[test]
fn chunks_that_follow_each_other_are_one_extent() {
    let mut maker = Maker::new(4, 5 * BLOCK - 100);
    maker.words(BODY, &[8, 9, 10, 20, u32::MAX]);
    let ends: Vec<(u64, u64)> = [0, 1600, 2100]
        .map(|offset| maker.map(offset).unwrap())
        .map(|extent| (extent.logical, extent.end()))
        .to_vec();
    assert_eq!(ends, [(0, 1536), (1536, 2048), (2048, 2460)]);
}

#[test]
fn a_chunk_names_its_device_or_an_address_of_the_unified_space() {
    let mut maker = Maker::new(4, 2 * BLOCK);
    maker.incompat |= 8;
    maker.devices.push(Arc::new(vec![0u8; 2 * BLOCK as usize]));
    // The device table at byte 4096: 2 blocks at block 1000.
    maker.words(4096 + 64, &[2, 1000]);
    maker.words(BODY, &[1001, 1002]);
    assert_eq!(maker.map(0).unwrap().kind, raw(1, BLOCK));
    assert!(maker.map(BLOCK).is_err());
    maker.union(0x20).put(BODY, &[0, 0, 1, 0, 1, 0, 0, 0]);
    assert_eq!(maker.map(0).unwrap().kind, raw(1, BLOCK));
}

#[test]
fn the_upper_halves_of_a_device_slot_belong_to_images_of_48_bits() {
    let mut maker = Maker::new(4, 2 * BLOCK);
    maker.incompat |= 8;
    maker.devices.push(Arc::new(vec![0u8; 2 * BLOCK as usize]));
    // 2 blocks at block 2^32 + 1000; the third word has the upper 16 bits of the count and of the
    // address.
    maker.words(4096 + 64, &[2, 1000, 1 << 16]);
    maker.union(0x60).words(BODY, &[1, 1001]);
    let wide = (1 << 32 | 1001) * BLOCK;
    let error = maker.map(0).unwrap_err().to_string();
    assert!(error.contains(&format!("{wide:#x}")), "{error}");
    maker.incompat |= 0x80;
    assert_eq!(maker.map(0).unwrap().kind, raw(1, BLOCK));
}

/// A full index: a head at byte 0, then one whose stream other extents share.
fn full() -> Maker {
    let mut maker = Maker::new(1, 1800);
    maker.header(0, 0b110, 3, 0);
    maker.lcluster(0, 1, 0, 20);
    maker.lcluster(1, 2, 0, 0x0802 | 1 << 16);
    maker.lcluster(2, 1 | 1 << 15, 100, 30);
    maker.lcluster(3, 0, 200, 31);
    maker
}

#[test]
fn a_full_index_gives_extents_from_head_to_head() {
    let maker = full();
    let first = maker.map(600).unwrap();
    assert_eq!((first.logical, first.end()), (0, 1124));
    assert_eq!(
        pcluster(&first),
        Pcluster {
            location: Location {
                device: 0,
                metabox: false,
                physical: 20 * BLOCK
            },
            length: 1024,
            coding: Coding::Compressed(Algorithm::Zstd),
            decoded_length: 1124,
            partial: false,
            inline: false,
        }
    );
    let second = maker.map(1600).unwrap();
    assert_eq!((second.logical, second.end()), (1124, 1736));
    assert!(pcluster(&second).partial);
    let last = maker.map(1799).unwrap();
    assert_eq!((last.logical, last.end()), (1736, 1800));
    assert_eq!(pcluster(&last).coding, Coding::Shifted);
}

#[test]
fn distances_that_lead_nowhere_are_errors() {
    for bits in [0, 2, 0xffff_07ff] {
        let mut maker = full();
        maker.lcluster(1, 2, 0, bits);
        assert!(maker.map(600).is_err(), "{bits:#x}");
    }
    let mut maker = full();
    maker.lcluster(0, 2, 0, 1);
    assert!(maker.map(0).is_err());
    let mut maker = full();
    maker.lcluster(0, 1, 100, 20);
    assert!(maker.map(0).is_err(), "bytes before the first head");
}

#[test]
fn a_file_that_claims_more_than_its_index_has_errors_behind_it() {
    let mut maker = full();
    maker.put(META + 64 + 8, &(1u64 << 62).to_le_bytes());
    assert!(maker.map(600).is_ok());
    assert!(maker.map(1 << 61).is_err());
}

#[test]
fn a_tail_in_the_packed_inode_is_found_by_its_head() {
    let mut maker = full();
    maker.incompat |= 0x20;
    maker.packed = 400;
    maker.put(META + 400 * 32 + 4, &0o100644u16.to_le_bytes());
    maker
        .header(77, 0b110 | 1 << 5, 3, 0)
        .lcluster(3, 1, 200, 1);
    let extent = maker.map(1750).unwrap();
    assert_eq!((extent.logical, extent.end()), (1736, 1800));
    assert_eq!(
        extent.kind,
        ExtentKind::Fragment {
            offset: 77 | 1 << 32
        }
    );
    assert_eq!(maker.map(0).unwrap().length, 1124);
    // The packed inode itself cannot be a fragment.
    maker.packed = 2;
    assert!(maker.map(1750).unwrap_err().to_string().contains("itself"));
}

#[test]
fn a_whole_file_may_be_a_fragment() {
    let mut maker = Maker::new(3, 5000);
    maker.put(BODY, &(0x1234_5678_9abc | 1u64 << 63).to_le_bytes());
    assert!(
        maker
            .map(0)
            .unwrap_err()
            .to_string()
            .contains("no packed inode")
    );
    maker.incompat |= 0x20;
    maker.packed = 400;
    maker.put(META + 400 * 32 + 4, &0o100644u16.to_le_bytes());
    let extent = maker.map(4000).unwrap();
    assert_eq!((extent.logical, extent.length), (0, 5000));
    assert_eq!(
        extent.kind,
        ExtentKind::Fragment {
            offset: 0x1234_5678_9abc
        }
    );
}

#[test]
fn a_head_that_is_a_hole_has_no_address_no_algorithm_and_no_stored_length() {
    for (kind, flags) in [(0, 0), (1, 0), (3, 0), (1, 1 << 15)] {
        let mut maker = full();
        // HEAD2 has an algorithm that no image supports.
        maker.header(0, 0b110, 0xf3, 0);
        maker.lcluster(2, kind | flags | 1 << 14, 100, u32::MAX);
        let hole = maker.map(1600).unwrap();
        assert_eq!((hole.logical, hole.end()), (1536, 1736), "{kind}");
        assert_eq!(hole.kind, ExtentKind::Hole, "{kind}");
        assert_eq!(maker.map(1124).unwrap().logical, 1124, "{kind}");
        // The neighbours of the hole are unchanged, even within the lclusters that they share with
        // it.
        let (before, behind) = (maker.map(1123).unwrap(), maker.map(1736).unwrap());
        assert_eq!((before.logical, before.end()), (0, 1124), "{kind}");
        assert_eq!(pcluster(&before).location.physical, 20 * BLOCK);
        assert_eq!((behind.logical, behind.end()), (1736, 1800), "{kind}");
    }
}

#[test]
fn a_pcluster_of_no_blocks_is_a_hole_in_a_full_index() {
    let mut maker = full();
    maker.lcluster(1, 2, 0, 0x0800 | 1 << 16);
    for offset in [0, 511, 512, 1123] {
        let hole = maker.map(offset).unwrap();
        assert_eq!(hole.kind, ExtentKind::Hole, "{offset}");
        assert!(hole.logical <= offset && hole.end() == 1124, "{hole:?}");
    }
    assert_eq!(pcluster(&maker.map(1124).unwrap()).length, 512);
    // Without a count the pcluster has one block.
    maker.lcluster(1, 2, 0, 1 | 1 << 16);
    assert_eq!(pcluster(&maker.map(0).unwrap()).length, 512);
    // Heads have no counts if big pclusters are not enabled for their type.
    maker.lcluster(1, 2, 0, 0x0800 | 1 << 16);
    maker.header(0, 0b100, 3, 0);
    assert_eq!(pcluster(&maker.map(0).unwrap()).length, 512);
}

#[test]
fn a_file_may_end_in_a_hole_and_be_nothing_else() {
    let mut maker = full();
    maker.lcluster(3, 1 | 1 << 14, 200, 0);
    let last = maker.map(1799).unwrap();
    assert_eq!((last.logical, last.end()), (1736, 1800));
    assert_eq!(last.kind, ExtentKind::Hole);
    // The last head is beyond the end of the file: first by a little, which some writers produce,
    // then by more.
    maker
        .lcluster(3, 1, 264, 0)
        .lcluster(2, 1 | 1 << 14, 100, 0);
    let last = maker.map(1799).unwrap();
    assert_eq!((last.end(), last.kind), (1800, ExtentKind::Hole));
    maker.lcluster(3, 1, 511, 0);
    assert_eq!(maker.map(1799).unwrap().end(), 1800);
    let mut maker = Maker::new(1, 100);
    maker.header(0, 0, 0, 0).lcluster(0, 1 | 1 << 14, 0, 0);
    let all = maker.map(50).unwrap();
    assert_eq!(
        (all.logical, all.end(), all.kind),
        (0, 100, ExtentKind::Hole)
    );
}

#[test]
fn a_hole_longer_than_a_pcluster_may_be_is_several_extents() {
    // 20 MiB in lclusters of 512 bytes, whose distances lead from one to the next.
    let lclusters = 40 << 10;
    let mut maker = Maker::new(1, lclusters * BLOCK);
    maker.bytes.resize(BODY + 16 + lclusters as usize * 8, 0);
    maker.header(0, 0b10, 0, 0).lcluster(0, 1, 0, 20);
    maker.lcluster(1, 2, 0, 0x0800 | 1 << 16);
    for lcn in 2..lclusters as usize {
        maker.lcluster(lcn, 2, 0, (lcn as u32).min(2047) | 1 << 16);
    }
    let opened = maker.image().unwrap();
    let image = opened.reader();
    let inode = image.inode(2).unwrap();
    let (mut at, mut extents) = (0, 0);
    while at < inode.size {
        let extent = image.map(&inode, at).unwrap();
        assert_eq!((extent.logical, &extent.kind), (at, &ExtentKind::Hole));
        (at, extents) = (extent.end(), extents + 1);
    }
    assert_eq!(extents, 2);
    let inside = image.map(&inode, 15 << 20 | 77).unwrap();
    assert!(inside.logical <= 15 << 20 | 77 && inside.end() == inode.size);
}

#[test]
fn an_inline_tail_that_fills_a_block_is_not_rotated() {
    // Enough entries for the tail to begin on a block boundary.
    let mut maker = Maker::new(1, 46 * BLOCK);
    maker.header(512 << 16, 0b110 | 1 << 3 | 1 << 4, 0, 0);
    maker.lcluster(45, 0, 100, 0);
    let tail = pcluster(&maker.map(46 * BLOCK - 1).unwrap());
    assert_eq!(tail.location.physical % BLOCK, 0);
    assert_eq!((tail.inline, tail.coding), (true, Coding::Shifted));
    assert_eq!(pcluster(&maker.map(0).unwrap()).coding, Coding::Interlaced);
}

#[test]
fn an_entry_that_contradicts_its_extent_is_found() {
    let mut maker = Maker::new(1, 8 * BLOCK);
    maker.bytes.resize(32 * BLOCK as usize, 0);
    maker.header(0, 0, 0, 0).lcluster(0, 1, 0, 20);
    for lcn in 1..7 {
        maker.lcluster(lcn, 2, 0, lcn as u32 | (7 - lcn as u32) << 16);
    }
    maker.lcluster(7, 1, 0, 21);
    let contradiction = |maker: &Maker| {
        let opened = maker.image().unwrap();
        let image = opened.reader();
        image.contradiction(&image.inode(2).unwrap())
    };
    assert_eq!(contradiction(&maker), None);
    assert_eq!(contradiction(&full()), None);
    maker.lcluster(4, 1, 0, 22);
    assert_eq!(
        maker.map(0).unwrap().end(),
        7 * BLOCK,
        "seen from before it"
    );
    assert_eq!(contradiction(&maker), Some(4 * BLOCK));
    // A non-head whose head would be before the beginning of the file.
    maker.lcluster(4, 2, 0, 9 | 3 << 16);
    assert_eq!(contradiction(&maker), Some(4 * BLOCK));
}

#[test]
fn an_inode_with_holes_is_known_by_its_index() {
    let has_holes = |maker: &Maker, mut entries| {
        let opened = maker.image().unwrap();
        let image = opened.reader();
        image.has_holes(&image.inode(2).unwrap(), &mut entries)
    };
    let mut maker = full();
    assert_eq!(has_holes(&maker, 4), Some(false));
    assert_eq!(has_holes(&maker, 3), None, "too many entries");
    maker.lcluster(2, 3 | 1 << 14, 100, 30);
    assert_eq!(has_holes(&maker, 4), Some(true));
    let mut maker = full();
    maker.lcluster(1, 2, 0, 0x0800 | 1 << 16);
    assert_eq!(has_holes(&maker, 4), Some(true));
    // Flat inodes with one block and with none.
    let mut maker = Maker::new(0, 100);
    assert_eq!(has_holes(&maker, 0), Some(false));
    maker.union(u32::MAX);
    let opened = maker.image().unwrap();
    let image = opened.reader();
    let flat = image.map(&image.inode(2).unwrap(), 0);
    let is_hole = flat.is_ok_and(|extent| extent.kind == ExtentKind::Hole);
    assert_eq!(has_holes(&maker, 0), Some(is_hole));
    assert_eq!(has_holes(&Maker::new(4, 100), 9), None, "chunks");
}

#[test]
fn the_hole_bit_changes_no_inline_tail_and_loses_a_fragment() {
    let mut maker = full();
    // 20 bytes after the index.
    maker.header(20 << 16, 0b110 | 1 << 3, 3, 0);
    maker.lcluster(3, 1 | 1 << 14, 200, 0);
    let tail = maker.map(1799).unwrap();
    assert!(pcluster(&tail).inline);
    assert_eq!(pcluster(&tail).length, 20);
    maker.incompat |= 0x20;
    maker.packed = 400;
    maker.put(META + 400 * 32 + 4, &0o100644u16.to_le_bytes());
    maker.header(77, 0b110 | 1 << 5, 3, 0);
    let opened = maker.image().unwrap();
    let image = opened.reader();
    let inode = image.inode(2).unwrap();
    image.map(&inode, 0).unwrap();
    assert_eq!(image.has_holes(&inode, &mut 4), Some(false));
    // The meaningless address would become the upper half of the tail's offset.
    let tail = maker.map(1799).unwrap();
    assert_eq!(
        tail.kind,
        ExtentKind::Fragment {
            offset: u64::MAX << 32 | 77
        }
    );
}

/// Encoded extents: `h_advise` for records of 4, 8, 16, 32 bytes.
fn extents_advise(record: u32) -> u16 {
    1 | ((record / 4).ilog2() as u16) << 1
}

#[test]
fn records_of_4_bytes_follow_each_other_on_the_device() {
    // 3000 extents of one block, each stored in 3 bytes: more than one checkpoint.
    let mut maker = Maker::new(1, 3000 * BLOCK);
    maker
        .header(0, extents_advise(4), 0, 0)
        .words(BODY + 8, &[5000, 0]);
    maker.words(BODY + 16, &[3 | 1 << 28; 3000]);
    let opened = maker.image().unwrap();
    let image = opened.reader();
    let inode = image.inode(2).unwrap();
    for number in [2999, 0, 1, 1023, 1024, 2047, 2048, 2500] {
        let extent = image.map(&inode, number * BLOCK + 5).unwrap();
        let pcluster = pcluster(&extent);
        assert_eq!(extent.logical, number * BLOCK);
        assert_eq!(
            (pcluster.location.physical, pcluster.length),
            (5000 + 3 * number, 3)
        );
        assert_eq!(pcluster.coding, Coding::Compressed(Algorithm::Lz4));
    }
}

#[test]
fn records_of_8_bytes_have_addresses_and_may_be_holes() {
    let mut maker = Maker::new(1, 2 * BLOCK + 1);
    maker.header(0, extents_advise(8), 0, 0);
    maker.words(BODY + 8, &[100 | 2 << 28 | 1 << 27, 7000, 0, 0, 600, 8000]);
    let first = maker.map(0).unwrap();
    assert_eq!(pcluster(&first).location.physical, 7000);
    assert!(pcluster(&first).partial);
    assert_eq!(pcluster(&first).coding, Coding::Compressed(Algorithm::Lzma));
    assert_eq!(maker.map(512).unwrap().kind, ExtentKind::Hole);
    let last = maker.map(1024).unwrap();
    assert_eq!((last.length, pcluster(&last).coding), (1, Coding::Shifted));
}

#[test]
fn records_of_16_and_32_bytes_are_searched_by_their_start() {
    for record in [16, 32] {
        let mut maker = Maker::new(1, 10_000);
        maker.header(3, extents_advise(record), 0, 0);
        let start = (BODY + 8).next_multiple_of(record as usize);
        for (index, logical) in [500, 3000, 9000].into_iter().enumerate() {
            let words = [9 | 4 << 28, 6000 + index as u32, 0, logical];
            maker.words(start + index * record as usize, &words);
        }
        let spans = [0, 499, 500, 2999, 3000, 9999].map(|offset| {
            let extent = maker.map(offset).unwrap();
            (extent.logical, extent.end())
        });
        let (hole, one, two, three) = ((0, 500), (500, 3000), (3000, 9000), (9000, 10_000));
        assert_eq!(spans, [hole, hole, one, one, two, three], "{record}");
        assert_eq!(maker.map(0).unwrap().kind, ExtentKind::Hole);
        assert_eq!(pcluster(&maker.map(9500).unwrap()).location.physical, 6002);
    }
}

#[test]
fn more_extents_than_the_image_has_room_for_are_refused() {
    let mut maker = Maker::new(1, 10_000);
    maker.header(u32::MAX, extents_advise(16), 0xff, 0x7f);
    assert!(maker.map(0).is_err());
}

#[test]
fn the_metabox_bit_means_nothing_without_a_metabox() {
    let opened = Maker::new(0, 10).image().unwrap();
    let image = opened.reader();
    assert!(image.inode(2 | NID_IN_METABOX).is_err());
    assert!(image.inode(u64::MAX).is_err());
    assert!(image.inode(!NID_IN_METABOX).is_err());
}

#[test]
fn directory_blocks_of_another_size_are_refused_by_name() {
    let mut maker = Maker::new(0, 10);
    maker.put(1024 + 90, &[1]);
    let error = maker.image().unwrap_err();
    assert!(error.to_string().contains("dirblkbits"), "{error}");
}
