//! Resolves function addresses with kallsyms.

use crate::{Kind, Name, Names, Notice, Trace};
use std::collections::{HashMap, HashSet};
use std::io::BufRead;

/// How to get the kernel's symbols into a recording that stores them.
pub(crate) const RECORD_AGAIN: &str = "run sysctl kernel.kptr_restrict=0 and record again, as root";

/// Addresses that occur in events, each with a provisional name until its symbol is known.
#[derive(Debug, Default)]
pub(crate) struct Addresses(HashMap<u64, Name>);

impl Addresses {
    /// The provisional name of the function at an address.
    pub fn name(&mut self, names: &mut Names, address: u64) -> Name {
        *self
            .0
            .entry(address)
            .or_insert_with(|| names.intern(&format!("{address:#x}")))
    }

    /// Replaces provisional names with symbols; a notice gives the number of unresolved names and
    /// the remedy.
    pub fn resolve(&self, trace: &mut Trace, kallsyms: &mut dyn BufRead, remedy: &'static str) {
        if self.0.is_empty() {
            return;
        }
        let wanted: HashSet<u64> = self.0.keys().copied().collect();
        let symbols = pick(kallsyms, &wanted);
        let mut renamed = HashMap::new();
        for (address, provisional) in &self.0 {
            if let Some(symbol) = symbols.get(address) {
                renamed.insert(*provisional, trace.names.intern(symbol));
            }
        }
        if renamed.len() < self.0.len() {
            trace.notices.push(Notice::UnnamedFunctions {
                unnamed: self.0.len() - renamed.len(),
                of: self.0.len(),
                remedy,
            });
        }
        rename(trace, &renamed);
    }
}

fn rename(trace: &mut Trace, renamed: &HashMap<Name, Name>) {
    for event in &mut trace.events {
        if let Kind::WorkQueued { function, .. }
        | Kind::WorkStart { function, .. }
        | Kind::WorkEnd {
            function: Some(function),
            ..
        } = &mut event.kind
        {
            *function = *renamed.get(function).unwrap_or(function);
        }
    }
}

/// Finds the symbols at exactly the wanted addresses. Lines are `ADDRESS TYPE NAME [MODULE]`.
fn pick(lines: &mut dyn BufRead, wanted: &HashSet<u64>) -> HashMap<u64, String> {
    let mut found = HashMap::new();
    let mut line = Vec::new();
    while found.len() < wanted.len() {
        line.clear();
        if !matches!(lines.read_until(b'\n', &mut line), Ok(1..)) {
            break;
        }
        let text = String::from_utf8_lossy(&line);
        let mut parts = text.split_whitespace();
        let (Some(address), Some(_), Some(name)) = (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address, 16) else {
            continue;
        };
        if address != 0 && wanted.contains(&address) {
            found.entry(address).or_insert_with(|| name.to_string());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Event;

    #[test]
    fn known_addresses_get_their_symbol_and_unknown_ones_a_notice() {
        let mut trace = Trace::new("mono");
        let mut addresses = Addresses::default();
        for (work, address) in [(1, 0x10), (2, 0x20)] {
            let function = addresses.name(&mut trace.names, address);
            let kind = Kind::WorkStart {
                work,
                function,
                kthread: false,
            };
            trace.events.push(Event {
                time_ns: work,
                cpu: 0,
                pid: 9,
                kind,
            });
        }
        let mut kallsyms = &b"0000000000000010 t vmstat_update\n0000000000000030 T other [m]\n"[..];
        addresses.resolve(&mut trace, &mut kallsyms, "as root");
        let names: Vec<&str> = trace
            .events
            .iter()
            .map(|event| match event.kind {
                Kind::WorkStart { function, .. } => trace.names.get(function),
                _ => unreachable!(),
            })
            .collect();
        assert_eq!(names, ["vmstat_update", "0x20"]);
        let notice = Notice::UnnamedFunctions {
            unnamed: 1,
            of: 2,
            remedy: "as root",
        };
        assert_eq!(trace.notices, [notice]);
    }
}
