//! Serves readers, each over a separate socket.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use remote_image::message::{HELLO, Order, PACKET, Question, Reply, receive};
use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::mpsc::{Receiver, channel};
use tokio::task::spawn_local;

use crate::client::Client;
use crate::fetch::Fetch;

/// A packet socket for tokio.
pub fn packets(socket: OwnedFd) -> io::Result<UnixDatagram> {
    let socket = std::os::unix::net::UnixDatagram::from(socket);
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

/// The next order with its files, or `None` if the parent is gone.
pub async fn next(orders: &UnixDatagram) -> Option<(Order, Vec<OwnedFd>)> {
    let receive = || receive::<Order>(orders);
    orders.async_io(Interest::READABLE, receive).await.ok()?
}

/// How many question numbers are remembered in order to ignore repetitions: a reader repeats the
/// questions that it sent before it got HELLO.
const EARLY: usize = 256;

/// Maximum number of replies that a reader has not read yet: one for each unanswered question that
/// it may have.
const UNREAD: usize = crate::waiting::MOST_OF_A_READER;

/// Answers the reader's questions until it closes its end of the socket.
pub fn serve(fetch: &Rc<Fetch>, socket: UnixDatagram) {
    let (replies, outgoing) = channel(UNREAD);
    let client = Client(replies);
    fetch.join(client.clone());
    client.reply(Reply::new(HELLO, 0, String::new()));
    let (socket, fetch) = (Rc::new(socket), Rc::clone(fetch));
    let writer = spawn_local(write(Rc::clone(&socket), outgoing));
    spawn_local(async move {
        let (mut packet, mut early) = (vec![0; PACKET], HashSet::new());
        while let Ok(length @ 1..) = socket.recv(&mut packet).await {
            let question = Question::decode(&packet[..length]);
            let new = |question: &Question| early.len() == EARLY || early.insert(question.id);
            if let Some(question) = question.filter(new) {
                fetch.ask(&client, &question);
            }
        }
        fetch.leave(&client);
        writer.abort();
    });
}

async fn write(socket: Rc<UnixDatagram>, mut replies: Receiver<Reply>) {
    while let Some(reply) = replies.recv().await {
        // If the reader is gone, the loop that receives its questions notices that.
        let _ = socket.send(&reply.encode()).await;
    }
}
