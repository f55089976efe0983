//! The frame of a report: style for light and dark, wide and narrow, print included.

use std::fmt::Write;

use super::escape;
use crate::environment::Environment;

/// Series colours are distinct for colour-blind readers (after Okabe and Ito), lighter on dark
/// ground.
const STYLE: &str = "
:root { color-scheme: light dark; --ground: #fdfdfb; --ink: #1d2125; --soft: #5c646c; --rule: #d9dcdf; --panel: #f3f4f2;
  --good: #00694c; --bad: #a8321a; --s0: #0072b2; --s1: #c25a00; --s2: #00875f; --s3: #a8528c; --s4: #7a6a00; --s5: #555c63; }
@media (prefers-color-scheme: dark) { :root { --ground: #15181b; --ink: #e6e8ea; --soft: #9aa3ab; --rule: #33393f; --panel: #1e2226;
  --good: #4fc39b; --bad: #f08a70; --s0: #5bb0ea; --s1: #f09a4b; --s2: #3fc795; --s3: #dd93c4; --s4: #cdbb4a; --s5: #b0b7bd; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 66rem; padding: 1.2rem 1rem 3rem; background: var(--ground); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; } p { margin: .4rem 0; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .92rem; }
th, td { padding: .28rem .55rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } thead th { font-weight: 600; vertical-align: bottom; white-space: normal; }
table + table, .scroll + .scroll { margin-top: 1rem; }
.words th, .words td { text-align: left; white-space: normal; vertical-align: top; }
.words th { white-space: nowrap; font-weight: 600; color: var(--soft); }
.published { background: var(--panel); } .faint { color: var(--soft); }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr)); gap: 1.2rem 2rem; }
figure { margin: 0; } svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } svg .tick { fill: var(--soft); font-size: 11px; }
.grid { stroke: var(--rule); stroke-width: 1; } .median { stroke: var(--ink); stroke-width: 2; }
.line { fill: none; stroke-width: 2; } .dot { fill-opacity: .75; stroke: none; }
.s0 { --c: var(--s0); } .s1 { --c: var(--s1); } .s2 { --c: var(--s2); } .s3 { --c: var(--s3); } .s4 { --c: var(--s4); } .s5 { --c: var(--s5); }
.line { stroke: var(--c); } .dot { fill: var(--c); } .key { display: inline-block; width: .8em; height: .8em; border-radius: 2px; background: var(--c); margin-right: .4em; }
.legend > span { display: inline-block; margin-right: 1.2rem; white-space: nowrap; } pre { background: var(--panel); padding: .7rem .9rem; overflow-x: auto; font-size: .88rem; }
.bars { list-style: none; margin: .2rem 0 .8rem; padding: 0; font-size: .92rem; font-variant-numeric: tabular-nums; }
.bars li { display: grid; grid-template-columns: minmax(7rem, 12rem) 1fr 5rem; gap: .6rem; align-items: center; padding: .1rem 0; }
.bars .bar > span { display: block; height: .8rem; background: var(--c); border-radius: 2px; min-width: 1px; } .bars .much { text-align: right; }
.w-program { --c: var(--s0); } .w-engine { --c: var(--s2); } .w-load { --c: var(--rule); } .w-kernel { --c: var(--s5); }
.w-lab { --c: var(--s4); } .w-other { --c: var(--s3); } .w-wait { --c: var(--bad); } rect { fill: var(--c); }
details { margin: .5rem 0; } summary { cursor: pointer; }
@media (max-width: 32rem) { .bars li { grid-template-columns: 6.2rem 1fr 4.4rem; gap: .4rem; } body { font-size: 15px; padding: .9rem .75rem 2rem; } th, td { padding: .25rem .45rem; } }
";

/// A whole page around `body`, with the raw report inside for further computing.
pub(super) fn page(title: &str, body: &str, json: &str) -> String {
    // "</" would end the element early; in JSON strings "<\/" means the same.
    let json = json.replace("</", "<\\/");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{STYLE}</style>\n</head>\n<body>\n{body}\
         <script type=\"application/json\" id=\"report\">\n{json}\n</script>\n</body>\n</html>\n",
        title = escape(title)
    )
}

/// Names and values.
pub(super) fn words(rows: &[(String, String)]) -> String {
    let mut out = String::from("<div class=\"scroll\"><table class=\"words\"><tbody>\n");
    for (name, value) in rows {
        let _ = writeln!(
            out,
            "<tr><th scope=\"row\">{}</th><td>{}</td></tr>",
            escape(name),
            escape(value)
        );
    }
    out + "</tbody></table></div>\n"
}

pub(super) fn environment(environment: &Environment) -> String {
    let text = |value: &Option<String>| value.clone();
    let number = |value: &Option<i64>| value.map(|value| value.to_string());
    let mut rows = Vec::new();
    let mut add = |name: &str, value: Option<String>| {
        rows.extend(value.map(|value| (name.to_owned(), value)))
    };
    add("date", Some(environment.date.clone()));
    add("kernel", Some(environment.kernel.clone()));
    add("CPUs", Some(environment.cpus.clone()));
    add("CPU", text(&environment.cpu_model));
    add("governor", text(&environment.governor));
    add(
        "memory",
        environment
            .memory_kib
            .map(|kib| format!("{} MiB", kib >> 10)),
    );
    add("load average before", text(&environment.load_average));
    add(
        "sched_rt_runtime_us",
        number(&environment.sched_rt_runtime_us),
    );
    add(
        "sched_autogroup_enabled",
        number(&environment.sched_autogroup_enabled),
    );
    add("cpu cgroup", text(&environment.cgroup_cpu));
    add(
        "its real-time budget",
        number(&environment.cgroup_rt_runtime_us),
    );
    add("FUSE over io_uring", text(&environment.fuse_uring_enabled));
    for (program, version) in &environment.programs {
        add(program, Some(version.clone()));
    }
    let image = &environment.image;
    add(
        "image",
        Some(format!("{} ({} bytes)", image.path, image.bytes)),
    );
    add("its SHA-256", Some(image.sha256.clone()));
    words(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_the_page_reaches_for_the_network_or_ends_the_data_early() {
        let page = page("t", "<p>x</p>", "{\"a\": \"</script><b>\"}");
        assert!(!page.contains("http://") && !page.contains("https://") && !page.contains("url("));
        assert_eq!(page.matches("</script>").count(), 1);
    }
}
