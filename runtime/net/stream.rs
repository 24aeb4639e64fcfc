//! What streams do, whatever they run over: a system call that does not block, and again after a wait.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;

use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags};

use crate::net::handle::{Direction, Handle};

/// The call is not to block, whatever the socket's mode is: somebody else may have changed that.
const RECV: RecvFlags = RecvFlags::DONTWAIT;
/// As above; and a peer that is gone is an error, not a signal.
#[cfg(not(target_vendor = "apple"))]
const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
/// As above. (Here std turns the signal off when it makes the socket.)
#[cfg(target_vendor = "apple")]
const SEND: SendFlags = SendFlags::DONTWAIT;

impl Handle {
    #[inline]
    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        let of = buf.len();
        if of == 0 {
            return self.nothing_to_do(Direction::Read);
        }
        let attempt = |fd: BorrowedFd<'_>| Ok(rustix::net::recv(fd, &mut *buf, RECV)?.0);
        self.run(Direction::Read, attempt, |n| *n < of)
    }

    pub(crate) fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.run_simply(Direction::Read, |fd| Ok(rustix::net::recv(fd, &mut *buf, RECV | RecvFlags::PEEK)?.0))
    }

    pub(crate) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        // As std: what does not fit into one call is left for the next.
        let most = bufs.len().min(IOV_MAX);
        let bufs = &mut bufs[..most];
        let of = bufs.iter().fold(0usize, |n, b| n.saturating_add(b.len()));
        if of == 0 {
            return self.nothing_to_do(Direction::Read);
        }
        let attempt =
            |fd: BorrowedFd<'_>| Ok(rustix::net::recvmsg(fd, bufs, &mut RecvAncillaryBuffer::default(), RECV)?.bytes);
        self.run(Direction::Read, attempt, |n| *n < of)
    }

    #[inline]
    pub(crate) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            // There is always room for nothing, but there may be an error.
            return self.try_now(Direction::Write, || Ok(rustix::net::send(self.fd(), buf, SEND)?));
        }
        // A short write has filled the buffer, and the kernel will tell when there is room again.
        self.run(Direction::Write, |fd| Ok(rustix::net::send(fd, buf, SEND)?), |n| *n < buf.len())
    }

    pub(crate) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let bufs = &bufs[..bufs.len().min(IOV_MAX)];
        if bufs.iter().all(|b| b.is_empty()) {
            return self.nothing_to_do(Direction::Write);
        }
        let of = bufs.iter().fold(0usize, |n, b| n.saturating_add(b.len()));
        let attempt =
            |fd: BorrowedFd<'_>| Ok(rustix::net::sendmsg(fd, bufs, &mut SendAncillaryBuffer::default(), SEND)?);
        self.run(Direction::Write, attempt, |n| *n < of)
    }
}

/// Buffers that one call takes.
const IOV_MAX: usize = 1024;
