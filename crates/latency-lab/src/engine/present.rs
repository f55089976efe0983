//! Determines which engines take part by trying to mount with each before anything is measured.

use std::path::Path;

use super::{Engine, Site, missing, mount_point};
use crate::{Interrupt, LabError, Progress, Result};

/// The engines that can mount the image. Engines that the user named must be able to mount it. If
/// none is named, engines of the default list that cannot mount it are left out, with a notice.
pub(crate) fn present(
    named: &[Engine],
    site: &Site,
    points: &Path,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<(Vec<Engine>, Vec<String>)> {
    let (mut engines, mut failed) = (Vec::new(), Vec::new());
    let asked = match named {
        [] => Engine::default_list(),
        named => named.to_vec(),
    };
    for engine in asked {
        match try_out(&engine, site, points, interrupt) {
            Ok(()) => engines.push(engine),
            Err(error) if named.is_empty() && !interrupt.asked() => failed.push(error),
            Err(error) => return Err(error),
        }
    }
    // If no engine can mount the image, the image is to blame, and the error of the last engine
    // describes the problem best.
    if engines.is_empty() {
        let none = || LabError::Usage("no engine was given".into());
        return Err(failed.pop().unwrap_or_else(none));
    }
    let left_out: Vec<_> = failed.iter().map(ToString::to_string).collect();
    for line in &left_out {
        progress.line(&format!("left out: {line}"));
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
