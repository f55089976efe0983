//! Checks one signer of a signature.

use cms::signed_data::{SignedAttributes, SignerIdentifier, SignerInfo};
use x509_cert::der::asn1::OctetString;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5911::{ID_CONTENT_TYPE, ID_DATA, ID_MESSAGE_DIGEST};
use x509_cert::der::{Decode, Encode};

use super::certificates::{Trusted, TrustedCertificate};
use super::digest::SignedDigest;
use super::public_key::PublicKey;
use crate::error::{Error, Result};

/// Checks that a trusted certificate belongs to `signer`, and that it signed `content`.
pub(super) fn check(signer: &SignerInfo, content: &[u8], trusted: &Trusted) -> Result<()> {
    let oid = signer.digest_alg.oid;
    let Some(digest) = SignedDigest::from_oid(oid) else {
        return Error::signature(format!("hash algorithm {oid} is not SHA-256, -384 or -512"));
    };
    let hash = signed_hash(signer, digest, content)?;
    let mut outcome = Error::signature(trusted.without(&name(&signer.sid)));
    for one in trusted.of(&signer.sid) {
        outcome = check_by(one, signer, digest, &hash);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

fn check_by(
    certificate: &TrustedCertificate,
    signer: &SignerInfo,
    digest: &SignedDigest,
    hash: &[u8],
) -> Result<()> {
    let path = certificate.path.display();
    let Some(key) = PublicKey::new(certificate.public_key()) else {
        return Error::signature(format!(
            "the key in {path} is not RSA (4096 bits at most), P-256 or P-384"
        ));
    };
    let algorithm = signer.signature_algorithm.oid;
    if !key.signs_as(algorithm, digest) {
        return Error::signature(format!(
            "algorithm {algorithm} does not match the key in {path}"
        ));
    }
    match key.verifies(digest, hash, signer.signature.as_bytes()) {
        true => Ok(()),
        false => Error::signature(format!("the key in {path} did not sign this root hash")),
    }
}

/// The hash that is signed: that of the content, or of attributes that contain the content's hash.
fn signed_hash(signer: &SignerInfo, digest: &SignedDigest, content: &[u8]) -> Result<Vec<u8>> {
    let hash = (digest.hash)(content);
    let Some(attributes) = &signer.signed_attrs else {
        return Ok(hash);
    };
    let of_data = one_value(attributes, ID_CONTENT_TYPE)
        .is_some_and(|value| ObjectIdentifier::from_der(&value) == Ok(ID_DATA));
    let of_content = one_value(attributes, ID_MESSAGE_DIGEST)
        .and_then(|value| OctetString::from_der(&value).ok())
        .is_some_and(|value| value.as_bytes() == hash);
    match attributes.to_der() {
        Ok(bytes) if of_data && of_content => Ok((digest.hash)(&bytes)),
        _ => Error::signature("it does not sign this root hash".into()),
    }
}

/// The value, in DER, of an attribute that occurs once and has one value.
fn one_value(attributes: &SignedAttributes, oid: ObjectIdentifier) -> Option<Vec<u8>> {
    let mut found = attributes.iter().filter(|attribute| attribute.oid == oid);
    match (found.next(), found.next()) {
        (Some(attribute), None) if attribute.values.len() == 1 => {
            attribute.values.get(0)?.to_der().ok()
        }
        _ => None,
    }
}

/// Identifies the signer by a number rather than by its name, because the name in a signature is
/// untrusted text.
fn name(sid: &SignerIdentifier) -> String {
    match sid {
        SignerIdentifier::IssuerAndSerialNumber(id) => {
            format!("serial number {}", id.serial_number)
        }
        SignerIdentifier::SubjectKeyIdentifier(id) => {
            let bytes = id.0.as_bytes().iter().take(32);
            let digits = bytes.map(|byte| format!("{byte:02X}"));
            format!("key identifier {}", digits.collect::<String>())
        }
    }
}
