//! A snapshotter for containerd. Layers that are EROFS images are mounted from their registry by
//! `erofast`; the mounts are separate processes, which outlive this one.
#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::process::ExitCode;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use rustix::fs::Mode;
use sys::fuse_signals::ending_signals_to_catch;
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;

use erofast_snapshotter::failure::Failure;
use erofast_snapshotter::grpc::front::Front;
use erofast_snapshotter::grpc::images::Images;
use erofast_snapshotter::grpc::service::Service;
use erofast_snapshotter::layer::layers::{Layers, Settings};
use erofast_snapshotter::layer::login::Logins;
use erofast_snapshotter::layer::program::Program;
use erofast_snapshotter::metrics::Metrics;
use erofast_snapshotter::options::{Options, Switch};
use erofast_snapshotter::page::{self, Page};
use erofast_snapshotter::snapshot::snapshotter::Snapshotter;
use erofast_snapshotter::snapshot::store::Store;
use erofast_snapshotter::socket;

/// How long calls in progress may take after the program is told to exit.
const GOODBYE: Duration = Duration::from_secs(5);

/// The program that makes images from archives.
const MKFS: &str = "mkfs.erofs";

fn main() -> ExitCode {
    let options = Options::of_process();
    // The umask must not keep this program out of the files that it creates.
    let mask = rustix::process::umask(Mode::RWXU);
    rustix::process::umask(mask.difference(Mode::RWXU));
    let ended = match runtime() {
        Ok(runtime) => {
            let ended = runtime.block_on(run(options));
            runtime.shutdown_timeout(GOODBYE);
            ended
        }
        Err(error) => Err(error.to_string()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("erofast-snapshotter: {}", why.replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

/// Starts tokio. If one of its threads cannot be started, tokio panics, and would then wait for its
/// other threads forever: the panic prints one line and ends the process.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(|panic| {
        let why = panic.payload().downcast_ref::<String>();
        let why = why.map_or("the threads cannot be started", String::as_str);
        eprintln!("erofast-snapshotter: {}", why.replace('\n', " "));
        std::process::exit(1);
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    std::panic::set_hook(usual);
    runtime
}

/// The snapshotter with the sources of its figures, and the logins that it uses.
fn parts(options: &Options) -> Result<(Arc<Page>, Arc<Logins>), String> {
    let line = |error: Failure| error.to_string();
    let shown = format!("--root={}", options.root.display());
    let root = std::fs::create_dir_all(&options.root).and_then(|()| options.root.canonicalize());
    let root = root.map_err(|error| format!("{shown}: {error}"))?;
    let mut marks = [',', ':', '\\'].into_iter();
    if let Some(mark) = marks.find(|mark| root.display().to_string().contains(*mark)) {
        let why = format!("overlayfs cannot use a directory with {mark:?} in its name");
        return Err(format!("--root={}: {why}", root.display()));
    }
    let store = Arc::new(Store::open(&root.join("snapshots.redb")).map_err(line)?);
    let logins = Logins::new(&options.run);
    let logins = logins.map_err(|error| format!("--run={}: {error}", options.run.display()))?;
    let (logins, metrics) = (Arc::new(logins), Arc::new(Metrics::default()));
    let program = Program::find(options.erofast.as_deref());
    if options.erofast.is_some() {
        program.check().map_err(|why| format!("--erofast: {why}"))?;
    }
    program.check_options(&options.mount_options, &options.run)?;
    let convert = (options.convert == Switch::On).then_some(options.convert_limit);
    if convert.is_some() && !is_in_path(MKFS) {
        let why = format!("{MKFS} is not in PATH (erofs-utils 1.7 or later)");
        return Err(format!("--convert=on: {why}"));
    }
    let settings = Settings {
        root: root.clone(),
        hosts: options.hosts_dir.clone(),
        program: program.clone(),
        options: options.mount_options.clone(),
        convert: convert.map(Duration::from_secs),
    };
    let layers = Layers::new(settings, store.clone(), logins.clone(), metrics.clone());
    let layers = layers.map_err(line)?;
    let limit = Duration::from_secs(options.time_limit);
    let snapshotter = Snapshotter::new(&root, store, layers, metrics.clone(), limit);
    let page = Page {
        metrics,
        snapshotter: Arc::new(snapshotter.map_err(line)?),
        program,
    };
    Ok((Arc::new(page), logins))
}

fn is_in_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

async fn run(options: Options) -> Result<(), String> {
    let (page, logins) = parts(&options)?;
    let socket = options.socket.clone();
    let socket = socket.unwrap_or_else(|| options.run.join("snapshotter.sock"));
    let failed = |error: std::io::Error| format!("socket {}: {error}", socket.display());
    let listener = socket::listen(&socket).map_err(failed)?;
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    let images = Images::new(&options.containerd, logins)?;
    let front = Front::new(Service(page.snapshotter.clone()), images);
    if let Some(address) = options.metrics {
        let listener = page::listen(address).await?;
        tokio::spawn(page::serve(listener, page));
    }
    let end = end().map_err(|error| format!("signals: {error}"))?;
    socket::report_ready();
    let (stop, stopped) = oneshot::channel::<()>();
    let stopped = async { drop(stopped.await) };
    let incoming = UnixListenerStream::new(listener);
    let serving = Server::builder().serve_with_incoming_shutdown(front, incoming, stopped);
    tokio::pin!(serving);
    tokio::select! {
        served = &mut serving =>
            return served.map_err(|error| format!("socket {}: {error}", socket.display())),
        () = end => {}
    }
    let _ = std::fs::remove_file(&socket);
    drop(stop);
    // Wait for calls in progress, but not until containerd closes its connection.
    let _ = tokio::time::timeout(GOODBYE, serving).await;
    Ok(())
}

/// Completes when a signal tells the program to exit.
fn end() -> std::io::Result<impl Future<Output = ()>> {
    let kinds = ending_signals_to_catch().map(SignalKind::from_raw);
    let mut signals = kinds.map(signal).collect::<std::io::Result<Vec<_>>>()?;
    Ok(poll_fn(move |context| {
        let mut signals = signals.iter_mut();
        match signals.any(|signal| signal.poll_recv(context).is_ready()) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }))
}
