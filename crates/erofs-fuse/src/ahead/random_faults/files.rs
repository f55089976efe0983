//! The files whose windows are watched: those read most recently.

use std::ops::Range;

use erofs_engine::erofs_format::Nid;

use super::file::{File, Shows};

/// Number of files watched at the same time.
const FILES: usize = 64;

/// Ordered by last read; the latest is first.
#[derive(Debug)]
pub(super) struct Files {
    /// Size in bytes of the kernel's largest window.
    longest: u64,
    files: Vec<(Nid, File)>,
}

impl Files {
    pub(super) fn new(longest: u64) -> Self {
        Self {
            longest,
            files: Vec::with_capacity(FILES),
        }
    }

    /// Whether to decline this window of a file.
    pub(super) fn window(&mut self, nid: Nid, range: &Range<u64>) -> bool {
        let longest = self.longest;
        self.file(nid).window(range, longest)
    }

    /// Notes that one or several pages were requested (see [`File::page`]).
    pub(super) fn page(&mut self, nid: Nid, offset: u64, single: bool) -> Shows {
        let file = self.files.iter_mut().find(|(of, _)| *of == nid);
        file.map_or(Shows::Nothing, |(_, file)| file.page(offset, single))
    }

    pub(super) fn is_random(&self, nid: Nid) -> bool {
        let mut files = self.files.iter();
        files.any(|(of, file)| *of == nid && file.is_random())
    }

    fn file(&mut self, nid: Nid) -> &mut File {
        let place = self.files.iter().position(|(of, _)| *of == nid);
        let place = place.unwrap_or_else(|| {
            self.files.truncate(FILES - 1);
            self.files.push((nid, File::default()));
            self.files.len() - 1
        });
        self.files[..=place].rotate_right(1);
        &mut self.files[0].1
    }
}
