//! Tests the real read and hotplug experiments, over the kernel's own EROFS; skips if it is
//! missing.

use crate::common::{alone, image, skipped};
use latency_lab::hotplug::{HotplugOptions, run as hotplug};
use latency_lab::load::LoadChoice;
use latency_lab::read::{ReadOptions, Test, run as read};
use latency_lab::{LabError, Silent};

#[test]
fn every_test_gives_its_samples_in_the_words_of_the_contract() {
    let _alone = alone();
    let options = ReadOptions {
        image: image(),
        erofast: "/no/such/erofast".into(),
        engines: vec!["kernel-loop".parse().unwrap()],
        iterations: Some(2),
        foreign_limit: 1.0,
        ..ReadOptions::default()
    };
    let report = match read(&options, &mut Silent) {
        Err(error @ LabError::EngineMissing { .. }) => return skipped(error),
        other => other.unwrap(),
    };
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    let results = json["results"].as_array().unwrap();
    assert_eq!(results.len(), 2 * Test::all().len());
    crate::common::schema::check("lab-read", &json);
    for result in results {
        assert_eq!(result["samples"].as_array().unwrap().len(), 2);
        assert!(result["median"].as_f64().unwrap() > 0.0, "{result}");
        assert!(
            ["seq", "rand", "tree", "meta", "list"].contains(&result["test"].as_str().unwrap())
        );
        assert!(["warm", "cold"].contains(&result["image"].as_str().unwrap()));
        assert!(["MB/s", "ops/s", "s"].contains(&result["unit"].as_str().unwrap()));
        assert_eq!(result["p99_us"].is_number(), result["test"] == "rand");
    }
}

#[test]
fn a_cpu_goes_and_comes_back_and_nothing_is_lost() {
    let _alone = alone();
    // Other tests may have threads on the CPU that goes offline, so this one runs only when
    // enabled.
    if std::env::var_os("EROFAST_TEST_HOTPLUG").is_none() {
        return skipped("takes a CPU offline; set EROFAST_TEST_HOTPLUG=1");
    }
    let options = HotplugOptions {
        image: image(),
        engine: "kernel-loop".parse().unwrap(),
        cycles: 2,
        readers: 4,
        load: LoadChoice::None,
        ..HotplugOptions::default()
    };
    let report = match hotplug(&options, &mut Silent) {
        Err(error @ (LabError::EngineMissing { .. } | LabError::Usage(_))) => {
            return skipped(error);
        }
        other => other.unwrap(),
    };
    let counts = &report.counts;
    assert_eq!((counts.cycles, counts.lost, counts.wrong_bytes), (2, 0, 0));
    assert!(counts.requests > 0 && report.valid);
}
