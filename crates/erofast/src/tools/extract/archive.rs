//! The writing end of a tar stream.

use std::collections::HashSet;
use std::io::{self, Write};
use std::sync::mpsc::Receiver;

use erofs_engine::Error;
use erofs_engine::erofs_format::FileType;

use super::journal::Journal;
use super::tar;

/// Maximum number of omitted members that are remembered. A link to any other omitted member
/// dangles.
const MISSING: usize = 10_000;

/// One item of the stream.
pub enum Item {
    /// The start of a member.
    Member(Member),
    /// A member that is left out.
    Missing(Vec<u8>),
    /// Another name of a member.
    Link {
        path: Vec<u8>,
        first: Vec<u8>,
        header: Vec<u8>,
    },
    /// Bytes of the member, once they are ready.
    Data(Receiver<Result<Vec<u8>, Error>>),
    /// A run of this many zero bytes in the member.
    Zeros(u64),
    /// The rest of the member is missing.
    Fault(String),
}

/// A member that is not a hard link.
pub struct Member {
    pub path: Vec<u8>,
    pub file_type: FileType,
    /// The header, until it is written with the first part of the content. If that part cannot be
    /// read, the file is left out.
    pub header: Option<Vec<u8>>,
    /// Bytes of content that follow the header.
    pub size: u64,
    /// Bytes of content that have not been written yet.
    pub left: u64,
    /// Whether a part of the content cannot be read.
    pub failed: bool,
}

/// The writing end of a stream.
pub struct Archive<'a, W> {
    out: W,
    journal: &'a Journal,
    /// The member that is being written.
    current: Option<Member>,
    /// Paths of members that were left out; links to them are left out, too.
    missing: HashSet<Vec<u8>>,
}

impl<'a, W: Write> Archive<'a, W> {
    /// Creates an empty archive.
    pub fn new(out: W, journal: &'a Journal) -> Self {
        Self {
            out,
            journal,
            current: None,
            missing: HashSet::new(),
        }
    }

    /// Writes all items in order.
    pub fn write_all(mut self, items: Receiver<Item>) -> anyhow::Result<()> {
        for item in items {
            match item {
                Item::Member(member) => {
                    self.end_member()?;
                    self.current = Some(member);
                }
                Item::Missing(path) => self.left_out(path),
                Item::Link {
                    path,
                    first,
                    header,
                } => {
                    self.end_member()?;
                    self.link(&path, &first, &header)?;
                }
                Item::Data(bytes) => match bytes.recv()? {
                    Ok(bytes) => self.data(&bytes)?,
                    Err(error) => self.fault(&error.to_string()),
                },
                Item::Zeros(count) => self.zeros(count)?,
                Item::Fault(error) => self.fault(&error),
            }
        }
        self.end_member()?;
        self.out.write_all(&[0; 2 * tar::BLOCK])?;
        self.out.flush()?;
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if current.failed {
            return Ok(());
        }
        if let Some(header) = current.header.take() {
            self.out.write_all(&header)?;
        }
        self.out.write_all(bytes)?;
        current.left = current.left.saturating_sub(bytes.len() as u64);
        self.journal.wrote(bytes.len() as u64);
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> io::Result<()> {
        let zeros = [0; 64 << 10];
        while count > 0 {
            let now = count.min(zeros.len() as u64);
            self.data(&zeros[..now as usize])?;
            count -= now;
        }
        Ok(())
    }

    fn fault(&mut self, error: &str) {
        let Some(current) = &mut self.current else {
            return;
        };
        if !current.failed {
            let error = match current.header {
                Some(_) => error.to_owned(),
                None => format!("{error}; the rest was filled with zeros"),
            };
            self.journal.failure(&current.path, error);
            current.failed = true;
        }
    }

    /// Completes a member: pads a truncated one with zeros to its size, and every member to a whole
    /// block.
    fn end_member(&mut self) -> io::Result<()> {
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        match current.header.take() {
            Some(_) if current.failed => {
                self.left_out(current.path);
                return Ok(());
            }
            Some(header) => self.out.write_all(&header)?,
            None => {}
        }
        let padding = current.size.next_multiple_of(tar::BLOCK as u64) - current.size;
        io::copy(
            &mut io::Read::take(io::repeat(0), current.left + padding),
            &mut self.out,
        )?;
        if !current.failed {
            self.journal.done(current.file_type);
        }
        Ok(())
    }

    fn left_out(&mut self, path: Vec<u8>) {
        if self.missing.len() < MISSING {
            self.missing.insert(path);
        }
    }

    fn link(&mut self, path: &[u8], first: &[u8], header: &[u8]) -> io::Result<()> {
        if self.missing.contains(first) {
            let first = crate::tools::text::name(first);
            let error = format!("hard link to {first}, which was left out");
            self.journal.failure(path, error);
            return Ok(());
        }
        self.out.write_all(header)?;
        self.journal.linked();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_a_member_that_is_left_out_is_left_out_too() {
        let journal = Journal::new(|_| (), || 0);
        let (sender, items) = std::sync::mpsc::sync_channel(2);
        let link = Item::Link {
            path: b"b".to_vec(),
            first: b"a".to_vec(),
            header: vec![1; tar::BLOCK],
        };
        for item in [Item::Missing(b"a".to_vec()), link] {
            sender.send(item).expect("room for two");
        }
        drop(sender);
        let mut stream = Vec::new();
        let archive = Archive::new(&mut stream, &journal);
        archive.write_all(items).expect("a stream");
        assert_eq!(stream, [0; 2 * tar::BLOCK]);
        assert_eq!(journal.finish().failures.len(), 1);
    }
}
