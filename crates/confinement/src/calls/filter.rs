//! Compiles a list of system calls into a filter program for the kernel.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

pub(super) type Outcome<T> = Result<T, seccompiler::Error>;

/// A condition on one argument of a call. The first field is the argument's number. Only pointers
/// are compared in full; the kernel ignores the upper half of all other arguments.
#[derive(Clone, Copy)]
pub(super) enum Argument {
    Is(u8, u64),
    /// All bits of the mask are 0.
    Lacks(u8, u64),
    /// All bits of the mask are 1.
    Has(u8, u64),
    /// A null pointer.
    Null(u8),
}

impl Argument {
    fn condition(self) -> Outcome<SeccompCondition> {
        let (dword, equal) = (SeccompCmpArgLen::Dword, SeccompCmpOp::Eq);
        let (at, length, comparison, value) = match self {
            Self::Is(at, value) => (at, dword, equal, value),
            Self::Lacks(at, mask) => (at, dword, SeccompCmpOp::MaskedEq(mask), 0),
            Self::Has(at, mask) => (at, dword, SeccompCmpOp::MaskedEq(mask), mask),
            Self::Null(at) => (at, SeccompCmpArgLen::Qword, equal, 0),
        };
        Ok(SeccompCondition::new(at, length, comparison, value)?)
    }
}

/// A call and its rules. A rule matches if all of its conditions hold. A call matches if any of its
/// rules does, or if it has no rules.
pub(super) type Call = (i64, Vec<Vec<Argument>>);

/// The listed calls, and whether they are allowed or refused.
pub(super) struct Filter {
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    are_allowed: bool,
}

impl Filter {
    /// Allows the listed calls and no others.
    pub(super) fn allowing(calls: impl IntoIterator<Item = Call>) -> Outcome<Self> {
        Self::new(calls, true)
    }

    /// Refuses the listed calls and no others.
    pub(super) fn refusing(calls: impl IntoIterator<Item = Call>) -> Outcome<Self> {
        Self::new(calls, false)
    }

    fn new(calls: impl IntoIterator<Item = Call>, are_allowed: bool) -> Outcome<Self> {
        let rules = calls.into_iter().map(|(number, rules)| {
            let rules = rules.into_iter().map(|arguments| {
                let conditions = arguments.into_iter().map(Argument::condition);
                Ok(SeccompRule::new(conditions.collect::<Outcome<_>>()?)?)
            });
            Ok((number, rules.collect::<Outcome<_>>()?))
        });
        let rules = rules.collect::<Outcome<_>>()?;
        Ok(Self { rules, are_allowed })
    }

    /// The numbers of the listed calls.
    pub(super) fn calls(self) -> Vec<i64> {
        self.rules.into_keys().collect()
    }

    /// Restricts the calling thread and those it creates.
    pub(super) fn install(self) -> Outcome<()> {
        let allow = SeccompAction::Allow;
        let refuse = |errno: Errno| SeccompAction::Errno(errno.raw_os_error().unsigned_abs());
        let no_clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        let newer = program(no_clone3, allow.clone(), refuse(Errno::NOSYS))?;
        let (other, listed) = match self.are_allowed {
            true => (refuse(Errno::PERM), allow),
            false => (allow, refuse(Errno::PERM)),
        };
        let program = program(self.rules, other, listed)?;
        // The order matters: the second filter may forbid installing another.
        apply_filter(&newer)?;
        apply_filter(&program)
    }
}

fn program(
    rules: BTreeMap<i64, Vec<SeccompRule>>,
    other: SeccompAction,
    listed: SeccompAction,
) -> Outcome<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH)?;
    Ok(SeccompFilter::new(rules, other, listed, arch)?.try_into()?)
}
