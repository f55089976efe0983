//! Kubelet's image service. Requests are passed on to containerd unchanged; the login in a pull
//! request is remembered, since containerd does not pass it to snapshotters.

use std::path::Path;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use prost::Message;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::transport::{Channel, Endpoint};
use tower_service::Service;

use crate::layer::login::{Login, Logins};
use crate::layer::reference::normalised;

/// Size limit of a pull request, in bytes.
const MOST_BYTES: usize = 4 << 20;

/// Length in bytes of the prefix that says whether a message is compressed, and how long it is.
const FRAME: usize = 5;

/// The fields of `runtime.v1.PullImageRequest` that are needed; v1alpha2 has the same ones.
#[derive(Clone, PartialEq, Message)]
struct PullImage {
    #[prost(message, optional, tag = "1")]
    image: Option<ImageSpec>,
    #[prost(message, optional, tag = "2")]
    auth: Option<AuthConfig>,
}

#[derive(Clone, PartialEq, Message)]
struct ImageSpec {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct AuthConfig {
    #[prost(string, tag = "1")]
    username: String,
    #[prost(string, tag = "2")]
    password: String,
    /// `username:password` in base64.
    #[prost(string, tag = "3")]
    auth: String,
    #[prost(string, tag = "6")]
    registry_token: String,
}

impl std::fmt::Debug for AuthConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AuthConfig")
    }
}

impl AuthConfig {
    fn login(self) -> Option<Login> {
        let line_break = |text: &str| text.contains(['\n', '\r']);
        let (name, password) = match self.auth.is_empty() {
            true => (self.username, self.password),
            false => {
                let plain = STANDARD.decode(self.auth.trim()).ok()?;
                let plain = String::from_utf8(plain).ok()?;
                let (name, password) = plain.trim_end_matches('\0').split_once(':')?;
                (name.to_owned(), password.to_owned())
            }
        };
        if !name.is_empty() && !line_break(&name) && !line_break(&password) {
            return Some(Login::User(name, password));
        }
        let token = self.registry_token;
        (!token.is_empty() && !line_break(&token)).then_some(Login::Token(token))
    }
}

/// containerd's image service.
#[derive(Debug, Clone)]
pub struct Images {
    containerd: Channel,
    logins: Arc<Logins>,
}

impl Images {
    /// Creates the client, which connects on the first request.
    pub fn new(containerd: &Path, logins: Arc<Logins>) -> Result<Self, String> {
        let address = format!("unix:{}", containerd.display());
        let endpoint = Endpoint::from_shared(address)
            .map_err(|error| format!("--containerd={}: {error}", containerd.display()))?;
        Ok(Self {
            containerd: endpoint.connect_lazy(),
            logins,
        })
    }

    /// Whether a request is for this service.
    pub fn serves(path: &str) -> bool {
        path.starts_with("/runtime.v1.ImageService/")
            || path.starts_with("/runtime.v1alpha2.ImageService/")
    }

    /// Passes a request on to containerd.
    pub async fn pass(mut self, request: Request<Body>) -> Response<Body> {
        let request = match request.uri().path().ends_with("/PullImage") {
            true => self.noted(request).await,
            false => Ok(request),
        };
        let answer = match request {
            Ok(request) => self.ask(request).await,
            Err(status) => Err(status),
        };
        answer.unwrap_or_else(|status| status.into_http())
    }

    async fn ask(&mut self, request: Request<Body>) -> Result<Response<Body>, Status> {
        let unavailable = |error: tonic::transport::Error| {
            Status::unavailable(format!("containerd does not answer: {error}"))
        };
        let ready = std::future::poll_fn(|context| self.containerd.poll_ready(context));
        ready.await.map_err(unavailable)?;
        self.containerd.call(request).await.map_err(unavailable)
    }

    /// Remembers the login in a request, and returns the request.
    async fn noted(&self, request: Request<Body>) -> Result<Request<Body>, Status> {
        let (head, body) = request.into_parts();
        let read = Limited::new(body, MOST_BYTES).collect().await;
        let bytes = read.map_err(|error| Status::invalid_argument(error.to_string()))?;
        let bytes = bytes.to_bytes();
        self.note(&bytes);
        let body = Full::new(bytes).map_err(|never| match never {});
        Ok(Request::from_parts(head, Body::new(body)))
    }

    /// Notes a login. Compressed messages are skipped: kubelet sends none.
    fn note(&self, bytes: &Bytes) {
        let message = bytes.get(FRAME..).filter(|_| bytes[0] == 0);
        let pull = message.and_then(|message| PullImage::decode(message).ok());
        if let Some(pull) = pull
            && let Some(image) = pull.image
            && let Some(login) = pull.auth.and_then(AuthConfig::login)
        {
            self.logins.remember(normalised(&image.image), login);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(auth: AuthConfig) -> Option<Login> {
        let pull = PullImage {
            image: None,
            auth: Some(auth),
        };
        let pull = PullImage::decode(&*pull.encode_to_vec()).unwrap();
        assert!(!format!("{pull:?}").contains("secret"));
        pull.auth.unwrap().login()
    }

    #[test]
    fn logins_of_a_pull_are_names_with_passwords_or_tokens() {
        let user = Some(Login::User("me".into(), "secret:2".into()));
        let named = AuthConfig {
            username: "me".into(),
            password: "secret:2".into(),
            ..AuthConfig::default()
        };
        assert_eq!(login(named), user);
        let encoded = AuthConfig {
            auth: STANDARD.encode("me:secret:2"),
            ..AuthConfig::default()
        };
        assert_eq!(login(encoded), user);
        let token = AuthConfig {
            registry_token: "secret".into(),
            ..AuthConfig::default()
        };
        assert_eq!(login(token), Some(Login::Token("secret".into())));
        assert_eq!(login(AuthConfig::default()), None);
        let two_lines = AuthConfig {
            username: "me".into(),
            password: "secret\nX: y".into(),
            ..AuthConfig::default()
        };
        assert_eq!(login(two_lines), None);
    }
}
