//! Converts a page in Markdown to the text of a man page.
#![forbid(unsafe_code)]

use std::mem::take;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use roff::{Inline, Roff, bold, italic, roman};

/// Renders the blocks of `text`, without its title.
pub fn render(text: &str) -> Roff {
    let mut page = Page::default();
    Parser::new_ext(text, Options::ENABLE_TABLES).for_each(|event| page.add(event));
    page.roff
}

#[derive(Default)]
struct Page {
    roff: Roff,
    /// Text read so far in the current block or cell.
    line: Vec<Inline>,
    font: Font,
    /// The source page that a link leads to.
    link: Option<String>,
    below_heading: bool,
    header: Vec<String>,
    cells: Vec<Vec<Inline>>,
}

#[derive(Clone, Copy, Default)]
enum Font {
    #[default]
    Roman,
    Bold,
    Italic,
}

impl Page {
    fn add(&mut self, event: Event<'_>) {
        match event {
            Event::Text(text) => self.word(text.into_string()),
            Event::Code(code) => self.line.push(bold(code.into_string())),
            Event::SoftBreak => self.line.push(roman(" ")),
            Event::Start(tag) => self.begin(&tag),
            Event::End(tag) => self.end(tag),
            _ => {}
        }
    }

    fn word(&mut self, text: String) {
        self.line.push(match self.font {
            Font::Roman => roman(text),
            Font::Bold => bold(text),
            Font::Italic => italic(text),
        });
    }

    fn begin(&mut self, tag: &Tag<'_>) {
        match tag {
            Tag::Strong => self.font = Font::Bold,
            Tag::Emphasis => self.font = Font::Italic,
            Tag::Link { dest_url, .. } => self.link = page_of(dest_url),
            Tag::Paragraph => self.control("PP", &[]),
            Tag::List(_) => self.flush(),
            Tag::Item => self.control("IP", &["\\(bu", "2"]),
            Tag::CodeBlock(_) => {
                self.control("PP", &[]);
                self.control("RS", &["4"]);
                self.control("nf", &[]);
            }
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Strong | TagEnd::Emphasis => self.font = Font::Roman,
            TagEnd::Link => {
                let page = self.link.take().map(|page| roman(format!(" ({page})")));
                self.line.extend(page);
            }
            TagEnd::Paragraph | TagEnd::Item => self.flush(),
            TagEnd::Heading(level) => self.heading(level),
            TagEnd::CodeBlock => {
                self.flush();
                self.control("fi", &[]);
                self.control("RE", &[]);
            }
            TagEnd::TableCell => self.cells.push(take(&mut self.line)),
            TagEnd::TableHead => {
                self.header = take(&mut self.cells)
                    .iter()
                    .map(|cell| plain(cell))
                    .collect()
            }
            TagEnd::TableRow => self.row(),
            _ => {}
        }
    }

    fn control(&mut self, name: &str, arguments: &[&str]) {
        // A heading already begins a paragraph.
        if take(&mut self.below_heading) && name == "PP" {
            return;
        }
        self.below_heading = matches!(name, "SH" | "SS");
        self.roff.control(name, arguments.iter().copied());
    }

    fn flush(&mut self) {
        if !self.line.is_empty() {
            self.roff.text(take(&mut self.line));
        }
    }

    fn heading(&mut self, level: HeadingLevel) {
        let text = plain(&take(&mut self.line));
        match level {
            HeadingLevel::H1 => {}
            HeadingLevel::H2 => self.control("SH", &[&text.to_uppercase()]),
            _ => self.control("SS", &[&text]),
        }
    }

    /// Turns a row of a table into a list item, because a terminal has no room for wide columns.
    fn row(&mut self) {
        let mut cells = take(&mut self.cells).into_iter();
        let term = plain(&cells.next().unwrap_or_default());
        self.control("TP", &[]);
        self.roff.text([bold(term)]);
        let meanings = cells
            .zip(self.header.iter().skip(1))
            .filter(|(cell, _)| !cell.is_empty());
        for (cell, name) in meanings {
            if !self.line.is_empty() {
                self.line.push(Inline::LineBreak);
            }
            if self.header.len() > 2 {
                self.line.push(roman(format!("{name}: ")));
            }
            self.line.extend(cell);
        }
        self.flush();
    }
}

/// The path of the page that a link leads to, which is printed because a link in a man page cannot
/// be followed. `None` if the link does not lead to a page.
fn page_of(link: &str) -> Option<String> {
    let page = link
        .split('#')
        .next()
        .filter(|page| page.ends_with(".md"))?;
    Some(format!("docs/{page}"))
}

/// The words of a line, without markup.
fn plain(line: &[Inline]) -> String {
    let words = line.iter().map(|inline| match inline {
        Inline::Roman(text) | Inline::Bold(text) | Inline::Italic(text) => text.as_str(),
        Inline::LineBreak => "",
    });
    words.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_its_request() {
        let text = "# Title\n\nA line\nand `more` [*x*](y.md).\n\n## One\n* a\n  b\n* c\n\n\
                    | x | y |\n| --- | --- |\n| `p\\|q` | r |\n\n\
                    | x | `y` | z |\n| --- | --- | --- |\n| a | b | c |\n\n```sh\n.ls -l\n```\n";
        assert_eq!(
            render(text).to_roff(),
            ".PP\nA line and \\fBmore\\fR \\fIx\\fR (docs/y.md).\n.SH ONE\n.IP \\(bu 2\na b\n.IP \\(bu 2\nc\n\
             .TP\n\\fBp|q\\fR\nr\n.TP\n\\fBa\\fR\ny: b\n.br\nz: c\n.PP\n.RS 4\n.nf\n\\&.ls \\-l\n\n.fi\n.RE\n"
        );
    }
}
