//! A client of the CRI plugin: the few calls that create a pod with one container. The fields are
//! those of `runtime.v1`.

use std::path::Path;

use prost::Message;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

use crate::node::runtime;

#[derive(Clone, PartialEq, Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// `PullImageRequest`, `RemoveImageRequest`: an `ImageSpec`.
#[derive(Clone, PartialEq, Message)]
struct OfImage {
    #[prost(message, optional, tag = "1")]
    image: Option<Text>,
    #[prost(message, optional, tag = "3")]
    sandbox: Option<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    namespace: String,
}

/// `PodSandboxConfig`.
#[derive(Clone, PartialEq, Message)]
struct Sandbox {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Metadata>,
    #[prost(string, tag = "3")]
    log_directory: String,
    #[prost(message, optional, tag = "8")]
    linux: Option<Linux>,
}

#[derive(Clone, PartialEq, Message)]
struct Linux {
    #[prost(message, optional, tag = "2")]
    security: Option<Security>,
}

#[derive(Clone, PartialEq, Message)]
struct Security {
    #[prost(message, optional, tag = "1")]
    namespaces: Option<Namespaces>,
}

/// `NamespaceOption`; 2 stands for the node's namespace.
#[derive(Clone, PartialEq, Message)]
struct Namespaces {
    #[prost(int32, tag = "1")]
    network: i32,
    #[prost(message, optional, tag = "5")]
    users: Option<Users>,
}

/// `UserNamespace` of the pod.
#[derive(Clone, PartialEq, Message)]
struct Users {
    #[prost(message, repeated, tag = "2")]
    users: Vec<Mapping>,
    #[prost(message, repeated, tag = "3")]
    groups: Vec<Mapping>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct Mapping {
    #[prost(uint32, tag = "1")]
    host: u32,
    #[prost(uint32, tag = "2")]
    container: u32,
    #[prost(uint32, tag = "3")]
    length: u32,
}

/// `LinuxContainerConfig`.
#[derive(Clone, PartialEq, Message)]
struct LinuxContainer {
    #[prost(message, optional, tag = "2")]
    security: Option<ContainerSecurity>,
}

#[derive(Clone, PartialEq, Message)]
struct ContainerSecurity {
    #[prost(message, optional, tag = "3")]
    namespaces: Option<Namespaces>,
}

#[derive(Clone, PartialEq, Message)]
struct RunSandbox {
    #[prost(message, optional, tag = "1")]
    config: Option<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
struct Container {
    #[prost(message, optional, tag = "1")]
    metadata: Option<Text>,
    #[prost(message, optional, tag = "2")]
    image: Option<Text>,
    #[prost(string, tag = "11")]
    log: String,
    #[prost(message, optional, tag = "15")]
    linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(message, optional, tag = "2")]
    config: Option<Container>,
    #[prost(message, optional, tag = "3")]
    sandbox: Option<Sandbox>,
}

#[derive(Clone, PartialEq, Message)]
struct Exec {
    #[prost(string, tag = "1")]
    container: String,
    #[prost(string, repeated, tag = "2")]
    command: Vec<String>,
    #[prost(int64, tag = "3")]
    timeout: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Executed {
    #[prost(bytes, tag = "1")]
    out: Vec<u8>,
    #[prost(bytes, tag = "2")]
    errors: Vec<u8>,
    #[prost(int32, tag = "3")]
    status: i32,
}

/// A pod and its container.
pub struct Pod {
    pod: String,
    container: String,
}

pub struct Cri {
    runtime: Runtime,
    containerd: Channel,
    /// The service that kubelet asks for images.
    images: Channel,
    logs: String,
}

impl Cri {
    pub fn new(containerd: &Path, images: &Path, logs: &Path) -> Cri {
        let runtime = runtime();
        let connect = |path: &Path| {
            let endpoint = Endpoint::from_shared(format!("unix:{}", path.display())).unwrap();
            runtime.block_on(async { endpoint.connect_lazy() })
        };
        let (containerd, images) = (connect(containerd), connect(images));
        let logs = logs.display().to_string();
        Cri {
            runtime,
            containerd,
            images,
            logs,
        }
    }

    fn ask<Q: Message + Default + 'static, A: Message + Default + 'static>(
        &self,
        call: &str,
        request: Q,
    ) -> Result<A, String> {
        let is_of_images = call.starts_with("ImageService");
        let channel = if is_of_images {
            &self.images
        } else {
            &self.containerd
        };
        let mut client = Grpc::new(channel.clone());
        let path = PathAndQuery::try_from(format!("/runtime.v1.{call}")).unwrap();
        self.runtime.block_on(async move {
            let failed = |error: &dyn std::fmt::Debug| format!("{call}: {error:?}");
            client.ready().await.map_err(|error| failed(&error))?;
            let codec = ProstCodec::default();
            let answer = client
                .unary(tonic::Request::new(request), path, codec)
                .await;
            answer
                .map(tonic::Response::into_inner)
                .map_err(|error| failed(&error))
        })
    }

    pub fn answers(&self) -> bool {
        let version: Result<Nothing, _> = self.ask("RuntimeService/Version", Nothing {});
        version.is_ok()
    }

    pub fn pull(&self, image: &str) -> Result<(), String> {
        self.ask("ImageService/PullImage", of_image(image))
            .map(|_: Text| ())
    }

    pub fn remove_image(&self, image: &str) -> Result<(), String> {
        self.ask("ImageService/RemoveImage", of_image(image))
            .map(|_: Nothing| ())
    }

    fn sandbox(&self, name: &str, namespaces: &Namespaces) -> Option<Sandbox> {
        let metadata = Some(Metadata {
            name: name.into(),
            uid: name.into(),
            namespace: "default".into(),
        });
        let security = Some(Security {
            namespaces: Some(namespaces.clone()),
        });
        Some(Sandbox {
            metadata,
            log_directory: self.logs.clone(),
            linux: Some(Linux { security }),
        })
    }

    /// Runs a pod with the image's own command, in the host's network.
    pub fn run(&self, name: &str, image: &str) -> Result<Pod, String> {
        let namespaces = Namespaces {
            network: 2,
            users: None,
        };
        self.run_in(name, image, &namespaces)
    }

    /// Runs a pod whose user IDs are mapped to IDs from `host` on.
    pub fn run_mapped(&self, name: &str, image: &str, host: u32) -> Result<Pod, String> {
        let mapping = Mapping {
            host,
            container: 0,
            length: 65_536,
        };
        let users = Some(Users {
            users: vec![mapping],
            groups: vec![mapping],
        });
        self.run_in(name, image, &Namespaces { network: 0, users })
    }

    fn run_in(&self, name: &str, image: &str, namespaces: &Namespaces) -> Result<Pod, String> {
        let config = self.sandbox(name, namespaces);
        let pod: Text = self.ask("RuntimeService/RunPodSandbox", RunSandbox { config })?;
        let security = Some(ContainerSecurity {
            namespaces: Some(namespaces.clone()),
        });
        let create = CreateContainer {
            pod: pod.text.clone(),
            config: Some(Container {
                metadata: text("main"),
                image: text(image),
                log: format!("{name}.log"),
                linux: Some(LinuxContainer { security }),
            }),
            sandbox: self.sandbox(name, namespaces),
        };
        let container: Text = self.ask("RuntimeService/CreateContainer", create)?;
        let start = Text {
            text: container.text.clone(),
        };
        let _: Nothing = self.ask("RuntimeService/StartContainer", start)?;
        Ok(Pod {
            pod: pod.text,
            container: container.text,
        })
    }

    pub fn exec(&self, pod: &Pod, command: &[&str]) -> Result<String, String> {
        let exec = Exec {
            container: pod.container.clone(),
            command: command.iter().map(|word| (*word).into()).collect(),
            timeout: 60,
        };
        let done: Executed = self.ask("RuntimeService/ExecSync", exec)?;
        match done.status {
            0 => Ok(String::from_utf8_lossy(&done.out).into_owned()),
            status => Err(format!(
                "{status}: {}",
                String::from_utf8_lossy(&done.errors)
            )),
        }
    }

    pub fn remove(&self, pod: &Pod) -> Result<(), String> {
        for call in ["StopPodSandbox", "RemovePodSandbox"] {
            let text = pod.pod.clone();
            let _: Nothing = self.ask(&format!("RuntimeService/{call}"), Text { text })?;
        }
        Ok(())
    }
}

fn text(text: &str) -> Option<Text> {
    Some(Text { text: text.into() })
}

fn of_image(image: &str) -> OfImage {
    OfImage {
        image: text(image),
        sandbox: None,
    }
}
