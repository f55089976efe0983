//! POSIX ACLs as text, which is how tar stores them (`SCHILY.acl.access`, `SCHILY.acl.default`).
//!
//! The attribute's value has the format of linux/posix_acl_xattr.h: a version, then entries, each
//! consisting of a tag, permissions and an ID.

const VERSION: u32 = 2;
const ENTRY: usize = 8;

/// The key and text of the pax record for an attribute that holds an ACL; `None` for an attribute
/// that is stored like any other.
pub fn record(name: &[u8], value: &[u8]) -> Option<(&'static str, String)> {
    let key = match name {
        b"system.posix_acl_access" => "SCHILY.acl.access",
        b"system.posix_acl_default" => "SCHILY.acl.default",
        _ => return None,
    };
    Some((key, text(value)?))
}

fn text(value: &[u8]) -> Option<String> {
    let (version, entries) = value.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() % ENTRY != 0 {
        return None;
    }
    let entries: Option<Vec<String>> = entries.chunks_exact(ENTRY).map(entry).collect();
    Some(entries?.join(","))
}

/// Formats `TAG:NAME:rwx`. The ID replaces the name and is repeated after the permissions, as in
/// star; libarchive reads it there, and GNU tar omits it.
fn entry(bytes: &[u8]) -> Option<String> {
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let id = u32::from_le_bytes(*bytes.last_chunk()?);
    let (kind, named) = match half(0) {
        0x01 => ("user", false),
        0x02 => ("user", true),
        0x04 => ("group", false),
        0x08 => ("group", true),
        0x10 => ("mask", false),
        0x20 => ("other", false),
        _ => return None,
    };
    let letter = |bit: u16, letter| if half(2) & bit == 0 { '-' } else { letter };
    let rights: String = [letter(4, 'r'), letter(2, 'w'), letter(1, 'x')]
        .iter()
        .collect();
    Some(match named {
        true => format!("{kind}:{id}:{rights}:{id}"),
        false => format!("{kind}::{rights}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut value = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            value.extend(tag.to_le_bytes());
            value.extend(rights.to_le_bytes());
            value.extend(id.to_le_bytes());
        }
        value
    }

    #[test]
    fn an_acl_is_text_with_its_ids() {
        let none = u32::MAX;
        let entries = [
            (1, 7, none),
            (2, 4, 1000),
            (4, 5, none),
            (8, 6, 7),
            (16, 7, none),
            (32, 0, none),
        ];
        let (key, text) = record(b"system.posix_acl_access", &value(&entries)).expect("an ACL");
        assert_eq!(key, "SCHILY.acl.access");
        assert_eq!(
            text,
            "user::rwx,user:1000:r--:1000,group::r-x,group:7:rw-:7,mask::rwx,other::---"
        );
    }

    #[test]
    fn what_is_no_acl_is_kept_as_it_is() {
        assert_eq!(record(b"user.a", &value(&[])), None);
        for broken in [
            &b""[..],
            &[2, 0, 0],
            &value(&[(3, 7, 0)]),
            &value(&[(1, 7, 0)])[..11],
        ] {
            assert_eq!(record(b"system.posix_acl_default", broken), None);
        }
    }
}
