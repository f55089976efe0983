//! The files that the machine boots from: a kernel, and an initramfs that contains everything else.

use std::fs;
use std::process::Command;

use super::job::{GUEST, IMAGE_DIRECTORY, Job, LAB, MODULES, ORDER};
use super::packages::Packages;
use super::prepared::Prepared;
use super::programs::Programs;
use super::sandbox::{TAKE, finish};
use super::work::Work;
use crate::error::Doing;
use crate::{LabError, Result};

/// The files to boot from, with their paths inside the sandbox.
#[derive(Debug)]
pub(super) struct Boot {
    pub(super) kernel: String,
    pub(super) initramfs: &'static str,
    pub(super) memory_mib: u64,
}

/// Copies the host's part of the tree, our own programs. The arguments are these programs, each
/// followed by its path in the tree. The host's libraries are copied to their usual places, since
/// the programs execute themselves again. With LD_TRACE_LOADED_OBJECTS, any loader lists the
/// libraries instead of starting the program. Programs for another CPU ($FOREIGN) are static and
/// need no libraries.
const OWN: &str = r#"
rm -rf tree
mkdir -p tree
cd tree
for name in bin sbin lib lib64; do mkdir -p "usr/$name"; ln -s "usr/$name" "$name"; done
while [ $# -gt 0 ]; do
    install -D "$1" ".$2"
    [ -n "$FOREIGN" ] || LD_TRACE_LOADED_OBJECTS=1 "$1" --version | grep -o '/[^ ]*' |
        while read -r library; do install -D "$library" ".$library"; done
    shift 2
done
"#;

/// Copies the packages' part of the tree: busybox, fio, losetup, and the distribution's modules,
/// ordered by dependency, except those that are built into the kernel and except erofs, which the
/// experiment builds itself. fio and losetup have a separate root directory, since their libraries
/// have the same names as the host's.
const PACKED: &str = r#"
cd /build
depmod -b image "$RELEASE"
# Soft dependencies are not needed.
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
cp machine/usr/bin/busybox tree/usr/bin
for name in sh chroot cat env mount mkdir; do ln -sf busybox "tree/usr/bin/$name"; done
for program in /usr/bin/fio /usr/sbin/losetup; do
    take machine "$program" tree/packages
    # Each command executes the next, so the process ID stays the same.
    printf '#!/bin/busybox sh\nexec /bin/busybox chroot /packages %s "$@"\n' "$program" > "tree$program"
    chmod 755 "tree$program"
done
for root in tree tree/packages; do mkdir -p $root/dev $root/proc $root/sys $root/tmp "$root$IMAGES"; done
mkdir -p tree/var/tmp tree/run tree/root
mv init job.json tree
cd tree
find . | busybox cpio -o -H newc > ../initramfs
"#;

/// The init script: it mounts the file systems that every program needs, then executes
/// `erofast-lab`.
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

pub(super) fn make(job: &Job, programs: &Programs, prepared: &Prepared) -> Result<Boot> {
    let Prepared { packages, work, .. } = prepared;
    let what = "packing the programs of the machine";
    let mut host = Command::new("/bin/sh");
    host.args(["-euc", OWN, "sh"])
        .arg(&programs.lab)
        .arg(LAB)
        .arg(&programs.erofast)
        .arg(super::job::EROFAST)
        .env("FOREIGN", if programs.foreign { "yes" } else { "" });
    host.current_dir(work.inside(""));
    finish(what, &mut host, &prepared.interrupt)?;
    let files = [
        ("init", init().into_bytes()),
        ("job.json", serde_json::to_vec(job).unwrap_or_default()),
    ];
    for (name, content) in files {
        let path = work.inside(name);
        write(&path, &content).doing("writing", &path)?;
    }
    let mut command = prepared.sandbox.command("/bin/sh");
    command.args(["-euc", &format!("{TAKE}{PACKED}")]);
    command.env("TRIPLET", packages.arch.triplet());
    command.envs([
        ("RELEASE", packages.release.as_str()),
        ("MODULES", MODULES),
        ("ORDER", ORDER),
    ]);
    command.env("IMAGES", IMAGE_DIRECTORY);
    finish("packing the machine", &mut command, &prepared.interrupt)?;
    let archive = work.inside("initramfs");
    let bytes = fs::metadata(&archive).doing("looking at", &archive)?.len();
    Ok(Boot {
        kernel: kernel(packages, work)?,
        initramfs: "/build/initramfs",
        // While the archive is being unpacked, memory holds it twice and the image once. The other
        // 1024 MiB also contain the trace buffers of 48 MiB per CPU.
        memory_mib: 1024 + (2 * bytes + job.image_bytes) / (1 << 20),
    })
}

/// Path of the kernel inside the sandbox. Since 6.17, packages contain the kernel beside its
/// modules.
fn kernel(packages: &Packages, work: &Work) -> Result<String> {
    let release = &packages.release;
    let places = [
        format!("boot/vmlinuz-{release}"),
        format!("usr/lib/modules/{release}/vmlinuz"),
    ];
    let inside = |place: &&String| work.inside("image").join(place).is_file();
    let found = places.iter().find(inside);
    found
        .map(|place| format!("/build/image/{place}"))
        .ok_or_else(|| {
            LabError::Preparation(format!(
                "the packages of Linux {release} have no {}",
                places.join(" and no ")
            ))
        })
}

/// Writes an executable file.
fn write(path: &std::path::Path, content: &[u8]) -> std::io::Result<()> {
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
        command.env("FOREIGN", "");
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
