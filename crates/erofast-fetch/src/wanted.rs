//! An image that is to be opened, and what the images of this process share.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use remote_image::message::{News, send};
use remote_image::{ImageUrl, Options};

use crate::ahead::LastRead;
use crate::connections::Connections;
use crate::failure::Failure;
use crate::fetch::Fetch;
use crate::first_blocks::FirstBlocks;
use crate::http::Server;
use crate::link::Link;
use crate::readers::Readers;

/// What all images of this process share.
#[derive(Debug)]
pub struct Shared {
    pub parent: OwnedFd,
    pub connections: Connections,
    pub first_blocks: FirstBlocks,
    pub readers: Readers,
    pub link: Rc<Link>,
    pub last_read: LastRead<Fetch>,
}

impl Shared {
    /// The state before the first image is opened.
    pub fn new(parent: OwnedFd) -> Shared {
        Shared {
            parent,
            connections: Connections::default(),
            first_blocks: FirstBlocks::default(),
            readers: Readers::default(),
            link: Rc::default(),
            last_read: LastRead::default(),
        }
    }

    /// Sends the parent one line about an image, for the log.
    pub fn note(&self, source: &ImageUrl, line: &str) {
        // A failure is ignored: it means that the parent is gone.
        let line = format!("{source}: {line}");
        let _ = send(&self.parent, &News::Note(line), &[]);
    }
}

/// An image to open.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub source: ImageUrl,
    pub options: Options,
    pub shared: Rc<Shared>,
}

impl Wanted {
    /// The server that the URL names. This does not contact it yet.
    pub fn server(&self) -> Result<Server, Failure> {
        Server::new(&self.source, &self.options, &self.shared.connections)
    }
}
