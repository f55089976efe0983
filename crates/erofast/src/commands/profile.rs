//! `erofast profile`: shows and trims launch profiles.

use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, ensure};
use erofast_cli::{Outcome, print_json, units::size};
use launch_profile::{PAGE, Profile, RecordedFile, Trim, limits};
use serde_json::{Value, json};

use crate::cli::{ProfileShowArgs, ProfileTrimArgs};
use crate::text::name;

/// Runs `profile show`.
pub fn show(args: &ProfileShowArgs) -> anyhow::Result<Outcome> {
    let profile = read(&args.file)?;
    if args.list {
        list(&profile, if args.null { 0 } else { b'\n' })?;
    } else if args.json {
        print_json(&report(&profile))?;
    } else {
        print(&profile)?;
    }
    Ok(Outcome::Fine)
}

/// Runs `profile trim`.
pub fn trim(args: &ProfileTrimArgs) -> anyhow::Result<Outcome> {
    let mut profile = read(&args.file)?;
    let mib = |mib: u32| u64::from(mib) << 20;
    profile.trim(&Trim {
        until_ms: args.until.unwrap_or(u32::MAX),
        bytes: args.size.map_or(u64::MAX, mib),
    });
    let path = args.output.as_ref().unwrap_or(&args.file);
    replace(path, &profile.to_bytes()).with_context(|| path.display().to_string())?;
    Ok(Outcome::Fine)
}

fn read(path: &Path) -> anyhow::Result<Profile> {
    let context = || path.display().to_string();
    let mut bytes = Vec::new();
    let file = File::open(path).with_context(context)?;
    let is_directory = file.metadata().is_ok_and(|metadata| metadata.is_dir());
    ensure!(
        !is_directory,
        "{}: is a directory, and no launch profile",
        context()
    );
    let most = limits::FILE_BYTES as u64 + 1;
    file.take(most)
        .read_to_end(&mut bytes)
        .with_context(context)?;
    Profile::parse(&bytes).with_context(context)
}

/// All at once or not at all.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", std::process::id()));
    let mut file = File::create_new(&temporary)?;
    let written = file.write_all(bytes);
    written
        .and_then(|()| fs::rename(&temporary, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&temporary);
        })
}

fn list(profile: &Profile, end: u8) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    for file in &profile.files {
        out.write_all(&profile.path(&file.name))?;
        out.write_all(&[end])?;
    }
    out.flush()
}

/// Bytes of pages read of each file.
fn bytes_of_files(profile: &Profile) -> Vec<u64> {
    let mut bytes = vec![0; profile.files.len()];
    for window in &profile.windows {
        bytes[window.file as usize] += window.bytes();
    }
    bytes
}

fn path(profile: &Profile, file: &RecordedFile) -> String {
    String::from_utf8_lossy(&profile.path(&file.name)).into_owned()
}

fn report(profile: &Profile) -> Value {
    let bytes = bytes_of_files(profile);
    let files = profile.files.iter().zip(bytes);
    let listed = profile.directories.iter().filter(|d| d.listed).count();
    json!({
        "uuid": profile.image.to_string(),
        "exact": profile.exact,
        "milliseconds": profile.lasts_ms(),
        "bytes": profile.bytes(),
        "pages": profile.bytes() / PAGE,
        "listed_directories": listed + 1,
        "names": profile.names.len(),
        "files": files.map(|(file, bytes)| json!({
            "path": path(profile, file),
            "nid": file.nid,
            "size": file.size,
            "bytes": bytes,
        })).collect::<Vec<_>>(),
    })
}

fn print(profile: &Profile) -> anyhow::Result<()> {
    let listed = profile.directories.iter().filter(|d| d.listed).count() + 1;
    let exact = match profile.exact {
        true => "each page was read by a program",
        false => "the kernel's read-ahead is among the pages",
    };
    outln!("image:       {}", profile.image);
    outln!("time:        {} ms", profile.lasts_ms());
    outln!("pages:       {} ({exact})", size(profile.bytes()));
    outln!("directories: {listed} listed");
    outln!("names:       {} looked up", profile.names.len());
    outln!("files:       {}", profile.files.len());
    for (file, bytes) in profile.files.iter().zip(bytes_of_files(profile)) {
        let path = name(&profile.path(&file.name));
        outln!("  {:>10} of {:>10}  {path}", size(bytes), size(file.size));
    }
    Ok(())
}
