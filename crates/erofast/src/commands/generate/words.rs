//! What can be typed behind `mount -o`, and places in the scripts of clap_complete, which knows the
//! flag table only.

use anyhow::Context;
use erofs_fuse::KNOWN;

/// Replaces `old` in what follows `mark`; the scripts are those of a pinned version.
pub fn replaced(script: &str, mark: &str, old: &str, new: &str) -> anyhow::Result<String> {
    let lost = || format!("the script has no {old:?} behind {mark:?}");
    let section = script.find(mark).with_context(lost)?;
    let at = section + script[section..].find(old).with_context(lost)?;
    Ok([&script[..at], new, &script[at + old.len()..]].concat())
}

/// What can be typed: `name`, `name=`, and `name=value` for values that are words.
pub fn candidates() -> Vec<(String, &'static str)> {
    let mut all = Vec::new();
    for option in KNOWN {
        match option.usage.split_once('=') {
            Some((name, values)) => {
                let words = values
                    .split('|')
                    .filter(|v| v.chars().all(|c| c.is_lowercase()));
                let before = all.len();
                all.extend(words.map(|value| (format!("{name}={value}"), option.meaning)));
                if all.len() == before
                    || values.split('|').any(|v| v.chars().all(char::is_uppercase))
                {
                    all.push((format!("{name}="), option.meaning));
                }
            }
            None => all.push((option.usage.to_owned(), option.meaning)),
        }
    }
    all
}
