//! The order of measurements: each round measures the engines in a random order. Warm-ups come
//! first. Spoilt measurements are repeated as long as a budget allows. This module needs neither
//! clock nor processes.

use std::fmt;

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::{Interrupt, Progress, Result};

/// Measures one engine once. Real executors mount and launch; the mock of the tests computes
/// samples.
pub trait Executor {
    /// The result of one measurement.
    type Sample;
    /// Measures engine number `engine`. An error ends the experiment.
    fn measure(&mut self, engine: usize) -> Result<Outcome<Self::Sample>>;
    /// The engine's name, for messages.
    fn name(&self, engine: usize) -> String;
    /// Whether the time limit has passed; called before each counted round except the first.
    fn time_is_over(&self) -> bool {
        false
    }
}

/// Outcome of a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Outcome<S> {
    /// A measurement that counts.
    Good(S),
    /// A measurement that does not count. If its figures are correct all the same, because the
    /// machine was merely busy with something else, it has a sample, which may be used once the
    /// budget is exhausted.
    Spoilt(Thrown, Option<S>),
    /// The user asked to stop during the measurement.
    Interrupted,
}

/// A measurement that does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "StoredThrown")]
pub struct Thrown {
    /// The reason.
    pub reason: String,
    /// How long the measurement took, in microseconds.
    pub time_us: f64,
}

/// How reports store a [`Thrown`]; older reports have only the reason.
#[derive(Deserialize)]
#[serde(untagged)]
enum StoredThrown {
    Reason(String),
    Thrown { reason: String, time_us: f64 },
}

impl From<StoredThrown> for Thrown {
    fn from(stored: StoredThrown) -> Self {
        let (reason, time_us) = match stored {
            StoredThrown::Reason(reason) => (reason, f64::NAN),
            StoredThrown::Thrown { reason, time_us } => (reason, time_us),
        };
        Thrown { reason, time_us }
    }
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

/// How many spoilt measurements of an engine are repeated. Only a few are, because slow
/// measurements are spoilt more often than fast ones, and samples without the spoilt ones are
/// biased.
pub fn repeats(iterations: usize) -> usize {
    (iterations / 4).max(5)
}

/// How often and in which order to measure.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Number of engines.
    pub engines: usize,
    /// Number of measurements per engine that count.
    pub iterations: usize,
    /// Number of warm-up measurements per engine, which do not count.
    pub warm_ups: usize,
    /// How many spoilt measurements of each engine may be repeated.
    pub repeats: usize,
    /// Seed of the order.
    pub seed: u64,
}

/// A measurement that counts, with its round.
#[derive(Debug, Clone, PartialEq)]
pub struct Kept<S> {
    /// The round that the measurement belongs to, counted from 0.
    pub iteration: usize,
    /// Why the measurement was spoilt, if it was kept only because the budget of repeats was
    /// exhausted; then the run is not valid.
    pub spoilt: Option<String>,
    /// The measured sample.
    pub sample: S,
}

/// All measurements of a run.
#[derive(Debug, Clone)]
pub struct Gathered<S> {
    /// The measurements that were kept, for each engine.
    pub kept: Vec<Vec<Kept<S>>>,
    /// The measurements that were discarded, for each engine.
    pub thrown_away: Vec<Vec<Thrown>>,
    /// Whether the user asked to stop before the end.
    pub interrupted: bool,
    /// Number of rounds that count; fewer than planned if time ran out.
    pub rounds: usize,
    /// Whether the remaining rounds were skipped, because every measurement was spoilt and no
    /// engine had any repeats left.
    pub hopeless: bool,
}

impl<S> Gathered<S> {
    /// Whether every engine has all its samples and none is spoilt.
    pub fn is_whole(&self) -> bool {
        !self.interrupted
            && self
                .kept
                .iter()
                .all(|kept| kept.len() == self.rounds && kept.iter().all(|k| k.spoilt.is_none()))
    }
}

/// Runs the plan. If the user asks to stop, returns the samples so far.
pub fn gather<X: Executor>(
    executor: &mut X,
    plan: &Plan,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<Gathered<X::Sample>> {
    let mut run = Run {
        gathered: Gathered {
            kept: (0..plan.engines).map(|_| Vec::new()).collect(),
            thrown_away: vec![Vec::new(); plan.engines],
            interrupted: false,
            rounds: plan.iterations,
            hopeless: false,
        },
        repeats_left: vec![plan.repeats; plan.engines],
        done: 0,
    };
    let mut order: Vec<usize> = (0..plan.engines).collect();
    let mut random = Rng::with_seed(plan.seed);
    progress.begin(
        "measuring",
        (plan.engines * (plan.iterations + plan.warm_ups)) as u64,
    );
    for round in 0..plan.warm_ups + plan.iterations {
        let counted = round.saturating_sub(plan.warm_ups);
        if counted > 0 && executor.time_is_over() {
            run.gathered.rounds = counted;
            return Ok(run.gathered);
        }
        random.shuffle(&mut order);
        for &engine in &order {
            run.one(
                executor,
                engine,
                round.checked_sub(plan.warm_ups),
                interrupt,
                progress,
            )?;
            if run.gathered.interrupted {
                return Ok(run.gathered);
            }
        }
        if run.is_hopeless() && round + 1 < plan.warm_ups + plan.iterations {
            run.gathered.hopeless = true;
            return Ok(run.gathered);
        }
    }
    Ok(run.gathered)
}

struct Run<S> {
    gathered: Gathered<S>,
    repeats_left: Vec<usize>,
    done: u64,
}

impl<S> Run<S> {
    /// Whether no engine has a good measurement, and none has any repeats left.
    fn is_hopeless(&self) -> bool {
        let mut kept = self.gathered.kept.iter().flatten();
        self.repeats_left.iter().all(|&left| left == 0) && kept.all(|kept| kept.spoilt.is_some())
    }

    /// Repeats one measurement of the plan until it is good or the budget is exhausted.
    fn one<X: Executor<Sample = S>>(
        &mut self,
        executor: &mut X,
        engine: usize,
        iteration: Option<usize>,
        interrupt: &Interrupt,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        progress.step(self.done, &executor.name(engine));
        loop {
            if interrupt.asked() {
                self.gathered.interrupted = true;
                return Ok(());
            }
            let outcome = executor.measure(engine)?;
            if self.settle(engine, iteration, outcome) {
                self.done += 1;
                progress.step(self.done, &executor.name(engine));
                return Ok(());
            }
        }
    }

    /// Records an outcome; returns whether the measurement is settled, so that it need not be
    /// repeated.
    fn settle(&mut self, engine: usize, iteration: Option<usize>, outcome: Outcome<S>) -> bool {
        let Some(iteration) = iteration else {
            self.gathered.interrupted |= matches!(outcome, Outcome::Interrupted);
            return true;
        };
        let (spoilt, sample) = match outcome {
            Outcome::Good(sample) => (None, Some(sample)),
            Outcome::Interrupted => {
                self.gathered.interrupted = true;
                (None, None)
            }
            Outcome::Spoilt(thrown, Some(sample)) if self.repeats_left[engine] == 0 => {
                (Some(thrown.reason), Some(sample))
            }
            Outcome::Spoilt(thrown, _) => {
                self.gathered.thrown_away[engine].push(thrown);
                let again = self.repeats_left[engine] > 0;
                self.repeats_left[engine] -= usize::from(again);
                return !again;
            }
        };
        self.gathered.kept[engine].extend(sample.map(|sample| Kept {
            iteration,
            spoilt,
            sample,
        }));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;
    use crate::statistics::compare;

    /// Computes samples with a function, and records which engines were measured.
    struct Mock<F> {
        asked: Vec<usize>,
        answer: F,
        /// Number of measurements after which the time has run out.
        most: usize,
    }

    impl<F> Mock<F> {
        fn new(most: usize, answer: F) -> Self {
            let asked = Vec::new();
            Mock {
                asked,
                answer,
                most,
            }
        }
    }

    impl<F: FnMut(usize, usize) -> Outcome<f64>> Executor for Mock<F> {
        type Sample = f64;
        fn measure(&mut self, engine: usize) -> Result<Outcome<f64>> {
            self.asked.push(engine);
            Ok((self.answer)(engine, self.asked.len()))
        }
        fn name(&self, engine: usize) -> String {
            format!("mock {engine}")
        }
        fn time_is_over(&self) -> bool {
            self.asked.len() >= self.most
        }
    }

    fn spoilt(reason: &str, sample: Option<f64>) -> Outcome<f64> {
        let reason = reason.into();
        let time_us = 8.0;
        Outcome::Spoilt(Thrown { reason, time_us }, sample)
    }

    const PLAN: Plan = Plan {
        engines: 3,
        iterations: 20,
        warm_ups: 1,
        repeats: 5,
        seed: 1,
    };

    fn run_for<F: FnMut(usize, usize) -> Outcome<f64>>(
        most: usize,
        plan: &Plan,
        answer: F,
    ) -> (Vec<usize>, Gathered<f64>) {
        let mut mock = Mock::new(most, answer);
        let gathered = gather(&mut mock, plan, &Interrupt::never(), &mut Silent).unwrap();
        (mock.asked, gathered)
    }

    fn run<F: FnMut(usize, usize) -> Outcome<f64>>(
        plan: &Plan,
        answer: F,
    ) -> (Vec<usize>, Gathered<f64>) {
        run_for(usize::MAX, plan, answer)
    }

    fn good(_: usize, count: usize) -> Outcome<f64> {
        Outcome::Good(count as f64)
    }

    fn side(gathered: &Gathered<f64>, engine: usize) -> Vec<f64> {
        let kept = gathered.kept[engine].iter();
        kept.map(|kept| kept.sample).collect()
    }

    #[test]
    fn every_round_asks_every_engine_once_in_an_order_of_the_seed() {
        let (asked, gathered) = run(&PLAN, good);
        for round in asked.chunks(3) {
            let mut engines = round.to_vec();
            engines.sort_unstable();
            assert_eq!(engines, [0, 1, 2]);
        }
        assert!((0..3).all(|engine| asked.chunks(3).any(|round| round[0] == engine)));
        assert!(gathered.is_whole());
        // Warm-ups are measured but not counted.
        assert_eq!(asked.len(), 3 * 21);
        assert!((0..3).all(|engine| side(&gathered, engine).iter().all(|&count| count > 3.0)));
        assert_eq!(asked, run(&PLAN, good).0);
        assert_ne!(asked, run(&Plan { seed: 2, ..PLAN }, good).0);
    }

    #[test]
    fn a_spoilt_measurement_is_thrown_away_counted_and_repeated() {
        let (asked, gathered) = run(&PLAN, |engine, count| match count {
            10 => spoilt("lost 7 events", None),
            _ => good(engine, count),
        });
        assert_eq!(asked.len(), 3 * 21 + 1);
        assert_eq!(
            asked[9], asked[10],
            "the same engine is measured again immediately"
        );
        let thrown = gathered.thrown_away.concat();
        assert_eq!((thrown.len(), &*thrown[0].reason), (1, "lost 7 events"));
        assert_eq!(thrown[0].time_us, 8.0);
        assert!(gathered.is_whole());
    }

    #[test]
    fn older_reports_have_the_reason_alone() {
        let old: Thrown = serde_json::from_str("\"busy\"").unwrap();
        assert!(old.reason == "busy" && old.time_us.is_nan());
        let new: Thrown = serde_json::from_str(r#"{"reason": "busy", "time_us": 8.0}"#).unwrap();
        assert_eq!(new.time_us, 8.0);
    }

    #[test]
    fn repeats_end_and_what_is_kept_then_makes_the_run_invalid() {
        // One engine can be measured only while the machine is quiet.
        let (asked, gathered) = run(&PLAN, |engine, count| match engine {
            0 => good(engine, count),
            _ => spoilt("busy", Some(1.0)),
        });
        assert_eq!(asked.len(), 3 * 21 + 2 * 5);
        assert!(gathered.kept.iter().all(|kept| kept.len() == 20));
        assert!(!gathered.is_whole() && !gathered.hopeless);
    }

    #[test]
    fn a_run_whose_measurements_are_all_spoilt_ends_with_the_repeats() {
        let (asked, gathered) = run(&PLAN, |_, _| spoilt("busy", Some(1.0)));
        // Each engine has a warm-up, the repeats, and one measurement that is kept.
        assert_eq!(asked.len(), 3 * (1 + 5 + 1));
        assert!(gathered.kept.iter().all(|kept| kept.len() == 1));
        assert!(!gathered.is_whole() && gathered.hopeless);
        let (_, gathered) = run(&PLAN, |_, _| spoilt("lost", None));
        assert!(
            gathered.kept.iter().all(Vec::is_empty),
            "figures known to be wrong are never kept"
        );
        assert!(!gathered.is_whole() && gathered.hopeless);
    }

    #[test]
    fn an_engine_whose_slow_measurements_are_spoilt_uses_up_only_its_own_repeats() {
        let mut slow = 0;
        let (_, gathered) = run(&PLAN, |engine, _| {
            slow += usize::from(engine == 2);
            match engine == 2 && slow.is_multiple_of(2) {
                true => spoilt("busy", Some(9.0)),
                false => Outcome::Good(1.0),
            }
        });
        let thrown: Vec<usize> = gathered.thrown_away.iter().map(Vec::len).collect();
        assert_eq!(thrown, [0, 0, 5]);
        let kept_slow = side(&gathered, 2).into_iter().filter(|us| *us > 1.0);
        assert!(kept_slow.count() > 5 && !gathered.is_whole());
        assert_eq!((repeats(50), repeats(20), repeats(2)), (12, 5, 5));
    }

    #[test]
    fn asking_to_stop_keeps_what_was_gathered() {
        let (_, gathered) = run(&PLAN, |engine, count| match count {
            12 => Outcome::Interrupted,
            _ => good(engine, count),
        });
        assert!(gathered.interrupted && !gathered.is_whole());
        assert_eq!(gathered.kept.iter().map(Vec::len).sum::<usize>(), 8);
        let interrupt = Interrupt::never();
        interrupt.ask();
        let mut mock = Mock::new(1, good);
        let gathered = gather(&mut mock, &PLAN, &interrupt, &mut Silent).unwrap();
        assert!(gathered.interrupted && mock.asked.is_empty());
    }

    #[test]
    fn when_time_is_over_whole_rounds_stay_and_the_run_is_whole() {
        // There are three warm-ups and three rounds of three measurements; time runs out in the
        // third round.
        for (most, rounds) in [(11, 3), (0, 1), (1000, 20)] {
            let (_, gathered) = run_for(most, &PLAN, good);
            assert_eq!(gathered.rounds, rounds);
            assert!(gathered.kept.iter().all(|kept| kept.len() == rounds));
            assert!(gathered.is_whole() && !gathered.interrupted);
        }
    }

    #[test]
    fn an_engine_against_itself_is_quiet_in_nineteen_runs_of_twenty() {
        let claims = (0..20).filter(|&seed| {
            let mut random = Rng::with_seed(1000 + seed);
            // The samples have a long tail, drift, and resemble their neighbours, since part of
            // what affects a launch also affects the next one.
            let mut spell = 0.0;
            let plan = Plan {
                engines: 2,
                iterations: 50,
                seed,
                ..PLAN
            };
            let (_, gathered) = run(&plan, |_, count| {
                spell = 0.5 * spell - 5.0 * (1.0 - random.f64()).ln();
                Outcome::Good(5.0 + spell + count as f64 / 50.0)
            });
            compare(&side(&gathered, 0), &side(&gathered, 1)).claims()
        });
        let claims = claims.count();
        assert!(claims <= 1, "{claims} of 20");
    }

    #[test]
    fn a_drift_of_the_machine_hits_all_engines_alike() {
        // Each measurement is slower than the one before. No engine benefits from that, because the
        // engines are interleaved.
        let iterations = 50;
        let (_, gathered) = run(&Plan { iterations, ..PLAN }, good);
        for engine in [1, 2] {
            assert!(!compare(&side(&gathered, 0), &side(&gathered, engine)).claims());
        }
    }
}
