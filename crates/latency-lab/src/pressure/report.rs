//! The report of a pressure experiment. Its JSON is described in docs/schemas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::options::PressureOptions;
use super::rounds::Measured;
use crate::DaemonMemory;
use crate::environment::Environment;
use crate::figure::{Figure, compared, comparisons, count, medians, percent, shown};
use crate::findings::{Findings, reasons};
use crate::process::FOREIGN_LIMIT;
use crate::shell::lossy;
use crate::statistics::{Summary, correct, fewest_samples};
use crate::table::{Column, Table};

/// The pool size that the report judges, and the share of allocations that it must cover.
const QUESTION_PAGES: u64 = 64;
const QUESTION_SHARE: f64 = 0.95;

/// Number of compared figures.
const FIGURES: usize = 2;

/// The report of `lab pressure`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PressureReport {
    /// One entry per pool size.
    pub pools: Vec<PoolReport>,
    /// Whether 64 pages are enough.
    pub sufficient: Option<Sufficient>,
    /// Whether all launches were made, every launch needed pages, and reclaim could be counted.
    pub valid: bool,
    /// Why the run is not valid; empty if it is valid.
    #[serde(default)]
    pub not_valid_because: Vec<String>,
    /// Whether the user stopped the run.
    pub interrupted: bool,
    /// Why reclaim could not be counted, if it could not.
    pub reclaims_unknown: Option<String>,
    /// The last program; if empty, a program that reads files. Reports from early versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Number of consecutive programs; the last one was measured.
    pub programs: usize,
    /// Memory limit of the group.
    pub limit_bytes: u64,
    /// Mount options that are the same for all sizes of the pool.
    pub mount_options: String,
    /// The environment of the run.
    pub environment: Environment,
}

/// One way to get buffers: averages over its launches, as in the table of the kernel patch.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct PoolReport {
    /// Size of the pool, in pages.
    pub reserved_pages: usize,
    /// CPU time that the allocating threads spent getting pages, without the time for reading the
    /// clocks.
    pub alloc_cpu_us: f64,
    /// Elapsed time that the allocating threads spent getting pages.
    pub alloc_wall_us: f64,
    /// `alloc_cpu_us` as a fraction of its value without a pool.
    pub alloc_cpu_share: Option<f64>,
    /// Number of allocations.
    pub requests: f64,
    /// How often the allocating thread began to reclaim memory inside a window.
    pub reclaims: Option<f64>,
    /// 95th percentile of the pages in use after an allocation.
    pub pages_in_use_p95: u64,
    /// The most pages in use at once.
    pub pages_in_use_max: u64,
    /// Pages that came from the pool.
    pub hit_pages: f64,
    /// Pages that came from the system.
    pub missed_pages: f64,
    /// How long the measured program ran.
    pub launch_us: Option<Summary>,
    /// The daemon's memory in the launch in which it used most.
    pub memory: Option<DaemonMemory>,
    /// All launches.
    pub samples: Vec<PoolSample>,
}

/// One launch.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PoolSample {
    /// See [`PoolReport`].
    pub alloc_cpu_us: f64,
    /// See [`PoolReport`].
    pub alloc_wall_us: f64,
    /// CPU time for reading the clocks, which is already subtracted from `alloc_cpu_us`.
    pub clocks_cpu_us: f64,
    /// See [`PoolReport`].
    pub requests: u64,
    /// See [`PoolReport`].
    pub reclaims: Option<u64>,
    /// Bytes decoded for the program.
    pub decoded_bytes: u64,
    /// See [`PoolReport`].
    pub launch_us: f64,
    /// The group's peak memory.
    pub group_peak_bytes: Option<u64>,
    /// How often each number of pages was in use right after an allocation.
    pub pages_in_use: Vec<(u64, u64)>,
}

/// Whether 64 pages are enough for 95 % of the allocations.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Sufficient {
    /// The fraction of all allocations after which at most 64 pages were in use.
    pub share_within_64_pages: f64,
    /// The number of pages that would be enough for 95 % of the allocations.
    pub pages_for_95_percent: u64,
}

pub(super) fn build(
    options: &PressureOptions,
    environment: Environment,
    interrupted: bool,
    samples: Vec<Measured>,
) -> PressureReport {
    let of = |pages| -> Vec<&Measured> { samples.iter().filter(|s| s.pages == pages).collect() };
    let pool = |&pages: &usize| summed(pages, &of(pages));
    let pools = options.pools.iter().filter_map(pool).collect();
    let mut unknown = samples
        .iter()
        .map(|sample| &sample.counters.reclaims_unknown);
    let reclaims_unknown = unknown.find_map(Option::clone);
    let environment = environment.ended();
    let mut faults = faults(options, interrupted, &samples, reclaims_unknown.as_deref());
    faults.extend(environment.image.changed.clone());
    let mut report = PressureReport {
        pools,
        sufficient: None,
        valid: faults.is_empty(),
        not_valid_because: faults,
        interrupted,
        reclaims_unknown,
        command: Some(lossy(&options.command)),
        programs: options.programs,
        limit_bytes: options.limit,
        mount_options: options.mount_options.clone(),
        environment,
    };
    report.compute();
    report
}

/// All reasons why the run is not valid.
fn faults(
    options: &PressureOptions,
    interrupted: bool,
    samples: &[Measured],
    reclaims_unknown: Option<&str>,
) -> Vec<String> {
    let (wanted, made) = (options.pools.len() * options.iterations, samples.len());
    let count = |of: fn(&&Measured) -> bool| samples.iter().filter(of).count();
    let without = count(|sample| sample.counters.allocations == 0);
    let disturbed = count(|sample| sample.foreign_share > FOREIGN_LIMIT);
    let faults = [
        interrupted.then(|| "the run was interrupted".into()),
        (made < wanted).then(|| format!("only {made} of {wanted} launches were made")),
        (without > 0).then(|| {
            format!(
                "{without} of {made} launches needed no pages: the program reads too little, or \
                 what it reads was cached"
            )
        }),
        (disturbed > 0).then(|| {
            format!(
                "other programs took more than {:.0} % of the CPU time in {disturbed} of {made} \
                 launches",
                FOREIGN_LIMIT * 100.0
            )
        }),
        not_counted(reclaims_unknown),
    ];
    faults.into_iter().flatten().collect()
}

fn not_counted(reclaims_unknown: Option<&str>) -> Option<String> {
    reclaims_unknown.map(|reason| format!("reclaims were not counted: {reason}"))
}

fn summed(reserved_pages: usize, samples: &[&Measured]) -> Option<PoolReport> {
    if samples.is_empty() {
        return None;
    }
    let average = |value: &dyn Fn(&Measured) -> f64| {
        samples.iter().map(|sample| value(sample)).sum::<f64>() / samples.len() as f64
    };
    let memory = samples.iter().filter_map(|sample| sample.memory);
    Some(PoolReport {
        reserved_pages,
        hit_pages: average(&|s| s.counters.hit_pages as f64),
        missed_pages: average(&|s| s.counters.missed_pages as f64),
        memory: memory.max_by_key(|memory| memory.peak_rss_bytes),
        samples: samples.iter().map(|sample| one(sample)).collect(),
        ..PoolReport::default()
    })
}

fn one(sample: &Measured) -> PoolSample {
    let counters = &sample.counters;
    PoolSample {
        alloc_cpu_us: counters.cpu_us(),
        alloc_wall_us: counters.wall_us(),
        clocks_cpu_us: (counters.empty_cpu_ns * counters.allocations) as f64 / 1000.0,
        requests: counters.allocations,
        reclaims: counters.reclaims,
        decoded_bytes: counters.decoded_bytes,
        launch_us: sample.launch_us.round(),
        group_peak_bytes: sample.group_peak,
        pages_in_use: counters.in_use.clone().into_iter().collect(),
    }
}

/// Merges the histograms of all launches.
fn in_use<'a>(samples: impl Iterator<Item = &'a PoolSample>) -> BTreeMap<u64, u64> {
    let mut all = BTreeMap::new();
    for &(pages, count) in samples.flat_map(|sample| &sample.pages_in_use) {
        *all.entry(pages).or_insert(0) += count;
    }
    all
}

impl PoolReport {
    /// Computes all averages and other figures from the samples.
    fn compute(&mut self) {
        let samples = &self.samples;
        let column = |of: fn(&PoolSample) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
        let average = |of| Summary::of(&column(of)).map_or(0.0, |it| it.average);
        let in_use = in_use(samples.iter());
        self.alloc_cpu_us = average(|sample| sample.alloc_cpu_us);
        self.alloc_wall_us = average(|sample| sample.alloc_wall_us);
        self.requests = average(|sample| sample.requests as f64);
        let reclaims: Option<Vec<f64>> = samples
            .iter()
            .map(|sample| Some(sample.reclaims? as f64))
            .collect();
        self.reclaims = reclaims.and_then(|all| Some(Summary::of(&all)?.average));
        self.pages_in_use_p95 = within(&in_use, QUESTION_SHARE);
        self.pages_in_use_max = in_use.keys().next_back().copied().unwrap_or(0);
        self.launch_us = Summary::of(&column(|sample| sample.launch_us));
    }
}

/// The smallest number of pages that is enough for the fraction `share` of the allocations.
fn within(in_use: &BTreeMap<u64, u64>, share: f64) -> u64 {
    let wanted = (in_use.values().sum::<u64>() as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (&pages, &count) in in_use {
        seen += count;
        if seen >= wanted {
            return pages;
        }
    }
    0
}

fn sufficient(in_use: &BTreeMap<u64, u64>) -> Option<Sufficient> {
    let all: u64 = in_use.values().sum();
    let few: u64 = in_use
        .range(..=QUESTION_PAGES)
        .map(|(_, count)| count)
        .sum();
    (all > 0).then(|| Sufficient {
        share_within_64_pages: few as f64 / all as f64,
        pages_for_95_percent: within(in_use, QUESTION_SHARE),
    })
}

impl PressureReport {
    /// Computes all figures from the samples; verdicts are computed when they are shown.
    pub(crate) fn compute(&mut self) {
        self.pools.iter_mut().for_each(PoolReport::compute);
        let without = self.pools.iter().find(|pool| pool.reserved_pages == 0);
        let without = without
            .map(|pool| pool.alloc_cpu_us)
            .filter(|cpu| *cpu > 0.0);
        for pool in &mut self.pools {
            pool.alloc_cpu_share = without.map(|without| pool.alloc_cpu_us / without);
        }
        let samples = self.pools.iter().flat_map(|pool| &pool.samples);
        self.sufficient = sufficient(&in_use(samples));
    }

    /// Why a report that claims to be valid is not.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        let faults = [
            not_counted(self.reclaims_unknown.as_deref()),
            self.environment.image.changed.clone(),
        ];
        faults
            .into_iter()
            .flatten()
            .filter(|_| self.valid)
            .collect()
    }

    pub(crate) fn findings(&self) -> Findings {
        let figures = self.figures();
        Findings {
            kind: "pressure",
            title: "Launches under memory pressure",
            about: format!(
                "The last of {} programs in a cgroup of {} MiB",
                self.programs,
                self.limit_bytes >> 20
            ),
            environment: Some(self.environment.clone()),
            faults: reasons(self.valid, &self.not_valid_because),
            summary: self.summary(&figures),
            notes: self.too_few().into_iter().collect(),
            legend: format!("{}\n{LEGEND}", medians(&figures, "row")),
            figures,
            conclusion: self.conclusion(),
            ..Findings::default()
        }
    }

    fn too_few(&self) -> Option<String> {
        let launches = self.pools.iter().map(|pool| pool.samples.len()).min()?;
        let fewest = fewest_samples(FIGURES * (self.pools.len() - 1));
        (self.pools.len() > 1 && launches < fewest).then(|| {
            let carry = if launches == 1 { "supports" } else { "support" };
            let launches = count(launches, "launch");
            format!("{launches} of each size {carry} no claim: --iterations {fewest} would")
        })
    }

    /// The figures that may depend on the size of the pool.
    fn figures(&self) -> Vec<Figure> {
        let ways = self.ways();
        let figure = |name: &str, of, value: fn(&PoolSample) -> f64| {
            let samples = |pool: &PoolReport| pool.samples.iter().map(value).collect();
            let rows = ways
                .iter()
                .map(|(name, pool)| (name.clone(), samples(pool)));
            Figure {
                name: name.into(),
                of,
                unit: "us".into(),
                rows: compared(rows),
            }
        };
        let allocation = "CPU time that the allocating threads spent getting pages";
        let mut figures: [_; FIGURES] = [
            figure("launch time", "", |sample| sample.launch_us),
            figure("allocation", allocation, |sample| sample.alloc_cpu_us),
        ];
        correct(comparisons(&mut figures).collect());
        shown(figures.into(), self.valid)
    }

    fn summary(&self, figures: &[Figure]) -> Vec<Table> {
        let mut tables: Vec<Table> = figures.iter().map(Figure::claims).collect();
        tables.push(self.counts());
        tables
    }

    /// A sentence on whether 64 pages are enough.
    fn conclusion(&self) -> Option<String> {
        let sufficient = self.sufficient.filter(|_| self.valid)?;
        let share = percent(sufficient.share_within_64_pages);
        let pages = sufficient.pages_for_95_percent;
        Some(format!(
            "64 pages are enough for {share} of the allocations; {pages} are enough for 95 %."
        ))
    }

    /// Every way to get buffers, by name.
    fn ways(&self) -> Vec<(String, &PoolReport)> {
        let pools = self.pools.iter().map(|pool| match pool.reserved_pages {
            0 => ("the system".into(), pool),
            pages => (format!("{pages} pages"), pool),
        });
        pools.collect()
    }

    fn counts(&self) -> Table {
        let columns: [Column<PoolReport>; 8] = [
            ("requests", |it| format!("{:.0}", it.requests)),
            ("CPU us", |it| format!("{:.1}", it.alloc_cpu_us)),
            ("clock us", |it| format!("{:.1}", it.alloc_wall_us)),
            ("share", |it| {
                let share = it.alloc_cpu_share.map(|share| share * 100.0);
                share.map_or("-".into(), |share| format!("{share:.2} %"))
            }),
            ("reclaims", |it| {
                let count = it.reclaims;
                count.map_or("?".into(), |count| format!("{count:.1}"))
            }),
            ("p95", |it| it.pages_in_use_p95.to_string()),
            ("most", |it| it.pages_in_use_max.to_string()),
            ("RSS MiB", |it| {
                let peak = it.memory.map_or(0, |memory| memory.peak_rss_bytes);
                format!("{:.1}", peak as f64 / f64::from(1 << 20))
            }),
        ];
        let title = "averages per launch, by source of the buffers";
        Table::of(title, self.ways().into_iter(), &columns).coloured()
    }
}

/// Explains the columns of the table.
const LEGEND: &str = "\
launch time   how long the measured program ran; allocation: CPU time that the allocating threads
              spent getting pages
requests      allocations of a buffer during the measured program
CPU, clock    CPU time and elapsed time that the allocating threads spent on them; share: the CPU
              time as a fraction of that without a pool
reclaims      how often an allocation had to reclaim memory
p95, most     most pages in use after 95 % of the allocations, and after all of them
RSS           the daemon's peak resident memory
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pressure::counters::Counters;

    const POOLS: [usize; 2] = [0, 64];

    fn measured(pages: usize, cpu_us: u64, reclaims: Option<u64>) -> Measured {
        Measured {
            pages,
            counters: Counters {
                allocations: 100,
                cpu_ns: cpu_us * 1000 + 100 * 50,
                empty_cpu_ns: 50,
                reclaims,
                in_use: BTreeMap::from([(34, 96), (68, 4)]),
                ..Counters::default()
            },
            launch_us: 1000.0,
            memory: None,
            group_peak: None,
            foreign_share: 0.05,
        }
    }

    fn table(report: &PressureReport) -> String {
        crate::Report::Pressure(Box::new(report.clone())).table()
    }

    fn report(samples: Vec<Measured>) -> PressureReport {
        let options = PressureOptions {
            pools: POOLS.into(),
            iterations: 1,
            ..PressureOptions::default()
        };
        build(&options, Environment::default(), false, samples)
    }

    #[test]
    fn the_pool_is_compared_with_the_run_without_it() {
        let samples = POOLS.map(|way| measured(way, if way == 0 { 5000 } else { 20 }, Some(3)));
        let report = report(samples.to_vec());
        assert!(report.valid);
        assert_eq!(report.pools[0].alloc_cpu_us, 5000.0);
        assert_eq!(report.pools[1].alloc_cpu_share, Some(20.0 / 5000.0));
        crate::schema::check("lab-pressure", &serde_json::to_value(&report).unwrap());
        let sufficient = report.sufficient.unwrap();
        assert_eq!(sufficient.pages_for_95_percent, 34);
        assert_eq!(sufficient.share_within_64_pages, 0.96);
        assert!(table(&report).contains("0.40 %"), "{}", table(&report));
    }

    #[test]
    fn a_run_that_misses_a_launch_or_cannot_count_reclaim_is_not_valid() {
        assert!(!report(vec![measured(0, 1, Some(0))]).valid);
        let mut samples = POOLS.map(|way| measured(way, 1, None)).to_vec();
        samples[0].counters.reclaims_unknown = Some("no root".into());
        let report = report(samples);
        let table = table(&report);
        assert!(!report.valid && table.contains("NOT VALID: reclaims were not counted: no root"));
        assert!(!table.contains("needed no pages") && !table.contains("launches were made"));
    }

    #[test]
    fn launches_that_carry_no_claim_are_said_to_be_too_few() {
        let note = "launches of each size support no claim: --iterations 6 would";
        let of = |count| {
            let samples = |number: u64| POOLS.map(|way| measured(way, 10 + number, Some(0)));
            table(&report((0..count).flat_map(samples).collect()))
        };
        assert!(of(5).contains(&format!("note: 5 {note}")), "{}", of(5));
        assert!(!of(6).contains("support no claim"), "{}", of(6));
    }

    #[test]
    fn each_reason_stands_alone() {
        let mut samples = POOLS.map(|way| measured(way, 1, Some(0))).to_vec();
        samples[0].counters.allocations = 0;
        samples.pop();
        let report = report(samples);
        let [missing, idle] = &report.not_valid_because[..] else {
            panic!("{:?}", report.not_valid_because);
        };
        assert_eq!(missing, "only 1 of 2 launches were made");
        assert!(
            idle.starts_with("1 of 1 launches needed no pages"),
            "{idle}"
        );
        assert!(table(&report).contains("\nMedians.\nlaunch time"));
    }
}
