//! A table for terminals, pages and documentation.

use std::fmt::Write;

use crate::html::{escape, style};

/// Names with more characters than this get a line of their own.
const NAME: usize = 40;

/// The heading of a column, and its cell in a row.
pub(crate) type Column<T> = (&'static str, fn(&T) -> String);

/// Rows with names. On a terminal, figures are right-aligned in their columns, and words are
/// left-aligned.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Table {
    /// Text above the table; may be empty.
    pub(crate) title: String,
    /// Headings of the columns, except the column of names.
    pub(crate) heads: Vec<String>,
    pub(crate) rows: Vec<(String, Vec<String>)>,
    /// Whether the rows are also those of the charts and have the same colours as there.
    pub(crate) keyed: bool,
    /// Whether the cells are words rather than figures.
    pub(crate) words: bool,
    /// Text below the table; may be empty.
    pub(crate) note: String,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, heads: &[&str]) -> Table {
        Table {
            title: title.into(),
            heads: heads.iter().map(|head| (*head).into()).collect(),
            ..Table::default()
        }
    }

    /// A table with a row for each of `rows`, whose cells are made by `columns`.
    pub(crate) fn of<'a, T: 'a>(
        title: &str,
        rows: impl Iterator<Item = (String, &'a T)>,
        columns: &[Column<T>],
    ) -> Table {
        let heads: Vec<&str> = columns.iter().map(|(head, _)| *head).collect();
        let mut table = Table::new(title, &heads);
        for (name, thing) in rows {
            table.add(&name, columns.iter().map(|(_, cell)| cell(thing)));
        }
        table
    }

    /// A table whose rows have the colours of the charts.
    pub(crate) fn keyed(title: impl Into<String>, heads: &[&str]) -> Table {
        Table::new(title, heads).coloured()
    }

    pub(crate) fn coloured(self) -> Table {
        Table {
            keyed: true,
            ..self
        }
    }

    /// A table of names and words.
    pub(crate) fn words(title: impl Into<String>, rows: Vec<(String, String)>) -> Table {
        let rows = rows.into_iter().map(|(name, text)| (name, vec![text]));
        Table {
            rows: rows.collect(),
            words: true,
            ..Table::new(title, &[])
        }
    }

    pub(crate) fn add(&mut self, name: &str, cells: impl IntoIterator<Item = String>) {
        self.rows.push((name.into(), cells.into_iter().collect()));
    }

    /// The table without the columns that have no figure in any row.
    pub(crate) fn without_gaps(mut self) -> Table {
        let width = self.rows.iter().map(|(_, cells)| cells.len()).max();
        for at in (0..width.unwrap_or(0)).rev() {
            let mut cells = self.rows.iter().filter_map(|(_, cells)| cells.get(at));
            let gap = |cell: &String| matches!(cell.as_str(), "" | "-") || cell.starts_with("n/a");
            if cells.all(gap) {
                let rows = self.rows.iter_mut().map(|(_, cells)| cells);
                let heads = (!self.heads.is_empty()).then_some(&mut self.heads);
                rows.chain(heads)
                    .filter(|cells| at < cells.len())
                    .for_each(|cells| drop(cells.remove(at)));
            }
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.iter().all(|(_, cells)| cells.is_empty())
    }

    /// Formats the table for a terminal: aligned columns below the title.
    pub(crate) fn text(&self) -> String {
        let indent = if self.title.is_empty() { "" } else { "  " };
        let heads = (!self.heads.is_empty()).then(|| (String::new(), self.heads.clone()));
        let lines = || heads.iter().chain(&self.rows);
        let length = |text: &String| text.chars().count();
        let names = lines().map(|(name, _)| length(name));
        let name = names.filter(|it| *it <= NAME).max().unwrap_or(0);
        let column = |at: usize| {
            lines()
                .filter_map(move |(_, cells)| cells.get(at))
                .map(length)
        };
        let mut out = match self.title.as_str() {
            "" => String::new(),
            title => format!("{title}\n"),
        };
        for (text, cells) in lines() {
            let mut text = text.as_str();
            if text.chars().count() > name {
                let _ = writeln!(out, "{indent}{text}");
                text = "";
            }
            let mut line = format!("{indent}{text:<name$}");
            if let (true, [words]) = (self.words, &cells[..]) {
                out += &wrapped(&format!("{line}  {words}"), indent.len() + name + 2);
                continue;
            }
            for (at, cell) in cells.iter().enumerate() {
                let width = column(at).max().unwrap_or(0);
                let _ = match self.words {
                    true => write!(line, "  {cell:<width$}"),
                    false => write!(line, "  {cell:>width$}"),
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        match self.note.as_str() {
            "" => out,
            note => format!("{out}\n{note}\n"),
        }
    }

    /// Formats the table as HTML, with a caption instead of the title.
    pub(crate) fn html(&self, caption: &str) -> String {
        let [words, figure] = [(self.words, "words"), (self.keyed, " figure")]
            .map(|(is, class)| if is { class } else { "" });
        let mut out = format!("<div class=\"scroll{figure}\"><table class=\"{words}\">\n");
        if !caption.is_empty() {
            let _ = writeln!(out, "<caption>{}</caption>", escape(caption));
        }
        if !self.heads.is_empty() {
            let heads = self.heads.iter();
            let heads: String = heads
                .map(|head| format!("<th>{}</th>", escape(head)))
                .collect();
            let _ = writeln!(out, "<thead><tr><th></th>{heads}</tr></thead>");
        }
        out += "<tbody>\n";
        for (number, (name, cells)) in self.rows.iter().enumerate() {
            let key = match self.keyed {
                true => style::key(number),
                false => String::new(),
            };
            let cells = cells.iter().enumerate();
            let cells: String = cells.map(|(at, cell)| self.cell(at, cell)).collect();
            let name = breakable(name);
            let _ = writeln!(out, "<tr><th scope=\"row\">{key}{name}</th>{cells}</tr>");
        }
        let note = escape(&self.note);
        format!("{out}</tbody></table></div>\n<p class=\"soft\">{note}</p>\n")
    }

    /// A cell as HTML. A shift that is not claimed is faint.
    fn cell(&self, at: usize, cell: &str) -> String {
        let head = self.heads.get(at).map(String::as_str);
        let class = match (head, cell.starts_with('(')) {
            (Some("shift"), true) => " class=\"shift faint\"",
            (Some("shift"), false) => " class=\"shift\"",
            (_, true) => " class=\"faint\"",
            _ => "",
        };
        format!("<td{class}>{}</td>", escape(cell).replace(" us", " µs"))
    }

    /// Formats the table as Markdown, for documentation.
    pub(crate) fn markdown(&self) -> String {
        let line = |name: &str, cells: &[String]| {
            let cells = cells.iter().map(|cell| format!(" {} |", plain(cell)));
            format!("| {} |{}\n", plain(name), cells.collect::<String>())
        };
        let rows = self.rows.iter();
        let rows: String = rows.map(|(name, cells)| line(name, cells)).collect();
        let rule = format!("| --- |{}\n", " ---: |".repeat(self.heads.len()));
        line(&self.title, &self.heads) + &rule + &rows
    }
}

/// Wraps a text into lines of at most 100 characters, unless a word is longer. All lines except the
/// first are indented.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.chars().count() + word.chars().count() < 100 {
            *line += &format!("{word} ");
        } else {
            lines.push(format!("{}{word} ", " ".repeat(indent)));
        }
    }
    let lines = lines.iter().map(|line| line.trim_end());
    let lines = lines.filter(|line| !line.is_empty());
    lines.map(|line| format!("{line}\n")).collect()
}

/// A name as HTML that may be broken between its parts if the column is narrow.
fn breakable(name: &str) -> String {
    let name = escape(name);
    let parts = name.split_inclusive([':', ',', '=', '/']);
    parts.collect::<Vec<_>>().join("<wbr>")
}

fn plain(text: &str) -> String {
    text.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_read_on_a_terminal_on_a_page_and_in_documentation() {
        let mut table = Table::keyed("time", &["median", "shift"]);
        table.add("a|<b>", ["7 us", "(-3 %)"].map(String::from));
        table.add("erofast", ["100 us", "+1 %"].map(String::from));
        let text = "time\n           median   shift\n  a|<b>      7 us  (-3 %)\n  \
                    erofast  100 us    +1 %\n";
        assert_eq!(table.text(), text);
        let mut wide = Table::keyed("", &["median"]);
        wide.add(&"x".repeat(NAME + 1), ["7 us"].map(String::from));
        wide.add("short", ["100 us"].map(String::from));
        let lines = format!(
            "       median\n{}\n         7 us\nshort  100 us\n",
            "x".repeat(NAME + 1)
        );
        assert_eq!(wide.text(), lines);
        let long = Table::words("", vec![("name".into(), "word ".repeat(30))]).text();
        let lines: Vec<&str> = long.lines().collect();
        assert!(
            lines[0].len() <= 100 && lines[1].starts_with("      word word"),
            "{long}"
        );
        let html = table.html("of a run");
        assert!(
            html.contains("a|&lt;b&gt;</th><td>7 µs</td><td class=\"shift faint\">"),
            "{html}"
        );
        assert!(html.contains("<caption>of a run") && html.contains("class=\"key s1\""));
        assert!(
            table
                .markdown()
                .ends_with("| a\\|<b> | 7 us | (-3 %) |\n| erofast | 100 us | +1 % |\n")
        );
    }
}
