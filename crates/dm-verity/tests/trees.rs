//! Good trees are accepted, and every flipped bit of the data, the tree or the superblock is
//! detected, except in the UUID.

use std::process::Command;

use crate::writer::Recipe;
use dm_verity::{Error, HashAlgorithm, HashType, Parameters, RootHash, Tree, read_superblock};

/// A tree and the hash area that contains it.
#[derive(Debug)]
struct Opened {
    tree: Tree,
    area: Vec<u8>,
}

impl Opened {
    fn parameters(&self) -> &Parameters {
        self.tree.parameters()
    }

    fn verify(&self, data: &[u8], first: u64) -> Result<(), Error> {
        self.tree.verify(&self.area, data, first)
    }
}

fn open(area: &[u8], root: &str) -> Result<Opened, Error> {
    let area = area.to_vec();
    let parameters = read_superblock(&area, 0)?;
    let tree = Tree::open(parameters, &root.parse()?, &area)?;
    Ok(Opened { tree, area })
}

/// Opens a tree and verifies all data, a few blocks at a time.
fn verify_all(data: &[u8], area: &[u8], root: &str) -> Result<(), Error> {
    let tree = open(area, root)?;
    if tree.parameters().data_size() > data.len() as u64 {
        return Err(Error::Format("the data device is too small".into()));
    }
    let size = tree.parameters().data_block_size() as usize;
    let covered = &data[..tree.parameters().data_size() as usize];
    for (run, first) in covered.chunks(5 * size).zip((0..).step_by(5)) {
        tree.verify(run, first)?;
    }
    Ok(())
}

/// SHA-256 and SHA-512 with and without salt, blocks of 4 KiB and 1 KiB, both types, and different
/// sizes for data and hash blocks.
fn recipes() -> Vec<Recipe> {
    let mut recipes = Vec::new();
    for algorithm in ["sha256", "sha512"] {
        for block in [4096, 1024] {
            for salt in [&b""[..], b"salt", &[0x5a; 32], &[7; 256]] {
                recipes.push(Recipe::new(algorithm, block, salt));
            }
        }
    }
    let old = Recipe {
        hash_type: 0,
        ..Recipe::new("sha256", 1024, b"behind")
    };
    let mixed = Recipe {
        data_block: 512,
        ..Recipe::new("sha256", 4096, b"")
    };
    recipes.extend([old, mixed]);
    recipes
}

#[test]
fn trees_of_every_shape_verify_their_data() {
    for recipe in recipes() {
        for blocks in [1, 2, 31, 32, 33, 129, 1025] {
            let data = crate::writer::data(blocks, recipe.data_block);
            let (area, root) = recipe.write(&data);
            if let Err(error) = verify_all(&data, &area, &root) {
                panic!("{blocks} blocks, {recipe:?}: {error}");
            }
        }
    }
}

/// Verifying a range needs exactly the blocks that `hashes` returns: all others may be missing, but
/// if any one of these is missing, verification fails.
#[test]
fn the_hashes_of_a_range_are_those_that_verify_it() {
    for recipe in recipes() {
        let (block, blocks) = (recipe.data_block, 1025);
        let data = crate::writer::data(blocks, block);
        let (area, root) = recipe.write(&data);
        let whole = open(&area, &root).unwrap();
        let of = |start: usize, end: usize| whole.tree.hashes(start as u64..end as u64);
        for run in [0..1, 5..40, 700..701] {
            let (start, end) = (run.start * block, run.end * block);
            let mut part = area.clone();
            let first = of(0, 1).map(|range| range.start).min().unwrap() as usize;
            part[first..].fill(0);
            // Opening the tree uses the hash blocks of the last data block.
            for range in of(start + 1, end - 1).chain(of(data.len() - 1, data.len())) {
                let range = range.start as usize..range.end as usize;
                part[range.clone()].copy_from_slice(&area[range]);
            }
            let tree = open(&part, &root).unwrap();
            let verified = tree.verify(&data[start..end], run.start as u64);
            assert!(verified.is_ok(), "{run:?} {recipe:?}");
        }
    }
}

#[test]
fn each_of_200_flipped_bits_in_each_tree_is_found() {
    for recipe in recipes() {
        // The tree has three levels with blocks of 1 KiB, and two with blocks of 4 KiB.
        let data = crate::writer::data(1100, recipe.data_block);
        let (area, root) = recipe.write(&data);
        let whole = [&area[..], &data[..]].concat();
        // The UUID may have any value. Nothing between the superblock and the first hash block is
        // read; veritysetup leaves the old bytes there.
        let used = |at: usize| !(16..32).contains(&at) && !(512..recipe.hash_block).contains(&at);
        let spread = (0..100).map(|n| n * whole.len() / 100 + n);
        let superblock = (0..60).map(|n| n * 512 / 60);
        let tree = (0..40).map(|n| recipe.hash_block + n * (area.len() - recipe.hash_block) / 40);
        let places = spread.chain(superblock).chain(tree);
        for (n, at) in places.enumerate() {
            let at = if used(at) { at } else { at + recipe.hash_block };
            let mut broken = whole.clone();
            broken[at] ^= 1 << (n % 8);
            let (area, data) = broken.split_at(area.len());
            let found = verify_all(data, area, &root);
            assert!(found.is_err(), "bit {} of byte {at}, {recipe:?}", n % 8);
        }
    }
}

#[test]
fn every_bit_of_the_superblock_but_those_of_the_uuid_counts() {
    let recipe = Recipe::new("sha256", 1024, b"salt");
    let data = crate::writer::data(40, 1024);
    let (area, root) = recipe.write(&data);
    for at in (0..512).filter(|at| !(16..32).contains(at)) {
        for bit in 0..8 {
            let mut broken = area.clone();
            broken[at] ^= 1 << bit;
            assert!(open(&broken, &root).is_err(), "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_mismatch_names_the_block_and_nothing_else_fails() {
    let recipe = Recipe::new("sha256", 1024, b"");
    let mut data = crate::writer::data(100, 1024);
    let (area, root) = recipe.write(&data);
    data[77 * 1024 + 5] ^= 4;
    let tree = open(&area, &root).unwrap();
    for (block, bytes) in (0..).zip(data.chunks(1024)) {
        let found = tree.verify(bytes, block).map_err(|error| error.to_string());
        match block {
            77 => assert_eq!(
                found.unwrap_err(),
                "data block 77 (at byte 78848) does not match its hash"
            ),
            _ => found.unwrap(),
        }
    }
}

#[test]
fn a_broken_hash_block_fails_what_is_below_it_only() {
    let recipe = Recipe::new("sha256", 1024, b"");
    let data = crate::writer::data(1100, 1024);
    let (mut area, root) = recipe.write(&data);
    // The area has a superblock, the root block, two blocks of level 1, and 35 leaves; this is the
    // fourth leaf.
    area[(1 + 1 + 2 + 3) * 1024] ^= 1;
    let tree = open(&area, &root).unwrap();
    for (block, bytes) in (0..).zip(data.chunks(1024)) {
        let found = tree.verify(bytes, block).map_err(|error| error.to_string());
        match block / 32 {
            3 => assert_eq!(
                found.unwrap_err(),
                "hash block 3 of level 0 (at byte 7168 of the hash device) does not match its hash"
            ),
            _ => found.unwrap(),
        }
    }
}

#[test]
fn another_root_hash_opens_nothing() {
    let recipe = Recipe::new("sha256", 1024, b"");
    let (area, _) = recipe.write(&crate::writer::data(40, 1024));
    let error = open(&area, &"00".repeat(32)).unwrap_err().to_string();
    assert_eq!(error, "the given root hash does not match the hash tree");
    let error = open(&area, "0011").unwrap_err().to_string();
    assert_eq!(
        error,
        "root hash: 2 bytes, but the digests of this tree have 32"
    );
}

#[test]
fn blocks_beyond_the_tree_are_no_data() {
    let recipe = Recipe::new("sha256", 1024, b"");
    let data = crate::writer::data(33, 1024);
    let (area, root) = recipe.write(&data);
    let tree = open(&area, &root).unwrap();
    assert!(tree.verify(&data[..1024], 33).is_err());
    assert!(tree.verify(&data[..1024], u64::MAX - 1).is_err());
}

#[test]
fn a_tree_without_a_superblock_opens_with_the_parameters_alone() {
    let recipe = Recipe {
        superblock: false,
        ..Recipe::new("sha512", 1024, b"salt")
    };
    let data = crate::writer::data(300, 1024);
    let (area, root) = recipe.write(&data);
    let root: RootHash = root.parse().unwrap();
    let parameters = |salt: &[u8]| {
        Parameters::new(HashAlgorithm::Sha512, 1024, 1024, 300, salt.to_vec(), 0).unwrap()
    };
    let tree = Tree::open(parameters(b"salt"), &root, &area).unwrap();
    tree.verify(&area, &data, 0).unwrap();
    assert!(Tree::open(parameters(b"other"), &root, &area).is_err());
    let type_0 = parameters(b"salt").with_hash_type(HashType::ChromeOs);
    assert!(Tree::open(type_0, &root, &area).is_err());
}

/// A superblock with one field replaced, and the error it must cause.
type Hostile = (&'static str, usize, Vec<u8>, &'static str);

#[test]
fn hostile_superblocks_get_one_line() {
    let cases: Vec<Hostile> = vec![
        (
            "magic",
            0,
            b"VERITY".to_vec(),
            "no dm-verity superblock at byte 0",
        ),
        ("version", 8, vec![2], "superblock version 2"),
        ("type", 12, vec![9], "hash type 9"),
        (
            "algorithm",
            32,
            b"md5\0\0\0".to_vec(),
            "\"md5\" is not supported",
        ),
        ("algorithm of bytes", 32, vec![0xff; 32], "not valid"),
        ("data block 0", 64, vec![0; 4], "data block size 0"),
        (
            "data block of 4 GiB",
            64,
            vec![0xff; 4],
            "data block size 4294967295",
        ),
        ("hash block 0", 68, vec![0; 4], "hash block size 0"),
        (
            "hash block of 2 GiB",
            68,
            vec![0, 0, 0, 0x80],
            "hash block size 2147483648",
        ),
        ("hash block 1000", 68, vec![0xe8, 3], "hash block size 1000"),
        ("no data", 72, vec![0; 8], "0 data blocks"),
        (
            "2^64 - 1 data blocks",
            72,
            vec![0xff; 8],
            "18446744073709551615 data blocks",
        ),
        (
            "2^52 data blocks",
            72,
            vec![0, 0, 0, 0, 0, 0, 0x10, 0],
            "the hash device ends at byte",
        ),
        ("a long salt", 80, vec![1, 1], "a salt of 257 bytes"),
        ("padding", 511, vec![1], "byte 511"),
    ];
    let (area, root) = Recipe::new("sha256", 1024, b"").write(&crate::writer::data(40, 1024));
    for (name, at, bytes, message) in cases {
        let mut hostile = area.clone();
        hostile[at..at + bytes.len()].copy_from_slice(&bytes);
        let error = open(&hostile, &root).unwrap_err().to_string();
        assert!(error.contains(message), "{name}: {error}");
        assert!(!error.contains('\n'), "{name}: {error}");
    }
    let short = open(&area[..100], &root).unwrap_err().to_string();
    assert!(short.starts_with("hash area at byte 0: "), "{short}");
    assert!(
        open(&area[..area.len() - 1], &root).is_err(),
        "a tree cut short"
    );
}

/// Makes a tree with veritysetup: returns the hash area and the root hash.
fn veritysetup(recipe: &Recipe, data: &[u8], name: &str) -> (Vec<u8>, String) {
    let directory = std::env::temp_dir().join(format!("dm-verity-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let [data_file, area, root] = ["data", "area", "root"].map(|name| directory.join(name));
    std::fs::write(&data_file, data).unwrap();
    let salt: String = recipe
        .salt
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let mut command = Command::new("veritysetup");
    command
        .arg("format")
        .args([&data_file, &area])
        .arg(format!("--hash={}", recipe.algorithm))
        .arg(format!("--data-block-size={}", recipe.data_block))
        .arg(format!("--hash-block-size={}", recipe.hash_block))
        .arg(format!("--format={}", recipe.hash_type))
        .arg(format!(
            "--salt={}",
            if salt.is_empty() { "-" } else { &salt }
        ))
        .arg(format!("--root-hash-file={}", root.display()));
    if !recipe.superblock {
        command.arg("--no-superblock");
    }
    let output = command.output().unwrap();
    assert!(output.status.success(), "{recipe:?}: {output:?}");
    let made = (
        std::fs::read(&area).unwrap(),
        std::fs::read_to_string(&root).unwrap().trim().to_owned(),
    );
    std::fs::remove_dir_all(&directory).unwrap();
    made
}

#[test]
fn trees_of_veritysetup_are_accepted_and_equal_to_our_own() {
    if Command::new("veritysetup")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("skipped: veritysetup is not installed");
        return;
    }
    for (n, recipe) in recipes().into_iter().enumerate() {
        for (superblock, blocks) in [(true, 1), (true, 2), (false, 200), (true, 1100)] {
            let recipe = Recipe {
                superblock,
                ..recipe.clone()
            };
            let data = crate::writer::data(blocks, recipe.data_block);
            let (area, root) = veritysetup(&recipe, &data, &format!("{n}-{blocks}"));
            let (ours, our_root) = recipe.write(&data);
            assert_eq!(root, our_root, "{blocks} blocks, {recipe:?}");
            let tree = if superblock { recipe.hash_block } else { 0 };
            if area.len() > tree {
                assert_eq!(area[tree..], ours[tree..], "{blocks} blocks, {recipe:?}");
            }
            if superblock {
                verify_all(&data, &area, &root).unwrap();
            }
        }
    }
}
