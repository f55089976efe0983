//! Which engines take part, settled by really mounting before anything is measured.

use std::path::Path;

use super::{Engine, Site, missing, mount_point};
use crate::{Interrupt, LabError, Progress, Result};

/// The engines that can mount the image. One that the user named must; of the default list
/// (`asked.1`), one that cannot is left out, with a notice.
pub(crate) fn present(
    asked: (&[Engine], bool),
    site: &Site,
    points: &Path,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<(Vec<Engine>, Vec<String>)> {
    let (mut engines, mut left_out) = (Vec::new(), Vec::new());
    for engine in asked.0 {
        match try_out(engine, site, points, interrupt) {
            Ok(()) => engines.push(engine.clone()),
            Err(error) if asked.1 && !interrupt.asked() => {
                progress.line(&format!("left out: {error}"));
                left_out.push(error.to_string());
            }
            Err(error) => return Err(error),
        }
    }
    if engines.is_empty() {
        let why = left_out.join("; ");
        return Err(LabError::Usage(format!(
            "no engine is left to measure: {why}"
        )));
    }
    Ok((engines, left_out))
}

fn try_out(engine: &Engine, site: &Site, points: &Path, interrupt: &Interrupt) -> Result<()> {
    if let Some(missing) = missing(engine, site) {
        return Err(missing);
    }
    let point = mount_point(points, "trial")?;
    engine.mount(site, &point, interrupt)?.unmount()
}
