//! What a process gives up for good before it touches bytes that others chose: its
//! [capabilities], [root](user), [files] and [system calls](calls).
//!
//! Each step says why the kernel or a container refuses it; the caller decides what that means. The
//! server of a mount and the processes that convert layers each combine the steps that they need.
#![forbid(unsafe_code)]

#[cfg(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
))]
pub mod calls;
pub mod capabilities;
pub mod files;
pub mod user;

/// The filters exist for only a few architectures.
#[cfg(not(any(
    target_arch = "x86_64",
    target_arch = "aarch64",
    target_arch = "riscv64"
)))]
pub mod calls {
    /// There is none for this one.
    ///
    /// # Errors
    /// One line.
    pub fn refuse() -> Result<(), String> {
        Err(format!("not for {}", std::env::consts::ARCH))
    }
}
