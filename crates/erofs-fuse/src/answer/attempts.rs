//! Stands in for an image that has taken over the server: makes the serving thread try calls that
//! the sandbox must refuse. Compiled into test builds only (feature `fail-points`).

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

use rustix::process::{getppid, getpriority_process, setpriority_process};
use rustix::thread::{sched_getaffinity, sched_setaffinity};
use serde_json::{Value, json};
use sys::attempts::ATTEMPTS;

/// An attribute of the mount's root: reading it makes the attempts.
pub const ATTEMPTS_XATTR: &str = "user.erofast.attempts";

/// An attribute of the mount's root: reading it crashes the server, as a flaw in a decoder would.
pub const CRASH_XATTR: &str = "user.erofast.crash";

/// The value of one of these attributes.
pub(crate) fn attribute(node: u64, name: &[u8], image: &str) -> Option<Vec<u8>> {
    match std::str::from_utf8(name) {
        _ if node != fuse_transport::wire::ROOT_NODE => None,
        Ok(CRASH_XATTR) => std::process::abort(),
        Ok(ATTEMPTS_XATTR) => Some(make(Path::new(image)).to_string().into_bytes()),
        _ => None,
    }
}

/// Makes all attempts, and returns the result of each, which is null for a refused attempt.
fn make(image: &Path) -> Value {
    let made = std::env::temp_dir().join(format!("erofs-fuse-made-{}", std::process::id()));
    let opens: [(&str, io::Result<File>); 5] = [
        ("read /etc/shadow", File::open("/etc/shadow")),
        ("list /", File::open("/")),
        ("read the memory of a process", File::open("/proc/1/mem")),
        (
            "write the image",
            OpenOptions::new().append(true).open(image),
        ),
        ("create a file", File::create_new(&made)),
    ];
    let _ = std::fs::remove_file(&made);
    let calls = ATTEMPTS
        .iter()
        .map(|attempt| (attempt.name, attempt.is_refused().err()));
    let opens = opens.into_iter().map(|(name, outcome)| {
        let refused = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
        let failed = match outcome {
            Ok(_) => Some(io::Error::other("allowed")),
            Err(error) => Some(error).filter(|error| !refused(error)),
        };
        (name, failed)
    });
    let all = opens.chain(calls).chain(against_the_helper());
    let value = all.map(|(name, failed)| (name.to_owned(), json!(failed.map(|e| e.to_string()))));
    Value::Object(value.collect())
}

/// Tries to act on the mount helper, which runs as a different user than the server if root
/// mounted. The attempts change nothing in it.
fn against_the_helper() -> Vec<(&'static str, Option<io::Error>)> {
    let Some(helper) = getppid() else {
        return Vec::new();
    };
    let number = helper.as_raw_nonzero().get();
    let policy = sys::sched::set_policy(number, sys::sched::Policy::Other);
    let nice = getpriority_process(Some(helper));
    let nice = nice.and_then(|nice| setpriority_process(Some(helper), nice));
    let cpus = sched_getaffinity(Some(helper));
    let cpus = cpus.and_then(|cpus| sched_setaffinity(Some(helper), &cpus));
    let tried = [
        ("change the policy of the helper", policy),
        (
            "change the priority of the helper",
            nice.map_err(io::Error::from),
        ),
        (
            "change the CPUs of the helper",
            cpus.map_err(io::Error::from),
        ),
    ];
    let outcome = |outcome: io::Result<()>| match outcome {
        Ok(()) => Some(io::Error::other("allowed")),
        Err(error) => Some(error).filter(|error| error.kind() != io::ErrorKind::PermissionDenied),
    };
    tried.map(|(name, tried)| (name, outcome(tried))).into()
}
