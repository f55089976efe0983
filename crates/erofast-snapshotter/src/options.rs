//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, ValueEnum};

/// Snapshotter for containerd that mounts EROFS layers from their registry, and fetches their
/// blocks as containers read them. Other layers are converted, or unpacked by containerd.
#[derive(Debug, Parser)]
#[command(name = "erofast-snapshotter", version)]
pub struct Options {
    /// Directory for snapshots, layer mounts and the database
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/erofast-snapshotter"
    )]
    pub root: PathBuf,

    /// Directory for the socket and logins, emptied by a reboot
    #[arg(long, value_name = "DIR", default_value = "/run/erofast-snapshotter")]
    pub run: PathBuf,

    /// Socket for containerd and kubelet (default: snapshotter.sock in --run)
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Socket of containerd, for kubelet's image service
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/containerd/containerd.sock"
    )]
    pub containerd: PathBuf,

    /// Directory with HOST/hosts.toml, like containerd's config_path
    #[arg(long, value_name = "DIR", default_value = "/etc/containerd/certs.d")]
    pub hosts_dir: PathBuf,

    /// The erofast program (default: beside this one, or in PATH)
    #[arg(long, value_name = "PATH")]
    pub erofast: Option<PathBuf>,

    /// Mount options for each layer, separated by commas
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    pub mount_options: Vec<String>,

    /// Time limit for mounting a layer, in seconds
    ///
    /// containerd unpacks a layer that is not ready by then.
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub time_limit: u64,

    /// Convert ordinary layers (tar, tar+gzip, tar+zstd)
    ///
    /// mkfs.erofs (erofs-utils 1.7 or later, in PATH) makes an image of each layer once, in the
    /// cache. containerd unpacks a layer that cannot be converted.
    #[arg(long, value_enum, default_value_t = Switch::Off)]
    pub convert: Switch,

    /// Time limit for converting and mounting a layer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=36_000))]
    pub convert_limit: u64,

    /// Serve Prometheus metrics at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address)]
    pub metrics: Option<SocketAddr>,
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    let wrong = "must be ADDRESS:PORT, such as 127.0.0.1:9637";
    text.parse().map_err(|_| wrong)
}

impl Options {
    /// Parses the arguments of this process. If they are not valid, prints one line and ends the
    /// process.
    pub fn of_process() -> Self {
        Self::try_parse().unwrap_or_else(|error| {
            if !error.use_stderr() {
                error.exit();
            }
            let text = error.to_string();
            let line = text.split("\n\n").next().unwrap_or_default();
            let words: Vec<&str> = line.split_whitespace().collect();
            let line = words.join(" ");
            let line = line.strip_prefix("error: ").unwrap_or(&line);
            eprintln!("erofast-snapshotter: {line}; see erofast-snapshotter --help");
            std::process::exit(2);
        })
    }
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory;

    use super::*;

    fn text(path: &str) -> String {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        fs::read_to_string(root.join(path)).unwrap()
    }

    #[test]
    fn the_man_page_has_every_option() {
        let page = text("packaging/erofast-snapshotter.1").replace('\\', "");
        for option in Options::command().get_arguments() {
            let name = format!("fB--{}fR", option.get_long().unwrap());
            assert!(page.contains(&name), "no {name}");
        }
    }

    #[test]
    fn the_unit_and_the_page_have_options_that_exist() {
        let unit = text("contrib/systemd/erofast-snapshotter.service");
        let start = unit
            .lines()
            .find_map(|line| line.strip_prefix("ExecStart="));
        Options::try_parse_from(start.unwrap().split(' ')).unwrap();
        let page = text("docs/containerd.md");
        let marked = page.split('`').filter(|word| word.starts_with("--"));
        for option in marked.filter_map(|words| words.split([' ', '=']).next()) {
            let known = Options::command();
            let known = known.get_arguments().filter_map(clap::Arg::get_long);
            let known: Vec<_> = known.map(|name| format!("--{name}")).collect();
            assert!(known.iter().any(|name| name == option), "{option}");
        }
    }
}
