//! Experiments, load, statistics and reports on scheduling latency
#![forbid(unsafe_code)]
