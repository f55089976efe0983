//! A launch experiment without the surrounding `erofast` command:
//!
//!     launch IMAGE EROFAST ITERATIONS LOAD ENGINE[;ENGINE...] COMMAND...

use std::ffi::OsString;
use std::process::ExitCode;

use latency_lab::launch::{LaunchOptions, run};
use latency_lab::{LabError, Progress, Report};

struct Lines;

impl Progress for Lines {
    fn begin(&mut self, phase: &str, total: u64) {
        eprintln!("{phase}: {total}");
    }
    fn line(&mut self, text: &str) {
        eprintln!("{text}");
    }
}

fn options() -> Result<LaunchOptions, LabError> {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [image, erofast, iterations, load, engines, command @ ..] = &words[..] else {
        return Err(LabError::Usage(
            "launch IMAGE EROFAST ITERATIONS LOAD ENGINES COMMAND...".into(),
        ));
    };
    let engines = engines.to_string_lossy();
    Ok(LaunchOptions {
        image: image.into(),
        erofast: erofast.into(),
        iterations: iterations.to_string_lossy().parse().unwrap_or(5),
        load: load.to_string_lossy().as_ref().into(),
        engines: engines
            .split(';')
            .map(str::parse)
            .collect::<Result<_, _>>()?,
        command: command.to_vec(),
        ..LaunchOptions::default()
    })
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options, &mut Lines)) {
        Ok(report) => {
            let report = Report::Launch(Box::new(report));
            print!("{}", report.table());
            let _ = std::fs::write("launch.json", report.to_json());
            let _ = std::fs::write("launch.html", report.to_html());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
