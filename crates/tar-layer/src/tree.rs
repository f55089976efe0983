//! The layer's directory tree as it would be after unpacking.

use std::collections::{BTreeMap, VecDeque};

use crate::path::{LONGEST_NAME, LONGEST_PATH, split};

/// An inode of the layer. The root has the number 0.
pub(crate) type Number = usize;

pub(crate) const ROOT: Number = 0;

/// The set-group-ID bit: new entries of such a directory inherit its group.
const SET_GROUP: u32 = 0o2000;

/// Maximum number of symbolic links in one path, as in containerd.
const MOST_LINKS: usize = 255;
/// Maximum number of components of symbolic link targets that are followed for an archive.
const MOST_STEPS: usize = 10_000_000;

/// Seconds and nanoseconds since 1970.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub seconds: u64,
    pub nanoseconds: u32,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Permissions, including the set-user-ID, set-group-ID and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub mtime: Time,
    /// Extended attributes by their full names.
    pub extended: BTreeMap<Box<str>, Box<[u8]>>,
}

/// A part of a file that is not a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The part's offset in the file.
    pub offset: u64,
    /// The part's offset in the file of contents.
    pub stored: u64,
    pub length: u64,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Directory(Directory),
    File { size: u64, extents: Box<[Extent]> },
    Symlink(Box<[u8]>),
    Device { is_block: bool, numbers: [u32; 2] },
    Fifo,
}

impl Kind {
    pub(crate) const WHITEOUT: Kind = Kind::Device {
        is_block: false,
        numbers: [0, 0],
    };
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Directory {
    pub children: BTreeMap<Box<[u8]>, Number>,
    /// Whether the directory hides the contents of the same directory in the layers below.
    pub is_opaque: bool,
    /// Whether the archive has an entry for the directory, and whether it precedes the contents.
    pub stated: Stated,
    /// Whether, when this directory was created, its parent had no entry in the archive either.
    pub was_made_in_implied: bool,
}

/// Whether an archive has an entry for a directory.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stated {
    /// The entry precedes those of the directory's contents.
    #[default]
    First,
    /// The entry comes after an entry for a file in the directory.
    Later,
    /// The archive has no entry for it.
    Never,
}

#[derive(Debug)]
pub(crate) struct Inode {
    pub attributes: Attributes,
    pub kind: Kind,
    /// The number of names that the inode has.
    pub links: usize,
}

/// All names of a layer.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    inodes: Vec<Option<Inode>>,
    steps: usize,
}

/// A path without symbolic links: each name, and its inode if it has one.
type Real = Vec<(Box<[u8]>, Option<Number>)>;

impl Tree {
    /// Creates a tree with the root that containerd makes, regardless of the archive.
    pub(crate) fn new() -> Tree {
        let mut tree = Tree::default();
        let root = Kind::Directory(Directory::default());
        let root = tree.add(directory_attributes(), root);
        tree.inode_mut(root).links = 1;
        tree
    }

    pub(crate) fn inode(&self, number: Number) -> &Inode {
        self.inodes[number].as_ref().expect("an inode with names")
    }

    pub(crate) fn inode_mut(&mut self, number: Number) -> &mut Inode {
        self.inodes[number].as_mut().expect("an inode with names")
    }

    /// Adds an inode without a name.
    pub(crate) fn add(&mut self, attributes: Attributes, kind: Kind) -> Number {
        self.inodes.push(Some(Inode {
            attributes,
            kind,
            links: 0,
        }));
        self.inodes.len() - 1
    }

    pub(crate) fn directory(&self, number: Number) -> Option<&Directory> {
        match &self.inode(number).kind {
            Kind::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn directory_mut(&mut self, number: Number) -> Option<&mut Directory> {
        match &mut self.inode_mut(number).kind {
            Kind::Directory(directory) => Some(directory),
            _ => None,
        }
    }

    fn is_whiteout(&self, number: Number) -> bool {
        self.inode(number).kind == Kind::WHITEOUT
    }

    pub(crate) fn child(&self, parent: Number, name: &[u8]) -> Option<Number> {
        self.directory(parent)?.children.get(name).copied()
    }

    /// Gives an inode a name, which must be free in `parent`, a directory.
    pub(crate) fn link(&mut self, parent: Number, name: &[u8], number: Number) {
        self.inode_mut(number).links += 1;
        if let Some(directory) = self.directory_mut(parent) {
            directory.children.insert(name.into(), number);
        }
    }

    /// Removes a name and everything below it.
    pub(crate) fn remove(&mut self, parent: Number, name: &[u8]) {
        let directory = self.directory_mut(parent);
        let removed = directory.and_then(|directory| directory.children.remove(name));
        let mut removed = Vec::from_iter(removed);
        while let Some(number) = removed.pop() {
            let inode = self.inode_mut(number);
            inode.links -= 1;
            if inode.links == 0
                && let Some(inode) = self.inodes[number].take()
                && let Kind::Directory(directory) = inode.kind
            {
                removed.extend(directory.children.into_values());
            }
        }
    }

    /// The directory that the names lead to, following symbolic links within the layer. Missing
    /// directories are created as implied ones; a whiteout is replaced by an opaque directory. The
    /// error names the obstacle.
    pub(crate) fn make_parents(&mut self, names: &[&[u8]]) -> Result<Number, String> {
        let mut parent = ROOT;
        for (name, number) in self.real(names.iter().copied())? {
            let next = number.or_else(|| self.child(parent, &name));
            // containerd replaces whiteouts in the lowest layer of an image, and fails at those in
            // other layers.
            let is_opaque = next.is_some_and(|next| self.is_whiteout(next));
            if is_opaque {
                self.remove(parent, &name);
            }
            let next = next.filter(|_| !is_opaque);
            parent = match next {
                Some(number) if self.directory(number).is_some() => number,
                Some(_) => return Err(format!("{} is not a directory", name.escape_ascii())),
                None => {
                    let directory = Directory {
                        stated: Stated::Never,
                        was_made_in_implied: self
                            .directory(parent)
                            .is_some_and(|above| above.stated == Stated::Never),
                        is_opaque,
                        ..Directory::default()
                    };
                    let mut attributes = directory_attributes();
                    // mkdir(2) inherits the group in the same way.
                    let above = &self.inode(parent).attributes;
                    if above.mode & SET_GROUP != 0 {
                        attributes.gid = above.gid;
                    }
                    let made = self.add(attributes, Kind::Directory(directory));
                    self.link(parent, &name, made);
                    made
                }
            };
        }
        Ok(parent)
    }

    /// The inode that the names lead to, if there is one.
    pub(crate) fn find(&mut self, names: &[&[u8]]) -> Result<Option<Number>, String> {
        let real = self.real(names.iter().copied())?;
        Ok(real.last().map_or(Some(ROOT), |(_, number)| *number))
    }

    /// Follows symbolic links, for which the layer's root is the root directory.
    fn real<'n>(&mut self, names: impl Iterator<Item = &'n [u8]>) -> Result<Real, String> {
        let mut waiting: VecDeque<Box<[u8]>> = names.map(Box::from).collect();
        let (mut real, mut links): (Real, usize) = (Vec::new(), 0);
        while let Some(name) = waiting.pop_front() {
            if *name == *b".." {
                real.pop();
                continue;
            }
            if name.len() > LONGEST_NAME {
                return Err(format!("a name of {} bytes", name.len()));
            }
            let parent = real.last().map_or(Some(ROOT), |(_, number)| *number);
            if let Some(parent) = parent
                && self.directory(parent).is_none()
            {
                let last = real.last().map_or(&b"/"[..], |(name, _)| name);
                return Err(format!("{} is not a directory", last.escape_ascii()));
            }
            let number = parent.and_then(|parent| self.child(parent, &name));
            let number = number.filter(|&number| !self.is_whiteout(number));
            let Some(Kind::Symlink(target)) = number.map(|number| &self.inode(number).kind) else {
                real.push((name, number));
                continue;
            };
            links += 1;
            if target.starts_with(b"/") {
                real.clear();
            }
            let components: Vec<Box<[u8]>> = split(target).map(Box::from).collect();
            self.steps += components.len() + 1;
            if links > MOST_LINKS || self.steps > MOST_STEPS {
                return Err("too many symbolic links".into());
            }
            for component in components.into_iter().rev() {
                waiting.push_front(component);
            }
        }
        let length: usize = real.iter().map(|(name, _)| name.len() + 1).sum();
        match length > LONGEST_PATH {
            true => Err(format!("a path of {length} bytes")),
            false => Ok(real),
        }
    }

    /// Visits each name with its inode: directories before their contents, in the order of names,
    /// beginning with the root, whose path is empty.
    pub(crate) fn walk(
        &self,
        mut visit: impl FnMut(&[u8], Number) -> Result<(), crate::Error>,
    ) -> Result<(), crate::Error> {
        visit(b"", ROOT)?;
        let mut names: Vec<&[u8]> = Vec::new();
        let children = |number| Some(self.directory(number)?.children.iter());
        let mut open = Vec::from_iter(children(ROOT));
        while let Some(last) = open.last_mut() {
            match last.next() {
                None => {
                    open.pop();
                    names.pop();
                }
                Some((name, &number)) => {
                    names.push(name);
                    visit(&names.join(&b'/'), number)?;
                    match children(number) {
                        Some(below) => open.push(below),
                        None => drop(names.pop()),
                    }
                }
            }
        }
        Ok(())
    }

    /// The number of directories without an entry before the files in them.
    pub(crate) fn implied(&self) -> usize {
        let is_implied = |inode: &&Inode| match &inode.kind {
            Kind::Directory(directory) => directory.stated != Stated::First,
            _ => false,
        };
        self.inodes.iter().flatten().filter(is_implied).count()
    }
}

/// The attributes of a directory that the archive does not describe.
fn directory_attributes() -> Attributes {
    Attributes {
        mode: 0o755,
        ..Attributes::default()
    }
}
