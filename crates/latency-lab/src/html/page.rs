//! The frame of a report: style for light and dark, wide and narrow, print included.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::escape;
use super::style::{CHARTS, COLOURS, LAYOUT};
use crate::environment::Environment;

/// A whole page around `body`, with the raw report inside for further computing.
pub(super) fn page(title: &str, body: &str, json: &str) -> String {
    // The element could end early, or a comment begin; in JSON "<" is only in strings.
    let json = json.replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<title>{title}</title>\n\
         <style>{COLOURS}{LAYOUT}{CHARTS}</style>\n</head>\n<body>\n{body}\
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
    add("SMT", text(&environment.smt));
    add(
        "isolated CPUs",
        text(&environment.isolated_cpus).filter(|cpus| !cpus.is_empty()),
    );
    add("sched_ext", text(&environment.sched_ext));
    add(
        "base slice",
        environment
            .base_slice_ns
            .map(|ns| format!("{} us", ns / 1000)),
    );
    add("mitigations", list(&environment.mitigations, ""));
    add("swap", list(&environment.swaps, " KiB"));
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    add("stolen CPU time", environment.cpu_steal_share.map(percent));
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
    add("kernel preemption", text(&environment.preemption));
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
    add("its file system", text(&image.filesystem));
    add("its SHA-256", Some(image.sha256.clone()));
    words(&rows)
}

/// "name: value; name: value".
fn list<V: std::fmt::Display>(map: &BTreeMap<String, V>, unit: &str) -> Option<String> {
    let items: Vec<String> = map
        .iter()
        .map(|(name, value)| format!("{name}: {value}{unit}"))
        .collect();
    (!items.is_empty()).then(|| items.join("; "))
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
