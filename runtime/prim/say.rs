//! Words to the user, on stderr. Unlike `eprintln!` they do not panic when stderr is closed or full: nothing in the runtime may
//! end because nobody listens.

use std::io::Write;

/// Writes a line to stderr, if that works.
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
