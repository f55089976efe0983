//! FUSE requests in, replies out: /dev/fuse and io_uring, served per CPU
#![forbid(unsafe_code)]
