//! Lists of CPUs as sysfs writes them: `0-3,5`.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

/// The CPUs of the machine that are online; `None` without sysfs.
pub fn online() -> Option<BTreeSet<usize>> {
    read("/sys/devices/system/cpu/online")
}

/// The CPUs that can ever be online; `None` without sysfs.
pub(crate) fn possible() -> Option<BTreeSet<usize>> {
    read("/sys/devices/system/cpu/possible")
}

/// For each CPU that can ever be online, whether it is present; `None` without sysfs.
pub fn plugged_in() -> Option<Vec<bool>> {
    let present = read("/sys/devices/system/cpu/present");
    let is_present = |cpu| present.as_ref().is_none_or(|list| list.contains(&cpu));
    Some((0..possible()?.len()).map(is_present).collect())
}

/// The list in the file at `path`; `None` if the file does not exist.
pub(crate) fn read(path: impl AsRef<std::path::Path>) -> Option<BTreeSet<usize>> {
    parse(&std::fs::read_to_string(path).ok()?)
}

/// `None` if the text is not such a list. An empty text is a list without CPUs.
fn parse(text: &str) -> Option<BTreeSet<usize>> {
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    let ranges: Option<Vec<_>> = parts.map(range).collect();
    Some(ranges?.into_iter().flatten().collect())
}

fn range(part: &str) -> Option<RangeInclusive<usize>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    // Kernels support at most 8192 CPUs; a much larger number cannot be a CPU.
    (first <= last && last < 65_536).then_some(first..=last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_cpus_are_parsed() {
        assert_eq!(parse("0-2,5\n"), Some(BTreeSet::from([0, 1, 2, 5])));
        assert_eq!(parse("7"), Some(BTreeSet::from([7])));
        assert_eq!(parse("\n"), Some(BTreeSet::new()));
        assert_eq!(parse("0-3,8-11,64\n").map(|cpus| cpus.len()), Some(9));
    }

    #[test]
    fn malformed_lists_are_refused() {
        for text in ["x", "3-1", "1-", "0-99999999999", "0-70000", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn online_cpus_are_possible_cpus() {
        let (Some(online), Some(possible)) = (online(), possible()) else {
            println!("skipped: no sysfs");
            return;
        };
        assert!(!online.is_empty() && online.is_subset(&possible));
    }
}
