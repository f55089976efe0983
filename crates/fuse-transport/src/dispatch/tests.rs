use std::sync::Mutex;

use rustix::fs::OFlags;
use zerocopy::FromBytes;

use super::*;
use crate::reply::{Entry, Found};
use crate::wire::{Attr, FOREVER, InHeader, StatfsOut};

/// One directory (1) with one file "file" (2) that contains "content".
#[derive(Default)]
struct Small {
    seen: Mutex<Vec<Option<Errno>>>,
}

impl Filesystem for Small {
    fn lookup(&self, _: Caller, _: u64, name: &[u8]) -> Result<Option<Found>, Failure> {
        let attr = Attr {
            ino: 2,
            ..Attr::default()
        };
        match name {
            b"panic" => panic!("on purpose"),
            b"file" => Ok(Some(Found { node: 2, attr })),
            _ => Ok(None),
        }
    }
    fn attributes(&self, _: Caller, node: u64) -> Result<Attr, Failure> {
        Ok(Attr {
            ino: node,
            ..Attr::default()
        })
    }
    fn read_link(&self, _: Caller, node: u64) -> Result<Vec<u8>, Failure> {
        Ok(vec![b'x'; node as usize])
    }
    fn read(
        &self,
        _: Caller,
        _: u64,
        offset: u64,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Failure> {
        let rest = b"content".get(offset as usize..).unwrap_or(b"");
        let length = rest.len().min(reply.room());
        reply.spare()[..length].copy_from_slice(&rest[..length]);
        reply.advance(length);
        Ok(())
    }
    fn declines(&self, _: Caller, _: u64, offset: u64, size: u32) -> bool {
        offset == 0 && size == 8192
    }
    fn read_directory(
        &self,
        _: Caller,
        _: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Failure> {
        if position == 0 {
            reply.add(
                &Entry {
                    name: b"file",
                    ino: 2,
                    kind: 8,
                    next: 1,
                },
                None,
            );
        }
        Ok(())
    }
    fn xattr(&self, _: Caller, _: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok((name == b"user.a").then(|| b"value".to_vec()))
    }
    fn xattr_names(&self, _: Caller, _: u64) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(vec![b"user.a".to_vec(), b"user.b".to_vec()])
    }
    fn statfs(&self) -> Result<StatfsOut, Failure> {
        Ok(StatfsOut {
            namelen: 255,
            ..StatfsOut::default()
        })
    }
    fn directory_ioctl(
        &self,
        _: Caller,
        node: u64,
        command: u32,
        input: &[u8],
        room: usize,
    ) -> Result<Vec<u8>, Failure> {
        assert_eq!(command, 7);
        Ok(format!("{node} {room} {input:?}").into_bytes())
    }
    fn watches(&self) -> bool {
        true
    }
    fn seen(&self, seen: &Seen<'_>) {
        self.seen.lock().unwrap().push(seen.error);
    }
}

/// Sends a request, and returns the reply or the error.
fn ask(
    filesystem: &Small,
    opcode: impl Into<Option<Opcode>>,
    node: u64,
    fixed: &[u8],
    rest: &[u8],
) -> Result<Vec<u8>, Errno> {
    let header = InHeader {
        nodeid: node,
        unique: 1,
        ..InHeader::default()
    };
    let request = Request {
        header,
        opcode: opcode.into(),
        fixed,
        rest,
    };
    let mut buffer = vec![0; 8192];
    let mut reply = Reply::new(&mut buffer);
    let answer = answer(
        filesystem,
        &request,
        &mut reply,
        Caller::new(&header, 0, false),
    );
    let answer = answer.ok().expect("nothing is deferred here");
    let length = reply.length();
    match answer {
        Answer::Error(errno) => Err(errno),
        _ => Ok(buffer[..length].to_vec()),
    }
}

fn read(offset: u64, size: u32) -> Vec<u8> {
    let read = ReadIn {
        offset,
        size,
        ..ReadIn::default()
    };
    read.as_bytes().to_vec()
}

fn xattr(size: u32) -> Vec<u8> {
    XattrIn { size, padding: 0 }.as_bytes().to_vec()
}

fn ioctl(flags: u32, out_size: u32) -> Vec<u8> {
    let ioctl = IoctlIn {
        flags,
        cmd: 7,
        out_size,
        ..IoctlIn::default()
    };
    ioctl.as_bytes().to_vec()
}

#[test]
fn an_absent_name_is_seen_as_an_error_although_its_reply_is_none() {
    let small = Small::default();
    for name in [&b"file\0"[..], b"none\0"] {
        assert!(ask(&small, Opcode::Lookup, 1, b"", name).is_ok());
    }
    assert_eq!(*small.seen.lock().unwrap(), [None, Some(Errno::NOENT)]);
}

#[test]
fn each_kind_has_its_answer() {
    use Opcode::*;
    let names = b"user.a\0user.b\0";
    for (opcode, node, fixed, rest, expected) in [
        (Lookup, 1, vec![], &b"panic\0"[..], Err(Errno::IO)),
        (Read, 2, read(3, 2), b"", Ok(&b"te"[..])),
        (Read, 2, read(3, 4096), b"", Ok(b"tent")),
        (Read, 2, read(0, 8193), b"", Err(Errno::INVAL)),
        (Read, 2, read(1 << 63, 1), b"", Err(Errno::INVAL)),
        (Readlink, 4095, vec![], b"", Ok(&[b'x'; 4095])),
        (Readlink, 4096, vec![], b"", Err(Errno::NAMETOOLONG)),
        (
            Getxattr,
            2,
            xattr(0),
            b"user.a\0",
            Ok(b"\x05\0\0\0\0\0\0\0"),
        ),
        (Getxattr, 2, xattr(4), b"user.a\0", Err(Errno::RANGE)),
        (Getxattr, 2, xattr(100), b"user.a\0", Ok(b"value")),
        (Getxattr, 2, xattr(100), b"user.none\0", Err(Errno::NODATA)),
        (Listxattr, 2, xattr(100), b"", Ok(names)),
        // Requests that would write are refused, and unneeded features are disabled.
        (Mkdir, 1, vec![0; 8], b"new\0", Err(Errno::ROFS)),
        (Setxattr, 1, vec![0; 8], b"", Err(Errno::ROFS)),
        (Open, 2, vec![0; 8], b"", Err(Errno::NOSYS)),
        (Opendir, 1, vec![0; 8], b"", Err(Errno::NOSYS)),
        (Statx, 1, vec![0; 24], b"", Err(Errno::NOSYS)),
        (Interrupt, 0, vec![0; 8], b"", Err(Errno::NOSYS)),
        (Lseek, 2, vec![0; 24], b"", Err(Errno::INVAL)),
        (Release, 2, vec![0; 24], b"", Ok(b"")),
        (Destroy, 0, vec![], b"", Ok(b"")),
        // An ioctl on a directory reaches the filesystem; isatty(3) does not.
        (Ioctl, 2, vec![0; 32], b"", Err(Errno::NOTTY)),
        (Ioctl, 1, ioctl(0, 32), b"ab", Err(Errno::NOTTY)),
        (
            Ioctl,
            1,
            ioctl(IoctlIn::DIRECTORY, 3),
            b"ab",
            Err(Errno::OVERFLOW),
        ),
    ] {
        let answer = ask(&Small::default(), opcode, node, &fixed, rest);
        assert_eq!(
            answer.as_deref(),
            expected.as_ref().copied(),
            "{opcode:?} {fixed:?}"
        );
    }
    for opcode in [Forget, BatchForget] {
        assert_eq!(ask(&Small::default(), opcode, 7, b"", b""), Ok(vec![]));
    }
    let unknown = ask(&Small::default(), None, 1, b"", b"");
    assert_eq!(unknown, Err(Errno::NOSYS));
    let directory = ioctl(IoctlIn::DIRECTORY, 32);
    let reply = ask(&Small::default(), Ioctl, 1, &directory, b"ab").unwrap();
    assert_eq!(&reply[size_of::<IoctlOut>()..], b"1 32 [97, 98]");
}

#[test]
fn names_that_are_there_and_those_that_are_not_last() {
    for (name, node) in [(&b"file\0"[..], 2), (b"nothing\0", 0)] {
        let bytes = ask(&Small::default(), Opcode::Lookup, 1, b"", name).unwrap();
        let entry = EntryOut::read_from_bytes(&bytes).unwrap();
        assert_eq!((entry.nodeid, entry.entry_valid), (node, FOREVER));
    }
}

#[test]
fn what_the_page_cache_reads_ahead_may_be_declined_and_direct_reads_may_not() {
    let read = |read_flags, flags| {
        let read = ReadIn {
            size: 8192,
            read_flags,
            flags,
            ..ReadIn::default()
        };
        read.as_bytes().to_vec()
    };
    let small = Small::default();
    let direct = OFlags::DIRECT.bits();
    for (fixed, expected) in [
        (read(0, 0), Err(DECLINED)),
        (read(0, OFlags::NOATIME.bits()), Err(DECLINED)),
        (read(ReadIn::LOCK_OWNER, 0), Ok(b"content".to_vec())),
        (read(0, direct), Ok(b"content".to_vec())),
        (read(ReadIn::LOCK_OWNER, direct), Ok(b"content".to_vec())),
    ] {
        assert_eq!(ask(&small, Opcode::Read, 2, &fixed, b""), expected);
    }
    assert!(!Answer::Error(DECLINED).is_failure());
}
