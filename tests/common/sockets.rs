//! What the tests of `rt::net` share.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rt::net::{Closed, TcpListener, TcpStream, UnixStream};

/// An address on this machine that is this process's own, so that no other takes a port that has become free; the port is 0.
pub fn loopback() -> SocketAddr {
    let [a, b, c, d] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, 64 | a | b, c, d | 1), 0).into()
}

/// An address at which nobody listens as long as the descriptor is there.
pub fn deserted() -> (SocketAddr, OwnedFd) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &loopback()).unwrap();
    (getsockname(&fd).unwrap().try_into().unwrap(), fd)
}

/// Two ends of a connection.
pub fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// A server that sends back what it gets. It ends when the listener is closed.
pub fn echo_server() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    let server = listener.try_clone().unwrap();
    rt::go(move || {
        for stream in server.incoming() {
            let stream = match stream {
                Ok(stream) => stream,
                Err(e) if Closed::is(&e) => break,
                Err(e) => panic!("the server accepts: {e}"),
            };
            rt::go(move || echo(&stream));
        }
    });
    (listener, addr)
}

/// Sends back what comes, until the end or an error.
pub fn echo(stream: &TcpStream) -> io::Result<()> {
    let mut buf = [0; 4096];
    loop {
        let n = (&*stream).read(&mut buf)?;
        if n == 0 {
            return Ok(());
        }
        (&*stream).write_all(&buf[..n])?;
    }
}

/// Sends and wants it back.
#[track_caller]
pub fn round_trip(mut stream: &TcpStream, text: &[u8]) {
    stream.write_all(text).unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(back, text);
}

pub fn kind<T>(result: io::Result<T>) -> Result<T, ErrorKind> {
    result.map_err(|e| e.kind())
}

/// Whether a call failed because its socket was closed here.
pub fn is_closed<T>(result: &io::Result<T>) -> bool {
    result.as_ref().err().is_some_and(Closed::is)
}

/// In so much time.
pub fn after(ms: u64) -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(ms))
}

/// Has the close of this socket reset the connection.
pub fn reset_on_close(socket: &impl AsRawFd) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let (of, len) = ((&raw const linger).cast(), size_of::<libc::linger>() as u32);
    // SAFETY: the option's value is live and of that length.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, of, len) };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
}

/// Sends one byte of urgent data.
pub fn send_urgent(socket: &impl AsRawFd, byte: u8) {
    // SAFETY: one live byte.
    let n = unsafe { libc::send(socket.as_raw_fd(), (&raw const byte).cast(), 1, libc::MSG_OOB | libc::MSG_NOSIGNAL) };
    assert_eq!(n, 1, "{}", io::Error::last_os_error());
}

/// Sends bytes, and a descriptor with them.
pub fn send_descriptor(socket: &UnixStream, bytes: &[u8], fd: &OwnedFd) {
    #[repr(align(8))]
    struct Control([u8; 64]);
    let mut control = Control([0; 64]);
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a message without anything.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut iov;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    let size = size_of::<libc::c_int>() as u32;
    // SAFETY: the control buffer is aligned, and large enough for one descriptor; all that the message points to is live.
    let n = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(size) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(head).cast::<libc::c_int>().write_unaligned(fd.as_raw_fd());
        libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    assert_eq!(n, bytes.len() as isize, "{}", io::Error::last_os_error());
}

/// Descriptors that this process has open.
pub fn open_descriptors() -> usize {
    // One is the folder's own.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

pub fn goroutines() -> u64 {
    rt::metrics::get("/sched/goroutines:goroutines").unwrap().as_u64().unwrap()
}
