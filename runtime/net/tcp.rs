//! TCP.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::mem::ManuallyDrop;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::net::addr::{ToSocketAddrs, each_addr};
use crate::net::error::{connect_timed_out, invalid_timeout};
use crate::net::handle::{Behaviour, Direction, Handle};
use crate::net::sys::{self, Connecting};

/// A TCP connection: std's `TcpStream`, except that it blocks the goroutine and not the thread.
///
/// Dropping the last handle closes the connection.
///
/// ```no_run
/// use std::io::{Read, Write};
///
/// rt::run(|| -> std::io::Result<()> {
///     let mut stream = rt::net::TcpStream::connect("example.com:80")?;
///     stream.write_all(b"HEAD / HTTP/1.0\r\nHost: example.com\r\n\r\n")?;
///     let mut head = String::new();
///     stream.read_to_string(&mut head)?;
///     println!("{head}");
///     Ok(())
/// }).unwrap();
/// ```
pub struct TcpStream {
    handle: Handle,
}

socket!(TcpStream, std::net::TcpStream, sys::behaviour_of_tcp);
both_limits!(TcpStream);
stream!(TcpStream);

impl TcpStream {
    /// Connects. If there are several addresses they are tried one after the other.
    ///
    /// # Errors
    ///
    /// The last attempt's, such as `ConnectionRefused`; the resolver's; `InvalidInput` if there is no address at all.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<TcpStream> {
        each_addr(addr, |addr| TcpStream::connect_until(addr, None))
    }

    /// Connects to one address, and gives up after `timeout`.
    ///
    /// # Errors
    ///
    /// `TimedOut` when the time is over; `InvalidInput` for a time-out of zero; what the system says.
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        if timeout.is_zero() {
            return Err(invalid_timeout());
        }
        TcpStream::connect_until(addr, Instant::now().checked_add(timeout))
    }

    /// Connects to one address, and gives up at `deadline`.
    ///
    /// # Errors
    ///
    /// `TimedOut` when the time has come; what the system says.
    pub fn connect_deadline(addr: &SocketAddr, deadline: Instant) -> io::Result<TcpStream> {
        TcpStream::connect_until(addr, Some(deadline))
    }

    fn connect_until(addr: &SocketAddr, deadline: Option<Instant>) -> io::Result<TcpStream> {
        let begun = match sys::connect_tcp(addr)? {
            Connecting::Done(fd) => return Ok(TcpStream { handle: Handle::own(fd, Behaviour::TCP)? }),
            Connecting::Begun(fd) => Handle::own(fd, Behaviour::TCP)?,
        };
        begun.set_deadline(Direction::Write, deadline);
        // The first try comes before any wait: on the machine itself the connection is there already.
        let connected = begun.run_simply(Direction::Write, sys::connected);
        begun.set_deadline(Direction::Write, None);
        match connected {
            Ok(()) => Ok(TcpStream { handle: begun }),
            Err(e) if e.kind() == io::ErrorKind::TimedOut && e.raw_os_error().is_none() => Err(connect_timed_out()),
            Err(e) => Err(e),
        }
    }

    /// The other end's address.
    ///
    /// # Errors
    ///
    /// `NotConnected` when the connection is gone.
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

    /// Shuts down one direction or both, for all handles. The peer reads the end of the stream after what was sent before; whoever waits here for
    /// the direction is woken.
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

    /// Whether small writes are sent at once (`TCP_NODELAY`) instead of being gathered. Off unless it is set.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.ask(|s| s.set_nodelay(nodelay))
    }

    /// What [`TcpStream::set_nodelay`] has set.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.ask(|s| s.nodelay())
    }

    /// Over how many routers packets may go (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.ask(|s| s.set_ttl(ttl))
    }

    /// What [`TcpStream::set_ttl`] has set.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.ask(|s| s.ttl())
    }
}

/// A TCP socket that accepts connections: std's `TcpListener`, except that it blocks the goroutine and not the thread.
///
/// Several goroutines may accept at once, by reference or by [`try_clone`](TcpListener::try_clone).
pub struct TcpListener {
    handle: Handle,
}

socket!(TcpListener, std::net::TcpListener, sys::behaviour_of_tcp);
limits!(TcpListener, Read, "accepting", set_deadline, set_timeout, timeout);

impl TcpListener {
    /// Binds to an address and listens there; port 0 takes a free one. If there are several addresses, to the first that can be had.
    ///
    /// # Errors
    ///
    /// The last attempt's, such as `AddrInUse`; the resolver's; `InvalidInput` if there is no address at all.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<TcpListener> {
        TcpListener::from_std(each_addr(addr, |addr| std::net::TcpListener::bind(addr))?)
    }

    /// The address it listens at.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.ask(|s| s.local_addr())
    }

    /// Waits for a connection and gives it, with the other end's address.
    ///
    /// # Errors
    ///
    /// The system's: `ConnectionAborted`, too many open files, ... The listener goes on after them: call again. (Out of descriptors it
    /// fails again until there are some.)
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (std, addr) = self.handle.run_simply(Direction::Read, |_| self.std().accept())?;
        Ok((TcpStream { handle: accepted(std.into(), self.handle.behaviour())? }, addr))
    }

    /// Connections as they come, without end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// As [`TcpListener::incoming`], and takes the listener along.
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming { listener: self }
    }

    /// The time to live of connections that are accepted from now on.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.ask(|s| s.set_ttl(ttl))
    }

    /// What [`TcpListener::set_ttl`] has set.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.ask(|s| s.ttl())
    }
}

/// A connection that std has accepted. It blocks; where the calls of streams cannot say that they must not, it has to say so.
pub(crate) fn accepted(fd: OwnedFd, behaviour: Behaviour) -> io::Result<Handle> {
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    rustix::io::ioctl_fionbio(&fd, true)?;
    Handle::own(fd, behaviour)
}

/// Connections as they come: see [`TcpListener::incoming`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}

/// Connections as they come: see [`TcpListener::into_incoming`].
#[derive(Debug)]
pub struct IntoIncoming {
    listener: TcpListener,
}

impl Iterator for IntoIncoming {
    type Item = io::Result<TcpStream>;
    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for IntoIncoming {}
