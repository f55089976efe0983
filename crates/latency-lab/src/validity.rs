//! The lines that say whether the figures of a table may be relied on. They stand above the table,
//! so that they are quoted with it.

/// "valid", or one line for each reason.
pub(crate) fn lines(reasons: &[String]) -> String {
    match reasons {
        [] => "valid\n".into(),
        reasons => reasons
            .iter()
            .map(|reason| format!("NOT VALID: {reason}\n"))
            .collect(),
    }
}
