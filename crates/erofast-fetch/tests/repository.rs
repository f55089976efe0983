//! A registry on loopback: the web server with the paths of the distribution specification.

use std::sync::Arc;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::server::Server;

pub(crate) const EROFS: &str = "application/vnd.erofs";
pub(crate) const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(bytes))
}

/// The answer to a request for a manifest or a token.
pub(crate) fn answer(headers: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 200 OK\r\n{headers}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// The repository `tools` of a registry. Anything that was not put there is missing.
pub(crate) struct Repository(pub(crate) Server);

impl Repository {
    pub(crate) fn new() -> Repository {
        let server = Server::start(Vec::new());
        server.state().files.insert(String::new(), Arc::default());
        Repository(server)
    }

    /// The URL of `:TAG` or `@DIGEST` in the repository.
    pub(crate) fn url(&self, version: &str) -> String {
        format!("oci://{}/tools{version}", self.0.address)
    }

    /// Adds a blob; returns its descriptor.
    pub(crate) fn put_blob(&self, bytes: &[u8], media_type: &str) -> Value {
        let digest = digest(bytes);
        let path = Repository::blob_path(&digest);
        self.0.state().files.insert(path, Arc::new(bytes.to_vec()));
        json!({ "mediaType": media_type, "digest": digest, "size": bytes.len() })
    }

    pub(crate) fn blob_path(digest: &str) -> String {
        format!("/v2/tools/blobs/{digest}")
    }

    /// Adds a manifest under the tag and under its digest, which is returned.
    pub(crate) fn put_manifest(&self, tag: &str, manifest: &Value) -> String {
        let (text, mut state) = (manifest.to_string(), self.0.state());
        let digest = digest(text.as_bytes());
        for version in [tag, &digest] {
            let headers = format!("Docker-Content-Digest: {digest}\r\n");
            let path = format!("/v2/tools/manifests/{version}");
            state.answers.insert(path, answer(&headers, &text));
        }
        digest
    }

    /// Adds an image of one layer; returns the digests of its manifest and its blob.
    pub(crate) fn put_image(&self, tag: &str, bytes: &[u8]) -> [String; 2] {
        let layer = self.put_blob(bytes, EROFS);
        [
            self.put_manifest(tag, &json!({ "layers": [layer] })),
            digest(bytes),
        ]
    }

    /// Paths that were requested since the last call.
    pub(crate) fn asked(&self) -> Vec<String> {
        let asked = std::mem::take(&mut self.0.state().asked);
        asked.into_iter().map(|asked| asked.path).collect()
    }
}
