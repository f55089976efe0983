use std::sync::Mutex;

use zerocopy::FromBytes;

use super::*;
use crate::node::Found;
use crate::reply::Entry;
use crate::wire::{Attr, FOREVER, InHeader, StatfsOut};

/// One directory (1) with one file "file" (2) that holds "content".
#[derive(Default)]
struct Small {
    forgotten: Mutex<Vec<(u64, u64)>>,
}

impl Filesystem for Small {
    fn lookup(&self, _: Caller, _: u64, name: &[u8]) -> Result<Option<Found>, Errno> {
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
    fn attributes(&self, _: Caller, node: u64) -> Result<Attr, Errno> {
        Ok(Attr {
            ino: node,
            ..Attr::default()
        })
    }
    fn read_link(&self, _: Caller, node: u64) -> Result<Vec<u8>, Errno> {
        Ok(vec![b'x'; node as usize])
    }
    fn read(&self, _: Caller, _: u64, offset: u64, reply: &mut ReadReply<'_>) -> Result<(), Errno> {
        let rest = b"content".get(offset as usize..).unwrap_or(b"");
        let length = rest.len().min(reply.room());
        reply.spare()[..length].copy_from_slice(&rest[..length]);
        reply.advance(length);
        Ok(())
    }
    fn read_directory(
        &self,
        _: Caller,
        _: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Errno> {
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
    fn xattr(&self, _: Caller, _: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        Ok((name == b"user.a").then(|| b"value".to_vec()))
    }
    fn xattr_names(&self, _: Caller, _: u64) -> Result<Vec<Vec<u8>>, Errno> {
        Ok(vec![b"user.a".to_vec(), b"user.b".to_vec()])
    }
    fn statfs(&self) -> Result<StatfsOut, Errno> {
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
    ) -> Result<Vec<u8>, Errno> {
        assert_eq!(command, 7);
        Ok(format!("{node} {room} {input:?}").into_bytes())
    }
    fn forget(&self, node: u64, count: u64) {
        self.forgotten.lock().unwrap().push((node, count));
    }
}

/// The answer and the reply's bytes.
fn ask(
    filesystem: &Small,
    opcode: Opcode,
    node: u64,
    fixed: &[u8],
    rest: &[u8],
) -> (Answer, Vec<u8>) {
    let header = InHeader {
        nodeid: node,
        unique: 1,
        ..InHeader::default()
    };
    let request = Request {
        header,
        opcode: Some(opcode),
        fixed,
        rest,
    };
    let mut buffer = vec![0; 8192];
    let mut reply = Reply::new(&mut buffer);
    let answer = answer(filesystem, &request, &mut reply);
    let length = reply.length();
    (answer, buffer[..length].to_vec())
}

fn ask_of_small(opcode: Opcode, node: u64, fixed: &[u8], rest: &[u8]) -> (Answer, Vec<u8>) {
    ask(&Small::default(), opcode, node, fixed, rest)
}

fn error_of(answer: (Answer, Vec<u8>)) -> Errno {
    match answer.0 {
        Answer::Error(errno) => errno,
        other => panic!("{other:?} is no error"),
    }
}

#[test]
fn a_name_is_found_for_good() {
    let (_, bytes) = ask_of_small(Opcode::Lookup, 1, b"", b"file\0");
    let entry = EntryOut::read_from_bytes(&bytes).unwrap();
    assert_eq!(
        (entry.nodeid, entry.entry_valid, entry.attr_valid),
        (2, FOREVER, FOREVER)
    );
}

#[test]
fn a_missing_name_is_an_answer_that_lasts_not_an_error() {
    let (answer, bytes) = ask_of_small(Opcode::Lookup, 1, b"", b"nothing\0");
    let entry = EntryOut::read_from_bytes(&bytes).unwrap();
    assert_eq!(
        (answer, entry.nodeid, entry.entry_valid),
        (Answer::Reply, 0, FOREVER)
    );
}

#[test]
fn a_panic_is_an_input_output_error() {
    assert_eq!(
        error_of(ask_of_small(Opcode::Lookup, 1, b"", b"panic\0")),
        Errno::IO
    );
}

#[test]
fn a_read_gets_what_is_there_and_no_more_than_it_asked_for() {
    let read = ReadIn {
        offset: 3,
        size: 2,
        ..ReadIn::default()
    };
    assert_eq!(ask_of_small(Opcode::Read, 2, read.as_bytes(), b"").1, b"te");
    let read = ReadIn {
        offset: 3,
        size: 4096,
        ..ReadIn::default()
    };
    assert_eq!(
        ask_of_small(Opcode::Read, 2, read.as_bytes(), b"").1,
        b"tent"
    );
}

#[test]
fn a_read_beyond_the_buffer_or_before_zero_is_invalid() {
    for read in [
        ReadIn {
            size: 8193,
            ..ReadIn::default()
        },
        ReadIn {
            size: 1,
            offset: 1 << 63,
            ..ReadIn::default()
        },
    ] {
        assert_eq!(
            error_of(ask_of_small(Opcode::Read, 2, read.as_bytes(), b"")),
            Errno::INVAL
        );
    }
}

#[test]
fn a_target_that_the_kernel_cannot_take_is_refused() {
    assert_eq!(ask_of_small(Opcode::Readlink, 4095, b"", b"").1.len(), 4095);
    assert_eq!(
        error_of(ask_of_small(Opcode::Readlink, 4096, b"", b"")),
        Errno::NAMETOOLONG
    );
}

#[test]
fn extended_attributes_report_their_length_first() {
    let length = XattrIn {
        size: 0,
        padding: 0,
    };
    let (_, bytes) = ask_of_small(Opcode::Getxattr, 2, length.as_bytes(), b"user.a\0");
    assert_eq!(SizeOut::read_from_bytes(&bytes).unwrap().size, 5);
    let short = XattrIn {
        size: 4,
        padding: 0,
    };
    let answer = ask_of_small(Opcode::Getxattr, 2, short.as_bytes(), b"user.a\0");
    assert_eq!(error_of(answer), Errno::RANGE);
    let enough = XattrIn {
        size: 100,
        padding: 0,
    };
    assert_eq!(
        ask_of_small(Opcode::Getxattr, 2, enough.as_bytes(), b"user.a\0").1,
        b"value"
    );
    let answer = ask_of_small(Opcode::Getxattr, 2, enough.as_bytes(), b"user.none\0");
    assert_eq!(error_of(answer), Errno::NODATA);
    let (_, list) = ask_of_small(Opcode::Listxattr, 2, enough.as_bytes(), b"");
    assert_eq!(list, b"user.a\0user.b\0");
}

#[test]
fn what_would_write_is_refused_and_what_is_not_needed_is_switched_off() {
    assert_eq!(
        error_of(ask_of_small(Opcode::Mkdir, 1, &[0; 8], b"new\0")),
        Errno::ROFS
    );
    assert_eq!(
        error_of(ask_of_small(Opcode::Setxattr, 1, &[0; 8], b"")),
        Errno::ROFS
    );
    assert_eq!(
        error_of(ask_of_small(Opcode::Open, 2, &[0; 8], b"")),
        Errno::NOSYS
    );
    assert_eq!(
        error_of(ask_of_small(Opcode::Opendir, 1, &[0; 8], b"")),
        Errno::NOSYS
    );
    assert_eq!(
        error_of(ask_of_small(Opcode::Statx, 1, &[0; 24], b"")),
        Errno::NOSYS
    );
    assert_eq!(
        error_of(ask_of_small(Opcode::Interrupt, 0, &[0; 8], b"")),
        Errno::NOSYS
    );
    assert_eq!(
        error_of(ask_of_small(Opcode::Lseek, 2, &[0; 24], b"")),
        Errno::INVAL
    );
    assert_eq!(
        error_of(ask_of_small(Opcode::Ioctl, 2, &[0; 32], b"")),
        Errno::NOTTY
    );
    assert_eq!(
        ask_of_small(Opcode::Release, 2, &[0; 24], b""),
        (Answer::Reply, vec![])
    );
    assert_eq!(
        ask_of_small(Opcode::Destroy, 0, b"", b""),
        (Answer::Reply, vec![])
    );
}

#[test]
fn forgets_come_one_by_one_or_in_batches_and_a_false_count_is_cut() {
    let small = Small::default();
    ask(
        &small,
        Opcode::Forget,
        7,
        ForgetIn { nlookup: 3 }.as_bytes(),
        b"",
    );
    let batch = BatchForgetIn {
        count: 1000,
        dummy: 0,
    };
    let nodes = [
        ForgetOne {
            nodeid: 8,
            nlookup: 1,
        },
        ForgetOne {
            nodeid: 9,
            nlookup: 2,
        },
    ];
    let answer = ask(
        &small,
        Opcode::BatchForget,
        0,
        batch.as_bytes(),
        nodes.as_bytes(),
    );
    assert_eq!(answer.0, Answer::Silent);
    assert_eq!(*small.forgotten.lock().unwrap(), [(7, 3), (8, 1), (9, 2)]);
}

#[test]
fn an_unknown_kind_is_not_supported() {
    let header = InHeader {
        unique: 1,
        ..InHeader::default()
    };
    let request = Request {
        header,
        opcode: None,
        fixed: b"",
        rest: b"",
    };
    let mut buffer = [0; 64];
    let answer = answer(&Small::default(), &request, &mut Reply::new(&mut buffer));
    assert_eq!(answer, Answer::Error(Errno::NOSYS));
}

#[test]
fn an_ioctl_of_a_directory_reaches_the_filesystem_and_isatty_does_not() {
    let ioctl = |flags, out_size| {
        let fixed = IoctlIn {
            flags,
            cmd: 7,
            out_size,
            ..IoctlIn::default()
        };
        ask_of_small(Opcode::Ioctl, 1, fixed.as_bytes(), b"ab")
    };
    let (answer, bytes) = ioctl(IoctlIn::DIRECTORY, 32);
    assert_eq!(answer, Answer::Reply);
    assert_eq!(&bytes[size_of::<IoctlOut>()..], b"1 32 [97, 98]");
    assert_eq!(error_of(ioctl(0, 32)), Errno::NOTTY);
    assert_eq!(error_of(ioctl(IoctlIn::DIRECTORY, 3)), Errno::OVERFLOW);
}
