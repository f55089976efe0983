//! Measures several programs and trees in one run, with the engines interleaved; each program or
//! tree has a row.
//!
//! A single program says little about an engine in general. The suite launches a compiler, Python,
//! a shell script, git, node and java, if they are installed, and reads many small files and few
//! large ones. Its report ends with the geometric mean and the worst row of each engine. Images are
//! made once from installed software and kept.

mod files;
mod images;
mod options;
mod part;
mod program;
mod report;
mod tools;
mod tree;

pub use options::{SuiteOptions, part_names};
pub use report::{SuiteCell, SuiteEngine, SuiteReport, SuiteRow};

use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::engine::{Engine, Site, present};
use crate::environment::Environment;
use crate::error::Doing;
use crate::launch::{self, LaunchOptions};
use crate::read::{self, ImageState, ReadOptions};
use crate::scratch::Scratch;
use crate::{Interrupt, LabError, Progress, Result};
use files::FILES;
use images::{SuiteImage, default_directory, take_or_make};
use part::Part;
use program::PROGRAMS;

/// Runs the suite.
pub fn run(options: &SuiteOptions, progress: &mut dyn Progress) -> Result<SuiteReport> {
    options.check()?;
    let directory = options.work.clone().unwrap_or_else(default_directory);
    // If ~/.cache does not exist yet, it is created too, and it must be private to the user.
    let mut builder = std::fs::DirBuilder::new();
    let made = builder.recursive(true).mode(0o700).create(&directory);
    made.doing("creating the directory", &directory)?;
    images::check_directory(&directory)?;
    let mut suite = Suite {
        options,
        directory,
        engines: Vec::new(),
        report: SuiteReport::new(options),
    };
    for part in PROGRAMS.iter().chain(&FILES) {
        suite.part(part, progress)?;
    }
    if suite.report.rows.is_empty() && !suite.report.interrupted {
        let why = suite.report.left_out.join("; ");
        return Err(LabError::Usage(format!(
            "lab suite: nothing to measure: {why}"
        )));
    }
    suite.report.finish();
    Ok(suite.report)
}

struct Suite<'a> {
    options: &'a SuiteOptions,
    directory: PathBuf,
    /// The engines that are available on this machine; known once they have been tried with the
    /// first image.
    engines: Vec<Engine>,
    report: SuiteReport,
}

impl Suite<'_> {
    fn part(&mut self, part: &Part, progress: &mut dyn Progress) -> Result<()> {
        let Some(made) = self.image(part, progress)? else {
            return Ok(());
        };
        progress.line(&format!("suite: {}", part.title));
        if part.tests.is_empty() {
            let report = launch::run(&self.launch_options(&made), progress)?;
            self.report.add_launch(part.title, report);
        } else {
            let report = read::run(&self.read_options(&made, part.tests), progress)?;
            self.report.add_read(part.title, report);
        }
        Ok(())
    }

    /// The image of a part; none if the part is not wanted or cannot be made on this machine.
    fn image(&mut self, part: &Part, progress: &mut dyn Progress) -> Result<Option<SuiteImage>> {
        let name = part.name;
        if !self.options.wants(name) || self.report.interrupted {
            return Ok(None);
        }
        let interrupt = Interrupt::watch()?;
        progress.begin(&format!("creating the image {name}"), 1);
        let made = match take_or_make(&self.directory, part, &interrupt)? {
            Ok(made) => made,
            Err(reason) => {
                let line = format!("{name}: {reason}");
                progress.line(&format!("left out: {line}"));
                self.report.left_out.push(line);
                return Ok(None);
            }
        };
        if self.engines.is_empty() {
            self.choose_engines(&made.path, &interrupt, progress)?;
        }
        Ok(Some(made))
    }

    fn choose_engines(
        &mut self,
        image: &Path,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let site = Site::new(image, &self.options.erofast)?;
        let points = Scratch::new(&std::env::temp_dir())?;
        let (engines, left_out) = present(
            &self.options.engines,
            &site,
            points.path(),
            interrupt,
            progress,
        )?;
        self.report.environment = Some(Environment::capture(&site.image, &site.erofast)?);
        self.report.left_out.extend(left_out);
        self.engines = engines;
        Ok(())
    }

    fn launch_options(&self, made: &SuiteImage) -> LaunchOptions {
        LaunchOptions {
            image: made.path.clone(),
            erofast: self.options.erofast.clone(),
            engines: self.engines.clone(),
            command: made.command.iter().map(Into::into).collect(),
            root: made.is_root(),
            iterations: self.options.iterations,
            load: self.options.load.clone(),
            timeout: self.options.timeout,
            // The load's file is kept for all programs and for the next run.
            scratch: Some(self.directory.clone()),
            keep_scratch: true,
            times_only: true,
            seed: self.options.seed,
            ..LaunchOptions::default()
        }
    }

    fn read_options(&self, made: &SuiteImage, tests: &[read::Test]) -> ReadOptions {
        ReadOptions {
            image: made.path.clone(),
            erofast: self.options.erofast.clone(),
            engines: self.engines.clone(),
            iterations: Some(self.options.iterations.min(report::MOST_READS)),
            tests: tests.to_vec(),
            states: vec![ImageState::Warm],
            seed: self.options.seed,
            ..ReadOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trees_are_read_as_often_as_a_claim_among_all_rows_needs() {
        let parts = PROGRAMS.iter().chain(&FILES);
        let rows: usize = parts.map(|part| part.tests.len().max(1)).sum();
        let others = Engine::default_list().len() - 1;
        assert_eq!(
            report::MOST_READS,
            crate::statistics::fewest_rounds(others * rows)
        );
    }

    #[test]
    fn a_part_that_does_not_exist_is_named_with_those_that_do() {
        let options = SuiteOptions {
            iterations: 1,
            only: vec!["python".into(), "perl".into()],
            ..SuiteOptions::default()
        };
        let error = options.check().unwrap_err().to_string();
        assert!(
            error.starts_with("lab suite: unknown part perl; known are compiler, python, "),
            "{error}"
        );
        assert!(options.wants("python") && !options.wants("git"));
    }
}
