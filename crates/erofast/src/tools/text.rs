//! Image data as text: names, modes, times, sizes.

use erofs_engine::erofs_format::{FileType, Inode};

pub use erofs_mount::text::{line, name, time};

/// Type and permissions as `ls -l` shows them.
pub fn mode(inode: &Inode) -> String {
    let kind = match inode.file_type() {
        FileType::Regular => "-",
        other => type_letter(other),
    };
    format!("{kind}{}", permissions(inode.mode))
}

/// Formats permissions like `rwxr-xr-x`.
pub fn permissions(mode: u16) -> String {
    let mut text = String::new();
    // A special bit replaces the x of its class.
    for (shift, special, set) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => set,
            (true, false) => set.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    text
}

/// Converts seconds since 1970 to local time (TZ).
pub fn local(seconds: i64) -> i64 {
    seconds.saturating_add(sys::clock::utc_offset(seconds))
}

/// `Tue Nov 14 22:13:20 2023`, as C's ctime formats seconds since 1970.
pub fn ctime(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let text = time(seconds);
    let (date, clock) = text.split_once(' ').unwrap_or_default();
    let mut parts = date.rsplitn(3, '-');
    let mut number = || parts.next().unwrap_or_default();
    let (day, month, year) = (number(), number(), number());
    let month = month
        .parse()
        .map_or("", |month: usize| MONTHS[(month + 11) % 12]);
    let weekday = DAYS[seconds.div_euclid(86_400).rem_euclid(7) as usize];
    format!(
        "{weekday} {month} {:>2} {clock} {year}",
        day.trim_start_matches('0')
    )
}

/// Whether a report leaves out a count.
pub fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The letter for a file type, as in manifests: f d l c b p s.
pub fn type_letter(file_type: FileType) -> &'static str {
    match file_type {
        FileType::Regular => "f",
        FileType::Directory => "d",
        FileType::Symlink => "l",
        FileType::CharDevice => "c",
        FileType::BlockDevice => "b",
        FileType::Fifo => "p",
        FileType::Socket => "s",
    }
}
