//! A hotplug experiment without the `erofast` command around it:
//!
//!     hotplug IMAGE EROFAST CYCLES LOAD ENGINE [COMMAND...]

use std::process::ExitCode;

use latency_lab::hotplug::{HotplugOptions, run};
use latency_lab::{LabError, Silent};

fn options() -> Result<HotplugOptions, LabError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [image, erofast, cycles, load, engine, command @ ..] = &words[..] else {
        return Err(LabError::Usage(
            "hotplug IMAGE EROFAST CYCLES LOAD ENGINE [COMMAND...]".into(),
        ));
    };
    Ok(HotplugOptions {
        image: image.into(),
        erofast: erofast.into(),
        cycles: cycles.parse().unwrap_or(3),
        load: load.parse()?,
        engine: engine.parse()?,
        command: command.iter().map(Into::into).collect(),
        ..HotplugOptions::default()
    })
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options, &mut Silent)) {
        Ok(report) => {
            print!("{}", report.table());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
