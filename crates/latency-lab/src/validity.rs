//! The lines that say whether the figures of a table may be relied on. They stand above the table,
//! so that they are quoted with it.

/// "valid", or one line for each reason.
pub(crate) fn lines(reasons: &[String]) -> String {
    match reasons {
        [] => "valid\n".into(),
        reasons => faults(reasons),
    }
}

/// One line for each reason.
pub(crate) fn faults(reasons: &[String]) -> String {
    let line = |reason: &String| format!("NOT VALID: {reason}\n");
    reasons.iter().map(line).collect()
}
