//! HTTP/2 streams and connections that a server resets.

use std::net::TcpListener;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};

use super::*;
use crate::tls::{certificate, trusting};

/// Ways in which the server harms a request for bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Harm {
    /// Ends the stream before its answer.
    Reset(Reason),
    /// Ends the stream in the middle of a block.
    ResetBody(Reason),
    /// Ends the connection.
    GoAway(Reason),
    /// Sends less than it announces.
    Short,
    /// Sends nothing, and leaves the stream open.
    Silent,
    /// A header as long as an image.
    LongHeader,
}

const HARMS: [Harm; 9] = [
    Harm::Reset(Reason::REFUSED_STREAM),
    Harm::Reset(Reason::INTERNAL_ERROR),
    Harm::Reset(Reason::HTTP_1_1_REQUIRED),
    Harm::ResetBody(Reason::CANCEL),
    Harm::ResetBody(Reason::NO_ERROR),
    Harm::GoAway(Reason::ENHANCE_YOUR_CALM),
    Harm::Short,
    Harm::Silent,
    Harm::LongHeader,
];

/// The harm to do, and the number of requests to harm.
type Orders = Arc<(Mutex<Option<Harm>>, AtomicU64)>;

#[test]
fn resets_pass_and_those_that_stay_are_one_line() {
    let cache = cache();
    let mut config = Arc::unwrap_or_clone(certificate(cache.path(), "IP:127.0.0.1"));
    config.alpn_protocols = vec![b"h2".into()];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("https://{}/a", listener.local_addr().unwrap());
    let orders = Orders::default();
    let server = Arc::clone(&orders);
    std::thread::spawn(move || serve(listener, config, &server));
    let options = Options {
        timeout: Duration::from_secs(2),
        ..options(&cache)
    };
    let file = crate::open_with(trusting(cache.path()), &url, &options).unwrap();
    let parts = LENGTH / 2 / HARMS.len();
    for (number, harm) in HARMS.into_iter().enumerate() {
        // In a separate block that has not been fetched yet.
        let at = 2 * number * parts + parts;
        let range = at..at + 100;
        let bytes = range.start as u64..range.end as u64;
        *orders.0.lock().unwrap() = Some(harm);
        orders.1.store(u64::MAX, Ordering::SeqCst);
        // The block may already be in flight because of read-ahead for the previous read.
        let error = (0..10).find_map(|_| {
            file.forget(&bytes).unwrap().wait().unwrap();
            read(&file, range.clone()).err()
        });
        let line = error.expect("an error").to_string();
        assert!(
            line.starts_with(&url) && line.len() < LONGEST && !line.contains(char::is_control),
            "{harm:?}: {line}"
        );
        // After this time, a read does not count as a repetition of the failed one.
        std::thread::sleep(remote_image::message::SAME_READ);
        orders.1.store(1, Ordering::SeqCst);
        let bytes = (0..10).find_map(|_| read(&file, range.clone()).ok());
        assert!(bytes.expect("bytes") == image(LENGTH)[range], "{harm:?}");
    }
}

fn serve(listener: TcpListener, config: rustls::ServerConfig, orders: &Orders) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, orders) = (acceptor.clone(), Arc::clone(orders));
            tokio::task::spawn_local(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let Ok(mut connection) = h2::server::handshake(stream).await else {
                    return;
                };
                let mut open = Vec::new();
                while let Some(Ok((request, respond))) = connection.accept().await {
                    let asked = orders.1.load(Ordering::SeqCst);
                    let harm = orders.0.lock().unwrap().filter(|_| asked > 0);
                    orders.1.store(asked.saturating_sub(1), Ordering::SeqCst);
                    match harm {
                        Some(Harm::GoAway(reason)) => connection.abrupt_shutdown(reason),
                        harm => open.extend(answer_with(harm, &request, respond)),
                    }
                }
            });
        }
    });
}

/// Returns a stream if it is to stay open.
fn answer_with(
    harm: Option<Harm>,
    request: &http::Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
) -> Option<SendResponse<Bytes>> {
    match harm {
        Some(Harm::Silent) => return Some(respond),
        Some(Harm::Reset(reason)) => {
            respond.send_reset(reason);
            return None;
        }
        _ => {}
    }
    let range = request.headers()["range"].to_str().unwrap();
    let (first, last) = range
        .strip_prefix("bytes=")
        .unwrap()
        .split_once('-')
        .unwrap();
    let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
    let mut response = http::Response::builder()
        .status(206)
        .header("etag", "\"1\"")
        .header("content-range", format!("bytes {first}-{last}/{LENGTH}"));
    if harm == Some(Harm::LongHeader) {
        response = response.header("x-long", "a".repeat(LENGTH));
    }
    let bytes = image(LENGTH)[first..=last].to_vec();
    let Ok(mut body) = respond.send_response(response.body(()).unwrap(), false) else {
        return None;
    };
    match harm {
        Some(Harm::Short) => drop(body.send_data(bytes[..100].to_vec().into(), true)),
        Some(Harm::ResetBody(reason)) => {
            let _ = body.send_data(bytes[..100].to_vec().into(), false);
            body.send_reset(reason);
        }
        _ => drop(body.send_data(bytes.into(), true)),
    }
    None
}
