//! The page of a report: frame, answer, charts and environment, with styles for light and dark
//! mode, for wide and narrow windows, and for print.

use std::fmt::Write;

use serde_json::Value;

use super::chart::{Shift, cdf, over_the_run, shifts, strip};
use super::escape;
use super::style::{self, CHARTS, COLOURS, LAYOUT};
use crate::environment::Environment;
use crate::figure::{Figure, Row};
use crate::findings::Findings;
use crate::table::Table;

/// A whole page around `body`, with the raw report embedded for further processing.
pub fn page(title: &str, body: &str, json: &str) -> String {
    // A "<" could end the element or begin a comment; in JSON a "<" occurs only in strings.
    let json = json.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{COLOURS}{LAYOUT}{CHARTS}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\
         <script type=\"application/json\" id=\"report\">\n{json}\n</script>\n</body>\n</html>\n",
        title = escape(title)
    )
}

/// The page of an experiment.
pub(crate) fn report(of: &Findings, json: &str) -> String {
    let (figures, caption) = (&of.figures, of.caption());
    let mut body = faults(&of.faults);
    body.extend(of.differences.iter().map(|text| line("soft", text)));
    body += &line("claim", &of.conclusion());
    for (number, table) in of.summary.iter().enumerate() {
        // Only the first table has the caption, since all tables belong to one run.
        body += &titled(table, if number == 0 { &caption } else { "" });
    }
    body.extend(of.groups().map(|text| line("soft", &text)));
    body.extend(of.notes.iter().map(|note| line("soft", note)));
    body += &overview(figures);
    body.extend(figures.iter().map(|figure| section(figure, &caption)));
    body += &of.drawings;
    body.extend(of.details.iter().map(|table| titled(table, "")));
    let _ = writeln!(
        body,
        "<h2>What each number means</h2>\n<pre>{}</pre>",
        escape(&of.legend)
    );
    if let Some(environment) = &of.environment {
        body += &titled(&self::environment(environment), "");
    }
    for (title, table) in &of.appendix {
        let (title, table) = (escape(title), table.html(""));
        let _ = writeln!(
            body,
            "<details><summary>{title}</summary>\n{table}</details>"
        );
    }
    page(of.title, &body, json)
}

fn line(class: &str, text: &str) -> String {
    match text {
        "" => String::new(),
        text => format!("<p class=\"{class}\">{}</p>\n", escape(text)),
    }
}

fn faults(reasons: &[String]) -> String {
    match reasons {
        [] => String::new(),
        _ => line("bad", &format!("Not valid: {}.", reasons.join("; "))),
    }
}

fn titled(table: &Table, caption: &str) -> String {
    match table.title.as_str() {
        "" => table.html(caption),
        title => format!(
            "<h2>{}</h2>\n{}",
            escape(&capitalised(title)),
            table.html(caption)
        ),
    }
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.collect::<String>() + letters.as_str()
}

/// The section of a measured quantity: its table with the caption, its verdicts and its charts.
fn section(figure: &Figure, caption: &str) -> String {
    let mut out = titled(&figure.table(), caption);
    if !figure.of.is_empty() {
        out += &line("soft", &format!("{}.", capitalised(figure.of)));
    }
    let verdicts = figure.verdicts();
    out.extend(
        verdicts.map(|(text, shift)| line(if shift.claims() { "claim" } else { "faint" }, &text)),
    );
    out + &legend(&figure.rows) + &charts(figure)
}

/// The charts of a figure; none if it has no samples or only zeros.
fn charts(figure: &Figure) -> String {
    let mut samples = figure.rows.iter().flat_map(|row| &row.samples);
    if samples.all(|sample| *sample == 0.0) {
        return String::new();
    }
    let longest = figure.rows.iter().map(|row| row.samples.len()).max();
    let all = [
        ("Cumulative fraction of samples", 1, cdf(figure)),
        ("Every sample, with the median", 1, strip(figure)),
        ("In run order", 2, over_the_run(figure)),
    ];
    let shown = all.into_iter();
    let shown = shown.filter(|(_, fewest, chart)| longest >= Some(*fewest) && !chart.is_empty());
    let shown =
        shown.map(|(title, _, chart)| format!("<figure><h3>{title}</h3>\n{chart}</figure>\n"));
    grid(&shown.collect::<String>())
}

pub(super) fn grid(figures: &str) -> String {
    match figures {
        "" => String::new(),
        figures => format!("<div class=\"charts\">\n{figures}</div>\n"),
    }
}

/// One chart with the shifts of all figures.
fn overview(figures: &[Figure]) -> String {
    let shift = |figure: &Figure, (series, row): (usize, &Row)| {
        let name = format!("{}, {}", row.name, figure.name);
        let of = row.against_first.clone()?;
        Some(Shift { name, series, of })
    };
    let all = figures.iter().flat_map(|figure| {
        let rows = figure.rows.iter().enumerate();
        rows.filter_map(move |row| shift(figure, row))
    });
    match shifts("shift against the first", &all.collect::<Vec<_>>()) {
        chart if chart.is_empty() => chart,
        chart => grid(&format!("<figure>{chart}</figure>\n")),
    }
}

fn legend(rows: &[Row]) -> String {
    let name = |(number, row): (usize, &Row)| {
        format!("<span>{}{}</span>", style::key(number), escape(&row.name))
    };
    let names = rows.iter().enumerate().map(name).collect::<String>();
    format!("<p class=\"legend\">{names}</p>\n")
}

/// A table of the environment, with all fields of its JSON whose values are known.
fn environment(environment: &Environment) -> Table {
    let mut rows = Vec::new();
    flatten(
        "",
        &serde_json::to_value(environment).unwrap_or_default(),
        &mut rows,
    );
    Table::words("where it ran", rows)
}

fn flatten(name: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(field, value)| {
            let name = format!("{name} {}", field.replace('_', " "));
            flatten(name.trim(), value, rows);
        }),
        Value::String(text) if text.is_empty() => {}
        Value::String(text) => rows.push((name.into(), text.clone())),
        other => rows.push((name.into(), other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_page_reaches_for_the_network_or_ends_the_data_early() {
        let page = page("t", "<p>x</p>", "{\"a\": \"</script><b>\"}");
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("url("));
        assert_eq!(page.matches("</script>").count(), 1);
    }

    #[test]
    fn a_figure_without_samples_or_with_zeros_alone_has_no_chart() {
        let row = |samples| Row {
            name: "kernel".into(),
            samples,
            against_first: None,
        };
        let figure = |samples| Figure {
            name: "x".into(),
            of: "",
            unit: "us".into(),
            rows: vec![row(samples)],
        };
        let charts = |samples| section(&figure(samples), "").matches("<svg").count();
        assert_eq!(
            [vec![], vec![0.0; 3], vec![1.0], vec![1.0, 2.0]].map(charts),
            [0, 0, 2, 3]
        );
    }
}
