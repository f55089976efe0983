//! Work items: from queued to executed.
