//! Registry logins stored by other programs: by `podman login` in auth.json, and by `docker login`
//! in config.json, which have the same format.

use std::collections::BTreeMap;
use std::env;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD, Engine};
use reqwest::Url;
use serde::Deserialize;

use crate::small_file::read;

/// Names of Docker Hub, as used in logins and for its registry.
const DOCKER_HUB: [&str; 3] = ["docker.io", "index.docker.io", "registry-1.docker.io"];

/// What is known about the login to a registry.
#[derive(Debug, PartialEq, Eq)]
pub enum Login {
    /// `user:password`, and the file that contains it.
    User(String, PathBuf),
    /// No usable login exists; the text is the reason, worded for a message.
    Unusable(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct File {
    auths: BTreeMap<String, Auth>,
    cred_helpers: BTreeMap<String, String>,
    creds_store: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Auth {
    auth: String,
    identitytoken: String,
}

/// The login from the first file that has one for the registry of a URL.
pub fn find(url: &Url) -> Option<Login> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let set = |name: &str| set(name).map(PathBuf::from);
    let files = files(set, rustix::process::getuid().as_raw());
    let there = files.iter().filter(|path| path.exists());
    there.filter_map(|path| in_file(path, url)).next()
}

/// Where files with logins may be, in podman's order.
fn files(set: impl Fn(&str) -> Option<PathBuf>, user: u32) -> Vec<PathBuf> {
    if let Some(named) = set("REGISTRY_AUTH_FILE") {
        return vec![named];
    }
    let in_home = |folder: &str| Some(set("HOME")?.join(folder));
    let runtime = set("XDG_RUNTIME_DIR").unwrap_or(format!("/run/containers/{user}").into());
    let runtime = match runtime.starts_with("/run/containers") {
        true => runtime.join("auth.json"),
        false => runtime.join("containers/auth.json"),
    };
    let config = set("XDG_CONFIG_HOME").or_else(|| in_home(".config"));
    let docker = set("DOCKER_CONFIG").or_else(|| in_home(".docker"));
    let config = config.map(|folder| folder.join("containers/auth.json"));
    let docker = docker.map(|folder| folder.join("config.json"));
    let files = [Some(runtime), config, docker];
    files.into_iter().flatten().collect()
}

fn in_file(path: &Path, url: &Url) -> Option<Login> {
    let shown = path.display();
    let file = read("auth", path).map_err(|failure| failure.text);
    let file = file.and_then(|text| {
        serde_json::from_str::<File>(&text).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("{shown}: not a file of logins in JSON (line {line}, column {column})")
        })
    });
    match file {
        Ok(file) => file.login(path, url),
        Err(line) => Some(Login::Unusable(line)),
    }
}

impl File {
    fn login(&self, path: &Path, url: &Url) -> Option<Login> {
        let (shown, names) = (path.display(), names(url));
        let unusable = |why: String| Some(Login::Unusable(why));
        let host = names.last()?;
        for name in &names {
            if let Some(helper) = self.cred_helpers.get(name) {
                return unusable(from_helper(host, helper, path));
            }
            let known = self.auths.iter().find(|(key, _)| registry(key) == name);
            let Some((_, auth)) = known else { continue };
            if !auth.identitytoken.is_empty() {
                return unusable(format!(
                    "{shown} has an identity token for {host}, which is not supported"
                ));
            }
            if auth.auth.is_empty() {
                // Docker writes such an entry if a credential helper has the password.
                break;
            }
            let user = BASE64_STANDARD.decode(auth.auth.trim()).ok();
            let user = user.and_then(|user| String::from_utf8(user).ok());
            let user = user.map(|user| user.trim_end_matches('\0').to_owned());
            return match user.filter(|user| user.contains(':')) {
                Some(user) => Some(Login::User(user, path.to_owned())),
                None => unusable(format!("{shown}: the login for {host} is not valid")),
            };
        }
        let store = Some(&self.creds_store).filter(|store| !store.is_empty())?;
        unusable(from_helper(host, store, path))
    }
}

fn from_helper(host: &str, helper: &str, path: &Path) -> String {
    let shown = path.display();
    format!(
        "{shown} keeps the login for {host} in docker-credential-{helper}, which is not \
             supported"
    )
}

/// The registry that an entry names, possibly with a repository, in the form used for comparison.
fn registry(key: &str) -> &str {
    let key = key.trim_start_matches("https://");
    let key = key.trim_start_matches("http://").trim_end_matches('/');
    let key = key.trim_end_matches("/v1").trim_end_matches("/v2");
    match DOCKER_HUB.contains(&key) {
        true => DOCKER_HUB[0],
        false => key,
    }
}

/// The possible names of an entry for the URL: the repository, its parents, and the host.
fn names(url: &Url) -> Vec<String> {
    let host = url.authority();
    let host = registry(host);
    let path = url.path().trim_start_matches("/v2/");
    let name = path.split("/manifests/").next().unwrap_or_default();
    let name = name.split("/blobs/").next().unwrap_or_default();
    let mut names = vec![format!("{host}/{name}")];
    while let Some((above, _)) = names[names.len() - 1].rsplit_once('/') {
        let above = above.to_owned();
        names.push(above);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(text: &str, url: &str) -> Option<Login> {
        let file: File = serde_json::from_str(text).unwrap();
        file.login(Path::new("/f"), &Url::parse(url).unwrap())
    }

    #[test]
    fn the_entry_that_fits_best_is_taken() {
        let text = r#"{"auths": {"host:5000": {"auth": "bWU6b25l"},
            "host:5000/a/b": {"auth": "bWU6dHdv"}, "https://index.docker.io/v1/":
            {"auth": "bWU6aHVi"}, "bad": {"auth": "x"}, "token": {"auth": "", "identitytoken": "t"}}}"#;
        let user = |user: &str| Some(Login::User(user.into(), "/f".into()));
        for (url, expected) in [
            ("http://host:5000/v2/a/manifests/v1", user("me:one")),
            ("http://host:5000/v2/a/b/manifests/v1", user("me:two")),
            ("http://host:5000/v2/a/b/c/blobs/x", user("me:two")),
            ("http://host:5000/v2/a/bc/manifests/v1", user("me:one")),
            (
                "https://registry-1.docker.io/v2/a/manifests/v1",
                user("me:hub"),
            ),
            ("http://host/v2/a/manifests/v1", None),
            ("http://evil.host:5000/v2/a/manifests/v1", None),
        ] {
            assert_eq!(login(text, url), expected, "{url}");
        }
        for (host, why) in [("bad", "is not valid"), ("token", "an identity token")] {
            let found = login(text, &format!("https://{host}/v2/a/manifests/v1"));
            assert!(matches!(found, Some(Login::Unusable(line)) if line.contains(why)));
        }
    }

    #[test]
    fn a_helper_is_named() {
        for text in [
            r#"{"auths": {"host": {}}, "credsStore": "pass"}"#,
            r#"{"credHelpers": {"host": "pass"}}"#,
        ] {
            let line =
                "/f keeps the login for host in docker-credential-pass, which is not supported";
            let found = login(text, "https://host/v2/a/manifests/v1");
            assert_eq!(found, Some(Login::Unusable(line.into())));
        }
    }

    #[test]
    fn files_are_searched_as_podman_does() {
        let with = |known: &[(&str, &str)]| {
            let set = |name: &str| {
                let mut named = known.iter().filter(|(known, _)| *known == name);
                named.next().map(|(_, value)| PathBuf::from(value))
            };
            files(set, 7)
        };
        let all = [
            "/run/containers/7/auth.json",
            "/h/.config/containers/auth.json",
            "/h/.docker/config.json",
        ];
        assert_eq!(with(&[("HOME", "/h")]), all.map(PathBuf::from));
        assert_eq!(
            with(&[("XDG_RUNTIME_DIR", "/r")]),
            [Path::new("/r/containers/auth.json")]
        );
        assert_eq!(
            with(&[("HOME", "/h"), ("REGISTRY_AUTH_FILE", "/a")]),
            [Path::new("/a")]
        );
    }
}
