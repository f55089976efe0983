//! Checks that a program that was built differently, possibly for another architecture, prints the
//! same output as the program that was built with this test.
//!
//! scripts/test-program runs this test with such a program.

use std::path::Path;

use crate::other::{answers, both, compare};

const OURS: &str = env!("CARGO_BIN_EXE_erofast-lab");

#[test]
fn it_says_the_same_of_every_trace() {
    if both(OURS).is_none() {
        return;
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sched-trace/tests/fixtures");
    let scratch = tempfile::tempdir().expect("a directory");
    let mut report = Vec::new();
    let mut traces = 0;
    for entry in fixtures.read_dir().expect("a directory") {
        let packed = entry.expect("an entry").path();
        if packed.extension().is_none_or(|name| name != "z") {
            continue;
        }
        let bytes = std::fs::read(&packed).expect("a fixture");
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&bytes).expect("zlib");
        let trace = scratch.path().join(packed.file_stem().expect("a name"));
        std::fs::write(&trace, bytes).expect("ours");
        let trace = trace.display().to_string();
        for by in ["task", "comm", "workqueue"] {
            let arguments = ["trace", "latency", "--json", "--by", by, &trace];
            if let Some([(status, stdout, stderr), _]) = answers(OURS, &arguments) {
                assert!(status == Some(0) && stdout.starts_with('{'), "{stderr}");
            }
            compare(OURS, &arguments, &mut report);
        }
        traces += 1;
    }
    assert!(traces >= 8, "{traces} traces");
    assert!(report.is_empty(), "{}", report.join("\n"));
}
