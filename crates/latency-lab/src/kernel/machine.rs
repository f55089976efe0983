//! Runs the machine: QEMU, its console, and its shutdown.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::arch::Arch;
use super::initramfs::Boot;
use super::message::GuestMessage;
use super::prepared::Prepared;
use super::result;
use super::sandbox::printed;
use crate::error::Doing;
use crate::launch::{self, LaunchReport};
use crate::process::{Child, End};
use crate::{Interrupt, LabError, Progress, Result};

/// Size of the disk for the load's random reader: a sparse file on the host, which the guest cannot
/// recognise as sparse.
const READER_BYTES: u64 = 500 << 20;
/// Size of the disk for the report.
const RESULT_BYTES: u64 = 64 << 20;
/// Time limits from QEMU's start to the guest's first message: with KVM, which hangs if it is
/// broken, and with emulation.
const UP: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(300)];
/// Time limit between the request to stop and the arrival of the report.
const STOP_TIMEOUT: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(200);

/// A machine, which runs only once.
pub(super) struct Machine<'a> {
    pub(super) prepared: &'a Prepared,
    pub(super) boot: &'a Boot,
    pub(super) timeout: Duration,
    pub(super) cpus: usize,
    pub(super) accelerate: bool,
}

/// Why a machine produced no report.
enum Failed {
    /// The guest sent no message; it may do so with another accelerator.
    Silent(String),
    /// QEMU itself died before the first message; it may work when started again.
    Crashed(String),
    /// A permanent failure.
    Error(LabError),
}

impl From<LabError> for Failed {
    fn from(error: LabError) -> Self {
        Failed::Error(error)
    }
}

fn unprepared(reason: String) -> Failed {
    LabError::Preparation(reason).into()
}

/// How often QEMU is started again if it crashes: version 10.0.2 occasionally fails an assertion
/// while starting (msix_table_mmio_write).
const STARTS_AGAIN: usize = 2;

/// Boots the machine, and boots it again if QEMU crashes before the guest is up.
fn start<T>(
    mut boot: impl FnMut(&mut dyn Progress) -> std::result::Result<T, Failed>,
    progress: &mut dyn Progress,
) -> std::result::Result<T, Failed> {
    let mut left = STARTS_AGAIN;
    loop {
        match boot(progress) {
            Err(Failed::Crashed(reason)) if left > 0 => {
                left -= 1;
                progress.line(&format!(
                    "QEMU died while starting ({reason}): starting it again"
                ));
            }
            other => return other,
        }
    }
}

impl Machine<'_> {
    pub(super) fn run(&self, progress: &mut dyn Progress) -> Result<LaunchReport> {
        let qemu = self.version()?;
        let disks = [("reader.img", READER_BYTES), ("result.img", RESULT_BYTES)];
        for (name, bytes) in disks {
            let path = self.prepared.work.inside(name);
            let made = File::create(&path).and_then(|file| file.set_len(bytes));
            made.doing("making", &path)?;
        }
        let mut accelerators = vec!["tcg"];
        let kvm = File::options().read(true).write(true).open("/dev/kvm");
        let own = Arch::of_this_machine()? == self.prepared.packages.arch;
        if self.accelerate && own && kvm.is_ok() {
            accelerators.insert(0, "kvm");
        }
        let mut why = String::new();
        for accelerator in accelerators {
            progress.begin("starting the machine", 1);
            progress.step(0, accelerator);
            let boot = |progress: &mut dyn Progress| self.boot(accelerator, &qemu, progress);
            match start(boot, progress) {
                Ok(report) => return Ok(self.describe(report, qemu, accelerator)),
                Err(Failed::Error(error)) => return Err(error),
                Err(Failed::Silent(reason) | Failed::Crashed(reason)) => {
                    if accelerator == "kvm" {
                        progress.line(&format!("KVM does not work here ({reason}): emulating"));
                    }
                    why = reason;
                }
            }
        }
        Err(LabError::Preparation(format!(
            "the machine does not start: {why}"
        )))
    }

    fn describe(&self, report: LaunchReport, qemu: String, accelerator: &str) -> LaunchReport {
        LaunchReport {
            machine: Some(launch::Machine {
                qemu,
                arch: self.prepared.packages.arch.to_string(),
                accelerator: accelerator.into(),
                emulated: accelerator != "kvm",
                kernel: self.prepared.packages.release.clone(),
                kernel_package: self.prepared.packages.version.clone(),
                cpus: self.cpus,
            }),
            ..report
        }
    }

    /// QEMU's name and version: "QEMU 10.0.2", from "QEMU emulator version 10.0.2 (Debian ...)".
    fn version(&self) -> Result<String> {
        let mut command = self
            .prepared
            .sandbox
            .command(&self.prepared.packages.arch.qemu());
        let text = printed("asking QEMU for its version", command.arg("--version"))?;
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
        progress: &mut dyn Progress,
    ) -> std::result::Result<LaunchReport, Failed> {
        let socket = self.prepared.work.inside("console.sock");
        let _ = fs::remove_file(&socket);
        let mut command = self.command(accelerator, qemu);
        sys::parent::end_with_parent(&mut command);
        let mut child = Child::spawn(&mut command)?;
        let mut console = Console::default();
        let start = Instant::now();
        let up = UP[usize::from(accelerator != "kvm")];
        let mut guest = GuestState::default();
        let mut stop_by = None;
        loop {
            let ended = matches!(child.wait(POLL, &Interrupt::never())?, End::Exited(_));
            console.connect(&socket);
            for line in console.lines() {
                guest.take(&line, progress);
            }
            if let Some(error) = guest.error.take() {
                child.end();
                return Err(unprepared(format!("in the machine: {error}")));
            }
            if ended {
                return match (guest.done, guest.up) {
                    (true, _) => Ok(result::read(&self.prepared.work.inside("result.img"))?),
                    (false, false) => Err(Failed::Crashed(guest.last_output(&child))),
                    (false, true) => Err(unprepared(format!(
                        "the machine stopped before its experiment: {}",
                        guest.last_output(&child)
                    ))),
                };
            }
            if self.prepared.interrupt.asked() && stop_by.is_none() {
                console.say("stop");
                stop_by = Some(Instant::now() + STOP_TIMEOUT);
            }
            if stop_by.is_some_and(|by| Instant::now() > by || !guest.measures) {
                let reason = "interrupted before anything was measured";
                return Err(unprepared(reason.into()));
            }
            if !guest.up && child.errors().contains(KVM_BROKEN) {
                return Err(Failed::Silent(KVM_BROKEN.into()));
            }
            if !guest.up && start.elapsed() > up {
                return Err(Failed::Silent(guest.last_output(&child)));
            }
            if start.elapsed() > self.timeout {
                let seconds = self.timeout.as_secs();
                return Err(unprepared(format!(
                    "the machine did not finish within {seconds} s"
                )));
            }
        }
    }

    fn command(&self, accelerator: &str, qemu: &str) -> Command {
        let arch = self.prepared.packages.arch;
        let mut command = self.prepared.sandbox.command(&arch.qemu());
        let (accel, cpu) = match accelerator {
            "kvm" => ("kvm", "max"),
            _ => ("tcg,thread=multi", arch.emulated_cpu),
        };
        let by = qemu.replace(' ', "_");
        let line = format!(
            "console={} fuse.enable_uring=1 quiet loglevel=3 panic=-1 \
             lab.accelerator={accelerator} lab.by={by}",
            arch.console
        );
        let disk = |name: &str, read_only: &str| {
            format!("file=/build/{name},format=raw,if=virtio,read-only={read_only}")
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
                "-machine",
                arch.machine,
                "-accel",
                accel,
                "-cpu",
                cpu,
                "-smp",
            ])
            .arg(self.cpus.to_string())
            .args(["-m", &self.boot.memory_mib.to_string()])
            .arg("-kernel")
            .arg(&self.boot.kernel)
            .args(["-initrd", self.boot.initramfs, "-append", &line])
            .args([
                "-chardev",
                "socket,id=console,path=/build/console.sock,server=on,wait=off",
            ])
            .args(["-serial", "chardev:console"])
            .args(["-drive", &disk("reader.img", "on")])
            .args(["-drive", &disk("result.img", "off")])
            .args(["-drive", &disk("image.erofs", "on")]);
        command
    }
}

/// QEMU prints this if KVM cannot continue, after which the machine hangs.
const KVM_BROKEN: &str = "KVM internal error";

/// What the guest has reported so far.
#[derive(Default)]
struct GuestState {
    up: bool,
    /// Whether the launches have begun; only then can the guest be asked to stop.
    measures: bool,
    done: bool,
    error: Option<String>,
    /// The last line that was not a message to the host, usually from the kernel.
    other: String,
}

impl GuestState {
    fn take(&mut self, line: &str, progress: &mut dyn Progress) {
        match GuestMessage::parse(line) {
            Some(GuestMessage::Up) => self.up = true,
            Some(GuestMessage::Begin(phase, total)) => {
                self.measures |= phase == "measuring";
                progress.begin(&phase, total);
            }
            Some(GuestMessage::Step(done, note)) => progress.step(done, &note),
            Some(GuestMessage::Line(text)) => progress.line(&text),
            Some(GuestMessage::Error(text)) => self.error = Some(text),
            Some(GuestMessage::Done) => self.done = true,
            None if line.trim().is_empty() => {}
            None => self.other = line.trim().to_owned(),
        }
    }

    fn last_output(&self, child: &Child) -> String {
        let qemu = child.last_line();
        match (qemu.is_empty(), self.other.is_empty()) {
            (false, _) => qemu,
            (true, false) => format!("its last kernel message: {}", self.other),
            (true, true) => "it printed nothing".into(),
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
    /// Connects to the machine's serial line, if QEMU has already created the socket.
    fn connect(&mut self, socket: &Path) {
        if self.stream.is_none() {
            let stream = UnixStream::connect(socket).ok();
            self.stream = stream.filter(|stream| stream.set_nonblocking(true).is_ok());
        }
    }

    /// The complete lines received since the last call.
    fn lines(&mut self) -> Vec<String> {
        let mut bytes = [0; 4096];
        while let Some(stream) = &mut self.stream {
            match stream.read(&mut bytes) {
                Ok(count) if count > 0 => self.rest.extend_from_slice(&bytes[..count]),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    /// Boots a machine that fails `failures` times and then works; returns whether the machine came
    /// up, and how often it was booted.
    fn started(failures: usize, failed: fn(String) -> Failed) -> (bool, usize) {
        let mut starts = 0;
        let boot = |_: &mut dyn Progress| {
            starts += 1;
            match starts <= failures {
                true => Err(failed("an assertion".into())),
                false => Ok(()),
            }
        };
        (start(boot, &mut Silent).is_ok(), starts)
    }

    #[test]
    fn a_qemu_that_dies_at_its_start_is_started_again_twice_and_a_silent_one_is_not() {
        let started_after = |crashes| started(crashes, Failed::Crashed);
        let expected = [(true, 1), (true, 2), (true, 3), (false, 3)];
        assert_eq!([0, 1, 2, 9].map(started_after), expected);
        assert_eq!(started(9, Failed::Silent), (false, 1));
    }
}
