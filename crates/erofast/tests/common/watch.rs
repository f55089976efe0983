//! Programs that must end, with bounded memory.

use std::time::{Duration, Instant};

/// Longer than any run takes on any machine; an unbounded walk would never end.
pub const PATIENCE: Duration = Duration::from_secs(300);
/// Limit on the memory that a tool may use, whatever the image claims.
pub const MEMORY_KIB: u64 = 256 << 10;

/// Waits for a child, and returns its peak resident size in KiB.
pub fn watch(mut child: std::process::Child) -> (u64, std::process::Output) {
    let status = format!("/proc/{}/status", child.id());
    let start = Instant::now();
    let mut peak = 0;
    while child.try_wait().expect("our child").is_none() {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let size = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        peak = peak.max(size.unwrap_or(0));
        if start.elapsed() > PATIENCE {
            child.kill().expect("our child");
            panic!("no end after {PATIENCE:?}");
        }
        // The kernel records the peak, so checking seldom loses nothing.
        let pause = start.elapsed() / 20;
        std::thread::sleep(pause.clamp(Duration::from_millis(1), Duration::from_millis(50)));
    }
    (peak, child.wait_with_output().expect("our child"))
}
