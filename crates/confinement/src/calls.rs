//! seccomp: system calls that are never needed by a program that turns one file into another.
//!
//! A list of refused calls, unlike a server's: the program belongs to another project, in any
//! version and with any C library.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

/// Calls by their names in the C library.
macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// Sockets, and rings that could create them; other processes; mounts and namespaces; the kernel
/// itself.
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

/// Calls of the x32 ABI have numbers with this bit set: the table of x86-64 ends below it.
#[cfg(target_arch = "x86_64")]
const X32: c_long = 0x4000_0000;

/// x32 calls with separate numbers: ptrace, process_vm_readv, process_vm_writev.
#[cfg(target_arch = "x86_64")]
const OF_X32: [c_long; 3] = [521, 539, 540];

/// Refuses with EPERM every call that a program turning one file into another has no business
/// making, in this process and in the program that it becomes. It can still create threads, but not
/// processes.
///
/// # Errors
/// One line: there is no filter for this machine.
pub fn refuse() -> Result<(), String> {
    let describe = |error: seccompiler::Error| error.to_string();
    let arch = TargetArch::try_from(std::env::consts::ARCH)
        .map_err(|_| format!("not for {}", std::env::consts::ARCH))?;
    let make = |rules, errno: i32| -> Result<BpfProgram, seccompiler::Error> {
        let refuse = SeccompAction::Errno(errno.unsigned_abs());
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, arch)?;
        Ok(filter.try_into()?)
    };
    // Its flags cannot be inspected; the C library then uses clone, whose flags can.
    let newer = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    let newer = make(newer, libc::ENOSYS).map_err(describe)?;
    let refused = make(rules().map_err(describe)?, libc::EPERM).map_err(describe)?;
    apply_filter(&newer).map_err(describe)?;
    apply_filter(&refused).map_err(describe)
}

fn rules() -> Result<BTreeMap<i64, Vec<SeccompRule>>, seccompiler::Error> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for &call in REFUSED.concat().iter() {
        rules.insert(call, Vec::new());
        #[cfg(target_arch = "x86_64")]
        rules.insert(call | X32, Vec::new());
    }
    #[cfg(target_arch = "x86_64")]
    {
        rules.extend(OF_X32.map(|call| (call | X32, Vec::new())));
        rules.extend([libc::SYS_fork, libc::SYS_vfork].map(|call| (call, Vec::new())));
    }
    let thread = libc::CLONE_THREAD as u64;
    let is_process = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(thread),
        0,
    )?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_process])?]);
    Ok(rules)
}
