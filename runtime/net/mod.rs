//! Sockets that block a goroutine, never a thread.
//!
//! The types have std's names, methods and errors, so a program that was written for threads and `std::net` needs little more than
//! another `use`. A call that cannot go on at once suspends the goroutine until the poller tells that it can; a trace shows the wait
//! as "network". On a plain thread they block the thread.
//!
//! ```
//! use std::io::{Read, Write};
//! use rt::net::{TcpListener, TcpStream};
//!
//! fn main() -> std::io::Result<()> {
//!     rt::run(|| {
//!         let listener = TcpListener::bind("127.0.0.1:0")?;
//!         let addr = listener.local_addr()?;
//!         rt::go(move || {
//!             for stream in listener.incoming() {
//!                 let mut stream = stream.unwrap();
//!                 rt::go(move || std::io::copy(&mut &stream, &mut &stream).map(|_| ()));
//!             }
//!         });
//!         let mut stream = TcpStream::connect(addr)?;
//!         stream.write_all(b"hello")?;
//!         let mut buf = [0; 5];
//!         stream.read_exact(&mut buf)?;
//!         assert_eq!(&buf, b"hello");
//!         Ok(())
//!     })
//! }
//! ```
//!
//! # What there is beyond std
//!
//! - **Deadlines** (`set_deadline`, `set_read_deadline`, `set_write_deadline`) are points in time, for all calls together, and end
//!   waits that have begun. A call that meets its deadline fails with [`TimedOut`](std::io::ErrorKind::TimedOut). The time-outs that std knows,
//!   `set_read_timeout` and `set_write_timeout`, count anew for each call and fail as std's do on this system, with
//!   [`WouldBlock`](std::io::ErrorKind::WouldBlock).
//! - **`close`** closes the socket for all handles. Whoever waits is woken; that call and all later ones fail with [`Closed`].
//! - `&T` reads and writes too, so one goroutine may read while another one writes. Several may do the same thing at once, too: then
//!   each event wakes one of them, first come, first served.
//!
//! # What differs
//!
//! - `try_clone` gives another handle to the same socket, not another descriptor. Time-outs and deadlines are the socket's.
//! - `set_nonblocking` makes calls fail with `WouldBlock` instead of waiting; it does not change the descriptor's mode.
//! - Reading into an empty buffer gives 0 at once, where std's waits until there is something on some systems.
//! - `into_std` gives a socket that blocks, and wants to have the only handle.
//! - The descriptor may or may not be in non-blocking mode. A program that changes that, by way of [`AsFd`](std::os::fd::AsFd) or in another
//!   process, makes accepting and datagrams block a thread; one that receives urgent data by itself (`MSG_OOB`) may find a later read
//!   waiting although there is something behind the urgent byte.
//! - A plain thread that has to wait starts the runtime, as [`go`](crate::go) does, with the default configuration: call
//!   [`run`](crate::run) first if it is to have another one.
//! - Names are looked up by [`ToSocketAddrs`] of this module.

#[macro_use]
mod common;

mod addr;
mod error;
pub(crate) mod handle;
mod stream;
mod sys;
mod tcp;
mod udp;
mod unix;

pub use addr::ToSocketAddrs;
pub use error::Closed;
pub use std::net::{AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6};
pub use std::os::unix::net::SocketAddr as UnixSocketAddr;
pub use tcp::{Incoming, IntoIncoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixIncoming, UnixListener, UnixStream};

/// Whether a call on the descriptor would go on at once. An error counts: the call will report it.
pub(crate) fn is_ready(fd: std::os::fd::BorrowedFd<'_>, direction: handle::Direction) -> bool {
    !matches!(sys::is_ready(fd, direction), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
}
