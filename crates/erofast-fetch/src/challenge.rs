//! How a registry demands credentials: the header `WWW-Authenticate` (RFC 9110), and tokens as
//! specified by the distribution project.

use remote_image::Options;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;

use crate::answer::{body, refused};
use crate::endpoint::check_scheme;
use crate::failure::Failure;

/// Size limit of a token server's answer, in bytes.
const LONGEST: usize = 1 << 20;

/// The credentials that a registry demands.
#[derive(Debug, PartialEq, Eq)]
pub enum Challenge {
    /// User and password.
    Basic,
    /// A token, which is requested from `realm` with these parameters.
    Bearer {
        realm: String,
        parameters: Vec<(String, String)>,
    },
}

#[derive(Deserialize)]
struct Answer {
    token: Option<String>,
    access_token: Option<String>,
}

impl Challenge {
    /// The challenge to answer: preferably one for a token, which may be available without a
    /// password.
    pub fn read(headers: &HeaderMap) -> Option<Challenge> {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let understood = values.filter_map(|value| Challenge::parse(value.to_str().ok()?));
        understood.max_by_key(|challenge| *challenge != Challenge::Basic)
    }

    fn parse(text: &str) -> Option<Challenge> {
        let (scheme, rest) = text.split_once(' ')?;
        if scheme.eq_ignore_ascii_case("basic") {
            return Some(Challenge::Basic);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let mut parameters = parameters(rest);
        let realm = parameters.iter().position(|(name, _)| name == "realm")?;
        let (_, realm) = parameters.remove(realm);
        parameters.retain(|(name, _)| name == "service" || name == "scope");
        Some(Challenge::Bearer { realm, parameters })
    }

    /// The value of the header `Authorization` that answers this challenge. `remedy` says what to
    /// do if `user` is missing or refused.
    pub async fn answer(
        &self,
        client: &Client,
        user: Option<HeaderValue>,
        options: &Options,
        remedy: String,
    ) -> Result<HeaderValue, Failure> {
        match self {
            Challenge::Basic => user.ok_or_else(|| {
                Failure::lasting(format!("the registry requires a login; {remedy}"))
            }),
            Challenge::Bearer { realm, parameters } => {
                let realm = Url::parse_with_params(realm, parameters);
                let realm = realm.map_err(|_| Failure::new("the URL for tokens is not valid"))?;
                let host = format!("token from {}", realm.host_str().unwrap_or_default());
                check_scheme(&realm, options).map_err(|failure| failure.about(&host))?;
                let token = token(client, realm, user, remedy).await;
                token.map_err(|failure| failure.about(host))
            }
        }
    }
}

async fn token(
    client: &Client,
    realm: Url,
    user: Option<HeaderValue>,
    remedy: String,
) -> Result<HeaderValue, Failure> {
    let mut request = client.get(realm);
    if let Some(user) = user {
        request = request.header(AUTHORIZATION, user);
    }
    let response = request.send().await?;
    if response.status() != StatusCode::OK {
        return Err(refused(&response, Some(remedy)));
    }
    let answer: Option<Answer> = serde_json::from_slice(&body(response, LONGEST).await?).ok();
    let token = answer.and_then(|answer| answer.token.or(answer.access_token));
    let value = token.and_then(|token| secret(&format!("Bearer {token}")));
    value.ok_or_else(|| Failure::new("the response contains no token"))
}

/// A header value that is not shown in logs; `None` if the text cannot be sent in a header.
pub fn secret(text: &str) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Parses `name="value"` or `name=value`, separated by commas.
fn parameters(mut text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    while let Some((name, rest)) = text.split_once('=') {
        let (value, rest) = match rest.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => rest.split_once(',').unwrap_or((rest, "")),
        };
        let name = name.trim_matches([',', ' ']).to_ascii_lowercase();
        found.push((name, value.trim().to_owned()));
        text = rest;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_preferred_to_a_password() {
        let mut headers = HeaderMap::new();
        for value in [
            "Basic realm=\"x\"",
            "Bearer realm=\"https://a/t\"",
            "Basic realm=\"y\"",
        ] {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_static(value));
        }
        let bearer = matches!(Challenge::read(&headers), Some(Challenge::Bearer { .. }));
        assert!(bearer);
    }

    #[test]
    fn challenges_are_read_as_registries_write_them() {
        let bearer = |realm: &str, parameters: &[(&str, &str)]| {
            let owned = |(name, value): &(&str, &str)| ((*name).into(), (*value).into());
            let parameters = parameters.iter().map(owned).collect();
            Some(Challenge::Bearer {
                realm: realm.into(),
                parameters,
            })
        };
        let scope = ("scope", "repository:a/b:pull,push");
        for (text, expected) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("Negotiate", None),
            ("Digest realm=\"x\"", None),
            ("Bearer service=\"x\"", None),
            ("bearer realm=https://a/t", bearer("https://a/t", &[])),
            (
                "Bearer realm=\"https://a/t?x=1\", service=\"s\" \
                 ,scope=\"repository:a/b:pull,push\",\
                 error=\"invalid_token\"",
                bearer("https://a/t?x=1", &[("service", "s"), scope]),
            ),
        ] {
            assert_eq!(Challenge::parse(text), expected, "{text}");
        }
    }
}
