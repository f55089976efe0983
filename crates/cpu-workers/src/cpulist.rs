//! Lists of CPUs as sysfs writes them: `0-3,5`.

use std::collections::BTreeSet;

/// None where the text is not such a list. An empty text is an empty list.
pub(crate) fn parse(text: &str) -> Option<BTreeSet<usize>> {
    let parts = text.trim().split(',').filter(|part| !part.is_empty());
    parts
        .map(range)
        .collect::<Option<Vec<_>>>()
        .map(|ranges| ranges.into_iter().flatten().collect())
}

fn range(part: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
    // The largest kernels know 8192 CPUs; more is not a list but an accident.
    (first <= last && last < 65_536).then_some(first..=last)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_single_cpus() {
        assert_eq!(parse("0-2,5\n"), Some(BTreeSet::from([0, 1, 2, 5])));
        assert_eq!(parse("7"), Some(BTreeSet::from([7])));
        assert_eq!(parse("\n"), Some(BTreeSet::new()));
    }

    #[test]
    fn nonsense_is_not_a_list() {
        for text in ["x", "3-1", "1-", "0-99999999999", "-1"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
