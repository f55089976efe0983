//! The installed library, and programs that are compiled against it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::common::Shared;

/// The result of `make install` for the library and the program that were built with the tests.
pub struct Installed {
    place: TempDir,
    flags: Vec<String>,
    compiling: Mutex<()>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A source file of these tests.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/c_library")
        .join(name)
}

fn is_there(tool: &str) -> bool {
    Command::new(tool).arg("--version").output().is_ok()
}

/// Runs a command that must not fail.
pub fn run(command: &mut Command) -> Output {
    let output = command.output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output
}

/// Number of bytes that a program under valgrind had not freed, but still referred to, when it
/// ended.
pub fn still_reachable(output: &Output) -> u64 {
    let report = String::from_utf8_lossy(&output.stderr);
    let count = report.split("still reachable: ").nth(1);
    let count = count.and_then(|rest| rest.split(' ').next());
    count.map_or(0, |count| count.replace(',', "").parse().expect("a number"))
}

pub fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Checks that a static link prints exactly the warnings that the library's page names.
fn check_warnings(linked: &Output) {
    let page = root().join("docs/library.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let messages = String::from_utf8_lossy(&linked.stderr).into_owned();
    for rest in messages.split("Using '").skip(1) {
        let name = rest.split('\'').next().unwrap_or_default();
        assert!(page.contains(&format!("`{name}`")), "{name}: {messages}");
    }
}

impl Installed {
    /// The installation shared by tests that do not modify it.
    pub fn shared() -> Option<Arc<Self>> {
        static INSTALLED: Shared<Installed> = Shared::new();
        INSTALLED.get(Self::new)
    }

    /// Installs the library. Without a C compiler, prints the reason and returns `None`.
    pub fn new() -> Option<Self> {
        for tool in ["cc", "gzip"] {
            if !is_there(tool) {
                println!("skipped: no {tool}");
                return None;
            }
        }
        let place = tempfile::tempdir().expect("a directory");
        let tests = std::env::current_exe().expect("a path");
        run(Command::new(root().join("scripts/install-files"))
            .arg(env!("CARGO_BIN_EXE_erofast"))
            .arg("")
            .arg(place.path().join("usr"))
            .env("LIBRARY", tests.parent().expect("a directory"))
            .env("HELPERS", place.path().join("sbin")));
        let mut installed = Self {
            place,
            flags: Vec::new(),
            compiling: Mutex::new(()),
        };
        installed.flags = installed.flags();
        Some(installed)
    }

    /// Runs `make uninstall`.
    pub fn remove(&self) {
        run(Command::new(root().join("scripts/install-files"))
            .args(["--remove", ""])
            .arg(self.path(""))
            .env("HELPERS", self.place.path().join("sbin")));
    }

    /// A path below the prefix.
    pub fn path(&self, below: &str) -> PathBuf {
        self.place.path().join("usr").join(below)
    }

    /// The flags that the compiler needs, according to pkg-config.
    fn flags(&self) -> Vec<String> {
        if !is_there("pkg-config") {
            println!("skipped: no pkg-config: the test supplies the compiler's flags");
            let include = format!("-I{}", self.path("include").display());
            let library = format!("-L{}", self.path("lib").display());
            return vec![include, library, "-lerofast".into()];
        }
        self.described(&["--cflags", "--libs"])
    }

    /// The words that pkg-config prints for these options.
    fn described(&self, questions: &[&str]) -> Vec<String> {
        let output = run(Command::new("pkg-config")
            .args(questions)
            .arg("erofast")
            .env("PKG_CONFIG_PATH", self.path("lib/pkgconfig")));
        let flags = text(&output);
        flags.split_whitespace().map(str::to_owned).collect()
    }

    /// Links a program without shared libraries in each way that this machine supports, and returns
    /// the programs. If no way works, prints the reason and returns `None`.
    pub fn link_statically(&self, source: &Path) -> Option<Vec<PathBuf>> {
        if !is_there("pkg-config") {
            println!("skipped: no pkg-config: the test supplies the compiler's flags");
            return None;
        }
        let empty = self.path("empty.c");
        std::fs::write(&empty, "int main(void) { return 0; }\n").expect("a file");
        let flags = self.described(&["--static", "--cflags", "--libs"]);
        let mut programs = Vec::new();
        for way in [
            &["cc", "-static"][..],
            &["cc", "-static-pie"],
            &["cc", "-static", "-fuse-ld=gold"],
            &["cc", "-static", "-fuse-ld=lld"],
            &["cc", "-static", "-fuse-ld=mold"],
            &["clang", "-static"],
        ] {
            let program = self.path(&way.join(""));
            let link = |source: &Path| {
                let mut command = Command::new(way[0]);
                command.args(&way[1..]).arg("-o").arg(&program).arg(source);
                command
            };
            let works = link(&empty).output();
            if works.is_ok_and(|output| output.status.success()) {
                check_warnings(&run(link(source).args(&flags)));
                programs.push(program);
            }
        }
        if programs.is_empty() {
            println!("skipped: no static C library");
            return None;
        }
        Some(programs)
    }

    /// Compiles a program, unless that was already done.
    pub fn compile(&self, source: &Path, name: &str) -> PathBuf {
        let program = self.place.path().join(name);
        let _turn = self.compiling.lock().expect("no panic");
        if program.exists() {
            return program;
        }
        run(Command::new("cc")
            .args(["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror"])
            .arg(source)
            .args(&self.flags)
            .arg("-lpthread")
            .arg("-o")
            .arg(&program));
        program
    }

    /// A command that finds the installed library when it runs.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_LIBRARY_PATH", self.path("lib"));
        command
    }

    /// The program under valgrind: status 99 means that memory was lost or that uninitialised
    /// memory was read; [`still_reachable`] returns how much other memory was not freed. `None`
    /// without valgrind.
    pub fn valgrind(&self, program: &Path) -> Option<Command> {
        if !is_there("valgrind") {
            println!("skipped: no valgrind");
            return None;
        }
        let mut command = self.command("valgrind");
        command
            .args(["--error-exitcode=99", "--leak-check=full"])
            .arg("--errors-for-leak-kinds=definite,indirect,possible")
            .arg(program);
        Some(command)
    }
}
