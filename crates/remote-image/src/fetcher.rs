//! The program `erofast-fetch`, as seen by its parent.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::message::{Identity, News, Order, pair, receive, send};
use crate::parts::{About, Parts};
use crate::{ImageUrl, Options};

const PROGRAM: &str = "erofast-fetch";
/// The pause before starting another fetcher: fetchers that die immediately must not keep a CPU
/// busy.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum number of simultaneous readers. A mount has one, and a second one while its server is
/// being replaced; a compromised server must not fill the memory of other processes.
const MOST_CLIENTS: usize = 64;

/// An event from a fetcher, once [`Fetcher::as_fd`] is readable.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// One line for the log.
    Note(String),
    /// A launch profile that travels with an image has arrived: call [`Fetcher::take_launches`].
    Launches,
    /// The fetcher is dead: call [`Fetcher::restart`].
    Died,
}

/// A fetcher with open images. The process ends when this is dropped.
#[derive(Debug)]
pub struct Fetcher {
    program: PathBuf,
    images: Vec<Image>,
    process: Process,
    /// Lines that arrived while an image was being opened.
    heard: VecDeque<String>,
    /// Launch profiles that have arrived.
    launches: VecDeque<OwnedFd>,
    ends_with_readers: bool,
}

/// The state of an image, which the next fetcher needs if this one dies.
#[derive(Debug)]
struct Image {
    source: ImageUrl,
    options: Options,
    identity: Identity,
    about: About,
    /// The data and map files of the store and of the spare store, writable.
    files: Vec<OwnedFd>,
    /// The fetcher's ends of the sockets.
    clients: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Process {
    child: Child,
    /// The process that started the fetcher. Only that process ends the fetcher; its forks do not.
    parent: u32,
    socket: OwnedFd,
}

impl Fetcher {
    /// Starts the program and waits until it has opened the image, which gets the number 0. Gives
    /// up when one of `waiting` becomes readable or its other end is closed, which means that
    /// nobody is waiting any more. The error is one line without secrets.
    pub fn start(
        waiting: &[BorrowedFd],
        source: &ImageUrl,
        options: &Options,
    ) -> io::Result<Fetcher> {
        Fetcher::start_program(program(), waiting, source, options)
    }

    /// Like [`start`](Self::start), with a given program.
    pub fn start_program(
        program: PathBuf,
        waiting: &[BorrowedFd],
        source: &ImageUrl,
        options: &Options,
    ) -> io::Result<Fetcher> {
        let mut fetcher = Fetcher::new(program)?;
        fetcher.open(waiting, source, options)?;
        Ok(fetcher)
    }

    /// Starts the program, which has no image yet.
    pub(crate) fn new(program: PathBuf) -> io::Result<Fetcher> {
        Ok(Fetcher {
            process: Process::start(&program)?,
            program,
            images: Vec::new(),
            heard: VecDeque::new(),
            launches: VecDeque::new(),
            ends_with_readers: false,
        })
    }

    /// Opens another image and returns its number. For `waiting` and the error see
    /// [`start`](Self::start); images that are already open stay open.
    pub fn open(
        &mut self,
        waiting: &[BorrowedFd],
        source: &ImageUrl,
        options: &Options,
    ) -> io::Result<usize> {
        let mut heard = std::mem::take(&mut self.heard);
        let note = &mut |line| heard.push_back(line);
        let opened = self.open_noting(waiting, source, options, note);
        self.heard = heard;
        opened
    }

    /// Like [`open`](Self::open); `note` gets lines for the log as they arrive, including those
    /// about slow steps before the image is open.
    pub(crate) fn open_noting(
        &mut self,
        waiting: &[BorrowedFd],
        source: &ImageUrl,
        options: &Options,
        note: &mut dyn FnMut(String),
    ) -> io::Result<usize> {
        let number = self.images.len();
        self.process
            .order_open(number, source, options, None, &[])?;
        loop {
            self.process.wait_while(waiting)?;
            match receive(&self.process.socket)? {
                Some((News::Note(line), _)) => note(line),
                Some((News::Launches, files)) => self.launches.extend(files),
                Some((
                    News::Opened {
                        identity,
                        devices,
                        layers,
                        not_kept,
                        offline,
                    },
                    files,
                )) if files.len() == 4 => {
                    self.images.push(Image {
                        source: source.clone(),
                        options: options.clone(),
                        about: About {
                            length: identity.length,
                            compared: identity.digest.is_some(),
                            timeout: options.timeout,
                            devices,
                            layers,
                            not_kept,
                            offline,
                        },
                        identity,
                        files,
                        clients: Vec::new(),
                    });
                    return Ok(number);
                }
                Some((News::Failed { line, missing }, _)) if missing => {
                    return Err(io::Error::new(io::ErrorKind::NotFound, line));
                }
                Some((News::Failed { line, .. }, _)) => return Err(io::Error::other(line)),
                _ => return Err(io::Error::other(format!("{source}: {PROGRAM} ended"))),
            }
        }
    }

    /// The files that the manifest in a registry lists in addition to the image with this number:
    /// its extra devices, then the layers below it from top to bottom.
    pub fn listed(&self, number: usize) -> impl Iterator<Item = &ImageUrl> {
        let about = &self.images[number].about;
        about.devices.iter().chain(&about.layers)
    }

    /// The parts that a new reader of the first image needs.
    pub fn client(&mut self) -> io::Result<Parts> {
        self.client_of(0)
    }

    /// The parts that a new reader of the image with this number needs; the image must exist. This
    /// also works while the fetcher is dead.
    pub fn client_of(&mut self, number: usize) -> io::Result<Parts> {
        let (socket, end) = pair()?;
        let limit = Some(Duration::from_secs(5));
        set_socket_timeout(&socket, Timeout::Send, limit)?;
        let image = &mut self.images[number];
        image.clients.retain(|client| !is_closed(client));
        if image.clients.len() >= MOST_CLIENTS {
            let line = format!("{}: already has {MOST_CLIENTS} readers", image.source);
            return Err(io::Error::other(line));
        }
        // If the fetcher is dead, its successor receives all readers.
        let order = Order::Reader { image: number };
        let _ = send(&self.process.socket, &order, &[end.as_fd()]);
        image.clients.push(end);
        let files: Vec<_> = image.files.iter().map(reopen).collect::<io::Result<_>>()?;
        Ok(Parts {
            files: files.try_into().map_err(|_| io::ErrorKind::InvalidData)?,
            socket,
            about: image.about.clone(),
        })
    }

    /// The next line that arrived while an image was being opened.
    pub fn heard(&mut self) -> Option<String> {
        self.heard.pop_front()
    }

    /// Takes the next launch profile that has arrived.
    pub fn take_launches(&mut self) -> Option<OwnedFd> {
        self.launches.pop_front()
    }

    /// Waits for the next event.
    pub fn event(&mut self) -> io::Result<Event> {
        if let Some(line) = self.heard() {
            return Ok(Event::Note(line));
        }
        loop {
            match receive(&self.process.socket) {
                Ok(Some((News::Note(line), _))) => return Ok(Event::Note(line)),
                Ok(Some((News::Failed { line, .. }, _))) => return Err(io::Error::other(line)),
                Ok(Some((News::Launches, files))) => {
                    self.launches.extend(files);
                    return Ok(Event::Launches);
                }
                Ok(Some((News::Opened { .. }, _))) => {}
                Ok(None) => return Ok(Event::Died),
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(Event::Died);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Starts the program again with the same images and the same readers, which repeat their
    /// requests.
    pub fn restart(&mut self) -> io::Result<()> {
        std::thread::sleep(PAUSE);
        self.process = Process::start(&self.program)?;
        for (number, image) in self.images.iter_mut().enumerate() {
            image.clients.retain(|client| !is_closed(client));
            let (source, options) = (&image.source, &image.options);
            let identity = Some(image.identity.clone());
            self.process
                .order_open(number, source, options, identity, &image.files)?;
            for client in &image.clients {
                let order = Order::Reader { image: number };
                send(&self.process.socket, &order, &[client.as_fd()])?;
            }
        }
        self.order_end()
    }

    /// Handles one event; returns false once the last reader has gone.
    fn attend(&mut self, note: &impl Fn(&str)) -> io::Result<bool> {
        match self.event()? {
            Event::Note(line) => note(&line),
            // Only mounts use launch profiles, and this is not a mount.
            Event::Launches => {}
            Event::Died if self.has_no_readers() => return Ok(false),
            Event::Died => self.restart()?,
        }
        Ok(true)
    }

    fn has_no_readers(&self) -> bool {
        let mut clients = self.images.iter().flat_map(|image| &image.clients);
        clients.all(is_closed)
    }

    /// The process ID, for tests that kill it.
    pub fn id(&self) -> u32 {
        self.process.child.id()
    }

    /// Starts a thread that, until the last reader has gone, restarts the program when it dies and
    /// passes its lines to `note`.
    pub fn watch(mut self, note: impl Fn(&str) + Send + 'static) -> io::Result<()> {
        self.ends_with_readers = true;
        self.order_end()?;
        let watch = move || {
            // An error, which means that the fetcher cannot be started, ends the loop.
            let report = |error: &io::Error| note(&format!("{PROGRAM}: {error}"));
            while let Ok(true) = self.attend(&note).inspect_err(report) {}
        };
        std::thread::Builder::new()
            .name("fetcher".into())
            .spawn(watch)?;
        Ok(())
    }

    fn order_end(&self) -> io::Result<()> {
        if !self.ends_with_readers {
            return Ok(());
        }
        match send(&self.process.socket, &Order::EndWithReaders, &[]) {
            // The fetcher is dead, which is reported as an event.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            sent => sent,
        }
    }
}

impl AsFd for Fetcher {
    /// Readable when there is an event.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.process.socket.as_fd()
    }
}

impl Process {
    /// Starts the program. Its arguments and environment do not reveal its task. The program ends
    /// when the other end of its standard input is closed.
    fn start(program: &Path) -> io::Result<Process> {
        let (socket, end) = pair()?;
        let mut command = Command::new(program);
        // Signals from the terminal are for the parent.
        command
            .stdin(Stdio::from(end))
            .stdout(Stdio::null())
            .process_group(0);
        let child = command.spawn().map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(
                error.kind(),
                "erofast-fetch is not installed (Debian package: erofast)",
            ),
            kind => io::Error::new(kind, format!("{}: {error}", program.display())),
        })?;
        Ok(Process {
            child,
            parent: std::process::id(),
            socket,
        })
    }

    fn order_open(
        &self,
        image: usize,
        source: &ImageUrl,
        options: &Options,
        identity: Option<Identity>,
        files: &[OwnedFd],
    ) -> io::Result<()> {
        let order = Order::Open {
            image,
            source: source.clone(),
            options: Box::new(options.clone()),
            identity,
        };
        let files: Vec<BorrowedFd> = files.iter().map(AsFd::as_fd).collect();
        send(&self.socket, &order, &files)
    }

    /// Waits for a message from the program. Fails if nobody is waiting for it any more.
    fn wait_while(&self, waiting: &[BorrowedFd]) -> io::Result<()> {
        let mut polled = vec![PollFd::new(&self.socket, PollFlags::IN)];
        polled.extend(waiting.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
        rustix::io::retry_on_intr(|| poll(&mut polled, None))?;
        match polled[0].revents().is_empty() {
            true => Err(io::Error::other("nobody is waiting for the image any more")),
            false => Ok(()),
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.parent == std::process::id() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The program beside this one, or else in `PATH`.
pub(crate) fn program() -> PathBuf {
    let beside = std::env::current_exe().map(|own| own.with_file_name(PROGRAM));
    let beside = beside.ok().filter(|program| program.is_file());
    beside.unwrap_or_else(|| PROGRAM.into())
}

fn is_closed(socket: &OwnedFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::empty())];
    let polls = poll(&mut polled, Some(&rustix::event::Timespec::default()));
    polls.is_ok() && polled[0].revents().contains(PollFlags::HUP)
}

/// Opens the file again, read-only.
fn reopen(file: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(openat(CWD, path, flags, Mode::empty())?)
}
