//! The journal's protocol: each entry is a datagram of fields, as sd_journal_send(3) sends it
//! (systemd.io/JOURNAL_NATIVE_PROTOCOL).

/// Where systemd-journald listens.
pub(crate) const SOCKET: &str = "/run/systemd/journal/socket";

/// Maximum size of a datagram in bytes. A longer entry would have to be passed as a file.
const LONGEST: usize = 64 << 10;

/// Identifies all faults for `journalctl MESSAGE_ID=...`.
const MESSAGE_ID: &str = "41c060148c7e42d2b0ab2f0a3cf3f422";

/// Fields of every entry: priority LOG_ERR and facility LOG_DAEMON of syslog(3).
const ALWAYS: &[(&str, &str)] = &[
    ("PRIORITY", "3"),
    ("SYSLOG_FACILITY", "3"),
    ("SYSLOG_IDENTIFIER", "erofast"),
    ("MESSAGE_ID", MESSAGE_ID),
];

/// Builds a datagram with a message and further fields; fields without a value are left out.
pub(crate) fn datagram(message: &str, fields: &[(&str, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    push(&mut bytes, "MESSAGE", message.as_bytes());
    for (name, value) in ALWAYS {
        push(&mut bytes, name, value.as_bytes());
    }
    for (name, value) in fields {
        if let Some(value) = value
            && bytes.len() + name.len() + value.len() < LONGEST
        {
            push(&mut bytes, name, value);
        }
    }
    bytes
}

/// Appends `NAME=value`, or the form with a length if the value has several lines.
fn push(bytes: &mut Vec<u8>, name: &str, value: &[u8]) {
    bytes.extend_from_slice(name.as_bytes());
    if value.contains(&b'\n') {
        bytes.push(b'\n');
        bytes.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        bytes.push(b'=');
    }
    bytes.extend_from_slice(value);
    bytes.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_lines_and_those_of_several_lines_have_a_length() {
        let fields = [
            ("NID", Some(b"36".to_vec())),
            ("CODEC", None),
            ("PATH", Some(b"/a\nMESSAGE=forged".to_vec())),
        ];
        let bytes = datagram("it broke", &fields);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("MESSAGE=it broke\nPRIORITY=3\n"), "{text}");
        assert!(!text.contains("CODEC"), "{text}");
        let tail = b"NID=36\nPATH\n\x11\0\0\0\0\0\0\0/a\nMESSAGE=forged\n";
        assert!(bytes.ends_with(tail), "{text}");
    }

    #[test]
    fn a_datagram_is_never_too_long() {
        let fields = [
            ("PATH", Some(vec![b'x'; LONGEST])),
            ("NID", Some(b"1".to_vec())),
        ];
        let bytes = datagram("it broke", &fields);
        assert!(bytes.len() < 1000 && bytes.ends_with(b"NID=1\n"));
    }
}
