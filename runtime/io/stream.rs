//! How a call waits on something that may be a pipe, a terminal or a socket, and the wrappers of std's streams.
//!
//! - IO1: std's lock of a standard stream is taken and let go of inside one declared call, which runs on one thread. Nothing of it
//!   lives when the goroutine comes back. So what is read has to be copied into a buffer of ours.
//! - IO2: [`when_ready`] and [`when_watched`] are the only places where such a thing is waited for.

#[cfg(unix)]
use std::os::fd::AsFd;

use crate::io::Result;
use crate::sched::outside::blocking;

/// What a call on a stream waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Way {
    Read,
    Write,
}

/// A stream that can make whoever reads or writes wait for somebody else.
#[cfg(unix)]
pub(crate) trait Stream: AsFd {}
#[cfg(unix)]
impl<T: AsFd> Stream for T {}
#[cfg(not(unix))]
pub(crate) trait Stream {}
#[cfg(not(unix))]
impl<T> Stream for T {}

/// Makes `call`, which reads from a standard stream or writes to it and may have to wait for that (IO2).
///
/// Each is a declared blocking call, which keeps a thread while it waits: std's buffer may hold something while the descriptor is not
/// ready, and the descriptor's mode is shared with other processes.
pub(crate) fn when_ready<S: Stream, T>(stream: S, _way: Way, call: impl FnOnce(S) -> Result<T>) -> Result<T> {
    blocking(|| call(stream))
}

/// As [`when_ready`], for a stream without a buffer: the goroutine waits for it in the poller first, if it can be watched (IO2). If
/// somebody else is faster then, or writes more than there is room for, the call keeps a thread after all.
pub(crate) fn when_watched<S: Stream, T>(stream: S, way: Way, call: impl FnOnce(S) -> Result<T>) -> Result<T> {
    #[cfg(unix)]
    wait_in_poller(stream.as_fd(), way);
    let _ = way;
    blocking(|| call(stream))
}

/// Waits until the descriptor is ready, as far as that can be found out; the call itself reports errors.
#[cfg(unix)]
pub(crate) fn wait_in_poller(fd: std::os::fd::BorrowedFd<'_>, way: Way) {
    use crate::net::handle::{Direction, Watched};
    use crate::net::is_ready;
    let direction = match way {
        Way::Read => Direction::Read,
        Way::Write => Direction::Write,
    };
    // A thread may as well block.
    if crate::stack::header::current_g().is_none() || is_ready(fd, direction) {
        return;
    }
    if let Ok(watched) = Watched::new(fd) {
        let _ = watched.wait(direction);
    }
}

/// Implements `Read` for `$t`, whose one field is std's stream; with `shared`, also for a reference.
macro_rules! read_stream {
    ($t:ty) => {
        impl $crate::io::Read for $t {
            fn read(&mut self, buf: &mut [u8]) -> $crate::io::Result<usize> {
                $crate::io::stream::when_watched(&mut self.0, $crate::io::stream::Way::Read, |std| std.read(buf))
            }

            fn read_vectored(&mut self, bufs: &mut [$crate::io::IoSliceMut<'_>]) -> $crate::io::Result<usize> {
                $crate::io::stream::when_watched(&mut self.0, $crate::io::stream::Way::Read, |std| {
                    std.read_vectored(bufs)
                })
            }
        }
    };
    (shared $t:ty) => {
        $crate::io::read_stream!($t);
        impl $crate::io::Read for &$t {
            fn read(&mut self, buf: &mut [u8]) -> $crate::io::Result<usize> {
                $crate::io::stream::when_watched(&self.0, $crate::io::stream::Way::Read, |mut std| std.read(buf))
            }

            fn read_vectored(&mut self, bufs: &mut [$crate::io::IoSliceMut<'_>]) -> $crate::io::Result<usize> {
                $crate::io::stream::when_watched(&self.0, $crate::io::stream::Way::Read, |mut std| {
                    std.read_vectored(bufs)
                })
            }
        }
    };
}
pub(crate) use read_stream;

/// Implements `Write` for `$t`, whose one field is std's stream, and for a reference.
macro_rules! write_stream {
    ($t:ty) => {
        $crate::io::write_stream!(one: $t);
        $crate::io::write_stream!(one: &$t);
    };
    (one: $t:ty) => {
        impl $crate::io::Write for $t {
            fn write(&mut self, buf: &[u8]) -> $crate::io::Result<usize> {
                $crate::io::stream::when_watched(&self.0, $crate::io::stream::Way::Write, |mut std| std.write(buf))
            }

            fn write_vectored(&mut self, bufs: &[$crate::io::IoSlice<'_>]) -> $crate::io::Result<usize> {
                $crate::io::stream::when_watched(&self.0, $crate::io::stream::Way::Write, |mut std| std.write_vectored(bufs))
            }

            fn flush(&mut self) -> $crate::io::Result<()> {
                $crate::io::stream::when_watched(&self.0, $crate::io::stream::Way::Write, |mut std| std.flush())
            }
        }
    };
}
pub(crate) use write_stream;

/// Implements the conversions between `$t` and std's type, its descriptor, and what std's handles are made of.
macro_rules! fd_of {
    ($t:ident, $std:ty) => {
        impl From<$std> for $t {
            fn from(std: $std) -> $t {
                $t(std)
            }
        }

        impl From<$t> for $std {
            fn from(this: $t) -> $std {
                this.0
            }
        }

        impl From<$t> for std::process::Stdio {
            /// What a [`Command`](crate::process::Command) can be given for a standard stream.
            fn from(this: $t) -> std::process::Stdio {
                this.0.into()
            }
        }

        #[cfg(unix)]
        impl std::os::fd::AsFd for $t {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        #[cfg(unix)]
        impl std::os::fd::AsRawFd for $t {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.0.as_raw_fd()
            }
        }

        #[cfg(unix)]
        impl std::os::fd::IntoRawFd for $t {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                self.0.into_raw_fd()
            }
        }

        #[cfg(unix)]
        impl From<$t> for std::os::fd::OwnedFd {
            fn from(this: $t) -> std::os::fd::OwnedFd {
                this.0.into()
            }
        }

        #[cfg(unix)]
        impl From<std::os::fd::OwnedFd> for $t {
            fn from(fd: std::os::fd::OwnedFd) -> $t {
                $t(fd.into())
            }
        }
    };
}
pub(crate) use fd_of;
