//! Logins of kubelet's pulls.

use std::convert::Infallible;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use prost::Message;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic_prost::ProstCodec;

use crate::node::{Node, Site, mounts, runtime};

/// `runtime.v1.PullImageRequest`.
#[derive(Clone, PartialEq, Message)]
struct PullImage {
    #[prost(message, optional, tag = "1")]
    image: Option<Image>,
    #[prost(message, optional, tag = "2")]
    auth: Option<Auth>,
}

#[derive(Clone, PartialEq, Message)]
struct Image {
    #[prost(string, tag = "1")]
    image: String,
}

#[derive(Clone, PartialEq, Message)]
struct Auth {
    #[prost(string, tag = "1")]
    username: String,
    #[prost(string, tag = "2")]
    password: String,
}

#[derive(Clone, PartialEq, Message)]
struct Pulled {
    #[prost(string, tag = "1")]
    image_ref: String,
}

/// Stands in for containerd: records each request, and answers with the path that was called.
#[derive(Clone, Default)]
struct Containerd(Arc<Mutex<Vec<PullImage>>>);

impl tower_service::Service<Request<Body>> for Containerd {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = tonic::codegen::BoxFuture<Response<Body>, Infallible>;

    fn poll_ready(
        &mut self,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Result<(), Infallible>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let seen = Arc::clone(&self.0);
        Box::pin(async move {
            let path = request.uri().path().to_owned();
            let answer = move |request: tonic::Request<PullImage>| {
                seen.lock().unwrap().push(request.into_inner());
                let image_ref = path.clone();
                std::future::ready(Ok(tonic::Response::new(Pulled { image_ref })))
            };
            let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(Unary(answer), request).await)
        })
    }
}

struct Unary<F>(F);

impl<F, A> tonic::server::UnaryService<PullImage> for Unary<F>
where
    F: FnMut(tonic::Request<PullImage>) -> A,
    A: Future<Output = Result<tonic::Response<Pulled>, tonic::Status>>,
{
    type Response = Pulled;
    type Future = A;
    fn call(&mut self, request: tonic::Request<PullImage>) -> A {
        self.0(request)
    }
}

impl NamedService for Containerd {
    const NAME: &'static str = "runtime.v1.ImageService";
}

async fn pull(channel: Channel, path: &'static str, image: &str) -> Result<Pulled, tonic::Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let image = Some(Image {
        image: image.into(),
    });
    let auth = Some(Auth {
        username: "me".into(),
        password: "secret-of-pull".into(),
    });
    let path = tonic::codegen::http::uri::PathAndQuery::from_static(path);
    let request = tonic::Request::new(PullImage { image, auth });
    let codec = ProstCodec::default();
    client
        .unary(request, path, codec)
        .await
        .map(tonic::Response::into_inner)
}

#[test]
fn the_login_of_a_pull_reaches_the_registry_and_no_argument_and_no_log() {
    if !mounts() {
        return;
    }
    let (site, mut node) = (Site::new(), Node::started());
    // me:secret-of-pull
    let wanted = "Basic bWU6c2VjcmV0LW9mLXB1bGw=".to_owned();
    site.registry.0.state().guard = Some((wanted, "Basic realm=\"r\"".into()));
    let image = site.image();
    assert!(
        !node.pull("k/1/a", "", "sha256:c", &image, &site.digest),
        "no login yet"
    );
    assert!(node.log().contains("401"), "{}", node.log());

    let runtime = runtime();
    let containerd = Containerd::default();
    let seen = Arc::clone(&containerd.0);
    let path = node.path("containerd.sock");
    let address = format!("unix:{}", node.socket().display());
    let channel = Endpoint::from_shared(address).unwrap();
    let channel = runtime.block_on(async { channel.connect_lazy() });
    const PULL: &str = "/runtime.v1.ImageService/PullImage";
    let away = runtime
        .block_on(pull(channel.clone(), PULL, &image))
        .unwrap_err();
    assert_eq!(away.code(), tonic::Code::Unavailable, "{away:?}");
    runtime.spawn(async move {
        let listener = tokio::net::UnixListener::bind(path).unwrap();
        let incoming = UnixListenerStream::new(listener);
        Server::builder()
            .serve_with_incoming(containerd, incoming)
            .await
    });
    for path in [PULL, "/runtime.v1alpha2.ImageService/PullImage"] {
        let begun = std::time::Instant::now();
        let pulled = loop {
            match runtime.block_on(pull(channel.clone(), path, &image)) {
                Ok(pulled) => break pulled,
                Err(error) => assert!(begun.elapsed() < crate::node::LONG, "{error:?}"),
            }
        };
        assert_eq!(pulled.image_ref, path, "passed on");
    }
    let passed = seen.lock().unwrap().last().cloned().unwrap();
    assert_eq!(passed.auth.unwrap().password, "secret-of-pull");
    let other = runtime.block_on(pull(channel, "/runtime.v1.RuntimeService/Version", &image));
    assert_eq!(other.unwrap_err().code(), tonic::Code::Unimplemented);

    assert!(
        node.pull("k/2/a", "", "sha256:c", &image, &site.digest),
        "{}",
        node.log()
    );
    site.compare(&node.points()[0]);
    let secret = b"secret-of-pull";
    let has = |bytes: &[u8]| bytes.windows(secret.len()).any(|part| part == secret);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        for file in ["cmdline", "environ"] {
            assert!(!has(
                &fs::read(process.path().join(file)).unwrap_or_default()
            ));
        }
    }
    assert!(!has(node.log().as_bytes()));
    assert!(
        !below(&node.path("root")).iter().any(|bytes| has(bytes)),
        "not on the disk"
    );
    // A restarted snapshotter also has the login: after an unmount, the layer is mounted again.
    node.restart();
    node.prepare("c", "sha256:c", &crate::node::Labels::new())
        .unwrap();
    erofast_snapshotter::layer::mount_table::detach(&node.points()[0]).unwrap();
    node.mounts("c").unwrap();
    site.compare(&node.points()[0]);
    // The login is removed together with its layer.
    assert!(below(&node.path("run")).iter().any(|bytes| has(bytes)));
    node.remove("c").unwrap();
    node.remove("sha256:c").unwrap();
    assert!(!below(&node.path("run")).iter().any(|bytes| has(bytes)));
}

/// The bytes of all files except those in mounts.
fn below(folder: &Path) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && entry.file_name() != "layers" {
            all.extend(below(&entry.path()));
        } else if kind.is_file() {
            all.push(fs::read(entry.path()).unwrap());
        }
    }
    all
}

#[test]
fn a_login_of_docker_s_file_is_used() {
    if !mounts() {
        return;
    }
    let (site, node) = (Site::new(), Node::started());
    let wanted = "Basic bWU6c2VjcmV0LW9mLXB1bGw=".to_owned();
    site.registry.0.state().guard = Some((wanted, "Basic realm=\"r\"".into()));
    fs::create_dir(node.path(".docker")).unwrap();
    let host = site.registry.0.address;
    let text = format!("{{\"auths\": {{\"{host}\": {{\"auth\": \"bWU6c2VjcmV0LW9mLXB1bGw=\"}}}}}}");
    fs::write(node.path(".docker/config.json"), text).unwrap();
    assert!(
        node.pull("k/1/a", "", "sha256:c", &site.image(), &site.digest),
        "{}",
        node.log()
    );
    site.compare(&node.points()[0]);
}
