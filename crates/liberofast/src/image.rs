//! The library's calls, without raw pointers.

use std::ffi::OsStr;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use erofs_engine::erofs_format::{Extent, Nid, dir::Dirent};
use erofs_engine::{BorrowedInode, Engine, Error, Opened, ReadContext, errno};

use crate::failure::{ENODATA, ERANGE, Failure};
use crate::options;

/// The flag `EROFAST_NOFOLLOW`.
const NOFOLLOW: u32 = 1;

/// An opened image, `struct erofast` in C.
#[derive(Debug)]
pub struct Image(Arc<Engine>);

impl Image {
    pub fn open(path: &[u8], list: &[u8]) -> Result<Self, Failure> {
        let options = options::parse(list)?;
        let path = Path::new(OsStr::from_bytes(path));
        Ok(Self(Engine::open(path, &options)?))
    }

    pub fn open_fd(number: RawFd, list: &[u8]) -> Result<Self, Failure> {
        let options = options::parse(list)?;
        let path = format!("descriptor {number}");
        let file = sys::inherited::duplicate(number).map_err(|source| {
            let source = Arc::new(source);
            let path = path.clone();
            Error::Open { path, source }
        })?;
        let opened = Opened::from_file(File::from(file), Path::new(&path), &options)?;
        Ok(Self(Engine::start(opened)?))
    }

    pub fn root(&self) -> Nid {
        self.0.root()
    }

    pub fn lookup(&self, path: &[u8], flags: u32) -> Result<Nid, Failure> {
        if flags & !NOFOLLOW != 0 {
            return Err(Failure::argument(format!("unknown flags {flags:#x}")));
        }
        Ok(self.0.resolve(path, flags & NOFOLLOW == 0)?.nid)
    }

    pub fn lookup_at(&self, directory: Nid, name: &[u8]) -> Result<Nid, Failure> {
        let found = self
            .0
            .lookup(&self.0.waiting(), &*self.inode(directory)?, name)?;
        found.ok_or_else(|| {
            let name = String::from_utf8_lossy(name);
            self.nothing(directory, &name, errno::ENOENT)
        })
    }

    pub fn inode(&self, nid: Nid) -> Result<BorrowedInode, Failure> {
        Ok(self.0.borrow_inode(&self.0.waiting(), nid)?)
    }

    pub fn read_at(&self, nid: Nid, buffer: &mut [u8], offset: u64) -> Result<usize, Failure> {
        let request = self.0.request(ReadContext::Reader { readahead: false });
        let inode = self.0.borrow_inode(&request, nid)?;
        Ok(self.0.read_at(&request, &inode, offset, buffer)?)
    }

    /// Calls `each` for every entry, until it returns `Break`. If an entry is broken, the listing
    /// continues and the error is returned at the end.
    pub fn read_dir(
        &self,
        nid: Nid,
        position: u64,
        each: &mut dyn FnMut(Dirent<'_>) -> ControlFlow<()>,
    ) -> Result<(), Failure> {
        let mut broken: Option<Error> = None;
        let directory = self.inode(nid)?;
        self.0
            .read_dir_strict(&directory, position, &mut |entry| match entry {
                Ok(entry) => each(entry),
                Err(error) => {
                    broken.get_or_insert(error);
                    ControlFlow::Continue(())
                }
            })?;
        broken.map_or(Ok(()), |error| Err(error.into()))
    }

    pub fn read_link(&self, nid: Nid) -> Result<Vec<u8>, Failure> {
        Ok(self.0.read_link(&self.0.waiting(), &*self.inode(nid)?)?)
    }

    /// The names of all extended attributes, each followed by a NUL.
    pub fn xattr_names(&self, nid: Nid) -> Result<Vec<u8>, Failure> {
        let all = self.0.xattrs(&self.0.waiting(), &*self.inode(nid)?)?;
        Ok(all
            .into_iter()
            .flat_map(|xattr| xattr.name.into_iter().chain([0]))
            .collect())
    }

    pub fn xattr(&self, nid: Nid, name: &[u8]) -> Result<Vec<u8>, Failure> {
        let value = self.0.xattr(&self.0.waiting(), &*self.inode(nid)?, name)?;
        value.ok_or_else(|| self.nothing(nid, &String::from_utf8_lossy(name), ENODATA))
    }

    pub fn extent(&self, nid: Nid, offset: u64) -> Result<Option<Extent>, Failure> {
        Ok(self.0.extent(&*self.inode(nid)?, offset)?)
    }

    fn nothing(&self, nid: Nid, name: &str, errno: i32) -> Failure {
        let image = self.0.name();
        Failure::new(errno, format!("{image}: nid {nid}: no {name}"))
    }
}

/// Copies a result into the caller's buffer, and returns the length of the result. If the buffer is
/// empty, nothing is copied.
pub fn deliver(result: &[u8], buffer: &mut [u8]) -> Result<i64, Failure> {
    if !buffer.is_empty() {
        let Some(room) = buffer.get_mut(..result.len()) else {
            let (needed, size) = (result.len(), buffer.len());
            let text = format!("{needed} bytes do not fit in a buffer of {size}");
            return Err(Failure::new(ERANGE, text));
        };
        room.copy_from_slice(result);
    }
    Ok(result.len() as i64)
}

#[cfg(test)]
mod tests {
    use super::deliver;

    #[test]
    fn a_result_is_delivered_whole_or_not_at_all() {
        let mut buffer = [9; 3];
        assert_eq!(deliver(b"abcd", &mut []).unwrap(), 4);
        assert_eq!(deliver(b"abcd", &mut buffer).unwrap_err().errno, 34);
        assert_eq!(buffer, [9; 3]);
        assert_eq!(deliver(b"ab", &mut buffer).unwrap(), 2);
        assert_eq!(buffer, *b"ab\x09");
    }
}
