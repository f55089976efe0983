//! A measured quantity on a page: its charts and its table.

use std::fmt::Write;

use super::chart::{Shift, cdf, over_the_run, shifts, strip};
use super::{amount, escape, style};
use crate::figure::{FIGURES, Figure, Row, difference, rounded, tally, verdict};
use crate::statistics::Comparison;

/// Title, table, verdicts and charts. `caption` stays with the table.
pub(super) fn section(figure: &Figure, caption: &str) -> String {
    let mut out = format!("<h2>{}</h2>\n", escape(&capitalised(&figure.name)));
    if !figure.of.is_empty() {
        let _ = writeln!(
            out,
            "<p class=\"soft\">{}.</p>",
            escape(&capitalised(figure.of))
        );
    }
    out + &table(figure, caption) + &verdicts(figure) + &charts(figure)
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.collect::<String>() + letters.as_str()
}

/// The square in the colour of a row.
pub(super) fn key(number: usize) -> String {
    format!("<span class=\"key {}\"></span>", style::series(number))
}

/// A row each; what a telephone has room for comes first.
pub(super) fn table(figure: &Figure, caption: &str) -> String {
    let mut out = format!(
        "<div class=\"scroll figure\"><table>\n<caption>{}</caption>\n<thead><tr><th></th>\
         <th scope=\"col\">median</th><th scope=\"col\">against the first</th>",
        escape(caption)
    );
    let others = FIGURES.iter().filter(|(name, _)| *name != "median");
    for (label, _) in others.clone() {
        let _ = write!(out, "<th scope=\"col\">{label}</th>");
    }
    out += "<th scope=\"col\">samples</th></tr></thead>\n<tbody>\n";
    for (number, row) in figure.rows.iter().enumerate() {
        let cell = |value: fn(&crate::statistics::Summary) -> f64| {
            let text = |it| amount(rounded(value(&it), &it, &figure.unit), &figure.unit);
            format!("<td>{}</td>", row.summary().map_or("n/a".into(), text))
        };
        let _ = write!(
            out,
            "<tr><th scope=\"row\">{}{}</th>{}{}",
            key(number),
            breakable(&row.name),
            cell(|it| it.median),
            shift_cell(row.against_first.as_ref())
        );
        out.extend(others.clone().map(|(_, value)| cell(*value)));
        let _ = writeln!(out, "<td>{}</td></tr>", row.samples.len());
    }
    out + "</tbody></table></div>\n"
}

/// A name that a narrow column breaks where its parts end.
fn breakable(name: &str) -> String {
    let parts = escape(name);
    let parts = parts.split_inclusive([':', ',', '=', '/']);
    parts.collect::<Vec<_>>().join("<wbr>")
}

/// A shift, faint when it is no claim.
pub(super) fn shift_cell(comparison: Option<&Comparison>) -> String {
    let claims = comparison.is_some_and(Comparison::claims);
    let class = if claims { "shift" } else { "shift faint" };
    let text = comparison.map_or(String::new(), difference);
    format!("<td class=\"{class}\">{text}</td>")
}

fn verdicts(figure: &Figure) -> String {
    let mut out = String::new();
    for row in &figure.rows {
        let Some(comparison) = &row.against_first else {
            continue;
        };
        let class = if comparison.claims() {
            "claim"
        } else {
            "faint"
        };
        let _ = writeln!(
            out,
            "<p>{} against {}: <span class=\"{class}\">{}</span></p>",
            escape(&row.name),
            escape(&figure.rows[0].name),
            escape(&verdict(comparison, &figure.unit))
        );
    }
    out
}

fn charts(figure: &Figure) -> String {
    let mut out = legend(&figure.rows) + "<div class=\"charts\">\n";
    for (title, chart) in [
        (
            "Shift against the first, with its interval",
            against_first(&figure.rows),
        ),
        ("Part of samples at or below", cdf(figure)),
        ("Every sample, with the median", strip(figure)),
        ("In the order of the run", over_the_run(figure)),
    ] {
        if !chart.is_empty() {
            let _ = writeln!(out, "<figure><h3>{title}</h3>\n{chart}</figure>");
        }
    }
    out + "</div>\n"
}

/// What may be claimed of all figures, and all their shifts in one chart.
pub(super) fn overview(figures: &[Figure], valid: bool) -> String {
    let all = figures.iter().flat_map(|figure| {
        let compared = figure.rows.iter().enumerate();
        compared.filter_map(|(series, row)| {
            let of = row.against_first.as_ref()?;
            let name = figure.name.as_str();
            Some(Shift { name, series, of })
        })
    });
    let all: Vec<Shift<'_>> = all.collect();
    let class = if valid { "claim" } else { "bad" };
    let mut out = format!("<p class=\"{class}\">{}</p>\n", tally(figures, valid));
    let chart = shifts("shift against the first", &all);
    if let Some(figure) = figures.first().filter(|_| !chart.is_empty()) {
        out += &format!(
            "{}<div class=\"charts\"><figure>{chart}</figure></div>\n",
            legend(&figure.rows)
        );
    }
    out
}

fn legend(rows: &[Row]) -> String {
    let mut out = String::from("<p class=\"legend\">");
    for (number, row) in rows.iter().enumerate() {
        let _ = write!(out, "<span>{}{}</span>", key(number), escape(&row.name));
    }
    out + "</p>\n"
}

fn against_first(rows: &[Row]) -> String {
    let compared = rows.iter().enumerate();
    let all = compared.filter_map(|(series, row)| {
        let of = row.against_first.as_ref()?;
        let name = row.name.as_str();
        Some(Shift { name, series, of })
    });
    let all: Vec<Shift<'_>> = all.collect();
    shifts("shift against the first", &all)
}
