//! Engines by name, as the command line and the reports write them.

use std::fmt;
use std::str::FromStr;

use crate::LabError;

/// Something that can mount an image.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Engine {
    /// The kernel's EROFS, file-backed: mount(2) with the file itself as the source.
    Kernel,
    /// The kernel's EROFS over a loop device.
    KernelLoop,
    /// erofs-utils' FUSE daemon.
    Erofsfuse,
    /// This project's mount, with the options of `erofast mount -o`.
    Erofast {
        /// As written after the colon: "percpu,hipri".
        options: String,
    },
}

impl Engine {
    /// The engines of the patch's table, compared when none is named.
    pub fn default_list() -> Vec<Engine> {
        let erofast = |options: &str| Engine::Erofast {
            options: options.into(),
        };
        vec![
            Engine::KernelLoop,
            erofast("unbound"),
            erofast("percpu"),
            erofast("percpu,hipri"),
        ]
    }

    /// Does the kernel itself decompress?
    pub fn is_kernel(&self) -> bool {
        matches!(self, Engine::Kernel | Engine::KernelLoop)
    }

    /// The value of `erofast mount -o`: the short names of workers spelt out.
    pub(crate) fn mount_options(&self) -> Option<String> {
        let Engine::Erofast { options } = self else {
            return None;
        };
        let spelt =
            options
                .split(',')
                .filter(|option| !option.is_empty())
                .map(|option| match option {
                    "percpu" | "unbound" | "inline" => format!("workers={option}"),
                    other => other.into(),
                });
        Some(spelt.collect::<Vec<_>>().join(",")).filter(|options| !options.is_empty())
    }
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Engine::Kernel => out.write_str("kernel"),
            Engine::KernelLoop => out.write_str("kernel-loop"),
            Engine::Erofsfuse => out.write_str("erofsfuse"),
            Engine::Erofast { options } if options.is_empty() => out.write_str("erofast"),
            Engine::Erofast { options } => write!(out, "erofast:{options}"),
        }
    }
}

impl FromStr for Engine {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Self, LabError> {
        match name.split_once(':') {
            Some(("erofast", options)) => Ok(Engine::Erofast {
                options: options.into(),
            }),
            None if name == "kernel" => Ok(Engine::Kernel),
            None if name == "kernel-loop" => Ok(Engine::KernelLoop),
            None if name == "erofsfuse" => Ok(Engine::Erofsfuse),
            None if name == "erofast" => Ok(Engine::Erofast {
                options: String::new(),
            }),
            _ => Err(LabError::Usage(format!(
                "engine {name}: unknown; there are kernel, kernel-loop, erofsfuse, erofast and erofast:OPTIONS \
                 (for example erofast:percpu,hipri)"
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
        ] {
            assert_eq!(name.parse::<Engine>().unwrap().to_string(), name);
        }
        let error = "kernel:fast".parse::<Engine>().unwrap_err().to_string();
        assert!(
            error.starts_with("engine kernel:fast: unknown; there are kernel, "),
            "{error}"
        );
    }

    #[test]
    fn short_worker_names_become_mount_options() {
        let options = |name: &str| name.parse::<Engine>().unwrap().mount_options();
        assert_eq!(
            options("erofast:percpu,hipri").as_deref(),
            Some("workers=percpu,hipri")
        );
        assert_eq!(
            options("erofast:unbound,reserved_pages=64").as_deref(),
            Some("workers=unbound,reserved_pages=64")
        );
        assert_eq!(options("erofast"), None);
        assert_eq!(options("kernel"), None);
    }
}
