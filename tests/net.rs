//! Sockets: they do what std's do, and a wait suspends the goroutine alone.
#![cfg(unix)]
// The scenarios are compiled once for each kind of socket.
#![allow(clippy::duplicate_mod)]

mod common;

use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::sockets::{after, echo, echo_server, is_closed, kind, loopback, round_trip, tcp};
use common::{Actor, Ended, Rng, events, everywhere, program, scaled, seed, traced, wait_for};
use rt::net::{Closed, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use rt::sync::WaitGroup;
use tracer::read::Reader;
use tracer::wire::ext::Record;
use tracer::wire::{Ev, reason};

#[path = "net"]
mod over_std {
    pub use std::net::{TcpListener, TcpStream, UdpSocket};
    pub use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
    pub use std::thread::spawn as start;
    pub mod scenarios;
}

#[path = "net"]
mod in_goroutines {
    pub use rt::go as start;
    pub use rt::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
    pub mod scenarios;
}

#[path = "net"]
mod in_threads {
    pub use rt::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
    pub use std::thread::spawn as start;
    pub mod scenarios;
}

programs! {
    waits_for_the_network_only,
    thread_waits_for_the_network_only,
    says_late,
    nobody_is_left_to_write,
    the_socket_is_there_but_nobody_waits,
    thread_waits_and_then_nobody,
    made_outside_used_inside,
    used_by_threads_only,
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
                        (0..20).for_each(|round| round_trip(&stream, &[i, round, 7]));
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

/// Each scenario gives the same over std's sockets, over ours in goroutines, and over ours in threads.
#[test]
fn does_what_std_does() {
    everywhere("does_what_std_does", || {
        // std's first, at the same time: most of it is waiting.
        let expected = over_std::scenarios::ALL.map(|(name, scenario)| {
            let thread = std::thread::spawn(move || {
                let mut notes = over_std::scenarios::Notes::default();
                scenario(&mut notes);
                notes.0
            });
            (name, thread)
        });
        let expected = expected.map(|(name, thread)| (name, thread.join().unwrap()));
        let (got, _) = traced("scenarios", || {
            let goroutines = in_goroutines::scenarios::ALL.map(|(name, scenario)| {
                let goroutine = rt::Builder::new().name(name).spawn(move || {
                    let mut notes = in_goroutines::scenarios::Notes::default();
                    scenario(&mut notes);
                    notes.0
                });
                goroutine.unwrap()
            });
            let threads = in_threads::scenarios::ALL.map(|(name, scenario)| {
                let thread = std::thread::Builder::new().name(name.into()).spawn(move || {
                    let mut notes = in_threads::scenarios::Notes::default();
                    scenario(&mut notes);
                    notes.0
                });
                thread.unwrap()
            });
            let goroutines = goroutines.map(|g| g.join().unwrap());
            (goroutines, threads.map(|t| rt::blocking(|| t.join().unwrap())))
        });
        let mut differences = String::new();
        for (i, (name, expected)) in expected.iter().enumerate() {
            for (who, got) in [("goroutines", &got.0[i]), ("threads", &got.1[i])] {
                assert_eq!(got.len(), expected.len(), "{name}, {who}: {expected:#?}\n{got:#?}");
                for (line, (wanted, got)) in expected.iter().zip(got).enumerate().filter(|(_, (w, g))| w != g) {
                    differences += &format!("{name}, note {line}: std's {wanted:?}, in {who} {got:?}\n");
                }
            }
        }
        assert!(differences.is_empty(), "\n{differences}");
        println!("{} calls", expected.iter().map(|(_, notes)| notes.len()).sum::<usize>());
    });
}

/// Sockets go from std's hands to ours and back.
#[test]
fn to_std_and_back() {
    everywhere("to_std_and_back", || {
        traced("to_std", || {
            let listener = std::net::TcpListener::bind(loopback()).unwrap();
            let addr = listener.local_addr().unwrap();
            let listener = TcpListener::from_std(listener).unwrap();
            let server = rt::go(move || {
                let (mut stream, _) = listener.accept().unwrap();
                stream.write_all(b"one").unwrap();
                let mut std = stream.into_std().unwrap();
                // Which blocks.
                let mut buf = [0; 3];
                rt::blocking(|| std.read_exact(&mut buf)).unwrap();
                assert_eq!(&buf, b"two");
                let mut stream = TcpStream::from_std(std).unwrap();
                stream.write_all(b"three").unwrap();
                assert_eq!(stream.read(&mut buf).unwrap(), 0);
                let listener = listener.into_std().unwrap();
                listener.set_nonblocking(true).unwrap();
                assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
            });
            let std = std::net::TcpStream::connect(addr).unwrap();
            let mut stream = TcpStream::from_std(std).unwrap();
            let mut buf = [0; 3];
            stream.read_exact(&mut buf).unwrap();
            assert_eq!(&buf, b"one");
            rt::time::sleep(Duration::from_millis(20));
            stream.write_all(b"two").unwrap();
            let mut rest = [0; 5];
            stream.read_exact(&mut rest).unwrap();
            assert_eq!(&rest, b"three");
            // Not while there is another handle.
            let twin = stream.try_clone().unwrap();
            assert_eq!(twin.into_std().unwrap_err().kind(), ErrorKind::ResourceBusy);
            let std = stream.into_std().unwrap();
            std.shutdown(Shutdown::Both).unwrap();
            server.join().unwrap();

            let (a, b) = UnixDatagram::pair().unwrap();
            let number = a.as_raw_fd();
            let a = a.into_std().unwrap();
            assert_eq!(a.as_raw_fd(), number, "the only handle gives its own descriptor");
            a.send(b"x").unwrap();
            assert_eq!(b.recv(&mut [0; 4]).unwrap(), 1);
            let udp = UdpSocket::from_std(std::net::UdpSocket::bind(loopback()).unwrap()).unwrap();
            let at = udp.local_addr().unwrap();
            let receiver = rt::go(move || (udp.recv(&mut [0; 4]).unwrap(), udp.into_std().unwrap()));
            rt::yield_now();
            std::net::UdpSocket::bind(loopback()).unwrap().send_to(b"ab", at).unwrap();
            let (n, std) = receiver.join().unwrap();
            assert_eq!((n, std.local_addr().unwrap()), (2, at));
            // A file cannot be polled.
            let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
            let refused = UnixStream::from_std(std::os::fd::OwnedFd::from(file).into()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::PermissionDenied, "{refused}");
        });
    });
}

/// What is left of a socket that was closed: a number that is its own, and errors that say so.
#[test]
fn after_close() {
    everywhere("after_close", || {
        traced("after_close", || {
            let (near, mut far) = tcp();
            let twin = near.try_clone().unwrap();
            let number = near.as_fd().as_raw_fd();
            near.close().unwrap();
            assert!(is_closed(&near.close()) && is_closed(&twin.close()));
            assert_eq!(twin.as_raw_fd(), number);
            // The number is open, and nobody else's.
            // SAFETY: asks for a descriptor's flags.
            assert_eq!(unsafe { libc::fcntl(number, libc::F_GETFD) }, libc::FD_CLOEXEC);
            let others: Vec<_> = (0..10).map(|_| UnixDatagram::unbound().unwrap()).collect();
            assert!(others.iter().all(|o| o.as_raw_fd() != number));
            let buf = &mut [0; 4];
            assert!(is_closed(&(&twin).read(buf)) && is_closed(&(&near).write(b"x")));
            assert!(is_closed(&(&twin).read(&mut [])) && is_closed(&(&near).write(&[])));
            assert!(is_closed(&twin.peek(buf)) && is_closed(&(&near).read_vectored(&mut [IoSliceMut::new(buf)])));
            assert!(is_closed(&(&near).write_vectored(&[IoSlice::new(b"x")])));
            assert!(is_closed(&near.peer_addr()) && is_closed(&near.local_addr()) && is_closed(&near.take_error()));
            assert!(is_closed(&near.shutdown(Shutdown::Both)) && is_closed(&near.set_nodelay(true)));
            assert!(is_closed(&near.ttl()));
            near.set_deadline(after(1));
            near.set_nonblocking(true).unwrap();
            assert!(is_closed(&(&near).read(buf)), "closed comes first");
            let _ = format!("{near:?}");
            assert!(is_closed(&near.into_std()) && is_closed(&twin.try_clone().unwrap().into_std()));
            // The peer sees the end, though there is a handle.
            assert_eq!(far.read(buf).unwrap(), 0);
            drop(twin);

            let listener = TcpListener::bind(loopback()).unwrap();
            let addr = listener.local_addr().unwrap();
            listener.close().unwrap();
            assert!(is_closed(&listener.accept()) && is_closed(&listener.incoming().next().unwrap()));
            assert_eq!(kind(TcpStream::connect(addr).map(|_| ())), Err(ErrorKind::ConnectionRefused));
            let again = TcpListener::bind(addr).expect("the port is free");
            drop((listener, again));

            let udp = UdpSocket::bind(loopback()).unwrap();
            udp.connect(udp.local_addr().unwrap()).unwrap();
            let at = udp.local_addr().unwrap();
            udp.close().unwrap();
            assert!(is_closed(&udp.recv(buf)) && is_closed(&udp.recv_from(buf)) && is_closed(&udp.peek(buf)));
            assert!(is_closed(&udp.connect(at)) && is_closed(&udp.ttl()) && is_closed(&udp.peer_addr()));
            assert!(is_closed(&udp.send(b"x")) && is_closed(&udp.send_to(b"x", at)) && is_closed(&udp.peek_from(buf)));

            let (a, b) = UnixDatagram::pair().unwrap();
            a.close().unwrap();
            assert!(is_closed(&a.recv(buf)) && is_closed(&a.recv_from(buf)) && is_closed(&a.send(b"x")));
            assert!(is_closed(&a.send_to(b"x", "/tmp/nobody")));
            // Not to a socket of another kind either: what is left is no socket.
            let path = std::env::temp_dir().join(format!("gort-{}-closed", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let listener = UnixListener::bind(&path).unwrap();
            assert!(is_closed(&a.connect(&path)) && is_closed(&a.local_addr()) && is_closed(&a.peer_addr()));
            assert!(is_closed(&a.shutdown(Shutdown::Both)));
            std::fs::remove_file(&path).unwrap();
            drop(listener);
            assert!(b.send(b"x").is_err());
            let (a, mut b) = UnixStream::pair().unwrap();
            a.close().unwrap();
            assert!(is_closed(&(&a).read(buf)) && is_closed(&(&a).write(b"x")) && is_closed(&a.peek(buf)));
            assert_eq!(b.read(buf).unwrap(), 0);
            let e = (&a).read(buf).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::NotConnected);
            assert!(Closed::is(&e) && e.to_string().contains("closed by this program"), "{e}");
            assert!(!Closed::is(&ErrorKind::NotConnected.into()));
        });
    });
}

/// What std has not, or not yet.
#[test]
fn beyond_std() {
    everywhere("beyond_std", || {
        traced("beyond_std", || {
            let (mut near, mut far) = UnixStream::pair().unwrap();
            near.write_all(b"abc").unwrap();
            let mut buf = [0; 8];
            assert_eq!((far.peek(&mut buf).unwrap(), far.read(&mut buf).unwrap()), (3, 3));
            let peeker = rt::go(move || (far.peek(&mut [0; 8]).unwrap(), far.read(&mut [0; 8]).unwrap()));
            rt::time::sleep(Duration::from_millis(5));
            near.write_all(b"abcd").unwrap();
            assert_eq!(peeker.join().unwrap(), (4, 4));

            let listener = TcpListener::bind(loopback()).unwrap();
            let addr = listener.local_addr().unwrap();
            listener.set_timeout(Some(Duration::from_millis(5))).unwrap();
            assert_eq!(listener.timeout().unwrap(), Some(Duration::from_millis(5)));
            assert_eq!(kind(listener.accept().map(|_| ())), Err(ErrorKind::WouldBlock));
            assert_eq!(kind(listener.set_timeout(Some(Duration::ZERO))), Err(ErrorKind::InvalidInput));
            listener.set_timeout(None).unwrap();
            let clients = rt::go(move || (0..3).map(|_| TcpStream::connect(addr).unwrap()).collect::<Vec<_>>());
            assert!(listener.into_incoming().take(3).all(|s| s.is_ok()));
            drop(clients.join().unwrap());

            let (listener, addr) = echo_server();
            let stream = TcpStream::connect_deadline(&addr, Instant::now() + Duration::from_secs(60)).unwrap();
            // The deadline was the connection's alone.
            round_trip(&stream, b"hello");
            let late = TcpStream::connect_deadline(&addr, Instant::now());
            assert_eq!(kind(late.map(|_| ())), Err(ErrorKind::TimedOut));
            let huge = TcpStream::connect_timeout(&addr, Duration::MAX).unwrap();
            huge.set_read_timeout(Some(Duration::MAX)).unwrap();
            round_trip(&huge, b"hello");
            listener.close().unwrap();
        });
    });
}

/// Who does not wait, or not for long, gets what was there before all the same: also if nobody has looked into the poller meanwhile.
#[test]
fn impatient_calls_get_what_is_there() {
    everywhere("impatient_calls_get_what_is_there", || {
        traced("impatient", || {
            let listener = TcpListener::bind(loopback()).unwrap();
            let addr = listener.local_addr().unwrap();
            let (near, far) = (std::net::TcpStream::connect(addr).unwrap(), listener.accept().unwrap().0);
            let (a, b) = UnixDatagram::pair().unwrap();
            let mut buf = [0; 8];
            for round in 0..scaled(2000, 500) {
                let patience = Some(Duration::from_nanos(1 + round as u64 % 2000));
                // In turn: without a wait, and with a short one.
                let waits = round % 3 != 0;
                far.set_nonblocking(!waits).unwrap();
                b.set_nonblocking(!waits).unwrap();
                listener.set_nonblocking(!waits).unwrap();
                far.set_read_timeout(patience).unwrap();
                b.set_read_timeout(patience).unwrap();
                listener.set_timeout(patience).unwrap();
                // Nothing yet; this is what uses up the readiness.
                assert!((&far).read(&mut buf).is_err() && b.recv(&mut buf).is_err() && listener.accept().is_err());
                (&near).write_all(b"abc").unwrap();
                assert_eq!((&far).read(&mut buf).unwrap(), 3, "round {round}");
                a.send(b"ab").unwrap();
                assert_eq!(b.recv(&mut buf).unwrap(), 2, "round {round}");
                let client = std::net::TcpStream::connect(addr).unwrap();
                assert_eq!(listener.accept().unwrap().1, client.local_addr().unwrap(), "round {round}");
            }
        });
    });
}

// Deadlines.

/// Everybody who can wait to receive, with somebody who can let them.
fn receivers() -> Vec<(&'static str, Arc<dyn Receive>)> {
    let listener = TcpListener::bind(loopback()).unwrap();
    let unix = std::env::temp_dir().join(format!("gort-{}-{:?}", std::process::id(), rt::goroutine::id()));
    let _ = std::fs::remove_file(&unix);
    let unix_listener = UnixListener::bind(&unix).unwrap();
    std::fs::remove_file(&unix).unwrap();
    let (a, b) = tcp();
    let (c, d) = UnixStream::pair().unwrap();
    let (e, f) = UnixDatagram::pair().unwrap();
    vec![
        ("tcp", Arc::new((a, b))),
        ("unix", Arc::new((c, d))),
        ("unix datagrams", Arc::new((e, f))),
        ("udp", Arc::new(UdpSocket::bind(loopback()).unwrap())),
        ("listener", Arc::new(listener)),
        ("unix listener", Arc::new(unix_listener)),
    ]
}

/// Somebody who waits to receive, and nothing ever comes.
trait Receive: Send + Sync {
    fn receive(&self) -> Result<(), ErrorKind>;
    fn deadline(&self, at: Option<Instant>);
    fn timeout(&self, after: Option<Duration>);
}

macro_rules! receive {
    ($type:ty, |$s:ident| $socket:expr, $receive:expr, $deadline:ident, $timeout:ident) => {
        impl Receive for $type {
            fn receive(&self) -> Result<(), ErrorKind> {
                let $s = self;
                kind($receive)
            }
            fn deadline(&self, at: Option<Instant>) {
                let $s = self;
                $socket.$deadline(at);
            }
            fn timeout(&self, after: Option<Duration>) {
                let $s = self;
                $socket.$timeout(after).unwrap();
            }
        }
    };
}

receive!((TcpStream, TcpStream), |s| s.0, (&s.0).read(&mut [0; 4]).map(|_| ()), set_read_deadline, set_read_timeout);
receive!((UnixStream, UnixStream), |s| s.0, (&s.0).read(&mut [0; 4]).map(|_| ()), set_deadline, set_read_timeout);
receive!((UnixDatagram, UnixDatagram), |s| s.0, s.0.recv(&mut [0; 4]).map(|_| ()), set_deadline, set_read_timeout);
receive!(UdpSocket, |s| s, s.recv_from(&mut [0; 4]).map(|_| ()), set_read_deadline, set_read_timeout);
receive!(TcpListener, |s| s, s.accept().map(|_| ()), set_deadline, set_timeout);
receive!(UnixListener, |s| s, s.accept().map(|_| ()), set_deadline, set_timeout);

#[test]
fn deadlines_of_receivers() {
    const LATE: Result<(), ErrorKind> = Err(ErrorKind::TimedOut);
    const STD_LATE: Result<(), ErrorKind> = Err(ErrorKind::WouldBlock);
    everywhere("deadlines_of_receivers", || {
        traced("deadlines", || {
            for actor in Actor::BOTH {
                for (name, r) in receivers() {
                    let wait = |r: &Arc<dyn Receive>| {
                        let r = r.clone();
                        actor.start(move || (r.receive(), Instant::now()))
                    };
                    // It has passed, and stays so.
                    r.deadline(Some(Instant::now()));
                    assert_eq!((r.receive(), r.receive()), (LATE, LATE), "{name}");
                    r.deadline(Instant::now().checked_sub(Duration::from_secs(60)));
                    assert_eq!(r.receive(), LATE, "{name}, long past");
                    // One to come.
                    let at = Instant::now() + Duration::from_millis(10);
                    r.deadline(Some(at));
                    let (result, when) = wait(&r).join();
                    assert!(result == LATE && when >= at, "{name}, {actor:?}: {result:?}");
                    // While they wait: set, later, earlier, none, passed.
                    r.deadline(None);
                    let two = [wait(&r), wait(&r)];
                    rt::time::sleep(Duration::from_millis(3));
                    r.deadline(after(60_000));
                    rt::time::sleep(Duration::from_millis(1));
                    r.deadline(after(600_000));
                    rt::time::sleep(Duration::from_millis(1));
                    let later = Instant::now() + Duration::from_millis(20);
                    r.deadline(Some(later));
                    let third = wait(&r);
                    for waiting in two.into_iter().chain([third]) {
                        let (result, when) = waiting.join();
                        assert!(result == LATE && when >= later, "{name}, {actor:?}: {result:?}, moved");
                    }
                    r.deadline(after(600_000));
                    let waiting = wait(&r);
                    rt::time::sleep(Duration::from_millis(1));
                    r.deadline(None);
                    rt::time::sleep(Duration::from_millis(20));
                    r.deadline(Some(Instant::now()));
                    assert_eq!(waiting.join().0, LATE, "{name}, {actor:?}: none, then passed");
                    // With a time-out beside it: the earlier one counts, and each has its error.
                    r.deadline(after(600_000));
                    r.timeout(Some(Duration::from_millis(5)));
                    assert_eq!(
                        (r.receive(), wait(&r).join().0),
                        (STD_LATE, STD_LATE),
                        "{name}: the time-out is earlier"
                    );
                    r.timeout(Some(Duration::from_secs(600)));
                    r.deadline(after(5));
                    assert_eq!((r.receive(), wait(&r).join().0), (LATE, LATE), "{name}: the deadline is earlier");
                    // A time-out counts from the call's beginning, whatever happens to the deadline meanwhile.
                    r.deadline(None);
                    r.timeout(Some(Duration::from_millis(30)));
                    let began = Instant::now();
                    let waiting = wait(&r);
                    for i in 0..10 {
                        rt::time::sleep(Duration::from_millis(1));
                        r.deadline(after(600_000 + i));
                    }
                    let (result, when) = waiting.join();
                    assert!(result == STD_LATE && when >= began + Duration::from_millis(30), "{name}, {actor:?}");
                }
            }
        });
    });
}

/// A deadline of one direction is none of the other's.
#[test]
fn deadlines_have_a_direction() {
    everywhere("deadlines_have_a_direction", || {
        traced("directions", || {
            for actor in Actor::BOTH {
                let (near, far) = tcp();
                let (near, far) = (Arc::new(near), Arc::new(far));
                // A writer that waits, while readers time out.
                let writer = {
                    let near = near.clone();
                    actor.start(move || (&*near).write_all(&vec![5; 16 << 20]).map_err(|e| e.kind()))
                };
                near.set_read_deadline(Some(Instant::now()));
                assert_eq!(kind((&*near).read(&mut [0; 4])), Err(ErrorKind::TimedOut));
                near.set_read_deadline(after(5));
                assert_eq!(kind((&*near).read(&mut [0; 4])), Err(ErrorKind::TimedOut));
                near.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                near.set_read_deadline(None);
                assert_eq!(kind((&*near).read(&mut [0; 4])), Err(ErrorKind::WouldBlock));
                // It has not given up: all of it comes.
                let n = std::io::copy(&mut (&*far).take(16 << 20), &mut std::io::sink()).unwrap();
                assert_eq!((n, writer.join()), (16 << 20, Ok(())));
                // And a reader that waits, while writers time out.
                near.set_read_timeout(None).unwrap();
                let reader = {
                    let near = near.clone();
                    actor.start(move || kind((&*near).read(&mut [0; 4])))
                };
                near.set_write_deadline(after(20));
                let full = loop {
                    if let Err(e) = (&*near).write(&[0; 1 << 16]) {
                        break e.kind();
                    }
                };
                assert_eq!(full, ErrorKind::TimedOut);
                assert_eq!(kind((&*near).write(b"")), Err(ErrorKind::TimedOut), "also when nothing is to be written");
                (&*far).write_all(b"abc").unwrap();
                assert_eq!(reader.join(), Ok(3));
                // Both.
                near.set_deadline(Some(Instant::now()));
                assert_eq!(kind((&*near).read(&mut [0; 4])), Err(ErrorKind::TimedOut));
                assert_eq!(kind((&*near).write(b"x")), Err(ErrorKind::TimedOut));
                near.set_deadline(None);
                std::io::copy(&mut (&*far).take(1), &mut std::io::sink()).unwrap();
            }
            // A datagram to a full queue, of which no poller tells.
            let path = std::env::temp_dir().join(format!("gort-{}-full", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let _bound = UnixDatagram::bind(&path).unwrap();
            let sender = UnixDatagram::unbound().unwrap();
            sender.set_write_deadline(after(30));
            let e = loop {
                if let Err(e) = sender.send_to(b"x", &path) {
                    break e.kind();
                }
            };
            assert_eq!(e, ErrorKind::TimedOut);
            std::fs::remove_file(&path).unwrap();
        });
    });
}

// Many at once.

/// A socket that many take from.
struct Crowded<T, P> {
    name: &'static str,
    /// Takes one thing, a number.
    take: T,
    /// Sends one, and says which.
    put: P,
    /// Gives it a deadline, and a time-out.
    limit: Box<dyn Fn(Option<Instant>) + Send>,
    timeout: Box<dyn Fn(Option<Duration>) + Send>,
}

impl<T, P> Crowded<T, P>
where
    T: Fn() -> Result<u64, ErrorKind> + Send + Sync + 'static,
    P: Fn(u64) -> u64 + Send + 'static,
{
    /// Many take, while limits end their waits and move at random. Each thing is taken once, and nobody sleeps for ever (H4's baton).
    fn stampede(self, takers: usize, n: usize, seed: u64) {
        let Crowded { name, take, put, limit, timeout } = self;
        let take = Arc::new(take);
        // Taken so far, their sum, and waits that ended without.
        let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
        let over = Arc::new(AtomicBool::new(false));
        let all: Vec<_> = (0..takers)
            .map(|i| {
                let (take, counts, over) = (take.clone(), counts.clone(), over.clone());
                let actor = if i % 4 == 3 { Actor::Thread } else { Actor::Goroutine };
                actor.start(move || {
                    while !over.load(SeqCst) {
                        match take() {
                            Ok(value) => {
                                counts[1].fetch_add(value as usize, SeqCst);
                                counts[0].fetch_add(1, SeqCst);
                            }
                            Err(ErrorKind::TimedOut | ErrorKind::WouldBlock) => {
                                counts[2].fetch_add(1, SeqCst);
                                rt::yield_now();
                            }
                            Err(e) => panic!("{name}: {e:?}"),
                        }
                    }
                })
            })
            .collect();
        let mover = {
            let over = over.clone();
            rt::go(move || {
                let mut rng = Rng::new(seed);
                // In the end there is no limit for as long as it takes: then only events end waits.
                while !over.load(SeqCst) {
                    match rng.below(6) {
                        0 => limit(None),
                        1 => limit(Some(Instant::now() + Duration::from_micros(rng.below(3000)))),
                        2 => limit(after(600_000)),
                        3 => timeout(Some(Duration::from_micros(1 + rng.below(2000)))),
                        4 => timeout(None),
                        _ => {
                            limit(Some(Instant::now()));
                            limit(None);
                        }
                    }
                    rt::time::sleep(Duration::from_micros(rng.below(500)));
                }
                limit(None);
                timeout(None);
                (limit, timeout)
            })
        };
        let sent = Arc::new(AtomicUsize::new(0));
        // The second half comes to takers whom nothing but an event wakes.
        let putter = |from: usize, to: usize| {
            let mut rng = Rng::new(seed ^ from as u64);
            for i in from..to {
                sent.fetch_add(put(i as u64) as usize, SeqCst);
                if rng.below(8) == 0 {
                    rt::time::sleep(Duration::from_micros(rng.below(400)));
                }
            }
            wait_for(&format!("{name}: {to} of {n} are taken"), || counts[0].load(SeqCst) == to);
        };
        putter(0, n / 2);
        over.store(true, SeqCst);
        let (limit, _timeout) = mover.join().unwrap();
        over.store(false, SeqCst);
        let in_vain = counts[2].load(SeqCst);
        // Those who saw that it was over are gone: so there are new ones.
        let second: Vec<_> = (0..takers)
            .map(|i| {
                let (take, counts, over) = (take.clone(), counts.clone(), over.clone());
                Actor::mixed(i).start(move || {
                    while !over.load(SeqCst) {
                        match take() {
                            Ok(value) => {
                                counts[1].fetch_add(value as usize, SeqCst);
                                counts[0].fetch_add(1, SeqCst);
                            }
                            Err(ErrorKind::TimedOut) => {}
                            Err(e) => panic!("{name}: {e:?}"),
                        }
                    }
                })
            })
            .collect();
        putter(n / 2, n);
        over.store(true, SeqCst);
        limit(Some(Instant::now()));
        all.into_iter().chain(second).for_each(|t| t.join());
        assert_eq!(counts[1].load(SeqCst), sent.load(SeqCst), "{name}");
        println!("{name}: {n} taken by {takers}, {in_vain} waits in vain");
    }
}

impl<T, P> Crowded<T, P>
where
    T: Fn() -> Result<u64, ErrorKind> + Send + Sync + 'static,
    P: Fn(u64) -> u64,
{
    /// So many things come at once as there are who take one each and no more. One event may tell of all of them, so whoever is woken by
    /// it has to pass it on.
    fn bursts(self, rounds: usize, seed: u64) {
        let Crowded { name, take, put, limit, .. } = self;
        let (take, mut rng) = (Arc::new(take), Rng::new(seed));
        for round in 0..rounds {
            let many = 1 + rng.below(16);
            let takers: Vec<_> = (0..many)
                .map(|i| {
                    let take = take.clone();
                    let actor = if i % 8 == 7 { Actor::Thread } else { Actor::Goroutine };
                    actor.start(move || {
                        loop {
                            match take() {
                                Ok(value) => return value,
                                Err(ErrorKind::TimedOut) => rt::yield_now(),
                                Err(e) => panic!("{name}: {e:?}"),
                            }
                        }
                    })
                })
                .collect();
            rt::time::sleep(Duration::from_micros(rng.below(1000)));
            // Some rounds have limits that end waits, while the things come. In the end nothing but an event does.
            let limits = round % 2 == 1;
            if limits {
                limit(Some(Instant::now() + Duration::from_micros(rng.below(300))));
            }
            let sent: u64 = (0..many).map(&put).sum();
            if limits {
                rt::time::sleep(Duration::from_micros(rng.below(100)));
                limit(Some(Instant::now()));
                limit(None);
            }
            let taken: u64 = takers.into_iter().map(|t| t.join()).sum();
            assert_eq!(taken, sent, "{name}, round {round}");
        }
    }
}

fn crowded_datagrams() -> Crowded<impl Fn() -> Result<u64, ErrorKind>, impl Fn(u64) -> u64> {
    let (a, b) = UnixDatagram::pair().unwrap();
    let b = Arc::new(b);
    let (c, d) = (b.clone(), b.clone());
    Crowded {
        name: "datagrams",
        take: move || {
            let mut buf = [0; 8];
            kind(b.recv(&mut buf)).map(|_| u64::from_ne_bytes(buf))
        },
        put: move |v: u64| {
            assert_eq!(a.send(&v.to_ne_bytes()).unwrap(), 8);
            v
        },
        limit: Box::new(move |at| c.set_read_deadline(at)),
        timeout: Box::new(move |t| d.set_read_timeout(t).unwrap()),
    }
}

fn crowded_udp() -> Crowded<impl Fn() -> Result<u64, ErrorKind>, impl Fn(u64) -> u64> {
    let b = Arc::new(UdpSocket::bind(loopback()).unwrap());
    let a = UdpSocket::bind(loopback()).unwrap();
    a.connect(b.local_addr().unwrap()).unwrap();
    let (c, d) = (b.clone(), b.clone());
    // UDP may lose what does not fit, so few are on their way at once.
    let on_the_way = Arc::new(AtomicUsize::new(0));
    let taken = on_the_way.clone();
    Crowded {
        name: "udp",
        take: move || {
            let mut buf = [0; 8];
            kind(b.recv_from(&mut buf)).map(|_| {
                taken.fetch_sub(1, SeqCst);
                u64::from_ne_bytes(buf)
            })
        },
        put: move |v: u64| {
            wait_for("room for a datagram", || on_the_way.load(SeqCst) < 64);
            on_the_way.fetch_add(1, SeqCst);
            assert_eq!(a.send(&v.to_ne_bytes()).unwrap(), 8);
            v
        },
        limit: Box::new(move |at| c.set_read_deadline(at)),
        timeout: Box::new(move |t| d.set_read_timeout(t).unwrap()),
    }
}

/// Each read takes one byte of several, so an event is for more than one.
fn crowded_bytes() -> Crowded<impl Fn() -> Result<u64, ErrorKind>, impl Fn(u64) -> u64> {
    let (near, far) = tcp();
    near.set_nodelay(true).unwrap();
    let far = Arc::new(far);
    let (c, d) = (far.clone(), far.clone());
    Crowded {
        name: "bytes",
        take: move || {
            let mut buf = [0; 1];
            kind((&*far).read(&mut buf)).map(|n| {
                assert_eq!(n, 1);
                buf[0].into()
            })
        },
        put: move |v: u64| {
            (&near).write_all(&[v as u8]).unwrap();
            u64::from(v as u8)
        },
        limit: Box::new(move |at| c.set_read_deadline(at)),
        timeout: Box::new(move |t| d.set_read_timeout(t).unwrap()),
    }
}

fn crowded_listener() -> Crowded<impl Fn() -> Result<u64, ErrorKind>, impl Fn(u64) -> u64> {
    let listener = Arc::new(TcpListener::bind(loopback()).unwrap());
    let addr = listener.local_addr().unwrap();
    let (c, d) = (listener.clone(), listener.clone());
    Crowded {
        name: "connections",
        take: move || kind(listener.accept()).map(|(_, from)| from.port().into()),
        put: move |_| TcpStream::connect(addr).unwrap().local_addr().unwrap().port().into(),
        limit: Box::new(move |at| c.set_deadline(at)),
        timeout: Box::new(move |t| d.set_timeout(t).unwrap()),
    }
}

#[test]
fn stampede_of_takers() {
    everywhere("stampede_of_takers", || {
        let seed = seed();
        traced("takers", move || {
            for (takers, n) in [(8, scaled(10_000, 2000)), (32, scaled(10_000, 2000))] {
                crowded_datagrams().stampede(takers, n, seed);
                crowded_udp().stampede(takers, n, seed ^ 2);
                crowded_bytes().stampede(takers, n, seed ^ 4);
                crowded_listener().stampede(takers, n / 4, seed ^ 8);
            }
        });
    });
}

#[test]
fn one_event_for_many() {
    everywhere("one_event_for_many", || {
        let seed = seed();
        traced("bursts", move || {
            let rounds = scaled(500, 150);
            crowded_datagrams().bursts(rounds, seed);
            crowded_udp().bursts(rounds, seed ^ 2);
            crowded_bytes().bursts(rounds, seed ^ 4);
            crowded_listener().bursts(rounds, seed ^ 8);
        });
    });
}

/// Many write to one full stream at once: each waits its turn, and all of it arrives.
#[test]
fn stampede_of_writers() {
    everywhere("stampede_of_writers", || {
        traced("writers", || {
            const EACH: usize = 200;
            let (near, far) = UnixStream::pair().unwrap();
            let near = Arc::new(near);
            let writers: Vec<_> = (0..16)
                .map(|i| {
                    let near = near.clone();
                    // A small write to a Unix socket is whole or not at all.
                    Actor::mixed(i).start(move || {
                        for _ in 0..EACH {
                            assert_eq!((&*near).write(&[i as u8; 3000]).unwrap(), 3000);
                        }
                    })
                })
                .collect();
            rt::time::sleep(Duration::from_millis(20));
            let mut counts = [0; 16];
            let mut buf = vec![0; 16 * EACH * 3000];
            (&far).read_exact(&mut buf).unwrap();
            buf.iter().for_each(|b| counts[usize::from(*b)] += 1);
            assert_eq!(counts, [EACH * 3000; 16]);
            writers.into_iter().for_each(|w| w.join());
        });
    });
}

// With the rest of the runtime.

/// Goroutines that cannot leave their thread wait for the network, too: locked to it, or unwinding.
#[test]
fn waits_that_keep_their_thread() {
    struct ReadsInDrop(TcpStream, Arc<AtomicUsize>);

    impl Drop for ReadsInDrop {
        fn drop(&mut self) {
            let tid = common::gettid();
            let n = self.0.read(&mut [0; 8]).unwrap();
            self.1.fetch_add(n, SeqCst);
            assert!(std::thread::panicking());
            assert_eq!(common::gettid(), tid);
        }
    }

    everywhere("waits_that_keep_their_thread", || {
        traced("wired", || {
            let read = Arc::new(AtomicUsize::new(0));
            let mut far_ends = Vec::new();
            let all: Vec<_> = (0..8)
                .map(|i| {
                    let (near, far) = tcp();
                    far_ends.push(far);
                    let guard = ReadsInDrop(near, read.clone());
                    rt::go(move || {
                        if i % 2 == 0 {
                            let _guard = guard;
                            std::panic::resume_unwind(Box::new("on purpose"));
                        }
                        let _locked = rt::lock_os_thread();
                        let tid = common::gettid();
                        let n = (&guard.0).read(&mut [0; 8]).unwrap();
                        guard.1.fetch_add(n, SeqCst);
                        assert_eq!(common::gettid(), tid);
                        std::mem::forget(guard);
                    })
                })
                .collect();
            rt::time::sleep(Duration::from_millis(20));
            assert_eq!(read.load(SeqCst), 0);
            far_ends.iter().for_each(|far| assert_eq!((&*far).write(b"abc").unwrap(), 3));
            let panicked = all.into_iter().filter_map(|g| g.join().err()).count();
            assert_eq!((panicked, read.load(SeqCst)), (4, 24));
        });
    });
}

/// Ps come and go, and with them whoever looks at the network.
#[test]
fn processors_come_and_go() {
    everywhere("processors_come_and_go", || {
        let seed = seed();
        traced("resize", move || {
            let (listener, addr) = echo_server();
            let stop = Arc::new(AtomicBool::new(false));
            let clients: Vec<_> = (0..8)
                .map(|i| {
                    let stop = stop.clone();
                    Actor::mixed(i).start(move || {
                        let stream = TcpStream::connect(addr).unwrap();
                        let mut rounds = 0;
                        while !stop.load(SeqCst) || rounds == 0 {
                            round_trip(&stream, &[i as u8; 10]);
                            rounds += 1;
                            if rounds % 8 == 0 {
                                rt::time::sleep(Duration::from_micros(500));
                            }
                        }
                        rounds
                    })
                })
                .collect();
            let mut rng = Rng::new(seed);
            for _ in 0..scaled(200, 60) {
                rt::set_gomaxprocs(1 + rng.below(8) as usize);
                rt::time::sleep(Duration::from_micros(rng.below(2000)));
            }
            stop.store(true, SeqCst);
            let rounds: usize = clients.into_iter().map(|c| c.join()).sum();
            println!("{rounds} echoes");
            listener.close().unwrap();
        });
    });
}

// Deadlock detection.

fn expect_deadlock(ended: &Ended, name: &str, what: &str) {
    ended.expect_code(2).expect_stderr(&["all goroutines are asleep - deadlock!", what]);
    ended.expect(&format!("{name} has printed what comes before"), ended.stdout.contains("before"));
}

/// Long enough for several looks at an idle scheduler.
const PAUSE: Duration = Duration::from_millis(400);

/// A process in which nobody but a socket's peer can wake anybody: here the peer is another process, which says something at last.
fn waits_for_the_network_only() {
    rt::run(|| {
        let listener = TcpListener::bind(loopback()).unwrap();
        let mut child = start_says_late(listener.local_addr().unwrap());
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert_eq!(text, "late");
        rt::blocking(|| child.wait()).unwrap();
    });
}

/// The same in a thread, while the main goroutine waits for it by a channel.
fn thread_waits_for_the_network_only() {
    let (tx, rx) = rt::chan::bounded(0);
    let listener = TcpListener::bind(loopback()).unwrap();
    let mut child = start_says_late(listener.local_addr().unwrap());
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        tx.send(text).unwrap();
    });
    assert_eq!(rt::run(move || rt::block_on(async move { rx.recv() })).unwrap(), "late");
    thread.join().unwrap();
    child.wait().unwrap();
}

const ADDR: &str = "RT_TEST_ADDR";

/// Starts [`says_late`] in another process.
fn start_says_late(addr: std::net::SocketAddr) -> std::process::Child {
    let mut other = std::process::Command::new(std::env::current_exe().unwrap());
    other.env("RT_TEST_PROGRAM", "says_late").env(ADDR, addr.to_string()).spawn().unwrap()
}

/// Connects, waits, and says "late".
fn says_late() {
    let mut stream = std::net::TcpStream::connect(std::env::var(ADDR).unwrap()).unwrap();
    std::thread::sleep(2 * PAUSE);
    stream.write_all(b"late").unwrap();
}

/// The one who waits for the network gives up; then nobody is left.
fn nobody_is_left_to_write() {
    rt::run(|| {
        let (near, far) = tcp();
        let reader = rt::Builder::new().name("reader").spawn(move || {
            near.set_read_deadline(after(PAUSE.as_millis() as u64));
            let e = (&near).read(&mut [0; 4]).unwrap_err();
            println!("before: {e}");
            rt::chan::never::<()>().recv().unwrap();
        });
        reader.unwrap().join().unwrap();
        drop(far);
    });
}

fn the_socket_is_there_but_nobody_waits() {
    rt::run(|| {
        let listener = TcpListener::bind(loopback()).unwrap();
        println!("before");
        rt::chan::never::<()>().recv().unwrap();
        drop(listener);
    });
}

/// The socket on which a thread waits is closed by the last goroutine that runs. The thread then waits for ever, too.
fn thread_waits_and_then_nobody() {
    let listener = Arc::new(TcpListener::bind(loopback()).unwrap());
    let (l, (tx, rx)) = (listener.clone(), rt::chan::bounded::<()>(0));
    let _thread = std::thread::spawn(move || {
        assert!(is_closed(&l.accept()));
        println!("before: closed");
        rx.recv().unwrap();
    });
    rt::run(move || {
        rt::time::sleep(PAUSE);
        listener.close().unwrap();
        rt::chan::never::<()>().recv().unwrap();
    });
    drop(tx);
}

#[test]
fn who_waits_for_the_network_is_not_deadlocked() {
    for env in common::CONFIGURATIONS {
        for name in ["waits_for_the_network_only", "thread_waits_for_the_network_only"] {
            program(name, env).expect_no_stderr("deadlock").expect_code(0);
        }
        for name in ["nobody_is_left_to_write", "the_socket_is_there_but_nobody_waits", "thread_waits_and_then_nobody"]
        {
            expect_deadlock(&program(name, env), name, "goroutine ");
        }
    }
}

// Threads, and the runtime's beginning.

fn made_outside_used_inside() {
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    let outside = std::net::TcpStream::connect(addr).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let (stream, far) = rt::run(move || {
        let (stream, _) = listener.accept().unwrap();
        let reader = rt::go(move || {
            let mut buf = [0; 5];
            (&near).read_exact(&mut buf).unwrap();
            buf
        });
        rt::time::sleep(Duration::from_millis(20));
        (&far).write_all(b"hello").unwrap();
        assert_eq!(&reader.join().unwrap(), b"hello");
        (stream, far)
    });
    // What was made inside, outside again.
    let reader = std::thread::spawn(move || {
        let mut buf = [0; 2];
        (&stream).read_exact(&mut buf).unwrap();
        buf
    });
    std::thread::sleep(Duration::from_millis(50));
    (&outside).write_all(b"ab").unwrap();
    assert_eq!(&reader.join().unwrap(), b"ab");
    assert_eq!((&far).read(&mut [0; 4]).unwrap(), 0);
    assert!(format!("{far:?}").contains("UnixStream"));
}

/// Nobody calls `rt::run`, and there is no goroutine.
fn used_by_threads_only() {
    // RT_TRACE is for a run, and there is none.
    let trace = std::fs::File::create(std::env::var_os("RT_TRACE").unwrap()).unwrap();
    let listener = TcpListener::bind(loopback()).unwrap();
    let addr = listener.local_addr().unwrap();
    // The first wait starts the runtime.
    let first_wait = std::thread::spawn(move || (listener.accept().unwrap().0, listener));
    std::thread::sleep(Duration::from_millis(10));
    let stream = TcpStream::connect(addr).unwrap();
    let (accepted, listener) = first_wait.join().unwrap();
    rt::trace::start(trace).unwrap();
    let pair = std::thread::spawn(move || round_trip(&stream, b"first"));
    let mut buf = [0; 5];
    (&accepted).read_exact(&mut buf).unwrap();
    (&accepted).write_all(&buf).unwrap();
    pair.join().unwrap();
    let server = std::thread::spawn(move || {
        for stream in listener.into_incoming().take(8) {
            let stream = stream.unwrap();
            std::thread::spawn(move || echo(&stream));
        }
    });
    let clients: Vec<_> = (0..8u8)
        .map(|i| {
            std::thread::spawn(move || {
                let stream = TcpStream::connect(addr).unwrap();
                for round in 0..100 {
                    round_trip(&stream, &[i, round]);
                }
                stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                assert_eq!(kind((&stream).read(&mut [0; 4])), Err(ErrorKind::WouldBlock));
                stream.set_read_deadline(after(5));
                assert_eq!(kind((&stream).read(&mut [0; 4])), Err(ErrorKind::TimedOut));
            })
        })
        .collect();
    clients.into_iter().for_each(|c| c.join().unwrap());
    server.join().unwrap();
    rt::trace::stop().unwrap();
}

#[test]
fn threads_and_the_beginning() {
    for env in common::CONFIGURATIONS {
        for name in ["made_outside_used_inside", "used_by_threads_only"] {
            let path = common::scratch_file("net-beginning.trace");
            // Of the first, the run alone is traced.
            program(name, &[env, &[("RT_TRACE", path.to_str().unwrap())]].concat())
                .expect_code(0)
                .expect_no_stderr("deadlock");
            common::judge(name, &std::fs::read(&path).unwrap());
            std::fs::remove_file(path).unwrap();
        }
    }
}

// What a trace shows.

#[inline(never)]
fn waits_for_a_byte(stream: &TcpStream) {
    let mut buf = [0];
    let n = (&*stream).read(&mut buf).unwrap();
    assert_eq!(std::hint::black_box(n), 1);
}

/// Looks at the network that a trace tells of, and how many goroutines they made runnable.
fn looks(trace: &[u8]) -> (usize, usize) {
    let mut reader = Reader::new(trace).unwrap();
    let (mut generation, mut looks, mut readied) = (0, 0, 0);
    while let Some(e) = reader.next() {
        e.unwrap();
        if std::mem::replace(&mut generation, reader.generation().number) == generation {
            continue;
        }
        for r in reader.tables().ext_records() {
            if let Some(Record::Netpoll { events, goroutines, .. }) = r.unwrap().record {
                assert!(events > 0 && goroutines > 0);
                (looks, readied) = (looks + 1, readied + goroutines as usize);
            }
        }
    }
    (looks, readied)
}

#[test]
fn a_wait_is_in_the_trace() {
    everywhere("a_wait_is_in_the_trace", || {
        const WAITS: usize = 50;
        let (id, trace) = traced("waits", || {
            let (near, far) = tcp();
            let (tx, rx) = rt::chan::bounded(0);
            let reader = rt::Builder::new().name("reader").spawn(move || {
                for _ in 0..WAITS {
                    tx.send(()).unwrap();
                    waits_for_a_byte(&near);
                }
            });
            let reader = reader.unwrap();
            let id = reader.id().to_string().parse::<u64>().unwrap();
            for _ in 0..WAITS {
                rx.recv().unwrap();
                // The reader has begun to wait, or else the write finds that it has not yet.
                rt::time::sleep(Duration::from_millis(1));
                (&far).write_all(b"x").unwrap();
            }
            reader.join().unwrap();
            id
        });
        let (mut blocked, mut unblocked, mut waiting) = (0, 0, false);
        events(&trace, |e, tables| match e.kind {
            Ev::GoBlock if e.g == id as i64 && e.text(tables).is_some_and(|t| t == reason::NETWORK) => {
                let mut frames = tables.stack(e.stack());
                assert!(frames.any(|f| f.func.contains("waits_for_a_byte")), "the stack has our call site");
                (blocked, waiting) = (blocked + 1, true);
            }
            Ev::GoUnblock if e.args[0] == id || e.args[1] == id => {
                unblocked += usize::from(std::mem::take(&mut waiting));
            }
            _ => {}
        });
        assert!(blocked >= WAITS / 2, "{blocked} waits");
        assert_eq!(blocked, unblocked);
        let (polls, readied) = looks(&trace);
        println!("{blocked} waits, {polls} polls with {readied} goroutines");
        assert!(readied >= blocked, "each was readied by a look that is on record");
    });
}

/// All Ps are busy with plain code, without end: sysmon is who looks.
#[test]
fn busy_processors() {
    if !common::is_child("busy_processors") {
        return common::child_passes("busy_processors", &[("GOMAXPROCS", "4")]);
    }
    let ((), trace) = traced("busy", || {
        let (listener, addr) = echo_server();
        let stop = Arc::new(AtomicBool::new(false));
        let group = WaitGroup::new();
        for _ in 0..4 {
            let stop = stop.clone();
            group.go(move || {
                while !stop.load(SeqCst) {
                    std::hint::spin_loop();
                }
            });
        }
        let mut took: Vec<Duration> = (0..scaled(60, 20))
            .map(|i| {
                let began = Instant::now();
                let stream = TcpStream::connect(addr).unwrap();
                round_trip(&stream, &[i as u8; 100]);
                began.elapsed()
            })
            .collect();
        stop.store(true, SeqCst);
        group.wait();
        listener.close().unwrap();
        took.sort();
        println!("dial and echo beside 4 loops: p50 {:?}, p99 {:?}", took[took.len() / 2], took[took.len() * 99 / 100]);
    });
    let (looks, readied) = looks(&trace);
    println!("{looks} looks made {readied} goroutines runnable");
    assert!(readied > 0, "whoever looks says so, also sysmon");
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
