//! Inside of the machine: this program as its first process runs the launch experiment.
//!
//! It talks to the host by lines on the console (see [`Said`]) and leaves the report on a disk.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use rustix::system::{RebootCommand, finit_module, reboot};
use serde::{Deserialize, Serialize};

use super::options::KernelOptions;
use super::packages::Packages;
use super::variant::Variant;
use crate::engine::{Engine, Module};
use crate::launch::{self, LaunchOptions, LaunchReport};
use crate::{LabError, Progress, Result};

/// Where things are in the machine.
pub(super) const JOB: &str = "/job.json";
pub(super) const MODULES: &str = "/modules";
/// What this program is called with there.
pub(super) const GUEST: [&str; 2] = ["lab", "guest"];
const IMAGE: &str = "/image.erofs";
/// Disks, in the order of QEMU's command line.
const READER_DISK: &str = "/dev/vda";
const RESULT_DISK: &str = "/dev/vdb";
const IMAGE_DISK: &str = "/dev/vdc";
/// Before the length and the bytes of the result.
pub(super) const MAGIC: &[u8; 8] = b"EROFLAB1";
/// An emulated machine is about twenty times slower than the one it runs on.
const PATIENCE: Duration = Duration::from_secs(600);

/// What the machine is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Job {
    /// Modules to load first, in this order: files in [`MODULES`].
    pub(super) modules: Vec<String>,
    columns: Vec<Column>,
    command: Vec<String>,
    root: bool,
    iterations: usize,
    warm_ups: usize,
    load: String,
    seconds: u64,
    seed: u64,
    /// Length of the image, which the disk rounds up.
    pub(super) image_bytes: u64,
    notices: Vec<String>,
    repeat: String,
}

/// An engine of the experiment: a variant and a parameter.
#[derive(Debug, Serialize, Deserialize)]
struct Column {
    name: String,
    file: String,
    parameters: String,
}

/// What is left on the result disk.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LeftBehind {
    pub(super) valid: bool,
    pub(super) table: String,
    pub(super) html: String,
    pub(super) json: serde_json::Value,
}

impl Job {
    pub(super) fn new(options: &KernelOptions, packages: &Packages) -> Job {
        let words = options
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned());
        Job {
            modules: Vec::new(),
            columns: columns(&options.reserved_pages),
            command: words.collect(),
            root: options.root,
            iterations: options.iterations,
            warm_ups: options.warm_ups,
            load: options.load.to_string(),
            seconds: options.time.as_secs(),
            seed: options.seed,
            image_bytes: 0,
            repeat: options.command_line(),
            notices: vec![format!(
                "Linux {} (package version {}), fs/erofs built from its source package, loaded anew for each launch",
                packages.release, packages.version
            )],
        }
    }

    /// The default program of an image that was made here.
    pub(super) fn launch(&mut self, command: Vec<String>) {
        (self.command, self.root) = (command, true);
    }

    fn options(&self) -> Result<LaunchOptions> {
        let engines = self.columns.iter().map(|column| {
            Engine::Module(Module {
                name: column.name.clone(),
                path: Path::new(MODULES).join(&column.file),
                parameters: column.parameters.clone(),
            })
        });
        Ok(LaunchOptions {
            image: IMAGE.into(),
            engines: engines.collect(),
            engines_by_default: false,
            command: self.command.iter().map(Into::into).collect(),
            root: self.root,
            iterations: self.iterations,
            warm_ups: self.warm_ups,
            load: self.load.parse()?,
            timeout: PATIENCE,
            time: Some(Duration::from_secs(self.seconds)),
            load_disk: Some(READER_DISK.into()),
            notices: self.notices.clone(),
            repeat_with: Some(self.repeat.clone()),
            seed: self.seed,
            ..LaunchOptions::default()
        })
    }
}

/// Each variant with each number of pages; one number alone needs no naming.
fn columns(reserved_pages: &[u32]) -> Vec<Column> {
    let mut columns = Vec::new();
    for &pages in reserved_pages {
        for variant in Variant::ALL {
            let name = match pages {
                0 => variant.to_string(),
                pages => format!("{variant},reserved_pages={pages}"),
            };
            columns.push(Column {
                name,
                file: variant.file(),
                parameters: format!("reserved_pages={pages}"),
            });
        }
    }
    columns
}

/// A line on the console.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Said {
    Up,
    Begin(String, u64),
    Step(u64, String),
    Line(String),
    Error(String),
    Done,
}

impl Said {
    const MARK: &'static str = "LAB ";

    pub(super) fn parse(line: &str) -> Option<Said> {
        let text = line.trim_end().strip_prefix(Said::MARK)?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let numbered = || {
            let (number, text) = rest.split_once(' ').unwrap_or((rest, ""));
            Some((number.parse().ok()?, text.to_owned()))
        };
        Some(match word {
            "up" => Said::Up,
            "begin" => numbered().map(|(total, phase)| Said::Begin(phase, total))?,
            "step" => numbered().map(|(done, note)| Said::Step(done, note))?,
            "line" => Said::Line(rest.into()),
            "error" => Said::Error(rest.into()),
            "done" => Said::Done,
            _ => return None,
        })
    }

    fn say(&self) {
        let text = match self {
            Said::Up => "up".into(),
            Said::Begin(phase, total) => format!("begin {total} {phase}"),
            Said::Step(done, note) => format!("step {done} {note}"),
            Said::Line(text) => format!("line {text}"),
            Said::Error(text) => format!("error {text}"),
            Said::Done => "done".into(),
        };
        let mut out = io::stdout().lock();
        let _ = writeln!(out, "{}{text}", Said::MARK);
        let _ = out.flush();
    }
}

/// Progress by lines on the console.
struct Console;

impl Progress for Console {
    fn begin(&mut self, phase: &str, total: u64) {
        Said::Begin(phase.into(), total).say();
    }
    fn step(&mut self, done: u64, note: &str) {
        Said::Step(done, note.into()).say();
    }
    fn line(&mut self, text: &str) {
        Said::Line(text.into()).say();
    }
}

/// The first process of the machine that `lab kernel` makes runs its job and switches the machine off.
/// Everywhere else this does nothing and is false.
pub fn run_if_guest() -> bool {
    let told = std::env::args().skip(1).eq(GUEST);
    if std::process::id() != 1 || !told || !Path::new(JOB).exists() {
        return false;
    }
    Said::Up.say();
    std::thread::spawn(listen);
    match experiment() {
        Ok(()) => Said::Done.say(),
        Err(error) => Said::Error(error.to_string()).say(),
    }
    rustix::fs::sync();
    // The console is a serial line that is emptied in its own time.
    std::thread::sleep(Duration::from_millis(500));
    let _ = reboot(RebootCommand::PowerOff);
    true
}

/// The host's only word: stop.
fn listen() {
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        if line.trim() == "stop" {
            let _ = kill_process(rustix::process::getpid(), Signal::INT);
        }
    }
}

fn experiment() -> Result<()> {
    let text = fs::read(JOB).map_err(|source| LabError::io("reading", Path::new(JOB), source))?;
    let mut job: Job = serde_json::from_slice(&text)
        .map_err(|reason| LabError::Kernel(format!("{JOB}: {reason}")))?;
    for module in &job.modules {
        load(&Path::new(MODULES).join(module))?;
    }
    take_image(job.image_bytes)?;
    job.notices.insert(0, emulated());
    let report = launch::run(&job.options()?, &mut Console)?;
    leave(&report)
}

/// How the machine is made, and what its times are worth.
fn emulated() -> String {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let by = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("lab.by="))
        .unwrap_or("QEMU")
        .replace('_', " ");
    if line.contains("lab.accelerator=kvm") {
        return format!("virtual machine ({by}, KVM): these times compare with each other");
    }
    format!(
        "EMULATED machine ({by}, no KVM): these times compare with each other only, never with those of a real one"
    )
}

fn load(module: &Path) -> Result<()> {
    let file = File::open(module).map_err(|source| LabError::io("opening", module, source))?;
    finit_module(&file, c"", 0).map_err(|source| LabError::io("loading", module, source))
}

/// The image from its disk to memory: no launch waits for the disk.
fn take_image(bytes: u64) -> Result<()> {
    let copied = File::open(IMAGE_DISK)
        .and_then(|disk| io::copy(&mut disk.take(bytes), &mut File::create(IMAGE)?))
        .map_err(|source| LabError::io("copying the image from", Path::new(IMAGE_DISK), source))?;
    if copied == bytes {
        return Ok(());
    }
    Err(LabError::Kernel(format!(
        "{IMAGE_DISK}: {copied} of {bytes} bytes of the image"
    )))
}

fn leave(report: &LaunchReport) -> Result<()> {
    let result = LeftBehind {
        valid: report.valid,
        table: report.table(),
        html: report.to_html(),
        json: serde_json::to_value(report).unwrap_or_default(),
    };
    let bytes = serde_json::to_vec(&result).unwrap_or_default();
    let write = || {
        let mut disk = OpenOptions::new().write(true).open(RESULT_DISK)?;
        disk.write_all(MAGIC)?;
        disk.write_all(&(bytes.len() as u64).to_le_bytes())?;
        disk.write_all(&bytes)?;
        disk.sync_all()
    };
    write().map_err(|source| {
        LabError::io("writing the result to", &PathBuf::from(RESULT_DISK), source)
    })
}

/// Reads what [`leave`] wrote.
pub(super) fn read_result(disk: &Path) -> Result<LeftBehind> {
    let fault = |reason: String| LabError::Kernel(format!("the machine left no report: {reason}"));
    let mut file = File::open(disk).map_err(|reason| fault(reason.to_string()))?;
    let mut head = [0; 16];
    file.read_exact(&mut head)
        .map_err(|reason| fault(reason.to_string()))?;
    let (magic, length) = head.split_at(8);
    if magic != MAGIC {
        return Err(fault("its disk is empty".into()));
    }
    let length = u64::from_le_bytes(length.try_into().unwrap_or_default());
    let mut bytes = Vec::new();
    file.take(length)
        .read_to_end(&mut bytes)
        .map_err(|reason| fault(reason.to_string()))?;
    serde_json::from_slice(&bytes).map_err(|reason| fault(reason.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_variant_stands_in_a_column_with_every_number_of_pages() {
        let names: Vec<String> = columns(&[0, 64])
            .into_iter()
            .map(|column| column.name)
            .collect();
        assert_eq!(
            names,
            [
                "workqueue",
                "kthread",
                "kthread,hipri",
                "workqueue,reserved_pages=64",
                "kthread,reserved_pages=64",
                "kthread,hipri,reserved_pages=64"
            ]
        );
    }

    #[test]
    fn lines_of_the_console_are_told_from_the_kernels() {
        assert_eq!(Said::parse("LAB up\r\n"), Some(Said::Up));
        assert_eq!(
            Said::parse("LAB begin 60 measuring\r\n"),
            Some(Said::Begin("measuring".into(), 60))
        );
        assert_eq!(
            Said::parse("LAB step 3 kthread,hipri"),
            Some(Said::Step(3, "kthread,hipri".into()))
        );
        assert_eq!(
            Said::parse("LAB error a b"),
            Some(Said::Error("a b".into()))
        );
        for other in ["[    1.0] erofs: loaded", "LAB step x y", "LAB what", ""] {
            assert_eq!(Said::parse(other), None, "{other}");
        }
    }

    #[test]
    fn nobody_but_the_first_process_of_a_machine_may_switch_it_off() {
        assert!(!run_if_guest());
    }

    #[test]
    fn a_disk_without_a_report_is_one_line() {
        let error = read_result(Path::new("/dev/zero")).unwrap_err().to_string();
        assert_eq!(error, "the machine left no report: its disk is empty");
    }
}
