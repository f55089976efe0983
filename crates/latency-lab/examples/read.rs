//! A read experiment without the `erofast` command around it:
//!
//!     read IMAGE EROFAST ITERATIONS ENGINE[;ENGINE...]

use std::process::ExitCode;

use latency_lab::read::{ReadOptions, run};
use latency_lab::{LabError, Silent};

fn options() -> Result<ReadOptions, LabError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, erofast, iterations, engines] = &words[..] else {
        return Err(LabError::Usage(
            "read IMAGE EROFAST ITERATIONS ENGINES".into(),
        ));
    };
    Ok(ReadOptions {
        image: image.into(),
        erofast: erofast.into(),
        iterations: iterations.parse().unwrap_or(3),
        engines: engines
            .split(';')
            .map(str::parse)
            .collect::<Result<_, _>>()?,
        engines_by_default: false,
        ..ReadOptions::default()
    })
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options, &mut Silent)) {
        Ok(report) => {
            print!("{}", report.table());
            let _ = std::fs::write("read.json", report.to_json());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
