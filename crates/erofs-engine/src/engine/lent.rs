//! Attributes that directories take from the images below.
//!
//! An archive may name a file but not its directory, or the directory after the file. A runtime
//! that unpacks it creates the directory for the file, and gives it the attributes of the directory
//! at the same path in the next layer below that has this path. The runtime looks at each layer
//! separately: entries that another layer hides still count, and symbolic links are resolved within
//! their layer. (See `mkparent` in the package `archive` of containerd 1.6 and 2.1.)

use std::sync::Arc;

use erofs_format::{FileType, Inode, Nid};

use super::Engine;
use super::resolve::components;
use crate::Result;
use crate::layers::overlay::{self, Lent};
use crate::request::budget::Request;

/// Maximum number of symbolic links in one path, as in containerd.
const MOST_LINKS: usize = 255;

/// The set-group-ID bit: entries created in such a directory inherit its group.
const SET_GROUP: u16 = 0o2000;

/// A directory, and its path with symbolic links resolved.
type Place = (Arc<Inode>, Vec<u8>);

/// The entry that one image has at a path.
enum AtPath {
    Nothing,
    /// Any other entry, which ends the search.
    Other,
    Directory(Place),
}

impl Engine {
    /// Sets the mode, owner and time that a directory takes from below.
    pub(super) fn lend(&self, request: &Request<'_>, inode: &mut Inode) -> Result<()> {
        if self.merged.is_none() || self.lent(request, inode)? != Lent::All {
            return Ok(());
        }
        let lenders = self.lenders(request, inode)?;
        let mut made = inode.nid;
        if let Some(stated) = self.stated(request, &lenders)? {
            made = stated.nid;
            (inode.mode, inode.uid, inode.gid) = (stated.mode, stated.uid, stated.gid);
            (inode.mtime, inode.mtime_nsec) = (stated.mtime, stated.mtime_nsec);
        }
        if let Some(group) = self.group_of_above(request, made)? {
            inode.gid = group;
        }
        Ok(())
    }

    /// The first of these directories that has its own mode, owner and time, or else the last
    /// directory.
    fn stated(&self, request: &Request<'_>, lenders: &[Arc<Inode>]) -> Result<Option<Arc<Inode>>> {
        for lender in lenders {
            if self.lent(request, lender)? != Lent::All {
                return Ok(Some(Arc::clone(lender)));
            }
        }
        Ok(lenders.last().cloned())
    }

    /// The group of a directory that a runtime created without a directory to copy from: that of
    /// the parent directory if mkdir(2) would inherit it. If the parent has an entry of its own,
    /// the rewritten archive states the group.
    fn group_of_above(&self, request: &Request<'_>, made: Nid) -> Result<Option<u32>> {
        let made = self.read_own_inode(request, made)?;
        let mark = self.stored_xattr(request, &made, overlay::IMPLIED)?;
        if !overlay::is_implied(&made) && mark.as_deref() != Some(overlay::MADE_IN_IMPLIED) {
            return Ok(None);
        }
        let above = self.own_lookup(request, &made, b"..")?;
        let Some(above) = above.filter(|above| *above != made.nid) else {
            return Ok(None);
        };
        let above = Arc::new(self.read_own_inode(request, above)?);
        let lenders = self.find_lenders(request, &above, None)?;
        let stated = self.stated(request, &lenders)?;
        let has_group = stated.filter(|stated| stated.mode & SET_GROUP != 0);
        Ok(has_group.map(|stated| stated.gid))
    }

    /// The directories below from which a directory in a tree of several images takes attributes.
    pub(super) fn lenders(&self, request: &Request<'_>, inode: &Inode) -> Result<Vec<Arc<Inode>>> {
        if self.merged.is_none() || inode.file_type() != FileType::Directory {
            return Ok(Vec::new());
        }
        let own = self.read_own_inode(request, inode.nid)?;
        if self.lent(request, &own)? == Lent::Nothing {
            return Ok(Vec::new());
        }
        let directory = self.merged_directory(request, inode.nid)?;
        Ok(directory.map_or_else(Vec::new, |directory| directory.lenders.to_vec()))
    }

    /// Which attributes of an image's inode come from below.
    fn lent(&self, request: &Request<'_>, inode: &Inode) -> Result<Lent> {
        if overlay::is_implied(inode) {
            return Ok(Lent::All);
        }
        if inode.file_type() != FileType::Directory {
            return Ok(Lent::Nothing);
        }
        let mark = self.stored_xattr(request, inode, overlay::IMPLIED)?;
        Ok(Lent::by_mark(mark.as_deref()))
    }

    /// Finds the directories from which a directory of an image takes attributes. If `path` is
    /// `None`, finds the path of the directory too.
    pub(super) fn find_lenders(
        &self,
        request: &Request<'_>,
        inode: &Arc<Inode>,
        path: Option<&[u8]>,
    ) -> Result<Box<[Arc<Inode>]>> {
        let (mut lenders, mut here) = (Vec::new(), Arc::clone(inode));
        let mut path = path.map(<[u8]>::to_vec);
        while self.lent(request, &here)? != Lent::Nothing {
            let known = match path {
                Some(path) => path,
                None => self.path_in_image(request, here.nid)?.join(&b'/'),
            };
            let Some((lender, real)) = self.lender(request, here.nid, &known)? else {
                break;
            };
            lenders.push(Arc::clone(&lender));
            (here, path) = (lender, Some(real));
        }
        Ok(lenders.into())
    }

    /// The directory at the path in the next image below that has the path.
    fn lender(&self, request: &Request<'_>, above: Nid, path: &[u8]) -> Result<Option<Place>> {
        let below = self.images.numbers.image(above) + 1;
        for root in self.roots().skip(below) {
            match self.at_path(request, root, path)? {
                AtPath::Nothing => {}
                AtPath::Other => return Ok(None),
                AtPath::Directory(place) => return Ok(Some(place)),
            }
        }
        Ok(None)
    }

    fn at_path(&self, request: &Request<'_>, root: Nid, path: &[u8]) -> Result<AtPath> {
        let root = Arc::new(self.read_own_inode(request, root)?);
        let (mut trail, mut links) = (Vec::<(Vec<u8>, Arc<Inode>)>::new(), 0);
        let mut todo = components(path);
        while let Some(name) = todo.pop() {
            if name == b".." {
                trail.pop();
                continue;
            }
            let here = trail.last().map_or(&root, |(_, inode)| inode);
            if here.file_type() != FileType::Directory {
                return Ok(AtPath::Other);
            }
            let (part, _) = self.part(request, Arc::clone(here))?;
            let inode = match self.part_entry(request, &part, &name)? {
                (Some(inode), _) => inode,
                (None, true) => return Ok(AtPath::Other),
                (None, false) => return Ok(AtPath::Nothing),
            };
            if inode.file_type() != FileType::Symlink {
                trail.push((name, inode));
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Ok(AtPath::Other);
            }
            let target = self.read_link(request, &inode)?;
            if target.starts_with(b"/") {
                trail.clear();
            }
            todo.extend(components(&target));
        }
        let names: Vec<_> = trail.iter().map(|(name, _)| &name[..]).collect();
        let real = names.join(&b'/');
        let last = trail.pop().map_or(root, |(_, inode)| inode);
        Ok(match last.file_type() {
            FileType::Directory => AtPath::Directory((last, real)),
            _ => AtPath::Other,
        })
    }
}
