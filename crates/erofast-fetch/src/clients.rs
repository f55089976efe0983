//! Readers, each with a socket.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use remote_image::message::{HELLO, Order, PACKET, Question, Reply, receive};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::spawn_local;

use crate::fetch::Fetch;

/// Where replies to a reader go.
#[derive(Debug, Clone)]
pub struct Client {
    /// Tells readers apart.
    pub number: u64,
    replies: UnboundedSender<Reply>,
}

impl Client {
    /// One that has gone hears nothing.
    pub fn reply(&self, reply: Reply) {
        let _ = self.replies.send(reply);
    }
}

/// A socket that keeps packets apart, as tokio has it.
pub fn packets(socket: OwnedFd) -> io::Result<UnixDatagram> {
    let socket = std::os::unix::net::UnixDatagram::from(socket);
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// The next reader's socket; None: the parent has gone.
pub async fn next(orders: &UnixDatagram) -> Option<UnixDatagram> {
    loop {
        let receive = || receive::<Order>(orders);
        let (_, files) = orders.async_io(Interest::READABLE, receive).await.ok()??;
        let client = files.into_iter().next().map(packets);
        if let Some(Ok(client)) = client {
            return Some(client);
        }
    }
}

thread_local! {
    static CLIENTS: Cell<u64> = const { Cell::new(0) };
}

/// Takes the reader's questions until it closes its end.
pub fn serve(fetch: &Rc<Fetch>, socket: UnixDatagram) {
    let (replies, outgoing) = unbounded_channel();
    let client = Client {
        number: CLIENTS.replace(CLIENTS.get() + 1),
        replies,
    };
    client.reply(Reply {
        id: HELLO,
        errno: 0,
        text: String::new(),
    });
    let (socket, fetch) = (Rc::new(socket), Rc::clone(fetch));
    let writer = spawn_local(write(Rc::clone(&socket), outgoing));
    spawn_local(async move {
        let mut packet = vec![0; PACKET];
        while let Ok(length @ 1..) = socket.recv(&mut packet).await {
            if let Some(question) = Question::decode(&packet[..length]) {
                fetch.ask(&client, question);
            }
        }
        fetch.leave(client.number);
        writer.abort();
    });
}

async fn write(socket: Rc<UnixDatagram>, mut replies: UnboundedReceiver<Reply>) {
    while let Some(reply) = replies.recv().await {
        // A reader that has gone is noticed where its questions are received.
        let _ = socket.send(&reply.encode()).await;
    }
}
