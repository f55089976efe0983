//! `erofast lab`: the experiments.

use std::time::Duration;

use anyhow::Context;
use latency_lab::engine::Engine;
use latency_lab::launch::{self, LaunchOptions};

use crate::Outcome;
use crate::bar::Bar;
use crate::cli::LabLaunchArgs;

/// `erofast lab launch`
pub fn launch(args: &LabLaunchArgs) -> anyhow::Result<Outcome> {
    let engines: Vec<Engine> = args
        .engines
        .iter()
        .map(|name| name.parse())
        .collect::<Result<_, _>>()?;
    let mut options = LaunchOptions {
        image: args.image.clone(),
        erofast: std::env::current_exe().context("cannot find the erofast binary itself")?,
        command: args.command.clone(),
        root: args.root,
        iterations: args.iterations,
        load: args.load.parse()?,
        timeout: Duration::from_secs(args.timeout),
        scratch: args.scratch.clone(),
        seed: args.seed,
        ..LaunchOptions::default()
    };
    if !engines.is_empty() {
        options.engines = engines;
        options.engines_by_default = false;
    }
    let report = launch::run(&options, &mut Bar::new())?;
    if let Some(path) = &args.html {
        std::fs::write(path, report.to_html())
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if args.json {
        println!("{}", report.to_json());
    } else {
        print!("{}", report.table());
    }
    Ok(if report.valid {
        Outcome::Fine
    } else {
        Outcome::Faulty
    })
}
