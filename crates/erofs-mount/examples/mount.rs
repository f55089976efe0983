//! A minimal program that mounts: `mount [-f] [-o OPTIONS] IMAGE DIR`, `umount DIR`, `stat DIR`.

use std::ffi::OsString;
use std::process::ExitCode;

use erofs_mount::{Error, MountOptions, MountRequest};

fn main() -> ExitCode {
    if let Some(code) = erofs_mount::run_if_daemon() {
        return code;
    }
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("mount: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[OsString]) -> Result<(), Error> {
    let mut rest = arguments;
    let (mut lists, mut foreground) = (Vec::new(), false);
    if let [command, path] = rest {
        match command.to_str() {
            Some("umount") => return erofs_mount::umount(path.as_ref(), false),
            Some("stat") => {
                println!("{:#}", erofs_mount::stat(path.as_ref())?);
                return Ok(());
            }
            _ => {}
        }
    }
    while let [flag, after @ ..] = rest {
        match (flag.to_str(), after) {
            (Some("-f"), _) => (foreground, rest) = (true, after),
            (Some("-o"), [list, after @ ..]) => {
                lists.push(list.clone());
                rest = after;
            }
            _ => break,
        }
    }
    let [image, mountpoint] = rest else {
        println!("usage: mount [-f] [-o OPTIONS] IMAGE DIR | umount DIR | stat DIR");
        return Ok(());
    };
    let options = MountOptions::parse(&lists)?;
    let (image, mountpoint) = (image.into(), mountpoint.into());
    erofs_mount::mount(&MountRequest {
        image,
        mountpoint,
        options,
        foreground,
    })
}
