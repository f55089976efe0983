//! The files whose windows are watched: those read most recently.

use erofs_engine::erofs_format::Nid;

use super::file::{File, Shows};

/// Number of files watched at the same time.
const FILES: usize = 64;

/// Ordered by last read; the latest is first.
#[derive(Debug)]
pub(super) struct Files(Vec<(Nid, File)>);

impl Default for Files {
    fn default() -> Self {
        // Allocate the whole list now, so that no request has to wait while the list grows.
        Self(Vec::with_capacity(FILES))
    }
}

impl Files {
    /// Notes that one or several pages were requested (see [`File::page`]).
    pub(super) fn page(&mut self, nid: Nid, offset: u64, single: bool) -> Shows {
        let file = self.0.iter_mut().find(|(of, _)| *of == nid);
        file.map_or(Shows::Nothing, |(_, file)| file.page(offset, single))
    }

    pub(super) fn is_random(&self, nid: Nid) -> bool {
        let mut files = self.0.iter();
        files.any(|(of, file)| *of == nid && file.is_random())
    }

    /// Returns the file, which becomes the one that was read last.
    pub(super) fn file(&mut self, nid: Nid) -> &mut File {
        let place = self.0.iter().position(|(of, _)| *of == nid);
        let place = place.unwrap_or_else(|| {
            self.0.truncate(FILES - 1);
            self.0.push((nid, File::default()));
            self.0.len() - 1
        });
        self.0[..=place].rotate_right(1);
        &mut self.0[0].1
    }
}
