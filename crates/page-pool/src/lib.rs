//! A reserved pool of memory pages: request-local list, pool, system
#![forbid(unsafe_code)]
