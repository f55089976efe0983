use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex};

use erofs_format::{ExtentKind, Inode, Nid};

use super::PAGE;
use crate::{Engine, EngineOptions, PageCacheWriter, ReadContext, Remainder};

/// The offset of bytes in a file, and the bytes.
type Stretch = (u64, Vec<u8>);

/// The stretches that were stored.
#[derive(Debug, Default, Clone)]
struct Stored(Arc<Mutex<Vec<Stretch>>>);

impl PageCacheWriter for Stored {
    fn has_room(&self, _: Nid, _: usize) -> bool {
        true
    }

    fn store(&self, remainder: Remainder) {
        let mut stored = self.0.lock().unwrap();
        for (offset, bytes) in remainder.parts() {
            stored.push((offset, bytes.to_vec()));
        }
    }
}

struct Fixture {
    engine: Arc<Engine>,
    file: Arc<Inode>,
    content: Vec<u8>,
    /// The file ranges of its pclusters.
    extents: Vec<Range<u64>>,
    stored: Stored,
}

impl Fixture {
    fn new(image: &str) -> Self {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        let engine = Engine::open(&fixtures.join(image), &EngineOptions::default()).unwrap();
        let file = engine.resolve(b"/data/mixed-200000", true).unwrap();
        let mut content = vec![0; file.size as usize];
        let request = engine.request(ReadContext::Reader { readahead: false });
        engine.read_at(&request, &file, 0, &mut content).unwrap();
        drop(request);
        let stored = Stored::default();
        engine.set_page_cache(Box::new(stored.clone()));
        let mut fixture = Self {
            engine,
            file,
            content,
            extents: Vec::new(),
            stored,
        };
        fixture.extents = fixture.compressed_extents();
        fixture
    }

    fn compressed_extents(&self) -> Vec<Range<u64>> {
        let (mut at, mut extents) = (0, Vec::new());
        while let Some(extent) = self.engine.extent(&self.file, at).unwrap() {
            if matches!(extent.kind, ExtentKind::Compressed(_)) {
                extents.push(extent.logical..extent.end());
            }
            at = extent.end();
        }
        extents
    }

    /// Reads a page; returns the stretches that were stored.
    fn read_page(&self, page: u64) -> Vec<Range<u64>> {
        let mut bytes = vec![0; PAGE as usize];
        let context = ReadContext::Reader { readahead: false };
        let request = self.engine.request(context);
        let read = self
            .engine
            .read_at(&request, &self.file, page * PAGE, &mut bytes);
        assert_eq!(
            bytes[..read.unwrap()],
            self.content[(page * PAGE) as usize..][..bytes.len()]
        );
        let stored = std::mem::take(&mut *self.stored.0.lock().unwrap());
        for (offset, bytes) in &stored {
            assert!(
                bytes[..] == self.content[*offset as usize..][..bytes.len()],
                "{offset}"
            );
        }
        let range = |(offset, bytes): &Stretch| *offset..offset + bytes.len() as u64;
        stored.iter().map(range).collect()
    }

    /// Neighbouring pclusters that share a page and also have pages of their own.
    fn neighbours(&self) -> impl Iterator<Item = (&Range<u64>, &Range<u64>)> {
        let pairs = self.extents.iter().zip(&self.extents[1..]);
        let long = |range: &Range<u64>| range.end - range.start > 4 * PAGE;
        pairs.filter(move |(left, right)| {
            left.end == right.start && left.end % PAGE != 0 && long(left) && long(right)
        })
    }
}

#[test]
fn the_page_that_two_pclusters_share_is_stored_with_the_first() {
    let fixture = Fixture::new("lz4-64k.erofs");
    let mut pairs = 0;
    for (left, _) in fixture.neighbours() {
        let stored = fixture.read_page(left.start / PAGE + 1);
        let end = stored.iter().map(|range| range.end).max();
        assert_eq!(end, Some(left.end.next_multiple_of(PAGE)), "{left:?}");
        pairs += 1;
    }
    assert!(pairs > 0);
}

#[test]
fn a_read_of_that_page_alone_stores_nothing() {
    let fixture = Fixture::new("lz4-64k.erofs");
    for (left, _) in fixture.neighbours() {
        assert_eq!(fixture.read_page(left.end / PAGE), [], "{left:?}");
    }
}
