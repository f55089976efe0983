//! Takes one sample: warms the image or drops it from the page cache, mounts it anew, runs the
//! readers, unmounts.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::ReadOptions;
use super::cell::{Cell, ImageState};
use super::content::Content;
use super::job::{Measured, measure};
use crate::engine::{Engine, Mounted, Site, drop_from_cache, mount_point, warm};
use crate::process::Others;
use crate::schedule::{Executor, Outcome, Thrown};
use crate::{Interrupt, LabError, Progress, Result};

/// Maximum number of bytes that a sequential test reads from the biggest files.
const SEQUENTIAL: u64 = 512 << 20;

pub(super) struct Bench<'a> {
    options: &'a ReadOptions,
    site: &'a Site,
    engines: Vec<Engine>,
    pub(super) cells: Vec<Cell>,
    point: PathBuf,
    content: Content,
    interrupt: &'a Interrupt,
}

impl<'a> Bench<'a> {
    pub(super) fn new(
        options: &'a ReadOptions,
        site: &'a Site,
        engines: Vec<Engine>,
        points: &Path,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let point = mount_point(points, "mount")?;
        let mut cells = Vec::new();
        for &image in &options.states {
            for &test in &options.tests {
                cells.extend(engines.iter().map(|engine| Cell {
                    engine: engine.clone(),
                    test,
                    image,
                }));
            }
        }
        let content = Content::default();
        Ok(Bench {
            options,
            site,
            engines,
            cells,
            point,
            content,
            interrupt,
        })
    }

    /// Selects what to read, and checks that every engine delivers the same bytes as the first.
    pub(super) fn compare_bytes(&mut self, progress: &mut dyn Progress) -> Result<()> {
        progress.begin("comparing what the engines read", self.engines.len() as u64);
        let mut first: Option<Vec<u8>> = None;
        for (number, engine) in self.engines.iter().enumerate() {
            let mut mounted = engine.mount(self.site, &self.point, self.interrupt)?;
            if first.is_none() {
                self.content = read(engine, Content::find(&self.point, SEQUENTIAL), &mut mounted)?;
            }
            let hash = read(engine, self.content.hash(&self.point), &mut mounted)?;
            mounted.unmount()?;
            if first.get_or_insert_with(|| hash.clone()) != &hash {
                let text = format!(
                    "engine {engine}: reads different bytes than {} from this image",
                    self.engines[0]
                );
                return Err(LabError::Usage(text));
            }
            progress.step(number as u64 + 1, &engine.to_string());
        }
        match self.content.parts.is_empty() {
            true => Err(LabError::Usage(
                "lab read: the image has no file with content".into(),
            )),
            false => Ok(()),
        }
    }

    fn sample(&self, cell: &Cell) -> Result<Outcome<Measured>> {
        match cell.image {
            ImageState::Warm => warm(&self.site.image)?,
            ImageState::Cold => drop_from_cache(&self.site.image)?,
        }
        let mut mounted = cell.engine.mount(self.site, &self.point, self.interrupt)?;
        if cell.image == ImageState::Cold {
            // Drops the blocks that mounting has read: the superblock and its neighbours.
            drop_from_cache(&self.site.image)?;
        }
        let others = Others::now(mounted.daemon());
        let seed = self.options.seed;
        let measured = measure(cell.test, &self.content, &self.point, seed);
        let measured = read(&cell.engine, measured, &mut mounted)?;
        let share = others.share(Duration::from_secs_f64(measured.seconds));
        mounted.unmount()?;
        Ok(self.judge(measured, share))
    }

    fn judge(&self, measured: Measured, share: f64) -> Outcome<Measured> {
        if share > self.options.foreign_limit {
            let reason = format!("other programs took {:.0} % of the CPU time", share * 100.0);
            let time_us = measured.seconds * 1e6;
            return Outcome::Spoilt(Thrown { reason, time_us }, Some(measured));
        }
        Outcome::Good(measured)
    }
}

impl Executor for Bench<'_> {
    type Sample = Measured;

    fn measure(&mut self, cell: usize) -> Result<Outcome<Measured>> {
        match self.sample(&self.cells[cell]) {
            Err(_) if self.interrupt.asked() => Ok(Outcome::Interrupted),
            other => other,
        }
    }

    fn name(&self, cell: usize) -> String {
        let cell = &self.cells[cell];
        format!("{}, {}", cell.engine, cell.test.title())
    }
}

/// The result of a read. If the read failed and the daemon has ended, the error says how the daemon
/// ended.
fn read<T>(engine: &Engine, result: std::io::Result<T>, mounted: &mut Mounted) -> Result<T> {
    result.map_err(|source| match mounted.check() {
        Err(died) => died,
        Ok(()) => LabError::Io {
            what: format!("engine {engine}: reading"),
            source,
        },
    })
}
