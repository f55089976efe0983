//! Layers at URLs, mixed with local layers.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::{Mounts, compare, generate, missing};
use crate::common::{erofast, fetcher};
use crate::web_server::Server;

#[test]
fn layers_may_be_at_urls() {
    if let Some(why) = missing() {
        println!("skipped: {why}");
        return;
    }
    if fetcher().is_none() {
        return;
    }
    let mut here = Mounts::new();
    let Some(images) = generate::images(here.place.path(), 11, 4) else {
        return;
    };
    let server = Server::start(Vec::new());
    let mixed = images.iter().enumerate().map(|(number, image)| {
        let path = format!("/layer{number}.erofs");
        let bytes = fs::read(image).expect("the image");
        server.state().files.insert(path.clone(), Arc::new(bytes));
        // The second layer is local.
        match number {
            1 => image.clone(),
            _ => PathBuf::from(server.url(&path)),
        }
    });
    let mixed: Vec<PathBuf> = mixed.collect();
    let expected = here.erofast(&images, "default_permissions");
    let expected = compare::tree(&expected);
    let mut mounts = Mounts::new();
    let cache = mounts.point("cache");
    let options = format!("default_permissions,cache_dir={}", cache.display());
    let ours = mounts.erofast(&mixed, &options);
    let differences = compare::differences(&compare::tree(&ours), &expected);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let counters = erofast().args(["stat", "--json"]).arg(&ours).output();
    let counters = counters.expect("it starts").stdout;
    let counters: serde_json::Value = serde_json::from_slice(&counters).expect("counters");
    assert_eq!(counters["remote"].as_array().map(Vec::len), Some(3));
    let mut check = erofast();
    check
        .arg("check")
        .arg("--cache-dir")
        .arg(&cache)
        .arg(&mixed[0]);
    for lower in &mixed[1..] {
        check.arg("--lower").arg(lower);
    }
    let checked = check.output().expect("it starts");
    assert!(checked.status.success(), "{checked:?}");
    server.state().files.remove("/layer2.erofs");
    let mut list = erofast();
    list.arg("ls")
        .args([&mixed[0], &PathBuf::from("--lower"), &mixed[2]]);
    let refused = list.output().expect("it starts");
    let line = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(1), "{line}");
    assert!(
        line.contains("/layer2.erofs") && line.lines().count() == 1,
        "{line}"
    );
}
