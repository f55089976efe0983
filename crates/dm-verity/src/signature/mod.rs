//! Signatures of root hashes: detached PKCS#7 (CMS) signatures, encoded as DER. They sign the root
//! hash as lowercase hexadecimal digits, as veritysetup, systemd and the kernel expect.
//!
//! A signature is accepted only if its signer's own certificate is trusted. As in systemd, there
//! are no certificate chains: trusting an authority does not extend to the certificates it has
//! issued. As in systemd and the kernel, validity periods and key usage are not checked: an image
//! whose certificate has expired must still boot.

mod certificates;
mod digest;
mod public_key;
mod signer;

use cms::content_info::ContentInfo;
use cms::signed_data::SignedData;
use x509_cert::der::oid::db::rfc5911::{ID_DATA, ID_SIGNED_DATA};
use x509_cert::der::{self, Decode};

use crate::error::{Error, Result};
use crate::root_hash::RootHash;

pub use certificates::{Certificates, STANDARD_FOLDERS};

/// Maximum size of a signature in bytes. A 4096-bit RSA signature with its certificate takes 2,300
/// bytes.
pub const MAX_SIGNATURE: usize = 64 << 10;

/// Checks that `signature` was made for `root` with a trusted certificate. If there are several
/// signers, each of them must be trusted, and each signature valid.
///
/// # Errors
/// The signature is not valid, or no trusted certificate belongs to its signer.
pub fn verify_signature(signature: &[u8], root: &RootHash, trusted: &Certificates) -> Result<()> {
    let signed = parse(signature)?;
    if signed.signer_infos.0.is_empty() {
        return Error::signature("it has no signer".into());
    }
    let (content, trusted) = (root.to_string(), trusted.parse());
    for one in signed.signer_infos.0.iter() {
        signer::check(one, content.as_bytes(), &trusted)?;
    }
    Ok(())
}

fn parse(signature: &[u8]) -> Result<SignedData> {
    if signature.len() > MAX_SIGNATURE {
        return Error::signature(format!("it is longer than {MAX_SIGNATURE} bytes"));
    }
    if signature.starts_with(b"-----BEGIN") {
        let what = "it is PEM, but must be DER (openssl smime -sign -outform der)";
        return Error::signature(what.into());
    }
    let outer = ContentInfo::from_der(signature).map_err(not_cms)?;
    if outer.content_type != ID_SIGNED_DATA {
        return Error::signature(format!("it holds {}, not signed data", outer.content_type));
    }
    let signed: SignedData = outer.content.decode_as().map_err(not_cms)?;
    let content = &signed.encap_content_info;
    if content.econtent_type != ID_DATA || content.econtent.is_some() {
        let what = "it must be a detached signature (openssl smime -sign -binary)";
        return Error::signature(what.into());
    }
    Ok(signed)
}

fn not_cms(error: der::Error) -> Error {
    Error::Signature(format!("it is not PKCS#7 in DER: {error}"))
}
