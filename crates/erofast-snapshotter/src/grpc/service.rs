//! The snapshots service: maps containerd's messages to calls of the snapshotter.

use std::sync::Arc;

use tokio::task::spawn_blocking;
use tonic::{Code, Request, Response, Status};

use super::messages::{
    CommitRequest, CreateRequest, Empty, Info, InfoResponse, KeyRequest, Kind, ListResponse, Mount,
    MountsResponse, Timestamp, UpdateRequest, UsageResponse,
};
use super::snapshots::snapshots_server::Snapshots;
use crate::failure::Failure;
use crate::snapshot::mounts;
use crate::snapshot::record;
use crate::snapshot::snapshotter::Snapshotter;

/// Maximum number of snapshots in one message of a list.
const AT_ONCE: usize = 100;

/// The snapshots service.
#[derive(Debug, Clone)]
pub struct Service(pub Arc<Snapshotter>);

type Answer<T> = Result<Response<T>, Status>;

impl Service {
    /// Runs a call on a thread that may block.
    async fn call<T: Send + 'static>(
        &self,
        call: impl FnOnce(&Snapshotter) -> Result<T, Failure> + Send + 'static,
    ) -> Answer<T> {
        let snapshotter = Arc::clone(&self.0);
        let done = spawn_blocking(move || call(&snapshotter)).await;
        let done = done.map_err(|error| Status::internal(error.to_string()))?;
        done.map(Response::new).map_err(status)
    }
}

fn status(failure: Failure) -> Status {
    let code = match failure {
        Failure::AlreadyExists(_) => Code::AlreadyExists,
        Failure::NotFound(_) => Code::NotFound,
        Failure::Precondition(_) => Code::FailedPrecondition,
        Failure::Invalid(_) => Code::InvalidArgument,
        Failure::Unavailable(_) => Code::Unavailable,
        Failure::Internal(_) => Code::Internal,
    };
    Status::new(code, failure.to_string())
}

#[tonic::async_trait]
impl Snapshots for Service {
    type ListStream = tokio_stream::Iter<std::vec::IntoIter<Result<ListResponse, Status>>>;

    async fn prepare(&self, request: Request<CreateRequest>) -> Answer<MountsResponse> {
        let asked = request.into_inner();
        self.call(move |own| {
            own.prepare(&asked.key, &asked.parent, asked.labels)
                .map(answer)
        })
        .await
    }

    async fn view(&self, request: Request<CreateRequest>) -> Answer<MountsResponse> {
        let asked = request.into_inner();
        self.call(move |own| {
            own.view(&asked.key, &asked.parent, asked.labels)
                .map(answer)
        })
        .await
    }

    async fn mounts(&self, request: Request<KeyRequest>) -> Answer<MountsResponse> {
        let key = request.into_inner().key;
        self.call(move |own| own.mounts(&key).map(answer)).await
    }

    async fn commit(&self, request: Request<CommitRequest>) -> Answer<Empty> {
        let asked = request.into_inner();
        self.call(move |own| own.commit(&asked.name, &asked.key, asked.labels))
            .await
    }

    async fn remove(&self, request: Request<KeyRequest>) -> Answer<Empty> {
        let key = request.into_inner().key;
        self.call(move |own| own.remove(&key)).await
    }

    async fn stat(&self, request: Request<KeyRequest>) -> Answer<InfoResponse> {
        let key = request.into_inner().key;
        self.call(move |own| {
            let record = own.stat(&key)?;
            Ok(described(key, record))
        })
        .await
    }

    async fn update(&self, request: Request<UpdateRequest>) -> Answer<InfoResponse> {
        let asked = request.into_inner();
        let Some(new) = asked.info else {
            return Err(Status::invalid_argument("update: the snapshot has no name"));
        };
        let paths = asked.update_mask.map(|mask| mask.paths);
        self.call(move |own| {
            let record = own.update(&new.name, new.labels, paths)?;
            Ok(described(new.name, record))
        })
        .await
    }

    /// Sends all snapshots and ignores the filters: containerd filters again.
    async fn list(&self, _: Request<Empty>) -> Answer<Self::ListStream> {
        self.call(|own| {
            let all = own.list()?.into_iter();
            let infos: Vec<_> = all.map(|(name, record)| info(name, record)).collect();
            let message = |some: &[Info]| {
                let info = some.to_vec();
                Ok(ListResponse { info })
            };
            let messages: Vec<_> = infos.chunks(AT_ONCE).map(message).collect();
            Ok(tokio_stream::iter(messages))
        })
        .await
    }

    async fn usage(&self, request: Request<KeyRequest>) -> Answer<UsageResponse> {
        let key = request.into_inner().key;
        self.call(move |own| {
            let used = own.usage(&key)?;
            Ok(UsageResponse {
                size: used.size.cast_signed(),
                inodes: used.inodes.cast_signed(),
            })
        })
        .await
    }

    async fn cleanup(&self, _: Request<Empty>) -> Answer<Empty> {
        self.call(Snapshotter::cleanup).await
    }
}

fn answer(mounts: Vec<mounts::Mount>) -> MountsResponse {
    let mounts = mounts.into_iter().map(|mount| Mount {
        kind: mount.kind.into(),
        source: mount.source,
        target: String::new(),
        options: mount.options,
    });
    MountsResponse {
        mounts: mounts.collect(),
    }
}

fn described(name: String, record: record::Record) -> InfoResponse {
    let info = Some(info(name, record));
    InfoResponse { info }
}

fn info(name: String, record: record::Record) -> Info {
    let kind = match record.kind {
        record::Kind::View => Kind::View,
        record::Kind::Active => Kind::Active,
        record::Kind::Committed => Kind::Committed,
    };
    let time = |since: std::time::Duration| Timestamp {
        seconds: since.as_secs().cast_signed(),
        nanos: since.subsec_nanos().cast_signed(),
    };
    Info {
        name,
        parent: record.parent,
        kind: kind.into(),
        created_at: Some(time(record.created)),
        updated_at: Some(time(record.updated)),
        labels: record.labels,
    }
}
