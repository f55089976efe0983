//! The log for faults of the image and deaths of servers. A server opens the log before it enters
//! the sandbox, which forbids opening it.

mod journal;
mod syslog;

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::note::note;
use crate::options::MountOptions;
use crate::text;

/// Mode of a new log file. Other users cannot read it, because messages name files in the image.
const FILE_MODE: u32 = 0o640;

/// The log of one mount. Logging never waits for the receiver.
#[derive(Clone, Debug)]
pub enum Log {
    /// systemd's journal.
    Journal(Arc<UnixDatagram>),
    /// syslogd.
    Syslog(Arc<UnixDatagram>),
    /// The file of `log=FILE`, with its name.
    File(Arc<File>, PathBuf),
    /// Standard error of a server in the foreground.
    StandardError,
    /// Nowhere: the system has no log.
    None,
}

impl Log {
    /// Opens the log that the options name. If they name none, faults go to standard error or, in
    /// the background, to the system's log.
    pub fn open(options: &MountOptions, background: bool) -> Result<Self, Error> {
        match &options.log {
            Some(path) => Self::file(path),
            None if background => Ok(Self::system()),
            None => Ok(Self::StandardError),
        }
    }

    fn file(path: &Path) -> Result<Self, Error> {
        // NONBLOCK: opening a named pipe without a reader fails, and writing to a full one does not
        // block.
        let flags = OFlags::WRONLY
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::CLOEXEC
            | OFlags::NOCTTY
            | OFlags::NONBLOCK;
        let file = rustix::fs::open(path, flags, Mode::from_raw_mode(FILE_MODE))
            .map_err(Error::io(format!("log={}", path.display())))?;
        Ok(Self::File(Arc::new(file.into()), path.to_owned()))
    }

    fn system() -> Self {
        let journal = connect(journal::SOCKET).map(Self::Journal);
        let syslog = || connect(syslog::SOCKET).map(Self::Syslog);
        journal.or_else(|_| syslog()).unwrap_or(Self::None)
    }

    /// The descriptor to which the log is written; `None` if there is no log or if it is standard
    /// error.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Journal(socket) | Self::Syslog(socket) => Some(socket.as_fd()),
            Self::File(file, _) => Some(file.as_fd()),
            Self::StandardError | Self::None => None,
        }
    }

    /// A notice for the live counters if faults will not be logged. It is not printed when
    /// mounting, because in most containers nobody could do anything about it.
    pub fn notice(&self) -> Option<&'static str> {
        matches!(self, Self::None).then_some(
            "there is no journal or syslog: faults are shown only by erofast stat; log=FILE keeps \
             them",
        )
    }

    /// Name of the log, for the live counters.
    pub fn name(&self) -> Option<String> {
        match self {
            Self::Journal(_) => Some("journal".to_owned()),
            Self::Syslog(_) => Some("syslog".to_owned()),
            Self::File(_, path) => Some(path.to_string_lossy().into_owned()),
            Self::StandardError => Some("standard error".to_owned()),
            Self::None => None,
        }
    }

    /// Logs a line; returns false if logging failed.
    pub fn line(&self, message: &str) -> bool {
        self.write(message, &[])
    }

    /// Logs a line with fields for the journal; fields without a value are left out. Unprintable
    /// characters in the message are written as `\xNN`.
    pub fn write(&self, message: &str, fields: &[(&str, Option<Vec<u8>>)]) -> bool {
        let message = &text::line(message);
        match self {
            Self::Journal(socket) => sent(socket, &journal::datagram(message, fields)),
            Self::Syslog(socket) => sent(socket, &syslog::datagram(message)),
            Self::File(file, _) => appended(file, message),
            Self::StandardError => {
                note(message);
                true
            }
            Self::None => false,
        }
    }
}

fn connect(path: &str) -> io::Result<Arc<UnixDatagram>> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    // A slow receiver must not delay the end of the mount.
    socket.set_nonblocking(true)?;
    Ok(Arc::new(socket))
}

/// Uses write(2), because the sandbox allows no call that takes a socket address.
fn sent(socket: &UnixDatagram, bytes: &[u8]) -> bool {
    rustix::io::retry_on_intr(|| rustix::io::write(socket, bytes)).is_ok()
}

/// Appends one line with one call, so that lines of several mounts do not mix.
fn appended(mut file: &File, message: &str) -> bool {
    let now = SystemTime::now();
    let pid = std::process::id();
    let line = format!("{}Z erofast[{pid}]: {message}\n", clock(now));
    file.write_all(line.as_bytes()).is_ok()
}

/// Formats a time in UTC, as in RFC 3339.
fn clock(time: SystemTime) -> String {
    text::time(text::seconds(time).cast_signed()).replace(' ', "T")
}

/// A log that writes to a pipe, for tests.
#[cfg(test)]
impl From<std::os::fd::OwnedFd> for Log {
    fn from(descriptor: std::os::fd::OwnedFd) -> Self {
        Self::File(Arc::new(descriptor.into()), "pipe".into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn listener(folder: &Path) -> (UnixDatagram, Arc<UnixDatagram>) {
        let path = folder.join("socket");
        let listener = UnixDatagram::bind(&path).unwrap();
        (listener, connect(path.to_str().unwrap()).unwrap())
    }

    fn received(listener: &UnixDatagram) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 16];
        let length = listener.recv(&mut bytes).unwrap();
        bytes.truncate(length);
        bytes
    }

    #[test]
    fn the_journal_gets_fields() {
        let folder = tempfile::tempdir().unwrap();
        let (listener, socket) = listener(folder.path());
        assert!(Log::Journal(socket).write("it broke", &[("NID", Some(b"36".to_vec()))]));
        let bytes = received(&listener);
        assert!(bytes.starts_with(b"MESSAGE=it broke\n"));
        assert!(bytes.ends_with(b"NID=36\n"));
    }

    #[test]
    fn syslog_gets_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let (listener, socket) = listener(folder.path());
        assert!(Log::Syslog(socket).line("it broke"));
        let text = String::from_utf8(received(&listener)).unwrap();
        assert!(text.starts_with("<27>erofast["), "{text}");
        assert!(text.ends_with("it broke"), "{text}");
    }

    #[test]
    fn a_receiver_that_is_full_or_gone_is_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let (listener, socket) = listener(folder.path());
        let log = Log::Syslog(socket);
        // The kernel queues at most a few hundred datagrams.
        assert!((0..100_000).any(|_| !log.line("it broke")));
        drop(listener);
        assert!(!log.line("it broke"));
    }

    #[test]
    fn a_file_is_appended_to() {
        let folder = tempfile::tempdir().unwrap();
        let options = MountOptions {
            log: Some(folder.path().join("log")),
            ..MountOptions::default()
        };
        std::fs::write(folder.path().join("log"), "before\n").unwrap();
        let log = Log::open(&options, true).unwrap();
        assert!(log.line("it broke") && log.line("the end"));
        let text = std::fs::read_to_string(folder.path().join("log")).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "before");
        assert!(lines[1].contains("Z erofast[") && lines[1].ends_with("it broke"));
        assert!(lines[2].ends_with("]: the end"), "{text}");
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let options = MountOptions {
            log: Some(folder.path().join("no/log")),
            ..MountOptions::default()
        };
        let error = Log::open(&options, true).unwrap_err().to_string();
        assert!(
            error.contains("log=") && error.contains("no/log"),
            "{error}"
        );
    }

    #[test]
    fn a_broken_pipe_is_a_line_that_is_not_logged() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        drop(reader);
        assert!(!Log::from(writer).line("it broke"));
    }

    #[test]
    fn only_a_system_without_a_log_is_worth_a_notice() {
        assert!(Log::None.notice().unwrap().contains("log=FILE"));
        assert_eq!(Log::StandardError.notice(), None);
        assert!(!Log::None.line("it broke"));
    }

    #[test]
    fn times_are_utc() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(951_782_400);
        assert_eq!(clock(time), "2000-02-29T00:00:00");
    }
}
