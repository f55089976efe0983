//! System calls that a program for converting files never needs; all others are allowed.
//!
//! Unlike a server's list, this one names refused calls: the program belongs to another project,
//! and may have any version and any C library.

use libc::c_long;

use super::filter::Argument::Lacks;
use super::filter::{Filter, Outcome};

/// Lists calls by their names in the C library.
macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// Calls that create sockets or rings (which could create sockets), affect other processes, mounts
/// or namespaces, or change the kernel itself.
const REFUSED: &[&[c_long]] = &[
    calls! {
        SYS_socket SYS_socketpair SYS_connect SYS_bind SYS_listen SYS_accept SYS_accept4
        SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register
    },
    calls! {
        SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_kill SYS_pidfd_open
        SYS_pidfd_getfd SYS_pidfd_send_signal SYS_kcmp SYS_setpriority SYS_sched_setscheduler
        SYS_sched_setattr SYS_sched_setparam
    },
    calls! {
        SYS_mount SYS_umount2 SYS_pivot_root SYS_chroot SYS_unshare SYS_setns SYS_fsopen
        SYS_fsmount SYS_move_mount SYS_open_tree SYS_mount_setattr SYS_open_by_handle_at
    },
    calls! {
        SYS_bpf SYS_perf_event_open SYS_userfaultfd SYS_add_key SYS_request_key SYS_keyctl
        SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot SYS_swapon
        SYS_swapoff SYS_acct SYS_settimeofday SYS_clock_settime SYS_adjtimex SYS_clock_adjtime
        SYS_sethostname SYS_setdomainname SYS_syslog SYS_quotactl SYS_personality
    },
];

/// The bit that is set in the numbers of all x32 calls; the numbers of x86-64 calls are smaller.
#[cfg(target_arch = "x86_64")]
const X32: c_long = 0x4000_0000;

/// Calls that have a different number in the x32 ABI: ptrace, process_vm_readv, process_vm_writev.
#[cfg(target_arch = "x86_64")]
const OF_X32: [c_long; 3] = [521, 539, 540];

/// The filter for a converter. A converter can still create threads, but not processes.
pub(super) fn of_converter() -> Outcome<Filter> {
    let mut refused = REFUSED.concat();
    #[cfg(target_arch = "x86_64")]
    {
        let of_x32: Vec<_> = refused
            .iter()
            .chain(&OF_X32)
            .map(|call| call | X32)
            .collect();
        refused.extend(of_x32);
        refused.extend([libc::SYS_fork, libc::SYS_vfork]);
    }
    let always = refused.into_iter().map(|call| (call, Vec::new()));
    let is_process = Lacks(0, libc::CLONE_THREAD as u64);
    Filter::refusing(always.chain([(libc::SYS_clone, vec![vec![is_process]])]))
}
