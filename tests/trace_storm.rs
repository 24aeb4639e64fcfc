//! The storm of traces: 200 goroutines do everything, while streams and flight recorders of 1 to 50 ms come and go, one over the other.
//!
//! Every file must pass the checker, and so must each of its generations taken alone, in which everybody who lives is
//! named, with their labels. Some are left in cargo's folder for files of tests, where `cargo xtask conformance` finds them and gives them
//! to Go's reader.
//!
//! `RT_STORM_ROUNDS` sets how many rounds there are (then in this process, with its environment), `RT_SEED` repeats a run.

mod common;

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::alone::judge_alone;
use common::{Buffer, Rng, judge};
use rt::Context;
use rt::chan::{Receiver, Sender, bounded};
use rt::net::{TcpListener, TcpStream};
use rt::sync::{Mutex, WaitGroup};
use rt::trace::{self, FlightRecorder, Options, Stream, Task};

const GOROUTINES: u64 = 200;
/// How many of them have a connection.
const CONNECTIONS: u64 = 16;
/// Traces that a process leaves for Go's reader, and how large one may be.
const SAMPLES: u64 = 6;
const SAMPLE_BYTES: usize = 4 << 20;

struct Sea {
    stop: AtomicBool,
    channels: [(Sender<u64>, Receiver<u64>); 2],
    locks: [Mutex<u64>; 2],
    /// The longest that the ticking goroutine was late since somebody has asked.
    late_ns: AtomicU64,
    ticks: AtomicU64,
}

/// One thing that the runtime can do.
fn turn(sea: &Arc<Sea>, rng: &mut Rng, connection: &mut Option<TcpStream>) {
    let us = rng.below(1000);
    let short = Duration::from_micros(us);
    let [(tx, rx), (other_tx, other_rx)] = &sea.channels;
    match rng.below(14) {
        0 => drop(tx.send_timeout(us, short)),
        1 => drop(rx.recv_timeout(short).ok()),
        2 => rt::select! {
            recv(rx) -> _ => (),
            send(other_tx, us) -> _ => (),
            default(short) => (),
        },
        3 => rt::select! {
            recv(other_rx) -> _ => (),
            default => (),
        },
        4 => {
            let mut v = sea.locks[rng.below(2) as usize].lock();
            *v += 1;
            if us < 200 {
                rt::yield_now();
            }
        }
        5 => rt::time::sleep(short),
        6 => drop(rt::time::after(short).recv()),
        7 => rt::blocking(|| std::thread::sleep(short)),
        8 => {
            let Some(c) = connection else { return rt::yield_now() };
            let mut back = [0; 8];
            c.write_all(&us.to_le_bytes()).unwrap();
            c.read_exact(&mut back).unwrap();
            assert_eq!(u64::from_le_bytes(back), us);
        }
        9 => {
            let (ctx, task) = Task::begin(&Context::background(), "task");
            let outer = trace::region(&ctx, "outer");
            let child = rt::go({
                let ctx = ctx.clone();
                move || trace::with_region(&ctx, "in a child", rt::yield_now)
            });
            trace::with_region(&ctx, "inner", || trace::log(&ctx, "n", us));
            child.join().unwrap();
            if us < 500 {
                drop(outer);
            }
            task.end();
        }
        10 => {
            let n = 1 + rng.below(3) as usize;
            let mut values = [0; 3];
            rt::scope(|s| {
                for v in &mut values[..n] {
                    s.go(|| {
                        rt::yield_now();
                        *v = 1;
                    });
                }
            });
            assert_eq!(values.iter().sum::<usize>(), n);
        }
        11 => rt::goroutine::with_labels(&[("us", &us.to_string())], || {
            rt::time::sleep(short);
            rt::go(rt::yield_now).join().unwrap();
        }),
        12 => drop(rt::Builder::new().name(format!("named {}", us % 7)).spawn(rt::yield_now).unwrap().join()),
        _ => common::busy(short / 4),
    }
}

fn echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    rt::go(move || {
        while let Ok((mut c, _)) = listener.accept() {
            rt::go(move || {
                let mut bytes = [0; 8];
                while c.read_exact(&mut bytes).is_ok() && c.write_all(&bytes).is_ok() {}
            });
        }
    });
    address
}

/// What starting and stopping cost.
#[derive(Default)]
struct Costs {
    slowest_stop: Duration,
    stalls: Vec<u64>,
}

impl Costs {
    /// Does something, and remembers by how much the ticking goroutine was late meanwhile.
    fn stalling<T>(&mut self, sea: &Sea, f: impl FnOnce() -> T) -> T {
        sea.late_ns.store(0, Relaxed);
        let value = f();
        let ticks = sea.ticks.load(Relaxed);
        while sea.ticks.load(Relaxed) < ticks + 2 && !sea.stop.load(Relaxed) {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.stalls.push(sea.late_ns.load(Relaxed));
        value
    }

    fn stopping<T>(&mut self, sea: &Sea, f: impl FnOnce() -> T) -> T {
        let (value, took) = self.stalling(sea, || {
            let began = Instant::now();
            (f(), began.elapsed())
        });
        self.slowest_stop = self.slowest_stop.max(took);
        value
    }

    /// The median and the 99th percentile of the stalls.
    fn stalls(&mut self) -> [Duration; 2] {
        self.stalls.sort_unstable();
        [50, 99].map(|percent| Duration::from_nanos(self.stalls[(self.stalls.len() - 1) * percent / 100]))
    }
}

fn storm(seed: u64, rounds: u64) {
    let sea = Arc::new(Sea {
        stop: AtomicBool::new(false),
        channels: [bounded(0), bounded(4)],
        locks: Default::default(),
        late_ns: AtomicU64::new(0),
        ticks: AtomicU64::new(0),
    });
    let wg = WaitGroup::new();
    let address = rt::go(echo).join().unwrap();
    for i in 0..GOROUTINES {
        let sea = sea.clone();
        wg.go(move || {
            let mut rng = Rng::new(seed ^ i);
            let mut connection = (i < CONNECTIONS).then(|| TcpStream::connect(address).unwrap());
            let body = |connection: &mut _, rng: &mut _| {
                while !sea.stop.load(Relaxed) {
                    turn(&sea, rng, connection);
                }
            };
            if i % 5 == 0 {
                rt::goroutine::with_labels(&[("i", &i.to_string())], || body(&mut connection, &mut rng));
            } else {
                body(&mut connection, &mut rng);
            }
        });
    }
    {
        let sea = sea.clone();
        wg.go(move || {
            let mut last = Instant::now();
            while !sea.stop.load(Relaxed) {
                rt::time::sleep(Duration::from_millis(1));
                let now = Instant::now();
                let late = (now - last).saturating_sub(Duration::from_millis(1));
                sea.late_ns.fetch_max(late.as_nanos() as u64, Relaxed);
                sea.ticks.fetch_add(1, Relaxed);
                last = now;
            }
        });
    }
    let mut rng = Rng::new(seed ^ 77);
    let (mut costs, mut quiet) = (Costs::default(), Costs::default());
    let (mut files, mut alone, mut bytes, mut samples) = (0u64, 0, 0, 0);
    let procs = rt::gomaxprocs();
    for round in 0..rounds {
        let mut done: Vec<Vec<u8>> = Vec::new();
        let length = |rng: &mut Rng| Duration::from_millis(1 + rng.below(50));
        let buffers = [Buffer::default(), Buffer::default()];
        // One or two streams, a recorder or none, and something for them to begin and end over.
        let kind = rng.below(4);
        // Sometimes everybody wants labelled goroutines only, and some want no short calls.
        let few = rng.below(4) == 0;
        let mut options = || Options::new().only_labelled(few).syscalls(rng.below(2) == 0);
        let [of_first, of_second, of_recorder] = [options(), options(), options()];
        let first = costs.stalling(&sea, || Stream::start_with(buffers[0].clone(), of_first).unwrap());
        std::thread::sleep(length(&mut rng));
        let recorder = FlightRecorder::new().options(of_recorder);
        if kind & 1 != 0 {
            costs.stalling(&sea, || recorder.start().unwrap());
        }
        let second = (kind & 2 != 0)
            .then(|| costs.stalling(&sea, || Stream::start_with(buffers[1].clone(), of_second).unwrap()));
        if rng.below(8) == 0 {
            rt::set_gomaxprocs(1 + rng.below(8) as usize);
        }
        std::thread::sleep(length(&mut rng));
        if rng.below(2) == 0 {
            costs.stopping(&sea, || first.stop().unwrap());
        } else {
            // By a goroutine.
            costs.stopping(&sea, || rt::go(|| first.stop().unwrap()).join().unwrap());
        }
        done.push(buffers[0].take());
        if kind & 1 != 0 {
            for _ in 0..1 + rng.below(3) {
                std::thread::sleep(length(&mut rng) / 4);
                let mut snapshot = Vec::new();
                recorder.snapshot(&mut snapshot).unwrap();
                done.push(snapshot);
            }
            costs.stopping(&sea, || recorder.stop());
        }
        rt::set_gomaxprocs(procs);
        if let Some(second) = second {
            costs.stopping(&sea, || second.stop().unwrap());
            done.push(buffers[1].take());
        }
        quiet.stalling(&sea, || std::thread::sleep(Duration::from_millis(3)));
        for (i, trace) in done.iter().enumerate() {
            let what = format!("trace storm seed {seed} round {round} file {i}");
            judge(&what, trace);
            alone += judge_alone(&what, trace);
            files += 1;
            bytes += trace.len();
        }
        // From all over the run, and of all kinds.
        let due = samples * rounds / SAMPLES <= round;
        if due && samples < SAMPLES && done.iter().all(|t| t.len() <= SAMPLE_BYTES) {
            samples += 1;
            let last = done.last().expect("there is one");
            common::keep(&format!("trace-storm/p{procs}-{samples}.trace"), last);
        }
    }
    sea.stop.store(true, Relaxed);
    wg.wait();
    let ([median, p99], [quiet_median, quiet_p99]) = (costs.stalls(), quiet.stalls());
    println!(
        "trace storm: GOMAXPROCS={procs} {:?}: {rounds} rounds, {files} files, {alone} generations, {bytes} bytes; slowest stop {:?}",
        tracer::barrier::kind(),
        costs.slowest_stop
    );
    println!(
        "a tick was late by (median, p99) {median:?}, {p99:?} at a start or stop, {quiet_median:?}, {quiet_p99:?} otherwise"
    );
}

#[test]
fn stress_trace_storm() {
    if let Some(rounds) = std::env::var("RT_STORM_ROUNDS").ok().and_then(|s| s.parse().ok()) {
        return storm(common::seed(), rounds);
    }
    if common::is_child("stress_trace_storm") {
        return storm(common::seed(), common::scaled(12, 2) as u64);
    }
    for procs in ["1", "2", "8"] {
        common::child_passes("stress_trace_storm", &[("GOMAXPROCS", procs)]);
    }
}
