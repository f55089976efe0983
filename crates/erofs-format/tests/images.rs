//! Checks that this crate reads from every good image what the image's manifest lists, as far as
//! that is possible without a decoder. (Compressed data is only mapped here; the tests of the
//! engine decode it.)

use crate::common::*;
use erofs_format::{FileType, Inode, Reader, dir};
use serde_json::Value;
use sha2::{Digest, Sha256};

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value of `key`, or of `key_hex` if the value is not UTF-8.
fn bytes_of(entry: &Value, key: &str) -> Option<Vec<u8>> {
    match entry[format!("{key}_hex")].as_str() {
        Some(text) => Some(unhex(text)),
        None => entry[key].as_str().map(|text| text.as_bytes().to_vec()),
    }
}

fn type_letter(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "f",
        FileType::Directory => "d",
        FileType::Symlink => "l",
        FileType::CharDevice => "c",
        FileType::BlockDevice => "b",
        FileType::Fifo => "p",
        FileType::Socket => "s",
    }
}

/// Differences between the inode and its entry in the manifest, except for its content.
fn check_metadata(inode: &Inode, entry: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut check = |what: &str, got: String, want: String| {
        if got != want {
            wrong.push(format!("{what} {got}, want {want}"));
        }
    };
    let number = |key: &str| entry[key].to_string();
    check(
        "type",
        type_letter(inode.file_type()).into(),
        entry["type"].as_str().unwrap().into(),
    );
    check(
        "mode",
        format!("{:04o}", inode.mode & 0o7777),
        entry["mode"].as_str().unwrap().into(),
    );
    let (stored, size) = (inode.blocks * 512, inode.size);
    if !inode.is_compressed() && !(size..size + 65_536).contains(&stored) {
        check(
            "stored",
            stored.to_string(),
            format!("{size} or a block more"),
        );
    }
    // tar assumes that a file without storage is a single hole.
    let has_storage = inode.stat_blocks() > 0;
    check("storage", has_storage.to_string(), (size > 0).to_string());
    check("uid", inode.uid.to_string(), number("uid"));
    check("gid", inode.gid.to_string(), number("gid"));
    check("nlink", inode.nlink.to_string(), number("nlink"));
    check(
        "mtime",
        format!("[{},{}]", inode.mtime, inode.mtime_nsec),
        number("mtime"),
    );
    if !entry["size"].is_null() {
        check("size", inode.size.to_string(), number("size"));
    }
    if !entry["rdev"].is_null() {
        check(
            "rdev",
            format!("[{},{}]", inode.rdev.major, inode.rdev.minor),
            number("rdev"),
        );
    }
    wrong
}

fn check_xattrs(image: Reader<'_>, inode: &Inode, entry: &Value) -> Vec<String> {
    let want = entry["xattrs"].as_object().unwrap();
    let got = match image.xattrs(inode) {
        Ok(got) => got,
        Err(error) => return vec![error.to_string()],
    };
    let mut wrong = Vec::new();
    if got.len() != want.len() {
        wrong.push(format!("{} xattrs, want {}", got.len(), want.len()));
    }
    for (name, value) in want {
        let value = value.as_str().unwrap();
        let listed = got.iter().find(|xattr| xattr.name == name.as_bytes());
        if listed.map(|xattr| hex(&xattr.value)).as_deref() != Some(value) {
            wrong.push(format!("xattr {name} listed as {listed:?}, want {value}"));
        }
        let one = image.xattr(inode, name.as_bytes()).unwrap();
        if one.map(|value| hex(&value)).as_deref() != Some(value) {
            wrong.push(format!("xattr {name} looked up differs"));
        }
        if image
            .xattr(inode, format!("{name}-not").as_bytes())
            .unwrap()
            .is_some()
        {
            wrong.push(format!("xattr {name}-not exists"));
        }
    }
    wrong
}

/// Compares the content if it is uncompressed, and counts the files compared.
fn check_content(
    image: Reader<'_>,
    inode: &Inode,
    entry: &Value,
    compared: &mut usize,
) -> Vec<String> {
    if let Some(ranges) = entry["ranges"].as_array() {
        return check_ranges(image, inode, ranges, compared);
    }
    let content = match read_plain(image, inode) {
        Ok(content) => content,
        Err(error) if error == "needs a decoder" => return vec![],
        Err(error) => return vec![error],
    };
    let right = match bytes_of(entry, "target") {
        Some(target) => target == content,
        None => entry["sha256"]
            .as_str()
            .is_none_or(|want| hex(&Sha256::digest(&content)) == want),
    };
    *compared += 1;
    if right {
        vec![]
    } else {
        vec!["content differs".into()]
    }
}

fn check_ranges(
    image: Reader<'_>,
    inode: &Inode,
    ranges: &[Value],
    compared: &mut usize,
) -> Vec<String> {
    let mut wrong = Vec::new();
    for range in ranges {
        let (offset, length) = (range[0].as_u64().unwrap(), range[1].as_u64().unwrap());
        let mut bytes = vec![0; length as usize];
        match read_plain_at(image, inode, offset, &mut bytes) {
            Ok(()) if hex(&Sha256::digest(&bytes)) == range[2].as_str().unwrap() => *compared += 1,
            Ok(()) => wrong.push(format!("{length} bytes at {offset} differ")),
            Err(error) if error == "needs a decoder" => {}
            Err(error) => wrong.push(error),
        }
    }
    wrong
}

fn check_lookups(image: Reader<'_>, inode: &Inode) -> Vec<String> {
    if inode.file_type() != FileType::Directory {
        return vec![];
    }
    let (Ok(content), block_size) = (read_plain(image, inode), image.superblock().block_size)
    else {
        return vec![];
    };
    let (entries, broken) = list(image, inode).unwrap();
    let mut wrong: Vec<String> = broken.into_iter().collect();
    let find = |name: &[u8]| dir::lookup(&content, block_size, name).unwrap();
    for (name, nid) in &entries {
        if find(name).map(|(nid, _)| nid) != Some(*nid) {
            wrong.push(format!("{} is not found", name.escape_ascii()));
        }
        let other = [name, &b"\x01"[..]].concat();
        if find(&other).is_some() && !entries.iter().any(|(name, _)| *name == other) {
            wrong.push(format!("{} is found", other.escape_ascii()));
        }
    }
    let dot = entries.iter().any(|(name, _)| name == b".");
    if dot == inode.dot_omitted {
        wrong.push(format!(
            "'.' is present: {dot}, omitted: {}",
            inode.dot_omitted
        ));
    }
    wrong
}

#[derive(Default, Debug)]
struct Totals {
    images: usize,
    inodes: usize,
    extents: usize,
    contents: usize,
    unlisted: Vec<String>,
}

fn check_image(listed: &Listed, totals: &mut Totals) -> Vec<String> {
    let opened = open(listed);
    let image = opened.reader();
    let walk = walk(image);
    if let Some(Err(error)) = walk.inodes.get(&b""[..])
        && error.contains("is needed to read the metabox")
    {
        totals.unlisted.push(listed.name.clone());
        return vec![];
    }
    let text = std::fs::read_to_string(images().join(format!("{}.jsonl", listed.name))).unwrap();
    let entries: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let mut wrong = Vec::new();
    for (path, error) in &walk.broken {
        match error == "needs a decoder" || error.contains("is needed to read the metabox") {
            true => totals
                .unlisted
                .push(format!("{}:/{}", listed.name, path.escape_ascii())),
            false => wrong.push(format!("/{}: {error}", path.escape_ascii())),
        }
    }
    let mut seen = 0;
    for entry in &entries {
        let path = bytes_of(entry, "path").unwrap();
        let inode = match walk.inodes.get(&path) {
            Some(Ok(inode)) => inode,
            Some(Err(error)) if error.contains("needed to read the metabox") => {
                totals
                    .unlisted
                    .push(format!("{}:/{}", listed.name, path.escape_ascii()));
                continue;
            }
            Some(Err(error)) => {
                wrong.push(format!("/{}: {error}", path.escape_ascii()));
                continue;
            }
            // Below a directory that needs a decoder.
            None if !walk.broken.is_empty() => continue,
            None => {
                wrong.push(format!("/{} is not there", path.escape_ascii()));
                continue;
            }
        };
        seen += 1;
        let mut differences = check_metadata(inode, entry);
        differences.extend(check_xattrs(image, inode, entry));
        if matches!(
            inode.file_type(),
            FileType::Regular | FileType::Directory | FileType::Symlink
        ) {
            match check_tiling(image, inode) {
                Ok(count) => totals.extents += count,
                Err(error) => differences.push(error),
            }
            differences.extend(check_content(image, inode, entry, &mut totals.contents));
        }
        differences.extend(check_lookups(image, inode));
        wrong.extend(
            differences
                .iter()
                .map(|what| format!("/{}: {what}", path.escape_ascii())),
        );
    }
    let metabox_unread = totals
        .unlisted
        .iter()
        .any(|path| path.starts_with(&listed.name));
    if !metabox_unread && walk.inodes.len() != entries.len() {
        wrong.push(format!(
            "{} entries, want {}",
            walk.inodes.len(),
            entries.len()
        ));
    }
    totals.images += 1;
    totals.inodes += seen;
    wrong
}

#[test]
fn every_good_image_is_as_its_manifest_says() {
    let mut totals = Totals::default();
    let mut wrong = Vec::new();
    for listed in listed() {
        let differences = check_image(&listed, &mut totals);
        wrong.extend(
            differences
                .iter()
                .take(5)
                .map(|what| format!("{}: {what}", listed.name)),
        );
    }
    println!("{totals:?}");
    assert!(
        wrong.is_empty(),
        "{} differences:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    // The repository contains only some of the images; the large set may be in a directory beside
    // the checkout.
    let (images, inodes, contents) = if large_set() {
        (80, 10_000, 5_000)
    } else {
        (12, 1_500, 1_000)
    };
    assert!(
        totals.images >= images && totals.inodes > inodes && totals.contents > contents,
        "{totals:?}"
    );
}
