//! Strings that many events share: functions, work queues, file names.

use std::collections::HashMap;
use std::sync::Arc;

/// An interned string of one trace; [`Names::get`] gives the text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(u32);

impl Name {
    /// Index of the name among the strings of its trace.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The strings of one trace, each stored once, so that events stay small and `Copy`.
#[derive(Clone, Debug, Default)]
pub struct Names {
    texts: Vec<Arc<str>>,
    bytes: usize,
    index: HashMap<Arc<str>, Name>,
}

impl Names {
    /// The name for `text`, created on first use.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(&name) = self.index.get(text) {
            return name;
        }
        let text: Arc<str> = text.into();
        let name = Name(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.bytes += text.len();
        self.texts.push(text.clone());
        self.index.insert(text, name);
        name
    }

    /// The text; empty for a name from another trace.
    pub fn get(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// All strings with their names.
    pub fn iter(&self) -> impl Iterator<Item = (Name, &str)> {
        let texts = self.texts.iter().enumerate();
        texts.map(|(index, text)| (Name(index as u32), &**text))
    }

    /// Total size in bytes of all strings, including the overhead of each.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.texts.len() * 64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_one_name() {
        let mut names = Names::default();
        let a = names.intern("erofs_worker");
        assert_eq!(names.intern("erofs_worker"), a);
        assert_ne!(names.intern("events"), a);
        assert_eq!(names.get(a), "erofs_worker");
    }
}
