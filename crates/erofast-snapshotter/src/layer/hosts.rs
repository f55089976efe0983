//! Registries as described by containerd's `hosts.toml`: the hosts to ask for an image, their
//! order, and how to ask them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::reference::registry;
use crate::folder::if_there;

/// A host to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Host and port.
    pub address: String,
    /// The prefix of the repository's name, with a trailing slash.
    pub prefix: String,
    /// Whether to connect without TLS; `None` stands for erofast's default for this host.
    pub plain: Option<bool>,
    /// Certificates of authorities, in PEM.
    pub authorities: Vec<PathBuf>,
    /// Headers for each request.
    pub headers: Vec<(String, String)>,
}

/// The hosts of a registry, and a line for the log about each host that erofast cannot ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    /// The hosts in order.
    pub hosts: Vec<Host>,
    /// The hosts that were left out, and why.
    pub notices: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct File {
    server: Option<String>,
    #[serde(default)]
    host: toml::map::Map<String, toml::Value>,
    #[serde(flatten)]
    own: Settings,
}

#[derive(Debug, Default, Deserialize)]
struct Settings {
    capabilities: Option<Vec<String>>,
    ca: Option<OneOrMore>,
    client: Option<toml::Value>,
    #[serde(default)]
    skip_verify: bool,
    #[serde(default)]
    override_path: bool,
    #[serde(default)]
    header: BTreeMap<String, OneOrMore>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum OneOrMore {
    One(String),
    More(Vec<String>),
}

impl OneOrMore {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::One(one) => vec![one],
            Self::More(more) => more,
        }
    }
}

/// The hosts to ask for images of `host`, as in containerd: those of `FOLDER/HOST/hosts.toml` or of
/// `_default`, then the registry itself. An error is one line.
pub fn hosts(folder: &Path, host: &str) -> Result<Hosts, String> {
    let names = [
        host.to_owned(),
        host.replace(':', "_") + "_",
        "_default".into(),
    ];
    for name in names {
        let folder = folder.join(name);
        let path = folder.join("hosts.toml");
        let failed = |why| format!("{}: {why}", path.display());
        let read = if_there(fs::read_to_string(&path));
        if let Some(text) = read.map_err(|error| failed(error.to_string()))? {
            return parsed(&text, &folder, host).map_err(failed);
        }
    }
    let mut found = Hosts::default();
    found.hosts.push(Host {
        address: registry(host).to_owned(),
        ..Host::default()
    });
    Ok(found)
}

fn parsed(text: &str, folder: &Path, host: &str) -> Result<Hosts, String> {
    let one_line = |error: toml::de::Error| {
        let before = error.span().map(|span| &text[..span.start]);
        let line = before.map_or(0, |before| before.lines().count().max(1));
        let why: Vec<_> = error.message().lines().collect();
        format!("line {line}: {}", why.join(" "))
    };
    let file: File = toml::from_str(text).map_err(one_line)?;
    let mut found = Hosts::default();
    for (url, value) in file.host {
        let settings = Settings::deserialize(value).map_err(one_line)?;
        found.take(&url, settings, folder)?;
    }
    let server = file
        .server
        .unwrap_or_else(|| format!("https://{}", registry(host)));
    found.take(&server, file.own, folder)?;
    Ok(found)
}

impl Hosts {
    fn take(&mut self, url: &str, settings: Settings, folder: &Path) -> Result<(), String> {
        let pulls = |able: &Vec<String>| able.iter().any(|one| one == "pull");
        if !settings.capabilities.as_ref().is_none_or(pulls) {
            return Ok(());
        }
        match usable(url, &settings) {
            Ok((plain, address, prefix)) => self.hosts.push(Host {
                address,
                prefix,
                plain: Some(plain),
                authorities: authorities(settings.ca, folder),
                headers: headers(settings.header)?,
            }),
            Err(why) => self.notices.push(format!("host {url} is skipped: {why}")),
        }
        Ok(())
    }
}

/// Whether the host is contacted without TLS, its address, and the prefix of its repositories. The
/// error says why the host cannot be used.
fn usable(url: &str, settings: &Settings) -> Result<(bool, String, String), &'static str> {
    let (plain, rest) = match url.split_once("://") {
        Some(("http", rest)) => (true, rest),
        Some(("https", rest)) => (false, rest),
        Some(_) => return Err("only http and https are supported"),
        None => (false, url),
    };
    if settings.client.is_some() {
        return Err("client certificates are not supported");
    }
    if settings.skip_verify && !plain {
        return Err("certificates are always verified (skip_verify is not supported)");
    }
    let (address, path) = rest.split_once('/').unwrap_or((rest, ""));
    let is_host = |b: u8| b.is_ascii_alphanumeric() || b".-:[]_".contains(&b);
    if address.is_empty() || !address.bytes().all(is_host) {
        return Err("its address is not HOST or HOST:PORT");
    }
    let path = path.trim_matches('/');
    // containerd appends /v2 to the path unless `override_path` is set; erofast's paths always
    // begin with /v2.
    let below = path.strip_prefix("v2");
    let prefix = match below.map(|below| below.trim_start_matches('/')) {
        Some(below) if settings.override_path || below.is_empty() => below,
        None if path.is_empty() && !settings.override_path => "",
        _ => return Err("its path does not begin with /v2"),
    };
    let slash = if prefix.is_empty() { "" } else { "/" };
    Ok((plain, registry(address).into(), format!("{prefix}{slash}")))
}

fn authorities(ca: Option<OneOrMore>, folder: &Path) -> Vec<PathBuf> {
    let paths = ca.map(OneOrMore::into_vec).unwrap_or_default();
    paths.into_iter().map(|path| folder.join(path)).collect()
}

fn headers(table: BTreeMap<String, OneOrMore>) -> Result<Vec<(String, String)>, String> {
    let mut headers = Vec::new();
    for (name, values) in table {
        for value in values.into_vec() {
            if (name.clone() + &value).contains(['\n', '\r', '\0']) {
                return Err(format!("header {name:?} has a line break"));
            }
            headers.push((name.clone(), value));
        }
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Hosts {
        parsed(text, Path::new("/etc/c/example.org"), "example.org").unwrap()
    }

    #[test]
    fn mirrors_come_first_in_their_order_and_the_server_last() {
        let found = read(
            r#"
            server = "https://example.org"
            [host."http://z.example:5000"]
              capabilities = ["pull", "resolve"]
            [host."https://push.example"]
              capabilities = ["push"]
            [host."https://a.example/v2/proxy"]
              override_path = true
              ca = ["ca.pem", "/abs.pem"]
              [host."https://a.example/v2/proxy".header]
                x-one = "1"
                x-two = ["2", "3"]
            "#,
        );
        let addresses: Vec<_> = found.hosts.iter().map(|host| &*host.address).collect();
        assert_eq!(addresses, ["z.example:5000", "a.example", "example.org"]);
        assert_eq!(found.hosts[0].plain, Some(true));
        let proxy = &found.hosts[1];
        assert_eq!((&*proxy.prefix, proxy.plain), ("proxy/", Some(false)));
        let paths = ["/etc/c/example.org/ca.pem", "/abs.pem"].map(PathBuf::from);
        assert_eq!(proxy.authorities, paths);
        assert_eq!(proxy.headers.len(), 3);
        assert!(found.notices.is_empty());
    }

    #[test]
    fn what_erofast_cannot_ask_is_named_and_left_out() {
        let found = read(
            r#"
            [host."https://a.example"]
              skip_verify = true
            [host."https://b.example"]
              client = ["/c.pem", "/k.pem"]
            [host."https://c.example/proxy"]
            [host."ftp://d.example"]
            [host."https://e,x"]
            "#,
        );
        assert_eq!(found.notices.len(), 5, "{:?}", found.notices);
        let only: Vec<_> = found.hosts.iter().map(|host| &*host.address).collect();
        assert_eq!(only, ["example.org"]);
    }

    #[test]
    fn what_is_no_toml_is_one_line_with_its_number() {
        let folder = Path::new("/f");
        for (text, part) in [
            ("server = \"https://a\"\n[host", "line 2"),
            ("server = 5", "line 1"),
            ("[host.\"https://a\".header]\nx = \"a\\nb\"", "line break"),
        ] {
            let error = parsed(text, folder, "example.org").unwrap_err();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn without_a_file_the_registry_itself_is_asked_as_erofast_does() {
        let folder = tempfile::tempdir().unwrap();
        let found = hosts(folder.path(), "docker.io").unwrap();
        assert_eq!(found.hosts[0].address, "registry-1.docker.io");
        assert_eq!(found.hosts[0].plain, None);
        let default = folder.path().join("_default");
        fs::create_dir(&default).unwrap();
        fs::write(default.join("hosts.toml"), "[host.\"http://m:1\"]").unwrap();
        let found = hosts(folder.path(), "example.org").unwrap();
        assert_eq!(found.hosts[0].address, "m:1");
        assert_eq!(found.hosts[1].address, "example.org");
        fs::create_dir(folder.path().join("other.org")).unwrap();
        fs::write(folder.path().join("other.org/hosts.toml"), "=").unwrap();
        let error = hosts(folder.path(), "other.org").unwrap_err();
        assert!(error.contains("other.org/hosts.toml"), "{error}");
    }
}
