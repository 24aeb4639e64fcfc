//! Sockets: they do what std's do, and a wait suspends the goroutine alone.
#![cfg(unix)]

mod common;

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;

use std::time::Duration;

use common::{everywhere, traced};
use rt::net::{Closed, TcpListener, TcpStream, UnixDatagram, UnixStream};

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

/// A peer that will not read any more ends the wait of a writer, though no event tells of it.
#[test]
fn unix_writer_whose_peer_stops_reading() {
    everywhere("unix_writer_whose_peer_stops_reading", || {
        traced("unix writer", || {
            for by_peer in [true, false] {
                let (near, far) = UnixStream::pair().unwrap();
                let near = Arc::new(near);
                let writer = rt::go({
                    let near = near.clone();
                    move || loop {
                        if let Err(e) = (&*near).write(&[0; 4096]) {
                            return e.kind();
                        }
                    }
                });
                rt::time::sleep(Duration::from_millis(20));
                if by_peer {
                    far.shutdown(Shutdown::Read).unwrap();
                } else {
                    near.shutdown(Shutdown::Write).unwrap();
                }
                assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);
            }
        });
    });
}

/// After `close` the number is a socket's that nothing can be done with.
#[test]
fn closed_is_closed() {
    everywhere("closed_is_closed", || {
        traced("closed", || {
            let dir = std::env::temp_dir().join(format!("gort-net-{}", std::process::id()));
            let _ = std::fs::remove_file(&dir);
            let stranger = std::os::unix::net::UnixListener::bind(&dir).unwrap();
            let datagram = UnixDatagram::unbound().unwrap();
            datagram.close().unwrap();
            assert!(Closed::is(&datagram.connect(&dir).unwrap_err()));
            assert!(Closed::is(&datagram.send(b"x").unwrap_err()));
            assert!(Closed::is(&datagram.close().unwrap_err()));
            // By way of the descriptor, too.
            let fd = std::os::fd::AsFd::as_fd(&datagram);
            assert!(rustix::net::connect(fd, &rustix::net::SocketAddrUnix::new(&*dir).unwrap()).is_err());
            assert!(rustix::net::listen(fd, 1).is_err());
            let (stream, _other) = UnixStream::pair().unwrap();
            stream.close().unwrap();
            assert!(Closed::is(&(&stream).read(&mut [0; 8]).unwrap_err()));
            assert!(Closed::is(&(&stream).read(&mut []).unwrap_err()));
            assert!(Closed::is(&(&stream).write_vectored(&[IoSlice::new(b"x")]).unwrap_err()));
            assert!(Closed::is(&stream.shutdown(Shutdown::Both).unwrap_err()));
            assert!(Closed::is(&stream.into_std().unwrap_err()));
            drop(stranger);
            std::fs::remove_file(&dir).unwrap();
        });
    });
}
