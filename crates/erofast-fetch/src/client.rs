//! A reader's connection.

use remote_image::message::Reply;
use tokio::sync::mpsc::Sender;

/// A reader's connection, over which it gets its replies.
#[derive(Debug, Clone)]
pub struct Client(pub Sender<Reply>);

impl Client {
    /// Sends a reply. The reply is dropped if the reader is gone or does not read its replies.
    pub fn reply(&self, reply: Reply) {
        let _ = self.0.try_send(reply);
    }
}

impl PartialEq for Client {
    fn eq(&self, other: &Client) -> bool {
        self.0.same_channel(&other.0)
    }
}
