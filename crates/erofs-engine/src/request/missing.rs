//! Stored bytes that a request lacks because they have to come over a network.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use remote_image::message::RANGES;
use remote_image::{Class, RemoteFile};

/// Interval at which to check whether bytes are still wanted: the maximum time for which a reader's
/// death goes unnoticed.
const TICK: Duration = Duration::from_millis(100);

/// Bytes that a request lacks.
#[derive(Debug, Default)]
pub struct Missing {
    files: Vec<(Arc<RemoteFile>, Vec<Range<u64>>)>,
}

impl Missing {
    /// Whether nothing is missing.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    pub(crate) fn extend(&mut self, other: Missing) {
        for (file, ranges) in other.files {
            ranges.into_iter().for_each(|range| self.add(&file, range));
        }
    }

    pub(crate) fn add(&mut self, file: &Arc<RemoteFile>, range: Range<u64>) {
        let known = self
            .files
            .iter_mut()
            .find(|(other, _)| Arc::ptr_eq(other, file));
        match known {
            Some((_, ranges)) if ranges.len() < RANGES => ranges.push(range),
            // Left out: the request will be repeated once the other bytes have arrived, and then
            // report these.
            Some(_) => {}
            None => self.files.push((Arc::clone(file), vec![range])),
        }
    }

    /// Waits until all missing bytes have been fetched. `is_wanted` is called about every 100 ms.
    ///
    /// # Errors
    /// Errors of the network, on one line, once the time limit has passed; `Interrupted` if the
    /// bytes are no longer wanted.
    pub fn wait(self, is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
        let ask = |(file, ranges): &(Arc<RemoteFile>, Vec<_>)| file.request(ranges, Class::Demand);
        let asked: Vec<_> = self.files.iter().map(ask).collect::<io::Result<_>>()?;
        for request in asked {
            while !request.wait_for(TICK)? {
                if !is_wanted() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
        Ok(())
    }
}
