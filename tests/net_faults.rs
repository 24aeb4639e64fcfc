//! Sockets when things go wrong: peers that reset, close or say nothing, descriptors that run out or are reused, data that come in a
//! way in which an edge could be lost.
#![cfg(unix)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::sockets::{
    after, deserted, echo_server, is_closed, kind, loopback, open_descriptors, reset_on_close, round_trip,
    send_descriptor, send_urgent, tcp,
};
use common::{Actor, Rng, everywhere, program, scaled, seed, traced, wait_for};
use rt::chan::bounded;
use rt::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket, UnixDatagram, UnixListener, UnixStream};

programs!(out_of_descriptors, a_deaf_name_server);

/// Reads to the end or an error.
fn read_all(mut stream: impl Read, buffer: usize) -> (Vec<u8>, Result<(), ErrorKind>) {
    let (mut all, mut buf) = (Vec::new(), vec![0; buffer]);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return (all, Ok(())),
            Ok(n) => all.extend_from_slice(&buf[..n]),
            Err(e) => return (all, Err(e.kind())),
        }
    }
}

/// Gives others time to begin their waits.
fn pause() {
    rt::time::sleep(Duration::from_millis(2));
}

// Peers.

#[test]
fn a_peer_resets() {
    everywhere("a_peer_resets", || {
        traced("resets", || {
            for actor in Actor::BOTH {
                // In the middle of a read: several wait, one is told of the reset, the others of the end.
                let (near, far) = tcp();
                let near = Arc::new(near);
                let readers: Vec<_> = (0..4)
                    .map(|_| {
                        let near = near.clone();
                        actor.start(move || kind((&*near).read(&mut [0; 8])))
                    })
                    .collect();
                pause();
                reset_on_close(&far);
                drop(far);
                let ends: Vec<_> = readers.into_iter().map(|r| r.join()).collect();
                let resets = ends.iter().filter(|e| **e == Err(ErrorKind::ConnectionReset)).count();
                assert_eq!((resets, ends.iter().filter(|e| **e == Ok(0)).count()), (1, 3), "{actor:?}: {ends:?}");
                assert_eq!(kind((&*near).write(b"x")), Err(ErrorKind::BrokenPipe));

                // In the middle of a write.
                let (near, far) = tcp();
                let writer = actor.start(move || {
                    loop {
                        if let Err(e) = (&near).write(&[1; 1 << 16]) {
                            return (e.kind(), kind((&near).write(b"x")), kind((&near).read(&mut [0; 8])));
                        }
                    }
                });
                (&far).read_exact(&mut [0; 1 << 16]).unwrap();
                pause();
                reset_on_close(&far);
                drop(far);
                let expected = (ErrorKind::ConnectionReset, Err(ErrorKind::BrokenPipe), Ok(0));
                assert_eq!(writer.join(), expected, "{actor:?}");

                // Both at once on one connection: whoever comes first is told.
                let (near, far) = tcp();
                let near = Arc::new(near);
                let (r, w) = (near.clone(), near);
                let reader = actor.start(move || kind((&*r).read(&mut [0; 8])));
                let writer = actor.start(move || {
                    loop {
                        if let Err(e) = (&*w).write(&[1; 1 << 16]) {
                            return e.kind();
                        }
                    }
                });
                pause();
                reset_on_close(&far);
                drop(far);
                let (read, written) = (reader.join(), writer.join());
                assert!(matches!(read, Ok(0) | Err(ErrorKind::ConnectionReset)), "{read:?}");
                assert!(matches!(written, ErrorKind::BrokenPipe | ErrorKind::ConnectionReset), "{written:?}");

                // What was reset while it waited to be accepted.
                let listener = TcpListener::bind(loopback()).unwrap();
                let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                reset_on_close(&client);
                drop(client);
                match listener.accept() {
                    // Linux hands it out all the same.
                    Ok((stream, _)) => assert_eq!(kind((&stream).read(&mut [0])), Err(ErrorKind::ConnectionReset)),
                    Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionAborted),
                }
                let again = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
                assert_eq!(listener.accept().unwrap().1, again.local_addr().unwrap());
            }
        });
    });
}

#[test]
fn a_peer_does_not_answer() {
    everywhere("a_peer_does_not_answer", || {
        traced("no answer", || {
            let (addr, fd) = deserted();
            for actor in Actor::BOTH {
                let refused = actor.start(move || kind(TcpStream::connect(addr).map(|_| ())));
                assert_eq!(refused.join(), Err(ErrorKind::ConnectionRefused));
            }
            // A listener whose queue is full, so that the system ignores who knocks.
            rustix::net::listen(&fd, 0).unwrap();
            let mut queued = Vec::new();
            let patience = Duration::from_millis(60);
            for actor in Actor::BOTH {
                let began = Instant::now();
                let late = loop {
                    match actor.start(move || TcpStream::connect_timeout(&addr, patience)).join() {
                        Ok(stream) => queued.push(stream),
                        Err(e) => break e,
                    }
                    assert!(queued.len() < 16, "the queue is never full");
                };
                assert_eq!(late.kind(), ErrorKind::TimedOut, "{late}");
                assert!(began.elapsed() >= patience);
                let late = TcpStream::connect_deadline(&addr, Instant::now() + patience).unwrap_err();
                assert_eq!(late.kind(), ErrorKind::TimedOut, "{late}");
            }
            // One that goes on knocking gets in once there is room.
            let patient = rt::go(move || TcpStream::connect(addr).map(|s| s.peer_addr().unwrap()));
            pause();
            assert!(!patient.is_finished());
            let listener = TcpListener::from_std(std::net::TcpListener::from(fd)).unwrap();
            let server = listener.try_clone().unwrap();
            let accepted = rt::go(move || server.incoming().map_while(Result::ok).count());
            assert_eq!(patient.join().unwrap().unwrap(), addr);
            listener.close().unwrap();
            assert!(accepted.join().unwrap() >= queued.len());
        });
    });
}

// Edges.

/// Data, a time in which everything is idle, and data again.
#[test]
fn waves() {
    everywhere("waves", || {
        traced("waves", || {
            for actor in Actor::BOTH {
                let (near, far) = tcp();
                let (c, d) = UnixStream::pair().unwrap();
                let udp = UdpSocket::bind(loopback()).unwrap();
                let at = udp.local_addr().unwrap();
                let listener = TcpListener::bind(loopback()).unwrap();
                let knock = listener.local_addr().unwrap();
                let (tx, rx) = rt::chan::unbounded();
                let mut all = Vec::new();
                let t = tx.clone();
                all.push(actor.start(move || {
                    let mut buf = [0; 64];
                    (0..6).for_each(|_| t.send((&far).read(&mut buf).unwrap()).unwrap());
                }));
                let t = tx.clone();
                all.push(actor.start(move || {
                    let mut buf = [0; 64];
                    (0..6).for_each(|_| t.send((&d).read(&mut buf).unwrap()).unwrap());
                }));
                let t = tx.clone();
                all.push(actor.start(move || {
                    let mut buf = [0; 64];
                    (0..6).for_each(|_| t.send(udp.recv(&mut buf).unwrap()).unwrap());
                }));
                all.push(actor.start(move || {
                    for _ in 0..6 {
                        listener.accept().unwrap();
                        tx.send(5).unwrap();
                    }
                }));
                for wave in 0..6 {
                    if wave != 0 {
                        rt::time::sleep(Duration::from_millis(50));
                    }
                    (&near).write_all(b"hello").unwrap();
                    (&c).write_all(b"hello").unwrap();
                    UdpSocket::bind(loopback()).unwrap().send_to(b"hello", at).unwrap();
                    TcpStream::connect(knock).unwrap();
                    (0..4).for_each(|_| assert_eq!(rx.recv().unwrap(), 5, "wave {wave}"));
                }
                all.into_iter().for_each(|a| a.join());
            }
        });
    });
}

/// A read that gets less than it asked for, and then the end: at once, after a turn, or after a while.
#[test]
fn short_reads_and_the_end() {
    everywhere("short_reads_and_the_end", || {
        let seed = seed();
        traced("ends", move || {
            let mut rng = Rng::new(seed);
            for round in 0..scaled(2000, 400) {
                let (near, far) = tcp();
                let reader = Actor::mixed(round).start(move || read_all(&far, 64));
                let n = rng.below(100) as usize;
                match rng.below(3) {
                    0 => {}
                    1 => rt::yield_now(),
                    _ => rt::time::sleep(Duration::from_micros(rng.below(200))),
                }
                (&near).write_all(&vec![1; n]).unwrap();
                match rng.below(3) {
                    0 => {}
                    1 => rt::yield_now(),
                    _ => rt::time::sleep(Duration::from_micros(rng.below(200))),
                }
                let reset = rng.below(4) == 0;
                match rng.below(2) {
                    _ if reset => reset_on_close(&near),
                    0 => near.shutdown(Shutdown::Write).unwrap(),
                    _ => {}
                }
                drop(near);
                let (bytes, end) = reader.join();
                if reset {
                    assert!(bytes.len() <= n && end == Err(ErrorKind::ConnectionReset), "{end:?}");
                } else {
                    assert_eq!((bytes.len(), end), (n, Ok(())));
                }
            }
        });
    });
}

/// Urgent data are in the way of reads: a read ends before them, though there is more behind. Sent in every position, with pauses
/// in every place, read with buffers of all sizes.
#[test]
fn urgent_data() {
    const LENGTH: usize = 4;
    everywhere("urgent_data", || {
        traced("urgent", || {
            let mut round = 0;
            for at in 0..=LENGTH {
                for pauses in 0..8 {
                    for buffer in [1, 2, 3, LENGTH, 16] {
                        round += 1;
                        let (near, far) = tcp();
                        near.set_nodelay(true).unwrap();
                        let got = Arc::new(AtomicUsize::new(0));
                        let counter = got.clone();
                        let reader = Actor::mixed(round).start(move || {
                            let (mut all, mut buf) = (Vec::new(), vec![0; buffer]);
                            loop {
                                let n = (&far).read(&mut buf).unwrap();
                                all.extend_from_slice(&buf[..n]);
                                counter.fetch_add(n, SeqCst);
                                if n == 0 {
                                    return all;
                                }
                            }
                        });
                        let wait = |bit: u32| {
                            if pauses >> bit & 1 == 1 {
                                rt::time::sleep(Duration::from_micros(300));
                            }
                        };
                        wait(0);
                        (&near).write_all(&b"abcd"[..at]).unwrap();
                        wait(1);
                        send_urgent(&near, b'!');
                        wait(2);
                        (&near).write_all(&b"abcd"[at..]).unwrap();
                        // All of it comes while the connection is open.
                        let what = format!("urgent at {at}, pauses {pauses:03b}, buffer {buffer}");
                        wait_for(&what, || got.load(SeqCst) == LENGTH);
                        (&near).write_all(b"e").unwrap();
                        wait_for(&what, || got.load(SeqCst) == LENGTH + 1);
                        drop(near);
                        assert_eq!(reader.join(), b"abcde", "{what}");
                    }
                }
            }
            println!("{round} streams");
        });
    });
}

/// Many of them: what the system makes of the bytes when a second one comes before the first was met is its own affair, but all that is
/// not urgent arrives, in order, and then the end.
#[test]
fn urgent_data_again_and_again() {
    everywhere("urgent_data_again_and_again", || {
        let seed = seed();
        traced("more urgent", move || {
            let mut rng = Rng::new(seed);
            for round in 0..scaled(200, 50) {
                let (near, far) = tcp();
                near.set_nodelay(true).unwrap();
                let buffer = 1 + rng.below(20) as usize;
                let reader = Actor::mixed(round).start(move || read_all(&far, buffer));
                let mut sent = Vec::new();
                for i in 0..50u8 {
                    match rng.below(4) {
                        0 => send_urgent(&near, b'!'),
                        1 => rt::time::sleep(Duration::from_micros(rng.below(100))),
                        _ => {
                            let bytes = vec![128 + i; rng.below(10) as usize];
                            (&near).write_all(&bytes).unwrap();
                            sent.extend(bytes);
                        }
                    }
                }
                drop(near);
                let (got, end) = reader.join();
                let got: Vec<u8> = got.into_iter().filter(|b| *b != b'!').collect();
                assert_eq!((got, end), (sent, Ok(())), "buffer {buffer}");
            }
        });
    });
}

/// Descriptors in the middle of a stream end a read, too. Plain reads drop them.
#[test]
fn descriptors_in_a_stream() {
    everywhere("descriptors_in_a_stream", || {
        traced("descriptors", || {
            let fd: OwnedFd = std::fs::File::open("/dev/null").unwrap().into();
            let before = open_descriptors();
            for round in 0..scaled(400, 100) {
                let (near, far) = UnixStream::pair().unwrap();
                let buffer = [1, 3, 64][round % 3];
                let reader = Actor::mixed(round).start(move || read_all(&far, buffer));
                for i in 0..4u8 {
                    (&near).write_all(&[i, i]).unwrap();
                    if round % 5 == 0 {
                        pause();
                    }
                    send_descriptor(&near, &[i + 100], &fd);
                    if round % 7 == 0 {
                        rt::yield_now();
                    }
                    send_descriptor(&near, &[i + 100, i + 100], &fd);
                }
                (&near).write_all(b"end").unwrap();
                drop(near);
                let expected: Vec<u8> = (0..4).flat_map(|i| [i, i, i + 100, i + 100, i + 100]).chain(*b"end").collect();
                assert_eq!(reader.join(), (expected, Ok(())));
            }
            wait_for("nothing is left open", || open_descriptors() <= before);
        });
    });
}

// Ends.

/// What a round of [`closes`] waits in.
#[derive(Clone, Copy, Debug)]
enum Way {
    Read,
    Write,
    Accept,
    Receive,
}

impl Way {
    const ALL: [Way; 4] = [Way::Read, Way::Write, Way::Accept, Way::Receive];
}

/// A socket that `waiters` wait on is closed, and others take its number and its place at once. Answers the number, and what lets the
/// waiters go.
fn closed_under(way: Way, waiters: usize, actor: Actor, wait: bool) {
    // Each waiter says what it got. Its handle goes before that.
    let (tx, rx) = bounded(waiters);
    macro_rules! start {
        ($socket:expr, |$s:ident| $call:expr) => {{
            let socket = $socket;
            for _ in 0..waiters {
                let ($s, tx) = (socket.try_clone().unwrap(), tx.clone());
                let _ = actor.start(move || {
                    let result = $call;
                    drop($s);
                    tx.send(result.map(|_| ())).unwrap();
                });
            }
            if wait {
                pause();
            } else {
                rt::yield_now();
            }
            socket.close().unwrap();
            drop(socket);
        }};
    }
    let mut peers: Vec<Box<dyn std::any::Any>> = Vec::new();
    match way {
        Way::Read => {
            let (near, far) = UnixStream::pair().unwrap();
            peers.push(Box::new(far));
            start!(near, |s| (&s).read(&mut [0; 8]));
        }
        Way::Write => {
            let (near, far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            while (&near).write(&[9; 1 << 16]).is_ok() {}
            near.set_nonblocking(false).unwrap();
            peers.push(Box::new(far));
            start!(near, |s| loop {
                if let Err(e) = (&s).write(&[9; 1 << 16]) {
                    break std::io::Result::<()>::Err(e);
                }
            });
        }
        Way::Accept => start!(TcpListener::bind(loopback()).unwrap(), |s| s.accept()),
        Way::Receive => start!(UdpSocket::bind(loopback()).unwrap(), |s| s.recv_from(&mut [0; 8])),
    }
    // Those who come next, while the others still wake up.
    let (a, b) = UnixStream::pair().unwrap();
    let (c, d) = UnixDatagram::pair().unwrap();
    (&a).write_all(b"for b").unwrap();
    c.send(b"for d").unwrap();
    for _ in 0..waiters {
        let got = rx.recv().unwrap();
        assert!(is_closed(&got), "{way:?}, {actor:?}: {got:?}");
    }
    let (e, f) = UnixStream::pair().unwrap();
    (&e).write_all(b"for f").unwrap();
    let mut buf = [0; 16];
    for (who, n) in [
        ("for b", (&b).read(&mut buf).unwrap()),
        ("for d", d.recv(&mut buf[5..]).unwrap()),
        ("for f", (&f).read(&mut buf[10..]).unwrap()),
    ] {
        assert_eq!(n, 5, "{who}: {:?}", std::str::from_utf8(&buf));
    }
    assert_eq!(&buf[..15], b"for bfor dfor f");
    for silent in [&a, &e] {
        silent.set_nonblocking(true).unwrap();
        assert_eq!(kind((&*silent).read(&mut buf)), Err(ErrorKind::WouldBlock), "nobody wrote");
    }
    drop(peers);
}

#[test]
fn closed_while_others_wait() {
    everywhere("closed_while_others_wait", || {
        let seed = seed();
        traced("closes", move || {
            let mut rng = Rng::new(seed);
            let before = open_descriptors();
            for round in 0..scaled(10_000, 1500) {
                let actor = if round % 8 == 7 { Actor::Thread } else { Actor::Goroutine };
                closed_under(Way::ALL[round % 4], 1 + rng.below(3) as usize, actor, rng.below(8) == 0);
            }
            // The one that close() keeps.
            wait_for("nothing is left open", || open_descriptors() <= before + 1);
        });
    });
}

/// The last handle goes while an event is on its way, and another socket is made at once: it gets the number and the place, and must not
/// get the event.
#[test]
fn numbers_are_reused_at_once() {
    everywhere("numbers_are_reused_at_once", || {
        let seed = seed();
        traced("reuse", move || {
            let mut rng = Rng::new(seed);
            let mut same = 0;
            for round in 0..scaled(10_000, 1500) {
                let (old, peer) = UnixStream::pair().unwrap();
                let number = old.as_raw_fd();
                if rng.below(2) == 0 {
                    // Nothing is there, so that the next event is an edge.
                    old.set_nonblocking(true).unwrap();
                    assert!((&old).read(&mut [0; 4]).is_err());
                }
                (&peer).write_all(b"for the old").unwrap();
                drop(old);
                let (new, peer_of_new) = UnixStream::pair().unwrap();
                same += usize::from(new.as_raw_fd() == number);
                let reader = Actor::mixed(round / 3).start(move || {
                    let mut buf = [0; 16];
                    let n = (&new).read(&mut buf).unwrap();
                    (buf[..n].to_vec(), new)
                });
                match rng.below(4) {
                    0 => rt::yield_now(),
                    1 => rt::time::sleep(Duration::from_micros(rng.below(100))),
                    _ => {}
                }
                drop(peer);
                (&peer_of_new).write_all(b"new").unwrap();
                assert_eq!(reader.join().0, b"new");
            }
            assert!(same > 0, "no number was ever reused");
            println!("{same} numbers were reused");
        });
    });
}

/// Everything at random on sockets that others use: nothing but the errors that are due, nobody hangs.
#[test]
fn stress_close_and_deadlines() {
    everywhere("stress_close_and_deadlines", || {
        let seed = seed();
        traced("stress", move || {
            for round in 0..scaled(300, 60) as u64 {
                let mut rng = Rng::new(seed ^ round << 8);
                let (near, far) = tcp();
                let sockets = [Arc::new(near), Arc::new(far)];
                let users: Vec<_> = (0..8usize)
                    .map(|i| {
                        let socket = sockets[i % 2].clone();
                        Actor::mixed(i / 4).start(move || {
                            let mut buf = [0; 1024];
                            loop {
                                let done =
                                    if i / 2 % 2 == 0 { (&*socket).read(&mut buf) } else { (&*socket).write(&buf) };
                                match done {
                                    Ok(0) => return true,
                                    Ok(_) => {}
                                    Err(e) if e.kind() == ErrorKind::TimedOut => rt::yield_now(),
                                    Err(e) => {
                                        // Closed here, or at the other end.
                                        let kinds = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
                                        return rt::net::Closed::is(&e) || kinds.contains(&e.kind());
                                    }
                                }
                            }
                        })
                    })
                    .collect();
                for _ in 0..rng.below(20) {
                    let socket = &sockets[rng.below(2) as usize];
                    match rng.below(5) {
                        0 => socket.set_deadline(Some(Instant::now())),
                        1 => socket.set_read_deadline(Some(Instant::now() + Duration::from_micros(rng.below(500)))),
                        2 => socket.set_write_deadline(after(rng.below(3))),
                        3 => socket.set_deadline(None),
                        _ => rt::time::sleep(Duration::from_micros(rng.below(300))),
                    }
                }
                sockets[rng.below(2) as usize].close().unwrap();
                // Who is at the other end would time out for ever.
                sockets.iter().for_each(|s| s.set_deadline(None));
                assert!(users.into_iter().all(|u| u.join()));
            }
        });
    });
}

// What runs out.

/// The number of a descriptor that is opened next.
fn next_descriptor() -> u64 {
    UnixDatagram::unbound().unwrap().as_raw_fd() as u64
}

/// How many descriptors this process may have open.
fn limit_descriptors(to: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the struct is live.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = to;
        assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit), 0);
        before
    }
}

fn out_of_descriptors() {
    traced("out of descriptors", || {
        let is_emfile = |e: std::io::Error| e.raw_os_error() == Some(libc::EMFILE);
        let listener = Arc::new(TcpListener::bind(loopback()).unwrap());
        let addr = listener.local_addr().unwrap();
        let unix = std::env::temp_dir().join(format!("gort-{}-emfile", std::process::id()));
        let _ = std::fs::remove_file(&unix);
        let unix_listener = UnixListener::bind(&unix).unwrap();
        let clients: Vec<_> = (0..6).map(|_| TcpStream::connect(addr).unwrap()).collect();
        let unix_client = UnixStream::connect(&unix).unwrap();
        std::fs::remove_file(&unix).unwrap();
        let lone = UdpSocket::bind(loopback()).unwrap();
        // One who waits when that comes, whatever it is.
        let quiet = TcpListener::bind(loopback()).unwrap();
        let to_quiet = quiet.local_addr().unwrap();
        let (tx, rx) = bounded(0);
        let waiter = rt::go(move || {
            let first = quiet.accept().map(|_| ()).unwrap_err();
            tx.send(()).unwrap();
            (first, quiet)
        });
        let client =
            rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
        pause();
        let enough = limit_descriptors(next_descriptor());
        rustix::net::connect(&client, &to_quiet).unwrap();
        rx.recv().unwrap();
        let (first, quiet) = waiter.join().unwrap();
        assert!(is_emfile(first), "who waits is told as well");
        // It fails as often as it is tried, and does not wait.
        for _ in 0..3 {
            assert!(is_emfile(listener.accept().unwrap_err()));
            assert!(is_emfile(listener.incoming().next().unwrap().unwrap_err()));
            assert!(is_emfile(unix_listener.accept().unwrap_err()));
        }
        let many: Vec<_> = (0..8)
            .map(|i| {
                let listener = listener.clone();
                Actor::mixed(i).start(move || listener.accept().map(|_| ()).unwrap_err())
            })
            .collect();
        many.into_iter().for_each(|e| assert!(is_emfile(e.join())));
        assert!(is_emfile(TcpStream::connect(addr).unwrap_err()));
        assert!(is_emfile(UdpSocket::bind(loopback()).unwrap_err()));
        assert!(is_emfile(UnixStream::pair().unwrap_err()));
        assert!(is_emfile(UnixStream::connect(&unix).unwrap_err()));
        // The first close of a program needs one, too.
        assert!(is_emfile(lone.close().unwrap_err()));
        lone.send_to(b"still open", lone.local_addr().unwrap()).unwrap();
        assert_eq!(lone.recv(&mut [0; 16]).unwrap(), 10);
        // Others, who have what they need, go on.
        limit_descriptors(enough);
        let waiting = rt::go({
            let listener = listener.clone();
            move || (0..clients.len() + 1).map(|_| listener.accept().unwrap().0).collect::<Vec<_>>()
        });
        quiet.accept().expect("the connection is there still");
        let last = TcpStream::connect(addr).unwrap();
        assert_eq!(waiting.join().unwrap().len(), 7);
        let (far, _) = unix_listener.accept().unwrap();
        (&unix_client).write_all(b"x").unwrap();
        assert_eq!((&far).read(&mut [0; 4]).unwrap(), 1);
        drop(last);
        lone.close().unwrap();
        assert!(is_closed(&lone.recv(&mut [0])));
    });
}

#[test]
fn descriptors_run_out() {
    for env in common::CONFIGURATIONS {
        program("out_of_descriptors", env).expect_code(0);
    }
}

/// Gives this process a network and mounts of its own, with a name server at 127.0.0.1.
#[cfg(target_os = "linux")]
fn enter_namespaces() -> Result<(), String> {
    let failed = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    let scratch = common::scratch_file("resolv.conf");
    let text = "nameserver 127.0.0.1\noptions timeout:4 attempts:1\n";
    std::fs::write(&scratch, text).map_err(|e| format!("{}: {e}", scratch.display()))?;
    let to = std::fs::canonicalize("/etc/resolv.conf").map_err(|e| format!("/etc/resolv.conf: {e}"))?;
    let c = |path: &std::path::Path| std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    let (from, to) = (c(&scratch), c(&to));
    // SAFETY: all pointers are to live, terminated strings or null where that is allowed; this process has one thread.
    unsafe {
        let own = libc::CLONE_NEWNS | libc::CLONE_NEWNET;
        if libc::unshare(own) != 0 && libc::unshare(own | libc::CLONE_NEWUSER) != 0 {
            return Err(failed("unshare"));
        }
        let (none, flags) = (std::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
        if libc::mount(none, c"/".as_ptr(), none, flags, none.cast()) != 0 {
            return Err(failed("mount --make-rprivate /"));
        }
        if libc::mount(from.as_ptr(), to.as_ptr(), none, libc::MS_BIND, none.cast()) != 0 {
            return Err(failed("mount --bind over /etc/resolv.conf"));
        }
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
        let mut request: libc::ifreq = std::mem::zeroed();
        request.ifr_name[0] = b'l' as libc::c_char;
        request.ifr_name[1] = b'o' as libc::c_char;
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        let up = libc::ioctl(fd, libc::SIOCSIFFLAGS, &raw mut request);
        libc::close(fd);
        if up != 0 {
            return Err(failed("ip link set lo up"));
        }
    }
    std::fs::remove_file(scratch).map_err(|e| e.to_string())
}

#[cfg(not(target_os = "linux"))]
fn enter_namespaces() -> Result<(), String> {
    Err("there are no namespaces on this system".into())
}

const NOT_TESTED: &str = "NOT TESTED: a name server that never answers";

/// Look-ups that wait for a name server hold threads, and nothing else.
fn a_deaf_name_server() {
    if let Err(why) = enter_namespaces() {
        println!("{NOT_TESTED}: {why}");
        return;
    }
    const LOOK_UPS: usize = 50;
    let server = match std::net::UdpSocket::bind("127.0.0.1:53") {
        Ok(server) => server,
        Err(e) => return println!("{NOT_TESTED}: port 53: {e}"),
    };
    traced("deaf", move || {
        let pending = Arc::new(AtomicUsize::new(LOOK_UPS));
        let look_ups: Vec<_> = (0..LOOK_UPS)
            .map(|i| {
                let pending = pending.clone();
                rt::go(move || {
                    let result = format!("host-{i}.example.org:80").to_socket_addrs().map(|_| ());
                    pending.fetch_sub(1, SeqCst);
                    result
                })
            })
            .collect();
        // All have asked, and none will be answered.
        let asked = AtomicUsize::new(0);
        server.set_nonblocking(true).unwrap();
        wait_for("the name server is asked", || {
            while server.recv(&mut [0; 512]).is_ok() {
                asked.fetch_add(1, SeqCst);
            }
            asked.load(SeqCst) >= LOOK_UPS
        });
        // Meanwhile others do what they do.
        let ticks = Arc::new(AtomicUsize::new(0));
        let (t, over) = (ticks.clone(), Arc::new(AtomicBool::new(false)));
        let o = over.clone();
        let ticker = rt::go(move || {
            while !o.load(SeqCst) {
                rt::time::sleep(Duration::from_millis(1));
                t.fetch_add(1, SeqCst);
            }
        });
        let (listener, addr) = echo_server();
        let mut echoes = 0;
        while ticks.load(SeqCst) < 50 || echoes < 50 {
            assert_eq!(pending.load(SeqCst), LOOK_UPS, "after {} ticks and {echoes} echoes", ticks.load(SeqCst));
            round_trip(&TcpStream::connect(addr).unwrap(), b"hello");
            // What needs no look-up gets none.
            assert!(("127.0.0.1", 1).to_socket_addrs().unwrap().eq([SocketAddr::from(([127, 0, 0, 1], 1))]));
            echoes += 1;
            rt::time::sleep(Duration::from_micros(100));
        }
        println!("{} ticks and {echoes} echoes beside {LOOK_UPS} look-ups", ticks.load(SeqCst));
        look_ups.into_iter().for_each(|l| assert!(l.join().unwrap().is_err()));
        over.store(true, SeqCst);
        ticker.join().unwrap();
        listener.close().unwrap();
    });
}

#[test]
fn a_name_server_that_never_answers() {
    for env in [&[("GOMAXPROCS", "1")], &[("GOMAXPROCS", "2")]] {
        let ended = program("a_deaf_name_server", env);
        ended.expect_code(0);
        print!("{}", ended.stdout);
    }
}
