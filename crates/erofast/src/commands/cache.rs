//! `erofast cache`: images that were fetched from URLs.

use std::path::PathBuf;

use anyhow::{Context, anyhow};
use erofast_cli::Outcome;
use erofast_cli::units::size;
use erofs_engine::remote_image::{cache, open};
use erofs_engine::{EngineOptions, remote};
use erofs_fuse::text;

use crate::cli::{CacheFetchArgs, CacheListArgs, CachePruneArgs};

/// Runs `cache list`.
pub fn list(args: &CacheListArgs) -> anyhow::Result<Outcome> {
    let folder = folder(args.cache_dir.as_ref())?;
    let entries = cache::list(&folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let there = entry.store().and_then(|store| store.present());
        let there = size(there.with_context(|| entry.path.display().to_string())?);
        let whole = size(entry.record.identity.length);
        let busy = if entry.busy { ", in use" } else { "" };
        let url = text::line(&entry.record.url);
        outln!("{url}: {there} of {whole}{busy}");
    }
    Ok(Outcome::Fine)
}

/// Runs `cache prune`.
pub fn prune(args: &CachePruneArgs) -> anyhow::Result<Outcome> {
    let folder = folder(args.cache_dir.as_ref())?;
    let mut options = EngineOptions::default();
    let set = options.set("cache_size", Some(&args.cache_size));
    set.map_err(anyhow::Error::msg)?;
    let removed = cache::prune(&folder, options.remote.cache_size);
    let removed = removed.with_context(|| folder.display().to_string())?;
    for entry in removed {
        let url = text::line(&entry.record.url);
        outln!("{url}: {} removed", size(entry.allocated));
    }
    Ok(Outcome::Fine)
}

/// Runs `cache fetch`.
pub fn fetch(args: &CacheFetchArgs) -> anyhow::Result<Outcome> {
    let shown = args.url.display();
    let source = remote::url(&args.url).ok_or_else(|| anyhow!("{shown}: is no URL"))?;
    let source = source.map_err(anyhow::Error::msg)?;
    let mut options = EngineOptions::default();
    args.remote
        .apply(&mut options)
        .map_err(anyhow::Error::msg)?;
    let file = open(&source, &options.remote, |_| {})?;
    file.fetch_all(|_| {})?;
    outln!("{source}: {} in the cache", size(file.length()));
    Ok(Outcome::Fine)
}

fn folder(given: Option<&PathBuf>) -> anyhow::Result<PathBuf> {
    let folder = given.cloned().or_else(cache::default_directory);
    folder.ok_or_else(|| anyhow!(cache::NO_DIRECTORY))
}
