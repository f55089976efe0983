//! Images at URLs, for all commands that read an image without mounting it.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::Args;
use erofast_cli::Usage;
use erofs_engine::EngineOptions;

/// Of these flags, in the help.
const HEADING: &str = "Images at URLs";

/// The mount options of images at URLs, as flags.
#[derive(Args, Clone, Debug)]
pub struct RemoteArgs {
    /// Where fetched blocks are kept [default: erofast in XDG_CACHE_HOME, or else in /var/cache
    /// (root) or ~/.cache]
    #[arg(long, value_name = "DIR", help_heading = HEADING)]
    pub cache_dir: Option<PathBuf>,
    /// Most bytes kept of all images; K, M and G are understood [default: 16G]
    #[arg(long, value_name = "SIZE", help_heading = HEADING)]
    pub cache_size: Option<OsString>,
    /// whole: fetch the image first, where the server has no ranges [default: ranges]
    #[arg(long, value_name = "ranges|whole", help_heading = HEADING)]
    pub fetch: Option<OsString>,
    /// Seconds that a read waits for the server [default: 30]
    #[arg(long, value_name = "SECONDS", help_heading = HEADING)]
    pub timeout_read: Option<OsString>,
    /// Lines "Name: value" that go with each request
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub http_header_file: Option<PathBuf>,
    /// A file with a bearer token
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub http_token_file: Option<PathBuf>,
    /// A file with user:password
    #[arg(long, value_name = "FILE", help_heading = HEADING)]
    pub http_user_file: Option<PathBuf>,
}

impl RemoteArgs {
    /// Sets them in the options of an image.
    ///
    /// # Errors
    /// One line that names the flag.
    pub fn apply(&self, options: &mut EngineOptions) -> Result<(), Usage> {
        let path = |path: &Option<PathBuf>| path.clone().map(PathBuf::into_os_string);
        let given = [
            ("cache_dir", path(&self.cache_dir)),
            ("cache_size", self.cache_size.clone()),
            ("fetch", self.fetch.clone()),
            ("timeout.read", self.timeout_read.clone()),
            ("http.header_file", path(&self.http_header_file)),
            ("http.token_file", path(&self.http_token_file)),
            ("http.user_file", path(&self.http_user_file)),
        ];
        for (name, value) in given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
        {
            set_flag(options, name, &value)?;
        }
        Ok(())
    }
}

/// Sets a mount option that was given as a flag; the error names the flag.
pub fn set_flag(options: &mut EngineOptions, name: &str, value: &OsStr) -> Result<(), Usage> {
    let set = options.set(name, Some(value));
    set.map(drop).map_err(|error| {
        let rest = error.strip_prefix(name).unwrap_or(&error);
        Usage(format!("--{}{rest}", name.replace(['.', '_'], "-")))
    })
}
