//! Tests the program as a user runs it.
//!
//! All tests are in one executable, because separate ones would each have to be linked.

mod additions;
mod automount;
mod bad_images;
mod c_library;
mod check;
mod circles;
mod common;
#[cfg(feature = "tools")]
mod completions;
mod differential;
mod docs;
#[cfg(feature = "tools")]
mod erofs_utils;
mod extract;
mod failures;
mod features;
#[path = "common/forged.rs"]
mod forged;
mod format_table;
mod holes;
mod hostile;
mod images;
mod initramfs;
mod layers;
mod licences;
mod listing;
mod locks;
mod machines;
mod manners;
#[cfg(feature = "tools")]
mod measure;
mod mounts;
mod mutants;
mod names;
mod other_names;
mod other_program;
mod overlay;
mod package;
#[cfg(feature = "tools")]
mod profile;
mod prose;
#[cfg(feature = "tools")]
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../erofast-fetch/tests/repository.rs"]
mod repository;
#[path = "../../latency-lab/tests/common/schema.rs"]
mod schema;
#[cfg(feature = "tools")]
mod schemas;
#[cfg(feature = "tools")]
mod several_images;
mod streams;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../fuse-transport/tests/mount/switch.rs"]
mod switch;
mod tools;
#[cfg(feature = "tools")]
mod travelling;
mod verity;
#[allow(dead_code, reason = "other tests use the rest")]
#[path = "../../erofast-fetch/tests/server.rs"]
mod web_server;
#[path = "../../dm-verity/tests/common/writer.rs"]
mod writer;

// The tests' registry uses the module under this name.
#[cfg(feature = "tools")]
use web_server as server;
