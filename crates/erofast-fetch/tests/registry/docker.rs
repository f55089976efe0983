//! Debian's registry (the package docker-registry), if it is installed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;

/// `me:secret` with bcrypt, as written by htpasswd -B.
const PASSWORDS: &str = "me:$2y$04$3mRcaTJKW.zdyeQkAQ1wTOr6xSOi1LeWpA7NndBT0F1aKgUzmAByq\n";
const BASIC: &str = "Authorization: Basic bWU6c2VjcmV0\r\n";

pub(crate) struct Registry {
    process: Child,
    pub(crate) address: String,
    _directory: tempfile::TempDir,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Registry {
    /// Returns `None`, after printing why, if the program is missing.
    pub(crate) fn start(passwords: bool) -> Option<Registry> {
        let directory = cache();
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = port.expect("a port").to_string();
        let place = directory.path().display();
        let mut lines = format!(
            "version: 0.1\nstorage: {{filesystem: {{rootdirectory: {place}/data}}}}\n\
             http: {{addr: '{address}'}}\n"
        );
        if passwords {
            std::fs::write(directory.path().join("passwords"), PASSWORDS).unwrap();
            lines += &format!("auth: {{htpasswd: {{realm: r, path: {place}/passwords}}}}\n");
        }
        let config = directory.path().join("config.yml");
        std::fs::write(&config, lines).unwrap();
        let mut command = Command::new("docker-registry");
        command
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let Ok(process) = command.spawn() else {
            println!("skipped: docker-registry is not installed");
            return None;
        };
        let registry = Registry {
            process,
            address,
            _directory: directory,
        };
        let begin = Instant::now();
        while TcpStream::connect(&registry.address).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "the registry does not start"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(registry)
    }

    /// The answer, with its status and headers.
    fn request(&self, method: &str, path: &str, media_type: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.0\r\nHost: {}\r\n{BASIC}Content-Type: {media_type}\r\n\
             Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(
            answer.contains(" 201 ") || answer.contains(" 202 "),
            "{answer}"
        );
        answer
    }

    fn put_blob(&self, bytes: &[u8], media_type: &str) -> serde_json::Value {
        let begun = self.request("POST", "/v2/tools/blobs/uploads/", "text/plain", b"");
        let location = begun
            .lines()
            .find_map(|line| line.strip_prefix("Location: "))
            .unwrap();
        let (_, path) = location.trim().split_once(&self.address).unwrap();
        let digest = digest(bytes);
        let path = format!("{path}&digest={digest}");
        self.request("PUT", &path, "application/octet-stream", bytes);
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    /// Adds an image; returns the digest of its manifest.
    fn put_image(&self, layers: &[serde_json::Value]) -> String {
        let media_type = "application/vnd.oci.image.manifest.v1+json";
        let config = self.put_blob(b"{}", "application/vnd.oci.empty.v1+json");
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": layers
        });
        let text = manifest.to_string();
        self.request("PUT", "/v2/tools/manifests/v1", media_type, text.as_bytes());
        digest(text.as_bytes())
    }

    fn url(&self, version: &str) -> String {
        format!("oci://{}/tools{version}", self.address)
    }
}

#[test]
fn an_image_comes_out_of_debians_registry() {
    let Some(registry) = Registry::start(false) else {
        return;
    };
    let cache = cache();
    let layers = [
        registry.put_blob(b"tar", TAR),
        registry.put_blob(&image(LENGTH), EROFS),
    ];
    let manifest = registry.put_image(&layers);
    for version in [
        ":v1".to_owned(),
        format!("@{manifest}"),
        format!("@{}", digest(&image(LENGTH))),
    ] {
        let file = open(&registry.url(&version), &options(&cache)).unwrap();
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    }
    let fetcher = start(&registry.url(":v1"), &options(&cache)).unwrap();
    let device = open(fetcher.listed(0).next().unwrap().url(), &options(&cache)).unwrap();
    assert_eq!(read(&device, 0..3).unwrap(), b"tar");
    let line = refused(&registry.url(":v2"), &options(&cache));
    let missing = "the server answered 404 Not Found: no tag v2 in the repository tools";
    assert!(line.ends_with(missing), "{line}");
    let other = format!("oci://{}/other/name:v2", registry.address);
    let line = refused(&other, &options(&cache));
    assert!(
        line.ends_with("404 Not Found: no repository other/name"),
        "{line}"
    );
    let tls = Options {
        plain_http: Some(false),
        ..options(&cache)
    };
    let line = refused(&registry.url(":v1"), &tls);
    assert!(line.contains("the server does not speak TLS ("), "{line}");
}

#[test]
fn debians_registry_wants_a_password() {
    let Some(registry) = Registry::start(true) else {
        return;
    };
    let cache = cache();
    registry.put_image(&[registry.put_blob(&image(LENGTH), EROFS)]);
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(line.contains("requires a login"), "{line}");
    let path = cache.path().join("user");
    std::fs::write(&path, "me:secret\n").unwrap();
    let user = Options {
        user_file: Some(path),
        ..options(&cache)
    };
    let file = open(&registry.url(":v1"), &user).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
}
