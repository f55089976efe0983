//! Looks up names, lists directories and reads symlinks.

use std::ops::ControlFlow;

use erofs_format::dir::{self, Item};
use erofs_format::{FileType, Inode, Nid};

use super::Engine;
use crate::Result;
use crate::engine::directory::Directory;
use crate::error::errno;
use crate::request::RequestKey;
use crate::request::budget::{Exceeded, Request};

/// Longest symlink the kernel accepts.
const SYMLINK_MAX: u64 = 4096;

/// Callback for each entry of a directory: name, nid, type, and the position after it.
pub type EachEntry<'a> = &'a mut dyn FnMut(&[u8], Nid, u8, u64) -> ControlFlow<()>;

/// Callback for each entry of a directory, or the error in its place.
pub type EachItem<'a> = &'a mut dyn FnMut(Result<dir::Dirent<'_>>) -> ControlFlow<()>;

/// The scope of a listing's budget.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allowed {
    /// Each entry has its own budget, so any number of entries is allowed. The callback's requests
    /// have separate budgets.
    OfEntries,
    /// One budget covers all entries and the requests of the callback.
    OfListing,
}

impl Engine {
    /// Looks up `name` in a directory.
    pub fn lookup(
        &self,
        request: &Request<'_>,
        directory: &Inode,
        name: &[u8],
    ) -> Result<Option<Nid>> {
        if self.merged.is_some() {
            self.directory(request, directory)?;
            return self.merged_lookup(request, directory.nid, name);
        }
        self.own_lookup(request, directory, name)
    }

    /// Looks up a name in the image that contains the directory.
    pub(super) fn own_lookup(
        &self,
        request: &Request<'_>,
        directory: &Inode,
        name: &[u8],
    ) -> Result<Option<Nid>> {
        let content = self.directory(request, directory)?;
        if name == b"." && directory.dot_omitted {
            return Ok(Some(directory.nid));
        }
        let found = self.metadata(request, RequestKey::Lookup(directory.nid), |image| {
            let found = dir::lookup(&content, image.superblock().block_size, name)?;
            Ok(found.map(|(nid, _)| nid))
        })?;
        found.map(|own| self.number_in(directory, own)).transpose()
    }

    /// The number of an inode that a directory in the same image refers to.
    pub(super) fn number_in(&self, directory: &Inode, own: Nid) -> Result<Nid> {
        let numbers = self.images.numbers;
        let number = numbers.number(numbers.image(directory.nid), own);
        number.ok_or_else(|| self.fault(directory.nid, "an entry leads beyond the image"))
    }

    /// Calls `each` for the entries of a directory in the order of the image, starting at
    /// `position` (0 is the beginning), until `each` breaks. Requests made by `each` have their own
    /// budgets.
    ///
    /// # Errors
    /// At the end of a listing that left out broken entries, the error of the first of them.
    pub fn read_dir(&self, directory: &Inode, position: u64, each: EachEntry<'_>) -> Result<()> {
        let mut broken = None;
        let mut sound = |entry: Result<dir::Dirent<'_>>| match entry {
            Ok(entry) => each(entry.name, entry.nid, entry.file_type, entry.next),
            Err(error) => {
                broken.get_or_insert(error);
                ControlFlow::Continue(())
            }
        };
        let (request, allowed) = (self.waiting(), Allowed::OfEntries);
        let flow = self.list(&request, directory, position, allowed, &mut sound)?;
        match broken.filter(|_| flow.is_continue()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Like [`Engine::read_dir`], but broken entries are passed to `each` instead of causing an
    /// error at the end.
    pub fn read_dir_strict(
        &self,
        directory: &Inode,
        position: u64,
        each: EachItem<'_>,
    ) -> Result<()> {
        let (request, allowed) = (self.waiting(), Allowed::OfEntries);
        let listed = self.list(&request, directory, position, allowed, each);
        listed.map(drop)
    }

    /// Like [`Engine::read_dir_strict`], for as many entries as one budget allows, including the
    /// requests that `each` makes. Continue with another call from the last position.
    pub fn read_dir_part(
        &self,
        request: &Request<'_>,
        directory: &Inode,
        position: u64,
        each: EachItem<'_>,
    ) -> Result<()> {
        let listed = self.list(request, directory, position, Allowed::OfListing, each);
        listed.map(drop)
    }

    /// Lists a directory; returns `Break` if `each` did.
    fn list(
        &self,
        request: &Request<'_>,
        directory: &Inode,
        position: u64,
        allowed: Allowed,
        each: EachItem<'_>,
    ) -> Result<ControlFlow<()>> {
        self.directory(request, directory)?;
        let key = RequestKey::List(directory.nid, position);
        let (mut flow, mut any) = (ControlFlow::Continue(()), false);
        let in_parts = allowed == Allowed::OfListing;
        self.requests.run(request, key, 0, |scope| {
            let mut each = |item: Result<dir::Dirent<'_>>| {
                any |= item.is_ok();
                if item.is_ok() && !in_parts {
                    scope.renew();
                }
                flow = match allowed {
                    Allowed::OfEntries => request.outside(|| each(item)),
                    Allowed::OfListing => each(item),
                };
                flow
            };
            let read = match self.merged {
                Some(_) => self.read_merged(request, directory.nid, position, &mut each),
                None => self.read_own(request, directory, position, &mut |item| match item {
                    Item::Entry(entry) => each(Ok(entry)),
                    Item::Broken { error, .. } => each(Err(self.error(directory.nid, error))),
                }),
            };
            match read {
                Err(_) if in_parts && any && request.exceeded().is_some_and(Exceeded::is_limit) => {
                    Ok(())
                }
                other => other,
            }
        })?;
        Ok(flow)
    }

    /// Calls `each` for the entries that a directory has in its image.
    pub(super) fn read_own(
        &self,
        request: &Request<'_>,
        directory: &Inode,
        position: u64,
        each: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
    ) -> Result<()> {
        let content = self.directory(request, directory)?;
        let block_size = self.image_of(directory.nid).superblock().block_size;
        let read = dir::read(&content, block_size, position, each);
        read.map_err(|error| self.error(directory.nid, error))
    }

    /// The target of a symlink.
    pub fn read_link(&self, request: &Request<'_>, inode: &Inode) -> Result<Vec<u8>> {
        if inode.file_type() != FileType::Symlink {
            return Err(self.kind(inode.nid, "not a symlink", errno::EINVAL));
        }
        if inode.size > SYMLINK_MAX {
            return Err(self.fault(inode.nid, "symlink longer than a page"));
        }
        let mut target = vec![0; inode.size as usize];
        let key = RequestKey::Read(inode.nid, 0);
        self.requests.run(request, key, 0, |_| {
            self.file(request, inode).read(0, &mut target, None)
        })?;
        if target.contains(&0) {
            return Err(self.fault(inode.nid, "symlink with a NUL byte in its target"));
        }
        Ok(target)
    }

    pub(super) fn directory<'a>(
        &'a self,
        request: &'a Request<'a>,
        inode: &'a Inode,
    ) -> Result<Directory<'a>> {
        if inode.file_type() != FileType::Directory {
            return Err(self.kind(inode.nid, "not a directory", errno::ENOTDIR));
        }
        Ok(Directory {
            content: self.file(request, inode),
            cache: &self.directories,
        })
    }
}
