//! GOMAXPROCS changes while the program runs: nobody is lost, and the trace says what happened. With `RT_STORM_DIR` the largest traces are
//! kept, so that Go's reader can look at them too.

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Buffer, Rng, busy, child_passes, count, events, is_child, judge, message, scaled, traced, wait_for};
use rt::chan::{Receiver, Sender, bounded};
use rt::sync::{Mutex, WaitGroup};
use tracer::wire::{Ev, reason};

/// Runs a test's body in a process of its own, which begins with two Ps.
fn alone(test: &str, body: impl FnOnce()) {
    if is_child(test) {
        return body();
    }
    child_passes(test, &[("GOMAXPROCS", "2")]);
    child_passes(test, &[("GOMAXPROCS", "2"), ("RT_BORDER", "fence")]);
}

/// Keeps a trace in `RT_STORM_DIR`, if that is set, so that Go's reader can look at it too.
fn keep(name: &str, trace: &[u8]) {
    if let Ok(dir) = std::env::var("RT_STORM_DIR") {
        std::fs::write(format!("{dir}/{name}.trace"), trace).unwrap();
    }
}

/// All numbers that the trace gives for GOMAXPROCS, with those that say the same again left out.
fn changes(trace: &[u8]) -> Vec<u64> {
    let mut seen = Vec::new();
    events(trace, |e, _| {
        if e.kind == Ev::ProcsChange && seen.last() != Some(&e.args[0]) {
            seen.push(e.args[0]);
        }
    });
    seen
}

#[test]
fn smoke() {
    alone("smoke", || {
        assert_eq!(rt::gomaxprocs(), 2, "before the start");
        let (_, trace) = traced("four numbers", || {
            for (n, old) in [(5, 2), (1, 5), (1, 1), (3, 1), (2, 3)] {
                assert_eq!(rt::set_gomaxprocs(n), old);
                assert_eq!(rt::gomaxprocs(), n);
            }
        });
        assert_eq!(changes(&trace), [2, 5, 1, 3, 2]);
        let mut stops = 0;
        events(&trace, |e, tables| {
            if e.kind == Ev::StwBegin && e.text(tables).is_some_and(|t| t == reason::STW_GOMAXPROCS) {
                let stack: Vec<_> = tables.stack(e.stack()).map(|f| f.func.into_owned()).collect();
                assert!(stack.iter().any(|f| f.contains("smoke")), "the stack of whoever asked: {stack:?}");
                stops += 1;
            }
        });
        assert_eq!(stops, 4);
    });
}

#[test]
fn numbers_that_cannot_be() {
    alone("numbers_that_cannot_be", || {
        for n in [0, 1025, usize::MAX] {
            let payload = std::panic::catch_unwind(|| rt::set_gomaxprocs(n)).expect_err("it is refused");
            assert_eq!(message(&*payload), format!("set_gomaxprocs({n}): want a number from 1 to 1024"));
        }
        rt::Config::new().max_threads(6).run(|| ());
        assert_eq!(rt::set_gomaxprocs(5), 2);
        let payload = std::panic::catch_unwind(|| rt::set_gomaxprocs(6)).expect_err("it is refused");
        let words = "set_gomaxprocs(6): want less than max_threads, which was set to 6";
        assert_eq!(message(&*payload), words);
        assert_eq!(rt::gomaxprocs(), 5);
        // The present number is what a configuration must agree with.
        rt::Config::new().gomaxprocs(5).run(|| ());
        let payload =
            std::panic::catch_unwind(|| rt::Config::new().gomaxprocs(2).run(|| ())).expect_err("it is refused");
        let words = "cannot start the runtime: it runs already, with GOMAXPROCS=5, not 2";
        assert_eq!(message(&*payload), words);
    });
}

#[test]
fn from_a_thread_that_starts_the_runtime() {
    alone("from_a_thread_that_starts_the_runtime", || {
        let _guard = common::HangGuard::new("from a thread");
        assert_eq!(rt::set_gomaxprocs(7), 2);
        let threads: Vec<_> = (1..=4).map(|n| std::thread::spawn(move || rt::set_gomaxprocs(n))).collect();
        let mut seen: Vec<usize> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        // Each found what another had set.
        seen.push(rt::gomaxprocs());
        assert_eq!(seen.iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2, 3, 4, 7]));
    });
}

/// So many run at the same time as GOMAXPROCS says: hogs that never call the runtime each keep a P, and as many of them have begun
/// as there are Ps.
#[test]
fn as_many_run_as_there_are_processors() {
    alone("as_many_run_as_there_are_processors", || {
        let (_, trace) = traced("as many as there are", || {
            let go_on = Arc::new(AtomicBool::new(false));
            let ps = Arc::new(Mutex::new(()));
            for n in [4, 1, 3] {
                rt::set_gomaxprocs(n);
                let begun = Arc::new(AtomicUsize::new(0));
                let hogs: Vec<_> = (0..n * 2)
                    .map(|_| {
                        let (begun, go_on) = (begun.clone(), go_on.clone());
                        rt::go(move || {
                            begun.fetch_add(1, SeqCst);
                            while !go_on.load(SeqCst) {
                                rt::yield_now();
                            }
                        })
                    })
                    .collect();
                wait_for("all have begun", || begun.load(SeqCst) == n * 2);
                drop(ps.lock());
                go_on.store(true, SeqCst);
                hogs.into_iter().for_each(|h| h.join().unwrap());
                go_on.store(false, SeqCst);
            }
        });
        // Of each time between two changes: which Ps ran a goroutine.
        let (mut ran, mut now) = (Vec::new(), BTreeSet::new());
        let mut n = 2;
        events(&trace, |e, _| match e.kind {
            Ev::ProcsChange if e.args[0] != n => {
                n = e.args[0];
                ran.push(std::mem::take(&mut now));
            }
            Ev::GoStart => drop(now.insert(e.p)),
            _ => {}
        });
        ran.push(now);
        assert_eq!(ran.len(), 4);
        for (ran, n) in ran[1..].iter().zip([4, 1, 3]) {
            println!("GOMAXPROCS {n}: {ran:?}");
            assert!(ran.iter().all(|&p| p < n), "GOMAXPROCS {n}, but these Ps ran goroutines: {ran:?}");
        }
    });
}

/// The P of the caller is the one that goes, in turn with others.
#[test]
fn the_own_processor_goes() {
    alone("the_own_processor_goes", || {
        let rounds = scaled(300, 100);
        let (_, trace) = traced("the own one goes", move || {
            for i in 0..rounds {
                rt::set_gomaxprocs(8);
                // Somewhere among eight.
                let hogs: Vec<_> = (0..8).map(|_| rt::go(|| busy(Duration::from_micros(200)))).collect();
                rt::yield_now();
                rt::set_gomaxprocs(1 + i % 3);
                hogs.into_iter().for_each(|h| h.join().unwrap());
            }
        });
        keep("the_own_processor_goes", &trace);
        assert!(count(&trace, Ev::ProcsChange) >= rounds * 2);
    });
}

/// Timers of a P that went are not forgotten, with and without somebody who keeps the others busy.
#[test]
fn sleepers_of_a_processor_that_goes() {
    alone("sleepers_of_a_processor_that_goes", || {
        traced("sleepers", || {
            for hog in [false, true] {
                rt::set_gomaxprocs(8);
                let stop = Arc::new(AtomicBool::new(false));
                let sleepers: Vec<_> = (0..64)
                    .map(|i| {
                        rt::go(move || {
                            busy(Duration::from_micros(100));
                            rt::time::sleep(Duration::from_millis(20 + i % 20));
                        })
                    })
                    .collect();
                rt::time::sleep(Duration::from_millis(10));
                rt::set_gomaxprocs(1);
                let yielders: Vec<_> = (0..if hog { 2 } else { 0 })
                    .map(|_| {
                        let stop = stop.clone();
                        rt::go(move || {
                            while !stop.load(SeqCst) {
                                rt::yield_now();
                            }
                        })
                    })
                    .collect();
                sleepers.into_iter().for_each(|s| s.join().unwrap());
                stop.store(true, SeqCst);
                yielders.into_iter().for_each(|y| y.join().unwrap());
            }
        });
    });
}

struct Sea {
    stop: AtomicBool,
    channel: (Sender<u64>, Receiver<u64>),
    locks: [Mutex<u64>; 2],
    turns: AtomicUsize,
}

fn turn(sea: &Sea, rng: &mut Rng) {
    sea.turns.fetch_add(1, SeqCst);
    match rng.below(10) {
        0 => drop(sea.channel.0.send(1)),
        1 => drop(sea.channel.1.try_recv()),
        2 => {
            *sea.locks[rng.below(2) as usize].lock() += 1;
        }
        3 => {
            let mut held = sea.locks[rng.below(2) as usize].lock();
            *held += 1;
            rt::yield_now();
        }
        4 => rt::time::sleep(Duration::from_micros(rng.below(3000))),
        5 => {
            let us = rng.below(2000);
            rt::blocking(|| std::thread::sleep(Duration::from_micros(us)));
        }
        6 => rt::yield_now(),
        7 => {
            let wg = WaitGroup::new();
            for _ in 0..rng.below(8) {
                wg.go(rt::yield_now);
            }
            wg.wait();
        }
        // Sometimes long enough to lose its P.
        8 if rng.below(20) == 0 => busy(Duration::from_millis(15)),
        _ => busy(Duration::from_micros(rng.below(200))),
    }
    if sea.channel.1.len() > 4 {
        let _ = sea.channel.1.try_recv();
    }
}

/// Goroutines that do everything, while GOMAXPROCS is set at random by a goroutine and by a thread, and `meanwhile` runs.
fn storm(seed: u64, changes: usize, meanwhile: impl FnOnce(&AtomicBool)) {
    let sea = Arc::new(Sea {
        stop: AtomicBool::new(false),
        channel: bounded(8),
        locks: Default::default(),
        turns: AtomicUsize::new(0),
    });
    let wg = WaitGroup::new();
    let ended = Arc::new(AtomicUsize::new(0));
    for i in 0..60 {
        let (sea, ended) = (sea.clone(), ended.clone());
        wg.go(move || {
            let mut rng = Rng::new(seed ^ i);
            while !sea.stop.load(SeqCst) {
                turn(&sea, &mut rng);
            }
            ended.fetch_add(1, SeqCst);
        });
    }
    let change = move |salt: u64, done: Arc<AtomicUsize>| {
        let mut rng = Rng::new(seed ^ salt);
        for _ in 0..changes / 2 {
            rt::set_gomaxprocs(1 + rng.below(16) as usize);
            done.fetch_add(1, SeqCst);
            rt::time::sleep(Duration::from_micros(rng.below(8000)));
        }
    };
    let done = Arc::new(AtomicUsize::new(0));
    let over = Arc::new(AtomicBool::new(false));
    let goroutine = rt::go({
        let done = done.clone();
        move || change(501, done)
    });
    let thread = std::thread::spawn({
        let (done, over) = (done.clone(), over.clone());
        move || {
            change(502, done);
            over.store(true, SeqCst);
        }
    });
    meanwhile(&over);
    goroutine.join().unwrap();
    rt::blocking(|| thread.join().unwrap());
    assert_eq!(done.load(SeqCst), changes / 2 * 2);
    sea.stop.store(true, SeqCst);
    sea.channel.1.close();
    wg.wait();
    assert_eq!(ended.load(SeqCst), 60);
    println!("{changes} changes, {} turns, GOMAXPROCS {} at the end", sea.turns.load(SeqCst), rt::gomaxprocs());
}

#[test]
fn stress_storm_in_one_trace() {
    alone("stress_storm_in_one_trace", || {
        let seed = common::seed();
        let began = Instant::now();
        let (_, trace) = traced("a storm in one trace", move || {
            storm(seed, 300, |_| {
                // Several generations, whose length is a second.
                while began.elapsed() < Duration::from_millis(2500) {
                    rt::time::sleep(Duration::from_millis(20));
                }
            });
        });
        keep(&format!("resizing-{:?}", tracer::barrier::kind()), &trace);
        let mut generations = BTreeSet::new();
        let mut reader = tracer::read::Reader::new(&trace[..]).unwrap();
        while let Some(e) = reader.next() {
            e.unwrap();
            generations.insert(reader.generation().number);
        }
        println!("{} generations, {} bytes", generations.len(), trace.len());
        assert!(generations.len() > 2, "{generations:?}");
        assert!(changes(&trace).len() > 100);
    });
}

/// Traces begin and end in between.
#[test]
fn stress_storm_in_many_traces() {
    alone("stress_storm_in_many_traces", || {
        let seed = common::seed();
        let _guard = common::HangGuard::new("a storm in many traces");
        rt::run(move || {
            storm(seed, 300, |over| {
                let mut rng = Rng::new(seed ^ 77);
                let mut traces = 0;
                while !over.load(SeqCst) {
                    let buffer = Buffer::default();
                    rt::trace::start(buffer.clone()).expect("tracing starts");
                    rt::time::sleep(Duration::from_millis(1 + rng.below(40)));
                    rt::trace::stop().expect("tracing stops");
                    let trace = buffer.take();
                    keep(&format!("many-{traces}"), &trace);
                    judge(&format!("a storm in many traces, seed {seed}, {traces}"), &trace);
                    traces += 1;
                }
                println!("{traces} traces");
                assert!(traces > 2);
            });
        });
    });
}
