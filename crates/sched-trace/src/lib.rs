//! Record and read scheduler traces: who waited, how long, and behind whom
#![forbid(unsafe_code)]
