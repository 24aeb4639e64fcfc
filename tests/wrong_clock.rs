//! A clock that is wrong makes a trace whose times are wrong, and nothing else: its order does not come from the clock.
//!
//! The traces are left in cargo's folder for files of tests, where `cargo xtask conformance` finds them.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{Buffer, HangGuard, judge, program};
use rt::trace::{FlightRecorder, Options, Stream};
use tracer::clock::Wrong;

programs!(jumps_back, stands_still, differs);

fn jumps_back() {
    storm(Wrong::JumpsBack, "jumps-back");
}

fn stands_still() {
    storm(Wrong::StandsStill, "stands-still");
}

fn differs() {
    storm(Wrong::Differs, "differs");
}

/// Goroutines that hand things to each other across threads, for some generations.
fn storm(how: Wrong, name: &'static str) {
    tracer::clock::be_wrong(how);
    let _guard = HangGuard::new(name);
    rt::run(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let (tx, rx) = rt::chan::bounded(2);
        let lock = Arc::new(rt::sync::Mutex::new(0u64));
        let all: Vec<_> = (0..21)
            .map(|i| {
                let (stop, tx, rx, lock) = (stop.clone(), tx.clone(), rx.clone(), lock.clone());
                rt::go(move || {
                    while !stop.load(SeqCst) {
                        match i % 7 {
                            0 => drop(tx.send_timeout(i, Duration::from_millis(1))),
                            1 => drop(rx.recv_timeout(Duration::from_millis(1)).ok()),
                            2 => rt::time::sleep(Duration::from_micros(200)),
                            3 => rt::blocking(|| std::thread::sleep(Duration::from_micros(100))),
                            4 => *lock.lock() += 1,
                            5 => {
                                rt::goroutine::with_labels(&[("a", "b")], || {
                                    rt::time::sleep(Duration::from_micros(50))
                                });
                                rt::time::sleep(Duration::from_micros(50));
                            }
                            _ => rt::go(rt::yield_now).join().unwrap(),
                        }
                    }
                })
            })
            .collect();
        for (what, options) in [("all", Options::new()), ("few", Options::new().only_labelled(true).syscalls(false))] {
            let buffer = Buffer::default();
            let stream = Stream::start_with(buffer.clone(), options).unwrap();
            let recorder = FlightRecorder::new().options(options);
            recorder.start().unwrap();
            let mut snapshot = Vec::new();
            for _ in 0..4 {
                rt::time::sleep(Duration::from_millis(12));
                // A generation ends.
                snapshot.clear();
                recorder.snapshot(&mut snapshot).unwrap();
            }
            recorder.stop();
            let stats = stream.stop().unwrap();
            assert!(stats.generations >= 3, "{stats:?}");
            judge(&format!("a snapshot of {what}, clock {name}"), &snapshot);
            let trace = buffer.take();
            common::keep(&format!("wrong-clock/{name}-{what}-p{}.trace", rt::gomaxprocs()), &trace);
            judge(&format!("{what}, clock {name}"), &trace);
        }
        stop.store(true, SeqCst);
        drop((tx, rx));
        all.into_iter().for_each(|h| h.join().unwrap());
    });
}

#[test]
fn times_do_not_make_the_order() {
    for name in ["jumps_back", "stands_still", "differs"] {
        for procs in ["1", "2", "8"] {
            program(name, &[("GOMAXPROCS", procs)]).expect_code(0);
        }
    }
}
