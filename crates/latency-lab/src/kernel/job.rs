//! The job of the machine: what the host writes into its initramfs and the guest runs.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::options::KernelOptions;
use super::packages::Packages;
use super::variant::Variant;
use crate::Result;
use crate::engine::{Engine, Module};
use crate::launch::LaunchOptions;
use crate::shell::command_line;

/// Where things are in the machine.
pub(super) const JOB: &str = "/job.json";
pub(super) const MODULES: &str = "/modules";
/// Names of those to load first, a line each.
pub(super) const ORDER: &str = "/modules/order";
/// Arguments that this program, `erofast-lab`, gets there.
pub(super) const GUEST: [&str; 2] = ["lab", "guest"];
/// A filesystem of its own, which the packages' programs see too.
pub(super) const IMAGE_DIRECTORY: &str = "/image";
pub(super) const IMAGE: &str = "/image/image.erofs";
pub(super) const LAB: &str = "/usr/bin/erofast-lab";
pub(super) const EROFAST: &str = "/usr/bin/erofast";
/// The disk that the random reader of the load reads: the first of QEMU's command line.
pub(super) const READER_DISK: &str = "/dev/vda";
/// Engines of erofast beside the kernel's variants, one for each transport.
const BESIDE: [&str; 2] = [
    "erofast:percpu,hipri,io_uring=off",
    "erofast:percpu,hipri,io_uring=on",
];
/// An emulated machine is about twenty times slower than the one it runs on.
const TIMEOUT: Duration = Duration::from_secs(600);

/// What the machine measures.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    columns: Vec<Column>,
    command: Vec<String>,
    root: bool,
    iterations: usize,
    warm_ups: usize,
    load: String,
    seconds: u64,
    seed: u64,
    /// Length of the image, which the disk rounds up.
    pub(super) image_bytes: u64,
    pub(super) notices: Vec<String>,
    repeat: String,
}

/// An engine of the experiment: a variant and a parameter.
#[derive(Debug, Serialize, Deserialize)]
struct Column {
    name: String,
    file: String,
    parameters: String,
}

impl Job {
    pub(super) fn new(options: &KernelOptions, packages: &Packages, image_bytes: u64) -> Job {
        let words = options
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        Job {
            columns: columns(&options.reserved_pages),
            command: words.collect(),
            root: options.root,
            iterations: options.iterations,
            warm_ups: options.warm_ups,
            load: options.load.to_string(),
            seconds: options.time.as_secs(),
            seed: options.seed,
            image_bytes,
            repeat: command_line(),
            notices: vec![format!(
                "Linux {} (package version {}), fs/erofs built from its source package, loaded anew for each launch",
                packages.release, packages.version
            )],
        }
    }

    /// The default program of an image that was made here.
    pub(super) fn launch(&mut self, command: Vec<String>) {
        (self.command, self.root) = (command, true);
    }

    /// The launch experiment that the guest runs. FUSE over io_uring takes part where the guest's
    /// kernel has it.
    pub(super) fn options(&self, io_uring: bool) -> Result<LaunchOptions> {
        let variants = self.columns.iter().map(|column| {
            Engine::Module(Module {
                name: column.name.clone(),
                path: Path::new(MODULES).join(&column.file),
                parameters: column.parameters.clone(),
            })
        });
        let mut engines: Vec<Engine> = variants.collect();
        let mut notices = self.notices.clone();
        for name in BESIDE {
            if name.ends_with("io_uring=on") && !io_uring {
                notices.push(format!(
                    "left out: {name}: this kernel has no FUSE over io_uring (Linux 6.14)"
                ));
                continue;
            }
            engines.push(name.parse()?);
        }
        Ok(LaunchOptions {
            image: IMAGE.into(),
            erofast: EROFAST.into(),
            engines,
            command: self.command.iter().map(Into::into).collect(),
            root: self.root,
            iterations: self.iterations,
            warm_ups: self.warm_ups,
            load: self.load.parse()?,
            timeout: TIMEOUT,
            time: Some(Duration::from_secs(self.seconds)),
            load_disk: Some(READER_DISK.into()),
            notices,
            repeat_with: Some(self.repeat.clone()),
            seed: self.seed,
            ..LaunchOptions::default()
        })
    }
}

/// Each variant with each number of pages; one number alone needs no naming.
fn columns(reserved_pages: &[u32]) -> Vec<Column> {
    let mut columns = Vec::new();
    for &pages in reserved_pages {
        for variant in Variant::ALL {
            let name = match pages {
                0 => variant.to_string(),
                pages => format!("{variant},reserved_pages={pages}"),
            };
            columns.push(Column {
                name,
                file: variant.file(),
                parameters: format!("reserved_pages={pages}"),
            });
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_stands_in_a_column_with_every_number_of_pages() {
        let names: Vec<String> = columns(&[0, 64])
            .into_iter()
            .map(|column| column.name)
            .collect();
        assert_eq!(
            names,
            [
                "workqueue",
                "kthread",
                "kthread,hipri",
                "workqueue,reserved_pages=64",
                "kthread,reserved_pages=64",
                "kthread,hipri,reserved_pages=64"
            ]
        );
    }

    #[test]
    fn erofast_stands_beside_the_variants_over_what_the_kernel_has() {
        let job: Job = serde_json::from_value(serde_json::json!({
            "columns": columns(&[0]), "command": ["x"], "root": true,
            "iterations": 1, "warm_ups": 0, "load": "none", "seconds": 1, "seed": 1,
            "image_bytes": 0, "notices": [], "repeat": "",
        }))
        .unwrap();
        let names = |io_uring| {
            let options = job.options(io_uring).unwrap();
            let names = options.engines.iter().map(ToString::to_string);
            (names.collect::<Vec<_>>(), options.notices.len())
        };
        let (with, notices) = names(true);
        assert_eq!(with[3..], BESIDE);
        assert_eq!(notices, 0);
        let (without, notices) = names(false);
        assert_eq!(without[3..], BESIDE[..1]);
        assert_eq!(notices, 1);
    }
}
