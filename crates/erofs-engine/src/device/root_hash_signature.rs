//! The signature of a root hash, read before the sandbox is entered and checked inside it.

use std::path::PathBuf;

use dm_verity::{Certificates, MAX_SIGNATURE, RootHash, verify_signature};

use crate::device::{OpenFile, read_small_file};
use crate::options::VerityOptions;
use crate::remote;

/// A signature that has not been parsed yet, and the certificates of its possible signers.
#[derive(Debug)]
pub(crate) struct RootHashSignature {
    path: PathBuf,
    bytes: Vec<u8>,
    trusted: Certificates,
}

impl RootHashSignature {
    /// Reads the files that the options name; `None` if they name no signature.
    pub(crate) fn open(
        options: &VerityOptions,
        open: OpenFile<'_>,
    ) -> Result<Option<Self>, String> {
        let Some(path) = &options.root_hash_signature else {
            return match &options.certificates {
                Some(_) => Err("verity.certificates= needs verity.roothashsig=".into()),
                None => Ok(None),
            };
        };
        // Reads one byte more than the maximum, so that a longer signature is rejected.
        let bytes = read_small_file(path, MAX_SIGNATURE as u64 + 1, open);
        let bytes = bytes.map_err(|error| {
            let hint = match options.auto {
                true => "; verity=auto needs a signature beside the root hash",
                false => "",
            };
            remote::about(path, &error) + hint
        })?;
        let trusted = match &options.certificates {
            Some(folder) => Certificates::from_folder(folder),
            None => Certificates::standard(),
        };
        Ok(Some(Self {
            path: path.clone(),
            bytes,
            trusted: trusted.map_err(|error| error.to_string())?,
        }))
    }

    /// Checks that a trusted certificate has signed this root hash.
    pub(crate) fn check(&self, root: &RootHash) -> Result<(), String> {
        verify_signature(&self.bytes, root, &self.trusted)
            .map_err(|error| remote::about(&self.path, &error))
    }
}
