//! seccomp: the system calls that each kind of process may make.
//!
//! A refused call fails with EPERM rather than killing the process. An attacker gains nothing from
//! the error, and if a new C library makes a call that is missing from a list, this costs a feature
//! rather than the mount. `clone3` fails with ENOSYS because a filter cannot see its flags. The C
//! library then falls back to `clone`, whose flags a filter can see.

use cfg_if::cfg_if;

/// A kind of process that gives up system calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Process {
    /// Serves a mount.
    Server {
        /// Whether requests arrive over io_uring.
        io_uring: bool,
    },
    /// Reads ahead of the readers of a mount, as a client of that mount.
    Companion,
    /// Executes a program from another project that converts one file into another.
    Converter,
}

/// Restricts the calling thread and those it creates, for good. Call this after setting
/// `no_new_privs`, so that no privileges can be gained later.
///
/// # Errors
/// Returns a one-line error if there is no filter for this architecture, or if the kernel or a
/// container refuses it.
pub fn restrict(process: Process) -> Result<(), String> {
    install(process)
}

cfg_if! {
    // The lists name calls of these architectures.
    if #[cfg(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64"
    ))] {
        mod allowed;
        mod filter;
        mod refused;

        fn install(process: Process) -> Result<(), String> {
            let filter = match process {
                Process::Server { io_uring } => allowed::of_server(io_uring),
                Process::Companion => allowed::of_companion(),
                Process::Converter => refused::of_converter(),
            };
            filter.and_then(filter::Filter::install).map_err(|error| error.to_string())
        }

        /// Numbers of the calls that a server may make, whether with any arguments or only with
        /// some.
        pub fn allowed_calls() -> Vec<i64> {
            allowed::of_server(true).map_or_else(|_| Vec::new(), filter::Filter::calls)
        }
    } else {
        fn install(_: Process) -> Result<(), String> {
            Err(format!("not supported on {}", std::env::consts::ARCH))
        }

        /// Numbers of the calls that a server may make. There are none, because servers are not
        /// restricted on this architecture.
        pub fn allowed_calls() -> Vec<i64> {
            Vec::new()
        }
    }
}
