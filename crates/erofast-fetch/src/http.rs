//! Requests to a server: credentials, redirects, and checks of the answers.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::time::Instant;

use remote_image::message::Identity;
use remote_image::{ImageUrl, Options};
use reqwest::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderName,
    HeaderValue, IF_RANGE, LAST_MODIFIED, LOCATION, RANGE,
};
use reqwest::{Client, Response, StatusCode, Url};

use crate::answer::{refused, text};
use crate::connections::Connections;
use crate::credentials::Credentials;
use crate::endpoint;
use crate::failure::{Failure, ensure, is_of_tls};

const REDIRECTS: usize = 10;
/// Maximum size of an image. Readers keep a bit for each block, so the size that a server announces
/// must be limited.
const LONGEST: u64 = 16 << 40;
/// Maximum length of an ETag or a date, in bytes.
const LONGEST_TAG: usize = 1 << 10;

/// A server, as used for fetching one source.
#[derive(Debug)]
pub struct Server {
    client: Client,
    url: Url,
    /// Sent only to the origin of `url`.
    credentials: Rc<Credentials>,
    /// Where redirects led, until a request there fails.
    location: RefCell<Option<Url>>,
}

impl Server {
    /// Creates the server without connecting.
    pub fn new(
        source: &ImageUrl,
        options: &Options,
        connections: &Connections,
    ) -> Result<Server, Failure> {
        let reference = source.reference();
        let url = match &reference {
            Some(reference) => endpoint::manifest(reference, options)?,
            None => Url::parse(source.url()).map_err(Failure::lasting)?,
        };
        Ok(Server {
            client: connections.client(options)?,
            credentials: Rc::new(Credentials::new(options, &url, reference.is_some())),
            url,
            location: RefCell::new(None),
        })
    }

    /// The same registry, for fetching another blob.
    pub fn blob(&self, digest: &str) -> Result<Server, Failure> {
        Ok(Server {
            client: self.client.clone(),
            url: endpoint::blob(&self.url, digest)?,
            credentials: Rc::clone(&self.credentials),
            location: RefCell::new(None),
        })
    }

    /// Whether the registry speaks TLS although it was contacted without it, or the other way
    /// round. No credentials are sent.
    pub async fn answers_otherwise(&self) -> Result<bool, Failure> {
        let scheme = if self.is_plain() { "https" } else { "http" };
        let url = format!("{scheme}://{}/v2/", self.url.authority());
        let url = Url::parse(&url).map_err(Failure::lasting)?;
        Ok(match self.client.get(url).send().await {
            Ok(_) => true,
            Err(error) => self.is_plain() && is_of_tls(&error),
        })
    }

    /// Whether the server is contacted without TLS.
    pub fn is_plain(&self) -> bool {
        self.url.scheme() == "http"
    }

    /// For a registry: the `NAME` in `/v2/NAME/manifests/VERSION`.
    pub fn repository(&self) -> &str {
        let path = self.url.path().strip_prefix("/v2/").unwrap_or_default();
        let mut parts = path.rsplitn(3, '/');
        parts.nth(2).unwrap_or(path)
    }

    /// Requests a file next to the URL.
    pub async fn get_beside(&self, name: &str, headers: &HeaderMap) -> Result<Response, Failure> {
        let url = self.url.join(name).map_err(Failure::lasting)?;
        Ok(self.follow(url, headers).await?.1)
    }

    /// Requests bytes; if `identity` is given, bytes of that image only.
    pub async fn get(
        &self,
        bytes: &Range<u64>,
        identity: Option<&Identity>,
    ) -> Result<Response, Failure> {
        let found = self.location.borrow().clone();
        let url = found.unwrap_or_else(|| self.url.clone());
        let sent = Instant::now();
        let followed = self.follow(url, &wanted(bytes, identity)?).await;
        let (url, mut response) = followed.inspect_err(|_| self.forget_location())?;
        let answered = Instant::now();
        response.extensions_mut().insert(Times { sent, answered });
        self.settle(url, response)
    }

    /// Notes that a request failed, perhaps because of the server to which redirects led: the next
    /// request goes to the original server again.
    pub fn forget_location(&self) {
        self.location.take();
    }

    /// Follows redirects; returns the final URL and the answer.
    async fn follow(&self, mut url: Url, headers: &HeaderMap) -> Result<(Url, Response), Failure> {
        for _ in 0..REDIRECTS {
            let response = self.send(&url, headers).await?;
            if !is_redirect(response.status()) {
                return Ok((url, response));
            }
            url = next(&url, response.headers())?;
        }
        let line = format!("more than {REDIRECTS} redirects");
        Err(Failure::lasting(line))
    }

    /// Sends a request, and repeats it if the server refuses the credentials and different ones are
    /// available.
    async fn send(&self, url: &Url, headers: &HeaderMap) -> Result<Response, Failure> {
        let get = || self.client.get(url.clone()).headers(headers.clone());
        if url.origin() != self.url.origin() {
            return Ok(get().send().await?);
        }
        let used = self.credentials.headers()?;
        let response = get().headers(used.clone()).send().await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        let credentials = &self.credentials;
        match credentials.renew(&self.client, &used, &response).await? {
            true => Ok(get().headers(credentials.headers()?).send().await?),
            false => Ok(response),
        }
    }

    /// Checks that an answer has the requested content, and remembers the URL to which redirects
    /// led.
    fn settle(&self, url: Url, response: Response) -> Result<Response, Failure> {
        let status = response.status();
        let answered = [StatusCode::OK, StatusCode::PARTIAL_CONTENT].contains(&status);
        let moved = url != self.url && answered;
        *self.location.borrow_mut() = moved.then_some(url);
        if !answered {
            return Err(self.refused(&response));
        }
        match response.headers().get(CONTENT_ENCODING) {
            Some(encoding) if encoding != "identity" => {
                Err(Failure::new("the server sent compressed data"))
            }
            _ => Ok(response),
        }
    }

    /// The failure for an unexpected answer.
    pub fn refused(&self, response: &Response) -> Failure {
        let ours = response.url().origin() == self.url.origin();
        refused(response, ours.then(|| self.credentials.remedy()))
    }
}

/// When a request was sent, and when its answer began.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    pub sent: Instant,
    pub answered: Instant,
}

impl Times {
    /// The times of an answer.
    pub fn of(response: &Response) -> Option<Times> {
        response.extensions().get().copied()
    }
}

/// The headers of a request for bytes.
fn wanted(bytes: &Range<u64>, identity: Option<&Identity>) -> Result<HeaderMap, Failure> {
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| Failure::new("no header"));
    let mut headers = HeaderMap::from_iter([
        (
            RANGE,
            value(&format!("bytes={}-{}", bytes.start, bytes.end - 1))?,
        ),
        (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
    ]);
    if let Some(validator) = identity.and_then(validator) {
        headers.insert(IF_RANGE, value(validator)?);
    }
    Ok(headers)
}

fn is_redirect(status: StatusCode) -> bool {
    [301, 302, 303, 307, 308].contains(&status.as_u16())
}

fn next(url: &Url, headers: &HeaderMap) -> Result<Url, Failure> {
    let location = text(headers, LOCATION)
        .ok_or_else(|| Failure::lasting("a redirect without a Location header"))?;
    let wrong = |error| Failure::lasting(format!("a redirect: {error}"));
    let next = url.join(&location).map_err(wrong)?;
    let (from, to) = (url.scheme(), next.scheme());
    let is_safe = to == "https" || (from, to) == ("http", "http");
    ensure!(is_safe, "a redirect to {to}:// is not followed");
    Ok(next)
}

/// The value for If-Range: a strong tag, or the date.
fn validator(identity: &Identity) -> Option<&str> {
    let etag = identity.etag.as_deref();
    let strong = etag.filter(|etag| !etag.starts_with("W/"));
    strong.or(identity.modified.as_deref())
}

/// The identity of the image to which an answer belongs.
pub fn identity(response: &Response) -> Result<Identity, Failure> {
    let headers = response.headers();
    let length = match response.status() == StatusCode::PARTIAL_CONTENT {
        true => content_range(headers).map(|(_, length)| length),
        false => text(headers, CONTENT_LENGTH).and_then(|value| value.parse().ok()),
    };
    let none = || Failure::new("the server did not send the length of the image");
    let length = length.ok_or_else(none)?;
    ensure!(
        length <= LONGEST,
        "the server announced {length} bytes; the limit is 16 TiB"
    );
    Ok(Identity {
        length,
        etag: validator_of(headers, ETAG, "an ETag")?,
        modified: validator_of(headers, LAST_MODIFIED, "a Last-Modified")?,
        ..Identity::default()
    })
}

/// A validator, which must fit into a packet and into the cache's record of the image.
fn validator_of(
    headers: &HeaderMap,
    name: HeaderName,
    what: &str,
) -> Result<Option<String>, Failure> {
    let value = text(headers, name);
    let bytes = value.as_ref().map_or(0, String::len);
    ensure!(
        bytes <= LONGEST_TAG,
        "the server sent {what} of {bytes} bytes; the limit is {LONGEST_TAG}"
    );
    Ok(value)
}

/// Checks that an answer is from this image. A partial answer may omit the date, but not the ETag
/// (RFC 9110, 15.3.7). Validators of blobs are ignored, since copies of a blob may have different
/// ones; its digest is compared later.
pub fn check_identity(response: &Response, known: &Identity) -> Result<(), Failure> {
    let found = identity(response)?;
    let differs = |found: &Option<String>, known| found.is_some() && found != known;
    match () {
        () if found.length != known.length => {
            let what = format!("{} bytes, previously {}", found.length, known.length);
            Err(Failure::changed(&what))
        }
        () if known.digest.is_some() => Ok(()),
        () if known.etag.is_some() && found.etag.is_none() => Err(Failure::changed("no ETag")),
        () if differs(&found.etag, &known.etag) => Err(Failure::changed("a different ETag")),
        () if differs(&found.modified, &known.modified) => {
            Err(Failure::changed("a different Last-Modified"))
        }
        () => Ok(()),
    }
}

/// Checks that an answer contains exactly the requested bytes.
pub fn check_range(response: &Response, bytes: &Range<u64>) -> Result<(), Failure> {
    let headers = response.headers();
    let range = content_range(headers).map(|(range, _)| range);
    if range.as_ref() != Some(bytes) {
        return Err(Failure::new("the server answered with a different range"));
    }
    match text(headers, CONTENT_LENGTH).and_then(|value| value.parse::<u64>().ok()) {
        Some(length) if length != bytes.end - bytes.start => {
            Err(Failure::new(format!("the server announced {length} bytes")))
        }
        _ => Ok(()),
    }
}

/// `bytes FIRST-LAST/LENGTH`.
fn content_range(headers: &HeaderMap) -> Option<(Range<u64>, u64)> {
    let value = text(headers, CONTENT_RANGE)?;
    let (range, length) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
    let length = length.parse().ok()?;
    (first <= last && last < length).then(|| (first..last + 1, length))
}
