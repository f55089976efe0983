//! An image that is to be opened.

use std::os::fd::OwnedFd;
use std::rc::Rc;

use remote_image::message::Identity;
use remote_image::{ImageUrl, Options};

use crate::ahead::LastRead;
use crate::connections::Connections;
use crate::failure::Failure;
use crate::fetch::Fetch;
use crate::first_blocks::FirstBlocks;
use crate::http::Server;
use crate::link::Link;
use crate::readers::Readers;
use crate::room::Room;

/// An image to open, and the resources that it shares with others.
pub struct Wanted<'w> {
    pub source: ImageUrl,
    pub options: Options,
    pub parent: &'w Rc<OwnedFd>,
    pub connections: &'w Connections,
    pub first_blocks: &'w FirstBlocks,
    pub readers: &'w Rc<Readers>,
    pub link: &'w Rc<Link>,
    pub last_read: &'w Rc<LastRead<Fetch>>,
}

impl Wanted<'_> {
    /// The server that the URL names. This does not contact it yet.
    pub fn server(&self) -> Result<Server, Failure> {
        Server::new(&self.source, &self.options, self.connections)
    }

    /// The image, with the identity, server and store that were found.
    pub fn fetch(self, identity: Identity, server: Server, room: Room) -> Rc<Fetch> {
        let (parent, readers) = (Rc::clone(self.parent), Rc::clone(self.readers));
        let shared = (Rc::clone(self.link), Rc::clone(self.last_read));
        let what = (self.source, self.options);
        Fetch::new(what, identity, (server, room), (parent, readers), shared)
    }
}
