//! Writes a profile as the bytes of its file.

use crate::format::{CHECKSUM_AT, HEADER_BYTES, MAGIC, VERSION, checksum};
use crate::profile::{Name, Profile};

impl Profile {
    /// The bytes of the file. What exceeds the [limits](crate::limits) has to be left out before
    /// (see [`Profile::trim`]): the reader refuses it.
    pub fn to_bytes(&self) -> Vec<u8> {
        let body = self.body();
        let mut file = Vec::with_capacity(HEADER_BYTES + body.len());
        file.extend(MAGIC);
        file.extend(VERSION.to_le_bytes());
        file.extend([0; 2]);
        file.extend((body.len() as u32).to_le_bytes());
        file.extend(self.image.to_bytes());
        debug_assert_eq!(file.len(), CHECKSUM_AT);
        let checksum = checksum(&file, &body);
        file.extend(checksum.to_le_bytes());
        file.extend(body);
        file
    }

    fn body(&self) -> Vec<u8> {
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
