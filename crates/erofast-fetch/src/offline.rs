//! Opens images from the cache if no server says which image is at the URL.

use std::time::{Duration, SystemTime};

use remote_image::answers::{self, Answer};
use remote_image::registry::Version;
use remote_image::{ImageUrl, Offline, Options};

use crate::failure::Failure;

/// The longest wait for a server if the image is in the cache: a machine that boots without its
/// network may have many images to mount.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// The message if an image is not opened because parts of it are missing from the cache.
pub const NOT_THERE: &str = "offline=on, but the image is not completely in the cache";

/// The message if the file is of a kind that is never cached.
pub const NEVER_THERE: &str = "offline=on, but root hashes and signatures are not cached";

/// An image that is completely in the cache.
#[derive(Debug)]
pub struct Known {
    pub answer: Answer,
    /// When the server identified the image; `None` if the URL itself does.
    since: Option<SystemTime>,
    /// Whether the URL has a digest, so that no server needs to be asked.
    pub is_certain: bool,
}

/// The image that the cache has for a URL, unless the options require it to come from the server.
pub fn find(source: &ImageUrl, options: &Options) -> Option<Known> {
    if options.offline == Offline::Off || options.share {
        return None;
    }
    let version = source.reference().map(|reference| reference.version);
    let of_url = answers::of_digest(source).map(|answer| (answer, None));
    let (answer, since) = of_url.or_else(|| {
        let (answer, since) = answers::find(source, options)?;
        Some((answer, Some(since)))
    })?;
    answer.is_cached(source, options).then_some(Known {
        answer,
        since,
        is_certain: version.is_some_and(|version| !matches!(version, Version::Tag(_))),
    })
}

/// Stores an answer for times when the server does not respond. Failures to store it are ignored.
pub fn keep(source: &ImageUrl, options: &Options, answer: &Answer) {
    if options.keep {
        let _ = answers::keep(source, options, answer);
    }
}

impl Known {
    /// A line that says why this image is opened although the server did not confirm it.
    pub fn instead_of(&self, failure: &Failure) -> String {
        let since = self.since.map_or_else(String::new, |since| {
            format!(", confirmed {}", httpdate::fmt_http_date(since))
        });
        format!("using the copy in the cache{since}: {}", failure.text)
    }
}
