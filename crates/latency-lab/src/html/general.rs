//! The page of an experiment that has no page of its own.

use std::fmt::Write;

use super::{escape, figure, page};
use crate::environment::Environment;
use crate::figure::Figure;

/// Its text, its figures, where it ran. The text begins with what it is of.
pub(crate) fn general_page(
    title: &str,
    (text, caption): (&str, &str),
    (figures, valid): (&[Figure], bool),
    environment: Option<&Environment>,
    json: &str,
) -> String {
    let mut body = format!("<h1>{}</h1>\n<pre>{}</pre>\n", escape(title), escape(text));
    body += &figure::overview(figures, valid);
    for figure in figures {
        body += &figure::section(figure, caption);
    }
    if let Some(environment) = environment {
        let _ = writeln!(
            body,
            "<h2>Where it ran</h2>\n{}",
            page::environment(environment)
        );
    }
    page::page(title, &body, json)
}

/// Reports side by side: names with a line each, faults and notices, a row a report.
pub(crate) fn pages_beside(
    reports: &[(String, String)],
    (faults, notices): (&[String], &[String]),
    figures: &[Figure],
    json: &str,
) -> String {
    let mut body = format!("<h1>Reports side by side</h1>\n{}", page::words(reports));
    let valid = faults.is_empty();
    let faults = faults
        .iter()
        .map(|line| ("bad", format!("Not valid: {line}.")));
    let notices = notices.iter().map(|line| ("soft", format!("{line}.")));
    let warning = "The runs were not interleaved: what else changed between them counts too.";
    for (class, line) in faults.chain(notices).chain([("soft", warning.into())]) {
        let _ = writeln!(body, "<p class=\"{class}\">{}</p>", escape(&line));
    }
    body += &figure::overview(figures, valid);
    for figure in figures {
        body += &figure::section(figure, "Each against the first report that is named above");
    }
    page::page("Reports side by side", &body, json)
}
