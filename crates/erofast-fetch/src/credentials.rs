//! Credentials, which are sent only to the origin of the URL: headers from files, and registry
//! tokens.

use std::cell::RefCell;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine};
use remote_image::Options;
use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName,
    HeaderValue, IF_RANGE, RANGE, TRANSFER_ENCODING,
};
use reqwest::{Client, Response, Url};
use tokio::sync::Mutex;

use crate::challenge::{Challenge, secret};
use crate::failure::{Failure, ensure, in_time};
use crate::logins::{self, Login};
use crate::netrc;
use crate::small_file::read;

/// Headers that the fetcher itself sets.
const OWN: [HeaderName; 7] = [
    ACCEPT_ENCODING,
    CONNECTION,
    CONTENT_LENGTH,
    HOST,
    IF_RANGE,
    RANGE,
    TRANSFER_ENCODING,
];

/// How to specify credentials.
const NAMES: &str = "give credentials with http.user_file=, http.token_file= or http.netrc_file=";

/// Credentials sent with each request.
#[derive(Debug)]
pub struct Credentials {
    options: Options,
    url: Url,
    /// Whether the server is a registry, which says what credentials it wants; a web server is sent
    /// all of them immediately.
    registry: bool,
    /// `None` until the files have been read successfully.
    headers: RefCell<Option<HeaderMap>>,
    renewal: Mutex<()>,
}

impl Credentials {
    /// The credentials from the files, for the origin of `url`. Reads nothing yet.
    pub fn new(options: &Options, url: &Url, registry: bool) -> Credentials {
        Credentials {
            options: options.clone(),
            url: url.clone(),
            registry,
            headers: RefCell::default(),
            renewal: Mutex::new(()),
        }
    }

    /// Advice for a message: what to do if there are no credentials, or if those from the files are
    /// insufficient.
    pub fn remedy(&self) -> String {
        let own = self.options.credential_files();
        let files: Vec<_> = own.map(|path| path.display().to_string()).collect();
        let host = self.url.authority();
        match self.kept_login() {
            Some(Login::User(_, path)) => {
                return format!("the login for {host} from {} was rejected", path.display());
            }
            Some(Login::Unusable(why)) => return format!("{why}; {NAMES}"),
            None => {}
        }
        match &self.options.netrc_file {
            _ if !files.is_empty() => {
                format!("the credentials from {} were rejected", files.join(", "))
            }
            Some(path) if matches!(user(&self.options, &self.url), Ok(Some(_))) => {
                format!("the login for {host} from {} was rejected", path.display())
            }
            Some(path) => format!("{} has no login for {host}", path.display()),
            None if self.registry => {
                format!("{NAMES}, or log in to {host} with podman or docker")
            }
            None => NAMES.into(),
        }
    }

    /// The current headers.
    pub fn headers(&self) -> Result<HeaderMap, Failure> {
        if self.headers.borrow().is_none() {
            self.headers.replace(Some(self.read_files()?));
        }
        Ok(self.headers.borrow().clone().unwrap_or_default())
    }

    /// User and password, for a registry that asks for them.
    fn user(&self) -> Result<Option<HeaderValue>, Failure> {
        let named = user(&self.options, &self.url)?;
        Ok(named.or_else(|| match self.kept_login()? {
            Login::User(user, _) => secret(&basic(&user)),
            Login::Unusable(_) => None,
        }))
    }

    /// A registry login stored by another program, if the options name no credentials.
    fn kept_login(&self) -> Option<Login> {
        let (files, netrc) = (self.options.credential_files(), &self.options.netrc_file);
        let is_named = files.chain(netrc).next().is_some();
        logins::find(&self.url).filter(|_| self.registry && !is_named)
    }

    fn read_files(&self) -> Result<HeaderMap, Failure> {
        let has_both = self.options.token_file.is_some() && self.options.user_file.is_some();
        ensure!(
            !has_both,
            "http.token_file= and http.user_file= exclude each other"
        );
        let mut headers = from_files(&self.options)?;
        if !self.registry
            && let Some(user) = user(&self.options, &self.url)?
        {
            headers.entry(AUTHORIZATION).or_insert(user);
        }
        Ok(headers)
    }

    /// Called after a request with the headers `used` was answered with 401: returns whether
    /// different credentials are available now. The files may have been rewritten, and a registry
    /// says where to get a token. Simultaneous requests share one renewal.
    pub async fn renew(
        &self,
        client: &Client,
        used: &HeaderMap,
        answer: &Response,
    ) -> Result<bool, Failure> {
        let _one = self.renewal.lock().await;
        if self.headers()? == *used {
            let wanted = Challenge::read(answer.headers()).filter(|_| self.registry);
            let mut new = self.read_files()?;
            if let Some(challenge) = wanted.filter(|_| self.options.token_file.is_none()) {
                let user = self.user()?;
                let answer = challenge.answer(client, user, &self.options, self.remedy());
                let answer = in_time(&self.options, answer).await?;
                new.insert(AUTHORIZATION, answer);
            }
            self.headers.replace(Some(new));
        }
        Ok(self.headers()? != *used)
    }
}

/// The headers and the token from the files, marked as sensitive.
fn from_files(options: &Options) -> Result<HeaderMap, Failure> {
    let mut headers = HeaderMap::new();
    if let Some(path) = &options.header_file {
        for (number, line) in (1..).zip(read("header", path)?.lines()) {
            let wrong = |why| Failure::lasting(format!("{}:{number}: {why}", path.display()));
            if line.trim().is_empty() {
                continue;
            }
            let none = || wrong("not a header 'Name: value'".into());
            let (name, value) = header(line).ok_or_else(none)?;
            if OWN.contains(&name) {
                return Err(wrong(format!("{name} is set by erofast")));
            }
            headers.append(name, value);
        }
    }
    if let Some(path) = &options.token_file {
        let token = authorization("token", path, |token| format!("Bearer {token}"))?;
        headers.insert(AUTHORIZATION, token);
    }
    Ok(headers)
}

/// User and password from their own file, or else from the host's entry in the netrc file.
fn user(options: &Options, url: &Url) -> Result<Option<HeaderValue>, Failure> {
    if let Some(path) = &options.user_file {
        return authorization("user", path, basic).map(Some);
    }
    let Some(path) = &options.netrc_file else {
        return Ok(None);
    };
    let user = netrc::user(&read("netrc", path)?, url).map_err(|line| {
        Failure::lasting(format!("{}:{line}: not in netrc format", path.display()))
    })?;
    Ok(user.and_then(|user| secret(&basic(&user))))
}

fn basic(user: &str) -> String {
    format!("Basic {}", BASE64_STANDARD.encode(user))
}

fn header(line: &str) -> Option<(HeaderName, HeaderValue)> {
    let (name, value) = line.split_once(':')?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
    Some((name, secret(value.trim())?))
}

fn authorization(
    option: &str,
    path: &Path,
    scheme: impl Fn(&str) -> String,
) -> Result<HeaderValue, Failure> {
    let value = secret(&scheme(read(option, path)?.trim()));
    value.ok_or_else(|| Failure::lasting(format!("{}: must be one line of text", path.display())))
}
