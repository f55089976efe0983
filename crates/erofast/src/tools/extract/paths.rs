//! Paths that are needed later, as a tree: a directory is stored once for all its entries.

/// Maximum number of remembered paths, and of bytes in their names.
const PATHS: usize = 2 << 20;
const BYTES: usize = 64 << 20;

/// A remembered path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathId(u32);

struct Node {
    parent: Option<PathId>,
    /// Where the name begins in `names`.
    start: u32,
    length: u16,
}

/// Remembered paths.
#[derive(Default)]
pub struct Paths {
    nodes: Vec<Node>,
    names: Vec<u8>,
    /// Directories above the path added last, each with the length of its path.
    above: Vec<(usize, PathId)>,
}

impl Paths {
    /// Remembers a path. Paths must be added in the order of a walk, each directory before its
    /// contents. Returns `None` if too many paths are remembered already, or if the path's
    /// directory is not.
    pub fn add(&mut self, path: &[u8], directory: bool) -> Option<PathId> {
        let slash = path.iter().rposition(|&byte| byte == b'/');
        let (above, name) = match slash {
            Some(slash) => (slash, &path[slash + 1..]),
            None => (0, path),
        };
        while self.above.last().is_some_and(|(length, _)| *length > above) {
            self.above.pop();
        }
        let parent = match self.above.last() {
            _ if slash.is_none() => None,
            Some(&(length, parent)) if length == above => Some(parent),
            _ => return None,
        };
        if self.nodes.len() >= PATHS || self.names.len() + name.len() > BYTES {
            return None;
        }
        let id = PathId(self.nodes.len() as u32);
        self.nodes.push(Node {
            parent,
            start: self.names.len() as u32,
            length: name.len() as u16,
        });
        self.names.extend_from_slice(name);
        if directory && !path.is_empty() {
            self.above.push((path.len(), id));
        }
        Some(id)
    }

    /// Returns the whole path.
    pub fn path(&self, id: PathId) -> Vec<u8> {
        let mut names = Vec::new();
        let mut next = Some(id);
        while let Some(PathId(index)) = next {
            let node = &self.nodes[index as usize];
            names.push(&self.names[node.start as usize..][..usize::from(node.length)]);
            next = node.parent;
        }
        names.reverse();
        names.join(&b'/')
    }
}

#[cfg(test)]
mod tests {
    use super::Paths;

    #[test]
    fn paths_come_back_as_they_were_added() {
        let mut paths = Paths::default();
        let all = [
            (&b""[..], true),
            (b"a", true),
            (b"a/b", true),
            (b"a/b/c", false),
            (b"a/d", false),
            (b"ab", true),
            (b"ab/c", false),
        ];
        let ids: Vec<_> = all
            .iter()
            .map(|(path, directory)| paths.add(path, *directory).expect("room"))
            .collect();
        for ((path, _), id) in all.iter().zip(ids) {
            assert_eq!(paths.path(id), *path);
        }
        assert_eq!(paths.add(b"unknown/c", false), None);
    }
}
