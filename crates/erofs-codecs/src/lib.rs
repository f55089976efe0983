//! LZ4, MicroLZMA, DEFLATE and Zstandard behind one decoder table
#![forbid(unsafe_code)]
