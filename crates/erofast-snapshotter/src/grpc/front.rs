//! One socket for both services: decides which of them a request is for.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tower_service::Service;

use super::images::Images;
use super::service;
use super::snapshots::snapshots_server::SnapshotsServer;

type Snapshots = SnapshotsServer<service::Service>;

/// The two services behind the socket.
#[derive(Debug, Clone)]
pub struct Front {
    snapshots: Snapshots,
    images: Images,
}

impl Front {
    /// Creates the front for the two services.
    pub fn new(snapshots: service::Service, images: Images) -> Self {
        let snapshots = Snapshots::new(snapshots);
        Self { snapshots, images }
    }
}

impl Service<Request<Body>> for Front {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let path = request.uri().path();
        let snapshots = format!("/{}/", Snapshots::NAME);
        if path.starts_with(&snapshots) {
            return self.snapshots.call(request);
        }
        if Images::serves(path) {
            let images = self.images.clone();
            return Box::pin(async move { Ok(images.pass(request).await) });
        }
        let unknown = Status::unimplemented(format!("{path}: this call is not supported"));
        Box::pin(std::future::ready(Ok(unknown.into_http())))
    }
}
