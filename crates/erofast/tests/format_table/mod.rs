//! Checks the table of docs/format.md: each row has a test of the same name here, which opens an
//! image and verifies the outcome that the row states.
//!
//! Rows "read" compare whole images with their manifests. Rows "refused" change a few bytes of a
//! good image; they expect an error that names the reason, and no change elsewhere in the image. A
//! row whose image is not in the checkout is skipped, with a line that says so.

mod images;
mod patched;

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::TestImage;
use erofs_engine::erofs_format::Algorithm;
use images::reads;
use patched::{Patched, patched};

use Algorithm::{Deflate, Lz4, Lzma, Zstd};
use Outcome::{Read, RefusedAtOpen, RefusedPerFile};

/// The possible outcomes in the third column of the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Read,
    RefusedAtOpen,
    RefusedPerFile,
}

impl Outcome {
    fn of(text: &str) -> Option<Self> {
        Some(match text {
            "read" => Read,
            "refused at open" => RefusedAtOpen,
            "refused per file" => RefusedPerFile,
            _ => return None,
        })
    }
}

/// The rows of docs/format.md: those whose first column is one word in backquotes.
fn documented() -> BTreeMap<String, Outcome> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    let text = std::fs::read_to_string(&path).expect("docs/format.md");
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let columns: Vec<&str> = line.split('|').map(str::trim).collect();
        let id = columns[1].trim_matches('`').to_owned();
        let outcome = Outcome::of(columns[3]).unwrap_or_else(|| panic!("{id}: {}", columns[3]));
        assert!(rows.insert(id.clone(), outcome).is_none(), "{id} twice");
    }
    rows
}

/// Defines one test for each row, named after the row.
macro_rules! rows {
    ($($id:ident: $outcome:ident, $check:expr;)*) => {
        const ROWS: &[(&str, Outcome)] = &[$((stringify!($id), $outcome)),*];
        $(#[test] fn $id() { let hold: fn() = || $check; hold(); })*
    };
}

#[test]
fn the_table_and_the_tests_have_the_same_rows() {
    let tested: BTreeMap<String, Outcome> = ROWS
        .iter()
        .map(|&(id, outcome)| (id.to_owned(), outcome))
        .collect();
    assert_eq!(documented(), tested);
}

rows! {
    // Superblock and devices.
    checksum: Read, reads(&["meta"], "sb_chksum");
    checksum_absent: Read, {
        patched("meta").superblock(4, &[0; 4]).flip(1024 + 8, 1).reads();
        reads(&["plain-nosbcrc"], "mtime");
    };
    checksum_wrong: RefusedAtOpen,
        patched("meta").superblock(64, b"x").unsealed().refused("superblock checksum");
    magic: RefusedAtOpen, patched("meta").superblock(0, &[0]).refused("not an EROFS image: magic");
    too_short: RefusedAtOpen, patched("meta").cut(1100).refused("too short for a superblock");
    block_size: Read, {
        reads(&["tar-index", "plain-b512"], "bs=512");
        reads(&["plain-b1024", "zstd-b1024"], "bs=1024");
        reads(&["plain-b2048"], "bs=2048");
        reads(&["meta"], "bs=4096");
        reads(&["plain-b8192"], "bs=8192");
        reads(&["lz4-b16384"], "bs=16384");
        reads(&["plain-b65536"], "bs=65536");
    };
    block_size_other: RefusedAtOpen, {
        patched("meta").superblock(12, &[8]).refused("block size of 2^8");
        patched("meta").superblock(12, &[17]).refused("block size of 2^17");
    };
    compat_unknown: Read, patched("meta").flip(1024 + 11, 0x40).reads();
    incompat_unknown: RefusedAtOpen,
        patched("meta").flip(1024 + 83, 0x40).refused("feature_incompat 0x40000000 (bit 30)");
    reserved_fields: Read, patched("lz4-full-index-64k")
        .superblock(106, &[0xff; 2])
        .superblock(120, &[0xff; 8])
        .inode("noise-9000", 48, &[0xff; 16])
        .reads();
    directory_block_bits: RefusedAtOpen,
        patched("meta").superblock(90, &[1]).refused("dirblkbits 1");
    extension_slots: RefusedAtOpen,
        patched("meta").superblock(13, &[255]).refused("superblock of 4208 bytes");
    root_beyond: RefusedAtOpen,
        patched("meta").superblock(14, &[0xff; 2]).refused("nid 0xffff is beyond the end");
    root_no_directory: RefusedAtOpen, {
        let image = patched("lz4-full-index-64k");
        let nid = image.nid("noise-9000");
        image.superblock(14, &(nid as u16).to_le_bytes()).refused("is a Regular");
    };
    packed_beyond: RefusedAtOpen,
        patched("kitchen-sink").superblock(96, &[0xff; 4]).refused("is beyond the end");
    packed_no_file: RefusedAtOpen, {
        let image = patched("kitchen-sink");
        let root = image.nid("");
        image.superblock(96, &root.to_le_bytes()).refused("the packed inode");
    };
    metabox_without_slot: RefusedAtOpen,
        patched("metabox-dir").superblock(13, &[0]).refused("without the extension slot");
    metabox_in_itself: RefusedAtOpen,
        patched("metabox-dir").flip(1024 + 135, 0x80).refused("inside itself");
    offset: Read, reads(&["offset-8192"], "bs=4096");
    offset_found: Read, {
        let image = patched("lz4-full-index-64k").shift(3 * 512);
        Patched { image: TestImage { offset: 0, ..image.image.clone() }, auto: true, ..image }
            .reads();
    };
    devices: Read, {
        reads(&["blobdev", "tar-index"], "devices=1");
        reads(&["multidev-merge"], "devices=2");
    };
    devices_in_one_file: Read, one_file_for_all();
    devices_missing: RefusedAtOpen,
        patched("blobdev").devices(0).refused("the image needs 1, but none was given; missing: device 1");
    devices_needless: RefusedAtOpen, patched("blobdev").devices(2).refused("the image has 1 extra device, but 2 were given");
    device_table_beyond: RefusedAtOpen,
        patched("blobdev").superblock(88, &[0xff; 2]).refused("beyond the end of the primary device");
    label_and_alignment: Read, reads(&["plain-label-dsunit"], "bs=4096");
    incremental: Read, reads(&["incremental"], "bs=4096");
    tar_images: Read, reads(&["tar-index", "tar-full"], "sb_chksum");
    feature_48bit: Read, reads(&["zstd-48bit-unaligned", "chunk-48bit", "meta-48bit"], "48bit");

    // Compression settings.
    algorithms_unknown: RefusedAtOpen,
        patched("lz4-full-index-64k").flip(1024 + 84, 0x80).refused("compression algorithms 0x80");
    lz4_pcluster_limit: RefusedAtOpen,
        patched("lz4-full-index-64k").config(4, &[0xe8, 3]).refused("lz4 pclusters of 1000 blocks");
    lzma_format: RefusedAtOpen,
        patched("lzma-lc0lp2pb0").config(6, &[1]).refused("lzma format 1");
    lzma_dictionary: RefusedAtOpen,
        patched("lzma-lc0lp2pb0").config(2, &[0, 0, 0, 0x40]).refused("lzma dictionary of 1073741824");
    deflate_window: RefusedAtOpen,
        patched("lcluster-16k-bigpcluster").config(16 + 2, &[16]).refused("deflate window of 2^16");
    zstd_format: RefusedAtOpen,
        patched("zstd-48bit-unaligned").config(2, &[1]).refused("zstd format 1");
    zstd_window: RefusedAtOpen,
        patched("zstd-48bit-unaligned").config(3, &[11]).refused("zstd window of 2^21");

    // Inodes.
    inode_compact: Read, reads(&["meta", "plain-compact-inodes"], "compact:");
    inode_extended: Read, reads(&["meta", "plain-extended-inodes"], "extended:");
    metadata: Read, reads(&["meta", "meta-b512", "meta-48bit"], "mtime");
    inode_format_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").inode_flip("noise-9000", 0, 0x20).refuses("noise-9000", "i_format");
    layout_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 0, &[0xf]).refuses("noise-9000", "data layout 7");
    type_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 5, &[0x01]).refuses("noise-9000", "mode 0o");
    size_impossible: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 15, &[0x80]).refuses("noise-9000", "the limit is");
    symlink_too_long: RefusedPerFile,
        patched("lz4-full-index-64k").inode("link", 8, &4096u64.to_le_bytes()).refuses("link", "the limit is 4095");
    nid_beyond: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 3);
        image.set(entry, &[0xff; 4]).refuses("t/s1", "is beyond the end");
    };

    // Plain data.
    flat_plain: Read, reads(&["meta", "plain-noinline"], "flat_plain:");
    flat_inline: Read, reads(&["meta", "plain"], "flat_inline:");
    inline_crosses_block: RefusedPerFile,
        patched("lz4-full-index-64k").inode("t/s50", 8, &4095u64.to_le_bytes()).refuses("t/s50", "crosses a block boundary");
    data_beyond_device: RefusedPerFile,
        patched("lz4-full-index-64k").inode("noise-9000", 16, &[0xff, 0xff, 0xff, 0x7f]).refuses("noise-9000", "beyond the end");
    data_cut_off: RefusedPerFile, {
        let image = patched("head2-lz4-deflate");
        let (path, address) = image.last_on_device();
        image.cut(address as usize + 100).refuses(&path, "cut off");
    };
    chunk_block_map: Read, reads(&["chunk-4k-blockmap", "chunk-64k", "chunk-b512"], "chunk-blockmap:");
    chunk_indexes: Read, reads(&["blobdev", "chunk-16k-indexes"], "chunk-indexes:");
    chunk_holes: Read, reads(&["chunk-sparse-4g"], "chunk-blockmap:");
    chunk_wide: Read, patched("blobdev").inode_flip("text-40000", 16, 0x40).reads();
    chunk_format_unknown: RefusedPerFile,
        patched("blobdev").inode_flip("noise-9000", 16, 0x80).refuses("noise-9000", "chunk format");
    chunk_beyond_device: RefusedPerFile,
        patched("blobdev").body("noise-9000", 8 + 4, &[0xff, 0xff, 0xff, 0x7f]).refuses("noise-9000", "beyond the end");
    chunk_device_unknown: RefusedPerFile,
        patched("blobdev").superblock(86, &[2]).devices(2).body("noise-9000", 2, &[3])
            .refuses("noise-9000", "device 3, but there are only 2 extra devices");
    large_files: Read, reads(&["chunk-sparse-4g", "zstd-48bit-4g", "zstd-48bit-4g-frag"], "bs=4096");

    // Compressed data.
    lz4: Read, reads(&["lz4-full-index-64k", "lz4-4k", "lz4hc-16k"], "lz4");
    lz4_without_padding: Read, reads(&["lz4-no-padding"], "inode-alg-lz4");
    lzma: Read, reads(&["lzma-lc0lp2pb0", "lzma-4k", "lzma-1m-dict8m"], "inode-alg-lzma");
    deflate: Read, reads(&["lcluster-16k-bigpcluster", "deflate-4k", "deflate-window512"], "inode-alg-deflate");
    zstd: Read, reads(&["zstd-48bit-unaligned", "zstd-4k", "zstd-1m-dict1m"], "algs=zstd");
    algorithm_per_file: Read, reads(&["mixed-algorithms"], "algs=lz4+lzma+deflate+zstd");
    head2: Read, reads(&["head2-lz4-deflate", "head2-bigpcluster"], "lc-head2:");
    big_pclusters: Read, reads(&["lz4-full-index-64k", "lz4hc-1m", "lz4-max-extent"], "cblkcnt:");
    full_index: Read, reads(&["lz4-full-index-64k", "lz4-full-index"], "lc-head1:");
    compact_index: Read, reads(&["lzma-lc0lp2pb0", "lz4-4k"], "2B:");
    extents: Read, {
        reads(&["zstd-48bit-unaligned", "zstd-48bit-4g"], "extents-rec4:");
        reads(&["zstd-48bit-fragments"], "extents-rec8:");
        reads(&["zstd-48bit-unaligned"], "extents-rec16:");
        reads(&["zstd-48bit-4g-frag"], "extents-rec32:");
    };
    extent_unaligned: Read, reads(&["zstd-48bit-unaligned"], "extents-rec");
    extent_partial: Read, {
        let image = patched("zstd-48bit-unaligned");
        let path = image.path_of(|advise| advise >> 1 & 3 == 2);
        let at = image.extent(&path, 0) + 3;
        image.flip(at, 0x08).reads();
    };
    large_lclusters: Read, reads(&["lcluster-16k-bigpcluster", "lcluster-16k"], "lcluster=bs<<2");
    tail_packing: Read, reads(&["lz4-ztailpacking", "lzma-b512-ztail"], "ztail:");
    fragments: Read, {
        reads(&["kitchen-sink", "lzma-all-fragments"], "whole-fragment:");
        reads(&["lz4-fragments", "zstd-fragments-inode"], "frag-tail:");
    };
    interlaced: Read, reads(&["lz4-fragments", "zstd-fragments-inode"], "interlaced:");
    dedupe: Read, reads(&["lz4-dedupe", "lz4-ztail-frag-dedupe"], "partial-ref:");
    pcluster_holes: Read, {
        reads(&["sparse-lihole"], "LI_HOLE");
        reads(&["sparse-cblk0"], "CBLKCNT-0");
    };
    stream_broken: RefusedPerFile, {
        patched("lz4-full-index-64k").garbage("text-40000", Lz4, 0xff).refuses("text-40000", "lz4: ");
        patched("lzma-lc0lp2pb0").garbage("text-40000", Lzma, 0x5a).refuses("text-40000", "lzma: ");
        patched("lcluster-16k-bigpcluster").garbage("text", Deflate, 0xff).refuses("text", "deflate: ");
        patched("zstd-48bit-unaligned").garbage("text-40000", Zstd, 0x28).refuses("text-40000", "zstd: ");
    };
    algorithm_undeclared: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 6, &[3]).refuses("text-40000", "the superblock does not list zstd");
    algorithm_unknown: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 6, &[7]).refuses("text-40000", "compression algorithm 7");
    big_pclusters_undeclared: RefusedPerFile, {
        let image = patched("lz4-full-index-64k").flip(1024 + 80, 2);
        let paths = image.paths(|inode| inode.is_compressed());
        image.refuses_all(&paths, "big pclusters in nid");
    };
    compact_index_one_size: RefusedPerFile,
        patched("lzma-lc0lp2pb0").body_flip("text-40000", 4, 4).refuses("text-40000", "only one head type");
    compact_index_large_lclusters: RefusedPerFile,
        patched("lzma-lc0lp2pb0").body("text-40000", 7, &[3]).refuses("text-40000", "lclusters of 2^15 bytes");
    pcluster_limit: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16 + 8 + 4, &[0xff, 0x0f]).refuses("text-40000", "the limits are 1 MiB and 12 MiB");
    pcluster_beyond_device: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16 + 4, &[0xff, 0xff, 0xff, 0x7f]).refuses("text-40000", "beyond the end");
    pcluster_plain_too_short: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16, &[0]).refuses("text-40000", "40000 uncompressed bytes in");
    head_missing: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16, &[2, 0, 0, 0, 1, 0, 0, 0]).refuses("text-40000", "has its head");
    head_beyond_lcluster: RefusedPerFile,
        patched("lz4-full-index-64k").body("text-40000", 16 + 2, &[0xff; 2]).refuses("text-40000", "has clusterofs 65535, beyond its 4096");
    tail_crosses_block: RefusedPerFile,
        patched("lz4-full-index-64k").body_flip("text-40000", 4, 8).body("text-40000", 2, &[0xff; 2])
            .refuses("text-40000", "crosses a block boundary");
    extents_too_many: RefusedPerFile, {
        let image = patched("zstd-48bit-unaligned");
        let path = image.path_of(|advise| advise >> 1 & 3 == 2);
        image.body(&path, 0, &[0xff; 4]).refuses(&path, "beyond the end");
    };
    extents_out_of_order: RefusedPerFile, {
        let image = patched("zstd-48bit-unaligned");
        let path = image.path_of(|advise| advise >> 1 & 3 == 2);
        let at = image.extent(&path, 0) + 12;
        image.set(at, &[0xff; 4]).refuses(&path, "out of order");
    };
    fragment_without_packed: RefusedPerFile,
        patched("lz4-full-index-64k").body_flip("text-40000", 7, 0x80).refuses("text-40000", "the image has no packed inode");
    fragment_beyond_packed: RefusedPerFile, {
        let image = patched("kitchen-sink");
        let path = image.path_of(|_| true);
        image.body(&path, 0, &[0xff; 4]).refuses(&path, "of a packed inode of");
    };
    fragment_of_itself: RefusedPerFile, {
        // Leaves out the long xattr names, which that image stores in the packed inode.
        let image = patched("kitchen-sink").flip(1024 + 80, 0x40);
        let paths = image.paths(|inode| inode.is_compressed());
        let packed = image.engine.image().superblock().packed_nid.expect("a packed inode");
        let packed = image.engine.inode(packed).expect("the packed inode");
        let (inode, body) = (image.position(&packed), image.body_of(&packed));
        image.set(inode, &[3]).set(body, &[0, 0, 0, 0, 0, 0, 0, 0x80])
            .tolerating("it is the packed inode itself")
            .refuses_all(&paths, "it is the packed inode itself");
    };

    // Directories.
    directories: Read, reads(&["meta", "dir", "dir-b512"], "bs=");
    directory_compressed: Read, reads(&["metabox-dir", "dir-compressed"], "fragments/dedupe");
    directory_without_dot: Read, reads(&["dir-dot-omitted"], "dot-omitted:");
    metazone: Read, reads(&["metazone"], "bs=4096");
    metabox: Read, reads(&["metabox-dir", "metabox-plain", "metabox-lz4", "metabox-zstd-lzma"], "in-metabox:");
    entry_type_wrong: Read, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 3);
        image.set(entry + 10, &[2]).reads();
    };
    directory_unsorted: Read, {
        // Swaps the entries s0 and s1: names and nids.
        let image = patched("lz4-full-index-64k");
        let (one, two) = (image.dirent("t", 2), image.dirent("t", 3));
        let nids = [one, two].map(|at| image.bytes[at..at + 8].to_vec());
        let names = [one, two].map(|at| image.name_at(one - 24, at));
        image.set(one, &nids[1]).set(two, &nids[0]).set(names[0], b"s1").set(names[1], b"s0").reads();
    };
    entry_name_impossible: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 3);
        let name = image.name_at(entry - 36, entry);
        image.set(name, b"/").tolerating("entry 3 of the directory block").refuses("t/s1", "entry 3 of the directory block");
    };
    entry_name_outside: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 8);
        image.set(entry + 8, &[0xe8, 0xfd]).tolerating("of the directory block").refuses_all(&["t/s4097", "t/s50"], "of the directory block");
    };
    directory_block_broken: RefusedPerFile, {
        let image = patched("lz4-full-index-64k");
        let entry = image.dirent("t", 0);
        let paths = ["t/s0", "t/s1", "t/s3000", "t/s4095", "t/s4096", "t/s4097", "t/s50"];
        image.set(entry + 8, &[13, 0]).tolerating("t: ").refuses_all(&paths, "");
    };

    // Extended attributes.
    xattrs_inline: Read, reads(&["meta", "xattr-inline"], "xattr-inodes:");
    xattrs_shared: Read, reads(&["xattr-prefixes", "xattr-shared"], "shared-xattr-refs:");
    xattr_filter: Read, reads(&["xattr-prefixes", "xattr"], "xattr_filter");
    xattr_filter_absent: Read, reads(&["xattr-nofilter"], "xattr-inodes:");
    xattr_prefixes: Read, {
        reads(&["xattr-prefixes", "xattr-prefixes-plain"], "plain_xattr_pfx");
        reads(&["kitchen-sink", "metabox-xattr"], "xattr_prefixes");
    };
    xattr_digest: Read, reads(&["xattr-digest"], "ishare_xattrs");
    xattr_namespace_unknown: Read,
        patched("lz4-full-index-64k").xattr("mixed-90000", 1, &[9]).reads_without_xattrs("mixed-90000");
    xattr_prefix_unknown: Read,
        patched("lz4-full-index-64k").xattr("mixed-90000", 1, &[0x85]).reads_without_xattrs("mixed-90000");
    xattr_prefixes_beyond: RefusedAtOpen,
        patched("xattr-prefixes").superblock(92, &[0xff; 4]).refused("beyond the end");
    xattr_digest_unknown: RefusedAtOpen,
        patched("xattr-prefixes").flip(1024 + 8, 0x20).superblock(105, &[200]).refused("digest xattr prefix 200 of 3");
    xattr_overflow: RefusedPerFile,
        patched("lz4-full-index-64k").xattr("mixed-90000", 0, &[0xff, 1, 0xff, 0xff]).refuses("mixed-90000", "bytes of name and value");
    xattr_shared_beyond: RefusedPerFile, {
        let image = patched("xattr-prefixes");
        let path = image.with_shared_xattrs().remove(0);
        image.xattr(&path, 0, &[0xff; 4]).refuses(&path, "beyond the end");
    };
    xattrs_shared_in_no_metabox: RefusedPerFile, {
        let image = patched("xattr-prefixes").flip(1024 + 8, 8);
        let paths = image.with_shared_xattrs();
        image.refuses_all(&paths, "metabox of an image without one");
    };
}

/// Appends the blob to the image, at the address written into the device table.
fn one_file_for_all() {
    let mut image = patched("blobdev");
    let superblock = image.engine.image().superblock();
    let (block, slot) = (
        superblock.block_size as usize,
        usize::from(superblock.device_slot) * 128,
    );
    let unified = image.bytes.len().div_ceil(block);
    image = image.set(slot + 68, &(unified as u32).to_le_bytes());
    image.bytes = image.sealed_bytes();
    image.bytes.resize(unified * block, 0);
    image
        .bytes
        .extend(std::fs::read(&image.image.devices[0]).expect("the blob"));
    image.devices(0).reads();
}
