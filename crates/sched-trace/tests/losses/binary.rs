//! trace.dat, perf.data and Perfetto's format: the tools' own files, from which pages, records and
//! bundles are removed.

use super::{Case, fixture};

fn case(what: String, bytes: Vec<u8>, whole: &[u8]) -> Case {
    Case {
        what,
        bytes,
        whole: vec![whole.to_vec()],
        is_whole: false,
    }
}

fn whole(name: &str, bytes: &[u8]) -> Case {
    Case {
        is_whole: true,
        ..case(format!("{name}: whole"), bytes.to_vec(), bytes)
    }
}

fn joined(name: &str, bytes: &[u8]) -> Case {
    case(
        format!("{name}: joined with itself"),
        [bytes, bytes].concat(),
        bytes,
    )
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: u64) {
    bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
}

/// Version 6 of trace.dat: the positions and sizes of the CPUs' pages follow "flyrecord".
pub fn trace_dat() -> Vec<Case> {
    const PAGE: u64 = 4096;
    let name = "trace-cmd-v6.dat";
    let bytes = fixture(name);
    let head = bytes
        .windows(10)
        .position(|word| word == b"flyrecord\0")
        .unwrap()
        + 10;
    let mut cases = vec![whole(name, &bytes), joined(name, &bytes)];
    for cpu in 0..2usize {
        let (place, size) = (head + cpu * 16, head + cpu * 16 + 8);
        let mut out = bytes.clone();
        put(&mut out, size, 0);
        cases.push(case(format!("{name}: CPU {cpu} left out"), out, &bytes));
        let (begin, pages) = (word(&bytes, place) as usize, word(&bytes, size) / PAGE);
        for page in 0..pages {
            let mut out = bytes.clone();
            let at = begin + (page * PAGE) as usize;
            let end = begin + (pages * PAGE) as usize;
            out.copy_within(at + PAGE as usize..end, at);
            put(&mut out, size, (pages - 1) * PAGE);
            cases.push(case(format!("{name}: CPU {cpu}, page {page}"), out, &bytes));
        }
    }
    cases
}

/// Type of the empty record that ends a round of reading the buffers.
const FINISHED_ROUND: u64 = 68;
const SAMPLE: u32 = 9;

/// Samples of perf.data: position, size, time, CPU. After its header, a sample has its ID, address,
/// thread, time, and (after these, for events of tracepoints) the CPU.
fn samples(bytes: &[u8]) -> Vec<(usize, usize, u64, u32)> {
    let (mut at, size) = (word(bytes, 40) as usize, word(bytes, 48) as usize);
    let (end, mut found) = (at + size, Vec::new());
    while at < end {
        let kind = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let size = usize::from(u16::from_le_bytes(
            bytes[at + 6..at + 8].try_into().unwrap(),
        ));
        if kind == SAMPLE {
            let cpu = u32::from_le_bytes(bytes[at + 40..at + 44].try_into().unwrap());
            found.push((at, size, word(bytes, at + 32), cpu));
        }
        at += size;
    }
    found
}

/// perf.data from perf 6.1 and from perf 7.2.
pub fn perf_data(name: &str) -> Vec<Case> {
    let bytes = fixture(name);
    let samples = samples(&bytes);
    let times = || samples.iter().map(|(_, _, time, _)| *time);
    let (first, last) = (times().min().unwrap(), times().max().unwrap());
    let mut cases = vec![whole(name, &bytes), joined(name, &bytes)];
    for cpu in 0..2 {
        for third in 0..4 {
            let at = |third: u64| first + (last - first) * third / 3;
            let gone =
                |time: u64| third == 3 || time >= at(third) && time < at(third + 1) + third / 2;
            let mut out = bytes.clone();
            for &(place, size, ..) in samples.iter().filter(|s| s.3 == cpu && gone(s.2)) {
                for part in (place..place + size).step_by(8) {
                    put(&mut out, part, FINISHED_ROUND | 8 << 48);
                }
            }
            let what = if third == 3 {
                "left out".into()
            } else {
                format!("third {third}")
            };
            cases.push(case(format!("{name}: CPU {cpu}, {what}"), out, &bytes));
        }
    }
    cases
}

/// Packets of a Perfetto trace: the bytes of each, and the CPU if it is a bundle of events.
fn packets(bytes: &[u8]) -> Vec<(&[u8], Option<u32>)> {
    fn number(bytes: &[u8], at: &mut usize) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = bytes[*at];
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
        }
        value
    }
    /// The first value of a field: a number, or the range of its bytes.
    fn field(bytes: &[u8], wanted: u64) -> Option<(u64, std::ops::Range<usize>)> {
        let mut at = 0;
        while at < bytes.len() {
            let key = number(bytes, &mut at);
            let (value, length) = match key & 7 {
                0 => (number(bytes, &mut at), 0),
                2 => (0, number(bytes, &mut at) as usize),
                wire => (0, if wire == 1 { 8 } else { 4 }),
            };
            if key >> 3 == wanted {
                return Some((value, at..at + length));
            }
            at += length;
        }
        None
    }
    let (mut at, mut found) = (0, Vec::new());
    while at < bytes.len() {
        let begin = at;
        number(bytes, &mut at);
        let length = number(bytes, &mut at) as usize;
        let packet = &bytes[at..at + length];
        at += length;
        let bundle = field(packet, 1).map(|(_, range)| &packet[range]);
        let cpu = bundle.map(|bundle| field(bundle, 1).map_or(0, |(cpu, _)| cpu as u32));
        found.push((&bytes[begin..at], cpu));
    }
    found
}

/// A Perfetto trace with each bundle removed in turn, and with all bundles of one CPU removed.
pub fn perfetto(name: &str, bytes: &[u8]) -> Vec<Case> {
    let packets = packets(bytes);
    let without = |gone: &dyn Fn(usize, Option<u32>) -> bool| -> Vec<u8> {
        let kept = packets
            .iter()
            .enumerate()
            .filter(|(at, (_, cpu))| !gone(*at, *cpu));
        kept.flat_map(|(_, (packet, _))| packet.to_vec()).collect()
    };
    let mut cases = vec![whole(name, bytes), joined(name, bytes)];
    for cpu in 0..2 {
        let out = without(&|_, of| of == Some(cpu));
        cases.push(case(format!("{name}: CPU {cpu} left out"), out, bytes));
        let own: Vec<usize> = (0..packets.len())
            .filter(|at| packets[*at].1 == Some(cpu))
            .collect();
        for third in 0..3 {
            let gone = &own[own.len() * third / 3..own.len() * (third + 1) / 3];
            let out = without(&|at, _| gone.contains(&at));
            cases.push(case(
                format!("{name}: CPU {cpu}, third {third}"),
                out,
                bytes,
            ));
        }
        for page in own {
            let out = without(&|at, _| at == page);
            cases.push(case(
                format!("{name}: CPU {cpu}, bundle {page}"),
                out,
                bytes,
            ));
        }
    }
    cases
}
