//! The soak: echoes, connections that come and go, deadlines, cancelled contexts and closes, all at once and for long. After each round
//! nothing may be left: no descriptor, no goroutine, no memory; and its trace must be good. The last trace stays in cargo's folder for
//! tests, where the conformance checks find it.
//!
//! `RT_SOAK_SECONDS` sets for how long (then in one process, with its environment); otherwise it is five seconds, divided among three
//! numbers of Ps.
#![cfg(unix)]

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::sockets::{echo, goroutines, is_closed, loopback, open_descriptors, reset_on_close, tcp};
use common::{Actor, Buffer, Rng, child_passes, is_child, judge, memory_kib, seed, wait_for};
use rt::context::Context;
use rt::net::{Closed, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use rt::sync::WaitGroup;

/// How long a round is.
const ROUND: Duration = Duration::from_millis(800);
const ACCEPTORS: usize = 4;

/// What was done in a round.
#[derive(Default, Debug)]
struct Counts {
    echoes: AtomicU64,
    connections: AtomicU64,
    datagrams: AtomicU64,
    timed_out: AtomicU64,
    cancelled: AtomicU64,
    closed: AtomicU64,
}

struct Round {
    over: AtomicBool,
    counts: Counts,
    /// Where somebody echoes, and where somebody accepts and says nothing.
    echoes: SocketAddr,
    silence: SocketAddr,
    unix: PathBuf,
    udp: SocketAddr,
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Relaxed);
}

/// What a connection of a round may end with.
#[track_caller]
fn expect_end(e: &std::io::Error) {
    let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof, ErrorKind::NotConnected];
    assert!(Closed::is(e) || kinds.contains(&e.kind()), "{e}");
}

impl Round {
    fn goes_on(&self) -> bool {
        !self.over.load(Relaxed)
    }

    /// Talks over one connection for as long as the round goes on.
    #[inline(never)]
    fn talk(&self, mut stream: impl Read + Write, rng: &mut Rng) {
        let (mut out, mut back) = (vec![0; 1 << 14], vec![0; 1 << 14]);
        while self.goes_on() {
            let n = 1 + if rng.below(8) == 0 { rng.below(1 << 14) } else { rng.below(200) } as usize;
            out[..n].fill(rng.next() as u8);
            stream.write_all(&out[..n]).unwrap();
            stream.read_exact(&mut back[..n]).unwrap();
            assert!(out[..n] == back[..n]);
            add(&self.counts.echoes);
            if rng.below(4) == 0 {
                rt::time::sleep(Duration::from_micros(rng.below(2000)));
            }
        }
    }

    /// Connections that come and go, and end in all ways.
    #[inline(never)]
    fn churn(&self, rng: &mut Rng) {
        while self.goes_on() {
            let stream = TcpStream::connect(self.echoes).unwrap();
            let text = [rng.next() as u8; 32];
            common::sockets::round_trip(&stream, &text[..1 + rng.below(32) as usize]);
            add(&self.counts.connections);
            match rng.below(4) {
                0 => {
                    stream.shutdown(Shutdown::Write).unwrap();
                    assert_eq!((&stream).read(&mut [0; 4]).unwrap(), 0);
                }
                1 => stream.close().unwrap(),
                2 => reset_on_close(&stream),
                _ => {
                    (&stream).write_all(b"never read").unwrap();
                    reset_on_close(&stream);
                }
            }
            drop(stream);
            rt::time::sleep(Duration::from_micros(rng.below(3000)));
        }
    }

    /// Waits that end by a deadline.
    #[inline(never)]
    fn time_out(&self, rng: &mut Rng) {
        let stream = TcpStream::connect(self.silence).unwrap();
        while self.goes_on() {
            let limit = Duration::from_micros(rng.below(3000));
            let expected = if rng.below(2) == 0 {
                stream.set_read_timeout(None).unwrap();
                stream.set_read_deadline(Some(Instant::now() + limit));
                ErrorKind::TimedOut
            } else {
                stream.set_read_deadline(None);
                stream.set_read_timeout(Some(limit + Duration::from_nanos(1))).unwrap();
                ErrorKind::WouldBlock
            };
            assert_eq!((&stream).read(&mut [0; 4]).unwrap_err().kind(), expected);
            add(&self.counts.timed_out);
        }
    }

    /// Waits that end since a context is cancelled: by a close, or by a deadline that has passed.
    #[inline(never)]
    fn cancel(&self, rng: &mut Rng) {
        while self.goes_on() {
            let stream = Arc::new(TcpStream::connect(self.silence).unwrap());
            let (context, cancel) = Context::background().with_timeout(Duration::from_micros(rng.below(4000)));
            let (closes, other, done) = (rng.below(2) == 0, stream.clone(), context.clone());
            let watcher = rt::go(move || {
                let _ = done.done().recv();
                if closes { other.close().unwrap() } else { other.set_deadline(Some(Instant::now())) }
            });
            if rng.below(3) == 0 {
                rt::go(move || cancel.cancel());
            }
            let result = (&*stream).read(&mut [0; 4]);
            let as_it_should = is_closed(&result) || result.unwrap_err().kind() == ErrorKind::TimedOut;
            assert!(as_it_should && context.err().is_some());
            watcher.join().unwrap();
            add(&self.counts.cancelled);
        }
    }

    /// Several wait for one socket, which is then closed.
    #[inline(never)]
    fn close_under_waiters(&self, rng: &mut Rng) {
        while self.goes_on() {
            let (a, b) = UnixDatagram::pair().unwrap();
            let a = Arc::new(a);
            let waiters: Vec<_> = (0..3)
                .map(|_| {
                    let a = a.clone();
                    rt::go(move || while a.recv(&mut [0; 8]).is_ok() {})
                })
                .collect();
            for _ in 0..rng.below(4) {
                b.send(b"x").unwrap();
            }
            rt::time::sleep(Duration::from_micros(rng.below(1000)));
            a.close().unwrap();
            waiters.into_iter().for_each(|w| w.join().unwrap());
            add(&self.counts.closed);
        }
    }

    #[inline(never)]
    fn ping(&self, rng: &mut Rng) {
        let socket = UdpSocket::bind(loopback()).unwrap();
        socket.connect(self.udp).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let mut buf = [0; 8];
        while self.goes_on() {
            let number = rng.next();
            socket.send(&number.to_ne_bytes()).unwrap();
            // One may be lost, or come late.
            while let Ok(n) = socket.recv(&mut buf) {
                assert_eq!(n, 8);
                add(&self.counts.datagrams);
                if buf == number.to_ne_bytes() {
                    break;
                }
            }
            rt::time::sleep(Duration::from_micros(rng.below(500)));
        }
    }
}

#[inline(never)]
fn serve_tcp(listener: &TcpListener, group: &WaitGroup) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => {
                group.go(move || {
                    if let Err(e) = echo(&stream) {
                        expect_end(&e);
                    }
                });
            }
            Err(e) => return assert!(Closed::is(&e), "{e}"),
        }
    }
}

#[inline(never)]
fn serve_unix(listener: &UnixListener, group: &WaitGroup) {
    for stream in listener {
        match stream {
            Ok(mut stream) => {
                group.go(move || {
                    let mut buf = [0; 1000];
                    while let Ok(n @ 1..) = stream.read(&mut buf) {
                        if let Err(e) = stream.write_all(&buf[..n]) {
                            return expect_end(&e);
                        }
                    }
                });
            }
            Err(e) => return assert!(Closed::is(&e), "{e}"),
        }
    }
}

#[inline(never)]
fn serve_silence(listener: &TcpListener) {
    // Kept until the end.
    let streams: Vec<_> = listener.incoming().map_while(Result::ok).collect();
    drop(streams);
}

#[inline(never)]
fn serve_udp(socket: &UdpSocket) {
    let mut buf = [0; 100];
    loop {
        match socket.recv_from(&mut buf) {
            Ok((n, from)) => _ = socket.send_to(&buf[..n], from),
            Err(e) if Closed::is(&e) => return,
            Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionRefused, "{e}"),
        }
    }
}

/// Everything at once, until the time is over and everybody is gone.
fn round(seed: u64, length: Duration) -> Counts {
    let (servers, clients) = (WaitGroup::new(), WaitGroup::new());
    let path = std::env::temp_dir().join(format!("gort-soak-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let tcp = Arc::new(TcpListener::bind(loopback()).unwrap());
    let silence = Arc::new(TcpListener::bind(loopback()).unwrap());
    let unix = Arc::new(UnixListener::bind(&path).unwrap());
    let udp = Arc::new(UdpSocket::bind(loopback()).unwrap());
    let round = Arc::new(Round {
        over: AtomicBool::new(false),
        counts: Counts::default(),
        echoes: tcp.local_addr().unwrap(),
        silence: silence.local_addr().unwrap(),
        unix: path.clone(),
        udp: udp.local_addr().unwrap(),
    });
    for _ in 0..ACCEPTORS {
        let (tcp, group) = (tcp.clone(), servers.clone());
        servers.go(move || serve_tcp(&tcp, &group));
        let udp = udp.clone();
        servers.go(move || serve_udp(&udp));
    }
    let (u, group) = (unix.clone(), servers.clone());
    servers.go(move || serve_unix(&u, &group));
    let s = silence.clone();
    servers.go(move || serve_silence(&s));

    type Work = fn(&Round, &mut Rng);
    let work: [(usize, Work); 7] = [
        (12, |r, rng| r.talk(TcpStream::connect(r.echoes).unwrap(), rng)),
        (4, |r, rng| r.talk(UnixStream::connect(&r.unix).unwrap(), rng)),
        (8, Round::churn),
        (6, Round::time_out),
        (6, Round::cancel),
        (3, Round::close_under_waiters),
        (3, Round::ping),
    ];
    let mut threads = Vec::new();
    for (kind, (many, work)) in work.into_iter().enumerate() {
        for i in 0..many {
            let round = round.clone();
            let mut rng = Rng::new(seed ^ (kind * 100 + i) as u64);
            if i == 0 {
                threads.push(Actor::Thread.start(move || work(&round, &mut rng)));
            } else {
                clients.go(move || work(&round, &mut rng));
            }
        }
    }
    rt::time::sleep(length);
    round.over.store(true, Relaxed);
    clients.wait();
    threads.into_iter().for_each(|t| t.join());
    tcp.close().unwrap();
    silence.close().unwrap();
    unix.close().unwrap();
    udp.close().unwrap();
    servers.wait();
    std::fs::remove_file(path).unwrap();
    Arc::try_unwrap(round).ok().expect("everybody is gone").counts
}

fn soak(time: Duration) {
    // Otherwise each of glibc's arenas keeps what it has had of traces at most, in pieces.
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: takes two numbers.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    let seed = seed();
    let rounds = 1 + (time.as_secs_f64() / ROUND.as_secs_f64()).ceil() as u64;
    let mut first = None;
    let mut last = Vec::new();
    for n in 0..rounds {
        let buffer = Buffer::default();
        let out = buffer.clone();
        let counts = rt::run(move || {
            if n == 0 {
                // The one descriptor that the first close() opens.
                tcp().0.close().unwrap();
            }
            rt::trace::start(out).expect("tracing starts");
            let counts = round(seed ^ n << 16, ROUND);
            rt::trace::stop().expect("tracing stops");
            counts
        });
        last = buffer.take();
        judge(&format!("net soak, round {n}"), &last);
        let now = (open_descriptors(), goroutines(), memory_kib("VmRSS"));
        println!("round {n}: {counts:?}, {} KiB of trace; descriptors, goroutines, KiB: {now:?}", last.len() >> 10);
        let all = [&counts.echoes, &counts.connections, &counts.timed_out, &counts.cancelled, &counts.closed];
        assert!(all.iter().all(|c| c.load(Relaxed) > 0), "somebody has done nothing");
        let Some((descriptors, goroutines_before, kib)) = first else {
            first = Some(now);
            continue;
        };
        wait_for("all descriptors are closed", || open_descriptors() <= descriptors);
        wait_for("all goroutines are gone", || goroutines() <= goroutines_before);
        // Traces are of different sizes, and come and go in memory.
        assert!(now.2 <= kib + kib / 2 + (24 << 10), "{} KiB after round {n}, {kib} after the first", now.2);
    }
    let file = common::keep(&format!("net-soak-p{}.trace", rt::gomaxprocs()), &last);
    println!("kept {}", file.display());
}

#[test]
fn stress_soak() {
    if let Some(seconds) = std::env::var("RT_SOAK_SECONDS").ok().filter(|_| !is_child("stress_soak")) {
        return soak(Duration::from_secs(seconds.parse().expect("RT_SOAK_SECONDS: want a number")));
    }
    if is_child("stress_soak") {
        return soak(Duration::from_secs(5) / 3);
    }
    for procs in ["1", "2", "8"] {
        child_passes("stress_soak", &[("GOMAXPROCS", procs)]);
    }
}
