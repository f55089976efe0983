//! Interprets a server's answer.

use std::time::{Duration, SystemTime};

use remote_image::launches::LONGEST;
use reqwest::header::{AsHeaderName, DATE, HeaderMap, RETRY_AFTER};
use reqwest::{Response, StatusCode};

use crate::failure::{Failure, ensure};
use crate::proxy;

/// Longest wait that Retry-After may request.
const LONGEST_HOLD: Duration = Duration::from_secs(60);

/// The failure for an answer with an unexpected status. `remedy` says what to do if credentials are
/// missing or insufficient; it is `None` if the server that answered gets no credentials.
pub fn refused(response: &Response, remedy: Option<String>) -> Failure {
    let (status, headers) = (response.status(), response.headers());
    let unauthorized = remedy.filter(|_| status == StatusCode::UNAUTHORIZED);
    let remedy = unauthorized.map_or_else(String::new, |remedy| format!("; {remedy}"));
    let again = [408, 425, 429].contains(&status.as_u16()) || status.is_server_error();
    Failure {
        lasting: !again,
        missing: [404, 410].contains(&status.as_u16()),
        garbled: status == StatusCode::BAD_REQUEST,
        retry_after: retry_after(headers, SystemTime::now()),
        ..Failure::new(format!("{} answered {status}{remedy}", answerer(response)))
    }
}

/// Who sent the answer: 407 comes from a proxy; any other status is attributed to the server.
fn answerer(response: &Response) -> String {
    let asks = response.status() == StatusCode::PROXY_AUTHENTICATION_REQUIRED;
    let proxy = proxy::of(response.url()).filter(|_| asks);
    proxy.map_or_else(
        || "the server".to_owned(),
        |proxy| format!("the proxy {proxy}"),
    )
}

/// The pause that Retry-After requests, which is a number of seconds or a date by the server's
/// clock.
fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let value = text(headers, RETRY_AFTER)?;
    let pause = match value.trim().parse() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let date = text(headers, DATE).and_then(|date| parse_date(&date));
            let until = parse_date(&value)?;
            let pause = until.duration_since(date.unwrap_or(now));
            pause.unwrap_or_default()
        }
    };
    Some(pause.min(LONGEST_HOLD))
}

fn parse_date(value: &str) -> Option<SystemTime> {
    httpdate::parse_http_date(value.trim()).ok()
}

/// The value of a header, if it is present and is text.
pub fn text(headers: &HeaderMap, name: impl AsHeaderName) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Reads an answer until it ends, or until `is_enough` says that the bytes so far suffice.
pub async fn read(
    mut response: Response,
    is_enough: impl Fn(&[u8]) -> bool,
) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    while !is_enough(&bytes)
        && let Some(chunk) = response.chunk().await?
    {
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The body of an answer, which may have at most `most` bytes.
pub async fn body(response: Response, most: usize) -> Result<Vec<u8>, Failure> {
    let body = read(response, |body| body.len() > most).await?;
    ensure!(
        body.len() <= most,
        "the response is longer than {most} bytes"
    );
    Ok(body)
}

/// The bytes of a launch profile, cut off one byte after the limit if it is too long. Reading stops
/// early if the answer does not start with `begin`.
pub async fn few(response: Response, begin: &[u8]) -> Result<Vec<u8>, Failure> {
    let is_other = |body: &[u8]| body.len() >= begin.len() && !body.starts_with(begin);
    let mut body = read(response, |body| body.len() > LONGEST || is_other(body)).await?;
    body.truncate(LONGEST + 1);
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_asks_to_wait_for_seconds_or_until_a_date_of_its_own_clock() {
        let local = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let date = Some("Mon, 07 Nov 1994 08:49:37 GMT");
        for (value, date, seconds) in [
            ("7", None, Some(7)),
            ("7", date, Some(7)),
            ("99999", None, Some(60)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", None, Some(3)),
            ("Sun, 06 Nov 1994 08:49:40 GMT", Some("today"), Some(3)),
            ("Sun, 06 Nov 1994 08:49:30 GMT", None, Some(0)),
            ("Sat, 06 Nov 2094 08:49:30 GMT", None, Some(60)),
            ("soon", None, None),
            // The local clock is a day slow, which would lead to the longest wait.
            ("Mon, 07 Nov 1994 08:49:40 GMT", date, Some(3)),
            // The local clock is fast.
            (
                "Sat, 05 Nov 1994 08:49:40 GMT",
                Some("Sat, 05 Nov 1994 08:49:37 GMT"),
                Some(3),
            ),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(RETRY_AFTER, value.parse().unwrap());
            if let Some(date) = date {
                headers.insert(DATE, date.parse().unwrap());
            }
            assert_eq!(
                retry_after(&headers, local),
                seconds.map(Duration::from_secs),
                "{value} {date:?}"
            );
        }
    }
}
