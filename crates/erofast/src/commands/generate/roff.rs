//! Writes man pages: the few requests of man(7) that our pages need.

use std::time::SystemTime;

use crate::text;

/// A page that is being written.
#[derive(Debug)]
pub struct Page {
    text: String,
    /// Nothing is written below the last heading yet.
    below_heading: bool,
}

/// The date of `SOURCE_DATE_EPOCH`, so that the same source gives the same page, or of today.
fn date() -> String {
    let of_source = std::env::var("SOURCE_DATE_EPOCH").ok();
    let seconds = of_source.and_then(|seconds| seconds.parse().ok());
    let now = || {
        SystemTime::now()
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    };
    let seconds = seconds.unwrap_or_else(|| i64::try_from(now().as_secs()).unwrap_or_default());
    text::time(seconds)
        .split(' ')
        .next()
        .unwrap_or_default()
        .to_owned()
}

impl Page {
    /// A page with its title line.
    pub fn new(name: &str, section: u8, manual: &str) -> Self {
        let version = env!("CARGO_PKG_VERSION");
        let name = quoted(&name.to_uppercase());
        let date = date();
        let text = format!(".TH {name} {section} {date} \"erofast {version}\" \"{manual}\"\n");
        Self {
            text,
            below_heading: false,
        }
    }

    /// A heading.
    pub fn section(&mut self, heading: &str) {
        self.request("SH", &quoted(&heading.to_uppercase()));
        self.below_heading = true;
    }

    /// A heading below a heading.
    pub fn subsection(&mut self, heading: &str) {
        self.request("SS", &quoted(heading));
        self.below_heading = true;
    }

    /// A paragraph of marked text; see [`plain`] and [`marked`].
    pub fn paragraph(&mut self, text: &str) {
        self.begin_paragraph();
        self.line(text);
    }

    /// A heading begins a paragraph of its own.
    fn begin_paragraph(&mut self) {
        if !self.below_heading {
            self.request("PP", "");
        }
    }

    /// A term and what it means.
    pub fn item(&mut self, term: &str, meaning: &str) {
        self.request("TP", "");
        self.line(term);
        self.line(meaning);
    }

    /// An entry of a list.
    pub fn bullet(&mut self, text: &str) {
        self.request("IP", "\\(bu 2");
        self.line(text);
    }

    /// Lines that stay as they are.
    pub fn verbatim<'l>(&mut self, lines: impl IntoIterator<Item = &'l str>) {
        self.begin_paragraph();
        self.text.push_str(".RS 4\n.nf\n");
        for line in lines {
            self.line(&plain(line));
        }
        self.text.push_str(".fi\n.RE\n");
    }

    /// Marked text as it is, without a request in front.
    pub fn line(&mut self, text: &str) {
        // A dot or a quote in front would make it a request.
        if text.starts_with(['.', '\'']) {
            self.text.push_str("\\&");
        }
        self.text.push_str(text);
        self.text.push('\n');
        self.below_heading = false;
    }

    fn request(&mut self, name: &str, argument: &str) {
        let line = format!(".{name} {argument}");
        self.text.push_str(line.trim_end());
        self.text.push('\n');
        self.below_heading = false;
    }

    /// The source of the page.
    pub fn finish(self) -> String {
        self.text
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", plain(text).replace('"', "\\(dq"))
}

/// Text in which no character means anything to roff. A hyphen is the one of the keyboard, so that
/// options can be copied from the page.
pub fn plain(text: &str) -> String {
    let mut out = String::new();
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\e"),
            '-' => out.push_str("\\-"),
            '`' => out.push_str("\\(ga"),
            '~' => out.push_str("\\(ti"),
            '^' => out.push_str("\\(ha"),
            other => out.push(other),
        }
    }
    out
}

/// Plain text in bold.
pub fn bold(text: &str) -> String {
    format!("\\fB{}\\fR", plain(text))
}

/// Plain text in italics.
pub fn italic(text: &str) -> String {
    format!("\\fI{}\\fR", plain(text))
}

/// Markdown of one paragraph: code and what is strong become bold, links their text.
pub fn marked(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['`', '*', '[']) {
        let (before, from) = rest.split_at(at);
        out.push_str(&plain(before));
        let (piece, length) = mark(from);
        out.push_str(&piece);
        rest = &from[length..];
    }
    out + &plain(rest)
}

/// What stands at the beginning of `text`, which is one of the marks, and how long it is.
fn mark(text: &str) -> (String, usize) {
    let between = |open: &str, close: &str| {
        let inner = text.strip_prefix(open)?;
        inner.find(close).map(|end| &inner[..end])
    };
    if let Some(code) = between("`", "`") {
        return (bold(code), code.len() + 2);
    }
    if let Some(strong) = between("**", "**") {
        return (bold(strong), strong.len() + 4);
    }
    if let Some(emphasis) = between("*", "*").filter(|e| !e.starts_with(' ') && !e.is_empty()) {
        return (italic(emphasis), emphasis.len() + 2);
    }
    if let Some(label) = between("[", "](")
        && let Some(target) = text[label.len() + 3..].find(')')
    {
        return (marked(label), label.len() + 3 + target + 1);
    }
    (plain(&text[..1]), 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_taken_for_a_request() {
        let mut page = Page::new("x", 1, "M");
        page.line(&plain(".so /etc/passwd"));
        page.verbatim(["'quoted", "a\\nb"]);
        let text = page.finish();
        assert!(text.contains("\n\\&.so /etc/passwd\n"), "{text}");
        assert!(text.contains("\n\\&'quoted\na\\enb\n"), "{text}");
    }

    #[test]
    fn marks_become_fonts_and_lone_ones_stay() {
        assert_eq!(
            marked("see `a-b` and **c**"),
            "see \\fBa\\-b\\fR and \\fBc\\fR"
        );
        assert_eq!(marked("[the *page*](x.md), [1]"), "the \\fIpage\\fR, [1]");
        assert_eq!(marked("2 * 3 * 4"), "2 * 3 * 4");
    }
}
