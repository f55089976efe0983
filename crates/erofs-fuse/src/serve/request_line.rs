//! The line of a request on standard error, with `debug`.

use fuse_transport::{Caller, Seen};

use super::nodes::Nodes;

/// What was requested, by which program, and the outcome.
pub(super) fn line(nodes: Nodes, seen: &Seen<'_>) -> String {
    let nid = nodes.nid(seen.node);
    let name = seen.name.map(String::from_utf8_lossy);
    let Caller { uid, pid, .. } = seen.caller;
    let outcome = seen
        .error
        .map_or("ok".to_owned(), |errno| errno.to_string());
    let parts = [
        Some(format!("{} {}", seen.unique, seen.kind)),
        nid.map(|nid| format!("nid {nid}")),
        name.map(|name| format!("{name:?}")),
        seen.range
            .map(|(from, size)| format!("{size} bytes at {from}")),
        Some(format!("for pid {pid} uid {uid}:")),
        Some(outcome),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
}
