//! Engines by name, as the command line and the reports write them.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::link::Link;
use crate::LabError;

/// A way to mount an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Engine {
    /// The kernel's EROFS, file-backed: mount(2) with the file itself as the source.
    #[default]
    Kernel,
    /// The kernel's EROFS over a loop device.
    KernelLoop,
    /// A kernel module of EROFS that is loaded for this mount alone, over a loop device.
    Module(Module),
    /// erofs-utils' FUSE daemon.
    Erofsfuse,
    /// erofast's mount of the image from a URL, at which a web server of the lab serves the image.
    Url {
        /// `latency=MS` and `bandwidth=MB/S` of the link, and options of `erofast mount -o`.
        options: String,
    },
    /// erofast's mount of the image file, with options of `erofast mount -o`.
    Erofast {
        /// The text after the colon, such as "percpu,hipri".
        options: String,
    },
}

/// A module file, and how to load it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Module {
    /// The name of the module in reports.
    pub name: String,
    /// The file, uncompressed.
    pub path: PathBuf,
    /// Parameters in modprobe's syntax, such as "reserved_pages=64".
    pub parameters: String,
}

impl FromStr for Module {
    type Err = LabError;

    /// Parses `PATH[,PARAMETER=VALUE...]`.
    fn from_str(text: &str) -> Result<Self, LabError> {
        let (path, parameters) = text.split_once(',').unwrap_or((text, ""));
        if path.is_empty() {
            return Err(LabError::Usage(
                "engine module: the file is missing; write module:PATH[,PARAMETER=VALUE...]".into(),
            ));
        }
        Ok(Module {
            name: format!("module:{text}"),
            path: path.into(),
            parameters: parameters.replace(',', " "),
        })
    }
}

impl Engine {
    /// The engines to compare if none is named: the kernel's file-backed mount, which is the
    /// baseline because a user has it without erofast; the kernel's mount over a loop device; and
    /// erofast with its defaults over each of the two transports.
    pub fn default_list() -> Vec<Engine> {
        let erofast = |options: &str| Engine::Erofast {
            options: options.into(),
        };
        vec![
            Engine::Kernel,
            Engine::KernelLoop,
            erofast("io_uring=off"),
            erofast("io_uring=on"),
        ]
    }

    /// Whether the kernel decompresses for this engine.
    pub fn is_kernel(&self) -> bool {
        matches!(
            self,
            Engine::Kernel | Engine::KernelLoop | Engine::Module(_)
        )
    }

    /// The value of `erofast mount -o`, with the short names of workers expanded. Launch profiles
    /// are off unless the options say otherwise: with a profile, each launch would differ from the
    /// one before.
    pub(crate) fn mount_options(&self) -> Option<String> {
        let (Engine::Erofast { options } | Engine::Url { options }) = self else {
            return None;
        };
        let given = || {
            let all = options.split(',').filter(|option| !option.is_empty());
            all.filter(|option| !is_of_link(option))
        };
        let profile = given().any(|option| option.starts_with("profile="));
        let spelt = given().map(|option| match option {
            "percpu" | "unbound" | "inline" => format!("workers={option}"),
            other => other.into(),
        });
        let unlearned = (!profile).then(|| "profile=off".to_owned());
        Some(spelt.chain(unlearned).collect::<Vec<_>>().join(","))
    }
}

/// Whether an option of the engine `url` concerns the link rather than the mount.
fn is_of_link(option: &str) -> bool {
    option.starts_with("latency=") || option.starts_with("bandwidth=")
}

impl Engine {
    /// The link of the engine `url`; an error is one line.
    pub(super) fn link(&self) -> Result<Option<Link>, String> {
        let Engine::Url { options } = self else {
            return Ok(None);
        };
        let number = |name: &str| -> Result<Option<f64>, String> {
            let mut given = options.split(',').filter_map(|it| it.strip_prefix(name));
            let Some(text) = given.next_back() else {
                return Ok(None);
            };
            match text.parse() {
                Ok(number) if (1e-6..1e6).contains(&number) => Ok(Some(number)),
                _ => Err(format!("{name}{text}: must be a number above 0")),
            }
        };
        let latency = number("latency=")?.unwrap_or(0.0);
        Ok(Some(Link {
            latency: Duration::from_secs_f64(latency / 1e3),
            rate: number("bandwidth=")?.map(|megabytes| megabytes * 1e6),
        }))
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, options) = match self {
            Engine::Kernel => ("kernel", ""),
            Engine::KernelLoop => ("kernel-loop", ""),
            Engine::Module(module) => (module.name.as_str(), ""),
            Engine::Erofsfuse => ("erofsfuse", ""),
            Engine::Url { options } => ("url", options.as_str()),
            Engine::Erofast { options } => ("erofast", options.as_str()),
        };
        let colon = if options.is_empty() { "" } else { ":" };
        write!(out, "{name}{colon}{options}")
    }
}

impl FromStr for Engine {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        let (kind, given) = name.split_once(':').unzip();
        let options = given.unwrap_or_default().to_owned();
        match (kind.unwrap_or(name), given) {
            ("erofast", _) => Ok(Engine::Erofast { options }),
            ("url", _) => Ok(Engine::Url { options }),
            ("module", Some(file)) => Ok(Engine::Module(file.parse()?)),
            ("kernel", None) => Ok(Engine::Kernel),
            ("kernel-loop", None) => Ok(Engine::KernelLoop),
            ("erofsfuse", None) => Ok(Engine::Erofsfuse),
            _ => Err(LabError::Usage(format!(
                "engine {name}: unknown; known are kernel, kernel-loop, module:FILE, erofsfuse, \
                 erofast, erofast:OPTIONS (for example erofast:percpu,hipri) and \
                 url:latency=MS,bandwidth=MB/S,OPTIONS"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "kernel",
            "kernel-loop",
            "erofsfuse",
            "erofast",
            "erofast:percpu,hipri",
            "erofast:cache=0",
            "url",
            "url:latency=20,bandwidth=12.5,prefetch=all",
            "module:/lib/erofs.ko,reserved_pages=64",
        ] {
            assert_eq!(name.parse::<Engine>().unwrap().to_string(), name);
        }
        let Ok(Engine::Module(module)) = "module:/e.ko,a=1,b=2".parse() else {
            panic!("a module is an engine")
        };
        assert_eq!(
            (module.path.to_str(), module.parameters.as_str()),
            (Some("/e.ko"), "a=1 b=2")
        );
        assert!("module:".parse::<Engine>().is_err());
        let error = "kernel:fast".parse::<Engine>().unwrap_err().to_string();
        assert!(
            error.starts_with("engine kernel:fast: unknown; known are kernel, "),
            "{error}"
        );
    }

    #[test]
    fn a_link_has_milliseconds_and_megabytes_a_second() {
        let link = |name: &str| name.parse::<Engine>().unwrap().link();
        let slow = link("url:latency=20,bandwidth=12.5").unwrap().unwrap();
        assert_eq!(slow.latency, Duration::from_millis(20));
        assert_eq!(slow.rate, Some(12.5e6));
        assert_eq!(link("url").unwrap().unwrap().rate, None);
        let error = link("url:bandwidth=0").unwrap_err();
        assert_eq!(error, "bandwidth=0: must be a number above 0");
    }

    #[test]
    fn short_worker_names_become_mount_options() {
        let options = |name: &str| name.parse::<Engine>().unwrap().mount_options();
        assert_eq!(
            options("erofast:percpu,hipri").as_deref(),
            Some("workers=percpu,hipri,profile=off")
        );
        assert_eq!(
            options("erofast:unbound,reserved_pages=64").as_deref(),
            Some("workers=unbound,reserved_pages=64,profile=off")
        );
        assert_eq!(
            options("url:latency=20,prefetch=all,bandwidth=1").as_deref(),
            Some("prefetch=all,profile=off")
        );
        assert_eq!(options("erofast").as_deref(), Some("profile=off"));
        assert_eq!(options("kernel"), None);
    }
}
