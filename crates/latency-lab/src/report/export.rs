//! Reports for spreadsheets and pages.

use std::fmt::Write;

use crate::figure::{FIGURES, Figure, carried, difference};
use crate::statistics::Summary;

/// Every sample as a line, without the head of the table. `name` is the report's.
pub(super) fn csv(name: &str, valid: bool, figures: &[Figure]) -> String {
    let mut out = String::new();
    for figure in figures {
        for row in &figure.rows {
            for (number, sample) in (1..).zip(&row.samples) {
                let words = [name, &figure.name, &row.name].map(quoted).join(",");
                let unit = quoted(&figure.unit);
                let _ = writeln!(out, "{words},{number},{sample},{unit},{valid}");
            }
        }
    }
    out
}

/// A table each, for a page of documentation.
pub(super) fn markdown(figures: &[Figure]) -> String {
    let mut out = String::new();
    let others = FIGURES.iter().filter(|(name, _)| *name != "median");
    let heads: Vec<&str> = others.clone().map(|(name, _)| *name).collect();
    for figure in figures {
        let (title, heads) = (cell(&figure.title()), heads.join(" | "));
        let _ = writeln!(out, "\n| {title} | median | shift | {heads} | samples |");
        let _ = writeln!(out, "| --- |{}", " ---: |".repeat(FIGURES.len() + 2));
        for row in &figure.rows {
            let text = |value: fn(&Summary) -> f64| {
                let text = |it| carried(value(&it), &it, &figure.unit);
                row.summary().map_or("n/a".into(), text)
            };
            let shift = row.against_first.as_ref().map_or(String::new(), difference);
            let others: Vec<String> = others.clone().map(|(_, value)| text(*value)).collect();
            let _ = writeln!(
                out,
                "| {} | {} | {shift} | {} | {} |",
                cell(&row.name),
                text(|it| it.median),
                others.join(" | "),
                row.samples.len()
            );
        }
    }
    out
}

/// Of [`csv`].
pub(super) const CSV_HEAD: &str = "report,figure,row,sample,value,unit,valid\n";

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_stay_one_field() {
        assert_eq!(quoted("erofast:percpu,hipri"), "\"erofast:percpu,hipri\"");
        assert_eq!(quoted("a \"b\""), "\"a \"\"b\"\"\"");
        assert_eq!(cell("a|b"), "a\\|b");
    }
}
