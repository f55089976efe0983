//! The archive that the kernel unpacks into its first root directory.

use std::io::{self, Write};

/// Names under which busybox does the rest.
const APPLETS: [&str; 6] = ["sh", "chroot", "cat", "env", "mount", "mkdir"];

/// The archive format of the kernel's initramfs ("newc": thirteen numbers of eight hexadecimal
/// digits, a name and the content, each padded to four bytes).
pub(super) struct Cpio<W> {
    out: W,
    bytes: u64,
    inode: u32,
    directories: Vec<String>,
}

/// File types of st_mode.
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const LINK: u32 = 0o120_000;
const CHARACTERS: u32 = 0o020_000;

impl<W: Write> Cpio<W> {
    pub(super) fn new(out: W) -> Self {
        Cpio {
            out,
            bytes: 0,
            inode: 0,
            directories: Vec::new(),
        }
    }

    /// Directories to mount on, links of a merged /usr, names of busybox, and the console, which
    /// the kernel opens before anything is mounted.
    pub(super) fn skeleton(&mut self) -> io::Result<()> {
        for name in [
            "/dev",
            "/proc",
            "/sys",
            "/tmp",
            "/var/tmp",
            "/run",
            "/root",
            "/usr/bin",
            "/usr/sbin",
            "/usr/lib",
            "/usr/lib64",
        ] {
            self.directory(name)?;
        }
        for name in ["bin", "sbin", "lib", "lib64"] {
            self.entry(
                &format!("/{name}"),
                LINK | 0o777,
                (0, 0),
                format!("usr/{name}").as_bytes(),
            )?;
        }
        for applet in APPLETS {
            self.entry(
                &format!("/usr/bin/{applet}"),
                LINK | 0o777,
                (0, 0),
                b"busybox",
            )?;
        }
        self.entry("/dev/console", CHARACTERS | 0o600, (5, 1), &[])
    }

    pub(super) fn directory(&mut self, path: &str) -> io::Result<()> {
        if path.is_empty() || self.directories.iter().any(|known| known == path) {
            return Ok(());
        }
        self.directory(&path[..path.rfind('/').unwrap_or(0)])?;
        self.directories.push(path.to_owned());
        self.entry(path, DIRECTORY | 0o755, (0, 0), &[])
    }

    pub(super) fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        let path = through_links(path);
        self.directory(&path[..path.rfind('/').unwrap_or(0)])?;
        self.entry(&path, REGULAR | mode, (0, 0), content)
    }

    fn entry(
        &mut self,
        path: &str,
        mode: u32,
        device: (u32, u32),
        content: &[u8],
    ) -> io::Result<()> {
        let name = path.trim_start_matches('/');
        self.inode += 1;
        let length = u32::try_from(content.len())
            .map_err(|_| io::Error::other(format!("{path} is larger than 4 GiB")))?;
        let links = if mode & 0o170_000 == DIRECTORY { 2 } else { 1 };
        let name_length = name.len() as u32 + 1;
        let fields = [
            self.inode,
            mode,
            0,
            0,
            links,
            0,
            length,
            0,
            0,
            device.0,
            device.1,
            name_length,
            0,
        ];
        let head: String = fields.iter().map(|field| format!("{field:08X}")).collect();
        self.put(format!("070701{head}{name}\0").as_bytes())?;
        self.pad()?;
        self.put(content)?;
        self.pad()
    }

    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.bytes += bytes.len() as u64;
        self.out.write_all(bytes)
    }

    fn pad(&mut self) -> io::Result<()> {
        let more = self.bytes.next_multiple_of(4) - self.bytes;
        self.put(&[0; 4][..more as usize])
    }

    /// The end; the length of it all.
    pub(super) fn finish(mut self) -> io::Result<u64> {
        self.entry("TRAILER!!!", 0, (0, 0), &[])?;
        self.out.flush()?;
        Ok(self.bytes)
    }
}

/// Paths through the links of a merged /usr: the kernel makes files at the literal path.
fn through_links(path: &str) -> String {
    let linked = ["/bin/", "/sbin/", "/lib/", "/lib64/"];
    match linked.iter().any(|start| path.starts_with(start)) {
        true => format!("/usr{path}"),
        false => path.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    #[test]
    fn archives_are_what_cpio_reads() {
        let mut bytes = Vec::new();
        let mut cpio = Cpio::new(&mut bytes);
        cpio.skeleton().unwrap();
        cpio.file("/lib/a/b.so.1", 0o755, b"content").unwrap();
        cpio.finish().unwrap();
        if crate::process::in_path("cpio").is_none() {
            return println!("skipped: cpio is not installed");
        }
        let file = std::env::temp_dir().join(format!("erofast-cpio-{}", std::process::id()));
        fs::write(&file, &bytes).unwrap();
        let listed = std::process::Command::new("cpio")
            .args(["-it", "--quiet"])
            .stdin(File::open(&file).unwrap())
            .output()
            .unwrap();
        fs::remove_file(&file).unwrap();
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(
            listed.status.success(),
            "{}",
            String::from_utf8_lossy(&listed.stderr)
        );
        for name in ["dev/console", "usr/lib/a/b.so.1", "lib", "usr/bin/sh"] {
            assert!(text.lines().any(|line| line == name), "{name}: {text}");
        }
    }
}
