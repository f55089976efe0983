//! The proxy of the environment.

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::{Client, ClientBuilder, Url};

/// A client that asks through it.
pub fn client() -> ClientBuilder {
    match is_off() {
        true => Client::builder().no_proxy(),
        false => Client::builder(),
    }
}

/// Host and port of the proxy that is asked for a URL; none: the server itself is.
pub fn of(url: &Url) -> Option<String> {
    let url = url.as_str().parse().ok()?;
    let proxy = Matcher::from_env().intercept(&url).filter(|_| !is_off())?;
    let (host, port) = (proxy.uri().host()?, proxy.uri().port_u16());
    Some(port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}")))
}

/// Whether the environment wants no host to be asked through a proxy. Curl understands an asterisk
/// so; reqwest takes it for names alone.
fn is_off() -> bool {
    let set = |name| std::env::var(name).ok();
    let hosts = set("no_proxy").or_else(|| set("NO_PROXY"));
    hosts.is_some_and(|hosts| hosts.trim() == "*")
}
