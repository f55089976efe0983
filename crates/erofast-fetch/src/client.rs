//! A reader's connection.

use std::cell::Cell;

use remote_image::message::Reply;
use tokio::sync::mpsc::Sender;

thread_local! {
    static CLIENTS: Cell<u64> = const { Cell::new(0) };
}

/// A reader's connection, over which it gets its replies.
#[derive(Debug, Clone)]
pub struct Client {
    /// A number that no other reader has.
    pub number: u64,
    replies: Sender<Reply>,
}

impl Client {
    /// Creates a client with a new number.
    pub fn new(replies: Sender<Reply>) -> Client {
        let number = CLIENTS.replace(CLIENTS.get() + 1);
        Client { number, replies }
    }

    /// Sends a reply. The reply is dropped if the reader is gone or does not read its replies.
    pub fn reply(&self, reply: Reply) {
        let _ = self.replies.try_send(reply);
    }
}
