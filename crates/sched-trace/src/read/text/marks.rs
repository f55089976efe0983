//! Lines that are neither events nor comments: losses, CPUs, and unknown lines.

use crate::input::CPUS;

/// Parses a report of lost events. Returns the CPU, if the line names it, and the number of events,
/// 1 if the line does not say; they are missing before the CPU's next event.
///
/// * The kernel: `CPU:1 [LOST 123 EVENTS]`, `CPU:1 [LOST EVENTS]`.
/// * trace-cmd: `CPU:1 [123 EVENTS DROPPED]`, `CPU:1 [EVENTS DROPPED]`.
/// * perf script: `PERF_RECORD_LOST lost 123`, `PERF_RECORD_LOST_SAMPLES lost 123`, after thread,
///   CPU and time.
/// * simpleperf: `record lost: ...`, `lost 123`.
pub(super) fn lost(text: &str) -> Option<(Option<u32>, u64)> {
    let lower = text.trim_start().to_ascii_lowercase();
    let bracket = lower.starts_with("cpu") || lower.starts_with('[');
    let kernel = bracket
        && lower.contains('[')
        && ["lost", "dropped"].iter().any(|word| lower.contains(word));
    let perf = lower.find("perf_record_lost");
    let simpleperf = lower.starts_with("record lost") || lower.starts_with("lost ");
    if !kernel && perf.is_none() && !simpleperf {
        return None;
    }
    let cpu = match perf {
        Some(at) => bracketed(&lower[..at]),
        None => lower
            .strip_prefix("cpu")
            .and_then(|rest| number(rest.trim_start_matches([':', ' ']))),
    };
    let from = perf.or_else(|| lower.find('[')).unwrap_or(0);
    let words = lower[from..].split([' ', '[', ']', ':', ',']);
    let lost = words.filter_map(|word| word.parse().ok()).next();
    Some((cpu, lost.unwrap_or(1).max(1)))
}

/// The CPUs in trace-cmd's lines: `cpus=2`, and `CPU 1 is empty`.
pub(super) fn cpus(text: &str) -> Option<std::ops::Range<u32>> {
    if let Some(count) = text.strip_prefix("cpus=") {
        return Some(0..count.trim().parse().ok().filter(|count| *count <= CPUS)?);
    }
    let cpu = text.strip_prefix("CPU ")?.strip_suffix(" is empty")?;
    let cpu: u32 = cpu.trim().parse().ok().filter(|cpu| *cpu < CPUS)?;
    Some(cpu..cpu + 1)
}

/// Whether a line that is not an event has something in brackets: tools print such lines for events
/// that they cannot show.
pub(super) fn is_unknown(text: &str) -> bool {
    let open = text.find('[');
    open.is_some_and(|open| text[open..].contains(']')) || text.contains("PERF_RECORD_")
}

fn bracketed(text: &str) -> Option<u32> {
    number(text.rsplit_once('[')?.1)
}

fn number(text: &str) -> Option<u32> {
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    text[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_in_the_words_of_each_tool() {
        for (line, cpu, count) in [
            ("CPU:1 [LOST 123 EVENTS]", Some(1), 123),
            ("CPU:12 [LOST EVENTS]", Some(12), 1),
            ("CPU:1 [EVENTS DROPPED]", Some(1), 1),
            ("CPU:7 [204600 EVENTS DROPPED]", Some(7), 204_600),
            ("[9 EVENTS DROPPED]", None, 9),
            (
                "swapper 0/0 [001] 100.000112000: PERF_RECORD_LOST lost 12",
                Some(1),
                12,
            ),
            (
                "swapper 0/0 [003] 100.1: PERF_RECORD_LOST_SAMPLES lost 5",
                Some(3),
                5,
            ),
            ("record lost: type 2, misc 0, size 32", None, 2),
        ] {
            assert_eq!(lost(line), Some((cpu, count)), "{line}");
        }
        for line in [
            "",
            "version = 6",
            "a-1 [000] 1.5: sched_waking: comm=lost pid=9 prio=1 target_cpu=000",
        ] {
            assert_eq!(lost(line), None, "{line}");
        }
    }

    #[test]
    fn trace_cmd_names_the_cpus() {
        assert_eq!(cpus("cpus=4"), Some(0..4));
        assert_eq!(cpus("CPU 1 is empty"), Some(1..2));
        assert_eq!(
            (cpus("cpus=-1"), cpus("CPU 99999999 is empty")),
            (None, None)
        );
    }
}
