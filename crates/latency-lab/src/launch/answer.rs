//! The report as text and page: a sentence, a row an engine, and what explains them.

use super::explain::EXPLANATION;
use super::picture::Blocked;
use super::report::{EngineReport, LaunchReport, Outliers};
use super::sample::{Sample, ThreadWaits};
use crate::figure::{Row, amount, percent, verdict};
use crate::findings::{Findings, reasons};
use crate::html::{bars, timelines};
use crate::statistics::{LEVEL, SAME_PERCENT, Summary, Verdict};
use crate::table::Table;

/// Of other machines, so in words and away from the tables.
const PUBLISHED: &str = "average scheduling latency per cold app launch of 15253 us with the work queue \
and 2914 us with per-CPU threads (-80.89 %), 50 launches each, on another machine. Source: Dhavale and \
Gao, \u{201c}erofs: add per-cpu threads for decompression as an option\u{201d}, Linux 6.3 and 6.4.";

impl LaunchReport {
    pub(crate) fn findings(&self) -> Findings {
        Findings {
            kind: "launch",
            title: "Cold launches, engine against engine",
            about: self.about(),
            environment: Some(self.environment.clone()),
            faults: reasons(self.valid, &self.not_valid_because),
            figures: self.figures(),
            summary: self.summary(),
            legend: EXPLANATION.into(),
            conclusion: Some(self.sentence()),
            details: self.details(),
            notes: self.notes(),
            drawings: bars(&self.engines) + &timelines(&self.engines),
            appendix: self.appendix(),
        }
    }

    fn about(&self) -> String {
        let machine = match &self.machine {
            Some(machine) if machine.emulated => {
                "; EMULATED: these times compare with each other only"
            }
            Some(_) => "; in a virtual machine",
            None => "",
        };
        format!(
            "{} launches per engine, load {}{machine}",
            self.launches(),
            self.load
        )
    }

    fn summary(&self) -> Vec<Table> {
        let figures = self.figures();
        let (launch, waits) = (&figures[0], &figures[self.waits()]);
        let sure = (1.0 - LEVEL) * 100.0;
        let mut table = Table::keyed("", &[&launch.name, &waits.name]);
        table.words = true;
        for (time, wait) in launch.rows.iter().zip(&waits.rows) {
            table.add(&time.name, [launch.claim(time), waits.claim(wait)]);
        }
        table.note = format!(
            "Medians; the shift against the first engine lies in the interval ({sure:.0} %, all rows together).\n\
             {}: {}.",
            waits.name, waits.of
        );
        vec![table]
    }

    fn details(&self) -> Vec<Table> {
        let lines = |title: &str, text: fn(&EngineReport) -> String| {
            let rows = self.engines.iter();
            let rows = rows.map(|engine| (engine.engine.clone(), text(engine)));
            Table::words(title, rows.collect()).coloured()
        };
        let waiting =
            "waiting threads, per launch (us), with priority (120 is nice 0, below 100 real-time)";
        let mut tables = vec![
            self.parts(),
            lines(waiting, waiters),
            lines("waited behind, per launch (us)", behind),
            lines("queue delay", |engine| engine.queue_source.clone()),
            self.run(),
        ];
        let remarks: Vec<_> = self.engines.iter().flat_map(remarks).collect();
        if !remarks.is_empty() {
            tables.push(Table::words("remarks", remarks));
        }
        tables
    }

    fn notes(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|line| format!("left out: {line}"));
        left_out.chain(self.notices.iter().cloned()).collect()
    }

    fn appendix(&self) -> Vec<(String, Table)> {
        let table = |engine: &EngineReport| {
            let title = format!("{}: {} samples", engine.engine, engine.samples.len());
            (title, samples(engine))
        };
        let published = ("published for comparison".into(), PUBLISHED.into());
        let published = Table::words("", vec![published]);
        let samples = self.engines.iter().map(table);
        samples.chain([("Elsewhere".into(), published)]).collect()
    }

    /// Whether launches are shorter.
    fn sentence(&self) -> String {
        let launch = &self.figures()[0];
        let Some(first) = launch.rows.first().filter(|_| self.valid) else {
            return "No conclusion: the run is not valid.".into();
        };
        if launch.rows.len() == 1 {
            let median = first.summary().map_or(0.0, |summary| summary.median);
            let median = amount(median, "us");
            return format!("A launch from {} takes {median} (median).", first.name);
        }
        let with = |verdict| {
            let of = |row: &&Row| row.against_first.as_ref().map(|it| it.verdict) == Some(verdict);
            launch.rows.iter().filter(of).collect::<Vec<&Row>>()
        };
        let [lower, higher] = [(Verdict::Lower, "less time"), (Verdict::Higher, "more")]
            .map(|(verdict, word)| (with(verdict), word));
        let claims = [lower, higher].into_iter().flat_map(|(rows, word)| {
            let claim = move |row: &Row| format!("{} {word} from {}", size(row), row.name);
            rows.into_iter().map(claim)
        });
        let mut claims: Vec<String> = claims.collect();
        let same = with(Verdict::NoDifference);
        if !same.is_empty() {
            let within = format!("(within {SAME_PERCENT:.0} %)");
            claims.push(format!("as long from {} {within}", names(&same)));
        }
        let mut parts = Vec::new();
        if !claims.is_empty() {
            parts.push(format!("a launch takes {}", claims.join(", ")));
        }
        let open = with(Verdict::NotShown);
        if !open.is_empty() {
            let names = names(&open);
            parts.push(format!("no difference in time is shown for {names}"));
        }
        format!("Against {}, {}.", first.name, parts.join("; "))
    }

    /// What was done.
    fn run(&self) -> Table {
        let mut rows = vec![
            ("command".to_owned(), self.command.join(" ")),
            ("cold".to_owned(), self.cold.clone()),
        ];
        let repeat = self.repeat.iter();
        rows.extend(repeat.map(|line| ("to repeat it".into(), line.clone())));
        if let Some(load) = &self.load_seen {
            let check = if load.burned { "passed" } else { "FAILED" };
            let text = format!(
                "{}; load check {check} (fio {} of the CPU time, CPUs busy {}, {} reads a second)",
                load.profile,
                percent(load.load_cpu_share),
                percent(load.busy_cpu_share),
                load.reads_per_second
            );
            rows.insert(1, ("load".into(), text));
        }
        Table::words("the run", rows)
    }

    /// The parts of the scheduling latency, and the figures that are not part of it.
    fn parts(&self) -> Table {
        let title = "averages per launch; shares of all CPUs' time within the launches";
        let heads = [
            "wake-up",
            "preempted",
            "queue",
            "wake-ups",
            "blocked",
            "preempted",
            "load",
            "idle",
        ];
        let mut table = Table::keyed(title, &heads);
        for engine in &self.engines {
            let time = |of: Option<Summary>| of.map_or("n/a".into(), |of| amount(of.average, "us"));
            let column = |of: fn(&Sample) -> f64| time(Summary::of(&engine.column(of)));
            let share = |share: Option<f64>| share.map_or("-".into(), percent);
            let cells = [
                time(engine.wakeup_us),
                time(engine.preempted_us),
                time(engine.queue_us),
                engine
                    .wakeups()
                    .map_or("n/a".into(), |count| format!("{count:.0}")),
                column(|sample| sample.program_blocked_us),
                column(|sample| sample.program_preempted_us),
                share(engine.load_share),
                share(engine.idle_share),
            ];
            table.add(&engine.engine, cells);
        }
        table
    }

    /// Of the figures, the waits that every engine has: where one decompresses in the program's own
    /// thread, those of the program.
    fn waits(&self) -> usize {
        let own = |wakeups: Option<f64>| wakeups.is_none_or(|wakeups| wakeups > 0.0);
        match self.engines.iter().all(|engine| own(engine.wakeups())) {
            true => 1,
            false => 2,
        }
    }
}

fn names(rows: &[&Row]) -> String {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.join(" and ")
}

/// Of the shift.
fn size(row: &Row) -> String {
    let Some(comparison) = &row.against_first else {
        return String::new();
    };
    match comparison.difference_percent.map(f64::abs) {
        Some(percent) if percent >= 1.0 => format!("{percent:.0} %"),
        Some(percent) => format!("{percent:.1} %"),
        None => amount(comparison.difference.unwrap_or_default().abs(), "us"),
    }
}

/// "of 10200: 7900 fio[120], 1100 ...".
fn behind(engine: &EngineReport) -> String {
    let blocked = engine.behind();
    let total: f64 = blocked.iter().map(|blocked| blocked.total_us).sum();
    let word = |blocked: &Blocked| format!("{:.0} {blocked}", blocked.total_us);
    let words = blocked.iter().take(5).map(word).collect();
    match known(engine, words) {
        text if blocked.is_empty() => text,
        text => format!("of {total:.0}: {text}"),
    }
}

/// The threads that waited most, as one line.
fn waiters(engine: &EngineReport) -> String {
    let word = |waits: &ThreadWaits| {
        let (comm, priority, total) = (&waits.comm, waits.priority, waits.total_us);
        format!(
            "{comm}[{priority}] {total:.0} (longest {:.0})",
            waits.longest_us
        )
    };
    known(
        engine,
        engine.by_thread().iter().take(6).map(word).collect(),
    )
}

fn known(engine: &EngineReport, words: Vec<String>) -> String {
    match engine.wakeups() {
        None => "n/a".into(),
        Some(_) if words.is_empty() => "none".into(),
        Some(_) => words.join(", "),
    }
}

/// What is to be known of an engine's samples, by its name.
fn remarks(engine: &EngineReport) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    if let Some(cost) = &engine.recording {
        let (with, without) = (engine.samples.len(), cost.samples_without_us.len());
        let verdict = verdict(&cost.comparison, "us");
        lines.push(format!(
            "recording costs a launch: {verdict}, {with} launches with and {without} without"
        ));
    }
    if let Some(first) = engine.thrown_away.first() {
        let count = engine.thrown_away.len();
        lines.push(format!(
            "{count} launches thrown away and repeated (first: {first})"
        ));
    }
    let Outliers {
        sched_latency,
        launch,
    } = &engine.outliers;
    let (waits, times) = (sched_latency.len(), launch.len());
    if waits + times > 0 {
        lines.push(format!(
            "outliers, kept: {waits} by scheduling latency, {times} by launch time"
        ));
    }
    let launch = engine.launch_modes.map(|modes| ("launch time", modes));
    let latency = engine
        .sched_latency_modes
        .map(|modes| ("scheduling latency", modes));
    lines.extend(launch.into_iter().chain(latency).map(|(what, modes)| {
        format!(
            "{what} is bimodal: {} launches near {:.0} us and {} near {:.0} us; an average of both \
             describes neither",
            modes.lower, modes.lower_median, modes.upper, modes.upper_median
        )
    }));
    lines
        .into_iter()
        .map(|line| (engine.engine.clone(), line))
        .collect()
}

fn samples(engine: &EngineReport) -> Table {
    let heads = [
        "launch",
        "scheduling latency",
        "after wake-up",
        "after preemption",
        "queue delay",
        "wake-ups",
    ];
    let mut table = Table::new("", &heads);
    for sample in &engine.samples {
        let spoilt = sample.spoilt.as_ref().map_or("", |_| " (spoilt)");
        let time = |us: f64| amount(us, "us");
        let cells = [
            time(sample.launch_us),
            time(sample.sched_latency_us),
            time(sample.wakeup_us),
            time(sample.preempted_us),
            sample.queue_us.map_or("n/a".into(), time),
            sample.wakeups.to_string(),
        ];
        table.add(&format!("round {}{spoilt}", sample.iteration + 1), cells);
    }
    table
}
