//! From names to addresses.
//!
//! A name is looked up by the system's resolver, which blocks its thread for as long as it likes: up to half a minute where a name
//! server does not answer. So look-ups are declared blocking calls, and [`LOOKUPS`] of them at most run at a time; more wait for
//! their turn. What is an address already is not looked up.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::{iter, option, slice, vec};

use crate::sync::Semaphore;

/// Look-ups that may hold a thread at a time.
const LOOKUPS: usize = 64;

static PLACES: Semaphore = Semaphore::new(LOOKUPS);

/// What can be turned into socket addresses: std's trait of the same name, for the same types, whose look-ups block the
/// goroutine and not its processor.
///
/// At most 64 look-ups run at a time, each in a thread of its own; more wait their turn.
///
/// ```
/// use rt::net::ToSocketAddrs;
///
/// rt::run(|| {
///     let mut addrs = ("127.0.0.1", 80).to_socket_addrs().unwrap();
///     assert_eq!(addrs.next().unwrap().to_string(), "127.0.0.1:80");
/// });
/// ```
pub trait ToSocketAddrs {
    /// The addresses, in the order in which they are to be tried.
    type Iter: Iterator<Item = SocketAddr>;

    /// The addresses.
    ///
    /// # Errors
    ///
    /// What the system's resolver says; `InvalidInput` for a text that is not `host:port`.
    fn to_socket_addrs(&self) -> io::Result<Self::Iter>;
}

/// Implements it by way of std's implementation, which does not look anything up for these.
macro_rules! address {
    ($($type:ty),* $(,)?) => {$(
        impl ToSocketAddrs for $type {
            type Iter = option::IntoIter<SocketAddr>;
            fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
                std::net::ToSocketAddrs::to_socket_addrs(self)
            }
        }
    )*};
}

address!(SocketAddr, SocketAddrV4, SocketAddrV6, (IpAddr, u16), (Ipv4Addr, u16), (Ipv6Addr, u16));

impl ToSocketAddrs for (&str, u16) {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        let (host, port) = *self;
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)].into_iter());
        }
        look_up(|| std::net::ToSocketAddrs::to_socket_addrs(&(host, port)))
    }
}

impl ToSocketAddrs for (String, u16) {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (&*self.0, self.1).to_socket_addrs()
    }
}

impl ToSocketAddrs for str {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        if let Ok(addr) = self.parse() {
            return Ok(vec![addr].into_iter());
        }
        look_up(|| std::net::ToSocketAddrs::to_socket_addrs(self))
    }
}

impl ToSocketAddrs for String {
    type Iter = vec::IntoIter<SocketAddr>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
    }
}

impl<'a> ToSocketAddrs for &'a [SocketAddr] {
    type Iter = iter::Cloned<slice::Iter<'a, SocketAddr>>;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        Ok(self.iter().cloned())
    }
}

impl<T: ToSocketAddrs + ?Sized> ToSocketAddrs for &T {
    type Iter = T::Iter;
    fn to_socket_addrs(&self) -> io::Result<Self::Iter> {
        (**self).to_socket_addrs()
    }
}

fn look_up<T>(f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let _place = PLACES.acquire();
    crate::blocking(f)
}

/// Tries each address until one works; the error is the last one's.
pub(crate) fn each_addr<A: ToSocketAddrs, T>(
    addrs: A,
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in addrs.to_socket_addrs()? {
        match f(&addr) {
            Ok(value) => return Ok(value),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")))
}
