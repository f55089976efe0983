//! Signed root hashes.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::{Verified, fixture, text};
use crate::common::erofast;
use crate::writer::Recipe;

/// Signs `root` with a new certificate in `folder`; `None` without OpenSSL.
fn sign(folder: &Path, name: &str, key: &[&str], root: &str) -> Option<PathBuf> {
    let file = |extension| folder.join(name).with_extension(extension);
    let (key_file, certificate, text) = (file("key"), file("crt"), file("txt"));
    let signature = file("p7s");
    std::fs::write(&text, root).expect("written");
    let openssl = |arguments: &[&str], paths: &[(&str, &Path)]| {
        let mut command = std::process::Command::new("openssl");
        command.args(arguments);
        for (flag, path) in paths {
            command.arg(flag).arg(path);
        }
        command.output().is_ok_and(|output| output.status.success())
    };
    let subject = format!("/CN={name}");
    let request = ["req", "-x509", "-nodes", "-subj", &subject, "-newkey"];
    let made = openssl(
        &[&request[..], key].concat(),
        &[("-keyout", &key_file), ("-out", &certificate)],
    );
    let form = [
        "smime", "-sign", "-nocerts", "-noattr", "-binary", "-outform", "der",
    ];
    let files: [(&str, &Path); 4] = [
        ("-in", &text),
        ("-inkey", &key_file),
        ("-signer", &certificate),
        ("-out", &signature),
    ];
    (made && openssl(&form, &files)).then_some(signature)
}

const RSA: &[&str] = &["rsa:2048"];
const P256: &[&str] = &["ec", "-pkeyopt", "ec_paramgen_curve:P-256"];

#[test]
fn every_command_asks_for_the_signature_and_a_mount_as_well() {
    let image = fixture("lz4-full-index-64k");
    let verified = Verified::new(&image.path, &Recipe::new("sha256", 4096, b"salt"), true);
    let (trusted, strange) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (Some(rsa), Some(p256), Some(foreign), Some(other)) = (
        sign(trusted.path(), "rsa", RSA, &verified.root),
        sign(trusted.path(), "p256", P256, &verified.root),
        sign(strange.path(), "foreign", P256, &verified.root),
        sign(trusted.path(), "other", P256, &"0".repeat(64)),
    ) else {
        println!("skipped: no openssl that makes certificates");
        return;
    };
    let target = tempfile::tempdir().unwrap();
    let no_signature = trusted.path().join("rsa.txt");
    let cases = [
        (&rsa, None),
        (&p256, None),
        (&foreign, Some("none of the 3 certificates in ")),
        (&other, Some("other.crt did not sign this root hash")),
        (&no_signature, Some("it is not PKCS#7 in DER")),
    ];
    for (n, (signature, refused)) in cases.into_iter().enumerate() {
        let out = target.path().join(n.to_string());
        let commands: [(&str, &[&str]); 5] = [
            ("ls", &["/"]),
            ("cat", &["/?*"]),
            ("info", &[]),
            ("check", &[]),
            ("extract", &[out.to_str().unwrap()]),
        ];
        for (command, rest) in commands {
            let output = erofast()
                .arg(command)
                .args(verified.arguments())
                .arg("--verity-roothashsig")
                .arg(signature)
                .arg("--verity-certificates")
                .arg(trusted.path())
                .arg(&verified.image)
                .args(rest)
                .output()
                .unwrap();
            check_outcome(command, &output, refused);
        }
        for names in ["verity.", "verity_"] {
            check_mount(&verified, names, signature, trusted.path(), refused);
        }
    }
}

fn check_outcome(command: &str, output: &Output, refused: Option<&str>) {
    let printed = text(&output.stderr);
    match refused {
        // `cat` may fail because a name that matches is a directory.
        None if command == "cat" => assert!(!printed.contains("verity"), "{printed}"),
        None => assert!(output.status.success(), "{command}: {printed}"),
        Some(reason) => {
            assert_eq!(output.status.code(), Some(1), "{command}: {printed}");
            assert!(printed.contains(reason), "{command}: {printed}");
            let lines = printed
                .trim_end()
                .lines()
                .filter(|line| line.contains("signature"));
            assert_eq!(lines.count(), 1, "{command}: {printed}");
        }
    }
}

fn check_mount(
    verified: &Verified,
    names: &str,
    signature: &Path,
    trusted: &Path,
    refused: Option<&str>,
) {
    let point = tempfile::tempdir().unwrap();
    let options = format!(
        "{names}roothash={},{names}hashoffset={},{names}roothashsig={},{names}certificates={}",
        verified.root,
        verified.tree_offset(),
        signature.display(),
        trusted.display()
    );
    let mounted = erofast()
        .args(["mount", "-o", &options])
        .args([&verified.image, point.path()])
        .output()
        .unwrap();
    let printed = text(&mounted.stderr);
    if !Path::new("/dev/fuse").exists() || printed.contains("fusermount3") {
        println!("skipped: {printed}");
        return;
    }
    check_outcome("mount", &mounted, refused);
    if refused.is_none() {
        assert!(std::fs::read_dir(point.path()).unwrap().count() > 0);
        let unmounted = erofast().arg("umount").arg(point.path()).status().unwrap();
        assert!(unmounted.success());
    }
}
