//! How the kernel of a trace schedules: settings that waits depend on and that the events do not
//! show.

use serde::Serialize;
use std::fmt;

/// The kernel's preemption modes; no others are accepted from a file.
const MODES: [&str; 6] = ["none", "voluntary", "full", "lazy", "rt", "dynamic"];

/// Settings of the scheduler, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SchedulerSettings {
    /// The kernel's preemption mode: "none", "voluntary", "full", "lazy" or "rt"; "dynamic" if it
    /// is chosen at boot and unknown.
    pub preemption: Option<String>,
    /// Whether CPU time is divided among sessions, each of which is a group.
    pub autogroup: Option<bool>,
    /// Whether a thread that is blocked on a mutex may lend its turn to the owner (proxy execution,
    /// Linux 6.17).
    pub proxy_execution: Option<bool>,
}

/// Symbols of a kernel that was built with proxy execution.
const PROXY: [&str; 4] = [
    // Listed only by kernels that list data too (CONFIG_KALLSYMS_ALL).
    "__sched_proxy_exec",
    "proxy_resched_idle",
    // Both functions may be inlined, in which case they have no symbols.
    "find_proxy_task",
    "proxy_deactivate",
];

/// Whether a kernel with this /proc/kallsyms was built with proxy execution.
pub(crate) fn is_built_with_proxy(kallsyms: &[u8]) -> bool {
    let symbol = |line: &[u8]| {
        let name = line.split(|byte| *byte == b' ').nth(2)?;
        let end = name.iter().position(|byte| *byte == b'\t' || *byte == b'.');
        Some(name[..end.unwrap_or(name.len())].to_vec())
    };
    let mut symbols = kallsyms.split(|byte| *byte == b'\n').filter_map(symbol);
    symbols.any(|name| PROXY.iter().any(|known| known.as_bytes() == name))
}

impl SchedulerSettings {
    /// Parses the version of a kernel (`uname -v`), and the settings after it, if
    /// [`SchedulerSettings::behind`] wrote them.
    pub fn of_version(version: &str) -> Self {
        let mut parts = version.split(';').map(str::trim);
        let built = parts.next().unwrap_or_default();
        let mut settings = Self {
            preemption: built_preemption(built).map(Into::into),
            ..Self::default()
        };
        for part in parts {
            match part.split_once(' ') {
                Some(("preemption", mode)) if MODES.contains(&mode) => {
                    settings.preemption = Some(mode.into());
                }
                Some(("autogroup", state)) => settings.autogroup = Some(state == "on"),
                Some(("proxy-execution", state)) => settings.proxy_execution = Some(state == "on"),
                _ => {}
            }
        }
        settings
    }

    /// The version of a kernel followed by these settings, in the form in which traces store them.
    pub fn behind(&self, version: &str) -> String {
        let settings = self.parts();
        let parts = std::iter::once(version.to_owned()).chain(settings);
        parts.collect::<Vec<_>>().join("; ")
    }

    fn parts(&self) -> impl Iterator<Item = String> {
        let preemption = self
            .preemption
            .iter()
            .map(|mode| format!("preemption {mode}"));
        let autogroup = self
            .autogroup
            .map(|on| format!("autogroup {}", if on { "on" } else { "off" }));
        // All earlier kernels behave as if proxy execution were off.
        let proxy = self.proxy_execution.filter(|on| *on);
        let proxy = proxy.map(|_| "proxy-execution on".to_owned());
        preemption.chain(autogroup).chain(proxy)
    }

    /// Whether a thread inside the kernel keeps its CPU until it yields, even if a real-time thread
    /// waits; `None` if that is unknown.
    pub fn kernel_keeps_cpu(&self) -> Option<bool> {
        match self.preemption.as_deref()? {
            "none" | "voluntary" => Some(true),
            "full" | "lazy" | "rt" => Some(false),
            _ => None,
        }
    }
}

/// Prints the settings, for example "preemption none, autogroup on"; nothing if none is known.
impl fmt::Display for SchedulerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().collect::<Vec<_>>().join(", "))
    }
}

/// The preemption mode that a kernel's version string names; it never names the modes none and
/// voluntary.
fn built_preemption(version: &str) -> Option<&'static str> {
    let words = || version.split_whitespace();
    let known = [
        ("PREEMPT_RT", "rt"),
        ("PREEMPT_DYNAMIC", "dynamic"),
        ("PREEMPT_LAZY", "lazy"),
        ("PREEMPT", "full"),
    ];
    let found = known.iter().find(|(word, _)| words().any(|it| it == *word));
    found.map(|(_, mode)| *mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_come_back_from_the_version_they_stand_behind() {
        let settings = SchedulerSettings {
            preemption: Some("none".into()),
            autogroup: Some(true),
            proxy_execution: None,
        };
        let stored = settings.behind("#1 SMP PREEMPT_DYNAMIC Sun");
        assert_eq!(
            stored,
            "#1 SMP PREEMPT_DYNAMIC Sun; preemption none; autogroup on"
        );
        assert_eq!(SchedulerSettings::of_version(&stored), settings);
        assert_eq!(settings.to_string(), "preemption none, autogroup on");
    }

    #[test]
    fn a_kernel_that_donates_is_known_by_its_symbols_and_stays_known() {
        let symbols = "0000000000000000 t schedule\n0000000000000000 d __sched_proxy_exec\n";
        assert!(is_built_with_proxy(symbols.as_bytes()));
        // The symbol as Linux 7.2 lists it. The boot parameter also exists in kernels without the
        // option.
        let small = b"ffffffff8128f280 t proxy_resched_idle\n";
        assert!(is_built_with_proxy(small));
        assert!(!is_built_with_proxy(
            b"ffffffff81abb4b0 t setup_proxy_exec\n"
        ));
        let inlined = "0000000000000000 t find_proxy_task.isra.0\n";
        assert!(is_built_with_proxy(inlined.as_bytes()));
        assert!(!is_built_with_proxy(
            b"0000000000000000 t proxy_task [netfilter]\n"
        ));
        let settings = SchedulerSettings {
            proxy_execution: Some(true),
            ..SchedulerSettings::default()
        };
        let stored = settings.behind("#1 SMP");
        assert_eq!(stored, "#1 SMP; proxy-execution on");
        assert_eq!(SchedulerSettings::of_version(&stored), settings);
    }

    #[test]
    fn a_version_alone_says_what_the_kernel_was_built_with() {
        let mode = |version| SchedulerSettings::of_version(version).preemption;
        assert_eq!(mode("#1 SMP PREEMPT_RT x").as_deref(), Some("rt"));
        assert_eq!(mode("#1 SMP PREEMPT_DYNAMIC x").as_deref(), Some("dynamic"));
        assert_eq!(mode("#1 SMP PREEMPT x").as_deref(), Some("full"));
        assert_eq!(mode("#1 SMP x"), None);
        assert_eq!(SchedulerSettings::of_version("").to_string(), "");
        assert_eq!(
            mode("#1 SMP PREEMPT x; preemption \x1b[2J").as_deref(),
            Some("full")
        );
    }
}
