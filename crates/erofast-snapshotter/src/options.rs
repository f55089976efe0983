//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;

/// A snapshotter of containerd: layers that are EROFS images are mounted from their registry, and
/// read when a container reads them. Other layers are unpacked by containerd.
#[derive(Debug, Parser)]
#[command(name = "erofast-snapshotter", version)]
pub struct Options {
    /// Directory of snapshots, mounts of layers and the database
    #[arg(
        long,
        value_name = "DIR",
        default_value = "/var/lib/erofast-snapshotter"
    )]
    pub root: PathBuf,

    /// Directory of the socket and of logins, which a reboot empties
    #[arg(long, value_name = "DIR", default_value = "/run/erofast-snapshotter")]
    pub run: PathBuf,

    /// Socket for containerd and kubelet (snapshotter.sock in --run)
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,

    /// Socket of containerd, for kubelet's image service
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/run/containerd/containerd.sock"
    )]
    pub containerd: PathBuf,

    /// Directory with HOST/hosts.toml, as containerd's config_path
    #[arg(long, value_name = "DIR", default_value = "/etc/containerd/certs.d")]
    pub hosts_dir: PathBuf,

    /// The program erofast (beside this one, or in PATH)
    #[arg(long, value_name = "PATH")]
    pub erofast: Option<PathBuf>,

    /// Options of erofast mount for each layer, separated by commas
    #[arg(short = 'o', long = "options", value_name = "OPTIONS")]
    pub mount_options: Vec<String>,

    /// Most seconds until a layer is mounted
    ///
    /// containerd unpacks a layer that is not ready by then.
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub time_limit: u64,

    /// Serve figures for Prometheus at http://ADDRESS:PORT/metrics
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
}
