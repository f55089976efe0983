//! Turns errors and panics into a negative errno, and keeps a message for the calling thread.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use erofs_engine::{Error, errno};

/// The extended attribute does not exist.
pub const ENODATA: i32 = 61;
/// The result does not fit in the buffer.
pub const ERANGE: i32 = 34;

/// Why a call failed.
#[derive(Debug)]
pub struct Failure {
    pub errno: i32,
    pub text: String,
}

impl Failure {
    pub fn new(errno: i32, text: impl Into<String>) -> Self {
        let text = text.into();
        Self { errno, text }
    }

    /// Reports an invalid argument.
    pub fn argument(text: impl Into<String>) -> Self {
        Self::new(errno::EINVAL, text)
    }

    fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("unknown");
        Self::new(errno::EIO, format!("internal error of liberofast: {text}"))
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::new(error.errno(), error.to_string())
    }
}

thread_local! {
    static LAST: RefCell<CString> = RefCell::default();
}

/// Runs a call and returns its result, or the negative errno of its failure. No panic escapes.
pub fn call(work: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    let outcome = catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|panic| Err(Failure::panicked(&*panic)));
    outcome.unwrap_or_else(|failure| {
        remember(&failure.text);
        -i64::from(failure.errno)
    })
}

fn remember(text: &str) {
    let text = CString::new(text.replace('\0', "\\0")).unwrap_or_default();
    // While a thread is ending, its thread-local storage may already be destroyed.
    let _ = LAST.try_with(|last| *last.borrow_mut() = text);
}

/// The text of this thread's last failure, which stays valid until the next one.
pub fn last() -> *const c_char {
    const NONE: &CStr = c"";
    let text = LAST.try_with(|last| last.borrow().as_ptr());
    text.unwrap_or(NONE.as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text() -> String {
        LAST.with_borrow(|last| last.to_string_lossy().into_owned())
    }

    #[test]
    fn a_panic_is_an_error_with_its_text() {
        assert_eq!(call(|| panic!("on {}", "purpose")), -5);
        assert_eq!(text(), "internal error of liberofast: on purpose");
        assert_eq!(call(|| panic!("again")), -5);
        assert_eq!(text(), "internal error of liberofast: again");
    }

    #[test]
    fn a_failure_is_its_errno_and_stays_after_a_success() {
        assert_eq!(call(|| Err(Failure::argument("a\0b"))), -22);
        assert_eq!(call(|| Ok(7)), 7);
        assert_eq!(text(), "a\\0b");
    }
}
