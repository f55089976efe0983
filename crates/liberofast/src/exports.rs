//! The functions of `erofast.h`, where they are documented.
//!
//! Each function is unsafe to call, since its pointers must be as the header requires. The comment
//! before each unsafe block states that requirement.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ops::ControlFlow;
use std::ptr;

use crate::failure::{self, Failure, call};
use crate::image::{Image, deliver};
use crate::layout::{ExtentRecord, Stat, dirent_type};
use crate::pointers::{bytes, optional_text, put, reference, text};

/// An entry of a directory, `struct erofast_dirent` in C.
#[repr(C)]
pub struct DirentRecord {
    nid: u64,
    next: u64,
    name: *const c_char,
    name_length: usize,
    file_type: u32,
    padding: u32,
}

/// The callback for entries, `erofast_dirent_fn` in C, or NULL.
type EachEntry = Option<unsafe extern "C" fn(*const DirentRecord, *mut c_void) -> c_int>;

#[unsafe(no_mangle)]
pub extern "C" fn erofast_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[unsafe(no_mangle)]
pub extern "C" fn erofast_error_text() -> *const c_char {
    failure::last()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_open(
    path: *const c_char,
    options: *const c_char,
    image: *mut *mut Image,
) -> c_int {
    call(|| {
        // SAFETY: the header requires memory for a pointer, or NULL.
        unsafe { put(image, ptr::null_mut(), "image") }?;
        // SAFETY: the header requires a C string or NULL.
        let path = unsafe { text(path, "path") }?;
        // SAFETY: the header requires a C string or NULL.
        let opened = Image::open(path, unsafe { optional_text(options) })?;
        // SAFETY: as for the first `put`.
        unsafe { put(image, Box::into_raw(Box::new(opened)), "image") }?;
        Ok(0)
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_open_fd(
    fd: c_int,
    options: *const c_char,
    image: *mut *mut Image,
) -> c_int {
    call(|| {
        // SAFETY: the header requires memory for a pointer, or NULL.
        unsafe { put(image, ptr::null_mut(), "image") }?;
        // SAFETY: the header requires a C string or NULL.
        let opened = Image::open_fd(fd, unsafe { optional_text(options) })?;
        // SAFETY: as for the first `put`.
        unsafe { put(image, Box::into_raw(Box::new(opened)), "image") }?;
        Ok(0)
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_close(image: *mut Image) {
    if image.is_null() {
        return;
    }
    call(|| {
        // SAFETY: the header requires an image that was opened here and is not used again.
        drop(unsafe { Box::from_raw(image) });
        Ok(0)
    });
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_root(image: *const Image) -> u64 {
    // SAFETY: the header requires an open image or NULL.
    unsafe { image.as_ref() }.map_or(0, Image::root)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_lookup(
    image: *const Image,
    path: *const c_char,
    flags: c_uint,
    nid: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let image = unsafe { reference(image, "image") }?;
        // SAFETY: the header requires a C string or NULL.
        let found = image.lookup(unsafe { text(path, "path") }?, flags)?;
        // SAFETY: the header requires memory for a number, or NULL.
        unsafe { put(nid, found, "nid") }.map(|()| 0)
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_lookup_at(
    image: *const Image,
    directory: u64,
    name: *const c_char,
    nid: *mut u64,
) -> c_int {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let image = unsafe { reference(image, "image") }?;
        // SAFETY: the header requires a C string or NULL.
        let found = image.lookup_at(directory, unsafe { text(name, "name") }?)?;
        // SAFETY: the header requires memory for a number, or NULL.
        unsafe { put(nid, found, "nid") }.map(|()| 0)
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_stat(image: *const Image, nid: u64, stat: *mut Stat) -> c_int {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let inode = unsafe { reference(image, "image") }?.inode(nid)?;
        // SAFETY: the header requires memory for the structure, or NULL.
        unsafe { put(stat, Stat::from(&*inode), "stat") }.map(|()| 0)
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_read_at(
    image: *const Image,
    nid: u64,
    buffer: *mut c_void,
    size: usize,
    offset: u64,
) -> i64 {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let image = unsafe { reference(image, "image") }?;
        // SAFETY: the header requires a buffer of `size` bytes, or NULL.
        let buffer = unsafe { bytes(buffer, size) }?;
        Ok(image.read_at(nid, buffer, offset)? as i64)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_readdir(
    image: *const Image,
    nid: u64,
    position: u64,
    each: EachEntry,
    context: *mut c_void,
) -> c_int {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let image = unsafe { reference(image, "image") }?;
        let each = each.ok_or_else(|| Failure::argument("each is NULL"))?;
        let mut answer = 0;
        let mut name = Vec::new();
        let outcome = image.read_dir(nid, position, &mut |entry| {
            name.clear();
            name.extend_from_slice(entry.name);
            name.push(0);
            let record = DirentRecord {
                nid: entry.nid,
                next: entry.next,
                name: name.as_ptr().cast(),
                name_length: entry.name.len(),
                file_type: dirent_type(entry.file_type),
                padding: 0,
            };
            // SAFETY: the header requires a function of this type; the record outlives the call.
            answer = unsafe { each(&record, context) };
            match answer {
                0 => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        });
        match answer {
            0 => outcome.map(|()| 0),
            _ => Ok(answer.into()),
        }
    }) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_readlink(
    image: *const Image,
    nid: u64,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let image = unsafe { reference(image, "image") }?;
        // SAFETY: the header requires a buffer of `size` bytes, or NULL.
        let buffer = unsafe { bytes(buffer.cast(), size) }?;
        deliver(&image.read_link(nid)?, buffer)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_listxattr(
    image: *const Image,
    nid: u64,
    buffer: *mut c_char,
    size: usize,
) -> i64 {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let image = unsafe { reference(image, "image") }?;
        // SAFETY: the header requires a buffer of `size` bytes, or NULL.
        let buffer = unsafe { bytes(buffer.cast(), size) }?;
        deliver(&image.xattr_names(nid)?, buffer)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_getxattr(
    image: *const Image,
    nid: u64,
    name: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let image = unsafe { reference(image, "image") }?;
        // SAFETY: the header requires a C string or NULL.
        let name = unsafe { text(name, "name") }?;
        // SAFETY: the header requires a buffer of `size` bytes, or NULL.
        let buffer = unsafe { bytes(buffer, size) }?;
        deliver(&image.xattr(nid, name)?, buffer)
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn erofast_extent(
    image: *const Image,
    nid: u64,
    offset: u64,
    extent: *mut ExtentRecord,
) -> c_int {
    call(|| {
        // SAFETY: the header requires an open image or NULL.
        let found = unsafe { reference(image, "image") }?.extent(nid, offset)?;
        let Some(found) = found else {
            return Ok(0);
        };
        // SAFETY: the header requires memory for the structure, or NULL.
        unsafe { put(extent, ExtentRecord::from(&found), "extent") }.map(|()| 1)
    }) as c_int
}
