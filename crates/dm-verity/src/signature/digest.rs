//! Hash functions of signatures, by object identifier.

use rsa::Pkcs1v15Sign;
use sha2::{Digest, Sha256, Sha384, Sha512};
use x509_cert::der::oid::db::rfc5912::{
    ECDSA_WITH_SHA_256, ECDSA_WITH_SHA_384, ECDSA_WITH_SHA_512, SHA_256_WITH_RSA_ENCRYPTION,
    SHA_384_WITH_RSA_ENCRYPTION, SHA_512_WITH_RSA_ENCRYPTION,
};
use x509_cert::der::oid::{AssociatedOid, ObjectIdentifier};

/// The hash function used before signing.
pub(super) struct SignedDigest {
    oid: ObjectIdentifier,
    /// The identifier of RSA with PKCS#1 v1.5 padding and this hash function.
    pub(super) with_rsa: ObjectIdentifier,
    pub(super) with_ecdsa: ObjectIdentifier,
    pub(super) hash: fn(&[u8]) -> Vec<u8>,
    /// The padding of RSA signatures, which names the hash function.
    pub(super) padding: fn() -> Pkcs1v15Sign,
}

/// The supported hash functions. SHA-1 and older functions are not supported, because they are
/// broken.
const SUPPORTED: [SignedDigest; 3] = [
    SignedDigest::new::<Sha256>(SHA_256_WITH_RSA_ENCRYPTION, ECDSA_WITH_SHA_256),
    SignedDigest::new::<Sha384>(SHA_384_WITH_RSA_ENCRYPTION, ECDSA_WITH_SHA_384),
    SignedDigest::new::<Sha512>(SHA_512_WITH_RSA_ENCRYPTION, ECDSA_WITH_SHA_512),
];

impl SignedDigest {
    const fn new<D: Digest + AssociatedOid>(
        with_rsa: ObjectIdentifier,
        with_ecdsa: ObjectIdentifier,
    ) -> Self {
        Self {
            oid: D::OID,
            with_rsa,
            with_ecdsa,
            hash: |bytes| D::digest(bytes).to_vec(),
            padding: Pkcs1v15Sign::new::<D>,
        }
    }

    pub(super) fn from_oid(oid: ObjectIdentifier) -> Option<&'static Self> {
        SUPPORTED.iter().find(|digest| digest.oid == oid)
    }
}
