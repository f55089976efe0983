//! A reader, as the one to be answered.

use std::cell::Cell;

use remote_image::message::Reply;
use tokio::sync::mpsc::Sender;

thread_local! {
    static CLIENTS: Cell<u64> = const { Cell::new(0) };
}

/// Where replies to a reader go.
#[derive(Debug, Clone)]
pub struct Client {
    /// Different for each reader.
    pub number: u64,
    replies: Sender<Reply>,
}

impl Client {
    /// With a number of its own.
    pub fn new(replies: Sender<Reply>) -> Client {
        let number = CLIENTS.replace(CLIENTS.get() + 1);
        Client { number, replies }
    }

    /// One that has gone hears nothing, and one that takes no replies no more.
    pub fn reply(&self, reply: Reply) {
        let _ = self.replies.try_send(reply);
    }
}
