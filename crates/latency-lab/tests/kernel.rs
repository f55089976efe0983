//! Tests the variants of the kernel's EROFS in an actual virtual machine. Needs a network and
//! EROFAST_LAB_KERNEL=DIR, where DIR keeps packages and modules for the next run. The test takes
//! minutes, so it only runs on request.

use std::path::PathBuf;

use latency_lab::Silent;
use latency_lab::kernel::{KernelOptions, run};
use latency_lab::load::LoadChoice;

fn options() -> KernelOptions {
    KernelOptions {
        erofast: "/bin/sh".into(),
        iterations: 2,
        load: LoadChoice::None,
        reserved_pages: vec![0],
        ..KernelOptions::default()
    }
}

#[test]
fn variants_decompress_where_they_should() {
    let Some(work) = std::env::var_os("EROFAST_LAB_KERNEL").map(PathBuf::from) else {
        return println!("skipped: EROFAST_LAB_KERNEL names no directory to fetch packages into");
    };
    let options = KernelOptions {
        work: Some(work),
        ..options()
    };
    let report = run(&options, &mut Silent).unwrap();
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    let names: Vec<&str> = json["engines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|engine| engine["engine"].as_str().unwrap())
        .collect();
    assert_eq!(names[..3], ["workqueue", "kthread", "kthread,hipri"]);
    assert_eq!(names[3], "erofast:percpu,hipri,io_uring=off");
    let waiters = |engine: usize| {
        let samples = json["engines"][engine]["samples"].as_array().unwrap();
        let threads = samples
            .iter()
            .flat_map(|sample| sample["by_thread"].as_array().unwrap());
        threads
            .map(|thread| {
                (
                    thread["comm"].as_str().unwrap().to_owned(),
                    thread["priority"].as_i64().unwrap(),
                )
            })
            .collect::<Vec<_>>()
    };
    assert!(
        waiters(0)
            .iter()
            .all(|(comm, _)| comm.starts_with("kworker/"))
    );
    assert!(
        waiters(1)
            .iter()
            .all(|(comm, _)| comm.starts_with("erofs_worker/"))
    );
    let hipri = waiters(2);
    assert!(
        !hipri.is_empty() && hipri.iter().all(|(_, priority)| *priority == 98),
        "{hipri:?}"
    );
    let ours = waiters(3);
    let is_worker =
        |(comm, priority): &(String, i64)| comm.starts_with("erofs_worker/") && *priority == 98;
    assert!(ours.iter().any(is_worker), "{ours:?}");
    crate::common::schema::check("lab-kernel", &json);
}

#[test]
fn a_mirror_that_is_away_is_one_line() {
    let _alone = crate::common::alone();
    if std::process::Command::new("apt-get")
        .arg("--version")
        .output()
        .is_err()
    {
        return println!("skipped: apt is not installed");
    }
    let options = KernelOptions {
        mirror: "file:///no/such/mirror".into(),
        ..options()
    };
    let Err(error) = run(&options, &mut Silent) else {
        panic!("there is no mirror")
    };
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    assert!(
        line.starts_with("fetching the package lists: ") || line.contains("debian-archive-keyring"),
        "{line}"
    );
    let ours = format!("erofast-lab-{}-", std::process::id());
    let left = std::fs::read_dir("/var/tmp").unwrap().flatten();
    assert!(
        !left
            .map(|entry| entry.file_name())
            .any(|name| name.to_string_lossy().starts_with(&ours))
    );
}
