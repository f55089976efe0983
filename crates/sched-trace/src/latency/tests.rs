//! Promises of the analysis, on traces with known answers.
