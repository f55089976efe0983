//! Generates the server and the client of containerd's snapshots service. The messages are in
//! `src/grpc/messages.rs`.

use tonic_build::manual::{Builder, Method, Service};

const METHODS: [(&str, &str, &str, &str); 10] = [
    ("prepare", "Prepare", "CreateRequest", "MountsResponse"),
    ("view", "View", "CreateRequest", "MountsResponse"),
    ("mounts", "Mounts", "KeyRequest", "MountsResponse"),
    ("commit", "Commit", "CommitRequest", "Empty"),
    ("remove", "Remove", "KeyRequest", "Empty"),
    ("stat", "Stat", "KeyRequest", "InfoResponse"),
    ("update", "Update", "UpdateRequest", "InfoResponse"),
    ("list", "List", "Empty", "ListResponse"),
    ("usage", "Usage", "KeyRequest", "UsageResponse"),
    ("cleanup", "Cleanup", "Empty", "Empty"),
];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let service = Service::builder()
        .name("Snapshots")
        .package("containerd.services.snapshots.v1");
    let service = METHODS.iter().fold(service, |service, method| {
        let (name, route, input, output) = method;
        let method = Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("crate::grpc::messages::{input}"))
            .output_type(format!("crate::grpc::messages::{output}"))
            .codec_path("tonic_prost::ProstCodec");
        let method = match *name {
            "list" => method.server_streaming(),
            _ => method,
        };
        service.method(method.build())
    });
    Builder::new().compile(&[service.build()]);
}
