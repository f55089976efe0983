//! Hash functions of signatures, by object identifier.

use sha2::{Digest as _, Sha256, Sha384, Sha512};
use x509_cert::der::oid::ObjectIdentifier;
use x509_cert::der::oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, ID_SHA_256, ID_SHA_384, ID_SHA_512,
    SHA_256_WITH_RSA_ENCRYPTION, SHA_384_WITH_RSA_ENCRYPTION, SHA_512_WITH_RSA_ENCRYPTION,
};

/// The hash function used before signing. SHA-1 and older functions are not supported, because they
/// are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignedDigest {
    Sha256,
    Sha384,
    Sha512,
}

impl SignedDigest {
    pub(super) fn from_oid(oid: ObjectIdentifier) -> Option<Self> {
        match oid {
            ID_SHA_256 => Some(Self::Sha256),
            ID_SHA_384 => Some(Self::Sha384),
            ID_SHA_512 => Some(Self::Sha512),
            _ => None,
        }
    }

    pub(super) fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    /// The identifier of RSA with PKCS#1 v1.5 padding and this hash function.
    pub(super) fn with_rsa(self) -> ObjectIdentifier {
        match self {
            Self::Sha256 => SHA_256_WITH_RSA_ENCRYPTION,
            Self::Sha384 => SHA_384_WITH_RSA_ENCRYPTION,
            Self::Sha512 => SHA_512_WITH_RSA_ENCRYPTION,
        }
    }

    pub(super) fn with_ecdsa(self) -> ObjectIdentifier {
        match self {
            Self::Sha256 => ECDSA_WITH_SHA_256,
            Self::Sha384 => ECDSA_WITH_SHA_384,
            Self::Sha512 => ECDSA_WITH_SHA_512,
        }
    }
}
