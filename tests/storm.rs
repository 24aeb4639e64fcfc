//! The storm: 200 goroutines and some threads do everything the runtime can, while tracing is started and stopped at random
//! moments. Every trace must be accepted by our reader and validator; with `RT_STORM_DIR` they are kept, so that Go's
//! reader can look at them too.
//!
//! `RT_STORM_ROUNDS` sets how many traces are made (default 12 per process), `RT_SEED` repeats a run.

mod common;

#[cfg(unix)]
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use common::{Buffer, Rng, judge};
use rt::chan::{Receiver, Sender, bounded, unbounded};
use rt::sync::{Mutex, WaitGroup};

const GOROUTINES: u64 = 200;

struct Sea {
    stop: AtomicBool,
    turns: AtomicU64,
    rendezvous: (Sender<u64>, Receiver<u64>),
    buffered: (Sender<u64>, Receiver<u64>),
    endless: (Sender<u64>, Receiver<u64>),
    locks: [Mutex<u64>; 3],
}

rt::goroutine_local! {
    static OWN: std::cell::RefCell<Vec<String>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn busy(us: u64) {
    let until = Instant::now() + Duration::from_micros(us);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// One thing that the runtime can do.
fn turn(sea: &Arc<Sea>, rng: &mut Rng, on_goroutine: bool) {
    sea.turns.fetch_add(1, Relaxed);
    match rng.below(21) {
        0 => drop(sea.rendezvous.0.try_send(1)),
        1 => drop(sea.rendezvous.1.try_recv()),
        2 => drop(sea.buffered.0.send(2)),
        3 => drop(sea.buffered.1.try_recv()),
        4 => drop(sea.endless.0.send(3)),
        5 => drop(sea.endless.1.try_iter().take(5).count()),
        6 => {
            let mut v = sea.locks[rng.below(3) as usize].lock();
            *v += 1;
            if rng.below(4) == 0 {
                rt::yield_now();
            }
        }
        7 => rt::time::sleep(Duration::from_micros(rng.below(3000))),
        8 => {
            let us = rng.below(2000);
            rt::blocking(|| std::thread::sleep(Duration::from_micros(us)));
        }
        9 => rt::yield_now(),
        10 => {
            let wg = WaitGroup::new();
            for _ in 0..rng.below(4) {
                wg.go(rt::yield_now);
            }
            wg.wait();
        }
        11 => {
            let h = rt::go(|| std::panic::resume_unwind(Box::new("storm")));
            if on_goroutine {
                assert!(h.join().is_err());
            }
        }
        12 => {
            let (tx, rx) = bounded::<u64>(0);
            let n = rng.below(4);
            rt::go(move || (0..n).try_for_each(|i| tx.send(i)));
            assert_eq!(rx.iter().count() as u64, n);
        }
        13 => {
            let named =
                rt::Builder::new().name(format!("named {}", rng.below(20))).stack_size(rng.below(1 << 20) as usize);
            let h = named.spawn(|| 1).unwrap();
            assert_eq!(h.join().unwrap(), 1);
        }
        14 => {
            // Nested: a blocking call that uses the runtime.
            let sea = sea.clone();
            rt::blocking(move || {
                *sea.locks[0].lock() += 1;
                rt::yield_now();
            });
        }
        15 => {
            // One thread for several things, nested sometimes.
            let _guard = rt::lock_os_thread();
            let tid = common::gettid();
            for _ in 0..rng.below(3) {
                turn(sea, rng, on_goroutine);
                assert_eq!(common::gettid(), tid);
            }
        }
        16 => {
            let mut values = [0; 3];
            let n = 1 + rng.below(3) as usize;
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
        17 => {
            let before = OWN.with_borrow(|own| own.clone());
            let value = rng.next().to_string();
            rt::goroutine::with_labels(&[("value", &value)], || {
                OWN.with_borrow_mut(|own| {
                    rt::yield_now();
                    own.push(value.clone());
                });
                let child = rt::go(|| (OWN.take().len(), rt::goroutine::labels()));
                let (own, labels) = child.join().unwrap();
                assert_eq!((own, labels.get("value")), (0, on_goroutine.then_some(&*value)));
            });
            assert_eq!(OWN.with_borrow_mut(|own| own.drain(..).count()), before.len() + 1);
        }
        #[cfg(unix)]
        18 => {
            let (mut near, mut far) = rt::net::UnixStream::pair().unwrap();
            let n = rng.below(3000) as usize;
            let writer = rt::go(move || near.write_all(&vec![7; n]));
            let mut all = Vec::new();
            assert_eq!(far.read_to_end(&mut all).unwrap(), n);
            writer.join().unwrap().unwrap();
        }
        #[cfg(unix)]
        19 => {
            // Nothing comes: a limit or a close ends it.
            let (near, _far) = rt::net::UnixDatagram::pair().unwrap();
            near.set_read_deadline(Some(Instant::now() + Duration::from_micros(rng.below(2000))));
            let closer = near.try_clone().unwrap();
            let closes = rng.below(2) == 0;
            rt::go(move || closes.then(|| closer.close().unwrap()));
            assert!(near.recv(&mut [0; 8]).is_err());
        }
        _ => busy(rng.below(300)),
    }
    // Somebody must empty the full channel and serve the rendezvous.
    if sea.buffered.1.len() > 4 {
        let _ = sea.buffered.1.try_recv();
    }
}

fn storm(seed: u64, rounds: u64, keep: Option<&str>) {
    let sea = Arc::new(Sea {
        stop: AtomicBool::new(false),
        turns: AtomicU64::new(0),
        rendezvous: bounded(0),
        buffered: bounded(8),
        endless: unbounded(),
        locks: Default::default(),
    });
    let threads: Vec<_> = (0..3)
        .map(|i| {
            let sea = sea.clone();
            std::thread::spawn(move || {
                let mut rng = Rng::new(seed ^ (1000 + i));
                while !sea.stop.load(Relaxed) {
                    turn(&sea, &mut rng, false);
                    std::thread::sleep(Duration::from_micros(rng.below(500)));
                }
            })
        })
        .collect();
    let wg = WaitGroup::new();
    for i in 0..GOROUTINES {
        let sea = sea.clone();
        wg.go(move || {
            let mut rng = Rng::new(seed ^ i);
            while !sea.stop.load(Relaxed) {
                turn(&sea, &mut rng, true);
            }
        });
    }
    let mut rng = Rng::new(seed ^ 77);
    let (mut slowest, mut bytes) = (Duration::ZERO, 0);
    for round in 0..rounds {
        let buffer = Buffer::default();
        let length = Duration::from_millis(1 + rng.below(50));
        let out = buffer.clone();
        // Half of the traces are started and stopped by a goroutine, half by this thread.
        let from_goroutine = rng.below(2) == 0;
        let session = move || {
            rt::trace::start(out).expect("tracing starts");
            rt::time::sleep(length);
            let began = Instant::now();
            rt::trace::stop().expect("tracing stops");
            began.elapsed()
        };
        let stopping = if from_goroutine { rt::go(session).join().unwrap() } else { session() };
        slowest = slowest.max(stopping);
        let trace = buffer.take();
        bytes += trace.len();
        if let Some(dir) = keep {
            std::fs::write(format!("{dir}/storm-{round:03}.trace"), &trace).unwrap();
        }
        judge(&format!("storm seed {seed} round {round}"), &trace);
    }
    sea.stop.store(true, Relaxed);
    // Those who wait for room or for a lock go on; nobody waits for a message.
    sea.buffered.1.close();
    for t in threads {
        t.join().unwrap();
    }
    wg.wait();
    println!(
        "storm: GOMAXPROCS={} {:?}: {rounds} traces, {bytes} bytes, {} turns, slowest stop {slowest:?}",
        rt::gomaxprocs(),
        tracer::barrier::kind(),
        sea.turns.load(Relaxed)
    );
}

fn run_here(rounds: u64, keep: Option<&str>) {
    let seed = common::seed();
    storm(seed, rounds, keep);
}

fn rounds(default: u64) -> u64 {
    std::env::var("RT_STORM_ROUNDS").ok().and_then(|s| s.parse().ok()).unwrap_or(default)
}

/// With `RT_STORM_DIR`: once, in this process, with its environment. Otherwise once per GOMAXPROCS, each in a process of
/// its own.
#[test]
fn stress_storm() {
    if let Ok(dir) = std::env::var("RT_STORM_DIR") {
        return run_here(rounds(16), Some(&dir));
    }
    if common::is_child("stress_storm") {
        return run_here(rounds(12), None);
    }
    for procs in ["1", "2", "8"] {
        common::child_passes("stress_storm", &[("GOMAXPROCS", procs)]);
    }
}
