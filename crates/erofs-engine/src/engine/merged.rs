//! Looks up and lists names in the directories of a tree of several images, one image after the
//! other.
//!
//! The rules are in `layers/`. A directory is found by its number, the number of its topmost part.
//! If a directory is no longer cached, or was announced to the kernel by an earlier server, its
//! path is found by following `..`.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;

use erofs_format::dir::{self, Dirent, Item};
use erofs_format::{FileType, Inode, Nid};

use super::Engine;
use crate::error::errno;
use crate::layers::directory::{MergedDirectories, MergedDirectory, Part};
use crate::layers::listing::{self, Cursor, PartEntry, Place, SameName};
use crate::layers::overlay;
use crate::request::RequestKey;
use crate::request::budget::Request;
use crate::{EachItem, Result};

/// Maximum depth of directories that are followed: as deep as the longest path can lead.
const DEPTH: usize = 2048;

/// Maximum number of directories searched to find one that cannot be reached by its path in its own
/// image.
const MOST_SEARCHED: usize = 1 << 14;

/// Number of entries read at a time from one image's directory.
const BATCH: usize = 64;

/// The entry that a directory of the tree has under a name.
enum Child {
    Absent,
    /// Any inode but a directory.
    File(Nid),
    Directory(Arc<MergedDirectory>),
}

/// The marks on one image's directory that apply to the directories in the images below.
#[derive(Default)]
pub(super) struct Marks {
    hides: bool,
    /// The path of the directories in the images below, and whether the path starts at the root.
    redirect: Option<(Vec<Vec<u8>>, bool)>,
}

/// The result of looking up a path in one image.
#[derive(Default)]
struct Found {
    /// The inode, with its marks if it is a directory.
    inode: Option<(Arc<Inode>, Option<Part>)>,
    /// Whether the entry hides everything at its path in the images below.
    hides: bool,
    /// The path to look up in the images below.
    path: Vec<Vec<u8>>,
    from_root: bool,
}

impl Engine {
    /// Merges several images into one tree. A registry's image with a single layer is also such a
    /// tree if the layer was an archive: whiteouts in it hide nothing, but readers must not see
    /// them.
    pub(super) fn merge(&mut self) -> Result<()> {
        let is_one_image = self.image_count() == 1;
        let top = &self.images.top().devices[0];
        if is_one_image && !top.device.is_image_of_registry() {
            return Ok(());
        }
        let rewritten = self.find_rewritten(&self.waiting());
        // If the root of a single image is broken, readers of the root get the error.
        if is_one_image && !matches!(rewritten.as_deref(), Ok([true])) {
            return Ok(());
        }
        self.rewritten = rewritten?;
        let root = self.merged_root(&self.waiting())?;
        self.merged = Some(MergedDirectories::new(root));
        Ok(())
    }

    /// Determines which images were made from archives that were rewritten.
    fn find_rewritten(&self, request: &Request<'_>) -> Result<Box<[bool]>> {
        let is_rewritten = |root| {
            let inode = self.read_own_inode(request, root)?;
            let mark = self.stored_xattr(request, &inode, overlay::REWRITTEN)?;
            Ok(mark.is_some())
        };
        self.roots().map(is_rewritten).collect()
    }

    /// Whether names in an inode's image may be whiteouts of a tar archive.
    fn has_marked_names(&self, nid: Nid) -> bool {
        let image = self.images.numbers.image(nid);
        !self.rewritten.get(image).copied().unwrap_or_default()
    }

    fn merged_root(&self, request: &Request<'_>) -> Result<MergedDirectory> {
        let mut parts = Vec::new();
        for root in self.roots() {
            let inode = Arc::new(self.read_own_inode(request, root)?);
            let (part, marks) = self.part(request, inode)?;
            let hides = marks.hides && part.has_tar_marks;
            parts.push(part);
            // On a root, only a tar archive's mark has an effect, not the overlayfs attribute.
            if hides {
                break;
            }
        }
        let lenders = self.find_lenders(request, &parts[0].inode, Some(b""))?;
        Ok(MergedDirectory {
            parent: self.root(),
            parts: parts.into(),
            path: Some(Box::default()),
            lenders,
        })
    }

    /// Whether a directory exists in several images.
    pub(super) fn is_merged(&self, request: &Request<'_>, inode: &Inode) -> Result<bool> {
        if self.merged.is_none() || inode.file_type() != FileType::Directory {
            return Ok(false);
        }
        let directory = self.merged_directory(request, inode.nid)?;
        Ok(directory.is_some_and(|directory| directory.is_merged()))
    }

    /// The directory of the tree with this number; `None` if the image is shown as it is.
    pub(super) fn merged_directory(
        &self,
        request: &Request<'_>,
        nid: Nid,
    ) -> Result<Option<Arc<MergedDirectory>>> {
        let Some(merged) = &self.merged else {
            return Ok(None);
        };
        match merged.get(nid) {
            Some(directory) => Ok(Some(directory)),
            None => self.find_directory(request, merged, nid).map(Some),
        }
    }

    /// Finds a directory by its path in its image or, if that leads elsewhere, by a search.
    fn find_directory(
        &self,
        request: &Request<'_>,
        merged: &MergedDirectories,
        nid: Nid,
    ) -> Result<Arc<MergedDirectory>> {
        let mut directory = Some(Arc::clone(&merged.root));
        for name in self.path_in_image(request, nid)? {
            let Some(above) = directory else { break };
            directory = match self.child(request, &above, &name)? {
                Child::Directory(below) => Some(below),
                Child::Absent | Child::File(_) => None,
            };
        }
        let is_wanted = |directory: &Arc<MergedDirectory>| directory.nid() == nid;
        match directory.filter(is_wanted) {
            Some(directory) => Ok(directory),
            None => self.search_directory(request, merged, nid),
        }
    }

    /// Searches the tree from its root for a directory whose path in the tree differs from its path
    /// in its image, because of a redirect.
    fn search_directory(
        &self,
        request: &Request<'_>,
        merged: &MergedDirectories,
        nid: Nid,
    ) -> Result<Arc<MergedDirectory>> {
        let mut met = HashSet::from([merged.root.nid()]);
        let mut waiting = VecDeque::from([merged.root.nid()]);
        while let Some(above) = waiting.pop_front()
            && met.len() < MOST_SEARCHED
        {
            let mut found = Vec::new();
            self.read_merged(request, above, 0, &mut |entry| {
                if let Ok(entry) = entry
                    && entry.file_type == FileType::Directory as u8
                    && met.insert(entry.nid)
                {
                    found.push(entry.nid);
                }
                ControlFlow::Continue(())
            })?;
            if found.contains(&nid)
                && let Some(directory) = merged.get(nid)
            {
                return Ok(directory);
            }
            waiting.extend(found);
        }
        Err(self.fault(nid, "a directory that upper images hide"))
    }

    /// The names on the path from the root of its image to a directory.
    pub(super) fn path_in_image(&self, request: &Request<'_>, nid: Nid) -> Result<Vec<Vec<u8>>> {
        let (mut names, mut here) = (Vec::new(), nid);
        let root = self.image_of(nid).superblock().root_nid;
        while self.images.numbers.own(here) != root {
            if names.len() == DEPTH {
                return Err(self.fault(nid, "a loop of directories"));
            }
            let inode = self.read_own_inode(request, here)?;
            let above = self.own_lookup(request, &inode, b"..")?;
            let above = above.ok_or_else(|| self.fault(here, "a directory without .."))?;
            names.push(self.own_name(request, above, here)?);
            here = above;
        }
        names.reverse();
        Ok(names)
    }

    /// The name of `wanted` in a directory of the same image.
    fn own_name(&self, request: &Request<'_>, directory: Nid, wanted: Nid) -> Result<Vec<u8>> {
        let inode = self.read_own_inode(request, directory)?;
        let own = self.images.numbers.own(wanted);
        let mut name = None;
        self.read_own(request, &inode, 0, &mut |item| {
            if let Item::Entry(entry) = item
                && entry.nid == own
                && !matches!(entry.name, b"." | b"..")
            {
                name = Some(entry.name.to_vec());
            }
            match name {
                Some(_) => ControlFlow::Break(()),
                None => ControlFlow::Continue(()),
            }
        })?;
        name.ok_or_else(|| self.fault(wanted, "a directory that is missing from its parent"))
    }

    /// Looks a name up in the tree.
    pub(super) fn merged_lookup(
        &self,
        request: &Request<'_>,
        nid: Nid,
        name: &[u8],
    ) -> Result<Option<Nid>> {
        let key = RequestKey::Lookup(nid);
        self.requests.run(request, key, 0, |_| {
            let Some(directory) = self.merged_directory(request, nid)? else {
                return Ok(None);
            };
            Ok(match name {
                b"." => Some(nid),
                b".." => Some(directory.parent),
                _ => match self.child(request, &directory, name)? {
                    Child::Absent => None,
                    Child::File(nid) => Some(nid),
                    Child::Directory(below) => Some(below.nid()),
                },
            })
        })
    }

    /// The entry of a directory under a name. A file is taken from the first image that has the
    /// name; a directory is put together from all images that have it, until one hides the entries
    /// below.
    fn child(&self, request: &Request<'_>, parent: &MergedDirectory, name: &[u8]) -> Result<Child> {
        let (mut parts, mut path) = (Vec::new(), vec![name.to_vec()]);
        let (mut below, mut lacking, mut is_redirected) = (&parent.parts[..], Ok(()), false);
        while let [first, rest @ ..] = below {
            below = rest;
            let found = match self.follow(request, first, &path) {
                Err(error) if request.lacks() => {
                    // Go on, so that the missing bytes of all images are fetched together.
                    lacking = Err(error);
                    continue;
                }
                found => found?,
            };
            match found.inode {
                Some((_, Some(part))) => parts.push(part),
                Some((inode, None)) if parts.is_empty() && lacking.is_ok() => {
                    return Ok(Child::File(inode.nid));
                }
                Some((_, None)) => break,
                None => {}
            }
            if found.hides {
                break;
            }
            is_redirected |= found.from_root || found.path != path;
            path = found.path;
            if found.from_root {
                below = self.roots_below(first);
            }
        }
        lacking?;
        if parts.is_empty() {
            return Ok(Child::Absent);
        }
        let above = parent.path.as_deref().filter(|_| !is_redirected);
        let path = above.map(|above| [above, b"/", name].concat());
        let lenders = self.find_lenders(request, &parts[0].inode, path.as_deref())?;
        let directory = Arc::new(MergedDirectory {
            parent: parent.nid(),
            parts: parts.into(),
            path: path.map(Into::into),
            lenders,
        });
        if let Some(merged) = &self.merged {
            merged.keep(&directory);
        }
        Ok(Child::Directory(directory))
    }

    /// Checks that a file of the tree has its content in its own image.
    pub(super) fn check_content(&self, request: &Request<'_>, inode: &Inode) -> Result<()> {
        if self.merged.is_none() || inode.file_type() != FileType::Regular {
            return Ok(());
        }
        let what = "a file whose content is in an image below (overlay.metacopy)";
        match self.overlay_xattr(request, inode, overlay::METACOPY)? {
            Some(_) => Err(self.fault(inode.nid, what)),
            None => Ok(()),
        }
    }

    /// The root directories of the images below this part's image.
    fn roots_below(&self, part: &Part) -> &[Part] {
        let image = |part: &Part| self.images.numbers.image(part.inode.nid);
        let roots = self.merged.as_ref().map(|merged| &merged.root.parts[..]);
        let roots = roots.unwrap_or_default();
        // The roots are in the order of their images.
        &roots[roots.partition_point(|root| image(root) <= image(part))..]
    }

    /// The result of following a path in one image, below one of its directories.
    fn follow(&self, request: &Request<'_>, from: &Part, path: &[Vec<u8>]) -> Result<Found> {
        let (mut found, mut here) = (Found::default(), from.clone());
        for (index, name) in path.iter().enumerate() {
            let (inode, hides) = self.part_entry(request, &here, name)?;
            found.hides |= hides;
            let is_last = index + 1 == path.len();
            let Some(inode) = inode else {
                // In the images below, the path leads through the directories to which this image
                // redirects.
                found.path.extend_from_slice(&path[index..]);
                return Ok(found);
            };
            if inode.file_type() != FileType::Directory {
                found.hides = true;
                found.inode = is_last.then_some((inode, None));
                return Ok(found);
            }
            let (part, marks) = self.part(request, Arc::clone(&inode))?;
            found.hides |= marks.hides;
            match marks.redirect {
                Some((names, from_root)) => {
                    if from_root {
                        found.path.clear();
                        found.from_root = true;
                    }
                    found.path.extend(names);
                }
                None => found.path.push(name.clone()),
            }
            if is_last {
                found.inode = Some((inode, Some(part.clone())));
            }
            here = part;
        }
        Ok(found)
    }

    /// The entry of one image's directory under a name, and whether the entry hides those in the
    /// images below.
    pub(super) fn part_entry(
        &self,
        request: &Request<'_>,
        part: &Part,
        name: &[u8],
    ) -> Result<(Option<Arc<Inode>>, bool)> {
        if overlay::is_tar_mark(name) && self.has_marked_names(part.inode.nid) {
            return Ok((None, false));
        }
        let found = self.own_lookup(request, &part.inode, name)?;
        let is_hidden = self.has_tar_whiteout(request, part, name)?;
        let Some(nid) = found else {
            return Ok((None, is_hidden));
        };
        let inode = self.read_own_inode(request, nid)?;
        Ok(match self.is_whiteout(request, part, &inode)? {
            true => (None, true),
            false => (Some(Arc::new(inode)), is_hidden),
        })
    }

    fn has_tar_whiteout(&self, request: &Request<'_>, part: &Part, name: &[u8]) -> Result<bool> {
        let whiteout = overlay::tar_whiteout(name).filter(|_| part.has_tar_marks);
        let found = whiteout.map(|name| self.own_lookup(request, &part.inode, &name));
        Ok(found.transpose()?.flatten().is_some())
    }

    fn is_whiteout(&self, request: &Request<'_>, part: &Part, inode: &Inode) -> Result<bool> {
        let is_empty_file = inode.file_type() == FileType::Regular && inode.size == 0;
        if !part.has_marked_files || !is_empty_file {
            return Ok(overlay::is_whiteout(inode));
        }
        let mark = self.overlay_xattr(request, inode, overlay::WHITEOUT)?;
        Ok(mark.is_some())
    }

    /// One image's directory as a part of the tree, and its marks for the directories in the images
    /// below.
    pub(super) fn part(&self, request: &Request<'_>, inode: Arc<Inode>) -> Result<(Part, Marks)> {
        let opaque = self.overlay_xattr(request, &inode, overlay::OPAQUE)?;
        let mut marks = Marks {
            hides: opaque.as_deref() == Some(b"y"),
            redirect: None,
        };
        if let Some(value) = self.stored_xattr(request, &inode, overlay::REDIRECT)? {
            let what = "a redirect that is not a path (overlay.redirect)";
            let redirect = overlay::redirect(&value);
            marks.redirect = Some(redirect.ok_or_else(|| self.fault(inode.nid, what))?);
        }
        let has_tar_marks = self.has_tar_marks(request, &inode)?;
        if has_tar_marks {
            let opaque = self.own_lookup(request, &inode, overlay::TAR_OPAQUE)?;
            marks.hides |= opaque.is_some();
        }
        let part = Part {
            has_tar_marks,
            has_marked_files: opaque.as_deref() == Some(b"x"),
            inode,
        };
        Ok((part, marks))
    }

    /// Whether a directory has whiteouts of a tar archive. The names of whiteouts sort next to each
    /// other, so it suffices to look at one entry.
    fn has_tar_marks(&self, request: &Request<'_>, inode: &Inode) -> Result<bool> {
        let is_lowest = self.images.numbers.image(inode.nid) + 1 == self.image_count();
        if is_lowest || !self.has_marked_names(inode.nid) {
            return Ok(false);
        }
        let Some(position) = self.seek_own(request, inode, overlay::TAR_PREFIX)? else {
            // The entries are not sorted: lookups must search for the whiteout of each name.
            return Ok(true);
        };
        let mut has_marks = false;
        self.read_own(request, inode, position, &mut |item| {
            has_marks = match item {
                Item::Entry(entry) => overlay::is_tar_mark(entry.name),
                Item::Broken { .. } => true,
            };
            ControlFlow::Break(())
        })?;
        Ok(has_marks)
    }

    /// An overlayfs attribute of an inode.
    fn overlay_xattr(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        // Most inodes have no attributes, so the names below need not be allocated for them.
        if inode.xattr_icount == 0 {
            return Ok(None);
        }
        for name in overlay::attributes(name) {
            let value = self.stored_xattr(request, inode, &name)?;
            if value.is_some() {
                return Ok(value);
            }
        }
        Ok(None)
    }

    /// Calls `each` for the entries of a directory of the tree, in the order of their names.
    pub(super) fn read_merged(
        &self,
        request: &Request<'_>,
        nid: Nid,
        position: u64,
        each: EachItem<'_>,
    ) -> Result<()> {
        let Some(directory) = self.merged_directory(request, nid)? else {
            return Ok(());
        };
        let mut last = self.name_before(request, &directory, position)?;
        let mut cursors = self.cursors(request, &directory, last.as_deref())?;
        loop {
            let mut lacking = Ok(());
            for (part, cursor) in directory.parts.iter().zip(&mut cursors) {
                let filled = self.fill(request, part, cursor, last.as_deref(), each);
                if filled.is_err() && request.lacks() {
                    lacking = filled.map(drop);
                } else if filled?.is_break() {
                    return Ok(());
                }
            }
            lacking?;
            let same = listing::next(&mut cursors);
            let Some((part, first)) = same.first() else {
                return Ok(());
            };
            if directory.is_merged() && last.as_ref().is_some_and(|last| *last >= first.name) {
                return Err(self.fault(nid, "names in one of the images are out of order"));
            }
            let (part, place) = (*part, first.place);
            let next = Place { part, place }.position();
            let next = next.ok_or_else(|| self.fault(nid, "a directory that is too large"))?;
            let shown = match self.shown(request, &directory, &same) {
                Ok(None) => None,
                Ok(Some((nid, file_type))) => Some(Ok(Dirent {
                    name: &first.name,
                    nid,
                    file_type,
                    next,
                })),
                Err(error) => Some(Err(error)),
            };
            if shown.map(&mut *each).is_some_and(|flow| flow.is_break()) {
                return Ok(());
            }
            last = same.into_iter().next().map(|(_, first)| first.name);
        }
    }

    /// The last name before a position in the directory.
    fn name_before(
        &self,
        request: &Request<'_>,
        directory: &MergedDirectory,
        position: u64,
    ) -> Result<Option<Vec<u8>>> {
        let Some(Place { part, place }) = Place::before(position) else {
            return Ok(None);
        };
        let mut name = None;
        if let Some(part) = directory.parts.get(part) {
            self.read_own(request, &part.inode, place, &mut |item| {
                if let Item::Entry(entry) = item {
                    name = Some(entry.name.to_vec());
                }
                ControlFlow::Break(())
            })?;
        }
        let what = "no entry is at this position";
        let invalid = || self.kind(directory.nid(), what, errno::EINVAL);
        name.map(Some).ok_or_else(invalid)
    }

    /// Cursors that read the images' directories from a name on.
    fn cursors(
        &self,
        request: &Request<'_>,
        directory: &MergedDirectory,
        last: Option<&[u8]>,
    ) -> Result<Vec<Cursor>> {
        let cursor = |part: &Part| {
            let mut cursor = Cursor::default();
            if let Some(last) = last {
                let position = self.seek_own(request, &part.inode, last)?;
                cursor.position = position.unwrap_or(0);
            }
            Ok(cursor)
        };
        directory.parts.iter().map(cursor).collect()
    }

    /// The position of the first entry of an image's directory that does not sort before a name;
    /// `None` if the entries are not sorted.
    fn seek_own(&self, request: &Request<'_>, inode: &Inode, name: &[u8]) -> Result<Option<u64>> {
        let content = self.directory(request, inode)?;
        let block_size = self.image_of(inode.nid).superblock().block_size;
        let position = dir::seek(&content, block_size, name);
        position.map_err(|error| self.error(inode.nid, error))
    }

    /// If the cursor has no entries left, reads those after the name `last`. Broken entries are
    /// passed to `each` immediately.
    fn fill(
        &self,
        request: &Request<'_>,
        part: &Part,
        cursor: &mut Cursor,
        last: Option<&[u8]>,
        each: EachItem<'_>,
    ) -> Result<ControlFlow<()>> {
        let mut flow = ControlFlow::Continue(());
        if cursor.has_ended || !cursor.entries.is_empty() {
            return Ok(flow);
        }
        let (mut place, mut is_full) = (cursor.position, false);
        self.read_own(request, &part.inode, place, &mut |item| {
            match item {
                Item::Entry(entry) => {
                    if last.is_none_or(|last| last < entry.name) {
                        cursor.entries.push_back(PartEntry {
                            name: entry.name.to_vec(),
                            nid: entry.nid,
                            file_type: entry.file_type,
                            place,
                        });
                    }
                    place = entry.next;
                }
                Item::Broken { error, next } => {
                    place = next;
                    flow = each(Err(self.error(part.inode.nid, error)));
                }
            }
            is_full = cursor.entries.len() >= BATCH;
            match is_full {
                true => ControlFlow::Break(()),
                false => flow,
            }
        })?;
        cursor.position = place;
        cursor.has_ended = !is_full;
        Ok(flow)
    }

    /// The number and type under which readers see a name; `None` if it is hidden.
    fn shown(
        &self,
        request: &Request<'_>,
        directory: &MergedDirectory,
        same: &SameName,
    ) -> Result<Option<(Nid, u8)>> {
        let is_mark = |number: &usize, entry: &PartEntry| {
            let nid = directory.parts[*number].inode.nid;
            overlay::is_tar_mark(&entry.name) && self.has_marked_names(nid)
        };
        let names = same.iter().find(|(number, entry)| !is_mark(number, entry));
        let Some((number, entry)) = names else {
            let mut marks = same.iter();
            let what = "a whiteout of a name that cannot be removed (.wh., .wh.. or .wh...)";
            return match marks.find(|(_, mark)| overlay::is_impossible(&mark.name)) {
                Some((number, _)) => Err(self.fault(directory.parts[*number].inode.nid, what)),
                None => Ok(None),
            };
        };
        let part = &directory.parts[*number];
        let directory_type = FileType::Directory as u8;
        match &entry.name[..] {
            // `.` and `..` are listed once, at their places in the top image.
            b"." | b".." if *number > 0 => return Ok(None),
            b"." => return Ok(Some((directory.nid(), directory_type))),
            b".." => return Ok(Some((directory.parent, directory_type))),
            _ => {}
        }
        for above in &directory.parts[..*number] {
            if self.has_tar_whiteout(request, above, &entry.name)? {
                return Ok(None);
            }
        }
        let nid = self.number_in(&part.inode, entry.nid)?;
        if entry.file_type == directory_type {
            // Looks the directory up, which also caches it: the kernel asks for its contents next.
            return Ok(match self.child(request, directory, &entry.name)? {
                Child::Absent => None,
                Child::File(nid) => Some((nid, 0)),
                Child::Directory(below) => Some((below.nid(), directory_type)),
            });
        }
        let device = FileType::CharDevice as u8;
        let may_hide = entry.file_type == device
            || entry.file_type == 0
            || part.has_marked_files && entry.file_type == FileType::Regular as u8;
        if may_hide {
            let inode = self.read_own_inode(request, nid)?;
            if self.is_whiteout(request, part, &inode)? {
                return Ok(None);
            }
        }
        Ok(Some((nid, entry.file_type)))
    }
}
