//! The tree from which an image is made: programs with their libraries and data.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::in_path;

/// Directories that are symlinks into /usr on many distributions.
const LINKED: [&str; 6] = ["bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// Maximum depth of directories: a deeper one must be part of a loop of symlinks.
const DEEPEST: usize = 24;

/// A directory that will be the root directory of a program.
#[derive(Debug)]
pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// Creates an empty tree at `root`, with this machine's symlinks for a merged /usr.
    pub(super) fn new(root: PathBuf) -> io::Result<Tree> {
        for name in ["tmp", "dev", "proc"] {
            fs::create_dir_all(root.join(name))?;
        }
        for name in LINKED {
            if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
                fs::create_dir_all(root.join(target.strip_prefix("/").unwrap_or(&target)))?;
                symlink(target, root.join(name))?;
            }
        }
        Ok(Tree { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Adds a file of the machine at the path by which programs know it; if that path is a symlink,
    /// the target is copied.
    pub(super) fn file(&self, path: &Path) -> io::Result<()> {
        let to = self.place(path)?;
        if to.exists() {
            return Ok(());
        }
        fs::create_dir_all(to.parent().unwrap_or(&self.root))?;
        fs::copy(path, &to)
            .map(|_| ())
            .map_err(|source| name(path, source))
    }

    /// Adds a file with the given content.
    pub(super) fn write(&self, path: &str, content: &str) -> io::Result<()> {
        let to = self.root.join(path);
        fs::create_dir_all(to.parent().unwrap_or(&self.root))?;
        fs::write(to, content)
    }

    /// Adds a program, its interpreter and its libraries.
    pub(super) fn program(&self, path: &Path) -> io::Result<()> {
        self.file(path)?;
        self.libraries(&[path.to_owned()])
    }

    /// Adds a program found in PATH; returns its path.
    pub(super) fn program_in_path(&self, program: &str) -> io::Result<PathBuf> {
        let path = in_path(program)
            .ok_or_else(|| io::Error::other(format!("{program} is not installed")))?;
        self.program(&path)?;
        Ok(path)
    }

    /// Adds a directory without the entries whose names `skip` selects, together with the libraries
    /// that the directory's own libraries need.
    pub(super) fn directory(&self, path: &Path, skip: &dyn Fn(&str) -> bool) -> io::Result<()> {
        let mut objects = Vec::new();
        self.below(path, skip, DEEPEST, &mut objects)?;
        self.libraries(&objects)
    }

    fn below(
        &self,
        path: &Path,
        skip: &dyn Fn(&str) -> bool,
        deeper: usize,
        objects: &mut Vec<PathBuf>,
    ) -> io::Result<()> {
        for entry in fs::read_dir(path).map_err(|source| name(path, source))? {
            let path = entry?.path();
            let file_name = path.file_name().unwrap_or_default().to_string_lossy();
            // A dangling symlink is left out.
            let Ok(metadata) = fs::metadata(&path) else {
                continue;
            };
            if skip(&file_name) {
                continue;
            }
            if metadata.is_dir() && deeper > 0 {
                self.below(&path, skip, deeper - 1, objects)?;
            } else if metadata.is_file() {
                self.file(&path)?;
                if path.extension() == Some(OsStr::new("so")) {
                    objects.push(path);
                }
            }
        }
        Ok(())
    }

    /// Adds the libraries that the dynamic loader maps for these files.
    fn libraries(&self, objects: &[PathBuf]) -> io::Result<()> {
        if objects.is_empty() {
            return Ok(());
        }
        let output = Command::new("ldd")
            .args(objects)
            .stdin(Stdio::null())
            .output()
            .map_err(|source| name(Path::new("ldd"), source))?;
        // The loader fails for static programs, which need no libraries.
        for library in listed(&String::from_utf8_lossy(&output.stdout)) {
            self.file(&library)?;
        }
        Ok(())
    }

    /// The path in the tree for a path of the machine; symlinks in its directory are resolved.
    fn place(&self, path: &Path) -> io::Result<PathBuf> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        let parent = parent.canonicalize().map_err(|source| name(path, source))?;
        let below = parent.strip_prefix("/").unwrap_or(&parent);
        Ok(self
            .root
            .join(below)
            .join(path.file_name().unwrap_or_default()))
    }
}

fn name(path: &Path, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), format!("{}: {source}", path.display()))
}

/// Paths in lines such as "libm.so.6 => /lib/libm.so.6 (0x7f00)" and "/lib64/ld-linux-x86-64.so.2
/// (0x7f00)".
fn listed(text: &str) -> Vec<PathBuf> {
    let path = |line: &str| {
        let from = line.split_once(" => ").map_or(line, |(_, path)| path);
        let path = from.split_whitespace().next()?;
        path.starts_with('/').then(|| PathBuf::from(path))
    };
    text.lines()
        .filter(|line| line.contains("(0x"))
        .filter_map(path)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_output_of_ldd_names_libraries_and_the_loader() {
        let text = "/usr/bin/a:\n\tlinux-vdso.so.1 (0x1)\n\tlibm.so.6 => /lib/libm.so.6 (0x2)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x3)\n\tlibx.so => not found\n";
        assert_eq!(
            listed(text),
            ["/lib/libm.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from)
        );
    }

    #[test]
    fn a_program_runs_with_the_tree_as_its_root_directory() {
        if !rustix::process::geteuid().is_root() || in_path("ldd").is_none() {
            return println!("skipped: chroot needs root, and libraries are found by ldd");
        }
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let tree = Tree::new(scratch.path().join("tree")).unwrap();
        let program = tree.program_in_path("cat").unwrap();
        tree.write("data/text", "content").unwrap();
        let output = Command::new("chroot")
            .arg(tree.root())
            .arg(&program)
            .arg("/data/text")
            .output()
            .unwrap();
        fs::remove_dir_all(tree.root()).unwrap();
        assert_eq!(output.stdout, b"content", "{output:?}");
    }
}
