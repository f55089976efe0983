//! Tests the readers on unreadable files.

use super::*;
use std::path::PathBuf;

/// Result of `open` for a file with this content.
fn opened(name: &str, content: &[u8]) -> Result<Trace> {
    let path: PathBuf =
        std::env::temp_dir().join(format!("sched-trace-{}-{name}", std::process::id()));
    std::fs::write(&path, content).unwrap();
    let result = open(&path, &ReadOptions::default());
    std::fs::remove_file(&path).unwrap();
    result
}

fn line(name: &str, content: &[u8]) -> String {
    let line = opened(name, content).unwrap_err().to_string();
    assert!(!line.contains('\n'), "{line}");
    assert!(line.contains(name), "the file is named: {line}");
    line
}

#[test]
fn wrong_files_are_one_clear_line() {
    assert!(line("empty", b"").contains("the file is empty"));
    assert!(line("elf", b"\x7fELF\x02\x01\x01").contains("\\x7fELF"));
    assert!(line("prose", b"To be or not to be\n").contains("unknown trace format"));
    assert!(line("feeds", b"\n\n\n").contains("unknown trace format"));
    assert!(line("idle", b"# tracer: nop\n").contains("without scheduler events"));
}

#[test]
fn cut_headers_are_one_clear_line() {
    line("perf", b"PERFILE2");
    let mut huge = [b"PERFILE2".as_slice(), &104u64.to_le_bytes()].concat();
    huge.resize(104, 0xff);
    line("perf-huge", &huge);
    line("dat", tracing_data::MAGIC);
    let opening = [tracing_data::MAGIC.as_slice(), b"6\0\0\x08\0\x10\0\0"].concat();
    line("dat6", &opening);
    let unknown = [tracing_data::MAGIC.as_slice(), b"9\0\0\x08\0\x10\0\0"].concat();
    assert!(line("dat9", &unknown).contains("version 9"));
}

#[test]
fn a_missing_file_is_one_clear_line() {
    let missing = Path::new("/nonexistent/trace");
    let error = open(missing, &ReadOptions::default())
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("/nonexistent/trace: No such file"),
        "{error}"
    );
}

#[test]
fn what_is_not_read_is_refused_with_the_command_that_converts_it() {
    let zstd = [0x28, 0xb5, 0x2f, 0xfd, 0, 0];
    let opening = [tracing_data::MAGIC.as_slice(), b"6\0\x01\x08\0\0\x10\0"].concat();
    let pipe = [b"PERFILE2".as_slice(), &16u64.to_le_bytes()].concat();
    for (name, content, command) in [
        ("gzip", b"\x1f\x8b\x08\0\0\0".as_slice(), "gzip -dc "),
        ("zstd", &zstd, "zstd -dc "),
        (
            "perf-be",
            b"2ELIFREP\0\0\0\0\0\0\0\x68",
            "perf script --ns ",
        ),
        ("perf-pipe", &pipe, "perf script --ns "),
        ("dat-be", &opening, "trace-cmd report "),
    ] {
        let line = line(name, content);
        assert!(line.contains(command), "{line}");
    }
}
