//! Formats the line about a request on standard error, with `debug`.

use fuse_transport::{Caller, Seen};
use rustix::io::Errno;

use crate::nodes::Nodes;

/// Formats the request, the requesting program and the outcome.
pub(crate) fn line(nodes: Nodes, seen: &Seen<'_>) -> String {
    let nid = nodes.nid(seen.node);
    let name = seen.name.map(String::from_utf8_lossy);
    let Caller { uid, pid, .. } = seen.caller;
    let outcome = match (seen.kind, seen.error) {
        (_, None) => "ok".to_owned(),
        (_, Some(Errno::NOENT)) => "not there".to_owned(),
        // After ENOSYS, the kernel stops sending these requests.
        ("open" | "opendir", Some(Errno::NOSYS)) => "no open needed".to_owned(),
        (_, Some(Errno::NOSYS)) => "not supported".to_owned(),
        (_, Some(errno)) => errno.to_string(),
    };
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
