//! The oracle of signatures of root hashes.

use std::path::Path;
use std::sync::LazyLock;

use dm_verity::{Certificates, RootHash, verify_signature};

use crate::opening::one_line;

/// The content that the signatures among the seeds sign.
const ROOT: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Bytes of an RSA 2048 signature.
const RSA_BYTES: usize = 256;

struct Trusted {
    certificates: Certificates,
    root: RootHash,
    other: RootHash,
    /// The signatures made by the certificate's key, without the surrounding structure.
    signed: Vec<Vec<u8>>,
}

static TRUSTED: LazyLock<Trusted> = LazyLock::new(|| {
    let folder = signatures();
    let signed = ["rsa", "rsa-sha512", "rsa-attributes"].map(|name| {
        let whole = std::fs::read(folder.join(name).with_extension("p7s")).expect("a fixture");
        whole[whole.len() - RSA_BYTES..].to_vec()
    });
    Trusted {
        certificates: Certificates::from_folder(&folder.join("trusted")).expect("a folder"),
        root: ROOT.parse().expect("a root hash"),
        other: "0".repeat(64).parse().expect("a root hash"),
        signed: signed.into(),
    }
});

/// The folder of the signatures that are used as seeds.
pub fn signatures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../dm-verity/tests/signatures")
}

/// A signature is accepted only if it contains the RSA signature made by the trusted key, which can
/// make no other for the same bytes. Otherwise it is refused with a one-line error. It is never
/// accepted for another root hash.
pub fn signature(data: &[u8]) {
    let trusted = &*TRUSTED;
    match verify_signature(data, &trusted.root, &trusted.certificates) {
        Ok(()) => {
            let holds = |one: &Vec<u8>| data.windows(RSA_BYTES).any(|part| part == one);
            assert!(
                trusted.signed.iter().any(holds),
                "no trusted key has signed it"
            );
        }
        Err(error) => one_line(&error.to_string()),
    }
    verify_signature(data, &trusted.other, &trusted.certificates).expect_err("another root hash");
}
