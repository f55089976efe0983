//! Replays the findings of the trace fuzzers, and the fixtures, through the fuzzers' oracle.

use std::path::Path;

#[test]
fn the_fixtures_satisfy_the_oracle() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut checked = 0;
    for entry in std::fs::read_dir(fixtures).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "z") {
            let packed = std::fs::read(&path).unwrap();
            let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&packed).unwrap();
            crate::oracle::check(&bytes);
            checked += 1;
        }
    }
    assert!(checked >= 8, "{checked} fixtures");
}

#[test]
fn what_fuzzing_found_stays_fixed() {
    let findings = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/findings");
    for target in ["trace_perfetto", "trace_perf", "trace_dat", "trace_text"] {
        let Ok(files) = std::fs::read_dir(findings.join(target)) else {
            continue;
        };
        for file in files {
            let path = file.unwrap().path();
            println!("{}", path.display());
            crate::oracle::check(&std::fs::read(&path).unwrap());
        }
    }
}
