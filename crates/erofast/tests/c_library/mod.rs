//! The C library as its callers use it: installed, compiled against, run, and under valgrind.

mod build;
mod printed;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{
    TestImage, all_good_images, bad_images, fetcher, fixtures, good_images, manifest,
};
use crate::web_server::Server;
use build::{Installed, run, source, still_reachable, text};
use erofs_oracles::hostile::{self, LARGE, SPARSE, SPARSE_DATA};
use printed::trees;
use serde::Deserialize;

/// A malformed image and the expected result.
#[derive(Debug, Deserialize)]
struct Case {
    image: String,
    expect: String,
    paths: Vec<String>,
}

fn bad_cases() -> (PathBuf, Vec<Case>) {
    let bad = bad_images();
    let text = std::fs::read_to_string(bad.join("manifest.jsonl")).expect("manifest.jsonl");
    let cases = text.lines();
    let cases = cases.map(|line| serde_json::from_str(line).expect("a case"));
    (bad, cases.collect())
}

/// Maximum number of bytes that libraries keep for future threads after all images are closed:
/// arc-swap keeps a record (192 bytes) for each thread that existed at the same time, and
/// thread_local keeps the IDs of threads that have ended. An image that was not freed would take
/// far more.
const MOST_KEPT: u64 = 1024;

/// Runs the C program on images, and returns its output.
fn read(mut reader: Command, images: &[(PathBuf, String)]) -> Vec<printed::Tree> {
    for (path, options) in images {
        reader.arg(path).arg(options);
    }
    let output = run(&mut reader);
    assert!(still_reachable(&output) <= MOST_KEPT);
    let found = trees(&text(&output));
    assert_eq!(found.len(), images.len());
    found
}

fn arguments(images: &[TestImage], more: &str) -> Vec<(PathBuf, String)> {
    images
        .iter()
        .map(|image| (image.path.clone(), image.mount_options() + more))
        .collect()
}

/// Reads good images with the C program and compares them with their manifests.
fn compare(installed: &Installed, program: &Path, images: &[TestImage], options: &str) {
    let reader = installed.command(program);
    let found = read(reader, &arguments(images, options));
    for (tree, image) in found.into_iter().zip(images) {
        let mut big = Vec::new();
        let expected = manifest::read(&image.manifest);
        let differ = tree.differences(&expected, &[], &mut big);
        assert!(differ.is_empty(), "{}: {differ:#?}", image.name);
        for file in big {
            for (offset, length, sum) in file.ranges {
                let output = run(installed
                    .command(program)
                    .arg("--range")
                    .arg(&image.path)
                    .arg(image.mount_options())
                    .arg(OsString::from_vec(file.path.clone()))
                    .args([offset.to_string(), length.to_string()]));
                assert_eq!(text(&output).trim(), sum, "{} at {offset}", image.name);
            }
        }
    }
}

/// Lists faults in how malformed images were read.
fn complaints(found: Vec<printed::Tree>, cases: &[Case], mini: &Path) -> Vec<String> {
    let expected = manifest::read(mini);
    let mut report = Vec::new();
    for (tree, case) in found.into_iter().zip(cases) {
        let Case {
            image,
            expect,
            paths,
        } = case;
        let at_open = tree.errors.iter().any(|(path, ..)| path.is_empty());
        if tree
            .errors
            .iter()
            .any(|(_, errno, text)| *errno >= 0 || text.is_empty())
        {
            report.push(format!("{image}: an error without errno or text"));
        }
        match expect.as_str() {
            "reject" if !at_open => report.push(format!("{image}: opens")),
            "reject" => {}
            "error" if tree.errors.is_empty() => report.push(format!("{image}: no error")),
            // A listing that omits entries must also fail.
            _ if image == "dirent-name-slash.erofs" && tree.errors.is_empty() => {
                report.push(format!("{image}: no error"));
            }
            _ => {
                let skip: Vec<&str> = paths.iter().map(String::as_str).collect();
                let differ = tree.differences(&expected, &skip, &mut Vec::new());
                report.extend(differ.iter().map(|what| format!("{image}: {what}")));
            }
        }
    }
    report
}

#[test]
fn a_c_program_reads_every_image_as_its_manifest_says() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let program = installed.compile(&source("reader.c"), "reader");
    let images = all_good_images();
    compare(&installed, &program, &images, "");
    compare(
        &installed,
        &program,
        &good_images(&fixtures()),
        ",workers=percpu,cache=0",
    );
    println!("{} images", images.len());
}

#[test]
fn a_c_program_reads_an_image_at_a_url() {
    let (Some(installed), Some(fetcher)) = (Installed::shared(), fetcher()) else {
        return;
    };
    let program = installed.compile(&source("reader.c"), "reader");
    let path = fixtures().join("kitchen-sink.erofs");
    let server = Server::start(std::fs::read(&path).expect("a fixture"));
    let cache = tempfile::tempdir().expect("a directory");
    let options = format!("cache_dir={}", cache.path().display());
    let mut reader = installed.command(&program);
    reader.env("PATH", fetcher.parent().expect("a folder"));
    let found = read(reader, &[(server.url("/x.erofs").into(), options)]);
    let expected = manifest::read(&path.with_extension("jsonl"));
    let mut found = found
        .into_iter()
        .map(|tree| tree.differences(&expected, &[], &mut Vec::new()));
    let differ = found.next().expect("the image");
    assert!(differ.is_empty(), "{differ:#?}");
}

#[test]
fn a_c_program_survives_every_malformed_image() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let program = installed.compile(&source("reader.c"), "reader");
    let (bad, cases) = bad_cases();
    let images: Vec<_> = cases
        .iter()
        .map(|case| (bad.join(&case.image), String::new()))
        .collect();
    let found = read(installed.command(&program), &images);
    let report = complaints(found, &cases, &bad.join("mini.jsonl"));
    assert!(report.is_empty(), "{report:#?}");
    println!("{} malformed images", cases.len());
}

/// Uses no workers, because valgrind counts the handles that Rust's standard library keeps for
/// threads as leaks.
#[test]
fn valgrind_finds_no_wrong_access_and_no_leak() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let program = installed.compile(&source("reader.c"), "reader");
    let Some(mut reader) = installed.valgrind(&program) else {
        return;
    };
    reader.arg("--null");
    let (bad, cases) = bad_cases();
    let mut images = arguments(&good_images(&fixtures()), "");
    let malformed = cases.iter().map(|case| bad.join(&case.image));
    images.extend(malformed.map(|path| (path, String::new())));
    read(reader, &images);
    let promises = installed.compile(&source("promises.c"), "promises");
    let mut command = installed.valgrind(&promises).expect("valgrind");
    let output = run(command
        .arg(fixtures().join("lz4-64k.erofs"))
        .arg("cache=1M"));
    let report = String::from_utf8_lossy(&output.stderr);
    assert!(report.contains("ERROR SUMMARY: 0 errors"), "{report}");
    assert!(still_reachable(&output) <= MOST_KEPT, "{report}");
}

/// The output of `walk.c` and `walk.py` for the image of large files.
fn expected_of_large() -> Vec<String> {
    let alphabet: u64 = (b'a'..=b'z').map(u64::from).sum();
    // Each of the nine pclusters holds whole alphabets of 26 bytes, and then the beginning of one.
    let pcluster = LARGE / 9;
    let (whole, rest) = (pcluster / 26, pcluster % 26);
    let rest: u64 = (b'a'..=b'z').map(u64::from).take(rest as usize).sum();
    let large = format!("large {LARGE} {} {LARGE}", 9 * (whole * alphabet + rest));
    let data: u64 = SPARSE_DATA.1.iter().map(|&byte| u64::from(byte)).sum();
    let sparse = format!("sparse {SPARSE} {data} {}", SPARSE_DATA.1.len());
    let good: u64 = b"good\n".iter().map(|&byte| u64::from(byte)).sum();
    vec![
        format!("/below/{large}"),
        format!("/below/{sparse}"),
        format!("/good 5 {good} 5"),
        format!("/{large}"),
    ]
}

/// Each read that a caller makes from within a listing has a budget of its own, whatever the read's
/// size.
#[test]
fn files_beyond_any_budget_are_read_in_the_callback_that_lists_them() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let image = place.path().join("large.erofs");
    hostile::write_large(&image).expect("an image");
    let program = installed.compile(&source("walk.c"), "walk");
    let printed = text(&run(installed.command(&program).arg(&image)));
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected_of_large());
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: no python3");
        return;
    }
    let library = installed.path("lib/liberofast.so.0");
    let mut python = installed.command("python3");
    let python = python.arg(source("walk.py")).arg(library).arg(&image);
    assert_eq!(
        text(&run(python)).lines().collect::<Vec<_>>(),
        expected_of_large()
    );
}

#[test]
fn a_program_without_shared_libraries_links_and_runs() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let Some(programs) = installed.link_statically(&source("promises.c")) else {
        return;
    };
    for program in programs {
        let dynamic = run(Command::new("readelf").arg("-d").arg(&program));
        assert!(!text(&dynamic).contains("NEEDED"), "{program:?}");
        let mut command = Command::new(&program);
        let output = run(command
            .arg(fixtures().join("lz4-64k.erofs"))
            .arg("workers=percpu"));
        assert_eq!(text(&output), "kept\n", "{program:?}");
        println!("{program:?}");
    }
}

#[test]
fn the_header_keeps_its_promises() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let program = installed.compile(&source("promises.c"), "promises");
    for options in ["", "workers=percpu,cache=1M"] {
        let mut command = installed.command(&program);
        let output = run(command.arg(fixtures().join("lz4-64k.erofs")).arg(options));
        assert_eq!(text(&output), "kept\n");
    }
}

#[test]
fn the_example_of_the_page_compiles_and_runs() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/library.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let example = page.split("```c\n").nth(1).expect("an example in C");
    let example = example.split("```").next().expect("its end");
    let place = tempfile::tempdir().expect("a directory");
    let file = place.path().join("heads.c");
    std::fs::write(&file, example).expect("written");
    let program = installed.compile(&file, "heads");
    let image = fixtures().join("lz4-full-index-64k.erofs");
    let printed = text(&run(installed.command(&program).arg(&image)));
    let listed = run(crate::common::erofast().args(["ls", "--json"]).arg(&image));
    assert!(printed.lines().count() > 3, "{printed}");
    for line in printed.lines() {
        let (name, rest) = line.split_once(": ").expect("a name");
        let (size, _) = rest.split_once(" bytes, begins with").expect("a size");
        assert!(text(&listed).contains(name), "{name}");
        assert!(size.parse::<u64>().is_ok(), "{line}");
    }
    let mut missing = installed.command(&program);
    let output = missing.arg("/no/image").output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr,
        "/no/image: No such file or directory (os error 2)\n"
    );
}

#[test]
fn the_library_exports_what_the_header_declares() {
    let Some(installed) = Installed::shared() else {
        return;
    };
    let header = std::fs::read_to_string(installed.path("include/erofast.h")).expect("the header");
    let library = installed.path("lib/liberofast.so.0");
    let Ok(output) = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(&library)
        .output()
    else {
        println!("skipped: no nm");
        return;
    };
    let mut exported: Vec<String> = text(&output)
        .lines()
        .filter_map(|line| line.rsplit(' ').next().map(str::to_owned))
        .collect();
    exported.sort();
    let mut declared: Vec<String> = header
        .split("erofast_")
        .skip(1)
        .filter_map(|rest| rest.split_once('('))
        .map(|(name, _)| format!("erofast_{name}"))
        .filter(|name| name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .filter(|name| header.contains(&format!("{name}(")))
        .collect();
    declared.sort();
    declared.dedup();
    assert_eq!(exported, declared);
    let dynamic = run(Command::new("readelf").arg("-d").arg(&library));
    assert!(text(&dynamic).contains("soname: [liberofast.so.0]"));
}

#[test]
fn removing_what_was_installed_leaves_nothing_of_the_library() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let files = [
        "lib/liberofast.so",
        "lib/liberofast.so.0",
        "lib/liberofast.a",
        "lib/pkgconfig/erofast.pc",
        "include/erofast.h",
    ];
    let left = || files.map(|file| installed.path(file).exists());
    assert_eq!(left(), [true; 5]);
    installed.remove();
    assert_eq!(left(), [false; 5]);
}
