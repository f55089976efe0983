//! Sends messages to syslogd in the form that syslog(3) uses, but without a time: syslogd adds its
//! own.

/// Where syslogd listens.
pub(crate) const SOCKET: &str = "/dev/log";

/// Facility LOG_DAEMON, severity LOG_ERR.
const PRIORITY: u8 = 3 << 3 | 3;

pub(crate) fn datagram(message: &str) -> Vec<u8> {
    let pid = std::process::id();
    format!("<{PRIORITY}>erofast[{pid}]: {message}").into_bytes()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_message_has_priority_name_and_process() {
        let bytes = super::datagram("it broke");
        let expected = format!("<27>erofast[{}]: it broke", std::process::id());
        assert_eq!(bytes, expected.as_bytes());
    }
}
