//! Why a request to the server failed.

use std::error::Error;
use std::io;
use std::time::Duration;

use remote_image::Options;
use rustls::CertificateError::UnknownIssuer;
use tokio::time::error::Elapsed;
use tokio::time::timeout;

use crate::proxy;

/// Message if https:// or oci:// leads to a server without TLS.
pub const NO_TLS: &str =
    "the server does not speak TLS (use http://, or oci.plain_http=on for a registry)";

/// Approximate limit of a line, in bytes.
const LONGEST: usize = 1000;

/// Appended to the message about a certificate whose issuer is not trusted.
const UNKNOWN: &str = " (http.ca_file= names certificates to trust)";

/// One line without secrets, and how to treat the failure.
#[derive(Debug, Clone, Default)]
pub struct Failure {
    /// The line without the URL, which the caller puts in front of it.
    pub text: String,
    /// Whether a different image is at the URL now, so that retrying is useless.
    pub changed: bool,
    /// Whether retrying would fail again.
    pub lasting: bool,
    /// Whether there is nothing at the URL.
    pub missing: bool,
    /// Whether one side did not understand the other, perhaps because only one of them speaks TLS.
    pub garbled: bool,
    /// Whether the time ran out before there was an answer.
    pub late: bool,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

/// Returns a permanent failure with this text, unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err($crate::failure::Failure::lasting(format!($($text)*)));
        }
    };
}
pub(crate) use ensure;

/// The result of a query whose answer must be complete within the time limit.
pub async fn in_time<T>(
    options: &Options,
    asked: impl Future<Output = Result<T, Failure>>,
) -> Result<T, Failure> {
    let late = |_| Failure {
        late: true,
        ..Failure::lasting("the response arrived too slowly")
    };
    timeout(options.timeout, asked).await.map_err(late)?
}

impl Failure {
    /// A failure that may be temporary. Parts of the text may come from a server.
    pub fn new(text: impl AsRef<str>) -> Failure {
        Failure {
            text: one_line(text.as_ref()),
            ..Failure::default()
        }
    }

    /// A permanent failure.
    pub fn lasting(text: impl ToString) -> Failure {
        Failure {
            lasting: true,
            ..Failure::new(text.to_string())
        }
    }

    /// Whether the server has not said which image it has, but may still do so.
    pub fn is_of_absence(&self) -> bool {
        !self.lasting || self.late
    }

    /// Too few bytes arrived in time.
    pub fn drips(_: Elapsed) -> Failure {
        Failure::new("the server did not send a block of 16 KiB in time")
    }

    /// A failure because a different image is at the URL now.
    pub fn changed(what: &str) -> Failure {
        let text = format!("the image changed on the server ({what})");
        Failure {
            changed: true,
            ..Failure::lasting(text)
        }
    }

    /// Puts the subject of the message in front of its text.
    pub fn about(self, what: impl std::fmt::Display) -> Failure {
        Failure {
            text: format!("{what}: {}", self.text),
            ..self
        }
    }
}

/// The failure if a blob does not have the length that the manifest states.
pub fn other_length(found: u64, stated: u64) -> Failure {
    Failure::lasting(format!(
        "the blob has {found} bytes, but the manifest says {stated}"
    ))
}

impl From<reqwest::Error> for Failure {
    /// The innermost errors say what happened; none of them contains the URL's query.
    fn from(error: reqwest::Error) -> Failure {
        let through = error.url().and_then(proxy::of);
        let through =
            through.map_or_else(String::new, |proxy| format!(" through the proxy {proxy}"));
        let error = error.without_url();
        let mut text = match () {
            () if error.is_timeout() => format!("the server did not answer in time{through}"),
            () if error.is_connect() => format!("no connection{through}"),
            () => "the response was cut off".to_owned(),
        };
        let mut cause = error.source();
        let (mut certificate, mut unknown) = (false, false);
        let mut garbled = !error.is_connect() && !error.is_timeout();
        while let Some(error) = cause {
            let tls = tls(error);
            if let Some(rustls::Error::InvalidMessage(_)) = tls {
                return Failure::lasting(NO_TLS);
            }
            certificate |= tls.is_some();
            unknown |= matches!(tls, Some(rustls::Error::InvalidCertificate(UnknownIssuer)));
            garbled |= broke_off(error);
            cause = error.source();
            if cause.is_none() {
                text = format!("{text}: {error}").replace('\n', " ");
            }
        }
        if unknown {
            text += UNKNOWN;
        }
        Failure {
            lasting: certificate,
            garbled: garbled && !certificate,
            ..Failure::new(text)
        }
    }
}

/// A connection error, and the errors nested inside it.
fn nested<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        let inside = error.downcast_ref::<io::Error>()?.get_ref()?;
        Some(inside as &(dyn Error + 'static))
    })
}

/// Whether a server ended a connection that it had accepted.
fn broke_off(error: &(dyn Error + 'static)) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    let mut errors = nested(error).filter_map(|error| error.downcast_ref::<io::Error>());
    errors.any(|error| [BrokenPipe, ConnectionReset, UnexpectedEof].contains(&error.kind()))
}

/// Whether the server that caused an error speaks TLS.
pub fn is_of_tls(error: &reqwest::Error) -> bool {
    let causes = std::iter::successors(error.source(), |&error| error.source());
    let mut errors = causes.filter_map(tls);
    errors.any(|error| !matches!(error, rustls::Error::InvalidMessage(_)))
}

/// Escapes what a terminal would interpret, and truncates the text to a readable length.
fn one_line(text: &str) -> String {
    let mut line = String::new();
    for char in text.chars() {
        match char.is_ascii() && !char.is_ascii_control() || char.is_alphanumeric() {
            true => line.push(char),
            false => line.extend(char.escape_debug()),
        }
        if line.len() > LONGEST {
            return line + "...";
        }
    }
    line
}

/// A TLS error, which may be nested inside other connection errors.
fn tls<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e rustls::Error> {
    nested(error).last()?.downcast_ref()
}
