//! The job of the machine: the host writes it into the initramfs, and the guest runs it.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::image::Image;
use super::options::KernelOptions;
use super::packages::Packages;
use super::variant::Variant;
use crate::engine::{Engine, Module};
use crate::launch::LaunchOptions;
use crate::shell::command_line;
use crate::{LabError, Result};

/// Version of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The path of the job inside the machine.
pub(super) const JOB: &str = "/job.json";
pub(super) const MODULES: &str = "/modules";
/// A file with the names of the modules to load first, one per line.
pub(super) const ORDER: &str = "/modules/order";
/// Arguments with which the machine runs this program, `erofast-lab`.
pub(super) const GUEST: [&str; 2] = ["lab", "guest"];
/// Mount point of a separate filesystem for the image, which the packages' programs see too.
pub(super) const IMAGE_DIRECTORY: &str = "/image";
pub(super) const IMAGE: &str = "/image/image.erofs";
pub(super) const LAB: &str = "/usr/bin/erofast-lab";
pub(super) const EROFAST: &str = "/usr/bin/erofast";
/// The disk that the load's random reader reads: the first on QEMU's command line.
pub(super) const READER_DISK: &str = "/dev/vda";
/// The engines of erofast that are compared with the kernel's variants, one for each transport.
const DEVICE: &str = "erofast:percpu,hipri,io_uring=off";
const RING: &str = "erofast:percpu,hipri,io_uring=on";
/// Time limit of a launch, which takes about twenty times longer in an emulated machine than on its
/// host.
const TIMEOUT: Duration = Duration::from_secs(600);

/// The measurement that the machine makes.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// Version of the program that made the job; programs of other versions refuse it.
    pub(super) version: String,
    /// Length of the image in bytes. The disk is longer, because its size is rounded up.
    pub(super) image_bytes: u64,
    pub(super) launch: LaunchOptions,
}

impl Job {
    pub(super) fn new(options: &KernelOptions, packages: &Packages, image: Image) -> Result<Job> {
        let Packages {
            release, version, ..
        } = packages;
        let own = image
            .command
            .map(|words| words.into_iter().map(Into::into).collect());
        let launch = LaunchOptions {
            image: IMAGE.into(),
            erofast: EROFAST.into(),
            engines: engines(&options.reserved_pages)?,
            root: options.root || own.is_some(),
            command: own.unwrap_or_else(|| options.command.clone()),
            iterations: options.iterations,
            load: options.load.clone(),
            timeout: TIMEOUT,
            time: Some(options.time),
            load_disk: Some(READER_DISK.into()),
            notices: vec![format!(
                "Linux {release} (package version {version}), fs/erofs built from its source \
                 package, reloaded for each launch"
            )],
            repeat_with: Some(command_line()),
            seed: options.seed,
            ..LaunchOptions::default()
        };
        let image_bytes = image.bytes;
        Ok(Job {
            version: VERSION.into(),
            image_bytes,
            launch,
        })
    }

    /// Reads the job, which a program of another version may have made.
    pub(super) fn parse(text: &[u8]) -> Result<Job> {
        let fault = |reason: String| LabError::Preparation(format!("{JOB}: {reason}"));
        let value: serde_json::Value =
            serde_json::from_slice(text).map_err(|reason| fault(reason.to_string()))?;
        match value["version"].as_str() {
            Some(VERSION) => {
                serde_json::from_value(value).map_err(|reason| fault(reason.to_string()))
            }
            other => Err(LabError::Preparation(format!(
                "erofast-lab in the machine has version {VERSION}, but the one that started it has \
                 {}",
                other.unwrap_or("another one")
            ))),
        }
    }

    /// Removes the engine that needs io_uring, for a guest whose kernel does not have FUSE over
    /// io_uring.
    pub(super) fn leave_out_io_uring(&mut self) {
        self.launch
            .engines
            .retain(|engine| engine.to_string() != RING);
        let line = format!("left out: {RING}: this kernel has no FUSE over io_uring (Linux 6.14)");
        self.launch.notices.push(line);
    }
}

/// The engines to compare: each variant with each number of reserved pages (0 is not part of the
/// name), and erofast.
fn engines(reserved_pages: &[u32]) -> Result<Vec<Engine>> {
    let module = |pages: u32, variant: Variant| {
        let parameters = format!("reserved_pages={pages}");
        Engine::Module(Module {
            name: match pages {
                0 => variant.to_string(),
                _ => format!("{variant},{parameters}"),
            },
            path: Path::new(MODULES).join(variant.file()),
            parameters,
        })
    };
    let variants = |&pages| Variant::ALL.map(|variant| Ok(module(pages, variant)));
    let modules = reserved_pages.iter().flat_map(variants);
    modules.chain([DEVICE, RING].map(str::parse)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::arch::Arch;
    use super::*;

    #[test]
    fn erofast_stands_beside_every_variant_with_every_number_of_pages() {
        let options = KernelOptions::default();
        let [release, version] = ["6.12", "6.12-1"].map(String::from);
        let image = Image {
            bytes: 7,
            command: Some(vec!["/cc1".into()]),
        };
        let packages = Packages {
            arch: Arch::ARM64,
            release,
            version,
        };
        let job = Job::new(&options, &packages, image).unwrap();
        let mut job = Job::parse(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert!(job.launch.root && job.image_bytes == 7);
        let names = |job: &Job| {
            job.launch
                .engines
                .iter()
                .map(Engine::to_string)
                .collect::<Vec<_>>()
        };
        let all = [
            "workqueue",
            "kthread",
            "kthread,hipri",
            "workqueue,reserved_pages=64",
            "kthread,reserved_pages=64",
            "kthread,hipri,reserved_pages=64",
            DEVICE,
            RING,
        ];
        assert_eq!(names(&job), all);
        job.leave_out_io_uring();
        assert_eq!(names(&job), all[..7]);
        assert_eq!(job.launch.notices.len(), 2);
    }

    #[test]
    fn the_job_of_another_version_is_refused_before_it_is_read() {
        let error = |text: &str| Job::parse(text.as_bytes()).unwrap_err().to_string();
        let other = error(r#"{"version":"0.9.9","launch":7}"#);
        assert!(
            other.ends_with("but the one that started it has 0.9.9"),
            "{other}"
        );
        assert!(error("{").starts_with("/job.json: "));
        let broken = error(&format!(r#"{{"version":"{VERSION}","launch":7}}"#));
        assert!(broken.starts_with("/job.json: "), "{broken}");
    }
}
