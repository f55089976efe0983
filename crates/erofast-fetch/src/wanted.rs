//! An image that is to be opened.

use std::rc::Rc;

use remote_image::message::Identity;
use remote_image::{ImageUrl, Options};

use crate::failure::Failure;
use crate::fetch::{Fetch, Shared};
use crate::http::Server;
use crate::room::Room;

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

    /// The image, with the identity, server and store that were found.
    pub fn fetch(self, identity: Identity, server: Server, room: Room) -> Rc<Fetch> {
        Fetch::new(
            (self.source, self.options),
            identity,
            server,
            room,
            self.shared,
        )
    }
}
