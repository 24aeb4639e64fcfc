//! Errors of sockets that the system does not report.

use std::io;

/// What an error holds that says that its socket was closed by the program itself, from another goroutine: by `close`.
///
/// ```
/// use std::net::Ipv4Addr;
///
/// rt::run(|| {
///     let listener = rt::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
///     let server = listener.try_clone().unwrap();
///     let server = rt::go(move || server.accept().map(|_| ()).unwrap_err());
///     listener.close().unwrap();
///     assert!(rt::net::Closed::is(&server.join().unwrap()));
/// });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Closed;

impl Closed {
    /// Whether this is why `error` came about.
    pub fn is(error: &io::Error) -> bool {
        error.get_ref().is_some_and(|e| e.is::<Closed>())
    }
}

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the socket was closed by this program")
    }
}

impl std::error::Error for Closed {}

#[cold]
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, Closed)
}

#[cold]
pub(crate) fn deadline_passed() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the deadline has passed")
}

/// What the system says when a time-out that it was told itself is over, and for a socket that is not to be waited for.
#[cold]
pub(crate) fn would_block() -> io::Error {
    io::Error::from_raw_os_error(libc::EAGAIN)
}

#[cold]
pub(crate) fn invalid_timeout() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "cannot set a 0 duration timeout")
}

#[cold]
pub(crate) fn connect_timed_out() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "connection timed out")
}
