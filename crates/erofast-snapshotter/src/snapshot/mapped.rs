//! Layers with the owners of a pod's user namespace: `mapped/ID/N` are ID-mapped clones of the
//! layers' mounts.
//!
//! containerd can map owners, but it clones the folder that contains the layers, and the clone
//! omits layers that are separate mounts (2.1.5, 2.2).

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sys::mapped_owners::mount_mapped;

use super::mounts::Mappings;
use crate::folder::{Numbered, if_there};
use crate::layer::mount_table::detach;

/// The folder `mapped` below the root of the snapshotter.
#[derive(Debug)]
pub struct Mapped(Numbered);

impl Mapped {
    /// Creates the folder if it is missing.
    pub fn new(root: &Path) -> io::Result<Self> {
        Numbered::new(root, "mapped").map(Self)
    }

    /// Clones the mounts of a snapshot's layers with these mappings, and returns the paths of the
    /// clones.
    pub fn make(
        &self,
        id: u64,
        layers: &[PathBuf],
        mappings: &Mappings,
    ) -> io::Result<Vec<PathBuf>> {
        // A layer may have been mounted again since the last call.
        self.remove(id)?;
        let namespace = user_namespace(mappings)?;
        let mut clones = Vec::new();
        for (number, layer) in layers.iter().enumerate() {
            let clone = self.0.of(id).join(number.to_string());
            fs::create_dir_all(&clone)?;
            mount_mapped(layer, &clone, namespace.as_fd())?;
            clones.push(clone);
        }
        Ok(clones)
    }

    /// Detaches the clones of a snapshot; running containers keep theirs.
    pub fn remove(&self, id: u64) -> io::Result<()> {
        let folder = self.0.of(id);
        let Some(entries) = if_there(fs::read_dir(&folder))? else {
            return Ok(());
        };
        for entry in entries {
            let path = entry?.path();
            detach(&path)?;
            fs::remove_dir(&path)?;
        }
        fs::remove_dir(folder)
    }

    /// The snapshots that have clones.
    pub fn present(&self) -> io::Result<Vec<u64>> {
        self.0.present()
    }
}

/// A user namespace with these mappings, created by a process that then ends. The namespace
/// disappears when the last descriptor for it is closed.
fn user_namespace(mappings: &Mappings) -> io::Result<File> {
    let mut process = Command::new("unshare")
        .args(["--user", "cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| io::Error::new(error.kind(), format!("unshare: {error}")))?;
    let namespace = mapped_namespace(&mut process, mappings);
    let _ = process.kill();
    let _ = process.wait();
    namespace
}

fn mapped_namespace(process: &mut Child, mappings: &Mappings) -> io::Result<File> {
    // The process answers once it is in its new namespace.
    if let (Some(input), Some(output)) = (&mut process.stdin, &mut process.stdout) {
        input.write_all(b"\n")?;
        output.read_exact(&mut [0])?;
    }
    let folder = Path::new("/proc").join(process.id().to_string());
    for (file, mapping) in [("uid_map", &mappings.users), ("gid_map", &mappings.groups)] {
        let lines = mapping.replace(':', " ").replace(',', "\n");
        fs::write(folder.join(file), lines)?;
    }
    File::open(folder.join("ns/user"))
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn owners_are_mapped_and_nothing_stays() {
        if !rustix::process::geteuid().is_root() {
            return println!("skipped: not root");
        }
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer");
        fs::create_dir(&layer).unwrap();
        fs::write(layer.join("file"), "").unwrap();
        let mapped = Mapped::new(folder.path()).unwrap();
        let mappings = Mappings {
            users: "0:100000:65536".into(),
            groups: "0:200000:1000,1000:300000:1".into(),
        };
        let layers = [layer.clone(), layer.clone()];
        for _ in 0..2 {
            let clones = match mapped.make(7, &layers, &mappings) {
                Err(error) if error.kind() == ErrorKind::InvalidInput => {
                    return println!("skipped: cannot map owners here: {error}");
                }
                clones => clones.unwrap(),
            };
            assert_eq!(clones.len(), 2);
            for clone in &clones {
                let file = fs::metadata(clone.join("file")).unwrap();
                assert_eq!((file.uid(), file.gid()), (100_000, 200_000));
            }
        }
        assert_eq!(mapped.present().unwrap(), [7]);
        mapped.remove(7).unwrap();
        assert!(mapped.present().unwrap().is_empty());
        let wrong = Mappings {
            users: "none".into(),
            groups: "none".into(),
        };
        assert!(mapped.make(8, &layers, &wrong).is_err());
    }
}
