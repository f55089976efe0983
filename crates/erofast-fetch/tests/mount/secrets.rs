//! Which processes have which parts of the environment.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt};

use rustix::process::Pid;

use crate::deaths::{Process, pid, replace};
use crate::site::Site;

/// A proxy that is used for no URL of these tests.
pub const PROXY: (&str, &str) = ("https_proxy", "http://me:hidden-of-proxy@127.0.0.1:1");

const PASSWORD: &[u8] = b"hidden-of-proxy";

/// The server reads images, which may be hostile; its successors are forks of the helper.
pub fn the_password_of_a_proxy_is_in_no_server() {
    let site = Site::mounted("restart=on");
    for _ in 0..2 {
        let server = pid(&site, Process::Server);
        assert!(!has(&environment(server)));
        assert_eq!(writable(server).iter().filter(|area| has(area)).count(), 0);
        assert!(has(&environment(pid(&site, Process::Fetcher))));
        replace(&site, Process::Server);
    }
    assert!(has(&environment(pid(&site, Process::Fetcher))));
}

pub fn a_password_that_others_can_read_is_a_notice() {
    for (mode, count) in [(0o600, 0), (0o640, 1)] {
        let site = Site::new();
        let path = site.point().with_file_name("netrc");
        fs::write(&path, "default login me password secret").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        site.mount(&format!("http.netrc_file={}", path.display()))
            .unwrap();
        let notices = site.stat()["notices"].as_array().unwrap().clone();
        let text = |notice: &serde_json::Value| notice.as_str().unwrap_or_default().to_owned();
        let lines = notices
            .iter()
            .map(text)
            .filter(|line| line.contains("chmod 600"));
        let lines: Vec<_> = lines.collect();
        assert_eq!(lines.len(), count, "{lines:?}");
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with(path.to_str().unwrap()))
        );
    }
}

fn has(bytes: &[u8]) -> bool {
    bytes.windows(PASSWORD.len()).any(|part| part == PASSWORD)
}

fn environment(pid: Pid) -> Vec<u8> {
    fs::read(format!("/proc/{}/environ", pid.as_raw_pid())).unwrap()
}

/// The content of the process's writable memory.
fn writable(pid: Pid) -> Vec<Vec<u8>> {
    let path = |name| format!("/proc/{}/{name}", pid.as_raw_pid());
    let maps = fs::read_to_string(path("maps")).unwrap();
    let memory = File::open(path("mem")).unwrap();
    let areas = maps.lines().filter(|line| line.contains(" rw-p "));
    let read = |line: &str| {
        let (start, end) = line.split_once(' ').unwrap().0.split_once('-').unwrap();
        let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut bytes, start).map(|()| bytes).ok()
    };
    let areas: Vec<_> = areas.filter_map(read).collect();
    assert!(areas.len() > 3);
    areas
}
