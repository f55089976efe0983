//! The mounts that make up a snapshot: overlayfs over its layers, or a bind mount if there is only
//! one directory.

use std::path::{Path, PathBuf};

use super::record::Labels;

/// Labels with the mappings of a user namespace.
const LABELS: [&str; 2] = [
    "containerd.io/snapshot/uidmapping",
    "containerd.io/snapshot/gidmapping",
];

/// Owners of files as a user namespace maps them: `CONTAINER:HOST:SIZE`, separated by commas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mappings {
    /// Mapping of user IDs.
    pub users: String,
    /// Mapping of group IDs.
    pub groups: String,
}

impl Mappings {
    /// The mappings of a snapshot, if it has both.
    pub fn of(labels: &Labels) -> Option<Self> {
        let [users, groups] = LABELS.map(|label| labels.get(label).cloned());
        let (users, groups) = (users?, groups?);
        Some(Self { users, groups })
    }

    /// The user and group on this machine to which root in the container is mapped.
    pub fn root(&self) -> Option<(u32, u32)> {
        Some((host_of_root(&self.users)?, host_of_root(&self.groups)?))
    }
}

/// A mount for containerd to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// `overlay` or `bind`.
    pub kind: &'static str,
    /// A directory, or the word `overlay`.
    pub source: String,
    /// The mount options.
    pub options: Vec<String>,
}

/// The directories of a writable snapshot.
#[derive(Debug)]
pub struct Upper {
    /// Changed files.
    pub files: PathBuf,
    /// The work directory of overlayfs.
    pub work: PathBuf,
}

/// The mounts of a snapshot that consists of `layers`, the top one first, and of `upper` above
/// them. Without `upper`, the snapshot is read-only.
pub fn mounts(layers: &[PathBuf], upper: Option<&Upper>) -> Vec<Mount> {
    vec![match (layers, upper) {
        ([], Some(upper)) => bind(&upper.files, "rw"),
        ([one], None) => bind(one, "ro"),
        (layers, upper) => overlay(layers, upper),
    }]
}

fn bind(folder: &Path, access: &str) -> Mount {
    Mount {
        kind: "bind",
        source: folder.display().to_string(),
        options: vec![access.into(), "rbind".into()],
    }
}

fn overlay(layers: &[PathBuf], upper: Option<&Upper>) -> Mount {
    let mut options = Vec::new();
    // With its index on, overlayfs refuses an upper directory that another mount still uses.
    if Path::new("/sys/module/overlay/parameters/index").exists() {
        options.push("index=off".into());
    }
    if let Some(upper) = upper {
        options.push(format!("workdir={}", upper.work.display()));
        options.push(format!("upperdir={}", upper.files.display()));
    }
    let layers = layers.iter().map(|layer| layer.display().to_string());
    let layers: Vec<_> = layers.collect();
    options.push(format!("lowerdir={}", layers.join(":")));
    Mount {
        kind: "overlay",
        source: "overlay".into(),
        options,
    }
}

fn host_of_root(mapping: &str) -> Option<u32> {
    mapping.split(',').find_map(|range| {
        let mut numbers = range.split(':');
        let inside = numbers.next()?;
        let outside = numbers.next()?.parse().ok();
        outside.filter(|_| inside == "0")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upper() -> Upper {
        Upper {
            files: "/r/snapshots/3/fs".into(),
            work: "/r/snapshots/3/work".into(),
        }
    }

    fn one(layers: &[&str], upper: Option<&Upper>) -> Mount {
        let layers: Vec<_> = layers.iter().map(PathBuf::from).collect();
        let mut mounts = mounts(&layers, upper);
        assert_eq!(mounts.len(), 1);
        let mut mount = mounts.remove(0);
        mount.options.retain(|option| option != "index=off");
        mount
    }

    #[test]
    fn one_directory_is_bound_and_several_are_an_overlay() {
        let bare = one(&[], Some(&upper()));
        assert_eq!(
            (bare.kind, bare.options),
            ("bind", vec!["rw".into(), "rbind".into()])
        );
        let view = one(&["/r/layers/1"], None);
        assert_eq!((view.kind, &*view.source), ("bind", "/r/layers/1"));
        assert_eq!(view.options, ["ro", "rbind"]);
        let view = one(&["/r/layers/2", "/r/layers/1"], None);
        assert_eq!(view.options, ["lowerdir=/r/layers/2:/r/layers/1"]);
        let active = one(&["/r/layers/1"], Some(&upper()));
        assert_eq!(active.kind, "overlay");
        let options = [
            "workdir=/r/snapshots/3/work",
            "upperdir=/r/snapshots/3/fs",
            "lowerdir=/r/layers/1",
        ];
        assert_eq!(active.options, options);
    }

    #[test]
    fn mappings_of_owners_name_the_root() {
        let mut labels = Labels::new();
        labels.insert(LABELS[0].into(), "5:7:1,0:100000:65536".into());
        assert_eq!(Mappings::of(&labels), None, "one of them");
        labels.insert(LABELS[1].into(), "0:200000:65536".into());
        let root = || Mappings::of(&labels).and_then(|mappings| mappings.root());
        assert_eq!(root(), Some((100_000, 200_000)));
        labels.insert(LABELS[0].into(), "none".into());
        let root = Mappings::of(&labels).and_then(|mappings| mappings.root());
        assert_eq!(root, None);
    }
}
