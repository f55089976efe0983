//! A remote image as seen by a reader.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::checked::Checked;
use crate::fetcher::program;
use crate::message::{Class, Counters, RANGES};
use crate::parts::{About, Parts};
use crate::receiver::{Conversation, Request};
use crate::store::{BLOCK, Store, blocks};
use crate::{Fetcher, ImageUrl, Options};

/// Bytes per request of [`RemoteFile::fetch_all`], and how many such requests are in flight.
const STEP: u64 = 4 << 20;
const STEPS: usize = 8;

/// An image at a URL. Bytes that are present are read without a lock.
#[derive(Debug)]
pub struct RemoteFile {
    store: Store,
    spare: Store,
    /// Blocks of the store whose checksums were seen to match.
    checked: Checked,
    conversation: Arc<Conversation>,
    about: About,
}

impl RemoteFile {
    /// Creates the file without reading anything or starting a thread.
    pub fn new(parts: Parts) -> RemoteFile {
        let [data, map, spare, spare_map] = parts.files;
        let about = parts.about;
        let length = about.length;
        RemoteFile {
            store: Store::new(data, map, length),
            spare: Store::new(spare, spare_map, length),
            checked: Checked::new(length.div_ceil(BLOCK)),
            conversation: Conversation::new(parts.socket, about.timeout),
            about,
        }
    }

    /// Starts the thread that receives replies; otherwise the first request starts it.
    pub fn start(&self) -> io::Result<()> {
        self.conversation.start()
    }

    /// The length of the image in bytes.
    pub fn length(&self) -> u64 {
        self.store.length()
    }

    /// The image's extra devices, as its manifest in a registry lists them.
    pub fn devices(&self) -> &[ImageUrl] {
        &self.about.devices
    }

    /// The layers below this one, from top to bottom, as the image's manifest in a registry lists
    /// them.
    pub fn layers(&self) -> &[ImageUrl] {
        &self.about.layers
    }

    /// The reason why the image is used from the cache, if its server did not answer: one line.
    pub fn offline(&self) -> Option<&str> {
        self.about.offline.as_deref()
    }

    /// Why nothing is kept for later openings of the image, although that was requested.
    pub fn not_kept(&self) -> Option<&str> {
        self.about.not_kept.as_deref()
    }

    /// Reads `bytes.len()` bytes without waiting for the network. Returns false if some are
    /// missing; `bytes` may then be partly overwritten. Fails if the range goes beyond the image,
    /// or on a disk error.
    pub fn read_cached(&self, bytes: &mut [u8], offset: u64) -> io::Result<bool> {
        let range = self.range(bytes.len(), offset)?;
        if self.conversation.is_refused() {
            return Ok(false);
        }
        // The change time is read after the bytes: blocks that matched at that time have not been
        // written since.
        if self.store.read(bytes, offset)? && self.are_checked(&range)? {
            self.pass(&range);
            return Ok(true);
        }
        for block in blocks(&range) {
            let whole = self.store.range(block);
            let part = whole.start.max(range.start)..whole.end.min(range.end);
            let to = &mut bytes[(part.start - offset) as usize..(part.end - offset) as usize];
            let Some(block) = self.block(block)? else {
                return Ok(false);
            };
            to.copy_from_slice(&block[(part.start - whole.start) as usize..][..to.len()]);
        }
        self.pass(&range);
        Ok(true)
    }

    /// Tells the fetcher that a reader has reached a mark. If this message is lost, less is read
    /// ahead.
    fn pass(&self, range: &Range<u64>) {
        if let Some(block) = self.conversation.marks.take(&blocks(range)) {
            let at = self.store.range(block);
            let _ = self.conversation.ask(vec![at], Class::Passed, true);
        }
    }

    /// Whether all of a range is present according to the maps.
    pub fn is_cached(&self, range: &Range<u64>) -> bool {
        let is = |store: &Store, block| store.has_block(block).unwrap_or(false);
        let there = |block| is(&self.store, block) || is(&self.spare, block);
        !self.conversation.is_refused() && blocks(range).all(there)
    }

    /// Requests the missing parts of all these ranges in one question. At most [`RANGES`] are
    /// allowed.
    pub fn request(&self, ranges: &[Range<u64>], class: Class) -> io::Result<Request> {
        self.conversation.ask(self.within(ranges), class, false)
    }

    /// Hints that the bytes of this range belong together, before some of them are requested.
    pub fn relate(&self, range: &Range<u64>) {
        let ranges = self.within(std::slice::from_ref(range));
        self.conversation.tell(ranges, Class::Related);
    }

    /// Requests the missing parts without waiting.
    pub fn prefetch(&self, ranges: &[Range<u64>], class: Class) -> io::Result<()> {
        let mut ranges = self.within(ranges);
        while !ranges.is_empty() {
            let rest = ranges.split_off(ranges.len().min(RANGES));
            self.conversation.ask(ranges, class, true)?;
            ranges = rest;
        }
        Ok(())
    }

    /// Discards bytes that do not match the root hash; they can be fetched again once the request
    /// is answered.
    pub fn forget(&self, range: &Range<u64>) -> io::Result<Request> {
        let ranges = self.within(std::slice::from_ref(range));
        for block in ranges.iter().flat_map(blocks) {
            self.checked.forget(block);
        }
        self.conversation.ask(ranges, Class::Forget, false)
    }

    /// Removes a file that is not an image from the cache, unless another process is using it or
    /// some of its bytes were fetched earlier.
    pub fn discard(&self) -> io::Result<()> {
        let asked = self.conversation.ask(Vec::new(), Class::Discard, false)?;
        asked.reply().map(drop)
    }

    /// Fetches everything that is missing.
    pub fn fetch_all(&self) -> io::Result<()> {
        let mut asked = VecDeque::new();
        for start in (0..self.length()).step_by(STEP as usize) {
            let step = start..start + STEP;
            asked.push_back(self.request(std::slice::from_ref(&step), Class::Fill)?);
            if asked.len() > STEPS {
                asked.pop_front().map_or(Ok(()), Request::wait)?;
            }
        }
        asked.into_iter().try_for_each(Request::wait)
    }

    /// For an image in a registry, waits until the bytes that are present have been compared with
    /// the digest. Fails if they do not match.
    pub fn settle(&self) -> io::Result<()> {
        if !self.about.compared {
            return Ok(());
        }
        let asked = self.request(std::slice::from_ref(&(0..1)), Class::Fill)?;
        asked.wait()
    }

    /// The fetcher's counters. Fails if it does not answer within two seconds.
    pub fn counters(&self) -> io::Result<Counters> {
        let asked = self.conversation.ask(Vec::new(), Class::Counters, false)?;
        let reply = asked.reply()?;
        reply.outcome()?;
        let counters: Counters = serde_json::from_str(&reply.text)?;
        let read = self.checked.count() * BLOCK;
        Ok(Counters {
            unread_bytes: counters.cached_bytes.saturating_sub(read),
            ..counters
        })
    }

    fn within(&self, ranges: &[Range<u64>]) -> Vec<Range<u64>> {
        let end = |range: &Range<u64>| range.end.min(self.length());
        let ranges = ranges.iter().map(|range| range.start..end(range));
        ranges.filter(|range| !range.is_empty()).collect()
    }

    fn range(&self, length: usize, offset: u64) -> io::Result<Range<u64>> {
        match offset.checked_add(length as u64) {
            Some(end) if end <= self.length() => Ok(offset..end),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn block(&self, block: u64) -> io::Result<Option<Vec<u8>>> {
        let changed = self.store.changed()?;
        if let Some(bytes) = self.store.read_block(block)? {
            self.checked.set(block, changed);
            return Ok(Some(bytes));
        }
        self.spare.read_block(block)
    }

    fn are_checked(&self, range: &Range<u64>) -> io::Result<bool> {
        let changed = self.store.changed()?;
        Ok(blocks(range).all(|block| self.checked.is(block, changed)))
    }
}

impl Drop for RemoteFile {
    fn drop(&mut self) {
        self.conversation.end();
    }
}

/// Opens an image for this process: until the process ends, a thread restarts the fetcher when it
/// dies and passes its lines to `note`.
pub fn open(
    source: &ImageUrl,
    options: &Options,
    note: impl Fn(&str) + Send + 'static,
) -> io::Result<RemoteFile> {
    let mut fetcher = Fetcher::start(&[], source, options)?;
    let file = RemoteFile::new(fetcher.client()?);
    fetcher.watch(note)?;
    Ok(file)
}

/// Like [`open`], for an image together with the devices and layers that its manifest in a registry
/// lists, using one fetcher. `progress` gets occasional lines while layers are being converted.
pub fn open_all(
    source: &ImageUrl,
    options: &Options,
    progress: &mut dyn FnMut(String),
) -> io::Result<Vec<(ImageUrl, RemoteFile)>> {
    let mut fetcher = Fetcher::new(program())?;
    fetcher.open_noting(&[], source, options, progress)?;
    let mut files = vec![(source.clone(), RemoteFile::new(fetcher.client()?))];
    let others: Vec<_> = fetcher.listed(0).cloned().collect();
    for other in others {
        let number = fetcher.open(&[], &other, options)?;
        files.push((other, RemoteFile::new(fetcher.client_of(number)?)));
    }
    fetcher.watch(|_| {})?;
    Ok(files)
}
