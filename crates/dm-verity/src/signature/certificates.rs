//! Certificates that are trusted to sign root hashes: PEM files in folders, as in systemd.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use cms::signed_data::SignerIdentifier;
use x509_cert::Certificate;
use x509_cert::der::DecodePem;
use x509_cert::ext::pkix::SubjectKeyIdentifier;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use crate::error::{Error, Result};

/// The folders that systemd uses. A file in one of them hides files with the same name in later
/// folders; an empty file, or a symlink to `/dev/null`, holds no certificate.
pub const STANDARD_FOLDERS: [&str; 4] = [
    "/etc/verity.d",
    "/run/verity.d",
    "/usr/local/lib/verity.d",
    "/usr/lib/verity.d",
];

/// Maximum size of a certificate file, in bytes.
const MAX_FILE: u64 = 1 << 20;

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Files with certificates, read but not yet parsed.
#[derive(Clone, Debug, Default)]
pub struct Certificates {
    folders: Vec<PathBuf>,
    files: Vec<(PathBuf, String)>,
    /// A line for each file that cannot be read.
    problems: Vec<String>,
}

impl Certificates {
    /// Reads all `*.crt` files in the [standard folders](STANDARD_FOLDERS) that exist.
    ///
    /// # Errors
    /// A folder cannot be read.
    pub fn standard() -> Result<Self> {
        Self::read(STANDARD_FOLDERS.map(PathBuf::from).to_vec(), true)
    }

    /// Reads all `*.crt` files in this folder.
    ///
    /// # Errors
    /// The folder does not exist or cannot be read.
    pub fn from_folder(folder: &Path) -> Result<Self> {
        Self::read(vec![folder.to_owned()], false)
    }

    fn read(folders: Vec<PathBuf>, may_be_absent: bool) -> Result<Self> {
        let mut paths: BTreeMap<OsString, PathBuf> = BTreeMap::new();
        for folder in &folders {
            match names(folder) {
                Err(error) if may_be_absent && error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    let what = format!("certificates: {}: {error}", folder.display());
                    return Error::signature(what);
                }
                Ok(names) => {
                    for name in names {
                        let path = folder.join(&name);
                        paths.entry(name).or_insert(path);
                    }
                }
            }
        }
        let (mut files, mut problems) = (Vec::new(), Vec::new());
        for path in paths.into_values() {
            match contents(&path) {
                Ok(text) => files.push((path, text)),
                Err(error) => problems.push(format!("{}: {error}", path.display())),
            }
        }
        Ok(Self {
            folders,
            files,
            problems,
        })
    }

    pub(super) fn parse(&self) -> Trusted {
        let folders = self.folders.iter().map(|one| one.display().to_string());
        let mut trusted = Trusted {
            place: folders.collect::<Vec<_>>().join(", "),
            certificates: Vec::new(),
            problems: self.problems.clone(),
        };
        for (path, text) in &self.files {
            for block in blocks(text) {
                match Certificate::from_pem(block) {
                    Ok(certificate) => trusted.certificates.push(TrustedCertificate {
                        path: path.clone(),
                        certificate,
                    }),
                    Err(error) => {
                        let line = format!("{}: {error}", path.display());
                        trusted.problems.push(line);
                    }
                }
            }
        }
        trusted
    }
}

/// The certificates after parsing.
pub(super) struct Trusted {
    place: String,
    certificates: Vec<TrustedCertificate>,
    problems: Vec<String>,
}

pub(super) struct TrustedCertificate {
    pub(super) path: PathBuf,
    certificate: Certificate,
}

impl Trusted {
    /// Certificates that match the signer named in a signature.
    pub(super) fn of(&self, sid: &SignerIdentifier) -> impl Iterator<Item = &TrustedCertificate> {
        self.certificates.iter().filter(|one| one.is_of(sid))
    }

    /// Says why no certificate belongs to `signer`.
    pub(super) fn without(&self, signer: &str) -> String {
        let place = &self.place;
        let what = match self.certificates.len() {
            0 => format!("there is no certificate (*.crt) in {place}"),
            count => {
                format!("none of the {count} certificates in {place} matches the signer's {signer}")
            }
        };
        match self.problems.first() {
            Some(problem) => format!("{what}; {problem}"),
            None => what,
        }
    }
}

impl TrustedCertificate {
    fn is_of(&self, sid: &SignerIdentifier) -> bool {
        let fields = &self.certificate.tbs_certificate;
        match sid {
            SignerIdentifier::IssuerAndSerialNumber(id) => {
                id.issuer == fields.issuer && id.serial_number == fields.serial_number
            }
            SignerIdentifier::SubjectKeyIdentifier(id) => {
                matches!(fields.get::<SubjectKeyIdentifier>(), Ok(Some((_, own))) if own == *id)
            }
        }
    }

    pub(super) fn public_key(&self) -> &SubjectPublicKeyInfoOwned {
        &self.certificate.tbs_certificate.subject_public_key_info
    }
}

/// Names of all `*.crt` files in a folder.
fn names(folder: &Path) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name();
        if Path::new(&name).extension() == Some(OsStr::new("crt")) {
            names.push(name);
        }
    }
    Ok(names)
}

/// The text of a regular file; empty for anything else, for instance `/dev/null`.
fn contents(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    if std::fs::metadata(path)?.is_file() {
        File::open(path)?.take(MAX_FILE).read_to_end(&mut bytes)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The certificates in a file. Any text around them, such as the output of `openssl x509 -text`, is
/// ignored.
fn blocks(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices(BEGIN).filter_map(|(start, _)| {
        let block = &text[start..];
        let end = block.find(END)? + END.len();
        Some(&block[..end])
    })
}
