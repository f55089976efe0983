//! The free runs of the arena, and which of their pages are ready.
//!
//! A page is *ready* once it has been used: its memory is present, so its next user causes no page
//! fault. A request is served from the first of these places that has enough pages: the run that
//! was released most recently, whose bytes may still be in the CPU's cache; the ready pages with
//! the lowest address; the run with the lowest address.

use std::collections::VecDeque;

use sys::memory::Run;

/// Number of recent releases that are remembered; older ones have left the CPU's cache.
const RECENT: usize = 8;

/// Free runs, lowest address first, with neighbours always joined.
#[derive(Debug)]
pub(crate) struct FreeRuns {
    runs: Vec<Run>,
    ready: Vec<bool>,
    /// First pages of the latest releases, newest at the back.
    recent: VecDeque<usize>,
    pub(crate) free_pages: usize,
    /// No page from this index on has ever been used.
    untouched: usize,
}

/// Pages taken, and how many of them had never been used.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) run: Run,
    pub(crate) cold_pages: usize,
}

/// Where pages were found: the index of the run, and the number of the first page in the arena.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    page: usize,
}

impl FreeRuns {
    pub(crate) fn new(arena: Option<Run>, ready: bool) -> Self {
        let pages = arena.as_ref().map_or(0, Run::pages);
        FreeRuns {
            runs: arena.into_iter().collect(),
            ready: vec![ready; pages],
            recent: VecDeque::with_capacity(RECENT),
            free_pages: pages,
            untouched: if ready { pages } else { 0 },
        }
    }

    pub(crate) fn ready_pages(&self) -> usize {
        let pages = self.runs.iter().flat_map(|run| run.first_page()..end(run));
        pages.filter(|&page| self.ready[page]).count()
    }

    /// Takes a contiguous run, or returns `None` if no free run is long enough.
    pub(crate) fn take(&mut self, pages: usize) -> Option<Taken> {
        // A search would find nothing.
        if pages > self.free_pages {
            return None;
        }
        let place = self.recent_place(pages);
        let place = place
            .or_else(|| self.ready_place(pages))
            .or_else(|| self.any_place(pages))?;
        let stretch = &mut self.ready[place.page..place.page + pages];
        let cold_pages = stretch.iter().filter(|&&ready| !ready).count();
        stretch.fill(true);
        self.untouched = self.untouched.max(place.page + pages);
        Some(Taken {
            run: self.cut(place, pages),
            cold_pages,
        })
    }

    /// Takes back a run and joins it with its neighbours.
    pub(crate) fn put(&mut self, run: Run) {
        self.free_pages += run.pages();
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(run.first_page());
        let index = self
            .runs
            .partition_point(|other| other.first_page() < run.first_page());
        self.runs.insert(index, run);
        self.join_with_next(index);
        if index > 0 {
            self.join_with_next(index - 1);
        }
    }

    fn join_with_next(&mut self, index: usize) {
        let next = index + 1;
        if next >= self.runs.len() || !self.runs[index].is_followed_by(&self.runs[next]) {
            return;
        }
        let next = self.runs.remove(next);
        let this = self.runs.remove(index);
        match this.join(next) {
            Ok(joined) => self.runs.insert(index, joined),
            Err(_) => unreachable!("neighbours were checked above"),
        }
    }

    /// The most recent remembered place with enough ready pages. Places that do not qualify are
    /// dropped: their pages are in use or too few.
    fn recent_place(&mut self, pages: usize) -> Option<Place> {
        while let Some(page) = self.recent.pop_back() {
            let index = self
                .runs
                .partition_point(|run| run.first_page() <= page)
                .checked_sub(1);
            let Some(index) = index else { continue };
            if page + pages <= end(&self.runs[index]) && self.is_ready(page, pages) {
                return Some(Place { index, page });
            }
        }
        None
    }

    fn is_ready(&self, page: usize, pages: usize) -> bool {
        self.ready[page..page + pages].iter().all(|&ready| ready)
    }

    fn ready_place(&self, pages: usize) -> Option<Place> {
        let ready = |run: &Run| {
            let mut length = 0;
            let mut range = run.first_page()..end(run).min(self.untouched);
            let last = range.find(|&page| {
                length = if self.ready[page] { length + 1 } else { 0 };
                length == pages
            })?;
            Some(last + 1 - pages)
        };
        let mut found = self.runs.iter().enumerate();
        found.find_map(|(index, run)| ready(run).map(|page| Place { index, page }))
    }

    fn any_place(&self, pages: usize) -> Option<Place> {
        let index = self.runs.iter().position(|run| run.pages() >= pages)?;
        Some(Place {
            index,
            page: self.runs[index].first_page(),
        })
    }

    /// Cuts the pages out of their run; the rest on both sides remains free.
    fn cut(&mut self, place: Place, pages: usize) -> Run {
        self.free_pages -= pages;
        let mut run = self.runs.remove(place.index);
        let mut index = place.index;
        let before = place.page - run.first_page();
        if before > 0 {
            let rest = run.split_off(before);
            self.runs.insert(index, run);
            index += 1;
            run = rest;
        }
        if run.pages() > pages {
            let behind = run.split_off(pages);
            self.runs.insert(index, behind);
        }
        run
    }
}

fn end(run: &Run) -> usize {
    run.first_page() + run.pages()
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn free(pages: usize) -> FreeRuns {
        FreeRuns::new(Some(Run::map(pages).unwrap()), false)
    }

    fn take(free: &mut FreeRuns, pages: usize) -> Taken {
        free.take(pages).unwrap()
    }

    #[test]
    fn first_fit_from_the_lowest_address_and_cold_once() {
        let mut free = free(4);
        let first = take(&mut free, 1);
        let second = take(&mut free, 2);
        assert_eq!((first.run.first_page(), second.run.first_page()), (0, 1));
        assert_eq!((first.cold_pages, second.cold_pages), (1, 2));
        free.put(second.run);
        assert_eq!(take(&mut free, 2).cold_pages, 0);
    }

    #[test]
    fn the_run_released_last_is_taken_first() {
        let mut free = free(8);
        let runs: Vec<Run> = (0..4).map(|_| take(&mut free, 2).run).collect();
        let places: Vec<usize> = runs.iter().map(Run::first_page).collect();
        runs.into_iter().for_each(|run| free.put(run));
        let again: Vec<Run> = (0..4).map(|_| take(&mut free, 2).run).collect();
        let reversed: Vec<usize> = again.iter().rev().map(Run::first_page).collect();
        assert_eq!(places, reversed);
    }

    #[test]
    fn ready_pages_are_preferred_to_untouched_ones() {
        let mut free = free(8);
        let low = take(&mut free, 4);
        let high = take(&mut free, 2);
        free.put(high.run);
        free.recent.clear();
        // Pages 6 and 7 were never touched; 4 and 5 were.
        assert_eq!(take(&mut free, 2).run.first_page(), 4);
        drop(low);
    }

    #[test]
    fn released_runs_are_joined() {
        let mut free = free(8);
        let mut runs: Vec<Run> = (0..8).map(|_| take(&mut free, 1).run).collect();
        assert!(free.take(1).is_none());
        runs.swap(1, 6);
        runs.swap(0, 3);
        runs.into_iter().for_each(|run| free.put(run));
        assert_eq!(
            (free.runs.len(), free.free_pages, free.ready_pages()),
            (1, 8, 8)
        );
    }

    #[test]
    fn fragments_do_not_serve_a_contiguous_request() {
        let mut free = free(3);
        let runs: Vec<Run> = (0..3).map(|_| take(&mut free, 1).run).collect();
        let mut runs = runs.into_iter();
        free.put(runs.next().unwrap());
        let middle = runs.next().unwrap();
        free.put(runs.next().unwrap());
        assert!(free.take(2).is_none());
        free.put(middle);
        assert!(free.take(3).is_some());
    }
}
