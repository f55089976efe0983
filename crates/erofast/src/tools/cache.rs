//! `erofast cache`: images fetched from URLs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail};
use erofast_cli::units::{count, size};
use erofast_cli::{Outcome, Usage, bar, print_json};
use erofs_engine::erofs_format::{ErrorClass, Holder, Image, Source};
use erofs_engine::remote_image::cache::{self, Entry};
use erofs_engine::remote_image::registry::Version;
use erofs_engine::remote_image::{
    Class, ImageUrl, Options, RemoteFile, answers, open_all, shared_cache,
};
use erofs_engine::{Engine, EngineOptions, VerityOptions, WorkersMode, remote};
use erofs_mount::text;
use serde_json::{Value, json};

use crate::cli::tools::cache::{CacheFetchArgs, CacheListArgs, CachePruneArgs};
use crate::cli::tools::images::{allow_many_files, set_flag};

/// Runs `cache list`.
pub fn list(args: &CacheListArgs) -> anyhow::Result<Outcome> {
    let folder = folder(args.cache_dir.as_ref())?;
    let shared_folder = shared_cache::directory(args.cache_shared.as_ref());
    let own = cache::list(&folder).with_context(|| folder.display().to_string())?;
    let shared = shared_cache::list(&shared_folder);
    let shared = shared.with_context(|| shared_folder.display().to_string())?;
    if args.json {
        let images = shared.iter().chain(&own).map(report);
        let images: Vec<Value> = images.collect::<Result<_, _>>()?;
        print_json(&json!({ "images": images }))?;
        return Ok(Outcome::Fine);
    }
    let options = Options {
        cache_dir: Some(folder.clone()),
        shared_dir: Some(shared_folder.clone()),
        ..Options::default()
    };
    if !shared.is_empty() {
        print_all(&shared, &shared_folder, &options)?;
    }
    if shared.is_empty() || !own.is_empty() {
        print_all(&own, &folder, &options)?;
    }
    Ok(Outcome::Fine)
}

fn print_all(entries: &[Entry], folder: &Path, options: &Options) -> anyhow::Result<()> {
    let folder = folder.display();
    if entries.is_empty() {
        outln!("no images in {folder}");
        return Ok(());
    }
    for entry in entries {
        let there = size(present(entry)?);
        let whole = size(entry.record.identity.length);
        let what = if entry.shared { "fetched" } else { "used" };
        let used = text::time(used(entry));
        let busy = if entry.busy { ", in use" } else { "" };
        let urls = entry.record.urls();
        let mut urls = urls.map(|url| text::line(url) + &top_layer(layers_below(url, options)));
        let first = urls.next().unwrap_or_default();
        outln!("{first}: {there} of {whole}, {what} {used} UTC{busy}");
        if let Some(digest) = &entry.record.identity.digest {
            outln!("  {digest}");
        }
        if let Some(diff_id) = &entry.record.identity.diff_id {
            outln!("  converted from the layer with diff ID {diff_id}");
        }
        if let Some(root_hash) = &entry.record.root_hash {
            outln!("  root hash {root_hash}");
        }
        for url in urls {
            outln!("  {url}");
        }
    }
    let all = entries.iter().map(|entry| entry.allocated).sum();
    let images = count(entries.len() as u64, "image");
    outln!("{images}, {} on disk in {folder}", size(all));
    Ok(())
}

/// Number of layers that are below the image in the tree at a URL.
fn layers_below(url: &str, options: &Options) -> usize {
    let source = ImageUrl::parse(url).and_then(Result::ok);
    let answer = source.and_then(|source| answers::find(&source, options));
    answer.map_or(0, |(answer, _)| answer.layers.len())
}

/// The words after a URL in the list, which say that the row is about the top layer of a tree.
fn top_layer(below: usize) -> String {
    match below {
        0 => String::new(),
        _ => format!(" (top layer of {})", below + 1),
    }
}

/// Time of last use, in seconds since 1970.
fn used(entry: &Entry) -> i64 {
    let since = entry.used.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

fn report(entry: &Entry) -> anyhow::Result<Value> {
    Ok(json!({
        "url": entry.record.url,
        "other_urls": entry.record.other_urls,
        "directory": entry.path.display().to_string(),
        "bytes": entry.record.identity.length,
        "cached_bytes": present(entry)?,
        "disk_bytes": entry.allocated,
        "used": used(entry),
        "digest": entry.record.identity.digest,
        "diff_id": entry.record.identity.diff_id,
        "root_hash": entry.record.root_hash,
        "shared": entry.shared,
        "in_use": entry.busy,
    }))
}

/// Bytes of the image that are in the cache.
fn present(entry: &Entry) -> anyhow::Result<u64> {
    let there = entry.store().and_then(|store| store.present());
    there.with_context(|| entry.path.display().to_string())
}

/// Runs `cache prune`.
pub fn prune(args: &CachePruneArgs) -> anyhow::Result<Outcome> {
    let folder = match args.shared {
        true => shared_cache::directory(args.cache_shared.as_ref()),
        false => folder(args.cache_dir.as_ref())?,
    };
    let mut options = EngineOptions::default();
    set_flag(&mut options, "cache_size", &args.cache_size)?;
    let most = options.remote.cache_size;
    let removed = match args.shared {
        true => shared_cache::prune(&folder, most),
        false => cache::prune(&folder, most),
    };
    answers::prune(&folder);
    let removed = removed.with_context(|| folder.display().to_string())?;
    if removed.images.is_empty() && removed.unfinished.is_empty() {
        let kept = cache::list(&folder).with_context(|| folder.display().to_string())?;
        match kept
            .iter()
            .filter(|entry| entry.busy && !args.shared)
            .count()
        {
            0 => outln!("nothing removed"),
            1 => outln!("nothing removed: 1 image is in use"),
            busy => outln!("nothing removed: {busy} images are in use"),
        }
    }
    for path in removed.unfinished {
        let path = text::line(&path.display().to_string());
        outln!("{path}: removed (unfinished image of a killed conversion)");
    }
    for entry in removed.images {
        let url = text::line(&entry.record.url);
        outln!("{url}: {} removed", size(entry.allocated));
    }
    Ok(Outcome::Fine)
}

/// Runs `cache fetch`.
pub fn fetch(args: &CacheFetchArgs) -> anyhow::Result<Outcome> {
    allow_many_files();
    let shown = args.url.display();
    let no_url = || Usage(format!("{shown}: not an http://, https:// or oci:// URL"));
    let source = remote::url(&args.url).ok_or_else(no_url)?;
    let source = source.map_err(anyhow::Error::msg)?;
    let mut options = EngineOptions::default();
    args.remote.apply(&mut options)?;
    args.verity.apply(&mut options)?;
    options.remote.share = args.share;
    options.workers = WorkersMode::Inline;
    if options.verity == VerityOptions::default() {
        fetch_url(&source, &options.remote)?;
        return Ok(Outcome::Fine);
    }
    let engine = Engine::open(&args.url, &options)?;
    for (name, file) in engine.remote_files() {
        fetch_all(&name, file)?;
    }
    let mut first = None;
    engine.verify_blocks(&mut |line| {
        first.get_or_insert(line);
    });
    match first {
        Some(line) => bail!("{}: {line}", engine.name()),
        None => Ok(Outcome::Fine),
    }
}

/// Fetches the file at a URL, and the devices and layers that its manifest lists.
fn fetch_url(source: &ImageUrl, options: &Options) -> anyhow::Result<()> {
    let mut progress = |line| {
        if bar::is_watched() {
            erofs_mount::note(line);
        }
    };
    let files = open_all(source, options, &mut progress)?;
    let (_, top) = &files[0];
    let answer = answers::find(source, options).map(|(answer, _)| answer.identity);
    let is_image = match source.reference().map(|reference| reference.version) {
        Some(Version::Tag(_)) => true,
        // A blob may be an extra device of an image stored elsewhere.
        Some(Version::Digest(digest)) => {
            answer.is_some_and(|identity| identity.digest != Some(digest))
        }
        _ => false,
    };
    for (number, (name, file)) in files.iter().enumerate() {
        if is_image && (number == 0 || top.layers().contains(name)) {
            check_image(name, file)?;
        }
    }
    for (number, (name, file)) in files.iter().enumerate() {
        if let Some(line) = file.offline() {
            erofs_mount::note(format_args!("{name}: {line}"));
        }
        let below = if number == 0 { file.layers().len() } else { 0 };
        fetch_all(&format!("{name}{}", top_layer(below)), file)?;
    }
    Ok(())
}

/// Fails, and drops the file from the cache, if it is not an EROFS image.
fn check_image(name: &ImageUrl, file: &RemoteFile) -> anyhow::Result<()> {
    let outcome = Image::open_checked(&Beginning(file), false);
    if let Err(error) = outcome
        && error.class() == ErrorClass::NotErofs
    {
        let _ = file.discard();
        bail!("{name}: {error}");
    }
    Ok(())
}

/// A file at a URL, as the source of the structures at its start.
#[derive(Debug)]
struct Beginning<'f>(&'f RemoteFile);

impl Source for Beginning<'_> {
    fn read(&self, _: Holder, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + buf.len() as u64;
        self.0.request(&[range], Class::Demand)?.wait()?;
        match self.0.read_cached(buf, offset)? {
            true => Ok(()),
            false => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn size(&self, of: Holder) -> Option<u64> {
        (of == Holder::Device(0)).then(|| self.0.length())
    }
}

fn fetch_all(name: &str, file: &RemoteFile) -> anyhow::Result<()> {
    file.fetch_all()?;
    file.settle()?;
    let counters = file.counters()?;
    if !counters.kept || counters.cached_bytes < file.length() {
        match &counters.not_kept {
            Some(why) => bail!("{name}: nothing is kept in the cache: {why}"),
            None => bail!("{name}: not in the cache"),
        }
    }
    outln!("{name}: {} in the cache", size(file.length()));
    Ok(())
}

fn folder(given: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let folder = given.cloned().or_else(cache::default_directory);
    folder.ok_or_else(|| anyhow!(cache::NO_DIRECTORY))
}
