//! dm-verity for all commands that read an image.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use erofs_engine::RootHash;
#[cfg(feature = "tools")]
use erofs_engine::VerityOptions;

/// Of these flags, in the help.
const HEADING: &str = "Verity";

/// The mount options `verity.*`, as flags.
#[derive(Args, Clone, Debug)]
pub struct VerityArgs {
    /// Take root hash, its signature and hash tree from files beside the image: auto
    #[arg(long, value_name = "auto", value_parser = ["auto"], help_heading = HEADING)]
    pub verity: Option<String>,
    /// Verify every block of the image against this root hash (dm-verity)
    #[arg(long, value_name = "HEX", conflicts_with = "verity_roothashfile", help_heading = HEADING)]
    pub verity_roothash: Option<RootHash>,
    /// The same, with the root hash in a file
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    pub verity_roothashfile: Option<PathBuf>,
    /// Require this signature of the root hash: PKCS#7 in DER, by a trusted certificate
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    pub verity_roothashsig: Option<PathBuf>,
    /// Trust the certificates in this folder [default: verity.d in /etc, /run, /usr/lib]
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    pub verity_certificates: Option<PathBuf>,
    /// File or block device with the hash tree [default: the image]
    #[arg(long, value_name = "PATH", help_heading = HEADING)]
    pub verity_hashdevice: Option<PathBuf>,
    /// Where the hash tree starts on the hash device, or in the image
    #[arg(long, value_name = "BYTES", help_heading = HEADING)]
    pub verity_hashoffset: Option<u64>,
}

impl VerityArgs {
    /// The same as mount options: names with their `=`, and values.
    pub fn mount_options(&self) -> impl Iterator<Item = (&'static str, OsString)> {
        let text = |value: &dyn ToString| OsString::from(value.to_string());
        let path = |path: &Option<PathBuf>| path.clone().map(PathBuf::into_os_string);
        let root = self.verity_roothash.as_ref().map(|root| text(root));
        let offset = self.verity_hashoffset.map(|offset| text(&offset));
        [
            ("verity=", self.verity.clone().map(OsString::from)),
            ("verity.roothash=", root),
            ("verity.roothashfile=", path(&self.verity_roothashfile)),
            ("verity.roothashsig=", path(&self.verity_roothashsig)),
            ("verity.certificates=", path(&self.verity_certificates)),
            ("verity.hashdevice=", path(&self.verity_hashdevice)),
            ("verity.hashoffset=", offset),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)))
    }

    /// For the engine.
    #[cfg(feature = "tools")]
    pub fn options(&self) -> VerityOptions {
        VerityOptions {
            auto: self.verity.is_some(),
            root_hash: self.verity_roothash.clone(),
            root_hash_file: self.verity_roothashfile.clone(),
            hash_device: self.verity_hashdevice.clone(),
            hash_offset: self.verity_hashoffset,
            root_hash_signature: self.verity_roothashsig.clone(),
            certificates: self.verity_certificates.clone(),
        }
    }
}
