//! Words to the user, on stderr. Unlike `eprintln!` they do not panic when stderr is closed or full: nothing in the runtime may
//! end because nobody listens. Nor do they take std's lock of stderr, whose holder may be waiting for the scheduler.

/// Writes a line to stderr, if that works.
#[cfg(unix)]
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    let line = format!("{text}\n");
    let mut left = line.as_bytes();
    while !left.is_empty() {
        // SAFETY: the bytes are alive; descriptor 2 is stderr, and if it is closed the call fails.
        let n = unsafe { libc::write(2, left.as_ptr().cast(), left.len()) };
        match usize::try_from(n) {
            Ok(0) => return,
            Ok(n) => left = &left[n..],
            Err(_) if std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Writes a line to stderr, if that works.
#[cfg(not(unix))]
pub(crate) fn say(text: std::fmt::Arguments<'_>) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}
