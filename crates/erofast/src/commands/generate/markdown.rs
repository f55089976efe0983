//! A page of docs/ as a man page: headings, paragraphs, lists, tables and code.

use super::roff::{Page, bold, marked};

/// Adds the blocks of `text` to a page. Its title is left to the caller.
pub fn render(text: &str, page: &mut Page) {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("```") {
            let code = lines.by_ref().take_while(|line| !line.starts_with("```"));
            page.verbatim(code.collect::<Vec<_>>());
        } else if let Some(heading) = line.strip_prefix("## ") {
            page.section(&heading.replace('`', ""));
        } else if let Some(heading) = line.strip_prefix("### ") {
            page.subsection(&heading.replace('`', ""));
        } else if line.starts_with('|') {
            let header = cells(line);
            let mut rows = Vec::new();
            while let Some(row) = lines.next_if(|line| line.starts_with('|')) {
                rows.push(cells(row));
            }
            table(&header, &rows[rows.len().min(1)..], page);
        } else if let Some(first) = bullet(line) {
            let mut entry = first.to_owned();
            while let Some(more) = lines.next_if(|l| l.starts_with("  ") && bullet(l).is_none()) {
                entry.push(' ');
                entry.push_str(more.trim());
            }
            page.bullet(&marked(&entry));
        } else if !line.is_empty() && !line.starts_with("# ") {
            let mut paragraph = line.trim().to_owned();
            while let Some(more) = lines.next_if(|line| continues(line)) {
                paragraph.push(' ');
                paragraph.push_str(more.trim());
            }
            page.paragraph(&marked(&paragraph));
        }
    }
}

fn bullet(line: &str) -> Option<&str> {
    line.trim_start().strip_prefix("* ")
}

/// Whether a line belongs to the paragraph before it.
fn continues(line: &str) -> bool {
    !line.is_empty()
        && !line.starts_with(['#', '|'])
        && !line.starts_with("```")
        && bullet(line).is_none()
}

fn cells(row: &str) -> Vec<String> {
    let inner = row.trim().trim_start_matches('|').trim_end_matches('|');
    let whole = inner.replace("\\|", "\0");
    whole
        .split('|')
        .map(|cell| cell.trim().replace('\0', "|"))
        .collect()
}

/// Each row becomes an item: a terminal has no room for wide columns.
fn table(header: &[String], rows: &[Vec<String>], page: &mut Page) {
    for row in rows {
        let Some((term, rest)) = row.split_first() else {
            continue;
        };
        let named = rest.iter().zip(header.iter().skip(1));
        let meaning: Vec<String> = named
            .filter(|(cell, _)| !cell.is_empty())
            .map(|(cell, name)| match header.len() {
                2 => marked(cell),
                _ => format!("{}: {}", marked(name), marked(cell)),
            })
            .collect();
        page.item(&bold(&term.replace('`', "")), &meaning.join("; "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_its_request() {
        let text = "# Title\n\nA line\nand `more`.\n\n## One\n* a\n  b\n* c\n\n\
                    | x | y |\n| --- | --- |\n| `p\\|q` | r |\n\n\
                    | x | `y` | z |\n| --- | --- | --- |\n| a | b | c |\n\n```sh\nls -l\n```\n";
        let mut page = Page::new("x", 7, "M");
        render(text, &mut page);
        let (_, body) = page
            .finish()
            .split_once('\n')
            .map(|(a, b)| (a.len(), b.to_owned()))
            .unwrap();
        assert_eq!(
            body,
            ".PP\nA line and \\fBmore\\fR.\n.SH \"ONE\"\n.IP \\(bu 2\na b\n.IP \\(bu 2\nc\n\
             .TP\n\\fBp|q\\fR\nr\n.TP\n\\fBa\\fR\n\\fBy\\fR: b; z: c\n.PP\n.RS 4\n.nf\nls \\-l\n.fi\n.RE\n"
        );
    }
}
