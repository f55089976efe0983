//! The output of `reader.c`, compared with a manifest.

use std::collections::BTreeMap;

use crate::common::manifest::{Expected, hex, unhex};

/// An inode as the C program prints it.
struct Printed {
    nid: String,
    fields: Vec<String>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    content: String,
}

/// A file whose content the C program reads only with `--range`.
pub struct Big {
    pub path: Vec<u8>,
    pub ranges: Vec<(u64, u64, String)>,
}

/// The output for one image.
#[derive(Default)]
pub struct Tree {
    inodes: BTreeMap<Vec<u8>, Printed>,
    /// Path, errno and text of each error.
    pub errors: Vec<(Vec<u8>, i32, String)>,
}

/// All images of an output, in order.
pub fn trees(output: &str) -> Vec<Tree> {
    let mut trees: Vec<Tree> = Vec::new();
    for line in output.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        if fields[0] == "image" {
            trees.push(Tree::default());
            continue;
        }
        trees.last_mut().expect("an image").add(line);
    }
    trees
}

fn bytes(field: &str) -> Vec<u8> {
    unhex(field.strip_prefix('x').expect("digits behind an x"))
}

impl Tree {
    fn add(&mut self, line: &str) {
        if let Some(error) = line.strip_prefix("error\t") {
            let error: Vec<&str> = error.splitn(3, '\t').collect();
            let errno = error[1].parse().expect("a number");
            let path = bytes(error[0]);
            self.errors.push((path, errno, error[2].to_owned()));
            return;
        }
        let fields: Vec<&str> = line.split('\t').collect();
        // An error ends the line of an inode, which then counts as missing.
        if (fields[0], fields.len()) != ("inode", 14) {
            return;
        }
        let pairs = fields[12].split(',').filter(|pair| !pair.is_empty());
        let printed = Printed {
            nid: fields[2].to_owned(),
            fields: fields[3..12].iter().map(|f| (*f).to_owned()).collect(),
            xattrs: pairs
                .map(|pair| pair.split_once('=').expect("name=value"))
                .map(|(name, value)| (bytes(name), bytes(value)))
                .collect(),
            content: fields[13].to_owned(),
        };
        self.inodes.insert(bytes(fields[1]), printed);
    }

    /// All differences from a manifest, except below the paths in `skip`. Files over the C
    /// program's limit are added to `big`.
    pub fn differences(
        mut self,
        expected: &[Expected],
        skip: &[&str],
        big: &mut Vec<Big>,
    ) -> Vec<String> {
        let skipped = |path: &[u8]| {
            skip.iter().any(|skip| {
                let rest = path.strip_prefix(skip.as_bytes());
                skip.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
            })
        };
        let mut found = Vec::new();
        let mut groups = BTreeMap::new();
        for entry in expected.iter().filter(|entry| !skipped(&entry.path())) {
            let path = entry.path();
            let shown = String::from_utf8_lossy(&path).into_owned();
            let Some(printed) = self.inodes.remove(&path) else {
                found.push(format!("{shown}: missing"));
                continue;
            };
            let group = entry.group.map(|group| {
                let nid = groups.entry(group).or_insert_with(|| printed.nid.clone());
                *nid == printed.nid
            });
            if group == Some(false) {
                found.push(format!("{shown}: not the same inode as its hard links"));
            }
            let differ = compare(&printed, entry, big);
            found.extend(differ.iter().map(|what| format!("{shown}: {what}")));
        }
        let others = self.inodes.keys().filter(|path| !skipped(path));
        found.extend(others.map(|path| format!("{}: too many", String::from_utf8_lossy(path))));
        let errors = self.errors.iter().filter(|(path, ..)| !skipped(path));
        found.extend(errors.map(|(_, errno, text)| format!("error {errno}: {text}")));
        found
    }
}

fn compare(printed: &Printed, entry: &Expected, big: &mut Vec<Big>) -> Vec<String> {
    let mut found = Vec::new();
    let mut same = |what: &str, is: &str, should: String| {
        if is != should {
            found.push(format!("{what} is {is}, not {should}"));
        }
    };
    let is = &printed.fields;
    let kind = match entry.kind.as_str() {
        "f" => 0o100_000,
        "d" => 0o040_000,
        "l" => 0o120_000,
        "c" => 0o020_000,
        "b" => 0o060_000,
        "p" => 0o010_000,
        _ => 0o140_000,
    };
    same(
        "mode",
        &is[0],
        format!("{:o}", kind | u32::from(entry.mode())),
    );
    same("uid", &is[1], entry.uid.to_string());
    same("gid", &is[2], entry.gid.to_string());
    same("mtime", &is[3], entry.mtime.0.to_string());
    same("nanoseconds", &is[4], entry.mtime.1.to_string());
    same("nlink", &is[5], entry.nlink.to_string());
    if let Some(size) = entry.size {
        same("size", &is[6], size.to_string());
    }
    if let Some((major, minor)) = entry.rdev {
        same("major", &is[7], major.to_string());
        same("minor", &is[8], minor.to_string());
    }
    if let Some(target) = entry.target() {
        same("target", &printed.content, format!("x{}", hex(&target)));
    } else if let Some(sum) = entry.sha256.clone().filter(|_| printed.content != "-") {
        same("content", &printed.content, sum);
    } else if entry.kind == "f" {
        let ranges = entry.ranges.clone().expect("sum or ranges");
        let path = entry.path();
        big.push(Big { path, ranges });
    }
    if printed.xattrs != entry.xattrs() {
        found.push("xattrs differ".to_owned());
    }
    found
}
