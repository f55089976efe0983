//! The pages of all CPUs of a trace.dat.

use super::options::{Contents, FORMAT};
use super::sections;
use crate::error::{COUNTED, Fault};
use crate::ftrace::decode::Decoder;
use crate::ftrace::format::PageLayout;
use crate::ftrace::{page, symbols, threads};
use crate::input::{ByteReader, ReadOptions};
use crate::settings::is_built_with_proxy;
use crate::{Comm, SchedulerSettings, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek};

/// State while pages are decoded.
struct Pages {
    trace: Trace,
    decoder: Decoder,
    layout: PageLayout,
    tsc: Option<(u32, u32)>,
    /// Whether the next page is the first one of its CPU: events missing before it were
    /// overwritten.
    first: bool,
    wrapped: BTreeSet<u32>,
    /// Number of events that pages report as missing before them: the sum over all pages, and the
    /// sum without the first page of each CPU.
    flagged: u64,
    missed: u64,
    /// Events of all kinds that were found, by CPU.
    found: BTreeMap<u32, u64>,
    limits: ReadOptions,
}

/// Decodes the pages of all CPUs.
pub(super) fn read<R: Read + Seek>(
    mut reader: ByteReader<R>,
    contents: &Contents,
    limits: ReadOptions,
) -> Result<Trace, Fault> {
    let mut pages = Pages::new(&reader, contents, limits)?;
    for cpu in contents.buffer.cpus.iter().filter(|cpu| cpu.size > 0) {
        sections::seek(&mut reader, cpu.offset, "a page of events")?;
        pages.first = true;
        if let Some(algorithm) = &contents.algorithm {
            for _ in 0..reader.u32("a CPU's data")? {
                if reader.offset - cpu.offset > cpu.size {
                    return Err(reader.broken(format!("CPU {}: too many chunks", cpu.cpu)));
                }
                let bytes = sections::chunk(&mut reader, algorithm, &mut pages.limits)?;
                pages.read(&reader, cpu.cpu, &bytes)?;
            }
        } else {
            let size = pages.layout.page as u64;
            for _ in 0..cpu.size / size {
                let bytes = reader.bytes(size, "a page of events")?;
                pages.read(&reader, cpu.cpu, &bytes)?;
            }
        }
    }
    pages.finish(contents)
}

impl Pages {
    fn new<R: Read>(
        reader: &ByteReader<R>,
        contents: &Contents,
        limits: ReadOptions,
    ) -> Result<Self, Fault> {
        let (options, description) = (&contents.options, &contents.description);
        let layout = PageLayout {
            page: contents.buffer.page,
            ..description.layout.unwrap_or(PageLayout::USUAL)
        };
        if layout.page <= layout.data {
            return Err(reader.broken(format!("pages of {} bytes", layout.page)));
        }
        let clock = match options.clock.as_str() {
            "" => "local",
            clock => clock,
        };
        let tsc = options.tsc.filter(|_| clock == "x86-tsc");
        if clock == "counter" || clock == "x86-tsc" && tsc.is_none() {
            return Err(reader.broken(COUNTED));
        }
        let mut trace = Trace::new(clock);
        trace.kernel = options.kernel.clone();
        trace.kernel_version = options.kernel_version.clone();
        Ok(Self {
            trace,
            decoder: Decoder::new(&description.formats),
            layout,
            tsc,
            first: false,
            wrapped: options.wrapped.clone(),
            flagged: 0,
            missed: 0,
            found: contents
                .buffer
                .cpus
                .iter()
                .map(|cpu| (cpu.cpu, 0))
                .collect(),
            limits,
        })
    }

    fn read<R: Read>(
        &mut self,
        reader: &ByteReader<R>,
        cpu: u32,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let (trace, decoder, tsc) = (&mut self.trace, &mut self.decoder, self.tsc);
        for page in bytes.chunks_exact(self.layout.page) {
            let mut first = None;
            let read = page::records(page, &self.layout, |time, record| {
                let time = nanoseconds(time, tsc);
                first.get_or_insert(time);
                decoder.record(trace, time, cpu, record);
            });
            let read = read.map_err(|reason| reader.broken(format!("CPU {cpu}: {reason}")))?;
            *self.found.entry(cpu).or_default() += read.records;
            let lost = read.lost;
            self.flagged = self.flagged.saturating_add(lost);
            if !std::mem::take(&mut self.first) {
                self.missed = self.missed.saturating_add(lost);
                if lost > 0 {
                    trace.lose_before(0, Some(cpu), first.unwrap_or(u64::MAX));
                }
            } else if lost > 0 {
                self.wrapped.insert(cpu);
            }
        }
        self.limits.check(trace)
    }

    fn finish(self, contents: &Contents) -> Result<Trace, Fault> {
        let mut trace = self.trace;
        if trace.events.is_empty() {
            return Err(Fault::NoEvents {
                format: FORMAT,
                record: "trace-cmd record -e sched has them",
            });
        }
        trace.sort();
        let kallsyms = &mut &contents.description.kallsyms[..];
        self.decoder
            .finish(&mut trace, kallsyms, symbols::RECORD_AGAIN);
        // The file does not say whether proxy execution was disabled at boot.
        let settings = SchedulerSettings {
            proxy_execution: is_built_with_proxy(&contents.description.kallsyms).then_some(true),
            ..SchedulerSettings::default()
        };
        trace.kernel_version = settings.behind(&trace.kernel_version);
        name_from(&mut trace, &contents.cmdlines);
        threads::name_threads(&mut trace);
        let options = &contents.options;
        let mut fewer = 0u64;
        for (&cpu, &found) in &self.found {
            trace.claims.cpus.insert(cpu);
            match options.kept.get(&cpu) {
                Some(&kept) if kept > found => {
                    fewer = fewer.saturating_add(kept - found);
                    trace.lose_before(0, Some(cpu), u64::MAX);
                }
                Some(_) => _ = trace.claims.counted.insert(cpu),
                None => {}
            }
        }
        let lost = options
            .overwritten
            .saturating_add(options.dropped)
            .max(self.flagged);
        if self.missed > 0 || options.dropped > 0 || fewer > 0 {
            trace.lost_events = lost.max(fewer);
        } else if lost > 0 {
            trace.begin_whole(lost, |cpu| self.wrapped.contains(&cpu));
        }
        Ok(trace)
    }
}

fn nanoseconds(time: u64, tsc: Option<(u32, u32)>) -> u64 {
    match tsc {
        Some((multiplier, shift)) if shift < 64 => {
            ((u128::from(time) * u128::from(multiplier)) >> shift) as u64
        }
        _ => time,
    }
}

/// Reads the lines `PID NAME` of the saved command lines.
fn name_from(trace: &mut Trace, cmdlines: &[u8]) {
    for line in cmdlines.split(|&b| b == b'\n') {
        let mut words = line.splitn(2, |&b| b == b' ');
        let pid = words
            .next()
            .and_then(|pid| std::str::from_utf8(pid).ok()?.parse().ok());
        if let (Some(pid), Some(comm)) = (pid, words.next()) {
            trace.threads.entry(pid).or_default().comm = Comm::new(comm);
        }
    }
}
