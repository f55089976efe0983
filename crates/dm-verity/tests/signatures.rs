//! Signatures of a root hash made by OpenSSL (signatures/make): only the right signature is
//! accepted.

use std::path::{Path, PathBuf};

use dm_verity::{Certificates, RootHash, verify_signature};

const ROOT: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn fixture(name: &str) -> PathBuf {
    // The only certificate that the fuzzing oracle trusts.
    let name = if name == "rsa.crt" {
        "trusted/rsa.crt"
    } else {
        name
    };
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/signatures")
        .join(name)
}

fn signature(name: &str) -> Vec<u8> {
    std::fs::read(fixture(name).with_extension("p7s")).expect("a fixture")
}

/// A folder with these certificates from the fixtures.
fn folder(names: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in names {
        let file = format!("{name}.crt");
        std::fs::copy(fixture(&file), folder.path().join(&file)).expect("copied");
    }
    folder
}

fn verify(signature: &[u8], root: &str, trusted: &[&str]) -> Result<(), String> {
    let folder = folder(trusted);
    let certificates = Certificates::from_folder(folder.path()).expect("readable");
    verify_signature(signature, &root.parse::<RootHash>().unwrap(), &certificates)
        .map_err(|error| error.to_string())
}

#[test]
fn signatures_of_every_key_and_form_are_accepted() {
    for (name, signer) in [
        ("rsa", "rsa"),
        ("rsa-sha512", "rsa"),
        ("rsa-certificate", "rsa"),
        ("rsa-attributes", "rsa"),
        ("rsa-keyid", "rsa"),
        ("p256", "p256"),
        ("p384", "p384"),
    ] {
        verify(&signature(name), ROOT, &[signer]).unwrap_or_else(|error| panic!("{name}: {error}"));
        // The signed hash is in lowercase, whatever the case of the given hash.
        verify(&signature(name), &ROOT.to_uppercase(), &["other", signer]).unwrap();
    }
    verify(&signature("two-signers"), ROOT, &["rsa", "p256"]).unwrap();
}

#[test]
fn what_is_no_trusted_signature_is_refused_with_its_reason() {
    let zeros = "0".repeat(64);
    let cases: [(&str, &str, &[&str], &str); 16] = [
        ("rsa", &zeros, &["rsa"], "did not sign this root hash"),
        ("p256", &zeros, &["p256"], "did not sign this root hash"),
        ("p384", &zeros, &["p384"], "did not sign this root hash"),
        (
            "rsa-attributes",
            &zeros,
            &["rsa"],
            "does not sign this root hash",
        ),
        (
            "rsa-of-newline",
            ROOT,
            &["rsa"],
            "did not sign this root hash",
        ),
        (
            "rsa",
            ROOT,
            &["other"],
            "other.crt did not sign this root hash",
        ),
        (
            "rsa",
            ROOT,
            &["p256", "p384"],
            "none of the 2 certificates in",
        ),
        (
            "rsa-keyid",
            ROOT,
            &["other"],
            "matches the signer's key identifier ",
        ),
        // A signature does not make the certificate inside it trusted.
        (
            "rsa-certificate",
            ROOT,
            &["p256"],
            "matches the signer's serial number 10:00",
        ),
        (
            "two-signers",
            ROOT,
            &["rsa"],
            "matches the signer's serial number 10:01",
        ),
        ("rsa", ROOT, &[], "there is no certificate (*.crt) in "),
        ("rsa", ROOT, &["ed25519"], "is not RSA"),
        ("rsa-pss", ROOT, &["rsa"], "does not match the key in"),
        ("rsa-sha1", ROOT, &["rsa"], "is not SHA-256, -384 or -512"),
        ("rsa-attached", ROOT, &["rsa"], "must be a detached"),
        (
            "p256",
            ROOT,
            &["rsa", "p384"],
            "matches the signer's serial number 10:01",
        ),
    ];
    for (name, root, trusted, reason) in cases {
        let error = verify(&signature(name), root, trusted).unwrap_err();
        assert!(error.contains(reason), "{name}, {trusted:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn bytes_that_are_no_signature_are_refused() {
    let long = vec![0x30; (64 << 10) + 1];
    for (bytes, reason) in [
        (&b""[..], "not PKCS#7 in DER"),
        (b"0", "not PKCS#7 in DER"),
        (b"-----BEGIN PKCS7-----\n", "it is PEM"),
        (&long, "longer than 65536 bytes"),
        // A ContentInfo that holds plain data, and SignedData without signers.
        (
            b"\x30\x0b\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x07\x01",
            "not PKCS#7",
        ),
    ] {
        let error = verify(bytes, ROOT, &["rsa"]).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
}

/// For given content and a given key there is only one RSA signature with PKCS#1 v1.5, so a mutant
/// that is accepted must still contain that signature, and cannot sign another root hash.
#[test]
fn every_mutant_is_refused_unless_the_signed_bytes_are_whole() {
    let zeros: RootHash = "0".repeat(64).parse().unwrap();
    let root: RootHash = ROOT.parse().unwrap();
    let folder = folder(&["rsa", "other"]);
    let trusted = Certificates::from_folder(folder.path()).unwrap();
    for name in ["rsa", "rsa-attributes"] {
        let good = signature(name);
        let signed = signed_bytes(&good);
        for length in 0..good.len() {
            verify_signature(&good[..length], &root, &trusted).expect_err("truncated");
        }
        let trailing = [&good[..], &[0]].concat();
        verify_signature(&trailing, &root, &trusted).expect_err("something behind it");
        let mut accepted = 0;
        for bit in 0..good.len() * 8 {
            let mut mutant = good.clone();
            mutant[bit / 8] ^= 1 << (bit % 8);
            if verify_signature(&mutant, &root, &trusted).is_ok() {
                assert_eq!(signed_bytes(&mutant), signed, "{name}: bit {bit}");
                verify_signature(&mutant, &zeros, &trusted).expect_err("another root hash");
                accepted += 1;
            }
        }
        // Versions and algorithm parameters are not signed and have no effect here.
        assert!(accepted < 100, "{name}: {accepted} mutants");
    }
}

/// The RSA 2048 signature at the end of a file.
fn signed_bytes(whole: &[u8]) -> &[u8] {
    &whole[whole.len() - 256..]
}

#[test]
fn certificates_are_found_within_text_and_one_that_is_broken_is_named() {
    let folder = folder(&["p256"]);
    let text = std::fs::read_to_string(fixture("rsa.crt")).unwrap();
    let around = format!("Certificate:\n    Data:\n{text}\nmore\n{text}");
    std::fs::write(folder.path().join("bundle.crt"), around).unwrap();
    // Neither of these is read.
    std::fs::write(folder.path().join("other.pem"), "text").unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.path().join("masked.crt")).unwrap();
    let root: RootHash = ROOT.parse().unwrap();
    let trusted = Certificates::from_folder(folder.path()).unwrap();
    verify_signature(&signature("rsa"), &root, &trusted).unwrap();

    let broken = text.replace("MII", "AAA");
    std::fs::write(folder.path().join("bundle.crt"), broken).unwrap();
    let trusted = Certificates::from_folder(folder.path()).unwrap();
    let error = verify_signature(&signature("rsa"), &root, &trusted).unwrap_err();
    assert!(error.to_string().contains("bundle.crt: "), "{error}");
}

#[test]
fn a_folder_that_is_not_there_is_an_error_and_a_standard_one_is_not() {
    let error = Certificates::from_folder(Path::new("/nowhere")).unwrap_err();
    assert!(error.to_string().contains("/nowhere: "), "{error}");
    Certificates::standard().unwrap();
}
