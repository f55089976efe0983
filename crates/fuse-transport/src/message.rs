//! Sends a reply or a notification to the kernel with one write to the device.

use std::io;
use std::os::fd::AsFd;

use rustix::io::{Errno, IoSlice};
use zerocopy::IntoBytes;

use crate::wire::OutHeader;

/// Sends a header and the two parts of a body. `unique` is the number of the request, or 0 for a
/// notification; `error` is 0, a negative error number, or the code of the notification.
pub(crate) fn send(
    device: impl AsFd,
    unique: u64,
    error: i32,
    body: [&[u8]; 2],
) -> Result<(), Errno> {
    let header = OutHeader {
        len: (size_of::<OutHeader>() + body[0].len() + body[1].len()) as u32,
        error,
        unique,
    };
    let slices = [header.as_bytes(), body[0], body[1]].map(IoSlice::new);
    rustix::io::retry_on_intr(|| rustix::io::writev(&device, &slices)).map(drop)
}

/// Sends a notification, which the kernel does not answer.
pub(crate) fn notify(device: impl AsFd, code: i32, body: [&[u8]; 2]) -> io::Result<()> {
    Ok(send(device, 0, code, body)?)
}
