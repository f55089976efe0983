//! Turns C pointers into references. NULL is an error; any other pointer must be as the header
//! requires.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_char, c_void};

use crate::failure::Failure;

fn null(what: &str) -> Failure {
    Failure::argument(format!("{what} is NULL"))
}

/// The bytes of a C string.
///
/// # Safety
/// `text` is NULL, or a C string that outlives the call and does not change during it.
pub unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    if text.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller guarantees a C string.
    Ok(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The bytes of a C string; NULL is treated as the empty string.
///
/// # Safety
/// The same requirements as for [`text`].
pub unsafe fn optional_text<'a>(list: *const c_char) -> &'a [u8] {
    // SAFETY: the caller guarantees what `text` requires.
    unsafe { text(list, "") }.unwrap_or_default()
}

/// The value that a pointer refers to.
///
/// # Safety
/// `pointer` is NULL, or points to a `T` that outlives the call and is only read during it.
pub unsafe fn reference<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    // SAFETY: NULL is handled, and the caller guarantees the rest.
    unsafe { pointer.as_ref() }.ok_or_else(|| null(what))
}

/// Writes a result through a pointer.
///
/// # Safety
/// `place` is NULL, or points to aligned memory for a `T` that nothing else uses during the call.
pub unsafe fn put<T>(place: *mut T, value: T, what: &str) -> Result<(), Failure> {
    if place.is_null() {
        return Err(null(what));
    }
    // SAFETY: the caller guarantees memory for the result.
    unsafe { place.write(value) };
    Ok(())
}

/// A buffer that belongs to the caller. Its bytes may be uninitialised in C; they are written,
/// never read.
///
/// # Safety
/// `size` is 0, or `buffer` is NULL or points to `size` writable bytes that nothing else uses
/// during the call.
pub unsafe fn bytes<'a>(buffer: *mut c_void, size: usize) -> Result<&'a mut [u8], Failure> {
    if size == 0 {
        return Ok(&mut []);
    }
    if buffer.is_null() {
        return Err(null("buffer"));
    }
    if isize::try_from(size).is_err() {
        return Err(Failure::argument(format!(
            "a buffer of {size} bytes is too large"
        )));
    }
    // SAFETY: the caller guarantees the bytes, the size is within the limit of a slice, and every
    // bit pattern is a valid u8.
    Ok(unsafe { std::slice::from_raw_parts_mut(buffer.cast(), size) })
}
