//! Sockets of std in blocking calls, until there is `rt::net`: with its names, so that only a `use` changes.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, RawFd};

pub struct TcpListener(std::net::TcpListener);

impl TcpListener {
    pub fn bind(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
        std::net::TcpListener::bind(address).map(TcpListener)
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }

    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        rt::blocking(|| self.0.accept()).map(|(stream, address)| (TcpStream(stream), address))
    }
}

pub struct TcpStream(std::net::TcpStream);

impl TcpStream {
    pub fn connect(address: impl ToSocketAddrs) -> io::Result<TcpStream> {
        rt::blocking(|| std::net::TcpStream::connect(address)).map(TcpStream)
    }

    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.set_nodelay(on)
    }
}

impl AsRawFd for TcpStream {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Read for TcpStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        rt::blocking(|| self.0.read(buffer))
    }
}

impl Write for TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        rt::blocking(|| self.0.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
