//! Reads of EROFS files: map, fetch, kickoff, decompress, pcluster cache
#![forbid(unsafe_code)]
