//! Several reports of one experiment side by side, for example from different days, devices or
//! versions.
//!
//! Unlike samples of the engines of one run, samples of different reports were not interleaved.
//! Whatever else differs between the runs affects the result, so the environments are compared as
//! well.

use std::path::PathBuf;

use serde_json::Value;

use super::Report;
use crate::figure::{Figure, Row, compared, comparisons, medians, shown};
use crate::findings::Findings;
use crate::shell::quote;
use crate::statistics::{Verdict, correct};
use crate::table::Table;
use crate::{LabError, Result, html};

/// One or more reports of the same experiment, with the names of their files.
#[derive(Debug, Clone)]
pub struct Reports {
    /// The reports; at least one.
    pub(crate) all: Vec<(String, Report)>,
}

impl Reports {
    /// Reads files written by `--json`.
    pub fn read(files: &[PathBuf]) -> Result<Reports> {
        let mut all: Vec<(String, Report)> = Vec::new();
        for file in files {
            let mut name = file.display().to_string();
            if all.iter().any(|(other, _)| *other == name) {
                name = format!("{name} ({})", all.len() + 1);
            }
            all.push((name, Report::read(file)?));
        }
        let reports = Reports { all };
        let (first, kind) = (&reports.all[0].0, reports.kind());
        for (name, other) in reports.others() {
            let other = other.findings().kind;
            if other != kind {
                return Err(LabError::Usage(format!(
                    "{first} is a report of lab {kind}, {name} of lab {other}: only reports of \
                     the same experiment can be compared"
                )));
            }
            reports.check_samples()?;
        }
        if let Some((name, what)) = reports.differences(&EXPERIMENT).into_iter().next() {
            let text = format!("{first} and {name} cannot be compared: {what}");
            return Err(LabError::Usage(text));
        }
        Ok(reports)
    }

    /// Checks that the reports have samples to compare or export.
    fn check_samples(&self) -> Result<()> {
        let (name, report) = &self.all[0];
        match report.findings().figures.is_empty() {
            false => Ok(()),
            true => Err(LabError::Usage(format!(
                "{name}: reports of lab {} have no samples",
                self.kind()
            ))),
        }
    }

    /// The experiment that the reports are from.
    pub(crate) fn kind(&self) -> &'static str {
        self.all[0].1.findings().kind
    }

    fn others(&self) -> impl Iterator<Item = &(String, Report)> {
        self.all.iter().skip(1)
    }

    /// The figures of every engine, each with a row for each report; the rows are compared with the
    /// first. If a report lacks a figure, its row has no samples.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let series: Vec<Vec<Series>> = self.all.iter().map(|(_, it)| series(it)).collect();
        let mut figures: Vec<Figure> = Vec::new();
        for (name, unit, _) in series.iter().flatten().filter(|it| !it.2.is_empty()) {
            let is_same = |figure: &Figure| figure.name == *name && figure.unit == *unit;
            if figures.iter().any(is_same) {
                continue;
            }
            let samples = |of: &Vec<Series>| {
                let found = of.iter().find(|it| it.0 == *name && it.1 == *unit);
                found.map_or(Vec::new(), |it| it.2.clone())
            };
            let rows = self.all.iter().zip(&series);
            figures.push(Figure {
                name: name.clone(),
                of: "",
                unit: unit.clone(),
                rows: compared(rows.map(|((name, _), of)| (name.clone(), samples(of)))),
            });
        }
        correct(comparisons(&mut figures).collect());
        if !self.faults().is_empty() {
            comparisons(&mut figures).for_each(|it| it.verdict = Verdict::NotShown);
        }
        figures
    }

    /// The reports that are not valid, with the reasons.
    pub(crate) fn faults(&self) -> Vec<String> {
        let all = self.all.iter();
        let invalid = all.filter(|(_, report)| !report.faults().is_empty());
        let invalid = invalid.map(|(name, _)| format!("{name} is marked as not valid"));
        invalid.collect()
    }

    /// How settings and environments differ from those of the first report.
    pub(crate) fn notices(&self) -> Vec<String> {
        let texts: Vec<String> = self.all.iter().map(|(_, it)| it.to_json()).collect();
        let same = |place: &usize| texts[..*place].contains(&texts[*place]);
        let again = (1..texts.len()).filter(same);
        let again = again
            .map(|place| format!("{} is the same run as an earlier report", self.all[place].0));
        let what = |(_, what): (&str, String)| what;
        let environment = environment(&value(&self.all[0].1));
        again
            .chain(self.differences(&SETTINGS).into_iter().map(what))
            .chain(self.commands())
            .chain(self.differences(&environment).into_iter().map(what))
            .collect()
    }

    /// The values at these paths that differ from those of the first report, each with the name of
    /// its report.
    fn differences(&self, paths: &[(impl AsRef<str>, impl AsRef<str>)]) -> Vec<(&str, String)> {
        let first = value(&self.all[0].1);
        let mut found = Vec::new();
        for (name, other) in self.others() {
            let other = value(other);
            for (path, what) in paths {
                let what = difference(what.as_ref(), path.as_ref(), &first, name, &other);
                found.extend(what.map(|what| (name.as_str(), what)));
            }
        }
        found
    }

    /// Commands that differ from the command of the same name in the first report.
    fn commands(&self) -> Vec<String> {
        let rows = |report: &Report| {
            let rows = value(report)["engines"].as_array().cloned();
            rows.unwrap_or_default()
        };
        let first = rows(&self.all[0].1);
        let mut found = Vec::new();
        for (name, other) in self.others() {
            for row in rows(other) {
                let is_same =
                    |it: &&Value| ["engine", "number"].iter().all(|at| it[*at] == row[*at]);
                let Some(old) = first.iter().find(is_same) else {
                    continue;
                };
                for (field, what) in [("command", "command"), ("prepare", "--prepare")] {
                    if old[field] != row[field] {
                        let (of, was, is) =
                            (text(&row["engine"]), text(&old[field]), text(&row[field]));
                        found.push(format!("{what} of {of} differs: {was}, in {name} {is}"));
                    }
                }
            }
        }
        found
    }

    /// The findings of a single report, or of several reports side by side.
    fn findings(&self) -> Findings {
        if let [(_, report)] = &self.all[..] {
            return report.findings();
        }
        let figures = shown(self.figures(), self.faults().is_empty());
        let captions = self.all.iter();
        let captions = captions.map(|(name, it)| (name.clone(), it.findings().caption()));
        Findings {
            kind: self.kind(),
            title: "Reports side by side",
            about: format!("{} reports of lab {}", self.all.len(), self.kind()),
            faults: self.faults(),
            summary: figures.iter().map(Figure::claims).collect(),
            differences: self.notices(),
            legend: format!(
                "{}\nThe runs were not interleaved, so any other change shows too.\n",
                medians(&figures, "report")
            ),
            appendix: vec![("The reports".into(), Table::words("", captions.collect()))],
            figures,
            ..Findings::default()
        }
    }

    /// The answer of a single report; for several, the medians with verdicts and intervals.
    pub fn answer(&self) -> String {
        self.findings().answer()
    }

    /// The whole report as text.
    pub fn table(&self) -> String {
        self.findings().table()
    }

    /// One HTML file, which needs no network.
    pub fn to_html(&self) -> String {
        let json: Vec<String> = self.all.iter().map(|(_, it)| it.to_json()).collect();
        let json = match &json[..] {
            [one] => one.clone(),
            all => format!("[{}]", all.join(",\n")),
        };
        html::report(&self.findings(), &json)
    }

    /// Comma-separated values: every sample of every report, one per line.
    pub fn to_csv(&self) -> Result<String> {
        self.check_samples()?;
        let mut out = "report,figure,row,sample,value,unit,valid\n".to_owned();
        for (name, report) in &self.all {
            let valid = report.faults().is_empty();
            for figure in report.findings().figures {
                for row in &figure.rows {
                    let words = [name, &figure.name, &row.name, &figure.unit];
                    let [name, of, row_name, unit] = words.map(|it| quoted(it));
                    let words = format!("{name},{of},{row_name}");
                    let line = |(at, value)| format!("{words},{at},{value},{unit},{valid}\n");
                    out.extend((1..).zip(&row.samples).map(line));
                }
            }
        }
        Ok(out)
    }

    /// One Markdown table per figure, for documentation.
    pub fn to_markdown(&self) -> Result<String> {
        self.check_samples()?;
        let captions = self.all.iter();
        let captions =
            captions.map(|(name, report)| format!("* {name}: {}\n", report.findings().caption()));
        let differences = self.findings().differences.into_iter();
        let differences = differences.map(|line| format!("* {line}\n"));
        let figures = self.findings().figures;
        let tables = figures
            .iter()
            .map(|it| format!("\n{}", it.table().markdown()));
        Ok(captions.chain(differences).chain(tables).collect())
    }
}

/// A field of comma-separated values.
fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.into(),
    }
}

/// The names of the engine and figure, the unit, and the samples.
type Series = (String, String, Vec<f64>);

fn series(report: &Report) -> Vec<Series> {
    let figures = report.findings().figures.into_iter();
    let of = |figure: Figure| {
        let (name, unit) = (figure.name, figure.unit);
        let row = move |row: Row| (format!("{}, {name}", row.name), unit.clone(), row.samples);
        figure.rows.into_iter().map(row)
    };
    figures.flat_map(of).collect()
}

/// The path of a value in a report, and its name.
type Path = (&'static str, &'static str);

/// Paths of the values that identify the experiment: runs that differ in one of them are different
/// experiments.
const EXPERIMENT: [Path; 3] = [
    ("/command", "command"),
    ("/prepare", "--prepare"),
    ("/chdir", "--chdir"),
];

/// Paths of the settings of a measurement. If a setting differs, every verdict is affected, so the
/// difference is reported before the verdicts.
const SETTINGS: [Path; 8] = [
    ("/iterations", "--iterations"),
    ("/warm_ups", "--warmup"),
    ("/root", "--root"),
    ("/programs", "--programs"),
    ("/limit_bytes", "--limit in bytes"),
    ("/mount_options", "--options"),
    ("/machine/accelerator", "accelerator"),
    ("/load", "load"),
];

/// Paths of values that are specific to one run or follow from another value.
const OF_ONE_RUN: [&str; 8] = [
    "/date",
    "/cpu_steal_share",
    "/cgroup_throttled_us",
    "/load_average",
    "/memory_available_kib",
    "/image/path",
    "/image/bytes",
    "/image/changed",
];

/// Names of environment values, the most important first; values that are not listed are named
/// after their fields.
const NAMES: [Path; 22] = [
    ("/kernel", "kernel"),
    ("/cpus", "CPUs"),
    ("/cpu_model", "CPU"),
    ("/smt", "SMT"),
    ("/isolated_cpus", "isolated CPUs"),
    ("/nice", "nice value"),
    ("/scheduling_policy", "scheduling policy"),
    ("/allowed_cpus", "allowed CPUs"),
    ("/sched_ext", "sched_ext"),
    ("/base_slice_ns", "base slice in ns"),
    ("/swaps", "swap"),
    ("/sched_autogroup_enabled", "sched_autogroup_enabled"),
    ("/sched_rt_runtime_us", "sched_rt_runtime_us"),
    ("/sched_rt_period_us", "sched_rt_period_us"),
    ("/cgroup_cpu", "cgroup"),
    (
        "/cgroup_rt_runtime_us",
        "real-time budget of the cgroup in us",
    ),
    ("/memory_kib", "memory in KiB"),
    ("/fuse_uring_enabled", "FUSE over io_uring"),
    ("/cgroup_quota_us", "CPU quota of the cgroup in us"),
    ("/cgroup_period_us", "period of the CPU quota in us"),
    ("/image/sha256", "image"),
    ("/image/filesystem", "file system of the image"),
];

/// Every environment value that is not specific to one run, with its path and name. A new field is
/// compared unless it is added to [`OF_ONE_RUN`].
fn environment(report: &Value) -> Vec<(String, String)> {
    let mut values = Vec::new();
    if let Some(environment) = report.get("environment").and_then(Value::as_object) {
        for (field, value) in environment {
            match value {
                Value::Object(parts) if matches!(&field[..], "programs" | "image") => {
                    let path = |part| format!("/{field}/{part}");
                    values.extend(parts.keys().map(path));
                }
                _ => values.push(format!("/{field}")),
            }
        }
    }
    values.retain(|path| !OF_ONE_RUN.contains(&path.as_str()));
    let place = |path: &String| NAMES.iter().position(|(known, _)| known == path);
    values.sort_by_key(|path| place(path).unwrap_or(NAMES.len()));
    let name = |path: &String| match NAMES.iter().find(|(known, _)| known == path) {
        Some((_, name)) => (*name).to_owned(),
        None => path
            .rsplit('/')
            .next()
            .unwrap_or_default()
            .replace('_', " "),
    };
    values
        .into_iter()
        .map(|path| (format!("/environment{path}"), name(&path)))
        .collect()
}

fn value(report: &Report) -> Value {
    serde_json::to_value(report).unwrap_or_default()
}

/// Describes a difference. A value that is missing from a report from an early version is not
/// reported, since it is not known to differ.
fn difference(what: &str, path: &str, first: &Value, name: &str, other: &Value) -> Option<String> {
    let (old, new) = first.pointer(path).zip(other.pointer(path))?;
    (old != new).then(|| format!("{what} differs: {}, in {name} {}", text(old), text(new)))
}

/// Formats a value as a user would write it.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(words) if !words.is_empty() => {
            let words = words.iter().filter_map(Value::as_str).map(quote);
            words.collect::<Vec<_>>().join(" ")
        }
        Value::Null | Value::Array(_) => "none".into(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(title: &str, around: f64, kernel: &str) -> Report {
        let samples: Vec<f64> = (0..20).map(|k| around + f64::from(k % 5)).collect();
        let mut report: Value = serde_json::from_str(READ).unwrap();
        report["environment"]["kernel"] = json!(kernel);
        report["results"][0]["title"] = json!(title);
        report["results"][0]["samples"] = json!(samples);
        Report::from_json(report.to_string().as_bytes()).unwrap()
    }

    /// A report that lacks the fields that later versions added.
    const READ: &str = r#"{"iterations": 20, "valid": true, "interrupted": false, "left_out": [],
        "environment": {"date": "2026-11-23", "kernel": "", "cpus": "0-1", "programs": {},
                        "image": {"path": "a", "bytes": 1, "sha256": "0"}},
        "results": [{"engine": "kernel", "test": "tree", "title": "", "readers": 1, "block": 0,
                     "image": "warm", "unit": "s", "samples": [], "median": 1.0, "minimum": 1.0,
                     "maximum": 1.0, "thrown_away": 0, "spoilt": 0}]}"#;

    #[test]
    fn readings_that_were_spoilt_or_are_of_one_round_are_not_believed() {
        let changed = |field: &str, value: Value| {
            let mut report = super::value(&read("tree", 7.0, "6.18"));
            report["results"][0][field] = value;
            Report::from_json(report.to_string().as_bytes())
        };
        let faults = |field, value| changed(field, value).unwrap().faults();
        assert!(faults("spoilt", json!(0)).is_empty());
        assert_eq!(
            faults("spoilt", json!(3)),
            ["samples that were spoilt: 3 (unknown)"]
        );
        assert_eq!(faults("samples", json!([7.0])), ["incomplete"]);
        let refused = |field, value| changed(field, value).unwrap_err();
        let twice = "kernel, tree, image warm has two samples of round 1";
        assert_eq!(refused("rounds", json!(vec![0; 20])), twice);
        assert!(refused("rounds", json!([0, 1])).ends_with("has 2 rounds, but 20 samples"));
        assert!(refused("samples", json!([-1.0])).ends_with("a sample is -1"));
    }

    fn reports(all: [(&str, Report); 3]) -> Reports {
        let all = all.map(|(name, report)| (name.to_owned(), report));
        Reports { all: all.into() }
    }

    #[test]
    fn names_with_commas_stay_one_field() {
        assert_eq!(quoted("erofast:percpu,hipri"), "\"erofast:percpu,hipri\"");
        assert_eq!(quoted("a \"b\""), "\"a \"\"b\"\"\"");
    }

    #[test]
    fn each_report_is_compared_with_the_first_by_the_rules_of_one_run() {
        let reports = reports([
            ("a.json", read("tree", 100.0, "6.18")),
            ("b.json", read("tree", 80.0, "6.19")),
            ("c.json", read("other", 80.0, "6.18")),
        ]);
        let figures = reports.figures();
        assert_eq!(figures.len(), 2);
        let names: Vec<&str> = figures[0]
            .rows
            .iter()
            .map(|row| row.name.as_str())
            .collect();
        assert_eq!(names, ["a.json", "b.json", "c.json"]);
        assert!(figures[0].rows[2].samples.is_empty());
        let shift = figures[0].rows[1].against_first.as_ref().unwrap();
        assert_eq!((shift.verdict, shift.comparisons), (Verdict::Lower, 1));
        assert!(figures[1].rows[2].against_first.is_none());
        assert_eq!(reports.notices(), ["kernel differs: 6.18, in b.json 6.19"]);
        let text = reports.answer();
        let head = "kernel differs: 6.18, in b.json 6.19\n1 comparison: 1 lower.\n\
                    3 reports of lab read; valid\n";
        assert!(text.starts_with(head), "{text}");
        assert!(
            text.contains("\nkernel, tree, image warm\n  a.json      102 s\n"),
            "{text}"
        );
        assert!(
            text.contains("  b.json     82.0 s  lower, -21 to -18 %\n"),
            "{text}"
        );
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        let html = reports.to_html();
        assert!(html.contains("Kernel, tree, image warm") && html.contains("class=\"zero\""));
        let csv = reports.to_csv().unwrap();
        assert_eq!(csv.lines().count(), 1 + 60);
        assert!(csv.contains("\nb.json,\"tree, image warm\",kernel,1,80,s,true\n"));
        let markdown = reports.to_markdown().unwrap();
        assert!(markdown.contains("| b.json | 82.0 s |"), "{markdown}");
    }
}
