//! Manifests of sums, in the format of sha256sum.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use anyhow::{Context, bail};

use crate::tools::glob;

/// The SHA-256 sum of a file.
pub type Sum = [u8; 32];

/// The expected content of an image's files: sums by path, without a leading slash or `./`.
pub type Manifest = BTreeMap<Vec<u8>, Sum>;

/// Maximum length of a line in bytes: room for the sum and a fully escaped path, even one that is
/// four times as long as a system call accepts. Longer input, such as `/dev/zero`, is not a
/// manifest.
const LONGEST_LINE: u64 = 64 << 10;

/// Maximum size of a manifest in bytes, enough for ten million files. Without a limit, a pipe that
/// never ends would be read forever.
const LONGEST: u64 = 1 << 30;

/// Reads a manifest, line by line.
///
/// # Errors
/// Names the first line that is not valid, or that repeats a file with a different sum.
pub fn read(path: &Path) -> anyhow::Result<Manifest> {
    let named = || path.display().to_string();
    let mut text = BufReader::new(File::open(path).with_context(named)?).take(LONGEST);
    let mut manifest = Manifest::new();
    let mut line = Vec::new();
    for number in 0.. {
        line.clear();
        let mut limited = (&mut text).take(LONGEST_LINE);
        if limited.read_until(b'\n', &mut line).with_context(named)? == 0 {
            break;
        }
        let line = line.strip_suffix(b"\n").unwrap_or(&line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let place = || format!("{}:{}", path.display(), number + 1);
        let Some((name, sum)) = entry(line) else {
            bail!(
                "{}: not a line of sha256sum: expected SUM, two spaces, PATH",
                place()
            );
        };
        let name = glob::normal(&name);
        if manifest
            .insert(name.clone(), sum)
            .is_some_and(|known| known != sum)
        {
            bail!(
                "{}: {} has a different sum on an earlier line",
                place(),
                crate::tools::text::name(&name)
            );
        }
    }
    if text.limit() == 0 {
        bail!("{}: longer than {LONGEST} bytes", path.display());
    }
    if manifest.is_empty() {
        bail!("{}: lists no files", path.display());
    }
    Ok(manifest)
}

/// Parses one line: `SUM PATH`, `SUM *PATH`, or `SHA256 (PATH) = SUM`; a leading backslash means
/// that the path has escapes.
fn entry(line: &[u8]) -> Option<(Vec<u8>, Sum)> {
    let (line, escaped) = match line.strip_prefix(b"\\") {
        Some(rest) => (rest, true),
        None => (line, false),
    };
    let (name, digits) = match line.strip_prefix(b"SHA256 (") {
        Some(tagged) => {
            let end = tagged.len().checked_sub(64)?;
            (tagged[..end].strip_suffix(b") = ")?, &tagged[end..])
        }
        None => {
            let (digits, rest) = line.split_at_checked(64)?;
            let name = rest
                .strip_prefix(b"  ")
                .or_else(|| rest.strip_prefix(b" *"))?;
            (name, digits)
        }
    };
    let name = if escaped {
        unescaped(name)?
    } else {
        name.to_vec()
    };
    (!name.is_empty()).then_some(())?;
    Some((name, sum(digits)?))
}

fn sum(digits: &[u8]) -> Option<Sum> {
    let mut sum = Sum::default();
    for (byte, pair) in sum.iter_mut().zip(digits.chunks(2)) {
        let digit = |at: usize| char::from(*pair.get(at)?).to_digit(16);
        *byte = (digit(0)? * 16 + digit(1)?) as u8;
    }
    (digits.len() == 64).then_some(sum)
}

fn unescaped(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            other => other,
        });
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::name::hex;

    const DIGITS: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parsed(text: &str) -> anyhow::Result<Manifest> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("room");
        read(file.path())
    }

    #[test]
    fn every_way_to_write_a_line_is_read() {
        let text = format!(
            "# made by hand\n{DIGITS}  ./a//b\n{DIGITS} */c d\r\n\\{DIGITS}  e\\nf\\\\\nSHA256 (g) \
             = {DIGITS}\n"
        );
        let manifest = parsed(&text).expect("a manifest");
        let names: Vec<&[u8]> = manifest.keys().map(Vec::as_slice).collect();
        assert_eq!(names, [&b"a/b"[..], b"c d", b"e\nf\\", b"g"]);
        assert!(manifest.values().all(|sum| hex(sum) == DIGITS));
    }

    #[test]
    fn a_line_without_an_end_is_no_line() {
        let error = read(Path::new("/dev/zero")).expect_err("no manifest");
        assert!(error.to_string().contains(":1: not a line"), "{error}");
    }

    #[test]
    fn what_is_no_line_is_named_with_its_place() {
        for (text, what) in [
            (format!("{DIGITS}  a\nx\n"), ":2: not a line"),
            (format!("{} a\n", &DIGITS[1..]), ":1: not a line"),
            (format!("{DIGITS}  \n"), ":1: not a line"),
            (
                format!("{DIGITS}  a\n{}  a\n", DIGITS.replace('e', "0")),
                ":2: a has a different sum",
            ),
            ("\n# nothing\n".to_owned(), "lists no files"),
        ] {
            let error = parsed(&text).expect_err(&text).to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
