//! Resolves paths inside an image.

use std::sync::Arc;

use erofs_format::{FileType, Inode, Nid};

use crate::error::errno;
use crate::{Engine, Error, Result};

/// Maximum number of symlinks followed in one path, as in Linux.
const SYMLINKS_MAX: usize = 40;

impl Engine {
    /// The inode at `path`, from the root of the image. Empty components are ignored, but after a
    /// slash at its end the path must be that of a directory; `..` stops at the root. Symlinks on
    /// the way are followed inside the image, but a symlink in the last component only if `follow`
    /// is true.
    pub fn resolve(&self, path: &[u8], follow: bool) -> Result<Arc<Inode>> {
        let request = self.waiting();
        let mut followed = 0;
        let mut trail: Vec<Nid> = vec![self.root()];
        let mut todo = steps(path);
        while let Some(name) = todo.pop() {
            let here = self.inode(*trail.last().unwrap_or(&self.root()))?;
            if here.file_type() != FileType::Directory {
                return Err(self.path_error(path, "not a directory", errno::ENOTDIR));
            }
            match &name[..] {
                b"." => continue,
                b".." => {
                    trail.truncate((trail.len() - 1).max(1));
                    continue;
                }
                _ => {}
            }
            let nid = self
                .lookup(&request, &here, &name)?
                .ok_or_else(|| self.path_error(path, "no such file or directory", errno::ENOENT))?;
            let inode = self.inode(nid)?;
            if inode.file_type() == FileType::Symlink && (follow || !todo.is_empty()) {
                followed += 1;
                if followed > SYMLINKS_MAX {
                    return Err(self.path_error(path, "too many symbolic links", errno::ELOOP));
                }
                let target = self.read_link(&request, &inode)?;
                if target.starts_with(b"/") {
                    trail.truncate(1);
                }
                todo.extend(steps(&target));
            } else {
                trail.push(nid);
            }
        }
        self.inode(*trail.last().unwrap_or(&self.root()))
    }

    fn path_error(&self, path: &[u8], what: &'static str, errno: i32) -> Error {
        let path = String::from_utf8_lossy(path).into_owned();
        Error::Path {
            image: self.name().into(),
            path,
            what,
            errno,
        }
    }
}

/// The names in a path, in reverse order, and `.` for a slash at its end.
fn steps(path: &[u8]) -> Vec<Vec<u8>> {
    let mut names = components(path);
    if path.ends_with(b"/") || path.ends_with(b"/.") {
        names.insert(0, b".".to_vec());
    }
    names
}

/// The names in a path, in reverse order.
pub(super) fn components(path: &[u8]) -> Vec<Vec<u8>> {
    path.split(|&byte| byte == b'/')
        .filter(|name| !name.is_empty() && *name != b".")
        .map(<[u8]>::to_vec)
        .rev()
        .collect()
}
