//! What an answer of a server says.

use std::time::{Duration, SystemTime};

use reqwest::header::{AsHeaderName, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::failure::Failure;
use crate::proxy;

/// Of what Retry-After asks for.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// An answer that is not what was asked for, by its status. `remedy`: what to do where credentials
/// are missing or not enough; none: they did not go there.
pub fn refused(response: &Response, remedy: Option<String>) -> Failure {
    let (status, headers) = (response.status(), response.headers());
    let unauthorized = remedy.filter(|_| status == StatusCode::UNAUTHORIZED);
    let remedy = unauthorized.map_or_else(String::new, |remedy| format!("; {remedy}"));
    let again = [408, 425, 429].contains(&status.as_u16()) || status.is_server_error();
    Failure {
        lasting: !again,
        missing: [404, 410].contains(&status.as_u16()),
        retry_after: text(headers, RETRY_AFTER).and_then(|value| pause(&value, SystemTime::now())),
        ..Failure::new(format!("{} answers {status}{remedy}", answerer(response)))
    }
}

/// A proxy answers 407; of others it says that they are of the server.
fn answerer(response: &Response) -> String {
    let asks = response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    let proxy = proxy::of(response.url()).filter(|_| asks);
    proxy.map_or_else(
        || "the server".to_owned(),
        |proxy| format!("the proxy {proxy}"),
    )
}

/// What Retry-After says: seconds, or a date.
fn pause(value: &str, now: SystemTime) -> Option<Duration> {
    let pause = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = httpdate::parse_http_date(value.trim()).ok()?;
            date.duration_since(now).unwrap_or_default()
        }
    };
    Some(pause.min(LONGEST_HOLD))
}

/// The header as text, if it is there and is some.
pub fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// All bytes of an answer that has few.
pub async fn body(mut response: Response, most: usize) -> Result<Vec<u8>, Failure> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        body.extend_from_slice(&chunk);
        if body.len() > most {
            return Err(Failure::lasting(format!(
                "an answer of more than {most} bytes"
            )));
        }
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_to_wait_for_seconds_or_until_a_date() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (value, seconds) in [
            ("7", Some(7)),
            ("99999", Some(60)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", Some(3)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", Some(0)),
            ("Sat, 06 Nov 2094 08:49:30 GMT", Some(60)),
            ("soon", None),
        ] {
            assert_eq!(
                pause(value, now),
                seconds.map(Duration::from_secs),
                "{value}"
            );
        }
    }
}
