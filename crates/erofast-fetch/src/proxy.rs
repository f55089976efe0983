//! The proxy that the environment specifies.

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Client, ClientBuilder, Url};

/// A builder for a client that uses the proxy.
pub fn client() -> ClientBuilder {
    match is_off() {
        true => Client::builder().no_proxy(),
        false => Client::builder(),
    }
}

/// Host and port of the proxy used for a URL; `None` if the server is contacted directly.
pub fn of(url: &Url) -> Option<String> {
    let url = url.as_str().parse().ok()?;
    let proxy = Matcher::from_env().intercept(&url).filter(|_| !is_off())?;
    let (host, port) = (proxy.uri().host()?, proxy.uri().port_u16());
    Some(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Whether the environment disables the proxy for all hosts. Curl interprets an asterisk in
/// `no_proxy` in this way; reqwest applies it only to names.
fn is_off() -> bool {
    let set = |name| std::env::var(name).ok();
    let hosts = set("no_proxy").or_else(|| set("NO_PROXY"));
    hosts.is_some_and(|hosts| hosts.trim() == "*")
}
