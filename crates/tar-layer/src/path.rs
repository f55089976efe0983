//! Names in archives, confined to the layer.

/// The longest name of a file in bytes.
pub(crate) const LONGEST_NAME: usize = 255;
/// The longest path in bytes, as in Linux, without the terminating NUL.
pub(crate) const LONGEST_PATH: usize = 4095;

/// The components of a path, from which `a/..`, `.` and `//` are removed lexically, as in
/// containerd. A path that leads above the root stays at the root.
pub(crate) fn clean(path: &[u8]) -> Vec<&[u8]> {
    let mut components: Vec<&[u8]> = Vec::new();
    for component in split(path) {
        match component {
            b".." => drop(components.pop()),
            name => components.push(name),
        }
    }
    components
}

/// The components of a path, without empty ones and `.`.
pub(crate) fn split(path: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let components = path.split(|byte| *byte == b'/');
    components.filter(|component| !matches!(*component, b"" | b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_path_leads_out_of_the_layer() {
        for (path, expected) in [
            ("a/b", "a/b"),
            ("./a//b/", "a/b"),
            ("/etc/x", "etc/x"),
            ("../../x", "x"),
            ("a/../../../b", "b"),
            ("a/./../b/..", ""),
            ("", ""),
            (".", ""),
            ("...", "..."),
        ] {
            let found = clean(path.as_bytes()).join(&b'/');
            assert_eq!(found, expected.as_bytes(), "{path}");
        }
    }
}
