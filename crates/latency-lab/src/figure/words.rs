//! Figures and comparisons as text. Figures have three digits; shifts have as many digits as the
//! samples justify.

use std::fmt::Write;

use super::{Figure, Row};
use crate::statistics::{Comparison, Interval, LEVEL, Summary, Verdict};
use crate::table::Table;

/// A column's heading, and its value in a summary.
type Column = (&'static str, fn(&Summary) -> f64);

/// The columns of a figure's table: those of the kernel patch's table, but the median comes first,
/// and the shift follows it.
const FIGURES: [Column; 5] = [
    ("median", |s| s.median),
    ("average", |s| s.average),
    ("minimum", |s| s.minimum),
    ("maximum", |s| s.maximum),
    ("deviation", |s| s.stddev),
];

impl Figure {
    /// A table of everything that is computed from the samples.
    pub(crate) fn table(&self) -> Table {
        let heads = FIGURES.map(|(name, _)| name);
        let heads = [&[heads[0], "shift"], &heads[1..], &["samples"]].concat();
        let mut table = Table::keyed(&self.name, &heads);
        for row in &self.rows {
            let text = |value: fn(&Summary) -> f64| {
                let text = |it| amount(value(&it), &self.unit);
                row.summary().map_or("n/a".into(), text)
            };
            let mut cells = FIGURES.map(|(_, value)| text(value)).to_vec();
            let shift = row.against_first.as_ref();
            let shift = shift.map(|it| difference(it, &self.unit));
            cells.insert(1, shift.unwrap_or_default());
            cells.push(row.samples.len().to_string());
            table.add(&row.name, cells);
        }
        table.without_gaps()
    }

    /// A table of the medians with verdicts and intervals.
    pub(crate) fn claims(&self) -> Table {
        let row = |row: &Row| (row.name.clone(), self.claim(row));
        Table::words(&self.name, self.rows.iter().map(row).collect()).coloured()
    }

    /// The median of a row and its comparison, such as "  355 ms  lower, -85 to -74 %".
    pub(crate) fn claim(&self, row: &Row) -> String {
        let median = |it: Summary| amount(it.median, &self.unit);
        let median = row.summary().map_or("n/a".into(), median);
        let Some(shift) = &row.against_first else {
            return format!("{median:>9}");
        };
        format!("{median:>9}  {}", judged(shift, &self.unit))
    }

    /// The claims about all rows except the first, in words.
    pub(crate) fn verdicts(&self) -> impl Iterator<Item = (String, &Comparison)> {
        self.rows.iter().filter_map(|row| {
            let shift = row.against_first.as_ref()?;
            let text = verdict(shift, &self.unit);
            Some((format!("{}: {text}", row.name), shift))
        })
    }
}

/// A value with its unit; microseconds are converted to a suitable unit. The value has three
/// digits, unless its integer part has more or the unit does not allow decimals.
pub(crate) fn amount(value: f64, unit: &str) -> String {
    if value.is_nan() {
        return "n/a".into();
    }
    let (scale, unit, most) = match (unit, value.abs()) {
        ("us", us) if us >= 1e6 => (1e6, "s", 2.0),
        ("us", us) if us >= 1e3 => (1e3, "ms", 2.0),
        ("us", us) if us < 10.0 && us > 0.0 => (1.0, "us", 1.0),
        ("us/s", us) if us >= 1e3 => (1e3, "ms/s", 2.0),
        ("us/s", us) if us < 10.0 && us > 0.0 => (1.0, "us/s", 2.0),
        ("s", _) => (1.0, "s", 3.0),
        ("MiB", _) => (1.0, "MiB", 2.0),
        _ => (1.0, unit, 0.0),
    };
    let value = value / scale;
    let digits = (2.0 - value.abs().log10().floor()).clamp(0.0, most) as usize;
    format!("{value:.digits$} {unit}").trim_end().into()
}

/// A number with a noun: "1 launch", "2 launches".
pub(crate) fn count(number: usize, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// A comparison in words: "lower, -85 to -74 %" or "inconclusive (-3 to +8 %)".
pub(crate) fn judged(comparison: &Comparison, unit: &str) -> String {
    let interval = match comparison.verdict {
        Verdict::NotShown => possible(comparison, unit).map(|it| format!(" ({it})")),
        _ => interval(comparison, unit).map(|it| format!(", {it}")),
    };
    let interval = interval.unwrap_or_default();
    format!(
        "{}{interval}{}",
        word(comparison.verdict),
        hidden(comparison)
    )
}

/// The shift, rounded according to the width of its interval; in parentheses if it is not claimed.
fn difference(comparison: &Comparison, unit: &str) -> String {
    let text = match (comparison.difference_percent, comparison.difference) {
        (Some(percent), _) => percentage(percent, comparison.interval_percent),
        (None, Some(shift)) => signed(shift, unit),
        (None, None) => return "-".into(),
    };
    match comparison.claims() {
        true => text,
        false => format!("({text})"),
    }
}

/// A shift with its sign, such as "+2.74 ms".
fn signed(shift: f64, unit: &str) -> String {
    let sign = if shift < 0.0 { '-' } else { '+' };
    format!("{sign}{}", amount(shift.abs(), unit))
}

fn percentage(percent: f64, interval: Option<Interval>) -> String {
    let width = interval.map_or(f64::INFINITY, |interval| interval.high - interval.low);
    let digits = match width {
        width if width >= 2.0 => 0,
        width if width >= 0.2 => 1,
        _ => 2,
    };
    let scale = 10f64.powi(digits);
    // Adding zero turns -0 into 0.
    let rounded = (percent * scale).round() / scale + 0.0;
    format!("{rounded:+.0$} %", digits as usize)
}

/// A fraction as a percentage: "86.3 %".
pub(crate) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

/// Counts the verdicts: "12 comparisons: 3 lower, 9 inconclusive."; empty if nothing is compared.
pub(crate) fn tally(figures: &[Figure]) -> String {
    let rows = figures.iter().flat_map(|figure| &figure.rows);
    let verdicts = rows.filter_map(|row| row.against_first.as_ref().map(|it| it.verdict));
    let verdicts: Vec<Verdict> = verdicts.collect();
    let count = |of: Verdict| match verdicts.iter().filter(|it| **it == of).count() {
        0 => None,
        count => Some(format!("{count} {}", word(of))),
    };
    use Verdict::{Higher, Lower, NoDifference, NotShown};
    let all = [Lower, Higher, NoDifference, NotShown].into_iter();
    let counts: Vec<String> = all.filter_map(count).collect();
    match &verdicts[..] {
        [] => String::new(),
        all => format!(
            "{}: {}.",
            self::count(all.len(), "comparison"),
            counts.join(", ")
        ),
    }
}

/// The verdict as a word.
fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Lower => "lower",
        Verdict::Higher => "higher",
        Verdict::NoDifference => "no difference",
        Verdict::NotShown => "inconclusive",
    }
}

/// The interval of a shift, such as "-85 to -74 %"; none if there are too few samples.
fn interval(comparison: &Comparison, unit: &str) -> Option<String> {
    let percent = comparison.interval_percent.map(|it| {
        let show = |percent| percentage(percent, Some(it));
        let low = show(it.low);
        format!("{} to {}", low.trim_end_matches(" %"), show(it.high))
    });
    let plain = |it: Interval| format!("{} to {}", signed(it.low, unit), signed(it.high, unit));
    percent.or(comparison.interval.map(plain))
}

/// The range that remains possible if no difference is shown. None if the range excludes zero: it
/// would look like a claim, and a run that is not valid makes no claims.
fn possible(comparison: &Comparison, unit: &str) -> Option<String> {
    let contains_zero = |it: Interval| it.low <= 0.0 && it.high >= 0.0;
    let of = comparison.interval_percent.or(comparison.interval)?;
    interval(comparison, unit).filter(|_| contains_zero(of))
}

/// The shifts of average and 90th percentile, which explain why sides with the same median are not
/// called equal.
fn hidden(comparison: &Comparison) -> String {
    if !comparison.hides_in_the_shift() {
        return String::new();
    }
    let part = |name: &str, part: Option<f64>| {
        part.map_or(String::new(), |it| {
            format!(", {name} {}", percentage(it, None))
        })
    };
    let average = part("average", comparison.average_percent);
    average + &part("p90", comparison.p90_percent)
}

/// Explains the rows of [`Figure::claims`]; `first` names the baseline.
pub(crate) fn medians(figures: &[Figure], first: &str) -> String {
    let mut rows = figures.iter().flat_map(|figure| &figure.rows);
    let sure = (1.0 - LEVEL) * 100.0;
    match rows.any(|row| {
        row.against_first
            .as_ref()
            .is_some_and(|it| interval(it, "").is_some())
    }) {
        true => format!(
            "Medians; {sure:.0} % intervals of shifts from the first {first}, for all rows \
             together (possible shifts)."
        ),
        false => "Medians.".into(),
    }
}

/// A verdict with its figures: "lower: -81 % (99 % interval -85 to -74 %), p < 0.0001 (corrected
/// for 6 comparisons)".
pub(crate) fn verdict(comparison: &Comparison, unit: &str) -> String {
    let mut text = word(comparison.verdict).to_owned();
    let sure = (1.0 - LEVEL) * 100.0;
    if comparison.verdict == Verdict::NotShown {
        let possible = possible(comparison, unit);
        text += &possible.map_or(String::new(), |range| format!(": maybe {range}"));
    } else if let Some(interval) = interval(comparison, unit) {
        let shift = difference(comparison, unit);
        let shift = shift.trim_start_matches('(').trim_end_matches(')');
        let _ = write!(text, ": {shift} ({sure:.0} % interval {interval})");
    }
    text += &hidden(comparison);
    let chance = match comparison.p_adjusted {
        p if p < 0.0001 => "p < 0.0001".to_owned(),
        p => format!("p = {p:.4}"),
    };
    match comparison.comparisons {
        1 => format!("{text}, {chance}"),
        count => format!("{text}, {chance} (corrected for {count} comparisons)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::statistics::compare;

    fn spread(around: f64, by: f64) -> Vec<f64> {
        (0..20).map(|k| around + by * f64::from(k % 5)).collect()
    }

    #[test]
    fn amounts_are_read_at_a_glance() {
        let read: Vec<String> = [0.0, 3.25, 850.0, 2914.0, 15253.0, 355_200.0, 1.695e6]
            .map(|us| amount(us, "us"))
            .into();
        let expected = "0 us,3.2 us,850 us,2.91 ms,15.3 ms,355 ms,1.70 s";
        assert_eq!(read.join(","), expected);
        assert_eq!(amount(0.1239, "s"), "0.124 s");
        assert_eq!(amount(82.0, "s"), "82.0 s");
        assert_eq!(amount(512.4, "MB/s"), "512 MB/s");
        assert_eq!(amount(21.93, "MiB"), "21.9 MiB");
        assert_eq!(amount(3.0, ""), "3");
    }

    #[test]
    fn percentages_have_the_digits_of_their_interval_and_no_minus_zero() {
        let wide = compare(&spread(100.0, 20.0), &spread(60.0, 15.0));
        assert_eq!(difference(&wide, "us"), "-36 %");
        let none = compare(&spread(100.0, 20.0), &spread(99.8, 20.0));
        assert_eq!(difference(&none, "us"), "(+0 %)");
        let from_zero = compare(&[0.0; 20], &[2739.0; 20]);
        assert_eq!(difference(&from_zero, "us"), "+2.74 ms");
        assert_eq!(
            interval(&from_zero, "us").as_deref(),
            Some("+2.74 ms to +2.74 ms")
        );
        let narrow = compare(&spread(100.0, 0.01), &spread(90.0, 0.01));
        assert_eq!(difference(&narrow, "us"), "-10.00 %");
    }

    #[test]
    fn a_verdict_that_the_shift_alone_does_not_carry_says_what_differs() {
        let alike = spread(100.0, 1.0);
        let mut rare = alike.clone();
        rare.iter_mut().step_by(7).for_each(|it| *it *= 2.0);
        let text = verdict(&compare(&alike, &rare), "us");
        assert!(
            text.starts_with("inconclusive: maybe ") && text.contains(" %, average +"),
            "{text}"
        );
        assert!(text.contains(" %, p90 +"), "{text}");
        assert_eq!(hidden(&compare(&alike, &alike)), "");
    }

    #[test]
    fn nothing_beside_not_shown_looks_like_a_claim() {
        let mut lower = compare(&spread(100.0, 20.0), &spread(60.0, 15.0));
        let claim = judged(&lower, "us");
        assert!(claim.starts_with("lower, -"), "{claim}");
        // This is the verdict in a report that is not valid.
        lower.verdict = Verdict::NotShown;
        assert_eq!(judged(&lower, "us"), "inconclusive");
        assert!(verdict(&lower, "us").starts_with("inconclusive, p "));
        let open = compare(&spread(100.0, 20.0), &spread(104.0, 20.0));
        let text = judged(&open, "us");
        assert!(
            text.starts_with("inconclusive (-") && text.ends_with(" %)"),
            "{text}"
        );
    }

    #[test]
    fn one_of_a_thing_is_singular() {
        let counts = [(1, "launch"), (2, "launch"), (1, "sample"), (0, "sample")];
        let words = counts.map(|(number, noun)| count(number, noun)).join(",");
        assert_eq!(words, "1 launch,2 launches,1 sample,0 samples");
    }

    #[test]
    fn a_verdict_says_for_how_many_comparisons_it_is_corrected() {
        let mut comparison = compare(&spread(100.0, 20.0), &spread(60.0, 15.0));
        comparison.comparisons = 9;
        let text = verdict(&comparison, "us");
        assert!(text.starts_with("lower: -36 % (99 % interval "), "{text}");
        assert!(text.ends_with("(corrected for 9 comparisons)"), "{text}");
    }
}
