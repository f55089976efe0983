//! The machine: QEMU, its console, and the end of it.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::guest::{LeftBehind, Said, read_result};
use super::initramfs::Boot;
use super::jail::{Jail, output};
use super::work::Work;
use crate::process::{Child, End};
use crate::{Interrupt, LabError, Progress, Result};

/// What the random reader of the load reads; a hole, but that only the host knows.
const READER_BYTES: u64 = 500 << 20;
/// Room for the report.
const RESULT_BYTES: u64 = 64 << 20;
/// From QEMU's start to the first word of the machine. Where KVM is broken, it hangs.
const UP_ACCELERATED: Duration = Duration::from_secs(30);
const UP_EMULATED: Duration = Duration::from_secs(300);
/// From being told to stop to the report of what there is.
const LAST_WORDS: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(200);

/// A machine to be run once.
pub(super) struct Machine<'a> {
    pub(super) jail: &'a Jail,
    pub(super) work: &'a Work,
    pub(super) boot: &'a Boot,
    pub(super) timeout: Duration,
    pub(super) accelerate: bool,
}

/// What came of it.
pub(super) struct Ran {
    pub(super) left: LeftBehind,
    /// QEMU's own words: "QEMU 10.0.2".
    pub(super) qemu: String,
    pub(super) accelerator: &'static str,
}

/// Why a machine gave no report.
enum Failed {
    /// Before its first word: another accelerator may do.
    Silent(String),
    /// For good.
    Error(LabError),
}

impl From<LabError> for Failed {
    fn from(error: LabError) -> Self {
        Failed::Error(error)
    }
}

impl Machine<'_> {
    pub(super) fn run(&self, interrupt: &Interrupt, progress: &mut dyn Progress) -> Result<Ran> {
        let qemu = self.version()?;
        let disks = [("reader.img", READER_BYTES), ("result.img", RESULT_BYTES)];
        for (name, bytes) in disks {
            let path = self.work.inside(name);
            let made = File::create(&path).and_then(|file| file.set_len(bytes));
            made.map_err(|source| LabError::io("making", &path, source))?;
        }
        let mut accelerators = vec!["tcg"];
        let kvm = File::options().read(true).write(true).open("/dev/kvm");
        if self.accelerate && kvm.is_ok() {
            accelerators.insert(0, "kvm");
        }
        let mut why = String::new();
        for accelerator in accelerators {
            progress.begin("starting the machine", 1);
            progress.step(0, accelerator);
            match self.boot(accelerator, &qemu, interrupt, progress) {
                Ok(left) => {
                    return Ok(Ran {
                        left,
                        qemu,
                        accelerator,
                    });
                }
                Err(Failed::Error(error)) => return Err(error),
                Err(Failed::Silent(reason)) => {
                    if accelerator == "kvm" {
                        progress.line(&format!("KVM does not work here ({reason}): emulating"));
                    }
                    why = reason;
                }
            }
        }
        Err(LabError::Kernel(format!(
            "the machine does not start: {why}"
        )))
    }

    /// "QEMU emulator version 10.0.2 (Debian ...)" is "QEMU 10.0.2".
    fn version(&self) -> Result<String> {
        let mut command = self.jail.command(QEMU);
        let text = output("asking QEMU for its version", command.arg("--version"))?;
        let version = text
            .split("version ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next());
        Ok(format!("QEMU {}", version.unwrap_or("of unknown version")))
    }

    fn boot(
        &self,
        accelerator: &str,
        qemu: &str,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> std::result::Result<LeftBehind, Failed> {
        let socket = self.work.inside("console.sock");
        let _ = fs::remove_file(&socket);
        let mut command = self.command(accelerator, qemu);
        let mut child = Child::spawn(&mut command)?;
        let mut console = Console::default();
        let start = Instant::now();
        let up = match accelerator {
            "kvm" => UP_ACCELERATED,
            _ => UP_EMULATED,
        };
        let mut talk = Talk::default();
        let mut stop_by = None;
        loop {
            let ended = matches!(child.wait(LOOK, &Interrupt::never())?, End::Exited(_));
            console.connect(&socket);
            for line in console.lines() {
                talk.hear(&line, progress);
            }
            if let Some(error) = talk.error.take() {
                child.end();
                return Err(LabError::Kernel(format!("in the machine: {error}")).into());
            }
            if ended {
                return match (talk.done, talk.up) {
                    (true, _) => Ok(read_result(&self.work.inside("result.img"))?),
                    (false, false) => Err(Failed::Silent(talk.last_words(&child))),
                    (false, true) => Err(LabError::Kernel(format!(
                        "the machine ended before its experiment: {}",
                        talk.last_words(&child)
                    ))
                    .into()),
                };
            }
            if interrupt.asked() && stop_by.is_none() {
                console.say("stop");
                stop_by = Some(Instant::now() + LAST_WORDS);
            }
            let too_long = stop_by.is_some_and(|by| Instant::now() > by || !talk.measures);
            if too_long {
                return Err(
                    LabError::Kernel("interrupted before anything was measured".into()).into(),
                );
            }
            if !talk.up && child.tail().contains(KVM_BROKEN) {
                return Err(Failed::Silent(KVM_BROKEN.into()));
            }
            if !talk.up && start.elapsed() > up {
                return Err(Failed::Silent(talk.last_words(&child)));
            }
            if start.elapsed() > self.timeout {
                let seconds = self.timeout.as_secs();
                return Err(LabError::Kernel(format!(
                    "the machine was not done after {seconds} s"
                ))
                .into());
            }
        }
    }

    fn command(&self, accelerator: &str, qemu: &str) -> Command {
        let mut command = self.jail.command(QEMU);
        let accel = match accelerator {
            "kvm" => "kvm",
            _ => "tcg,thread=multi",
        };
        let by = qemu.replace(' ', "_");
        let line = format!(
            "console=ttyS0 quiet loglevel=3 panic=-1 lab.accelerator={accelerator} lab.by={by}"
        );
        let disk = |name: &str, read_only: &str| {
            format!("file=/work/{name},format=raw,if=virtio,read-only={read_only}")
        };
        command
            .args([
                "-no-user-config",
                "-nodefaults",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args([
                "-machine", "q35", "-accel", accel, "-cpu", "max", "-smp", "2",
            ])
            .args(["-m", &self.boot.memory_mib.to_string()])
            .arg("-kernel")
            .arg(&self.boot.kernel)
            .args(["-initrd", self.boot.initramfs, "-append", &line])
            .args([
                "-chardev",
                "socket,id=console,path=/work/console.sock,server=on,wait=off",
            ])
            .args(["-serial", "chardev:console"])
            .args(["-drive", &disk("reader.img", "on")])
            .args(["-drive", &disk("result.img", "off")])
            .args(["-drive", &disk("image.erofs", "on")]);
        command
    }
}

/// QEMU's first words when KVM cannot go on; the machine hangs then.
const KVM_BROKEN: &str = "KVM internal error";
const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// What the machine said so far.
#[derive(Default)]
struct Talk {
    up: bool,
    /// The launches have begun: it can be asked to stop.
    measures: bool,
    done: bool,
    error: Option<String>,
    /// The last line that was not for us: of the kernel, mostly.
    other: String,
}

impl Talk {
    fn hear(&mut self, line: &str, progress: &mut dyn Progress) {
        match Said::parse(line) {
            Some(Said::Up) => self.up = true,
            Some(Said::Begin(phase, total)) => {
                self.measures |= phase == "measuring";
                progress.begin(&phase, total);
            }
            Some(Said::Step(done, note)) => progress.step(done, &note),
            Some(Said::Line(text)) => progress.line(&text),
            Some(Said::Error(text)) => self.error = Some(text),
            Some(Said::Done) => self.done = true,
            None if line.trim().is_empty() => {}
            None => self.other = line.trim().to_owned(),
        }
    }

    fn last_words(&self, child: &Child) -> String {
        let qemu = child.last_line();
        match (qemu.is_empty(), self.other.is_empty()) {
            (false, _) => qemu,
            (true, false) => format!("its kernel said: {}", self.other),
            (true, true) => "it said nothing".into(),
        }
    }
}

/// The machine's serial line.
#[derive(Default)]
struct Console {
    stream: Option<UnixStream>,
    rest: Vec<u8>,
}

impl Console {
    /// QEMU makes the socket some time after its start.
    fn connect(&mut self, socket: &Path) {
        if self.stream.is_none() {
            self.stream = UnixStream::connect(socket)
                .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
                .ok();
        }
    }

    /// Whole lines that came since.
    fn lines(&mut self) -> Vec<String> {
        let mut piece = [0; 4096];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => self.rest.extend_from_slice(&piece[..count]),
                Err(reason) if reason.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let Some(end) = self.rest.iter().rposition(|&byte| byte == b'\n') else {
            return Vec::new();
        };
        let whole: Vec<u8> = self.rest.drain(..=end).collect();
        String::from_utf8_lossy(&whole)
            .lines()
            .map(str::to_owned)
            .collect()
    }

    fn say(&mut self, word: &str) {
        if let Some(stream) = &mut self.stream {
            let _ = writeln!(stream, "{word}");
        }
    }
}
