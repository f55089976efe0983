//! Writes a profile as bytes: LEB128 numbers, and byte strings with their length before them. Four
//! lists, each with its length before it:
//!
//! | list | one entry |
//! | --- | --- |
//! | directories | parent + 1 in this list (0: the mount's root), 1 if listed as a whole, name |
//! | files | directory + 1, nid, size, name |
//! | other names | directory + 1, name |
//! | windows | file, number of the window, bit map of its pages, milliseconds since the last one |

use crate::profile::{Name, Profile};

impl Profile {
    /// What exceeds the [limits](crate::limits) has to be left out before (see [`Profile::trim`]):
    /// the reader refuses it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut body = Vec::new();
        number(&mut body, self.directories.len() as u64);
        for directory in &self.directories {
            place(&mut body, directory.parent);
            number(&mut body, directory.listed.into());
            string(&mut body, &directory.name);
        }
        number(&mut body, self.files.len() as u64);
        for file in &self.files {
            place(&mut body, file.name.directory);
            number(&mut body, file.nid);
            number(&mut body, file.size);
            string(&mut body, &file.name.name);
        }
        number(&mut body, self.names.len() as u64);
        for Name { directory, name } in &self.names {
            place(&mut body, *directory);
            string(&mut body, name);
        }
        number(&mut body, self.windows.len() as u64);
        let mut before = 0;
        for window in &self.windows {
            number(&mut body, window.file.into());
            number(&mut body, window.number.into());
            number(&mut body, window.pages.into());
            number(&mut body, window.at_ms.saturating_sub(before).into());
            before = window.at_ms;
        }
        body
    }
}

fn place(body: &mut Vec<u8>, directory: Option<u32>) {
    number(body, directory.map_or(0, |index| u64::from(index) + 1));
}

fn string(body: &mut Vec<u8>, bytes: &[u8]) {
    number(body, bytes.len() as u64);
    body.extend(bytes);
}

fn number(body: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        body.push(value as u8 | 0x80);
        value >>= 7;
    }
    body.push(value as u8);
}
