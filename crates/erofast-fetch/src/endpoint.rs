//! The URLs of a registry, and whether they use TLS.

use remote_image::Options;
use remote_image::registry::Reference;
use reqwest::Url;

use crate::failure::{Failure, ensure};

/// The URL of the reference's manifest. If the reference has the digest of a blob, [`blob`] derives
/// the URL of the blob from this one.
pub fn manifest(reference: &Reference, options: &Options) -> Result<Url, Failure> {
    let (registry, name) = (&reference.registry, &reference.name);
    let address = format!("{registry}/v2/{name}/manifests/{}", reference.version);
    let url = |scheme| Url::parse(&format!("{scheme}://{address}"));
    let url = url("http").and_then(|plain| match is_plain(&plain, options) {
        true => Ok(plain),
        false => url("https"),
    });
    url.map_err(Failure::lasting)
}

/// The URL of a blob in the same repository as a manifest.
pub fn blob(manifest: &Url, digest: &str) -> Result<Url, Failure> {
    let url = manifest.join(&format!("../blobs/{digest}"));
    url.map_err(Failure::lasting)
}

/// Whether a registry may be contacted without TLS.
fn is_plain(url: &Url, options: &Options) -> bool {
    options.plain_http.unwrap_or_else(|| {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    })
}

/// Checks that passwords and tokens are sent only over TLS, except to a registry that may be
/// contacted without it.
pub fn check_scheme(url: &Url, options: &Options) -> Result<(), Failure> {
    let scheme = url.scheme();
    ensure!(
        ["http", "https"].contains(&scheme),
        "no token is requested over {scheme}://"
    );
    ensure!(
        scheme == "https" || is_plain(url, options),
        "no token is requested over http:// without oci.plain_http=on"
    );
    Ok(())
}
