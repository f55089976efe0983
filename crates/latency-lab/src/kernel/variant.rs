//! The ways in which the kernel's EROFS can be built and loaded.

use std::fmt;

/// A build of `fs/erofs`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// CONFIG_EROFS_FS_PCPU_KTHREAD off: the unbound work queue `erofs_worker`.
    Workqueue,
    /// CONFIG_EROFS_FS_PCPU_KTHREAD: one thread per CPU.
    Kthread,
    /// Also CONFIG_EROFS_FS_PCPU_KTHREAD_HIPRI: the threads are SCHED_FIFO 1.
    KthreadHipri,
}

impl Variant {
    /// All variants, starting with the baseline of the comparison.
    pub const ALL: [Variant; 3] = [Variant::Workqueue, Variant::Kthread, Variant::KthreadHipri];

    /// The configuration options that are enabled in addition to the distribution's.
    pub(super) fn config(self) -> &'static [&'static str] {
        const ALL: [&str; 2] = [
            "CONFIG_EROFS_FS_PCPU_KTHREAD",
            "CONFIG_EROFS_FS_PCPU_KTHREAD_HIPRI",
        ];
        // Each variant enables one option more than the one before.
        &ALL[..self as usize]
    }

    /// Name of the file that holds the module.
    pub(super) fn file(self) -> String {
        format!("erofs-{}.ko", self.to_string().replace(',', "-"))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Variant::Workqueue => "workqueue",
            Variant::Kthread => "kthread",
            Variant::KthreadHipri => "kthread,hipri",
        })
    }
}
