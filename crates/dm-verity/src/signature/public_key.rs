//! Public keys of certificates: RSA, P-256 and P-384.

use rsa::RsaPublicKey;
use rsa::signature::hazmat::PrehashVerifier;
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5912::{
    ID_EC_PUBLIC_KEY, RSA_ENCRYPTION, SECP_256_R_1, SECP_384_R_1,
};
use x509_cert::der::referenced::OwnedToRef;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::digest::SignedDigest;

pub(super) enum PublicKey {
    /// At most 4096 bits, the limit of both the `rsa` crate and the kernel.
    Rsa(RsaPublicKey),
    P256(p256::ecdsa::VerifyingKey),
    P384(p384::ecdsa::VerifyingKey),
}

impl PublicKey {
    /// Returns `None` for a key that cannot be used.
    pub(super) fn new(info: &SubjectPublicKeyInfoOwned) -> Option<Self> {
        match info.algorithm.oid {
            RSA_ENCRYPTION => RsaPublicKey::try_from(info.owned_to_ref())
                .ok()
                .map(Self::Rsa),
            ID_EC_PUBLIC_KEY => Self::on_curve(info),
            _ => None,
        }
    }

    fn on_curve(info: &SubjectPublicKeyInfoOwned) -> Option<Self> {
        let curve: ObjectIdentifier = info.algorithm.parameters.as_ref()?.decode_as().ok()?;
        let point = info.subject_public_key.as_bytes()?;
        match curve {
            SECP_256_R_1 => p256::ecdsa::VerifyingKey::from_sec1_bytes(point)
                .ok()
                .map(Self::P256),
            SECP_384_R_1 => p384::ecdsa::VerifyingKey::from_sec1_bytes(point)
                .ok()
                .map(Self::P384),
            _ => None,
        }
    }

    /// Whether this algorithm identifier denotes signatures by this key with `digest`.
    pub(super) fn signs_as(&self, algorithm: ObjectIdentifier, digest: &SignedDigest) -> bool {
        match self {
            Self::Rsa(_) => algorithm == RSA_ENCRYPTION || algorithm == digest.with_rsa,
            Self::P256(_) | Self::P384(_) => algorithm == digest.with_ecdsa,
        }
    }

    /// Whether `signature` is valid for `hash`, which was computed with `digest`.
    pub(super) fn verifies(&self, digest: &SignedDigest, hash: &[u8], signature: &[u8]) -> bool {
        match self {
            Self::Rsa(key) => key.verify((digest.padding)(), hash, signature).is_ok(),
            Self::P256(key) => p256::ecdsa::Signature::from_der(signature)
                .and_then(|signature| key.verify_prehash(hash, &signature))
                .is_ok(),
            Self::P384(key) => p384::ecdsa::Signature::from_der(signature)
                .and_then(|signature| key.verify_prehash(hash, &signature))
                .is_ok(),
        }
    }
}
