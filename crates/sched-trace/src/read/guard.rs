//! Turns a panic of a library into an error.
//!
//! linux-perf-data, ruzstd and miniz_oxide parse untrusted files. If one of their assertions fails
//! on a damaged file, the program must not end, and the library's message must not be printed.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

thread_local! {
    /// Whether this thread is parsing a file.
    static PARSING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `parse`; `None` if `parse` panicked, which prints no message on standard error.
pub(super) fn without_panic<T>(parse: impl FnOnce() -> T) -> Option<T> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !PARSING.get() {
                usual(info);
            }
        }));
    });
    PARSING.set(true);
    let parsed = panic::catch_unwind(AssertUnwindSafe(parse));
    PARSING.set(false);
    parsed.ok()
}

#[cfg(test)]
mod tests {
    use super::without_panic;

    #[test]
    fn a_panic_becomes_nothing_and_later_ones_are_unaffected() {
        assert_eq!(without_panic(|| -> u32 { panic!("a library's") }), None);
        assert_eq!(without_panic(|| 7), Some(7));
        assert!(std::panic::catch_unwind(|| panic!("shown")).is_err());
    }
}
