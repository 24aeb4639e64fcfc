//! Unix domain sockets.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::net::handle::{Behaviour, Direction, Handle};
use crate::net::sys;
use crate::net::tcp::accepted;

/// A connection over a Unix socket: std's `UnixStream`, except that it blocks the goroutine and not the thread.
///
/// ```
/// use std::io::{Read, Write};
///
/// rt::run(|| -> std::io::Result<()> {
///     let (mut near, mut far) = rt::net::UnixStream::pair()?;
///     rt::go(move || near.write_all(b"hello"));
///     let mut text = String::new();
///     far.read_to_string(&mut text)?;
///     assert_eq!(text, "hello");
///     Ok(())
/// }).unwrap();
/// ```
pub struct UnixStream {
    handle: Handle,
}

socket!(UnixStream, std::os::unix::net::UnixStream, |_: &OwnedFd| Behaviour::Local);
both_limits!(UnixStream);
stream!(UnixStream);

impl UnixStream {
    /// Connects to the socket at `path`. If its queue is full this waits, as a declared blocking call.
    ///
    /// # Errors
    ///
    /// The system's, such as `NotFound` and `ConnectionRefused`.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<UnixStream> {
        let path = path.as_ref();
        let std = match sys::connect_unix(path) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                crate::blocking(|| std::os::unix::net::UnixStream::connect(path))?
            }
            other => other?,
        };
        Ok(UnixStream { handle: accepted(std.into(), Behaviour::Local)? })
    }

    /// Connects to a socket by its address, which may be an abstract name. A declared blocking call.
    ///
    /// # Errors
    ///
    /// As [`UnixStream::connect`].
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        let std = crate::blocking(|| std::os::unix::net::UnixStream::connect_addr(addr))?;
        Ok(UnixStream { handle: accepted(std.into(), Behaviour::Local)? })
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// When the system has no descriptors.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        let (a, b) = std::os::unix::net::UnixStream::pair()?;
        Ok((
            UnixStream { handle: accepted(a.into(), Behaviour::Local)? },
            UnixStream { handle: accepted(b.into(), Behaviour::Local)? },
        ))
    }

    /// The other end's address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.ask(|s| s.peer_addr())
    }

    /// This end's address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.ask(|s| s.local_addr())
    }

    /// Shuts down one direction or both, for all handles; whoever waits here for the direction is woken.
    ///
    /// # Errors
    ///
    /// `NotConnected` when the connection is gone.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.handle.shutdown(how)
    }

    /// Reads without taking: the next read gives the same bytes. Waits for them if there are none.
    ///
    /// # Errors
    ///
    /// As for reading.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.peek(buf)
    }
}

/// A Unix socket that accepts connections: std's `UnixListener`, except that it blocks the goroutine and not the thread.
pub struct UnixListener {
    handle: Handle,
}

socket!(UnixListener, std::os::unix::net::UnixListener, |_: &OwnedFd| Behaviour::Local);
limits!(UnixListener, Read, "accepting", set_deadline, set_timeout, timeout);

impl UnixListener {
    /// Makes a socket at `path` and listens there. The file stays when the socket is gone.
    ///
    /// # Errors
    ///
    /// The system's, such as `AddrInUse` when there is something at `path`.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixListener> {
        UnixListener::from_std(std::os::unix::net::UnixListener::bind(path)?)
    }

    /// Makes a socket with an address, which may be an abstract name, and listens there.
    ///
    /// # Errors
    ///
    /// As [`UnixListener::bind`].
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        UnixListener::from_std(std::os::unix::net::UnixListener::bind_addr(addr)?)
    }

    /// Waits for a connection and gives it, with the other end's address.
    ///
    /// # Errors
    ///
    /// The system's. The listener goes on after them: call again.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (std, addr) = self.handle.run_simply(Direction::Read, |_| self.std().accept())?;
        Ok((UnixStream { handle: accepted(std.into(), Behaviour::Local)? }, addr))
    }

    /// Connections as they come, without end.
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// The address it listens at.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.ask(|s| s.local_addr())
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = UnixIncoming<'a>;
    fn into_iter(self) -> UnixIncoming<'a> {
        self.incoming()
    }
}

/// Connections as they come: see [`UnixListener::incoming`].
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;
    fn next(&mut self) -> Option<io::Result<UnixStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for UnixIncoming<'_> {}

/// A Unix socket for datagrams: std's `UnixDatagram`, except that it blocks the goroutine and not the thread.
pub struct UnixDatagram {
    handle: Handle,
}

socket!(UnixDatagram, std::os::unix::net::UnixDatagram, |_: &OwnedFd| Behaviour::Local);
both_limits!(UnixDatagram);

impl UnixDatagram {
    /// Makes a socket at `path`. The file stays when the socket is gone.
    ///
    /// # Errors
    ///
    /// The system's, such as `AddrInUse` when there is something at `path`.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(std::os::unix::net::UnixDatagram::bind(path)?)
    }

    /// Makes a socket with an address, which may be an abstract name.
    ///
    /// # Errors
    ///
    /// As [`UnixDatagram::bind`].
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(std::os::unix::net::UnixDatagram::bind_addr(addr)?)
    }

    /// A socket without an address.
    ///
    /// # Errors
    ///
    /// When the system has no descriptors.
    pub fn unbound() -> io::Result<UnixDatagram> {
        UnixDatagram::from_std(std::os::unix::net::UnixDatagram::unbound()?)
    }

    /// Two sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// When the system has no descriptors.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        let (a, b) = std::os::unix::net::UnixDatagram::pair()?;
        Ok((UnixDatagram::from_std(a)?, UnixDatagram::from_std(b)?))
    }

    /// Sets where [`UnixDatagram::send`] sends to, and what [`UnixDatagram::recv`] takes.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.ask(|s| s.connect(path))
    }

    /// As [`UnixDatagram::connect`], to an address, which may be an abstract name.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.ask(|s| s.connect_addr(addr))
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.ask(|s| s.peer_addr())
    }

    /// This socket's address.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.ask(|s| s.local_addr())
    }

    /// Waits for a datagram; gives its length and where it comes from. What does not fit into `buf` is lost.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let end = || Ok((0, SocketAddr::from_pathname("")?));
        self.handle.run_simply(Direction::Read, |fd| self.or_the_end(fd, || self.std().recv_from(buf), end))
    }

    /// Waits for a datagram. What does not fit into `buf` is lost. After `shutdown` there are 0 bytes.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.run_simply(Direction::Read, |fd| self.or_the_end(fd, || self.std().recv(buf), || Ok(0)))
    }

    /// What `recv` gives, or the end after a shutdown. A receiver that waits in the system is told of that; to one that does not wait
    /// Linux says `WouldBlock` for ever.
    fn or_the_end<T>(
        &self,
        fd: BorrowedFd<'_>,
        mut recv: impl FnMut() -> io::Result<T>,
        end: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let would_block = |result: &io::Result<T>| matches!(result, Err(e) if e.kind() == io::ErrorKind::WouldBlock);
        let first = recv();
        if !would_block(&first) || !self.handle.waits() || !sys::is_shut_down(fd) {
            return first;
        }
        // What came between the two.
        let last = recv();
        if would_block(&last) { end() } else { last }
    }

    /// Sends a datagram to the socket at `path`. While that one's queue is full, tries again every now and then, at most 5 ms apart: of
    /// another socket's queue no poller tells. So that late are time-outs, deadlines and `close` seen meanwhile.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        self.send_patiently(|| self.std().send_to(buf, path))
    }

    /// As [`UnixDatagram::send_to`], to an address, which may be an abstract name.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        self.send_patiently(|| self.std().send_to_addr(buf, addr))
    }

    /// Sends, again and again while there is no room.
    fn send_patiently(&self, attempt: impl Fn() -> io::Result<usize>) -> io::Result<usize> {
        let mut pause = Duration::from_micros(50);
        let mut began = None;
        loop {
            match self.handle.try_now(Direction::Write, &attempt) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && self.handle.waits() => {}
                other => return other,
            }
            let began = *began.get_or_insert_with(Instant::now);
            if self.handle.timeout(Direction::Write).is_some_and(|limit| began.elapsed() >= limit) {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            crate::time::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
    }

    /// Sends a datagram to the peer.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.handle.run_simply(Direction::Write, |_| self.std().send(buf))
    }

    /// Shuts down one direction or both, for all handles; whoever waits here for the direction is woken.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.handle.shutdown(how)
    }
}
