//! A reader, as the one to be answered.

use std::cell::Cell;

use remote_image::message::Reply;
use tokio::sync::mpsc::UnboundedSender;

thread_local! {
    static CLIENTS: Cell<u64> = const { Cell::new(0) };
}

/// Where replies to a reader go.
#[derive(Debug, Clone)]
pub struct Client {
    /// Different for each reader.
    pub number: u64,
    replies: UnboundedSender<Reply>,
}

impl Client {
    /// With a number of its own.
    pub fn new(replies: UnboundedSender<Reply>) -> Client {
        let number = CLIENTS.replace(CLIENTS.get() + 1);
        Client { number, replies }
    }

    /// One that has gone hears nothing.
    pub fn reply(&self, reply: Reply) {
        let _ = self.replies.send(reply);
    }
}
