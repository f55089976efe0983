//! What the machine boots with: a kernel, and an archive in memory that is all of its files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::cpio::Cpio;
use super::job::{EROFAST, GUEST, IMAGE, JOB, Job, LAB, MODULES};
use super::libraries;
use super::module::Modules;
use super::packages::Packages;
use super::sandbox::Sandbox;
use super::work::Work;
use crate::{Interrupt, LabError, Result};

/// Modules of the distribution that the machine needs, by the names modprobe knows; what they need
/// comes along. Those built into the kernel are none.
const MODULES_NEEDED: [&str; 5] = ["virtio_pci", "virtio_blk", "loop", "fuse", "erofs"];
/// Programs of the packages that the experiment runs.
const PROGRAMS: [&str; 2] = ["/usr/bin/fio", "/usr/sbin/losetup"];
/// Root directory of the packages' programs. Our own have the libraries of the host, where they
/// expect them, since they start themselves again; theirs are others of the same names.
const PACKAGES: &str = "/packages";

/// Files of the boot, as the sandbox sees them.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) kernel: PathBuf,
    pub(super) initramfs: &'static str,
    /// Memory of the machine.
    pub(super) memory_mib: u64,
}

/// Makes the archive.
pub(super) fn make(
    mut job: Job,
    erofast: &Path,
    modules: &Modules,
    packages: &Packages,
    sandbox: &Sandbox,
    work: &Work,
    interrupt: &Interrupt,
) -> Result<Boot> {
    let needed = needed_modules(packages, sandbox, work, interrupt)?;
    let archive = work.inside("initramfs");
    let mut files = Files::new(work.root());
    let mut scripts = Vec::new();
    for (place, name) in &needed {
        files.host(place, &format!("{MODULES}/{name}"));
        job.modules.push(name.clone());
    }
    for (variant, path) in modules {
        files.host(path, &format!("{MODULES}/{}", variant.file()));
    }
    for program in PROGRAMS {
        files.package(program);
        scripts.push((program, enter(program)));
        libraries::inside(sandbox, program)?
            .iter()
            .for_each(|library| files.package(library));
    }
    files.host(&work.root().join("usr/bin/busybox"), "/bin/busybox");
    let own = std::env::current_exe().map_err(|source| LabError::Io {
        what: "looking for this program".into(),
        source,
    })?;
    for (program, place) in [(own.as_path(), LAB), (erofast, EROFAST)] {
        files.host(program, place);
        for library in libraries::of(program)? {
            files.host(&library, &library.to_string_lossy());
        }
    }
    let image_bytes = job.image_bytes;
    let job = serde_json::to_vec(&job).unwrap_or_default();
    let write = || {
        let mut out = Cpio::new(BufWriter::new(File::create(&archive)?));
        out.skeleton()?;
        out.file("/init", 0o755, init().as_bytes())?;
        for (program, script) in &scripts {
            out.file(program, 0o755, script.as_bytes())?;
        }
        for directory in mount_points() {
            out.directory(&directory)?;
        }
        out.file(JOB, 0o644, &job)?;
        files.write(&mut out)?;
        out.finish()
    };
    let bytes = write().map_err(|source| LabError::io("writing", &archive, source))?;
    Ok(Boot {
        kernel: Path::new("/").join(
            packages
                .kernel
                .strip_prefix(work.root())
                .unwrap_or(&packages.kernel),
        ),
        initramfs: "/build/initramfs",
        // The archive lies in memory twice while it is unpacked, the image once; 2 x 48 MiB of
        // trace.
        memory_mib: 1024 + (2 * bytes + image_bytes) / (1 << 20),
    })
}

/// Enters the packages' root for one of their programs. The process stays the same.
fn enter(program: &str) -> String {
    format!("#!/bin/busybox sh\nexec /bin/busybox chroot {PACKAGES} {program} \"$@\"\n")
}

/// Directory of the image.
fn image_directory() -> &'static str {
    IMAGE
        .rsplit_once('/')
        .map_or("/", |(directory, _)| directory)
}

/// What is mounted on in the root, and the same in the packages' root.
fn mount_points() -> Vec<String> {
    let names = ["/dev", "/proc", "/sys", "/tmp", image_directory()];
    let below = names.iter().map(|name| format!("{PACKAGES}{name}"));
    let own = std::iter::once(image_directory().to_owned());
    own.chain(below).collect()
}

/// The init script: mounts what every program needs, then runs this program in its place.
fn init() -> String {
    let image = image_directory();
    format!(
        "#!/bin/busybox sh
for root in '' {PACKAGES}; do
    /bin/busybox mount -t devtmpfs dev $root/dev
    /bin/busybox mount -t proc proc $root/proc
    /bin/busybox mount -t sysfs sys $root/sys
    /bin/busybox mount -t tmpfs tmp $root/tmp
done
/bin/busybox mount -t tmpfs image {image}
/bin/busybox mount --bind {image} {PACKAGES}{image}
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec {LAB} {}
",
        GUEST.join(" ")
    )
}

/// The modules to load, in the order in which they need one another, unpacked; by file and name.
fn needed_modules(
    packages: &Packages,
    sandbox: &Sandbox,
    work: &Work,
    interrupt: &Interrupt,
) -> Result<Vec<(PathBuf, String)>> {
    let release = &packages.release;
    let script = format!("depmod -b /build/image {release}");
    sandbox.shell("looking what the modules need", &script, interrupt)?;
    let directory = work.inside("image").join("lib/modules").join(release);
    let read = |name: &str| {
        let path = directory.join(name);
        fs::read_to_string(&path).map_err(|source| LabError::io("reading", &path, source))
    };
    let files = order(&read("modules.dep")?, &read("modules.builtin")?)?;
    let mut needed = Vec::new();
    for file in files {
        let name = module_name(&file);
        // The experiment brings its own.
        if name == "erofs" {
            continue;
        }
        let plain = work.inside(&format!("{name}.ko"));
        let packed = format!("/build/image/lib/modules/{release}/{file}");
        let unpack = match Path::new(&file).extension().and_then(|end| end.to_str()) {
            Some("xz") => format!("xz -dc {packed} > /build/{name}.ko"),
            _ => format!("cp {packed} /build/{name}.ko"),
        };
        sandbox.shell(&format!("unpacking the module {name}"), &unpack, interrupt)?;
        needed.push((plain, format!("{name}.ko")));
    }
    Ok(needed)
}

/// "kernel/drivers/block/loop.ko.xz" is "loop".
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split('.').next().unwrap_or(name).replace('-', "_")
}

/// Files of [`MODULES_NEEDED`] and of what they need, the needed ones first.
fn order(dependencies: &str, builtin: &str) -> Result<Vec<String>> {
    let mut order: Vec<String> = Vec::new();
    for wanted in MODULES_NEEDED {
        let line = dependencies
            .lines()
            .filter_map(|line| line.split_once(':'))
            .find(|(file, _)| module_name(file) == wanted);
        let Some((file, needs)) = line else {
            if builtin.lines().any(|file| module_name(file) == wanted) {
                continue;
            }
            return Err(LabError::Kernel(format!(
                "this kernel has no module {wanted}, and none built in"
            )));
        };
        // depmod writes what must be loaded first at the end.
        let files = needs.split_whitespace().rev().chain([file]);
        for file in files {
            if !order.iter().any(|known| known == file) {
                order.push(file.to_owned());
            }
        }
    }
    Ok(order)
}

/// Files to pack: from where, to where.
struct Files {
    root: PathBuf,
    all: Vec<(PathBuf, String)>,
}

impl Files {
    fn new(root: PathBuf) -> Self {
        Files {
            root,
            all: Vec::new(),
        }
    }

    fn host(&mut self, from: &Path, to: &str) {
        if !self.all.iter().any(|(_, known)| known == to) {
            self.all.push((from.to_owned(), to.to_owned()));
        }
    }

    /// A file of the packages, to where they have it below their root.
    fn package(&mut self, path: impl AsRef<Path>) {
        let path = path.as_ref();
        let to = format!("{PACKAGES}{}", path.display());
        self.host(&below(&self.root, path), &to);
    }

    fn write(&self, out: &mut Cpio<impl Write>) -> io::Result<()> {
        for (from, to) in &self.all {
            let read = fs::read(from).map_err(|reason| {
                io::Error::new(reason.kind(), format!("{}: {reason}", from.display()))
            });
            out.file(to, 0o755, &read?)?;
        }
        Ok(())
    }
}

/// Where a path inside of `root` really is: a link that begins with a slash means that root's.
fn below(root: &Path, path: &Path) -> PathBuf {
    let mut path = path.to_path_buf();
    // As many links in a row as the kernel follows.
    for _ in 0..40 {
        let at = root.join(path.strip_prefix("/").unwrap_or(&path));
        match fs::read_link(&at) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("/")).join(to),
            Err(_) => return at,
        }
    }
    root.join(path.strip_prefix("/").unwrap_or(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_loaded_after_what_they_need() {
        let dependencies = "kernel/fs/fuse/fuse.ko.xz:\n\
            kernel/fs/erofs/erofs.ko.xz: kernel/lib/libcrc32c.ko.xz kernel/lib/base.ko.xz\n\
            kernel/drivers/block/loop.ko.xz:\nkernel/drivers/block/virtio_blk.ko.xz:\n";
        let builtin = "kernel/drivers/virtio/virtio_pci.ko\n";
        let files = order(dependencies, builtin).unwrap();
        let names: Vec<String> = files.iter().map(|file| module_name(file)).collect();
        assert_eq!(
            names,
            ["virtio_blk", "loop", "fuse", "base", "libcrc32c", "erofs"]
        );
        let error = order(dependencies, "").unwrap_err().to_string();
        assert!(error.contains("no module virtio_pci"), "{error}");
    }

    #[test]
    fn this_program_starts_by_itself_and_those_of_the_packages_in_their_own_root() {
        let init = init();
        assert!(
            init.ends_with("exec /usr/bin/erofast-lab lab guest\n"),
            "{init}"
        );
        assert!(
            init.contains("mount --bind /image /packages/image"),
            "{init}"
        );
        let enter = enter("/usr/bin/fio");
        assert!(
            enter.contains("chroot /packages /usr/bin/fio \"$@\""),
            "{enter}"
        );
        assert!(mount_points().contains(&"/packages/dev".to_owned()));
    }

    #[test]
    fn links_of_the_packages_stay_in_their_root() {
        let root = std::env::temp_dir().join(format!("erofast-below-{}", std::process::id()));
        fs::create_dir_all(root.join("lib64")).unwrap();
        std::os::unix::fs::symlink("/lib/real.so", root.join("lib64/a.so")).unwrap();
        std::os::unix::fs::symlink("a.so", root.join("lib64/b.so")).unwrap();
        let found = below(&root, Path::new("/lib64/b.so"));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(found, root.join("lib/real.so"));
    }
}
