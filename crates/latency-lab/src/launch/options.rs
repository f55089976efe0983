//! Options of `lab launch` and `lab run`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::measures::Experiment;
use super::side::Side;
use crate::engine::{Engine, Site};
use crate::error::{Doing, need_root};
use crate::load::LoadChoice;
use crate::process::{FOREIGN_LIMIT, foreign_pids, in_path};
use crate::shell::{contains, replaced};
use crate::{LabError, Result};

/// One launch experiment, which launches a program from the mounts of engines, or commands without
/// any mount.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaunchOptions {
    /// The commands to compare, each with the first one. If there are any, image and engines are
    /// not used.
    pub commands: Vec<Side>,
    /// Whether a launch counts even if its command failed.
    pub ignore_failure: bool,
    /// The image to launch from.
    pub image: PathBuf,
    /// The `erofast` binary for the engines `erofast:...`.
    pub erofast: PathBuf,
    /// The engines to compare, each with the first one; if empty, those of [`Engine::default_list`]
    /// that are available.
    pub engines: Vec<Engine>,
    /// The program and its arguments; `{}` stands for the mount point.
    pub command: Vec<OsString>,
    /// Whether to make the mount the program's root directory.
    pub root: bool,
    /// The program's working directory; `{}` stands for the mount point. By default the root
    /// directory or, for commands, the lab's working directory.
    pub directory: Option<PathBuf>,
    /// A shell command line that is run before the mount of each launch.
    pub prepare: Option<OsString>,
    /// Number of launches per engine that count.
    pub iterations: usize,
    /// Number of warm-up launches per engine, which do not count.
    pub warm_ups: usize,
    /// The load that keeps the machine busy.
    pub load: LoadChoice,
    /// How long a launch may take.
    pub timeout: Duration,
    /// No new round begins after this time.
    pub time: Option<Duration>,
    /// A directory on a disk, in which the load's file is created; by default /var/tmp.
    pub scratch: Option<PathBuf>,
    /// A disk that the load's random reader reads instead of a file.
    pub load_disk: Option<PathBuf>,
    /// The command line that repeats the run, if it differs from that of this process.
    pub repeat_with: Option<String>,
    /// Notices for the report, in addition to those of the run itself.
    pub notices: Vec<String>,
    /// A directory in which to keep the traces of each engine's median launch and worst launch.
    pub keep_traces: Option<PathBuf>,
    /// Whether to keep the load's file for the next run.
    pub keep_scratch: bool,
    /// Whether to launch from each engine equally often without the recorder, to measure the cost
    /// of recording.
    pub overhead: bool,
    /// Only launch times matter, so switches missing from the trace spoil no launch.
    pub times_only: bool,
    /// Seed of the order of launches.
    pub seed: u64,
    /// A launch is spoilt if unrelated programs took more than this fraction of all CPU time.
    pub foreign_limit: f64,
}

impl Default for LaunchOptions {
    fn default() -> Self {
        LaunchOptions {
            commands: Vec::new(),
            ignore_failure: false,
            image: PathBuf::new(),
            erofast: PathBuf::new(),
            engines: Vec::new(),
            command: Vec::new(),
            root: false,
            directory: None,
            prepare: None,
            iterations: 50,
            warm_ups: 1,
            load: LoadChoice::Fio,
            timeout: Duration::from_secs(120),
            time: None,
            scratch: None,
            load_disk: None,
            repeat_with: None,
            notices: Vec::new(),
            keep_traces: None,
            keep_scratch: false,
            overhead: false,
            times_only: false,
            seed: 1,
            foreign_limit: FOREIGN_LIMIT,
        }
    }
}

impl LaunchOptions {
    pub(super) fn experiment(&self) -> Experiment {
        match self.commands.is_empty() {
            true => Experiment::Launch,
            false => Experiment::Run,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let lab = format!("lab {}", self.experiment().word());
        let wrong = |text: &str| Err(LabError::Usage(format!("{lab}: {text}")));
        if let LoadChoice::Line(line) = &self.load
            && is_no_program(line)
        {
            return wrong(&format!(
                "--load {line}: neither fio nor none, and no such program"
            ));
        }
        match self.experiment() {
            Experiment::Launch => self.check_launch()?,
            Experiment::Run => self.commands.iter().try_for_each(is_installed)?,
        }
        if let Some(directory) = self.directory.as_deref().filter(|path| !names_mount(path)) {
            is_directory(directory)?;
        }
        if self.iterations == 0 {
            return wrong("at least one iteration is needed");
        }
        let mount = match self.experiment() {
            Experiment::Launch => " and to mount",
            Experiment::Run => "",
        };
        need_root(&format!(
            "{lab}: needs root, to record the scheduler{mount}"
        ))?;
        if let Some(reason) = foreign_pids() {
            return Err(LabError::Privilege(format!("{lab}: {reason}")));
        }
        Ok(())
    }

    fn check_launch(&self) -> Result<()> {
        let wrong = |text: &str| Err(LabError::Usage(format!("lab launch: {text}")));
        if self.command.is_empty() {
            return wrong("no command given; write it after --, with {} for the mount point");
        }
        if !self.reads_mount() {
            return wrong(
                "the command does not contain {} and --root is not given, so it would not read the \
                 mount",
            );
        }
        match self.directory.as_deref().filter(|_| self.root) {
            None => Ok(()),
            Some(path) => wrong(&format!(
                "--chdir {} and --root exclude each other",
                path.display()
            )),
        }
    }

    /// Whether a launch counts if only its launch time is known. Without load it counts, because
    /// some kernels omit switches while the machine is idle.
    pub(super) fn counts_times(&self) -> bool {
        self.times_only || self.load == LoadChoice::None
    }

    /// Checks that the mounted image contains the program, if the command names the program by its
    /// path in the mount.
    pub(super) fn check_program(&self, point: &Path) -> Result<()> {
        let program = self.command[0].as_bytes();
        let inside = match program.strip_prefix(b"{}/") {
            None if self.root => program.strip_prefix(b"/"),
            inside => inside,
        };
        let Some(inside) = inside.map(OsStr::from_bytes) else {
            return Ok(());
        };
        let resolve = match self.root {
            true => ResolveFlags::IN_ROOT,
            false => ResolveFlags::empty(),
        };
        let directory = File::open(point).doing("opening", point)?;
        match openat2(directory, inside, OFlags::PATH, Mode::empty(), resolve) {
            Err(Errno::NOENT) => {
                let program = inside.display();
                let text = format!("lab launch: no such file in the image: {program}");
                Err(LabError::Preparation(text))
            }
            _ => Ok(()),
        }
    }

    /// Whether the command mentions the mount at all.
    fn reads_mount(&self) -> bool {
        self.root || self.directory.iter().any(names_mount) || self.command.iter().any(names_mount)
    }

    /// The program's working directory; none if it is the lab's own.
    pub(super) fn directory_at(&self, point: Option<&Path>) -> Result<Option<PathBuf>> {
        let Some(directory) = &self.directory else {
            return Ok(point.map(|_| "/".into()));
        };
        let directory = match point {
            Some(point) => replaced(directory.as_os_str(), "{}", point.as_os_str()).into(),
            None => directory.clone(),
        };
        is_directory(&directory)?;
        Ok(Some(directory))
    }

    pub(super) fn site(&self) -> Result<Site> {
        let site = Site::new(&self.image, &self.erofast)?;
        if !site.image.is_file() {
            return Err(LabError::Usage(format!(
                "{}: not a file; the lab measures only image files",
                site.image.display()
            )));
        }
        Ok(site)
    }

    /// Makes a side of each of these engines, with the command.
    pub(super) fn sides(&self, engines: Vec<Engine>) -> Vec<Side> {
        let side = |engine: Engine| Side {
            name: engine.to_string(),
            engine: Some(engine),
            command: self.command.clone(),
            prepare: self.prepare.clone(),
        };
        engines.into_iter().map(side).collect()
    }

    /// The command line of a side, with the mount point if it has one.
    pub(super) fn command_at(&self, side: &Side, point: Option<&Path>) -> Vec<OsString> {
        match point {
            Some(point) => command_at(&side.command, self.root, point),
            None => side.command.clone(),
        }
    }
}

/// Checks, before anything is started, that the program exists.
fn is_installed(side: &Side) -> Result<()> {
    let program = side.command[0].to_string_lossy();
    match is_no_program(&program) {
        false => Ok(()),
        true => Err(LabError::Usage(format!(
            "lab run: {program}: no such program"
        ))),
    }
}

/// Whether a word is the name of a program that is not installed. Paths are not checked, since a
/// preparation may create the program.
fn is_no_program(word: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.+".contains(c);
    word.chars().all(is_name) && in_path(word).is_none()
}

/// Whether a word contains `{}`, which stands for the mount point.
pub(crate) fn names_mount(word: impl AsRef<OsStr>) -> bool {
    contains(word.as_ref(), "{}")
}

fn is_directory(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let path = path.display();
    Err(LabError::Usage(format!("--chdir {path}: not a directory")))
}

/// The command line, with `{}` replaced by the mount point or, with `root`, by the root directory.
pub(crate) fn command_at(command: &[OsString], root: bool, point: &Path) -> Vec<OsString> {
    let fill = |word: &OsString| match root {
        true => replaced(&replaced(word, "{}/", "/".as_ref()), "{}", "/".as_ref()),
        false => replaced(word, "{}", point.as_os_str()),
    };
    let command = command.iter().map(fill);
    if !root {
        return command.collect();
    }
    // chroot(8) executes the program in its own process, so the launch has one more exec but no
    // other process.
    let chroot = [OsString::from("chroot"), point.as_os_str().to_owned()];
    chroot.into_iter().chain(command).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(root: bool, words: &[&str]) -> LaunchOptions {
        LaunchOptions {
            root,
            command: words.iter().map(OsString::from).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn braces_stand_for_the_mount_point_and_below_the_root_for_the_root() {
        let at = |options: LaunchOptions| {
            let side = &options.sides(vec![Engine::Kernel])[0];
            options.command_at(side, Some(Path::new("/m")))
        };
        let command = at(options(false, &["{}/bin/tool", "--path={}:{}/x", "{"]));
        assert_eq!(command, ["/m/bin/tool", "--path=/m:/m/x", "{"]);
        let command = at(options(true, &["{}/bin/tool", "{}"]));
        assert_eq!(command, ["chroot", "/m", "/bin/tool", "/"]);
    }

    #[test]
    fn a_command_that_does_not_name_the_mount_reads_nothing_from_it() {
        assert!(!options(false, &["/bin/true"]).reads_mount());
        assert!(options(true, &["/bin/true"]).reads_mount());
        assert!(options(false, &["env", "A={}/lib", "x"]).reads_mount());
    }

    #[test]
    fn a_program_that_the_image_lacks_is_named_by_its_path_there() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let point = scratch.path();
        std::fs::create_dir_all(point.join("usr/bin")).unwrap();
        std::fs::write(point.join("usr/bin/tool"), "").unwrap();
        std::os::unix::fs::symlink("/usr/bin", point.join("bin")).unwrap();
        let check = |root, program: &str| options(root, &[program, "{}"]).check_program(point);
        for (root, program) in [
            (false, "{}/usr/bin/tool"),
            (false, "no-such-tool"),
            (true, "/bin/tool"),
            (true, "{}/bin/tool"),
            (true, "no-such-tool"),
        ] {
            check(root, program).unwrap();
        }
        for (root, program) in [(false, "{}/bin/nothere"), (true, "/bin/nothere")] {
            let error = check(root, program).unwrap_err().to_string();
            assert_eq!(error, "lab launch: no such file in the image: bin/nothere");
        }
    }

    #[test]
    fn the_directory_is_the_root_unless_another_one_is_named() {
        let in_directory = |directory: &str| LaunchOptions {
            directory: Some(directory.into()),
            ..options(false, &["./app"])
        };
        let at = |options: LaunchOptions| options.directory_at(Some(Path::new("/proc")));
        let path = |path: &str| Some(PathBuf::from(path));
        assert_eq!(at(options(false, &["x"])).unwrap(), path("/"));
        assert_eq!(at(in_directory("{}/self")).unwrap(), path("/proc/self"));
        assert_eq!(options(false, &["x"]).directory_at(None).unwrap(), None);
        assert!(in_directory("{}/self").reads_mount() && !in_directory("/tmp").reads_mount());
        let error = at(in_directory("{}/nothing")).unwrap_err().to_string();
        assert_eq!(error, "--chdir /proc/nothing: not a directory");
    }

    #[test]
    fn wrong_use_is_said_before_anything_starts() {
        let mut elsewhere = options(false, &["{}/x"]);
        elsewhere.directory = Some("/no/such".into());
        let mut nothing = options(false, &["{}/x"]);
        nothing.iterations = 0;
        for (options, reason) in [
            (options(false, &[]), "lab launch: no command given"),
            (options(false, &["x"]), "does not contain {}"),
            (elsewhere, "/no/such: not a directory"),
            (nothing, "at least one iteration is needed"),
        ] {
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
