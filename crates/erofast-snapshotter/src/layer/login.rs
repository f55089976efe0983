//! Logins of kubelet's pulls, and the files from which erofast's fetcher reads them. The files are
//! in the runtime directory, which a reboot empties, and only root may read them.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::hosts::Host;
use crate::folder::make_private;

/// The number of images whose logins are remembered; the oldest are dropped.
const REMEMBERED: usize = 1000;

/// A login, which the `Debug` output does not reveal.
#[derive(Clone, PartialEq, Eq)]
pub enum Login {
    /// Name and password.
    User(String, String),
    /// A token that is used unchanged.
    Token(String),
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Login")
    }
}

/// The logins of recent pulls, and the folder for the files that layers need.
#[derive(Debug)]
pub struct Logins {
    folder: PathBuf,
    recent: Mutex<VecDeque<(String, Login)>>,
}

impl Logins {
    /// Creates the folder `logins` below the runtime directory.
    pub fn new(run: &Path) -> io::Result<Self> {
        let folder = run.join("logins");
        make_private(&folder)?;
        let recent = Mutex::default();
        Ok(Self { folder, recent })
    }

    /// Remembers that the image is being pulled with this login.
    pub fn remember(&self, image: String, login: Login) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        recent.retain(|(known, _)| *known != image);
        recent.push_back((image, login));
        if recent.len() > REMEMBERED {
            recent.pop_front();
        }
    }

    fn of(&self, image: &str) -> Option<Login> {
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let known = recent.iter().find(|(known, _)| known == image);
        known.map(|(_, login)| login.clone())
    }

    /// Writes the files that the layer `id` needs, and returns the mount options that name them. A
    /// layer that was pulled with a login keeps that login if no newer one is known.
    pub fn options(&self, id: u64, image: &str, host: &Host) -> io::Result<Vec<String>> {
        let mut options = Vec::new();
        let user = self.path(id, "user");
        let token = self.path(id, "token");
        match self.of(image) {
            Some(Login::User(name, password)) => {
                write(&user, format!("{name}:{password}\n").as_bytes())?;
                let _ = fs::remove_file(&token);
            }
            Some(Login::Token(text)) => {
                write(&token, format!("{text}\n").as_bytes())?;
                let _ = fs::remove_file(&user);
            }
            None => {}
        }
        if user.exists() {
            options.push(format!("http.user_file={}", escaped(&user)));
        } else if token.exists() {
            options.push(format!("http.token_file={}", escaped(&token)));
        }
        if !host.headers.is_empty() {
            let header = |(name, value): &(String, String)| format!("{name}: {value}\n");
            let lines: String = host.headers.iter().map(header).collect();
            let path = self.path(id, "headers");
            write(&path, lines.as_bytes())?;
            options.push(format!("http.header_file={}", escaped(&path)));
        }
        match &host.authorities[..] {
            [] => {}
            [one] => options.push(format!("http.ca_file={}", escaped(one))),
            several => {
                let path = self.path(id, "authorities");
                let texts: io::Result<Vec<_>> = several.iter().map(fs::read).collect();
                write(&path, &texts?.join(&b'\n'))?;
                options.push(format!("http.ca_file={}", escaped(&path)));
            }
        }
        Ok(options)
    }

    fn path(&self, id: u64, kind: &str) -> PathBuf {
        self.folder.join(format!("{id}.{kind}"))
    }

    /// Removes the files of a layer that is gone.
    pub fn forget(&self, id: u64) {
        for kind in ["user", "token", "headers", "authorities"] {
            let _ = fs::remove_file(self.path(id, kind));
        }
    }
}

/// Escapes a path for a mount option, which an unescaped comma would end.
pub fn escaped(path: &Path) -> String {
    let path = path.display().to_string();
    path.replace('\\', "\\\\").replace(',', "\\,")
}

/// Replaces the file in one step, since a fetcher may read it in the meantime.
fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new();
    let mut file = file.write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_login_is_in_a_file_of_root_and_in_no_option() {
        let run = tempfile::tempdir().unwrap();
        let logins = Logins::new(run.path()).unwrap();
        let image = "example.org/a:v1";
        let host = Host::default();
        assert_eq!(logins.options(3, image, &host).unwrap(), [""; 0]);
        logins.remember(image.into(), Login::User("me".into(), "sec,ret".into()));
        let file = run.path().join("logins/3.user");
        let option = format!("http.user_file={}", file.display());
        assert_eq!(logins.options(3, image, &host).unwrap(), [option]);
        assert_eq!(fs::read_to_string(&file).unwrap(), "me:sec,ret\n");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        // A restarted snapshotter knows only what is in the files.
        let logins = Logins::new(run.path()).unwrap();
        assert_eq!(logins.options(3, image, &host).unwrap().len(), 1);
        logins.forget(3);
        assert_eq!(logins.options(3, image, &host).unwrap(), [""; 0]);
        assert_eq!(format!("{:?}", Login::Token("secret".into())), "Login");
    }

    #[test]
    fn headers_and_authorities_of_a_host_are_files_too() {
        let run = tempfile::tempdir().unwrap();
        let logins = Logins::new(run.path()).unwrap();
        let authorities = ["a,b.pem", "c.pem"].map(|name| run.path().join(name));
        for path in &authorities {
            fs::write(path, path.file_name().unwrap().as_encoded_bytes()).unwrap();
        }
        let headers = vec![("x-key".to_owned(), "secret".to_owned())];
        let host = Host {
            headers,
            authorities: authorities[..1].to_vec(),
            ..Host::default()
        };
        let options = logins.options(1, "example.org/a:v1", &host).unwrap();
        assert!(options[0].ends_with("logins/1.headers"), "{options:?}");
        assert!(options[1].ends_with("/a\\,b.pem"), "{options:?}");
        let text = fs::read_to_string(run.path().join("logins/1.headers")).unwrap();
        assert_eq!(text, "x-key: secret\n");
        let both = Host {
            authorities: authorities.to_vec(),
            ..Host::default()
        };
        logins.options(1, "example.org/a:v1", &both).unwrap();
        let text = fs::read_to_string(run.path().join("logins/1.authorities")).unwrap();
        assert_eq!(text, "a,b.pem\nc.pem");
    }
}
