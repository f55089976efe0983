//! The report as text and as a page: a sentence, a row per engine, and explanations.

use super::elsewhere::Loss;
use super::explain::{EXPLANATION, OF_COMMANDS};
use super::measures::Experiment;
use super::picture::Blocked;
use super::program::QueueWaits;
use super::report::{EngineReport, LaunchReport, Outliers};
use super::sample::{Sample, ThreadWaits};
use crate::error::after_blank;
use crate::figure::{Figure, Row, amount, count, medians, percent, shown, verdict};
use crate::findings::{Findings, reasons};
use crate::html::timelines;
use crate::shell::quote;
use crate::statistics::{SAME_PERCENT, Summary, Verdict};
use crate::table::{Column, Table};

impl LaunchReport {
    pub(crate) fn findings(&self) -> Findings {
        let figures = shown(self.figures(), self.valid);
        Findings {
            kind: self.experiment.word(),
            title: match self.experiment {
                Experiment::Launch => "Cold launches by engine",
                Experiment::Run => "Commands side by side",
            },
            about: self.about(),
            environment: Some(self.environment.clone()),
            faults: reasons(self.valid, &self.not_valid_because),
            summary: self.summary(&figures),
            figures,
            legend: match self.experiment {
                Experiment::Launch => EXPLANATION.into(),
                Experiment::Run => OF_COMMANDS.into(),
            },
            conclusion: Some(self.sentence()),
            details: self.details(),
            notes: self.notes(),
            drawings: timelines(self.experiment, &self.engines),
            appendix: self.appendix(),
            ..Findings::default()
        }
    }

    fn about(&self) -> String {
        let machine = match &self.machine {
            Some(machine) if machine.emulated => format!(
                "; EMULATED{}: compare these times only with each other",
                after_blank(&machine.arch)
            ),
            Some(machine) => format!("; in a virtual machine{}", after_blank(&machine.arch)),
            None => String::new(),
        };
        format!(
            "{} per {}, load {}{machine}",
            self.launches(),
            self.experiment.row(),
            self.load
        )
    }

    /// Tables of the launch times and, if they are known, of the waits.
    fn summary(&self, figures: &[Figure]) -> Vec<Table> {
        let waits = self.waits();
        let time = figures.first().map(|it| it.name.as_str());
        let columns = figures.iter();
        let columns = columns.filter(|it| Some(it.name.as_str()) == time || it.name == waits);
        let columns: Vec<&Figure> = columns.collect();
        let heads: Vec<&str> = columns.iter().map(|it| it.name.as_str()).collect();
        let mut table = Table::keyed("", &heads);
        table.words = true;
        for (number, engine) in self.engines.iter().enumerate() {
            let cells = columns.iter().map(|it| it.claim(&it.rows[number]));
            table.add(&engine.label(), cells);
        }
        let of = columns.iter().filter(|it| !it.of.is_empty());
        let of = of.map(|it| format!("\n{}: {}.", it.name, it.of));
        table.note = medians(figures, self.experiment.row()) + &of.collect::<String>();
        vec![table]
    }

    fn details(&self) -> Vec<Table> {
        let lines = |title: &str, text: fn(&EngineReport) -> String| {
            let rows = self.labelled().map(|(name, engine)| (name, text(engine)));
            Table::words(title, rows.collect()).coloured()
        };
        let waiting =
            "waiting threads per launch (us), priority (120 is nice 0, below 100 is real-time)";
        let mut tables = vec![
            self.parts(),
            self.program(),
            lines(waiting, waiters),
            lines("threads waited behind, per launch (us)", behind),
            lines(
                "work items of the program's threads, per launch: delays (us)",
                work_items,
            ),
            lines(
                "interrupts within the program's CPU time, per launch (us)",
                |engine| losses(engine, |sample| &sample.interrupts),
            ),
            lines(
                "uninterruptible sleeps of the program by kernel function, per launch (us)",
                |engine| losses(engine, |sample| &sample.slept_in),
            ),
        ];
        // For commands, the source of the queue delay is always the same.
        if self.experiment == Experiment::Launch {
            tables.push(lines("queue delay", |engine| engine.queue_source.clone()));
        }
        tables.push(self.run());
        let remarks = self.engines.iter().flat_map(|it| remarks(it, self.valid));
        tables.push(Table::words("remarks", remarks.collect()));
        let tables = tables.into_iter().map(Table::without_gaps);
        tables.filter(|table| !table.is_empty()).collect()
    }

    fn notes(&self) -> Vec<String> {
        let left_out = self.left_out.iter().map(|line| format!("left out: {line}"));
        left_out.chain(self.notices.iter().cloned()).collect()
    }

    fn appendix(&self) -> Vec<(String, Table)> {
        let table = |engine: &EngineReport| {
            let title = format!(
                "{}: {}",
                engine.label(),
                count(engine.samples.len(), "sample")
            );
            (title, samples(engine))
        };
        self.engines.iter().map(table).collect()
    }

    /// A sentence that says whether launches take less time.
    fn sentence(&self) -> String {
        let launch = &self.figures()[0];
        let from = match self.experiment {
            Experiment::Launch => "from",
            Experiment::Run => "with",
        };
        let Some(first) = launch.rows.first() else {
            return String::new();
        };
        if launch.rows.len() == 1 {
            let median = first.summary().map_or(0.0, |summary| summary.median);
            let median = amount(median, "us");
            return format!("A launch {from} {} takes {median} (median).", first.name);
        }
        let with = |verdict| {
            let of = |row: &&Row| row.against_first.as_ref().map(|it| it.verdict) == Some(verdict);
            launch.rows.iter().filter(of).collect::<Vec<&Row>>()
        };
        let [lower, higher] = [(Verdict::Lower, "less time"), (Verdict::Higher, "more")]
            .map(|(verdict, word)| (with(verdict), word));
        let claims = [lower, higher].into_iter().flat_map(|(rows, word)| {
            let claim = move |row: &Row| format!("{} {word} {from} {}", size(row), row.name);
            rows.into_iter().map(claim)
        });
        let mut claims: Vec<String> = claims.collect();
        let same = with(Verdict::NoDifference);
        if !same.is_empty() {
            let within = format!("(within {SAME_PERCENT:.0} %)");
            claims.push(format!("as long {from} {} {within}", names(&same)));
        }
        let mut parts = Vec::new();
        if !claims.is_empty() {
            parts.push(format!("a launch takes {}", claims.join(", ")));
        }
        let open = with(Verdict::NotShown);
        if !open.is_empty() {
            let names = names(&open);
            parts.push(format!("times are inconclusive for {names}"));
        }
        format!("Against {}, {}.", first.name, parts.join("; "))
    }

    fn run(&self) -> Table {
        let mut rows = match self.experiment {
            Experiment::Launch => vec![("command".to_owned(), self.command.join(" "))],
            Experiment::Run => self.engines.iter().flat_map(commands).collect(),
        };
        rows.push(("cold".to_owned(), self.cold.clone()));
        let repeat = self.repeat.iter();
        rows.extend(repeat.map(|line| ("to repeat it".into(), line.clone())));
        if let Some(load) = &self.load_seen {
            let check = if load.burned { "passed" } else { "FAILED" };
            let [had, busy] = [load.load_cpu_share, load.busy_cpu_share].map(percent);
            let text = match load.jobs {
                0 => format!(
                    "{}; it took {had} of the CPU time, CPUs {busy} busy",
                    load.profile
                ),
                _ => format!(
                    "{}; load check {check} (fio took {had} of the CPU time, CPUs {busy} busy, {} \
                     reads per second)",
                    load.profile, load.reads_per_second
                ),
            };
            rows.push(("load".into(), text));
        }
        Table::words("the run", rows)
    }

    /// A table of the parts of the scheduling latency and of figures that are not part of it.
    fn parts(&self) -> Table {
        fn time(of: Option<Summary>) -> String {
            of.map_or("n/a".into(), |of| amount(of.average, "us"))
        }
        fn share(share: Option<f64>) -> String {
            share.map_or("-".into(), percent)
        }
        let count = |it: &EngineReport| it.wakeups().map_or("n/a".into(), |it| format!("{it:.0}"));
        let columns: [Column<EngineReport>; 7] = [
            ("wake-up", |it| time(it.wakeup_us)),
            ("preempted", |it| time(it.preempted_us)),
            ("queue", |it| time(it.queue_us)),
            ("reads ahead", |it| time(it.ahead_us)),
            ("wake-ups", count),
            ("load", |it| share(it.load_share)),
            ("idle", |it| share(it.idle_share)),
        ];
        let title = "averages per launch; shares of all CPUs' time within the launches";
        Table::of(title, self.labelled(), &columns).coloured()
    }

    /// A table of the program: how long its first thread was off the CPU, and what all its threads
    /// did.
    fn program(&self) -> Table {
        type Engine = EngineReport;
        fn average(engine: &Engine, of: fn(&Sample) -> f64, text: fn(f64) -> String) -> String {
            let summary = Summary::of(&engine.column(of));
            summary.map_or("n/a".into(), |it| text(it.average))
        }
        fn time(engine: &Engine, of: fn(&Sample) -> f64) -> String {
            average(engine, of, |us| amount(us, "us"))
        }
        fn number(engine: &Engine, of: fn(&Sample) -> f64) -> String {
            average(engine, of, |number| format!("{number:.1}"))
        }
        let columns: [Column<Engine>; 8] = [
            ("blocked", |it| time(it, |of| of.program_blocked_us)),
            ("preempted", |it| time(it, |of| of.program_preempted_us)),
            ("CPU time", |it| time(it, |of| of.cpu_us)),
            ("interrupts", |it| time(it, |of| of.interrupted_us)),
            ("quota", |it| time(it, Sample::throttled_us)),
            ("uninterruptible", |it| time(it, |of| of.uninterruptible_us)),
            ("preemptions", |it| number(it, Sample::preemptions)),
            ("migrations", |it| number(it, Sample::migrations)),
        ];
        let title = "the program, averages per launch: its first thread; all its threads";
        Table::of(title, self.labelled(), &columns).coloured()
    }

    fn labelled(&self) -> impl Iterator<Item = (String, &EngineReport)> {
        self.engines.iter().map(|engine| (engine.label(), engine))
    }

    /// The figure of waits that all engines have: the scheduling latency or, if an engine
    /// decompresses in the program's own thread, the whole path.
    fn waits(&self) -> &'static str {
        if self.experiment == Experiment::Run {
            return "waits for a CPU";
        }
        let own = |wakeups: Option<f64>| wakeups.is_none_or(|wakeups| wakeups > 0.0);
        match self.engines.iter().all(|engine| own(engine.wakeups())) {
            true => "scheduling latency",
            false => "whole path",
        }
    }
}

fn names(rows: &[&Row]) -> String {
    let names: Vec<&str> = rows.iter().map(|row| row.name.as_str()).collect();
    names.join(" and ")
}

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

/// The total wait, and the threads behind which it was spent: "of 10200: 7900 fio[120], 1100 ...".
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

/// The work items by queue and function, as text: "events_unbound flush_to_ldisc 230 in 12.0 items
/// (longest 51)".
fn work_items(engine: &EngineReport) -> String {
    let queues = engine.by_workqueue();
    if queues.is_empty() {
        return String::new();
    }
    let word = |(items, queue): &(f64, QueueWaits)| {
        let name = format!("{} {}", queue.workqueue, queue.function);
        let (delay, longest) = (queue.delay_us, queue.longest_us);
        format!(
            "{} {delay:.0} in {items:.1} items (longest {longest:.0})",
            name.trim()
        )
    };
    known(engine, queues.iter().take(5).map(word).collect())
}

/// The losses by name, as text: "softirq NET_RX 120 in 3.5 (longest 80)".
fn losses(engine: &EngineReport, of: fn(&Sample) -> &[Loss]) -> String {
    let word = |(count, loss): &(f64, Loss)| {
        let (name, total, longest) = (&loss.name, loss.total_us, loss.longest_us);
        format!("{name} {total:.0} in {count:.1} (longest {longest:.0})")
    };
    let words: Vec<String> = engine.losses(of).iter().take(5).map(word).collect();
    match words.is_empty() {
        true => String::new(),
        false => known(engine, words),
    }
}

/// The command that a row launches and its preparation, each with a label.
fn commands(row: &EngineReport) -> Vec<(String, String)> {
    let words = row.command.iter().map(|word| quote(word));
    let command = words.collect::<Vec<_>>().join(" ");
    let prepare = row.prepare.iter();
    let prepare = prepare.map(|line| (format!("{}, --prepare", row.label()), line.clone()));
    std::iter::once((row.label(), command))
        .chain(prepare)
        .collect()
}

/// The threads that waited most, with their waits, as one line.
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

/// Remarks on an engine's samples, each with the engine's name.
fn remarks(engine: &EngineReport, valid: bool) -> Vec<(String, String)> {
    let mut lines: Vec<String> = launches(engine).into_iter().collect();
    lines.extend(engine.times_alone.as_ref().map(|alone| {
        let (left_out, all) = (alone.launches, engine.samples.len());
        format!(
            "{left_out} of {} left out of the scheduling figures: {}",
            count(all, "launch"),
            alone.reason
        )
    }));
    if let Some(cost) = engine.recording.as_ref().filter(|_| valid) {
        let (with, without) = (engine.samples.len(), cost.samples_without_us.len());
        let verdict = verdict(&cost.comparison, "us");
        lines.push(format!(
            "cost of recording per launch: {verdict}, {} with and {without} without",
            count(with, "launch")
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
    lines
        .into_iter()
        .map(|line| (engine.label(), line))
        .collect()
}

/// How many launches the figures include; none unless launches were spoilt or thrown away.
fn launches(engine: &EngineReport) -> Option<String> {
    let spoilt = engine.samples.iter().filter(|it| it.spoilt.is_some());
    let kept = match spoilt.count() {
        0 => String::new(),
        spoilt => format!(", {spoilt} of them spoilt and no longer repeated"),
    };
    let text = kept + &thrown_away(engine);
    let all = engine.samples.len();
    (!text.is_empty()).then(|| format!("{} in the figures{text}", count(all, "launch")))
}

/// How long the launches that were thrown away took, compared with those in the figures.
fn thrown_away(engine: &EngineReport) -> String {
    let thrown = &engine.thrown_away;
    let times: Vec<f64> = thrown.iter().map(|it| it.time_us).collect();
    let (Some(first), Some(times)) = (thrown.first(), Summary::of(&times)) else {
        return String::new();
    };
    let [least, most, median] =
        [times.minimum, times.maximum, times.median].map(|us| amount(us, "us"));
    let counted = engine.launch_us.map_or(f64::NAN, |it| it.median);
    format!(
        "; {} spoilt, thrown away and repeated (first: {first}); they took {least} to {most}, \
         median {median}, against {} in the figures",
        times.count,
        amount(counted, "us")
    )
}

fn samples(engine: &EngineReport) -> Table {
    fn time(us: f64) -> String {
        amount(us, "us")
    }
    let columns: [Column<Sample>; 6] = [
        ("launch", |it| time(it.launch_us)),
        ("scheduling latency", |it| time(it.sched_latency_us)),
        ("after wake-up", |it| time(it.wakeup_us)),
        ("after preemption", |it| time(it.preempted_us)),
        ("queue delay", |it| it.queue_us.map_or("n/a".into(), time)),
        ("wake-ups", |it| it.wakeups.to_string()),
    ];
    let row = |sample: &Sample| {
        let spoilt = sample.spoilt.as_ref().map_or("", |_| " (spoilt)");
        format!("round {}{spoilt}", sample.iteration + 1)
    };
    let rows = engine.samples.iter().map(|sample| (row(sample), sample));
    Table::of("", rows, &columns)
}
