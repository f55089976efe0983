//! Archives for the tests, and rewritten archives as one line per entry.

use std::fs::File;

use tar_core::builder::EntryBuilder;
use tar_core::parse::{Limits as HeaderLimits, ParseEvent, Parser};
use tar_core::{EntryType, PaxExtensions};
use tar_layer::{Error, Limits, rewrite};

pub const LIMITS: Limits = Limits {
    content: 1 << 30,
    names: 64 << 20,
};

/// An archive that is being written.
#[derive(Default)]
pub struct Archive(pub Vec<u8>);

/// An entry of a type with mode 0644 and no owner.
pub fn entry(path: &str, kind: EntryType) -> EntryBuilder {
    let mut builder = EntryBuilder::new_ustar();
    builder.path(path).entry_type(kind);
    builder.mode(0o644).unwrap().uid(0).unwrap().gid(0).unwrap();
    builder.mtime(1).unwrap().size(0).unwrap();
    builder
}

impl Archive {
    pub fn put(mut self, mut entry: EntryBuilder, content: &[u8]) -> Archive {
        self.0.extend(entry.finish_bytes());
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub fn file(self, path: &str, content: &str) -> Archive {
        let mut file = entry(path, EntryType::Regular);
        file.size(content.len() as u64).unwrap();
        self.put(file, content.as_bytes())
    }

    pub fn directory(self, path: &str, mode: u32) -> Archive {
        let mut directory = entry(path, EntryType::Directory);
        directory.mode(mode).unwrap();
        self.put(directory, b"")
    }

    pub fn link(self, path: &str, kind: EntryType, target: &str) -> Archive {
        let mut link = entry(path, kind);
        link.link_name(target);
        self.put(link, b"")
    }

    pub fn rewritten(&self) -> Result<Vec<u8>, Error> {
        self.rewritten_within(LIMITS)
    }

    pub fn rewritten_within(&self, limits: Limits) -> Result<Vec<u8>, Error> {
        let contents = tempfile::tempfile().expect("a file");
        let archive = [&self.0[..], &[0; 1024]].concat();
        run(&archive, &contents, limits)
    }

    /// One line for each entry of the rewritten archive.
    pub fn lines(&self) -> Vec<String> {
        list(&self.rewritten().expect("a good archive"))
    }

    pub fn refused(&self) -> String {
        let line = self.rewritten().unwrap_err().to_string();
        assert_eq!(line.lines().count(), 1, "{line}");
        line
    }
}

pub fn run(archive: &[u8], contents: &File, limits: Limits) -> Result<Vec<u8>, Error> {
    let mut out = Vec::new();
    rewrite(archive, contents, &mut out, limits)?;
    Ok(out)
}

/// Type, mode, owner, time and path; then target, device or content, and extended attributes.
pub fn list(archive: &[u8]) -> Vec<String> {
    let (mut lines, mut rest) = (Vec::new(), archive);
    let mut parser = Parser::new(HeaderLimits::default());
    loop {
        match parser.parse(rest).expect("a good archive") {
            ParseEvent::Entry { consumed, entry } => {
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                let kind = char::from(entry.entry_type.to_byte());
                let time = entry
                    .pax
                    .and_then(|pax| PaxExtensions::new(pax).get("mtime"));
                let time = time.map_or_else(|| entry.mtime.to_string(), str::to_owned);
                let mut line = format!(
                    "{kind} {:o} {}:{} @{time} {}",
                    entry.mode,
                    entry.uid,
                    entry.gid,
                    text(&entry.path)
                );
                if let Some(target) = &entry.link_target
                    && !target.is_empty()
                {
                    line += &format!(" -> {}", text(target));
                }
                if matches!(kind, '3' | '4') {
                    let [major, minor] = [entry.dev_major, entry.dev_minor].map(Option::unwrap);
                    line += &format!(" {major}:{minor}");
                }
                let size = entry.size as usize;
                let content = &rest[consumed..consumed + size];
                if size > 0 {
                    line += &format!(" {:?}", text(content));
                }
                for (name, value) in &entry.xattrs {
                    line += &format!(" {}={}", text(name), value.escape_ascii());
                }
                lines.push(line);
                rest = &rest[consumed + size.next_multiple_of(512)..];
            }
            ParseEvent::End { .. } => return lines,
            other => panic!("{other:?}"),
        }
    }
}
