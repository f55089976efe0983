//! Writes the seeds of the trace fuzzers: `trace-seeds CORPUS` unpacks the fixtures, whole and
//! truncated to a size that a fuzzer mutates fast, into one folder per target.

use std::path::Path;

/// The fuzz targets, each with the prefix of its fixtures' names.
const TARGETS: [(&str, &str); 4] = [
    ("trace_perfetto", "perfetto-"),
    ("trace_perf", "perf-"),
    ("trace_dat", "trace-cmd-"),
    ("trace_text", "ftrace"),
];

/// Number of lines in the short text seed, which is the beginning of a fixture.
const LINES: usize = 40;

fn main() -> std::io::Result<()> {
    let corpus = std::env::args().nth(1).unwrap_or_else(|| "corpus".into());
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for entry in std::fs::read_dir(fixtures)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let target = TARGETS.iter().find(|(_, begin)| name.starts_with(begin));
        let (Some((target, _)), Some(stem)) = (target, name.strip_suffix(".z")) else {
            continue;
        };
        let packed = std::fs::read(&path)?;
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&packed)
            .map_err(|error| std::io::Error::other(format!("{name}: {error}")))?;
        let folder = Path::new(&corpus).join(target);
        std::fs::create_dir_all(&folder)?;
        if *target == "trace_text" {
            let lines = bytes.split_inclusive(|&byte| byte == b'\n').take(LINES);
            std::fs::write(folder.join("short"), lines.collect::<Vec<_>>().concat())?;
        }
        std::fs::write(folder.join(stem), bytes)?;
    }
    Ok(())
}
