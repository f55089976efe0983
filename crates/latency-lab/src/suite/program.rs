//! The programs of the suite, which are well known and must be installed. The root directory of
//! each program is its image, unless its command contains the mount point (`{}`).

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::part::Part;
use super::tools;
use super::tree::Tree;
use crate::compile;
use crate::process::{in_path, output};

pub(super) const PROGRAMS: [Part; 6] = [
    Part::program("compiler", "C compiler, one file", compiler),
    Part::program("python", "Python, four modules", python),
    Part::program("shell", "shell script, forty tools", tools::script),
    Part::program("git", "git log", git),
    Part::program("node", "node, three modules", node),
    Part::program("java", "java -version", java),
];

fn words(line: &[&str]) -> Vec<String> {
    line.iter().map(|&word| word.to_owned()).collect()
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn not_installed(what: &str) -> io::Error {
    io::Error::other(format!("{what} is not installed"))
}

/// The first line that a command prints.
fn first_line(command: &mut Command) -> io::Result<String> {
    let text = output(command)?;
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// The compiler proper of gcc, without the driver, so that it is a single process.
fn compiler(tree: &Tree) -> io::Result<Vec<String>> {
    let driver = in_path("gcc").or_else(|| in_path("cc"));
    let driver = driver.ok_or_else(|| not_installed("gcc"))?;
    let compiler = first_line(Command::new(driver).arg("-print-prog-name=cc1"))?;
    if !compiler.starts_with('/') {
        return Err(not_installed("the compiler proper (cc1) of gcc"));
    }
    tree.program(Path::new(&compiler))?;
    tree.write(compile::SOURCE_NAME, compile::SOURCE)?;
    Ok(compile::command(&compiler))
}

/// Directories of the standard library that users' programs do not import.
const PYTHON_LEFT_OUT: [&str; 8] = [
    "test",
    "idlelib",
    "tkinter",
    "lib2to3",
    "ensurepip",
    "dist-packages",
    "site-packages",
    "turtledemo",
];

fn python(tree: &Tree) -> io::Result<Vec<String>> {
    let python = [Some(PathBuf::from("/usr/bin/python3")), in_path("python3")];
    let python = python.into_iter().flatten().find(|path| path.is_file());
    let python = python.ok_or_else(|| not_installed("python3"))?;
    let ask = |what: &str| {
        let script = format!("import os, sys, sysconfig; print({what})");
        first_line(Command::new(&python).args(["-c", &script]))
    };
    let program = ask("os.path.realpath(sys.executable)")?;
    let library = ask("sysconfig.get_paths()['stdlib']")?;
    tree.program(Path::new(&program))?;
    tree.directory(Path::new(&library), &|name| {
        PYTHON_LEFT_OUT.contains(&name) || name.starts_with("config-")
    })?;
    let script = "import json, ssl, sqlite3, asyncio";
    Ok(words(&[&program, "-I", "-c", script]))
}

/// Number of commits in the repository whose log is read.
const COMMITS: usize = 400;

fn git(tree: &Tree) -> io::Result<Vec<String>> {
    let git = tree.program_in_path("git")?;
    let repository = tree.root().join("repository");
    output(
        Command::new(&git)
            .args(["init", "--quiet"])
            .arg(&repository),
    )?;
    let stream = tree.root().join("stream");
    std::fs::write(&stream, commits())?;
    let mut import = Command::new(&git);
    import
        .arg("-C")
        .arg(&repository)
        .args(["fast-import", "--quiet"]);
    let status = import.stdin(std::fs::File::open(&stream)?).status()?;
    std::fs::remove_file(&stream)?;
    if !status.success() {
        return Err(io::Error::other("git fast-import failed"));
    }
    // git opens /dev/null, which does not exist in an image, so the mount is not git's root
    // directory.
    Ok(words(&[
        &format!("{{}}{}", git.display()),
        "--no-pager",
        "-C",
        "{}/repository",
        "log",
        "--stat",
        "main",
    ]))
}

/// A stream for git fast-import, in which each commit changes one file of the repository.
fn commits() -> String {
    let mut stream = String::new();
    for number in 0..COMMITS {
        let file = number % 40;
        let lines: String = (0..30)
            .map(|line| format!("line {line} of commit {}\n", number / (line + 1)))
            .collect();
        stream += &format!(
            "commit refs/heads/main\ncommitter Suite <suite@example.org> {} +0000\ndata {}\nChange {number}\n\
             M 644 inline source/{file}.txt\ndata {}\n{lines}\n",
            1_700_000_000 + number * 3600,
            format!("Change {number}\n").len(),
            lines.len()
        );
    }
    stream
}

fn node(tree: &Tree) -> io::Result<Vec<String>> {
    let node = in_path("node").ok_or_else(|| not_installed("node"))?;
    let node = node.canonicalize()?;
    tree.program(&node)?;
    let script = "require('https'); require('zlib'); require('crypto')";
    Ok(words(&[&text(&node), "-e", script]))
}

fn java(tree: &Tree) -> io::Result<Vec<String>> {
    let java = in_path("java").ok_or_else(|| not_installed("java"))?;
    let java = java.canonicalize()?;
    let home = java.parent().and_then(Path::parent);
    let home = home.ok_or_else(|| not_installed("a Java runtime"))?;
    tree.program(&java)?;
    for name in ["lib", "conf"] {
        let directory = home.join(name);
        if directory.is_dir() {
            tree.directory(&directory, &|name| name == "src.zip" || name == "ct.sym")?;
        }
    }
    // java finds its libraries through /proc/self/exe, so the mount is not its root directory
    // either.
    Ok(words(&[&format!("{{}}{}", java.display()), "-version"]))
}
