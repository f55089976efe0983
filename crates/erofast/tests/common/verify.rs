//! Compares an opened image with its manifest, using every request that the engine offers.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, Error, ReadContext};
use sha2::{Digest, Sha256};

use super::manifest::{Expected, hex};

/// Files larger than this are compared by their ranges and samples of the zeros in between.
const BIG: u64 = 64 << 20;

const CONTEXTS: [ReadContext; 3] = [
    ReadContext::Worker,
    ReadContext::Reader { readahead: false },
    ReadContext::Reader { readahead: true },
];

type Tree = BTreeMap<Vec<u8>, Arc<Inode>>;

/// All differences between an image and its manifest, except below the paths in `skip`.
pub fn differences(engine: &Engine, expected: &[Expected], skip: &[&str]) -> Vec<String> {
    let skipped = |path: &[u8]| {
        skip.iter().any(|skip| {
            let skip = skip.as_bytes();
            skip.is_empty() || path == skip || path.strip_prefix(skip).is_some_and(|p| p[0] == b'/')
        })
    };
    let mut found = Vec::new();
    let mut tree = list(engine, &skipped, &mut found);
    let mut groups = BTreeMap::new();
    for entry in expected.iter().filter(|entry| !skipped(&entry.path())) {
        let shown = String::from_utf8_lossy(&entry.path()).into_owned();
        let Some(inode) = tree.remove(&entry.path()) else {
            found.push(format!("{shown}: missing"));
            continue;
        };
        if let Some(group) = entry.group
            && *groups.entry(group).or_insert(inode.nid) != inode.nid
        {
            found.push(format!("{shown}: not the same inode as its hard links"));
        }
        found.extend(
            metadata(&inode, entry)
                .iter()
                .map(|d| format!("{shown}: {d}")),
        );
        found.extend(
            attributes(engine, &inode, entry)
                .iter()
                .map(|d| format!("{shown}: {d}")),
        );
        found.extend(
            content(engine, &inode, entry)
                .iter()
                .map(|d| format!("{shown}: {d}")),
        );
    }
    let extra = tree.keys().filter(|path| !skipped(path));
    found.extend(extra.map(|path| format!("{}: extra", String::from_utf8_lossy(path))));
    found
}

/// Returns the entries of the tree by path. Looks up every listed name, and after each a name that
/// does not exist.
fn list(engine: &Engine, skipped: &dyn Fn(&[u8]) -> bool, found: &mut Vec<String>) -> Tree {
    let mut tree = Tree::new();
    let mut todo = vec![(Vec::new(), engine.root())];
    while let Some((path, nid)) = todo.pop() {
        if skipped(&path) && !path.is_empty() {
            continue;
        }
        let shown = String::from_utf8_lossy(&path).into_owned();
        let inode = match engine.inode(nid) {
            Ok(inode) => inode,
            Err(error) => {
                found.push(format!("{shown}: {error}"));
                continue;
            }
        };
        if inode.file_type() == FileType::Directory {
            let mut names = Vec::new();
            let listed = engine.read_dir_strict(&inode, 0, &mut |entry| {
                match entry {
                    Ok(entry) => names.push((entry.name.to_vec(), entry.nid)),
                    Err(error) => found.push(format!("{shown}: {error}")),
                }
                ControlFlow::Continue(())
            });
            if let Err(error) = listed {
                found.push(format!("{shown}: {error}"));
            }
            for (name, nid) in names {
                lookup(engine, &inode, &name, nid, found);
                if name == b"." || name == b".." {
                    continue;
                }
                let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
                todo.push(([&path[..], separator, &name[..]].concat(), nid));
            }
        }
        tree.insert(path, inode);
    }
    tree
}

fn lookup(engine: &Engine, directory: &Arc<Inode>, name: &[u8], nid: u64, found: &mut Vec<String>) {
    let shown = String::from_utf8_lossy(name);
    match engine.lookup(&engine.waiting(), directory, name) {
        Ok(Some(looked_up)) if looked_up == nid => {}
        other => found.push(format!("lookup of {shown} returns {other:?}, not {nid}")),
    }
    let missing = [name, b"\x01"].concat();
    match engine.lookup(&engine.waiting(), directory, &missing) {
        Ok(None) => {}
        other => found.push(format!("lookup of {shown} plus a byte returns {other:?}")),
    }
}

fn metadata(inode: &Inode, entry: &Expected) -> Vec<String> {
    let mut found = Vec::new();
    let mut same = |what: &str, is: String, should: String| {
        if is != should {
            found.push(format!("{what} is {is}, not {should}"));
        }
    };
    let letter = match inode.file_type() {
        FileType::Regular => "f",
        FileType::Directory => "d",
        FileType::Symlink => "l",
        FileType::CharDevice => "c",
        FileType::BlockDevice => "b",
        FileType::Fifo => "p",
        FileType::Socket => "s",
    };
    same("type", letter.into(), entry.kind.clone());
    same(
        "mode",
        format!("{:o}", inode.mode & 0o7777),
        format!("{:o}", entry.mode()),
    );
    same("uid", inode.uid.to_string(), entry.uid.to_string());
    same("gid", inode.gid.to_string(), entry.gid.to_string());
    same("nlink", inode.nlink.to_string(), entry.nlink.to_string());
    same(
        "mtime",
        format!("{:?}", (inode.mtime, inode.mtime_nsec)),
        format!("{:?}", entry.mtime),
    );
    if let Some(size) = entry.size {
        same("size", inode.size.to_string(), size.to_string());
    }
    if let Some(rdev) = entry.rdev {
        same(
            "rdev",
            format!("{:?}", (inode.rdev.major, inode.rdev.minor)),
            format!("{rdev:?}"),
        );
    }
    found
}

fn attributes(engine: &Engine, inode: &Inode, entry: &Expected) -> Vec<String> {
    let expected = entry.xattrs();
    let all: BTreeMap<_, _> = match engine.xattrs(&engine.waiting(), inode) {
        Ok(all) => all
            .into_iter()
            .map(|xattr| (xattr.name, xattr.value))
            .collect(),
        Err(error) => return vec![error.to_string()],
    };
    let mut found = Vec::new();
    if all != expected {
        found.push(format!("xattrs are {all:?}, not {expected:?}"));
    }
    for (name, value) in &expected {
        match engine.xattr(&engine.waiting(), inode, name) {
            Ok(Some(got)) if got == *value => {}
            other => found.push(format!(
                "xattr {} is {other:?}",
                String::from_utf8_lossy(name)
            )),
        }
    }
    match engine.xattr(&engine.waiting(), inode, b"user.there.is.no.such.name") {
        Ok(None) => {}
        other => found.push(format!("an xattr that is not there is {other:?}")),
    }
    found
}

fn content(engine: &Engine, inode: &Arc<Inode>, entry: &Expected) -> Vec<String> {
    if let Some(target) = entry.target() {
        return match engine.read_link(&engine.waiting(), inode) {
            Ok(got) if got == target => Vec::new(),
            other => vec![format!("symlink returns {other:?}")],
        };
    }
    let result = match (&entry.sha256, &entry.ranges) {
        (_, Some(ranges)) if inode.size > BIG => big_content(engine, inode, ranges),
        (Some(sum), _) => small_content(engine, inode, sum),
        _ => Ok(Vec::new()),
    };
    result.unwrap_or_else(|error| vec![error.to_string()])
}

fn small_content(engine: &Engine, inode: &Inode, sum: &str) -> Result<Vec<String>, Error> {
    let mut whole = vec![0xA5; inode.size as usize];
    let mut offset = 0;
    // Most reads begin and end within extents and are not aligned to anything.
    for step in [1 << 20, 4096, 131_072, 70_001, 1].iter().cycle() {
        let end = whole.len().min(offset + step);
        let request = engine.request(ReadContext::Reader { readahead: false });
        let count = engine.read_at(&request, inode, offset as u64, &mut whole[offset..end])?;
        if count == 0 {
            break;
        }
        offset += count;
    }
    let mut found = Vec::new();
    if hex(&Sha256::digest(&whole)) != *sum {
        found.push("content differs".to_owned());
    }
    found.extend(random_reads(engine, inode, &whole)?);
    Ok(found)
}

/// Reads at random positions and in each context, and compares the bytes with the whole content.
fn random_reads(engine: &Engine, inode: &Inode, whole: &[u8]) -> Result<Vec<String>, Error> {
    let mut random = inode.nid ^ 0x9E37_79B9_7F4A_7C15;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below.max(1)
    };
    let mut buffer = vec![0; 200_000];
    for round in 0..12 {
        let offset = next(inode.size + 10);
        let length = next([5, 4096, 20_000, 200_000][round % 4]) as usize + 1;
        let request = engine.request(CONTEXTS[round % CONTEXTS.len()]);
        let count = engine.read_at(&request, inode, offset, &mut buffer[..length])?;
        let start = (offset as usize).min(whole.len());
        let expected = &whole[start..whole.len().min(start + length)];
        if buffer[..count] != *expected {
            return Ok(vec![format!("{length} bytes at {offset} differ")]);
        }
    }
    Ok(Vec::new())
}

fn big_content(
    engine: &Engine,
    inode: &Inode,
    ranges: &[(u64, u64, String)],
) -> Result<Vec<String>, Error> {
    let mut found = Vec::new();
    let mut end_of_last = 0;
    for (offset, length, sum) in ranges {
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        let mut done = 0;
        while done < *length {
            let wanted = (length - done).min(buffer.len() as u64) as usize;
            let out = &mut buffer[..wanted];
            engine.read_at(&engine.waiting(), inode, offset + done, out)?;
            hash.update(out);
            done += wanted as u64;
        }
        if hex(&hash.finalize()) != *sum {
            found.push(format!("range of {length} bytes at {offset} differs"));
        }
        found.extend(zeros(engine, inode, end_of_last, *offset)?);
        end_of_last = offset + length;
    }
    found.extend(zeros(engine, inode, end_of_last, inode.size)?);
    Ok(found)
}

/// Reads samples between two ranges, which must be zeros.
fn zeros(engine: &Engine, inode: &Inode, start: u64, end: u64) -> Result<Vec<String>, Error> {
    let mut buffer = [1; 4096];
    for sample in 0..5 {
        let room = end.saturating_sub(start).min(4096);
        let offset = start + (end - start - room) / 4 * sample;
        let out = &mut buffer[..room as usize];
        engine.read_at(&engine.waiting(), inode, offset.min(end - room), out)?;
        if out.iter().any(|&byte| byte != 0) {
            return Ok(vec![format!("no zeros at {offset}")]);
        }
    }
    Ok(Vec::new())
}
