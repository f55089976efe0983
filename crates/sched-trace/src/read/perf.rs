//! Reads perf.data files of `perf sched record`.
//!
//! linux-perf-data parses the file's structure. The raw data of samples are ftrace records, whose
//! layout is stored in the file's TRACING_DATA section.

use crate::error::Fault;
use crate::ftrace::decode::Decoder;
use crate::ftrace::threads;
use crate::ftrace::tracing_data::{TracingData, opening};
use crate::input::{ByteReader, CPUS, ReadOptions};
use crate::{Comm, Loss, Thread, Trace};
use linux_perf_data::linux_perf_event_reader::{
    AttrFlags, EventRecord, RawEventRecord, RecordType,
};
use linux_perf_data::{AttributeDescription, Feature, PerfFileReader, PerfFileRecord};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

pub(super) const FORMAT: &str = "perf.data";

const NO_EVENTS: Fault = Fault::NoEvents {
    format: FORMAT,
    record: "perf sched record has them",
};

/// Header size of a perf.data that was written to a pipe.
const PIPE_HEADER: u64 = 16;

/// Number of the feature section that describes the events (`HEADER_EVENT_DESC`).
const EVENT_DESC: usize = 12;

/// `PERF_RECORD_AUXTRACE`.
const AUX_TRACE: u32 = 71;

/// `PERF_RECORD_LOST_SAMPLES`.
const LOST_SAMPLES: u32 = 13;

/// How to convert an unsupported file.
const CONVERT: &str = "run: perf script --ns --show-lost-events \
                       -F comm,pid,tid,cpu,time,event,trace -i FILE > trace.txt";

/// How to get the names of functions; perf finds the kernel's symbols only on the machine where it
/// recorded.
const NAME_FUNCTIONS: &str = "where perf recorded, as root, run: perf script --ns \
                              --show-lost-events -F comm,pid,tid,cpu,time,event,trace -i FILE > \
                              trace.txt";

/// Prefix of the name of the kernel's mapping. It is followed by a symbol, whose address is the
/// mapping's offset.
const KERNEL: &str = "[kernel.kallsyms]";

/// Reads a whole trace. Records that are not needed are never passed to the library.
pub(super) fn read(mut file: impl Read + Seek, limits: ReadOptions) -> Result<Trace, Fault> {
    check_sections(&mut file)?;
    let PerfFileReader {
        mut perf_file,
        mut record_iter,
    } = PerfFileReader::parse_file(file).map_err(fault)?;
    let tracing = perf_file
        .feature_section_data(Feature::TRACING_DATA)
        .ok_or(NO_EVENTS)?;
    let mut description = TracingData::default();
    let mut reader = ByteReader::new(Cursor::new(tracing), FORMAT);
    opening(&mut reader)?;
    description.read(&mut reader)?;

    let mut trace = Trace::new("perf");
    trace.claims.skips_some = true;
    if let Ok(Some(release)) = perf_file.os_release() {
        trace.kernel = release.into();
    }
    let mut decoder = Decoder::new(&description.formats);
    let mut start = None;
    while let Some(record) = record_iter.next_record(&mut perf_file).map_err(fault)? {
        if let PerfFileRecord::EventRecord { record, .. } = record {
            start = start.or_else(|| kernel_start(&record));
            event(&mut trace, &mut decoder, &record)?;
            limits.check(&trace)?;
        }
    }
    if trace.events.is_empty() {
        return Err(NO_EVENTS);
    }
    trace.sort();
    if let Ok(Some(cpus)) = perf_file.nr_cpus() {
        let recorded = recorded_cpus(perf_file.event_attributes());
        let online = cpus.nr_cpus_online.min(CPUS);
        trace.claims.cpus.extend(0..online);
        if recorded > 0 && recorded < online as usize {
            not_recorded(&mut trace);
        }
    }
    let mut attributes = perf_file.event_attributes().iter();
    if attributes.any(|event| event.attr.flags.contains(AttrFlags::WRITE_BACKWARD)) {
        // With perf record --overwrite, each CPU has only its latest events.
        trace.begin_whole(0, |_| true);
    }
    let mut stored = description.kallsyms.as_slice();
    let mut running = running_kernel(start, &trace.kernel);
    let kallsyms: &mut dyn BufRead = match &mut running {
        Some(running) if stored.is_empty() => running,
        _ => &mut stored,
    };
    decoder.finish(&mut trace, kallsyms, NAME_FUNCTIONS);
    threads::name_threads(&mut trace);
    Ok(trace)
}

/// Number of CPUs whose switches were recorded.
fn recorded_cpus(events: &[AttributeDescription]) -> usize {
    let is_switch = |event: &&AttributeDescription| {
        let name = event.name.as_deref();
        name.is_some_and(|name| name.ends_with("sched_switch"))
    };
    events
        .iter()
        .find(is_switch)
        .map_or(0, |event| event.event_ids.len())
}

/// Notes the online CPUs that are missing from the file because of `perf record -C`.
fn not_recorded(trace: &mut Trace) {
    let seen: BTreeSet<u32> = trace.events.iter().map(|event| event.cpu).collect();
    for cpu in trace.claims.cpus.difference(&seen) {
        trace.claims.losses.push(Loss {
            cpu: Some(*cpu),
            until_ns: u64::MAX,
            reason: "it was not recorded (perf record -C)",
        });
    }
}

/// A symbol at the kernel's start and its address, if the record is of a kind that has them: MMAP,
/// or MMAP2 if perf records build IDs (6.19 and later).
fn kernel_start(record: &RawEventRecord<'_>) -> Option<(String, u64)> {
    if ![RecordType::MMAP, RecordType::MMAP2].contains(&record.record_type) {
        return None;
    }
    let (path, offset) = match record.parse().ok()? {
        EventRecord::Mmap(map) => (map.path, map.page_offset),
        EventRecord::Mmap2(map) => (map.path, map.page_offset),
        _ => return None,
    };
    let path = path.as_slice();
    let symbol = std::str::from_utf8(&path).ok()?.strip_prefix(KERNEL)?;
    Some((symbol.into(), offset))
}

/// The symbols of the running kernel, if it is the one that was recorded and has not been rebooted
/// since: a reboot may move them.
fn running_kernel(start: Option<(String, u64)>, release: &str) -> Option<BufReader<File>> {
    let (symbol, recorded) = start?;
    if rustix::system::uname().release().to_bytes() != release.as_bytes() {
        return None;
    }
    let symbols = || Some(BufReader::new(File::open("/proc/kallsyms").ok()?));
    let here = symbols()?.lines().map_while(Result::ok).find_map(|line| {
        let mut words = line.split(' ');
        let (address, name) = (words.next()?, words.nth(1)?);
        (name == symbol).then(|| u64::from_str_radix(address, 16).ok())
    });
    // Hidden addresses are all 0.
    let same = here.flatten().filter(|here| *here > 0) == Some(recorded);
    same.then(symbols).flatten()
}

/// Notes lost events: they are missing before the record that counts them, and after the previous
/// event of its CPU. A record that perf itself writes at the end has no time, and may concern any
/// CPU.
fn lose(trace: &mut Trace, record: &RawEventRecord<'_>, lost: u64) {
    let place = record.common_data().ok();
    let cpu = place.as_ref().and_then(|place| place.cpu);
    let time = place
        .and_then(|place| place.timestamp)
        .filter(|time| *time > 0);
    match time {
        _ if lost == 0 => {}
        Some(time_ns) => trace.lose_before(lost, cpu, time_ns),
        None => trace.lose(lost),
    }
}

fn event(
    trace: &mut Trace,
    decoder: &mut Decoder,
    record: &RawEventRecord<'_>,
) -> Result<(), Fault> {
    if record.record_type == RecordType(LOST_SAMPLES) {
        let lost = record.data.as_slice().first_chunk().copied();
        lose(trace, record, lost.map_or(1, u64::from_le_bytes));
        return Ok(());
    }
    let needed = [RecordType::SAMPLE, RecordType::LOST, RecordType::COMM];
    if !needed.contains(&record.record_type) {
        return Ok(());
    }
    match record.parse() {
        Ok(EventRecord::Sample(sample)) => {
            let (Some(time), Some(raw)) = (sample.timestamp, sample.raw) else {
                return Ok(());
            };
            let cpu = sample.cpu.unwrap_or_default();
            decoder.record(trace, time, cpu, &raw.as_slice());
            Ok(())
        }
        Ok(EventRecord::Lost(lost)) => {
            lose(trace, record, lost.count);
            Ok(())
        }
        Ok(EventRecord::Comm(comm)) => {
            let thread = Thread {
                comm: Comm::new(&comm.name.as_slice()),
                tgid: comm.pid,
                ..Thread::default()
            };
            trace.threads.insert(comm.tid, thread);
            Ok(())
        }
        Ok(_) => Ok(()),
        Err(error) => {
            let reason = format!("an unreadable record: {error}");
            Err(Fault::broken(FORMAT, 0, reason))
        }
    }
}

/// Compares the header's sections with the file size before anything is allocated.
fn check_sections(file: &mut (impl Read + Seek)) -> Result<(), Fault> {
    let size = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut reader = ByteReader::new(&mut *file, FORMAT);
    if &reader.array("the magic")? != b"PERFILE2" {
        return Err(reader.broken(format!("recorded on a big-endian machine; {CONVERT}")));
    }
    if reader.u64("the header")? == PIPE_HEADER {
        return Err(reader.broken(format!("written to a pipe; {CONVERT}")));
    }
    reader.u64("the header")?;
    section(&mut reader, "attributes", size)?;
    let data = section(&mut reader, "data", size)?;
    section(&mut reader, "event types", size)?;
    let bits = reader.array::<32>("the features")?;
    let features = (0..256usize).filter(|bit| bits[bit / 8] & 1 << (bit % 8) != 0);
    if data.end == 0 {
        return Err(
            reader.broken("its data section is empty: perf was killed before it finished the file")
        );
    }
    check_aux_traces(&mut *file, data.clone())?;
    file.seek(SeekFrom::Start(data.end))?;
    let mut reader = ByteReader {
        inner: &mut *file,
        format: FORMAT,
        offset: data.end,
    };
    let (mut event_desc, mut sum, mut last) = (None, 0u64, data.end);
    for feature in features {
        let (offset, length) = (reader.u64("a feature")?, reader.u64("a feature")?);
        sum = sum.saturating_add(length);
        if offset.saturating_add(length) > size || sum > size {
            return Err(reader.broken(format!(
                "a feature of {length} bytes at {offset}, file of {size}"
            )));
        }
        last = last.max(offset.saturating_add(length));
        if feature == EVENT_DESC {
            event_desc = Some((offset, length));
        }
    }
    // perf reads only one recording, and would ignore anything appended to it.
    if last < size {
        return Err(reader.broken(format!(
            "{} bytes follow its end at {last}: recordings were joined; read each of them separately",
            size - last
        )));
    }
    let Some((offset, length)) = event_desc else {
        return Err(reader.broken("it has no event descriptions (EVENT_DESC)"));
    };
    file.seek(SeekFrom::Start(offset))?;
    check_event_desc(
        &mut ByteReader::new(file.by_ref().take(length), FORMAT),
        length,
    )?;
    file.rewind()?;
    Ok(())
}

/// Checks the EVENT_DESC section first, since the library allocates memory according to the counts
/// in it.
fn check_event_desc<R: Read>(reader: &mut ByteReader<R>, length: u64) -> Result<(), Fault> {
    let events = u64::from(reader.u32("the number of events")?);
    let attr = u64::from(reader.u32("the size of an event's attributes")?);
    if events.saturating_mul(attr.saturating_add(8)) > length {
        return Err(reader.broken(format!("{events} events in a section of {length} bytes")));
    }
    for _ in 0..events {
        reader.bytes(attr, "an event's attributes")?;
        let ids = u64::from(reader.u32("the number of an event's ids")?);
        let name = u64::from(reader.u32("an event's name")?);
        reader.bytes(name, "an event's name")?;
        reader.bytes(ids * 8, "an event's ids")?;
    }
    Ok(())
}

/// Checks the lengths of AUX traces, whose bytes follow their record, since the library allocates
/// that much memory. Any other damage is left to the library.
fn check_aux_traces(file: impl Read + Seek, data: Range<u64>) -> Result<(), Fault> {
    const HEADER: u64 = 8;
    let mut file = BufReader::with_capacity(1 << 16, file);
    file.seek(SeekFrom::Start(data.start))?;
    let mut at = data.start;
    while at + HEADER <= data.end {
        let (mut header, mut length) = ([0; HEADER as usize], [0; 8]);
        file.read_exact(&mut header)?;
        let [kind @ .., _, _, low, high] = header;
        let mut body = u64::from(u16::from_le_bytes([low, high])).saturating_sub(HEADER);
        at += HEADER + body;
        if u32::from_le_bytes(kind) == AUX_TRACE && body >= 8 {
            file.read_exact(&mut length)?;
            let length = u64::from_le_bytes(length);
            if at.saturating_add(length) > data.end {
                let reason = format!("an AUX trace of {length} bytes, data until {}", data.end);
                return Err(Fault::broken(FORMAT, at, reason));
            }
            body += length - 8;
            at += length;
        }
        file.seek_relative(body as i64)?;
    }
    Ok(())
}

/// The range of a section; an error if it does not end within the file.
fn section<R: Read>(
    reader: &mut ByteReader<R>,
    name: &str,
    file: u64,
) -> Result<Range<u64>, Fault> {
    let (offset, length) = (reader.u64(name)?, reader.u64(name)?);
    match offset.checked_add(length) {
        Some(end) if end <= file => Ok(offset..end),
        _ => Err(reader.broken(format!(
            "{name} of {length} bytes at {offset}, file of {file}"
        ))),
    }
}

fn fault(error: linux_perf_data::Error) -> Fault {
    Fault::broken(FORMAT, 0, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_are_those_of_the_running_kernel_only_if_it_was_recorded() {
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        let text = symbols.lines().find(|line| line.ends_with(" _text"));
        let address = text.and_then(|line| u64::from_str_radix(line.split(' ').next()?, 16).ok());
        let Some(address) = address.filter(|address| *address > 0) else {
            println!("skipped: the kernel hides its symbols");
            return;
        };
        let release = rustix::system::uname();
        let release = release.release().to_str().unwrap();
        let at = |address| Some(("_text".to_owned(), address));
        assert!(running_kernel(at(address), release).is_some());
        assert!(
            running_kernel(at(address + 4096), release).is_none(),
            "booted since"
        );
        assert!(running_kernel(at(address), "5.4.0-other").is_none());
        assert!(running_kernel(None, release).is_none());
    }
}
