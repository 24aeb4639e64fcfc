//! UDP.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use crate::net::addr::{ToSocketAddrs, each_addr};
use crate::net::handle::{Behaviour, Direction, Handle};

/// A UDP socket: std's `UdpSocket`, except that it blocks the goroutine and not the thread.
///
/// ```
/// rt::run(|| -> std::io::Result<()> {
///     let a = rt::net::UdpSocket::bind("127.0.0.1:0")?;
///     let b = rt::net::UdpSocket::bind("127.0.0.1:0")?;
///     a.send_to(b"hello", b.local_addr()?)?;
///     let mut buf = [0; 16];
///     let (n, from) = b.recv_from(&mut buf)?;
///     assert_eq!((&buf[..n], from), (&b"hello"[..], a.local_addr()?));
///     Ok(())
/// }).unwrap();
/// ```
pub struct UdpSocket {
    handle: Handle,
}

socket!(UdpSocket, std::net::UdpSocket, |_: &OwnedFd| Behaviour::Plain);
both_limits!(UdpSocket);

impl UdpSocket {
    /// Binds to an address; port 0 takes a free one. If there are several addresses, to the first that can be had.
    ///
    /// # Errors
    ///
    /// The last attempt's, such as `AddrInUse`; the resolver's; `InvalidInput` if there is no address at all.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<UdpSocket> {
        UdpSocket::from_std(each_addr(addr, |addr| std::net::UdpSocket::bind(addr))?)
    }

    /// Waits for a datagram; gives its length and where it comes from. What does not fit into `buf` is lost.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.handle.run_simply(Direction::Read, |_| self.std().recv_from(buf))
    }

    /// As [`UdpSocket::recv_from`], and leaves the datagram there.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.handle.run_simply(Direction::Read, |_| self.std().peek_from(buf))
    }

    /// Sends a datagram to the first of the addresses.
    ///
    /// # Errors
    ///
    /// The system's; the resolver's; `InvalidInput` if there is no address.
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let Some(addr) = addr.to_socket_addrs()?.next() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no addresses to send data to"));
        };
        self.handle.run_simply(Direction::Write, |_| self.std().send_to(buf, addr))
    }

    /// Sets where [`UdpSocket::send`] sends to, and what [`UdpSocket::recv`] takes.
    ///
    /// # Errors
    ///
    /// The last attempt's, if there are several addresses; the resolver's; `InvalidInput` if there is none.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        each_addr(addr, |addr| self.ask(|s| s.connect(addr)))
    }

    /// Sends a datagram to the peer.
    ///
    /// # Errors
    ///
    /// The system's; also what a datagram before has met, such as `ConnectionRefused`.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.handle.run_simply(Direction::Write, |_| self.std().send(buf))
    }

    /// Waits for a datagram of the peer. What does not fit into `buf` is lost.
    ///
    /// # Errors
    ///
    /// The system's; also what a datagram before has met, such as `ConnectionRefused`.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.run_simply(Direction::Read, |_| self.std().recv(buf))
    }

    /// As [`UdpSocket::recv`], and leaves the datagram there.
    ///
    /// # Errors
    ///
    /// As [`UdpSocket::recv`].
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.handle.run_simply(Direction::Read, |_| self.std().peek(buf))
    }
}

/// Calls that std's socket answers at once.
macro_rules! options {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty;)*) => {
        impl UdpSocket {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                ///
                /// The system's.
                pub fn $name(&self, $($arg: $type),*) -> io::Result<$result> {
                    self.ask(|s| s.$name($($arg),*))
                }
            )*
        }
    };
}

options! {
    /// The address of the peer that [`UdpSocket::connect`] has set.
    peer_addr() -> SocketAddr;
    /// This socket's address.
    local_addr() -> SocketAddr;
    /// Whether datagrams may be sent to broadcast addresses (`SO_BROADCAST`).
    set_broadcast(broadcast: bool) -> ();
    /// What `set_broadcast` has set.
    broadcast() -> bool;
    /// Over how many routers datagrams may go (`IP_TTL`).
    set_ttl(ttl: u32) -> ();
    /// What `set_ttl` has set.
    ttl() -> u32;
    /// Whether this machine gets the multicast datagrams that it sends itself (`IP_MULTICAST_LOOP`).
    set_multicast_loop_v4(on: bool) -> ();
    /// What `set_multicast_loop_v4` has set.
    multicast_loop_v4() -> bool;
    /// Over how many routers multicast datagrams may go (`IP_MULTICAST_TTL`).
    set_multicast_ttl_v4(ttl: u32) -> ();
    /// What `set_multicast_ttl_v4` has set.
    multicast_ttl_v4() -> u32;
    /// Whether this machine gets the multicast datagrams that it sends itself (`IPV6_MULTICAST_LOOP`).
    set_multicast_loop_v6(on: bool) -> ();
    /// What `set_multicast_loop_v6` has set.
    multicast_loop_v6() -> bool;
    /// Joins a multicast group, on the interface with this address.
    join_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Joins a multicast group, on the interface with this index; 0 for any.
    join_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
    /// Leaves a multicast group.
    leave_multicast_v4(group: &Ipv4Addr, interface: &Ipv4Addr) -> ();
    /// Leaves a multicast group.
    leave_multicast_v6(group: &Ipv6Addr, interface: u32) -> ();
}
