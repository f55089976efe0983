//! The table of `erofast trace latency`: at most 100 columns, or all figures with `--wide`.
//!
//! All columns of numbers have fixed widths, so `format!` is enough, and no crate for tables is
//! needed.

use erofast_cli::{By, Sort, TraceLatencyArgs, units};
use sched_trace::latency::{Filter, Group, GroupBy, Report};
use sched_trace::stats::Summary;

/// Width of the column of names. A longer name gets its own line.
const NAME: usize = 24;
const WIDE_NAME: usize = 44;

/// Marks a row that is not valid.
const INVALID: &str = "!";

/// Prints a row for each thread, thread name or work queue.
pub fn print(report: &Report, filter: &Filter<'_>, args: &TraceLatencyArgs) -> anyhow::Result<()> {
    outln!("Scheduling latency: from becoming runnable to running.");
    outln!("Waits after a wake-up (on the left) and after a preemption are counted separately.\n");
    let by = group_by(args.by);
    let rows = Rows { wide: args.wide };
    rows.header(true)?;
    let mut groups = report.group(by, filter);
    let mut works = groups.clone();
    groups.retain(|group| group.wakeup.count + group.preempted.count > 0);
    groups.sort_by(|a, b| key(args.sort, b).total_cmp(&key(args.sort, a)));
    let top = args.top.unwrap_or(groups.len()).min(groups.len());
    for group in &groups[..top] {
        let name = name(report, group, args.by);
        rows.row(&name, &group.wakeup, Some(&group.preempted), group.valid)?;
    }
    if groups.is_empty() {
        outln!("no matching waits");
    }
    let invalid = groups[..top].iter().filter(|group| !group.valid).count() as u64;
    if invalid > 0 {
        let rows = units::count(invalid, "row");
        outln!("! not valid, {rows}: too many events of these threads are missing");
    }
    if top < groups.len() {
        outln!(
            "and {}",
            units::count((groups.len() - top) as u64, "more row")
        );
    }
    let alone = groups
        .iter()
        .filter(|group| report.process(group.pid).is_none());
    match alone.count() as u64 {
        0 => {}
        _ if args.by != By::Process => {}
        alone => outln!(
            "the trace does not name the process of {}",
            units::count(alone, "thread")
        ),
    }
    works.retain(|work| work.queue_delay.count > 0);
    works.truncate(args.top.unwrap_or(works.len()));
    queue_delays(report, &works, rows)
}

/// The kind of thing that a row represents.
pub fn group_by(by: By) -> GroupBy {
    match by {
        By::Task => GroupBy::Task,
        By::Comm => GroupBy::Comm,
        By::Process => GroupBy::Process,
        By::Workqueue => GroupBy::Workqueue,
    }
}

fn key(sort: Sort, group: &Group) -> f64 {
    let waits = &group.wakeup;
    match sort {
        Sort::Total => group.total_us(),
        Sort::Count => waits.count as f64,
        Sort::Average => waits.average,
        Sort::Median => waits.median,
        Sort::P99 => waits.p99,
        Sort::Maximum => waits.maximum,
        Sort::Preempted => group.preempted.total,
    }
}

fn queue_delays(report: &Report, works: &[Group], rows: Rows) -> anyhow::Result<()> {
    if works.is_empty() {
        return Ok(());
    }
    outln!(
        "\nQueue delay (from queueing a work item to its start); it includes the waits above:\n"
    );
    rows.header(false)?;
    for work in works {
        let name = name(report, work, By::Workqueue);
        rows.row(&name, &work.queue_delay, None, work.valid)?;
    }
    Ok(())
}

fn name(report: &Report, group: &Group, by: By) -> String {
    let text = |name: Option<_>| name.map_or("?", |name| report.names.get(name));
    match by {
        By::Task => format!("{}:{}", group.comm, group.pid),
        By::Process if group.threads > 1 => {
            format!("{}:{} ({})", group.comm, group.pid, group.threads)
        }
        By::Process => format!("{}:{}", group.comm, group.pid),
        By::Comm if group.threads > 1 => format!("{} ({})", group.comm, group.threads),
        By::Comm => group.comm.to_string(),
        By::Workqueue => format!("{} {}", text(group.workqueue), text(group.function)),
    }
}

/// Prints rows in one of two widths.
#[derive(Clone, Copy)]
struct Rows {
    wide: bool,
}

impl Rows {
    fn header(self, preempted: bool) -> anyhow::Result<()> {
        let titles: &[&str] = if self.wide {
            &[
                "count", "total", "average", "median", "minimum", "maximum", "stddev", "p90",
                "p99", "p99.9",
            ]
        } else {
            &["count", "total", "average", "median", "p99", "maximum"]
        };
        let titles = titles.iter().map(|title| (*title).to_string());
        let after = ["preempt", "total"].map(String::from);
        let after = after.into_iter().filter(|_| preempted);
        self.line("", titles.chain(after).collect())
    }

    fn row(
        self,
        name: &str,
        waits: &Summary,
        preempted: Option<&Summary>,
        valid: bool,
    ) -> anyhow::Result<()> {
        let mut cells = self.figures(waits);
        if let Some(preempted) = preempted {
            cells.push(count(preempted));
            cells.push(figure(preempted, preempted.total));
        }
        if !valid {
            cells.push(INVALID.into());
        }
        self.line(name, cells)
    }

    fn figures(self, of: &Summary) -> Vec<String> {
        let figures: &[f64] = if self.wide {
            &[
                of.total, of.average, of.median, of.minimum, of.maximum, of.stddev, of.p90, of.p99,
                of.p999,
            ]
        } else {
            &[of.total, of.average, of.median, of.p99, of.maximum]
        };
        let figures = figures.iter().map(|value| figure(of, *value));
        std::iter::once(count(of)).chain(figures).collect()
    }

    fn line(self, name: &str, cells: Vec<String>) -> anyhow::Result<()> {
        let width = if self.wide { WIDE_NAME } else { NAME };
        let mut name = name;
        if name.chars().count() > width {
            outln!("{name}");
            name = "";
        }
        let figures: Vec<String> = cells
            .iter()
            .enumerate()
            .map(|(column, cell)| match column {
                _ if cell == INVALID => format!(" {cell}"),
                0 => format!("{cell:>8}"),
                1 => format!("{cell:>11}"),
                _ => format!("{cell:>9}"),
            })
            .collect();
        outln!("{name:<width$}{}", figures.concat());
        Ok(())
    }
}

fn count(of: &Summary) -> String {
    match of.count {
        0 => "-".into(),
        count => count.to_string(),
    }
}

/// The figure `us` of the summary `of`, or a dash if the summary has no waits.
fn figure(of: &Summary, us: f64) -> String {
    if of.count == 0 {
        "-".into()
    } else {
        length(us)
    }
}

/// A duration in a suitable unit: `51.5 us`, `1.530 ms`, `12.34 s`.
pub fn length(us: f64) -> String {
    match us {
        0.0..999.95 => format!("{us:.1} us"),
        _ if us < 999_950.0 => format!("{} ms", four_digits(us / 1e3)),
        _ => format!("{} s", four_digits(us / 1e6)),
    }
}

fn four_digits(value: f64) -> String {
    let digits = match value {
        0.0..9.9995 => 3,
        0.0..99.995 => 2,
        _ => 1,
    };
    format!("{value:.digits$}")
}
