//! The load that fio makes: jobs that burn CPU time by sorting, and one direct random reader.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use sys::parent::end_with_parent;

use super::burn::wanted;
use super::file::{self, LoadFile};
use super::running::Load;
use crate::process::{Child, in_path, output, tool};
use crate::{Interrupt, LabError, Progress, Result};

/// The experiment of the kernel patch had eight jobs on two CPUs; here every machine gets the same
/// number per CPU.
const JOBS_PER_CPU: usize = 4;
/// Time limit for fio's start: it sorts its first arrays and opens its file within seconds, even on
/// a busy machine.
const START: Duration = Duration::from_secs(60);
/// Interval between checks, long enough to measure a share of CPU time in clock ticks of 10 ms.
const POLL: Duration = Duration::from_millis(400);

/// Why fio cannot run this load; none if it can.
pub fn missing_fio() -> Option<LabError> {
    if in_path("fio").is_none() {
        return Some(LabError::Load(
            "fio is not installed (Debian package: fio); or use --load none".into(),
        ));
    }
    let help = output(tool("fio").arg("--enghelp=cpuio")).unwrap_or_default();
    let too_old = "this fio is too old: its cpuio engine lacks cpumode=qsort; fio 3.29 (Debian \
                   12) or later is needed";
    (!help.contains("cpumode")).then(|| LabError::Load(too_old.into()))
}

/// Starts fio, and waits until it reaches its share of CPU time.
pub(super) fn start(
    file: LoadFile,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<Load> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let burners = JOBS_PER_CPU * cpus;
    let fio = Child::spawn(&mut command(&file.path, burners))?;
    let mut load = Load::of_fio(fio, burners, file);
    progress.begin("waiting for the load to reach its level", 1);
    wait_until_it_burns(&mut load, (burners, cpus), interrupt)?;
    progress.step(1, "");
    Ok(load)
}

fn wait_until_it_burns(
    load: &mut Load,
    (burners, cpus): (usize, usize),
    interrupt: &Interrupt,
) -> Result<()> {
    let deadline = Instant::now() + START;
    loop {
        load.check()?;
        if interrupt.asked() {
            return Err(LabError::Load("interrupted".into()));
        }
        let jobs = load.find_jobs();
        let before = load.window();
        std::thread::sleep(POLL);
        let spent = load.since(before).unwrap_or_default();
        if jobs > burners && spent.reads > 0 && spent.burned(wanted(burners, cpus)) {
            return Ok(());
        }
        if Instant::now() > deadline {
            let report = spent.report(burners, cpus);
            return Err(LabError::Load(format!(
                "fio is not running at full load after {} s: {jobs} of {} jobs, {:.0} % of the CPU \
                 time, {} reads per second",
                START.as_secs(),
                burners + 1,
                report.load_cpu_share * 100.0,
                report.reads_per_second
            )));
        }
    }
}

fn command(file: &Path, burners: usize) -> Command {
    let mut command = tool("fio");
    // When fio ends, its jobs end too.
    end_with_parent(&mut command);
    let jobs = "--output=/dev/null --eta=never --time_based --runtime=86400 --readonly \
                --name=burn --ioengine=cpuio --cpuload=90 --cpumode=qsort";
    let reader = "--name=read --ioengine=psync --rw=randread --bs=4k --direct=1 --numjobs=1";
    command.args(jobs.split(' '));
    command.arg(format!("--numjobs={burners}"));
    command.args(reader.split(' '));
    command.arg(format!("--size={}", file::BYTES));
    // fio splits names at colons, so it gets the file's name without the directory, and runs in
    // that directory. If it is killed, it also leaves its state files there.
    let mut name = OsString::from("--filename=");
    name.push(file.file_name().unwrap_or_default());
    command.arg(name);
    command.current_dir(file.parent().unwrap_or(Path::new("/")));
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::descendants;
    use crate::scratch::{ON_DISK, Scratch};
    use std::fs::File;
    use std::io::{BufRead, BufReader};

    /// Environment variable that tells the test executable to act as the lab that the test kills.
    const KILLED: &str = "EROFAST_TEST_IS_KILLED";

    fn be_killed() {
        let scratch = Scratch::new(Path::new(ON_DISK)).unwrap();
        let path = scratch.path().join("sparse");
        File::create(&path).unwrap().set_len(file::BYTES).unwrap();
        let fio = Child::spawn(&mut command(&path, 2)).unwrap();
        println!("\nload {}", fio.id());
        std::thread::sleep(Duration::from_secs(600));
    }

    #[test]
    fn a_colon_in_the_path_of_the_file_does_not_split_it() {
        let command = command(Path::new("/mnt/a:b/file"), 2);
        assert!(command.get_args().any(|word| word == "--filename=file"));
        assert_eq!(command.get_current_dir(), Some(Path::new("/mnt/a:b")));
    }

    #[test]
    fn a_load_ends_with_a_lab_that_is_killed() {
        if std::env::var_os(KILLED).is_some() {
            return be_killed();
        }
        if missing_fio().is_some() {
            println!("skipped: fio is not installed");
            return;
        }
        let mut lab = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture"])
            .arg("load::fio::tests::a_load_ends_with_a_lab_that_is_killed")
            .env(KILLED, "1")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(lab.stdout.take().unwrap()).lines();
        let fio = lines.find_map(|line| line.unwrap().strip_prefix("load ")?.parse().ok());
        let mut family = descendants(fio.unwrap());
        while family.len() < 3 {
            std::thread::sleep(Duration::from_millis(5));
            family = descendants(fio.unwrap());
        }
        family.extend(fio);
        lab.kill().unwrap();
        lab.wait().unwrap();
        // A process that has ended, but that nobody has waited for, has no command line.
        let is_fio = |pid: &u32| {
            let words = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
            words.is_ok_and(|words| words.contains("--cpumode=qsort"))
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        while family.iter().any(is_fio) {
            assert!(Instant::now() < deadline, "{family:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
        // Creating the next scratch directory removes what the killed lab left.
        drop(Scratch::new(Path::new(ON_DISK)));
    }
}
