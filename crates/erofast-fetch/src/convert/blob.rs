//! A whole blob as a stream, resumed where it broke off.

use std::time::{Duration, Instant};

use remote_image::Options;
use remote_image::store::BLOCK;
use reqwest::{Response, StatusCode};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe::Sender;
use tokio::time::{sleep, timeout};

use crate::failure::{Failure, ensure, other_length};
use crate::http::{self, Server, check_range};

/// The first and the longest pause after an attempt that delivered nothing.
const PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Sends the bytes of a blob to `to`, and reports to `came` how many have arrived. Returns the
/// digest of the blob, or `None` if nobody is reading any more.
pub async fn send(
    server: &Server,
    options: &Options,
    length: u64,
    to: &mut Sender,
    came: impl Fn(u64),
) -> Result<Option<String>, Failure> {
    let (mut hash, mut done, mut pause) = (Sha256::new(), 0, PAUSE);
    let mut pace = Pace::new(options.timeout);
    while done < length {
        let part = async {
            let mut response = server.get(&(done..length), None).await?;
            check(&response, done, length)?;
            while let Some(bytes) = pace.next(&mut response).await? {
                ensure!(
                    bytes.len() as u64 <= length - done,
                    "the server sent more than the {length} bytes of the layer"
                );
                hash.update(&bytes);
                done += bytes.len() as u64;
                came(bytes.len() as u64);
                let begun = Instant::now();
                if to.write_all(&bytes).await.is_err() {
                    return Ok(false);
                }
                pace.resume(begun.elapsed());
            }
            Ok(true)
        };
        let failure = match part.await {
            Ok(false) => return Ok(None),
            Ok(true) => Failure::new("the server sent less than requested"),
            Err(failure) => failure,
        };
        server.forget_location();
        if pace.bytes == 0 {
            pause = PAUSE;
        }
        if done < length {
            if failure.lasting || pace.since.elapsed() >= pace.limit {
                return Err(failure);
            }
            sleep(failure.retry_after.unwrap_or(pause).min(options.timeout)).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
    Ok(Some(format!("sha256:{:x}", hash.finalize())))
}

/// Limits the time for each block's worth of bytes, so that a trickle does not count as progress.
struct Pace {
    limit: Duration,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(limit: Duration) -> Pace {
        Pace {
            limit,
            since: Instant::now(),
            bytes: 0,
        }
    }

    /// The next bytes of an answer.
    async fn next(&mut self, response: &mut Response) -> Result<Option<Vec<u8>>, Failure> {
        let left = self.limit.saturating_sub(self.since.elapsed());
        let bytes = timeout(left, response.chunk()).await;
        let bytes = bytes.map_err(Failure::drips)??;
        self.bytes += bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        Ok(bytes.map(Vec::from))
    }

    /// Does not count the time `waited`, for which the consumer of the bytes kept the server
    /// waiting.
    fn resume(&mut self, waited: Duration) {
        self.since += waited;
        if self.bytes >= BLOCK {
            *self = Pace::new(self.limit);
        }
    }
}

/// Checks that an answer continues at `done`. A server that does not support ranges may send the
/// whole blob if nothing has arrived yet.
fn check(response: &Response, done: u64, length: u64) -> Result<(), Failure> {
    match response.status() {
        StatusCode::PARTIAL_CONTENT => match http::identity(response)?.length {
            found if found == length => check_range(response, &(done..length)),
            found => Err(other_length(found, length)),
        },
        _ if done > 0 => Err(Failure::lasting(
            "the response was cut off, and the server does not support ranges to resume from there",
        )),
        _ => match response.content_length() {
            Some(found) if found != length => Err(other_length(found, length)),
            _ => Ok(()),
        },
    }
}
