//! The guest: this program, as the first process of the machine, runs the launch experiment.
//!
//! The guest reports with lines on the console ([`GuestMessage`]) and writes its result to a disk.

use std::fs::{self, File};
use std::io::{self, BufRead, Read};
use std::path::Path;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use rustix::system::{RebootCommand, finit_module, reboot};

use super::job::{IMAGE, JOB, Job, MODULES, ORDER};
use super::message::GuestMessage;
use super::result;
use crate::error::Doing;
use crate::{LabError, Progress, Result, launch};

/// The third disk on QEMU's command line.
const IMAGE_DISK: &str = "/dev/vdc";

/// Reports progress with lines on the console.
struct Console;

impl Progress for Console {
    fn begin(&mut self, phase: &str, total: u64) {
        GuestMessage::Begin(phase.into(), total).print();
    }
    fn step(&mut self, done: u64, note: &str) {
        GuestMessage::Step(done, note.into()).print();
    }
    fn line(&mut self, text: &str) {
        GuestMessage::Line(text.into()).print();
    }
}

/// Runs the job of a machine that `lab kernel` has created, then powers the machine off. Fails
/// unless this is the first process of such a machine.
pub fn run_guest() -> Result<()> {
    if std::process::id() != 1 || !Path::new(JOB).exists() {
        let text = "lab guest: runs only as the first process of a virtual machine of lab kernel";
        return Err(LabError::Usage(text.into()));
    }
    GuestMessage::Up.print();
    std::thread::spawn(listen);
    match experiment() {
        Ok(()) => GuestMessage::Done.print(),
        Err(error) => GuestMessage::Error(error.to_string()).print(),
    }
    rustix::fs::sync();
    // The console is a serial line, whose buffer is still being sent when a write returns.
    std::thread::sleep(Duration::from_millis(500));
    let _ = reboot(RebootCommand::PowerOff);
    Ok(())
}

/// Waits for "stop", the only word that the host ever sends.
fn listen() {
    for line in io::stdin().lock().lines().map_while(io::Result::ok) {
        if line.trim() == "stop" {
            let _ = kill_process(rustix::process::getpid(), Signal::INT);
        }
    }
}

fn experiment() -> Result<()> {
    let text = fs::read(JOB).doing("reading", JOB)?;
    let mut job = Job::parse(&text)?;
    let order = fs::read_to_string(ORDER);
    let order = order.doing("reading", ORDER)?;
    for module in order.lines() {
        load(&Path::new(MODULES).join(module))?;
    }
    take_image(job.image_bytes)?;
    if !has_io_uring() {
        job.leave_out_io_uring();
    }
    job.launch.notices.insert(0, emulated());
    result::write(&launch::run(&job.launch, &mut Console)?)
}

/// Whether FUSE mounts can use io_uring in the machine. The kernel's command line enables it if the
/// kernel supports it.
fn has_io_uring() -> bool {
    let switch = fs::read_to_string("/sys/module/fuse/parameters/enable_uring");
    switch.is_ok_and(|text| text.trim() == "Y")
}

/// The machine's accelerator, and with what its times may be compared.
fn emulated() -> String {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let by = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("lab.by="))
        .unwrap_or("QEMU")
        .replace('_', " ");
    if line.contains("lab.accelerator=kvm") {
        return format!("virtual machine ({by}, KVM): compare these times with each other");
    }
    format!(
        "EMULATED machine ({by}, no KVM): compare these times only with each other, never with \
         those of a real machine"
    )
}

fn load(module: &Path) -> Result<()> {
    let file = File::open(module).doing("opening", module)?;
    finit_module(&file, c"", 0).doing("loading", module)
}

/// Copies the image from its disk to memory, so that no launch waits for the disk.
fn take_image(bytes: u64) -> Result<()> {
    let copied = File::open(IMAGE_DISK)
        .and_then(|disk| io::copy(&mut disk.take(bytes), &mut File::create(IMAGE)?))
        .doing("copying the image from", IMAGE_DISK)?;
    if copied == bytes {
        return Ok(());
    }
    Err(LabError::Preparation(format!(
        "{IMAGE_DISK}: {copied} of {bytes} bytes of the image"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_process_of_a_machine_runs_the_job_and_powers_off() {
        let error = run_guest().unwrap_err().to_string();
        assert!(error.starts_with("lab guest: runs only"), "{error}");
    }
}
