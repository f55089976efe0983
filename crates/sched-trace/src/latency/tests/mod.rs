//! Tests of the analysis on traces with known answers.

mod missing;
mod script;
mod waits;
mod work;
