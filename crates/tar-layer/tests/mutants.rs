//! Damaged archives: each is refused with one line, or rewritten into an archive that a second
//! rewriting does not change.

use tar_core::EntryType;

use crate::layer::{Archive, LIMITS, entry, list, run};

/// Pseudo-random numbers, the same in each run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % limit
    }
}

fn archive() -> Vec<u8> {
    let mut named = entry("d/attributes", EntryType::Regular);
    named.add_pax("SCHILY.xattr.user.a", "1");
    named.add_pax("mtime", "5.25");
    Archive::default()
        .directory("d", 0o755)
        .file("d/file", "content")
        .put(named, b"")
        .file(&"long/".repeat(40), "")
        .link("s", EntryType::Symlink, "d")
        .file("s/below", "x")
        .link("h", EntryType::Link, "d/file")
        .file("d/.wh.gone", "")
        .file("d/.wh..wh..opq", "")
        .file("again", "1")
        .file("again", "2")
        .0
}

/// Corrects the checksum of a header, so that more than the checksum is tested.
fn sign(header: &mut [u8]) {
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
}

#[test]
fn no_damage_is_more_than_one_line() {
    let (good, mut numbers) = (archive(), Numbers(0x9e37_79b9_7f4a_7c15));
    let contents = || tempfile::tempfile().expect("a file");
    let mut rewritten = 0;
    for _ in 0..1000 {
        let mut bad = good.clone();
        for _ in 0..1 + numbers.below(3) {
            let at = numbers.below(bad.len());
            bad[at] = match numbers.below(4) {
                0 => 0,
                1 => b'0' + numbers.below(10) as u8,
                2 => bad[at] ^ (1 << numbers.below(8)),
                _ => b"./x5123gLK\xff"[numbers.below(11)],
            };
            if numbers.below(8) > 0 {
                sign(&mut bad[at / 512 * 512..][..512]);
            }
        }
        match run(&bad, &contents(), LIMITS) {
            Err(error) => assert_eq!(error.to_string().lines().count(), 1, "{error}"),
            Ok(once) => {
                rewritten += 1;
                let twice = run(&once, &contents(), LIMITS).expect("a good archive");
                let stated = list(&once);
                // In a rewritten layer these are ordinary names, but in an archive they are
                // whiteouts.
                if stated
                    .iter()
                    .any(|line| line.contains(" .wh.") || line.contains("/.wh."))
                {
                    continue;
                }
                // Rewriting drops the layer's marks that an archive already contains.
                let stated = stated.iter().map(|line| line.split(" trusted.").next());
                let twice = list(&twice);
                assert!(twice[0].ends_with(" trusted.overlay.erofast.rewritten=y"));
                let twice = twice.iter().skip(1).map(|line| Some(&**line));
                assert!(twice.eq(stated.skip(1)));
            }
        }
    }
    assert!(rewritten > 25, "{rewritten}");
}
