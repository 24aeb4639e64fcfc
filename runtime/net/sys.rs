//! Sockets that std does not make: such that a connection begins without a wait.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};

use crate::net::handle::{Behaviour, Direction};

/// A stream socket that does not block and is not inherited.
pub(crate) fn socket(family: AddressFamily) -> io::Result<OwnedFd> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::net::SocketFlags;
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        Ok(rustix::net::socket_with(family, SocketType::STREAM, flags, None)?)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let fd = rustix::net::socket(family, SocketType::STREAM, None)?;
        rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
        rustix::io::ioctl_fionbio(&fd, true)?;
        #[cfg(target_vendor = "apple")]
        sockopt::set_socket_nosigpipe(&fd, true)?;
        Ok(fd)
    }
}

/// How a connection has begun.
pub(crate) enum Connecting {
    Done(OwnedFd),
    /// The poller tells when there is something new: see [`connected`].
    Begun(OwnedFd),
}

/// Begins to connect over TCP.
pub(crate) fn connect_tcp(addr: &SocketAddr) -> io::Result<Connecting> {
    let fd = socket(if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 })?;
    match rustix::net::connect(&fd, addr) {
        Ok(()) => Ok(Connecting::Done(fd)),
        // An interrupted one goes on as well.
        Err(Errno::INPROGRESS | Errno::INTR) => Ok(Connecting::Begun(fd)),
        Err(e) => Err(e.into()),
    }
}

/// Connects to a Unix socket. `WouldBlock` if its queue is full, of which no poller tells.
pub(crate) fn connect_unix(path: &Path) -> io::Result<UnixStream> {
    let addr = match SocketAddrUnix::new(path) {
        // It would be a name that is no path.
        Ok(_) if path.as_os_str().is_empty() => return Err(Errno::INVAL.into()),
        Ok(addr) => addr,
        Err(Errno::NAMETOOLONG) => {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "path must be shorter than SUN_LEN"));
        }
        Err(e) => return Err(e.into()),
    };
    let fd = socket(AddressFamily::UNIX)?;
    rustix::net::connect(&fd, &addr)?;
    Ok(fd.into())
}

/// What has become of a connection that was begun; `WouldBlock` if nothing yet.
pub(crate) fn connected(fd: BorrowedFd<'_>) -> io::Result<()> {
    sockopt::socket_error(fd)??;
    match rustix::net::getpeername(fd) {
        Ok(_) => Ok(()),
        Err(Errno::NOTCONN) => Err(io::ErrorKind::WouldBlock.into()),
        // It was connected and is not any more: that is told by the first use.
        Err(Errno::INVAL) => Ok(()),
        Err(e) => Err(e.into()),
    }
}

/// Whether a call that reads from the descriptor, or writes to it, would go on at once; `WouldBlock` if not.
pub(crate) fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let flags = if direction == Direction::Read { PollFlags::IN } else { PollFlags::OUT };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(&fd, flags)], Some(&now))? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// The behaviour of a socket that is called one of TCP: it may have been made from a descriptor of another kind.
pub(crate) fn behaviour_of_tcp(fd: &OwnedFd) -> Behaviour {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        let is_tcp = matches!(sockopt::socket_domain(fd), Ok(AddressFamily::INET | AddressFamily::INET6))
            && matches!(sockopt::socket_protocol(fd), Ok(Some(rustix::net::ipproto::TCP)));
        if is_tcp { Behaviour::TCP } else { Behaviour::Plain }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = fd;
        Behaviour::TCP
    }
}

/// Whether nothing will ever be received any more. (Asked only where the system does not tell who receives.)
pub(crate) fn is_shut_down(fd: BorrowedFd<'_>) -> bool {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&at_once)).is_ok() && fds[0].revents().contains(PollFlags::RDHUP)
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = fd;
        false
    }
}
