//! Checks that the pages about additions name every file that an addition touches. A codec, a mount
//! option, a trace reader and an engine of the lab are added to a copy of the tree, in only those
//! files, and the copy is compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

/// An edit of a file: the first text is replaced with the second. For a new file the first text is
/// empty.
type Edit = (&'static str, &'static str, &'static str);

/// The pages of docs/contributing, each with an addition to the files that it names.
const ADDITIONS: [(&str, &[Edit]); 5] = [
    ("add-codec.md", CODEC),
    ("add-figure.md", FIGURE),
    ("add-mount-option.md", OPTION),
    ("add-trace-reader.md", READER),
    ("add-lab-engine.md", ENGINE),
];

const CODEC: &[Edit] = &[
    (
        "erofs-format/src/algorithm.rs",
        "Zstd = 3,",
        "Zstd = 3,\n/// Stored.\nStored = 4,",
    ),
    (
        "erofs-format/src/algorithm.rs",
        "[Algorithm; 4]",
        "[Algorithm; 5]",
    ),
    (
        "erofs-format/src/algorithm.rs",
        "Algorithm::Zstd,\n",
        "Algorithm::Zstd, Algorithm::Stored,\n",
    ),
    (
        "erofs-format/src/algorithm.rs",
        "Algorithm::Zstd => \"zstd\",",
        "Algorithm::Zstd => \"zstd\", Algorithm::Stored => \"stored\",",
    ),
    (
        "erofs-format/src/compression.rs",
        "Algorithm::Deflate | Algorithm::Zstd => 6,",
        "Algorithm::Deflate | Algorithm::Zstd | Algorithm::Stored => 6,",
    ),
    (
        "erofs-format/src/compression.rs",
        "Algorithm::Zstd => parsed",
        "Algorithm::Stored => {}\nAlgorithm::Zstd => parsed",
    ),
    (
        "erofs-codecs/src/settings.rs",
        "    Zstd,\n",
        "    Zstd,\n/// Stored.\nStored,\n",
    ),
    ("erofs-codecs/src/settings.rs", "[Codec; 4]", "[Codec; 5]"),
    (
        "erofs-codecs/src/settings.rs",
        "Codec::Zstd];",
        "Codec::Zstd, Codec::Stored];",
    ),
    (
        "erofs-codecs/src/settings.rs",
        "Codec::Zstd => ",
        "Codec::Stored => \"stored\", Codec::Zstd => ",
    ),
    (
        "erofs-codecs/src/lib.rs",
        "mod zstd;",
        "mod stored;\nmod zstd;",
    ),
    (
        "erofs-codecs/src/stored.rs",
        "",
        "//! Stored bytes.
         pub(crate) fn prefix(input: &[u8], output: &mut [u8]) -> Result<(), crate::Reason> {
             let bytes = input.get(..output.len()).ok_or(crate::Reason::Empty)?;
             output.copy_from_slice(bytes);
             Ok(())
         }",
    ),
    (
        "erofs-codecs/src/decoder.rs",
        "(Codec::Zstd, false)",
        "(Codec::Stored, _) => crate::stored::prefix(stream, output),\n(Codec::Zstd, false)",
    ),
    (
        "erofs-engine/src/read/decode.rs",
        "Algorithm::Zstd => ",
        "Algorithm::Stored => Codec::Stored, Algorithm::Zstd => ",
    ),
    (
        "erofs-engine/src/read/segment.rs",
        "Algorithm::Zstd => ",
        "Algorithm::Stored => 1, Algorithm::Zstd => ",
    ),
];

const OPTION: &[Edit] = &[
    (
        "erofs-fuse/src/options/known.rs",
        "    \"nohipri\" ",
        "    \"example\" \"an example\";\n    \"nohipri\" ",
    ),
    (
        "erofs-fuse/src/options.rs",
        "\"silent\" => ",
        "\"example\" => self.debug = true,\n\"silent\" => ",
    ),
];

const FIGURE: &[Edit] = &[
    (
        "erofs-engine/src/stats.rs",
        "        /// Decoder calls.\n",
        "/// An example.\npub example => counter \"examples_total\",\n        /// Decoder calls.\n",
    ),
    (
        "erofs-engine/src/engine.rs",
        "add(&self.common.counters.own().reads, 1);",
        "add(&self.common.counters.own().reads, 1); add(&self.common.counters.own().example, 1);",
    ),
];

const READER: &[Edit] = &[
    (
        "sched-trace/src/read/mod.rs",
        "mod text;",
        "mod empty;\nmod text;",
    ),
    (
        "sched-trace/src/read/mod.rs",
        "    Text,\n",
        "    Text,\n    Empty,\n",
    ),
    (
        "sched-trace/src/read/mod.rs",
        "Format::Text => text::read",
        "Format::Empty => empty::read(file, limits),\nFormat::Text => text::read",
    ),
    (
        "sched-trace/src/read/mod.rs",
        "Format::Text => text::FORMAT,",
        "Format::Text => text::FORMAT,\nFormat::Empty => \"empty\",",
    ),
    (
        "sched-trace/src/read/mod.rs",
        "    if head.starts_with(b\"PERF",
        "if head.starts_with(b\"EMPTY\") { return Some(Format::Empty); }
         if head.starts_with(b\"PERF",
    ),
    (
        "sched-trace/src/read/empty.rs",
        "",
        "//! A trace without events.
         pub(super) fn read(
             _: impl std::io::BufRead,
             _: crate::input::ReadOptions,
         ) -> Result<crate::Trace, crate::error::Fault> {
             Ok(crate::Trace::new(\"none\"))
         }",
    ),
];

const ENGINE: &[Edit] = &[
    (
        "latency-lab/src/engine/name.rs",
        "    Erofsfuse,\n",
        "    Erofsfuse,\n/// A.\nOther,\n",
    ),
    (
        "latency-lab/src/engine/name.rs",
        "Engine::Erofsfuse => (",
        "Engine::Other => (\"other\", \"\"),\nEngine::Erofsfuse => (",
    ),
    (
        "latency-lab/src/engine/name.rs",
        "(\"erofsfuse\", None) =>",
        "(\"other\", None) => Ok(Engine::Other),\n(\"erofsfuse\", None) =>",
    ),
    (
        "latency-lab/src/engine/probe.rs",
        "Engine::Erofsfuse => ",
        "Engine::Other => fuse(),\nEngine::Erofsfuse => ",
    ),
    (
        "latency-lab/src/engine/mount.rs",
        "Engine::Erofsfuse | ",
        "Engine::Other | Engine::Erofsfuse | ",
    ),
];

#[test]
fn the_pages_name_every_file_that_an_addition_touches() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let place = tempfile::tempdir().expect("a directory");
    let copied = Command::new("sh")
        .args([
            "-c",
            "tar -c --exclude=./target --exclude=./.git . | tar -x -C \"$1\"",
            "sh",
        ])
        .arg(place.path())
        .current_dir(&root)
        .status();
    assert!(copied.expect("it starts").success());
    for (page, edits) in ADDITIONS {
        let text = std::fs::read_to_string(root.join("docs/contributing").join(page));
        let text = text.expect("a page");
        for edit in edits {
            let name = Path::new(edit.0)
                .file_name()
                .expect("a name")
                .to_string_lossy();
            let new = edit.1.is_empty();
            assert!(
                new || text.contains(&*name),
                "{page} does not name {}",
                edit.0
            );
            apply(&place.path().join("crates"), edit);
        }
    }
    // Reuses the dependencies compiled for the tests, if they exist.
    let tests = std::env::current_exe().expect("a path");
    let target: PathBuf = tests.ancestors().skip(3).take(1).collect();
    let mut check = Command::new(env!("CARGO"));
    // Removes the variables that cargo sets for the crate under test; with them, the build scripts
    // of dependencies would run again.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let of_crate = ["CARGO_PKG_", "CARGO_MANIFEST_", "OUT_DIR"];
        if of_crate.iter().any(|begin| name.starts_with(begin)) {
            check.env_remove(&*name);
        }
    }
    let output = check
        .args(["check", "--locked", "--workspace", "--color=never"])
        .current_dir(place.path())
        .env("CARGO_TARGET_DIR", target)
        // Cargo identifies crates by their paths in the workspace. A separate wrapper keeps the
        // crates of the copy apart from those of this tree.
        .env("RUSTC_WORKSPACE_WRAPPER", "/usr/bin/env")
        .output()
        .expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
}

fn apply(crates: &Path, (file, old, new): &Edit) {
    let path = crates.join(file);
    let text = match old.is_empty() {
        true => (*new).to_owned(),
        false => {
            let text = std::fs::read_to_string(&path).expect("a file");
            assert!(text.contains(old), "{file} has no {old:?}: adapt this test");
            text.replacen(old, new, 1)
        }
    };
    std::fs::write(path, text).expect("written");
}
