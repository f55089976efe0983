//! The traces that the user wants to keep: those of each engine's median launch and worst launch,
//! which are known only at the end. All other traces are removed, as are all traces of a run that
//! fails.

use std::fs;
use std::path::{Path, PathBuf};

use sched_trace::{Trace, perfetto};

use super::sample::Sample;
use crate::Result;
use crate::error::Doing;

/// Maximum length of an engine's name or a command in a file name.
const NAME: usize = 60;

/// The files of traces, which are removed when this is dropped.
#[derive(Debug)]
pub(super) struct Traces {
    directory: PathBuf,
    files: Vec<PathBuf>,
}

impl Traces {
    pub(super) fn into(directory: &Path) -> Result<Traces> {
        fs::create_dir_all(directory).doing("creating the directory", directory)?;
        let (directory, files) = (directory.to_owned(), Vec::new());
        Ok(Traces { directory, files })
    }

    /// Writes the trace of a launch from this engine; returns the file's path.
    pub(super) fn add(&mut self, engine: &str, trace: &Trace) -> Result<String> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        // A command may be longer than a file name can be.
        let (engine, number) = (
            engine.chars().take(NAME).map(plain).collect::<String>(),
            self.files.len(),
        );
        let file = self
            .directory
            .join(format!("{engine}-{number}.perfetto-trace"));
        self.files.push(file.clone());
        perfetto::save(trace, &file)?;
        Ok(file.to_string_lossy().into_owned())
    }

    /// Keeps the trace files of these samples.
    pub(super) fn keep<'a>(mut self, samples: impl Iterator<Item = &'a Sample>) {
        let kept: Vec<&Path> = samples
            .filter_map(|it| it.trace.as_deref())
            .map(Path::new)
            .collect();
        self.files.retain(|file| !kept.contains(&file.as_path()));
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        for file in &self.files {
            let _ = fs::remove_file(file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn only_the_traces_of_the_samples_that_show_them_stay() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let mut traces = Traces::into(scratch.path()).unwrap();
        let mut add = || traces.add("erofast:percpu", &Trace::new("mono")).unwrap();
        let (first, second) = (add(), add());
        assert!(
            first.ends_with("/erofast-percpu-0.perfetto-trace"),
            "{first}"
        );
        assert!(fs::metadata(&second).unwrap().len() > 0);
        let shown = Sample {
            trace: Some(second.clone()),
            ..Sample::default()
        };
        traces.keep([shown, Sample::default()].iter());
        assert!(!Path::new(&first).exists() && Path::new(&second).exists());
    }
}
