//! Tests the page of a launch experiment in a real browser: nothing overflows on a phone or a large
//! screen, the page follows the browser's choice of light or dark, and it fetches nothing. The
//! tests need chromium; if it is missing, they are skipped and print a line.
//!
//! With EROFAST_PAGE_SHOTS=DIR, screenshots are saved there.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use latency_lab::engine::Fetched;
use latency_lab::environment::Environment;
use latency_lab::launch::{
    Against, Blocked, EngineReport, Lane, LaunchReport, Machine, Outliers, Owner, Picture, Sample,
    Stretch, ThreadWaits, Waited,
};
use latency_lab::schedule::Thrown;
use latency_lab::statistics::{Summary, compare, outliers};
use latency_lab::{Report, Reports};

/// Width of a narrow phone.
const NARROW: u32 = 380;

/// Width of a desktop window.
const WIDE: u32 = 1100;

/// Time limit of the browser, which is far longer than the browser needs.
const LIMIT: Duration = Duration::from_secs(180);

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|place| names.map(|name| place.join(name)))
        .find(|path| path.is_file())
}

/// A directory that is removed when the test ends, and a lock: a launch looks for left-over
/// processes among the children of this process, and a browser and `fio --version` are such
/// children.
struct Place(
    PathBuf,
    #[expect(dead_code, reason = "held while the test runs")] MutexGuard<'static, ()>,
);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("erofast-page-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        Place(path, crate::common::alone())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn sample(random: &mut Rng, average: f64, iteration: usize) -> Sample {
    let latency = -average * (1.0 - random.f64()).ln();
    let launch = 300_000.0 + latency * 3.0;
    let stretch = |from: f64, to: f64, owner| Stretch {
        from_us: from * launch,
        to_us: to * launch,
        owner,
    };
    let lane = |shift: f64| {
        vec![
            stretch(0.0, 0.2 + shift, Owner::Load),
            stretch(0.2 + shift, 0.45, Owner::Program),
            stretch(0.45, 0.6, Owner::Engine),
            stretch(0.65, 1.0, Owner::Load),
        ]
    };
    let wait = |from: f64, to: f64, cpu| Waited {
        from_us: from * launch,
        to_us: to * launch,
        cpu,
        comm: "erofs_worker/0".into(),
    };
    Sample {
        launch_us: launch,
        sched_latency_us: latency,
        wakeup_us: latency * 0.8,
        preempted_us: latency * 0.2,
        program_blocked_us: launch * 0.5,
        wakeups: 40,
        threads: 2,
        by_thread: vec![ThreadWaits {
            comm: "kworker/u9:2-some-long-name".into(),
            priority: 120,
            wakeups: 40,
            total_us: latency,
            longest_us: latency / 3.0,
        }],
        behind: [
            "fio",
            "a very long thread name",
            "rustc",
            "sh",
            "b",
            "c",
            "d",
        ]
        .into_iter()
        .enumerate()
        .map(|(number, comm)| Blocked {
            comm: comm.into(),
            priority: 120,
            total_us: latency / f64::from(1 << (number + 1)),
        })
        .collect(),
        picture: Picture {
            length_us: launch,
            cpus: [0, 1]
                .map(|cpu| Lane {
                    cpu,
                    ran: lane(0.1 * f64::from(cpu)),
                })
                .into(),
            waits: vec![wait(0.1, 0.3, 0), wait(0.15, 0.2, 0), wait(0.4, 0.42, 1)],
        },
        iteration,
        ..Sample::default()
    }
}

fn engine(name: &str, average: f64, first: Option<&EngineReport>) -> EngineReport {
    let mut random = Rng::with_seed(average as u64);
    let samples: Vec<Sample> = (0..50)
        .map(|round| sample(&mut random, average, round))
        .collect();
    let column = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
    let (latency, launch) = (column(|s| s.sched_latency_us), column(|s| s.launch_us));
    EngineReport {
        number: 1,
        engine: name.into(),
        sched_latency_us: Summary::of(&latency),
        launch_us: Summary::of(&launch),
        wakeup_us: Summary::of(&column(|s| s.wakeup_us)),
        preempted_us: Summary::of(&column(|s| s.preempted_us)),
        queue_us: None,
        queue_source: "n/a".into(),
        program_off_cpu_us: Summary::of(&launch),
        load_share: Some(0.7),
        idle_share: Some(0.01),
        launch_modes: None,
        sched_latency_modes: None,
        recording: None,
        against_first: first.map(|first| {
            let against = |field: &str, of: fn(&Sample) -> f64| {
                (
                    field.to_owned(),
                    Some(compare(&first.column(of), &column(of))),
                )
            };
            Against::from([
                against("sched_latency", |s| s.sched_latency_us),
                against("launch", |s| s.launch_us),
                against("program_off_cpu", |s| s.launch_us),
            ])
        }),
        outliers: Outliers {
            sched_latency: outliers(&latency),
            launch: outliers(&launch),
        },
        thrown_away: vec![Thrown {
            reason: "other programs took 14 % of the CPU time, mostly rustc".into(),
            time_us: 1234.0,
        }],
        samples,
        ..EngineReport::default()
    }
}

fn report(place: &Path) -> LaunchReport {
    let image = place.join("image");
    std::fs::write(&image, "x").unwrap();
    let first = engine("kernel-loop", 10_200.0, None);
    let others = [
        ("erofast:unbound", 9_000.0),
        ("erofast:percpu", 4_000.0),
        ("erofast:percpu,hipri", 800.0),
    ];
    let mut engines: Vec<EngineReport> = others
        .into_iter()
        .map(|(name, average)| engine(name, average, Some(&first)))
        .collect();
    engines.insert(0, first);
    LaunchReport {
        iterations: 50,
        load: "fio".into(),
        valid: true,
        not_valid_because: Vec::new(),
        interrupted: false,
        command: ["env", "LD_LIBRARY_PATH={}/lib", "{}/bin/rustc", "--version"]
            .map(str::to_owned)
            .to_vec(),
        prepare: None,
        chdir: None,
        root: false,
        warm_ups: 1,
        seed: 1,
        repeat: None,
        cold: "a fresh mount for each launch".into(),
        environment: Environment::capture(&image, Path::new("/no/such/erofast")).unwrap(),
        load_seen: None,
        left_out: vec![
            "engine erofsfuse: erofsfuse is not installed (Debian package: erofsfuse)".into(),
        ],
        engines,
        notices: vec![
            "sched_autogroup_enabled is 1: each fio job is a scheduling group of its own".into(),
        ],
        machine: None,
        ..LaunchReport::default()
    }
}

fn whole(report: &LaunchReport) -> Report {
    Report::Launch(Box::new(report.clone()))
}

/// Runs the browser to its end; returns its standard output.
fn run(browser: &Path, profile: &Path, arguments: &[String]) -> String {
    let mut command = Command::new(browser);
    command
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args([
            "--no-first-run",
            "--hide-scrollbars",
            "--allow-file-access-from-files",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
        ])
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(arguments)
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut out = child.stdout.take().unwrap();
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = std::io::Read::read_to_end(&mut out, &mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    wait(&mut child);
    reader.join().unwrap()
}

fn wait(child: &mut Child) {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > LIMIT {
            let _ = child.kill();
            panic!("the browser does not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A page that shows the report in a frame of this width and records its findings: how wide the
/// content is, which elements stick out (those inside scrolling boxes may, except the shifts),
/// which points of a chart a name covers, and the background colour.
fn probe(page: &Path, width: u32) -> String {
    format!(
        r#"<!doctype html><body><iframe id="f" src="{}" style="width:{width}px;height:4000px;border:0"></iframe>
<pre id="found"></pre><script>
document.getElementById('f').onload = () => {{
  const d = document.getElementById('f').contentDocument, r = d.documentElement, out = [];
  const inside = e => e.closest('.scroll, pre, svg') && !e.matches('.scroll, pre, svg');
  for (const e of d.body.querySelectorAll('*')) {{
    const box = e.getBoundingClientRect();
    if (!inside(e) && box.width > 0 && (box.right > {width} + 0.5 || box.left < -0.5)) out.push(e.tagName + '.' + e.className);
  }}
  for (const cell of d.querySelectorAll('.shift')) {{
    if (cell.getBoundingClientRect().right > {width}) out.push('shift out of sight');
  }}
  for (const name of d.querySelectorAll('.figure tbody th')) {{
    if (name.getBoundingClientRect().width < 90) out.push('squeezed: ' + name.textContent);
  }}
  for (const svg of d.querySelectorAll('svg')) {{
    const box = svg.getBoundingClientRect();
    for (const text of svg.querySelectorAll('text')) {{
      const t = text.getBoundingClientRect();
      if (t.left < box.left - 0.5 || t.right > box.right + 0.5) out.push('cut: ' + text.textContent);
    }}
    const points = [...svg.querySelectorAll('circle')].map(e => e.getBoundingClientRect());
    for (const name of svg.querySelectorAll('.name')) {{
      const n = name.getBoundingClientRect();
      if (points.some(p => p.left < n.right && p.right > n.left && p.top < n.bottom && p.bottom > n.top))
        out.push('name over a point: ' + name.textContent);
    }}
  }}
  const ground = d.defaultView.getComputedStyle(d.body).backgroundColor;
  const figures = d.querySelectorAll('svg').length;
  document.getElementById('found').textContent =
    JSON.stringify({{ width: r.scrollWidth, out, ground, figures }});
}};
</script></body>"#,
        page.display()
    )
}

fn probe_in(
    browser: &Path,
    place: &Path,
    page: &Path,
    width: u32,
    dark: bool,
) -> serde_json::Value {
    let wrapper = place.join("probe.html");
    std::fs::write(&wrapper, probe(page, width)).unwrap();
    let arguments = [
        scheme(dark),
        "--window-size=1200,4200".into(),
        "--virtual-time-budget=10000".into(),
        "--dump-dom".into(),
        format!("file://{}", wrapper.display()),
    ];
    let dom = run(browser, &place.join("profile"), &arguments);
    let found = dom.split_once("<pre id=\"found\">").map(|(_, rest)| rest);
    let found = found.and_then(|rest| rest.split_once("</pre>"));
    let (json, _) = found.unwrap_or_else(|| panic!("{} shows no page: {dom}", browser.display()));
    let json = json.replace("&gt;", ">").replace("&lt;", "<");
    serde_json::from_str(&json.replace("&amp;", "&")).unwrap_or_else(|e| panic!("{e}: {json}"))
}

/// Blink's numbers for the two schemes: 0 is dark, 1 is light.
fn scheme(dark: bool) -> String {
    format!("--blink-settings=preferredColorScheme={}", u8::from(!dark))
}

fn shot(
    browser: &Path,
    place: &Path,
    page: &Path,
    (name, width, dark): (&str, u32, bool),
    to: &Path,
) {
    let frame = place.join("frame.html");
    // Windows cannot be as narrow as a phone, but frames can.
    let text = format!(
        "<!doctype html><body style=\"margin:0\"><iframe src=\"{}\" \
         style=\"width:{width}px;height:5200px;border:0\"></iframe>",
        page.display()
    );
    std::fs::write(&frame, text).unwrap();
    let arguments = [
        scheme(dark),
        format!("--window-size={},5200", width.max(500)),
        "--virtual-time-budget=10000".into(),
        format!("--screenshot={}", to.join(name).display()),
        format!("file://{}", frame.display()),
    ];
    run(browser, &place.join("profile"), &arguments);
}

#[test]
fn the_page_fits_a_telephone_follows_light_and_dark_and_fetches_nothing() {
    let place = Place::new();
    let html = whole(&report(&place.0)).to_html();
    let overview = html.split("</svg>").next().unwrap();
    for name in ["erofast:percpu", "erofast:unbound"] {
        let row = format!(">{name}, launch time</text>");
        assert_eq!(overview.matches(&row).count(), 1, "{row}");
    }
    for reference in [" src=", " href=", "url(", "@import", "<link", "<iframe"] {
        assert!(!html.contains(reference), "{reference}");
    }
    let Some(browser) = browser() else {
        return println!("skipped: chromium is not installed");
    };
    let page = place.0.join("report.html");
    std::fs::write(&page, &html).unwrap();
    if let Some(to) = std::env::var_os("EROFAST_PAGE_SHOTS").map(PathBuf::from) {
        std::fs::create_dir_all(&to).unwrap();
        for what in [
            ("wide-light.png", WIDE, false),
            ("wide-dark.png", WIDE, true),
            ("narrow-light.png", NARROW, false),
            ("narrow-dark.png", NARROW, true),
        ] {
            shot(&browser, &place.0, &page, what, &to);
        }
    }
    for width in [NARROW, WIDE] {
        let [light, dark] =
            [false, true].map(|dark| probe_in(&browser, &place.0, &page, width, dark));
        for found in [&light, &dark] {
            assert_eq!(
                found["out"],
                serde_json::json!([]),
                "sticks out at {width} px"
            );
            assert!(
                found["width"].as_u64().unwrap() <= u64::from(width),
                "{found}"
            );
            // There are the chart of all shifts, three charts for each of three quantities, and two
            // launches of each of four engines.
            assert_eq!(found["figures"], 1 + 9 + 8);
        }
        assert_ne!(light["ground"], dark["ground"]);
    }
}

#[test]
fn reports_fit_their_schemas() {
    let place = Place::new();
    let mut report = report(&place.0);
    let json = |report: &LaunchReport| serde_json::to_value(report).unwrap();
    crate::common::schema::check("lab-launch", &json(&report));
    report.machine = Some(Machine {
        qemu: "QEMU 10.0.2".into(),
        arch: "arm64".into(),
        accelerator: "tcg".into(),
        emulated: true,
        kernel: "6.12".into(),
        kernel_package: "6.12-1".into(),
        cpus: 2,
    });
    crate::common::schema::check("lab-kernel", &json(&report));
}

/// Tests a report in which one engine's image is at a URL.
#[test]
fn a_fetched_image_has_the_time_from_the_mount_on_bytes_and_round_trips() {
    let place = Place::new();
    let mut report = report(&place.0);
    assert!(!whole(&report).table().contains("round trips"));
    for sample in &mut report.engines[1].samples {
        (sample.launch_us, sample.mount_us) = (150_000.0, 50_000.0);
        let (bytes, round_trips) = (23_000_000, 60);
        sample.fetched = Some(Fetched { bytes, round_trips });
    }
    let json = serde_json::to_value(&report).unwrap();
    crate::common::schema::check("lab-launch", &json);
    let shows = [whole(&report).table(), whole(&report).to_html()];
    for figure in [
        "ready",
        "200 ms",
        "50.0 ms",
        "21.9 MiB",
        "round trips",
        "60",
    ] {
        for show in &shows {
            assert!(show.contains(figure), "{figure}: {show}");
        }
    }
}

#[test]
fn the_answer_is_a_sentence_and_a_row_an_engine() {
    let place = Place::new();
    let report = report(&place.0);
    let answer = whole(&report).answer();
    assert!(answer.starts_with("Against kernel-loop, "), "{answer}");
    assert!(
        answer.lines().all(|line| line.chars().count() <= 100),
        "{answer}"
    );
    assert!(answer.lines().count() <= 14, "{answer}");
    for name in [
        "kernel-loop",
        "erofast:unbound",
        "erofast:percpu ",
        "erofast:percpu,hipri",
    ] {
        let row = |line: &&str| line.starts_with(name) && line.contains(" ms  ");
        assert_eq!(answer.lines().filter(row).count(), 1, "{name}: {answer}");
    }
    assert!(answer.contains("lower, -"), "{answer}");
    assert!(
        whole(&report)
            .table()
            .starts_with(answer.rsplit_once("More figures").unwrap().0)
    );
}

#[test]
fn a_run_that_is_not_valid_has_its_reasons_once_its_figures_and_no_claims() {
    let place = Place::new();
    let mut report = report(&place.0);
    report.valid = false;
    report.not_valid_because = ["other programs were busy", "2 of 50"]
        .map(String::from)
        .into();
    let whole = whole(&report);
    let json = place.0.join("a.json");
    std::fs::write(&json, whole.to_json()).unwrap();
    let reports = Reports::read(&[json]).unwrap();
    let page = whole.to_html();
    let (page, _) = page.split_once("<script").unwrap();
    let page = page.split("What each number means").next().unwrap();
    let table = whole.table();
    let (table, _) = table.split_once("shift               from").unwrap();
    let shows = [
        &whole.answer(),
        table,
        page,
        &reports.to_markdown().unwrap(),
    ]
    .map(str::to_owned);
    for show in &shows {
        for claim in [
            "lower",
            "higher",
            "inconclusive",
            "p = ",
            "p < ",
            "interval",
            "shift",
        ] {
            assert!(!show.contains(claim), "{claim}: {show}");
        }
        assert!(
            show.contains("erofast:percpu,hipri") && show.contains(" ms"),
            "{show}"
        );
    }
    for text in [whole.answer(), whole.table()] {
        let top = "NOT VALID: other programs were busy\n           2 of 50\n50 launches";
        assert!(text.starts_with(top), "{text}");
        assert_eq!(text.matches("NOT VALID").count(), 2, "{text}");
        assert!(
            text.ends_with("\nNOT VALID, see the reasons at the top.\n"),
            "{text}"
        );
        assert!(!text.contains("onclusion"), "{text}");
    }
    assert!(page.contains("Not valid: other programs were busy; 2 of 50."));
    assert!(
        whole.to_json().contains("\"verdict\""),
        "the contract's fields stay"
    );
    report.iterations = 1;
    for engine in &mut report.engines {
        engine.samples.truncate(1);
    }
    let single = self::whole(&report).answer();
    assert!(single.contains("\n1 launch per engine, "), "{single}");
}

#[test]
fn one_line_tells_which_launches_of_an_engine_are_in_the_figures() {
    let place = Place::new();
    let mut report = report(&place.0);
    let line = |report: &LaunchReport| {
        let table = whole(report).table();
        let (_, remarks) = table.split_once("\nremarks\n").unwrap();
        remarks.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let thrown = "; 1 spoilt, thrown away and repeated (first: other programs took 14 % of the \
                  CPU time, mostly rustc); they took 1.23 ms to 1.23 ms, median 1.23 ms, against ";
    let found = line(&report);
    assert!(
        found.contains(&format!("50 launches in the figures{thrown}")),
        "{found}"
    );
    report.engines[0].samples[0].spoilt = Some("busy".into());
    let spoilt = ", 1 of them spoilt and no longer repeated";
    let found = line(&report);
    assert!(
        found.contains(&format!("50 launches in the figures{spoilt}{thrown}")),
        "{found}"
    );
    report
        .engines
        .iter_mut()
        .for_each(|engine| engine.thrown_away.clear());
    let found = line(&report);
    assert_eq!(
        found.matches(" launches in the figures").count(),
        1,
        "{found}"
    );
}

#[test]
fn tables_and_columns_without_a_figure_are_left_out() {
    let place = Place::new();
    let mut report = report(&place.0);
    let titles = [
        "\nscheduling latency: ",
        "\nwhole path: ",
        "waiting threads",
        "waited behind",
    ];
    let table = whole(&report).table();
    assert!(titles.iter().all(|title| table.contains(title)), "{table}");
    for sample in report
        .engines
        .iter_mut()
        .flat_map(|engine| &mut engine.samples)
    {
        sample.switches_missing = Some("3 of 200 switches".into());
        (sample.sched_latency_us, sample.program_blocked_us) = (f64::NAN, f64::NAN);
    }
    for engine in &mut report.engines {
        (engine.wakeup_us, engine.preempted_us) = (None, None);
    }
    let table = whole(&report).table();
    let (table, _) = table.split_once("scheduling latency  how long").unwrap();
    assert!(!titles.iter().any(|title| table.contains(title)), "{table}");
    assert!(
        table.contains("launch time") && table.contains(" idle\n"),
        "{table}"
    );
    assert!(!table.contains("n/a"), "{table}");
    assert!(!table.contains("wake-ups"), "{table}");
}

#[test]
fn an_engine_that_decompresses_in_the_program_is_compared_by_the_waits_that_it_has() {
    let place = Place::new();
    let mut report = report(&place.0);
    assert!(whole(&report).answer().contains("  scheduling latency\n"));
    for sample in &mut report.engines[0].samples {
        sample.wakeups = 0;
    }
    assert!(
        whole(&report).answer().contains("  whole path\n"),
        "{}",
        whole(&report).answer()
    );
}

#[test]
fn the_page_of_a_report_is_that_of_its_json() {
    let place = Place::new();
    let mut report = report(&place.0);
    report.engines[1].samples[0] = Sample {
        switches_missing: Some("3 of 200 switches".into()),
        sched_latency_us: f64::NAN,
        ..Sample::default()
    };
    // The figures are computed from the samples, as in a run.
    let of_run = Report::from_json(whole(&report).to_json().as_bytes()).unwrap();
    let read = Report::from_json(of_run.to_json().as_bytes()).unwrap();
    // The numbers inside the script element may differ in their last digit.
    let page = |html: String| html.split("<script").next().map(str::to_owned);
    assert!(page(read.to_html()) == page(of_run.to_html()));
    assert!(
        read.to_html().contains("waited"),
        "timelines are in the JSON"
    );
    assert!(!read.to_html().contains("NaN"), "unknown is n/a");
}

#[test]
fn the_drawing_stands_alone_in_light_and_dark_and_says_what_it_is_of() {
    let place = Place::new();
    let mut report = report(&place.0);
    for sample in &mut report.engines[0].samples {
        sample.sched_latency_us = 0.0;
    }
    let svg = report.to_svg();
    assert!(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\""));
    assert!(svg.contains("prefers-color-scheme: dark"));
    // Four engines are in two charts, but one engine had no waits in threads of its own.
    assert_eq!(svg.matches("<path class=\"line").count(), 7);
    assert!(
        svg.contains("kernel-loop: decompresses in the program&#39;s own thread"),
        "{svg}"
    );
    // The legend has two lines of two names, in the same columns.
    let column = |x: u32| {
        svg.matches(&format!("<text class=\"name\" x=\"{x}\""))
            .count()
    };
    assert_eq!([column(34), column(530)], [2, 2]);
    assert!(svg.contains(&report.environment.line()) && svg.contains("; valid<"));
    for reference in [" src=", " href=", "url(", "@import", "<script"] {
        assert!(!svg.contains(reference), "{reference}");
    }
    report.valid = false;
    assert!(report.to_svg().contains("NOT VALID"));
}
