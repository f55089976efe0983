//! Users and passwords by host, in the format of ftp's and curl's `.netrc`. As in curl, words may
//! be in double quotes, and the first matching entry is used. Here, a host may also have a port.

use reqwest::Url;

#[derive(Debug, Default)]
struct Entry {
    /// `None` stands for `default`, which matches all hosts.
    host: Option<String>,
    login: Option<String>,
    password: String,
}

/// `user:password` for the host of the URL. The error is the number of an invalid line.
pub fn user(text: &str, url: &Url) -> Result<Option<String>, usize> {
    let entries = entries(text)?;
    let fitting = entries.into_iter().find(|entry| entry.fits(url));
    Ok(fitting.and_then(|entry| Some(format!("{}:{}", entry.login?, entry.password))))
}

impl Entry {
    fn fits(&self, url: &Url) -> bool {
        let Some(name) = &self.host else { return true };
        let bare = |host: &str| host.trim_matches(['[', ']']).to_ascii_lowercase();
        let is_host = |name: &str| url.host_str().map(bare) == Some(bare(name));
        let with_port = name.rsplit_once(':').is_some_and(|(host, port)| {
            // The rest of an IPv6 address is not a port.
            let has_port = !host.contains(':') || host.ends_with(']');
            has_port && port.parse().ok() == url.port_or_known_default() && is_host(host)
        });
        with_port || is_host(name)
    }
}

fn entries(text: &str) -> Result<Vec<Entry>, usize> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut keyword, mut in_macro, mut last) = (None, false, 0);
    for (number, line) in (1..).zip(text.lines()) {
        last = number;
        // A macro continues until an empty line.
        in_macro &= !line.trim().is_empty();
        let mut rest = line.trim_start();
        if in_macro || rest.starts_with('#') {
            continue;
        }
        while !rest.is_empty() {
            let (word, after) = word(rest).ok_or(number)?;
            rest = after.trim_start();
            match (keyword.take(), entries.last_mut()) {
                (Some("machine"), _) => entries.push(Entry {
                    host: Some(word),
                    ..Entry::default()
                }),
                (Some("login"), Some(entry)) => entry.login = Some(word),
                (Some("password"), Some(entry)) => entry.password = word,
                (Some("account"), Some(_)) => {}
                (None, entry) => match (word.as_str(), entry) {
                    ("machine", _) => keyword = Some("machine"),
                    ("default", _) => entries.push(Entry::default()),
                    ("login", Some(_)) => keyword = Some("login"),
                    ("password", Some(_)) => keyword = Some("password"),
                    ("account", Some(_)) => keyword = Some("account"),
                    ("macdef", _) => (in_macro, rest) = (true, ""),
                    _ => return Err(number),
                },
                _ => return Err(number),
            }
        }
    }
    keyword.map_or(Ok(entries), |_| Err(last))
}

/// The first word, and the text after it; `None` if its quotes are not closed.
fn word(text: &str) -> Option<(String, &str)> {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        return Some((text[..end].to_owned(), &text[end..]));
    };
    let (mut word, mut chars) = (String::new(), quoted.chars());
    loop {
        match chars.next()? {
            '"' => return Some((word, chars.as_str())),
            '\\' => word.push(match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                other => other,
            }),
            other => word.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "# a comment\nmachine one.org login me password first\n\
        machine\ttwo.org:8443\n  login\n  you password \"a \\\"b\\\\ c\"\n\
        macdef init\nmachine evil.org login x password y\n\n\
        machine [::1]:80 login six password 6 machine ::2 login s password #2\n\
        machine one.org login later password never\nmachine none.org\n\
        default login anonymous account a password guest";

    #[test]
    fn the_first_entry_of_a_host_is_taken() {
        for (url, expected) in [
            ("https://one.org/a", Some("me:first")),
            ("http://ONE.org:1/a", Some("me:first")),
            ("https://two.org:8443/", Some("you:a \"b\\ c")),
            ("https://two.org/", Some("anonymous:guest")),
            ("http://two.org.evil.org:8443/", Some("anonymous:guest")),
            ("http://evil.org/", Some("anonymous:guest")),
            ("http://[::1]/", Some("six:6")),
            ("http://[::1]:81/", Some("anonymous:guest")),
            ("http://[::2]:81/", Some("s:#2")),
            ("http://none.org/", None),
        ] {
            let user = user(FILE, &Url::parse(url).unwrap()).unwrap();
            assert_eq!(user.as_deref(), expected, "{url}");
        }
        let url = Url::parse("http://none.org/").unwrap();
        assert_eq!(user("", &url), Ok(None));
    }

    #[test]
    fn a_line_that_is_not_valid_is_named() {
        let url = Url::parse("http://one.org/").unwrap();
        for (text, line) in [
            ("secret", 1),
            ("login me", 1),
            ("\nmachine one.org pass word", 2),
            ("machine one.org login me\npassword \"open", 2),
            ("machine one.org\nlogin", 2),
            ("machine", 1),
        ] {
            assert_eq!(user(text, &url), Err(line), "{text}");
        }
    }
}
