//! Text of ftrace and of perf script.

use super::*;

/// CPU and time in microseconds of a line of an event.
fn place(line: &str) -> Option<(u32, u64)> {
    let (at, _) = line.match_indices(" [0").next()?;
    let (cpu, rest) = line[at + 2..].split_once(']')?;
    let time = rest.split(": ").next()?.split_whitespace().next_back()?;
    let (seconds, part) = time.split_once('.')?;
    let us: u64 = format!("{part:0<6}")[..6].parse().ok()?;
    Some((
        cpu.parse().ok()?,
        seconds.parse::<u64>().ok()? * 1_000_000 + us,
    ))
}

fn kept(text: &str, header: bool, keep: impl Fn(u32, u64) -> bool) -> String {
    let lines = text.lines().filter(|line| match place(line) {
        Some((cpu, us)) => keep(cpu, us),
        None => header,
    });
    lines.map(|line| format!("{line}\n")).collect()
}

#[test]
#[ignore]
fn experiment() {
    let path = std::env::var("TEXT").unwrap();
    let window: u64 = std::env::var("WINDOW").unwrap().parse().unwrap();
    let text = std::fs::read_to_string(path).unwrap();
    let times: Vec<u64> = text.lines().filter_map(place).map(|(_, us)| us).collect();
    let (first, last) = (times[0], times[times.len() - 1]);
    let mut from = first;
    let (mut cases, mut bad, mut refused) = (0, 0, 0);
    while from + window <= last {
        let part = kept(&text, false, |_, us| us >= from && us < from + window);
        let whole = read(
            Cursor::new(part.as_bytes()),
            Path::new("w"),
            &ReadOptions::default(),
        )
        .unwrap();
        let truth = truth::Rows::of(&whole);
        let (outcome, wrong) = judge(part.as_bytes(), &truth);
        println!("whole {from}: {outcome:?} {wrong:?}");
        refused += usize::from(outcome != Outcome::Valid);
        if outcome != Outcome::Valid {
            let r = analyse(&whole);
            for n in &r.notices {
                println!("   {n}");
            }
            println!("   {:?}", r.missing(|_| true));
        }
        for cpu in 0..2 {
            let mut all: Vec<(String, String)> = vec![(
                format!("cpu {cpu} out"),
                kept(&part, false, |c, _| c != cpu),
            )];
            for n in [3, 10, 30] {
                for third in 0..n {
                    let (a, b) = (from + window * third / n, from + window * (third + 1) / n);
                    all.push((
                        format!("cpu {cpu} {third}/{n}"),
                        kept(&part, false, |c, us| c != cpu || us < a || us >= b),
                    ));
                }
            }
            for (what, text) in all {
                let (outcome, wrong) = judge(text.as_bytes(), &truth);
                cases += 1;
                if outcome == Outcome::Valid {
                    println!(
                        "  {from} {what}: {outcome:?} lines {} of {} wrong {:?}",
                        text.lines().count(),
                        part.lines().count(),
                        wrong
                            .iter()
                            .map(|w| (
                                w.pid,
                                w.found.count,
                                w.right.count,
                                w.found.total_us,
                                w.right.total_us
                            ))
                            .collect::<Vec<_>>()
                    );
                    bad += usize::from(!wrong.is_empty());
                }
            }
        }
        from += window;
    }
    println!("{cases} cases, {bad} bad, {refused} whole refused");
}

#[test]
#[ignore]
fn counts() {
    for file in std::env::var("FILES").unwrap().split(' ') {
        match sched_trace::open(Path::new(file), &ReadOptions::default()) {
            Ok(trace) => {
                let r = analyse(&trace);
                let j = r.to_json();
                let rows = j["tasks"].as_array().unwrap();
                println!(
                    "{file}: valid {} waits {} events {} unexplained {} missing {} proofs {} left out {} lost {} rows {} invalid {} cpus {:?}",
                    r.is_valid(),
                    r.waits.len(),
                    r.events,
                    r.unexplained_runs,
                    r.missing_switches,
                    r.completeness.proofs,
                    r.left_out,
                    r.lost_events,
                    rows.len(),
                    rows.iter().filter(|r| r["valid"] == false).count(),
                    r.completeness
                        .intervals
                        .iter()
                        .map(|i| (i.cpu, i.coverage))
                        .take(6)
                        .collect::<Vec<_>>()
                );
                for n in &r.notices {
                    println!("    {n}");
                }
            }
            Err(e) => println!("{e}"),
        }
    }
}

#[test]
#[ignore]
fn dump() {
    let trace = sched_trace::open(
        Path::new(&std::env::var("FILE").unwrap()),
        &ReadOptions::default(),
    )
    .unwrap();
    for e in &trace.events {
        println!(
            "{:.6} [{}] pid {} {:?}",
            e.time_ns as f64 / 1e9,
            e.cpu,
            e.pid,
            e.kind
        );
    }
}
