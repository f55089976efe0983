//! How the kernel of a trace schedules: what the events do not say, and waits depend on.

use serde::Serialize;
use std::fmt;

/// Ways in which a kernel preempts; a file can name no other.
const MODES: [&str; 6] = ["none", "voluntary", "full", "lazy", "rt", "dynamic"];

/// Settings of the scheduler, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SchedulerSettings {
    /// Where a thread inside the kernel can be preempted: "none", "voluntary", "full", "lazy" or
    /// "rt"; "dynamic" where that is chosen at boot and not known.
    pub preemption: Option<String>,
    /// Whether sessions share the CPU as groups.
    pub autogroup: Option<bool>,
}

impl SchedulerSettings {
    /// From the version of a kernel (`uname -v`), with the settings behind it that
    /// [`SchedulerSettings::behind`] wrote, if it did.
    pub fn of_version(version: &str) -> Self {
        let mut parts = version.split(';').map(str::trim);
        let built = parts.next().unwrap_or_default();
        let mut settings = Self {
            preemption: built_preemption(built).map(Into::into),
            autogroup: None,
        };
        for part in parts {
            match part.split_once(' ') {
                Some(("preemption", mode)) if MODES.contains(&mode) => {
                    settings.preemption = Some(mode.into());
                }
                Some(("autogroup", state)) => settings.autogroup = Some(state == "on"),
                _ => {}
            }
        }
        settings
    }

    /// The version of a kernel with these settings behind it, as traces store both.
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
        preemption.chain(autogroup)
    }

    /// Whether a thread inside the kernel keeps its CPU although a real-time thread waits, up to a
    /// point where it yields by itself; none where that is not known.
    pub fn kernel_keeps_cpu(&self) -> Option<bool> {
        match self.preemption.as_deref()? {
            "none" | "voluntary" => Some(true),
            "full" | "lazy" | "rt" => Some(false),
            _ => None,
        }
    }
}

/// "preemption none, autogroup on"; empty where nothing is known.
impl fmt::Display for SchedulerSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.parts().collect::<Vec<_>>().join(", "))
    }
}

/// The word for preemption in the version of a kernel. None or voluntary have no word.
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
