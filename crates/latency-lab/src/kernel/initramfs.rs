//! The contents that the machine boots: a kernel, and an archive in memory that contains all of its
//! files.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::job::{GUEST, IMAGE_DIRECTORY, Job, LAB, MODULES, ORDER};
use super::packages::Packages;
use super::sandbox::{Sandbox, finish};
use super::work::Work;
use crate::error::Doing;
use crate::{Interrupt, LabError, Result};

/// Files of the boot, as the sandbox sees them.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) kernel: String,
    pub(super) initramfs: &'static str,
    /// Memory of the machine.
    pub(super) memory_mib: u64,
}

/// The host's part of the tree: our own programs, each followed by its name there, with the host's
/// libraries in their usual places, since the programs start themselves again. The loader lists the
/// libraries instead of starting the program, whichever loader it is.
const OWN: &str = r#"
rm -rf tree
mkdir -p tree
cd tree
for name in bin sbin lib lib64; do mkdir -p "usr/$name"; ln -s "usr/$name" "$name"; done
while [ $# -gt 0 ]; do
    install -D "$1" ".$2"
    LD_TRACE_LOADED_OBJECTS=1 "$1" --version | grep -o '/[^ ]*' |
        while read -r library; do install -D "$library" ".$library"; done
    shift 2
done
"#;

/// The packages' part: modules of the distribution, ordered by dependency (the experiment brings
/// its own erofs, and those built into the kernel are skipped), busybox, fio and losetup. The last
/// two have a separate root directory, since their libraries have the same names as the host's.
const PACKED: &str = r#"
cd /build
depmod -b image "$RELEASE"
# What it would rather have along, it does without.
rm -f "image/lib/modules/$RELEASE/modules.softdep"
mkdir -p "tree$MODULES"
for name in virtio_pci virtio_blk loop fuse erofs; do
    modprobe -d /build/image -S "$RELEASE" --show-depends "$name" > depends
    while read -r word file; do
        to=${file##*/} to=${to%.xz}
        if [ "$word" = builtin ] || [ "$to" = erofs.ko ] || [ -e "tree$MODULES/$to" ]; then continue; fi
        case $file in *.xz) xz -dc "$file" ;; *) cat "$file" ;; esac > "tree$MODULES/$to"
        echo "$to" >> "tree$ORDER"
    done < depends
done
cp erofs-*.ko "tree$MODULES"
cp /usr/bin/busybox tree/usr/bin
for name in sh chroot cat env mount mkdir; do ln -sf busybox "tree/usr/bin/$name"; done
for program in /usr/bin/fio /usr/sbin/losetup; do
    for file in "$program" $(/lib64/ld-linux-x86-64.so.2 --list "$program" | grep -o '/[^ ]*'); do
        mkdir -p "tree/packages${file%/*}"
        cp -L "$file" "tree/packages$file"
    done
    # The process stays the same.
    printf '#!/bin/busybox sh\nexec /bin/busybox chroot /packages %s "$@"\n' "$program" > "tree$program"
    chmod 755 "tree$program"
done
for root in tree tree/packages; do mkdir -p $root/dev $root/proc $root/sys $root/tmp "$root$IMAGES"; done
mkdir -p tree/var/tmp tree/run tree/root
mv init job.json tree
cd tree
find . | busybox cpio -o -H newc > ../initramfs
"#;

/// Mounts what every program needs, then replaces itself with this program.
fn init() -> String {
    format!(
        "#!/bin/busybox sh
for root in '' /packages; do
    /bin/busybox mount -t devtmpfs dev $root/dev
    /bin/busybox mount -t proc proc $root/proc
    /bin/busybox mount -t sysfs sys $root/sys
    /bin/busybox mount -t tmpfs tmp $root/tmp
done
/bin/busybox mount -t tmpfs image {IMAGE_DIRECTORY}
/bin/busybox mount --bind {IMAGE_DIRECTORY} /packages{IMAGE_DIRECTORY}
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec {LAB} {}
",
        GUEST.join(" ")
    )
}

/// Creates the archive.
pub(super) fn make(
    job: &Job,
    erofast: &Path,
    packages: &Packages,
    sandbox: &Sandbox,
    work: &Work,
    interrupt: &Interrupt,
) -> Result<Boot> {
    let own = std::env::current_exe().map_err(|source| LabError::Io {
        what: "looking for this program".into(),
        source,
    })?;
    let what = "packing the programs of the machine";
    let mut host = Command::new("/bin/sh");
    host.args(["-euc", OWN, "sh"])
        .arg(own)
        .arg(LAB)
        .arg(erofast)
        .arg(super::job::EROFAST);
    finish(what, host.current_dir(work.inside("")), interrupt)?;
    let files = [
        ("init", init().into_bytes()),
        ("job.json", serde_json::to_vec(job).unwrap_or_default()),
    ];
    for (name, content) in files {
        let path = work.inside(name);
        write(&path, &content).doing("writing", &path)?;
    }
    let mut command = sandbox.command("/bin/sh");
    command.args(["-euc", PACKED]);
    command.envs([
        ("RELEASE", packages.release.as_str()),
        ("MODULES", MODULES),
        ("ORDER", ORDER),
    ]);
    finish(
        "packing the machine",
        command.env("IMAGES", IMAGE_DIRECTORY),
        interrupt,
    )?;
    let archive = work.inside("initramfs");
    let bytes = fs::metadata(&archive).doing("looking at", &archive)?.len();
    Ok(Boot {
        kernel: format!("/build/image/boot/vmlinuz-{}", packages.release),
        initramfs: "/build/initramfs",
        // The archive is in memory twice while it is unpacked, the image once; plus 2 x 48 MiB of
        // trace.
        memory_mib: 1024 + (2 * bytes + job.image_bytes) / (1 << 20),
    })
}

/// Writes an executable file.
fn write(path: &Path, content: &[u8]) -> std::io::Result<()> {
    fs::write(path, content)?;
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_program_starts_by_itself_and_those_of_the_packages_in_their_own_root() {
        let init = init();
        assert!(init.ends_with("exec /usr/bin/erofast-lab lab guest\n"));
        assert!(init.contains("mount --bind /image /packages/image"));
        assert_eq!(super::super::job::JOB, "/job.json");
    }

    #[test]
    fn programs_are_packed_with_what_loads_them() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let programs = ["/bin/cat", "/usr/bin/a", "/bin/true", "/usr/bin/b"];
        let mut command = Command::new("/bin/sh");
        command.args(["-euc", OWN, "sh"]).args(programs);
        command.current_dir(scratch.path());
        assert!(command.status().unwrap().success());
        let tree = scratch.path().join("tree");
        let mut find = Command::new("find");
        let files = find.arg(&tree).args(["-type", "f"]).output().unwrap();
        fs::remove_dir_all(&tree).unwrap();
        let files = String::from_utf8_lossy(&files.stdout).into_owned();
        for name in ["/usr/bin/a\n", "/usr/bin/b\n", "libc.", "/ld-"] {
            assert!(files.contains(name), "{name}: {files}");
        }
    }
}
