//! Sockets: they do what std's do, and a wait suspends the goroutine alone.
#![cfg(unix)]

mod common;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{everywhere, scaled, traced, wait_for};
use rt::net::{Closed, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};

/// A server that sends back what it gets. It ends when the listener is closed.
fn echo_server() -> (TcpListener, std::net::SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = listener.try_clone().unwrap();
    rt::go(move || {
        for stream in server.incoming() {
            let Ok(stream) = stream else { break };
            rt::go(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    (listener, addr)
}

#[test]
fn smoke_echo() {
    everywhere("smoke_echo", || {
        traced("echo", || {
            let (listener, addr) = echo_server();
            let clients: Vec<_> = (0..20u8)
                .map(|i| {
                    rt::go(move || {
                        let mut stream = TcpStream::connect(addr).unwrap();
                        stream.set_nodelay(true).unwrap();
                        for round in 0..20u8 {
                            let sent = [i, round, 7];
                            stream.write_all(&sent).unwrap();
                            let mut got = [0; 3];
                            stream.read_exact(&mut got).unwrap();
                            assert_eq!(got, sent);
                        }
                        stream.shutdown(Shutdown::Write).unwrap();
                        assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0);
                    })
                })
                .collect();
            clients.into_iter().for_each(|c| c.join().unwrap());
            listener.close().unwrap();
        });
    });
}
