//! Metrics: each one shows what was done, whoever reads and whenever.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{busy, child_passes, is_child, scaled, traced, wait_for};
use rt::chan::bounded;
use rt::metrics::{self, Kind, Sample, Value};

/// Runs a test's body in a process of its own, so that the counts are its own.
fn alone(test: &str, procs: &str, body: impl FnOnce()) {
    if is_child(test) {
        return body();
    }
    child_passes(test, &[("GOMAXPROCS", procs)]);
}

fn number(name: &str) -> u64 {
    metrics::get(name).expect(name).as_u64().expect("a count")
}

fn values(name: &str) -> u64 {
    metrics::get(name).expect(name).as_histogram().expect("a distribution").total()
}

const LIVE: &str = "/sched/goroutines:goroutines";
const CREATED: &str = "/sched/goroutines-created:goroutines";
const RUNNING: &str = "/sched/goroutines/running:goroutines";
const RUNNABLE: &str = "/sched/goroutines/runnable:goroutines";
const WAITING: &str = "/sched/goroutines/waiting:goroutines";
const NOT_IN_GO: &str = "/sched/goroutines/not-in-go:goroutines";
const LATENCIES: &str = "/sched/latencies:seconds";

#[test]
fn before_the_start() {
    alone("before_the_start", "3", || {
        for d in metrics::all() {
            let value = metrics::get(d.name).unwrap();
            assert_eq!(value.kind(), d.kind);
            match value {
                Value::Uint64(n) if d.name == "/sched/gomaxprocs:threads" => assert_eq!(n, 3),
                // It has one before there is anything.
                Value::Uint64(n) if d.name == "/gc/heap/goal:bytes" => assert_eq!(n, 4 << 20),
                Value::Uint64(n) => assert_eq!(n, 0, "{d}"),
                Value::Float64Histogram(h) => assert_eq!(h.total(), 0, "{d}"),
                _ => unreachable!(),
            }
        }
        assert_eq!(number("/sched/threads/total:threads"), 0, "reading starts nothing");
    });
}

#[test]
fn as_text() {
    let snapshot = metrics::snapshot();
    let text = snapshot.to_string();
    assert_eq!(text.lines().count(), metrics::all().len());
    for (line, d) in text.lines().zip(metrics::all()) {
        assert!(line.starts_with(&format!("{} ", d.name)), "{line}");
        assert!(snapshot.get(d.name).is_some());
        let described = d.to_string();
        assert!(
            described.starts_with(d.name)
                && described.contains(d.description)
                && described.contains("(uint64") == (d.kind == Kind::Uint64)
        );
        assert_eq!(described.contains("cumulative"), d.cumulative);
    }
    assert_eq!(snapshot.get("/no/such:thing"), None);
    let mut samples = [Sample::new("/no/such:thing"), Sample::new(LATENCIES), Sample::new(String::from(LIVE))];
    metrics::read(&mut samples);
    assert_eq!(samples[0].to_string(), "/no/such:thing (no value)");
    let h = samples[1].value.as_ref().unwrap().as_histogram().unwrap();
    assert_eq!(h.buckets.len(), h.counts.len() + 1);
    assert!(h.buckets.is_sorted() && h.buckets[0] == 0.0 && h.buckets.last() == Some(&f64::INFINITY));
    assert!(samples[2].value.as_ref().unwrap().as_u64().is_some());
}

/// What goroutines do, when they all keep doing it.
#[test]
fn what_goroutines_do() {
    alone("what_goroutines_do", "2", || {
        traced("what goroutines do", || {
            let (tx, rx) = bounded::<()>(0);
            let waiting: Vec<_> = (0..50)
                .map(|_| {
                    let rx = rx.clone();
                    rt::go(move || assert!(rx.recv().is_err()))
                })
                .collect();
            let sleeping: Vec<_> = (0..5).map(|_| rt::go(|| rt::time::sleep(Duration::from_secs(3600)))).collect();
            let released = Arc::new(AtomicBool::new(false));
            let inside = Arc::new(AtomicUsize::new(0));
            let blocked: Vec<_> = (0..7)
                .map(|i| {
                    let (released, inside) = (released.clone(), inside.clone());
                    let call = move || {
                        inside.fetch_add(1, SeqCst);
                        while !released.load(SeqCst) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                    };
                    // Declared and not.
                    rt::go(move || if i % 2 == 0 { rt::blocking(call) } else { call() })
                })
                .collect();
            wait_for("all block their threads", || inside.load(SeqCst) == 7 && number(NOT_IN_GO) == 7);
            wait_for("the others wait", || number(WAITING) == 55);
            assert_eq!(number(LIVE), 50 + 5 + 7 + 1);
            assert_eq!(number(CREATED), 50 + 5 + 7 + 1);
            assert_eq!(number("/gort/timers:timers"), 5);
            assert_eq!(number(RUNNING), 1, "the reader itself");
            // One of the four that are declared may have its P yet: nobody wants it.
            wait_for("they were handed on", || {
                let by_call = number("/gort/sched/hand-offs/blocking-call:hand-offs");
                let by_loop = number("/gort/sched/hand-offs/outside-too-long:hand-offs");
                (3..=4).contains(&by_call) && by_loop == 3
            });
            // All but the reader's own M are outside or asleep.
            assert!(number("/sched/threads/total:threads") >= 9);
            released.store(true, SeqCst);
            drop(tx);
            blocked.into_iter().chain(waiting).for_each(|g| g.join().unwrap());
            wait_for("they are gone", || number(LIVE) == 6);
            assert_eq!(number(NOT_IN_GO), 0);
            assert_eq!(number(CREATED), 63);
            drop(sleeping);
        });
    });
}

#[test]
#[cfg_attr(rt_chaos, ignore = "the reader gives up its P now and then")]
fn runnable_ones_and_their_latency() {
    alone("runnable_ones_and_their_latency", "1", || {
        traced("runnable ones", || {
            let n = scaled(20_000, 5_000);
            let before = values(LATENCIES);
            // They wait for the only P, which is this one's as long as its time slice lasts.
            let mut runnable = 0;
            let goroutines: Vec<_> = (0..n)
                .map(|i| {
                    if i % 100 == 99 {
                        runnable = runnable.max(number(RUNNABLE));
                    }
                    rt::go(|| ())
                })
                .collect();
            goroutines.into_iter().for_each(|g| g.join().unwrap());
            let measured = values(LATENCIES) - before;
            println!("{measured} of {n} measured, {runnable} runnable");
            assert!(runnable >= 50);
            // One in 64, give or take.
            assert!((n as u64 / 100..n as u64 / 40).contains(&measured));
            // Whoever waits for this one while it is busy, for one; unless it was stopped just before.
            wait_for("somebody waited for long", || {
                let goroutines: Vec<_> = (0..200).map(|_| rt::go(|| ())).collect();
                busy(Duration::from_millis(4));
                goroutines.into_iter().for_each(|g| g.join().unwrap());
                let value = metrics::get(LATENCIES).unwrap();
                println!("{value}");
                let h = value.as_histogram().unwrap();
                h.counts.iter().zip(&h.buckets).any(|(n, begin)| *n > 0 && *begin >= 0.003)
            });
        });
    });
}

/// Counts that have no other writer than the one that a test can see.
#[test]
fn threads_steals_and_pauses() {
    alone("threads_steals_and_pauses", "4", || {
        traced("steals", || {
            let (stopping, total) =
                (values("/sched/pauses/stopping/other:seconds"), values("/sched/pauses/total/other:seconds"));
            assert_eq!(stopping, total);
            let before = number(CREATED);
            let n = 4_000;
            let goroutines: Vec<_> = (0..n).map(|_| rt::go(|| busy(Duration::from_micros(20)))).collect();
            // A thread's goroutines count too.
            let thread = std::thread::spawn(|| (0..100).map(|_| rt::go(|| ())).collect::<Vec<_>>());
            let of_thread = rt::blocking(|| thread.join().unwrap());
            goroutines.into_iter().chain(of_thread).for_each(|g| g.join().unwrap());
            assert_eq!(number(CREATED) - before, n + 100);
            wait_for("only this one is left", || number(LIVE) == 1);
            let (steals, stolen) =
                (number("/gort/sched/steals/total:steals"), number("/gort/sched/steals/goroutines:goroutines"));
            println!(
                "{steals} steals of {stolen} goroutines, {} wake-ups",
                number("/gort/sched/threads/wake-ups:wake-ups")
            );
            assert!(steals > 0 && stolen >= steals);
            assert!(number("/gort/sched/threads/wake-ups:wake-ups") > 0);
            wait_for("the others sleep", || number("/gort/sched/threads/parked:threads") > 0);
            rt::set_gomaxprocs(2);
            assert_eq!(number("/sched/gomaxprocs:threads"), 2);
            assert_eq!(values("/sched/pauses/stopping/other:seconds"), stopping + 1);
            assert_eq!(values("/sched/pauses/total/other:seconds"), total + 1);
            // What the Ps that went have counted is not lost.
            assert_eq!(number(CREATED) - before, n + 100);
            assert_eq!(number(LIVE), 1);
            assert!(number("/gort/sched/steals/total:steals") >= steals);
            assert!(number("/gort/stacks/total:stacks") > 0);
            assert_eq!(number("/gort/sched/threads/refused:threads"), 0);
        });
    });
}

/// Threads and goroutines read all the time while everything changes; cumulative values never go back.
#[test]
fn stress_readers() {
    alone("stress_readers", "4", || {
        traced("readers", || {
            let over = Arc::new(AtomicBool::new(false));
            let read = |over: Arc<AtomicBool>| {
                let mut last = vec![0u64; metrics::all().len()];
                let mut rounds = 0;
                while !over.load(SeqCst) {
                    for ((d, last), sample) in metrics::all().iter().zip(&mut last).zip(&metrics::snapshot()) {
                        let now = match sample.value.as_ref().unwrap() {
                            Value::Uint64(n) => *n,
                            Value::Float64Histogram(h) => h.total(),
                            _ => unreachable!(),
                        };
                        assert!(!d.cumulative || now >= *last, "{d}: {last}, then {now}");
                        *last = now;
                    }
                    rounds += 1;
                }
                rounds
            };
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let over = over.clone();
                    std::thread::spawn(move || read(over))
                })
                .collect();
            let reader = {
                let over = over.clone();
                rt::go(move || read(over))
            };
            for i in 0..scaled(400, 150) {
                let goroutines: Vec<_> = (0..50)
                    .map(|k| {
                        rt::go(move || match k % 5 {
                            0 => rt::time::sleep(Duration::from_micros(100)),
                            1 => rt::blocking(|| std::thread::sleep(Duration::from_micros(50))),
                            _ => rt::yield_now(),
                        })
                    })
                    .collect();
                goroutines.into_iter().for_each(|g| g.join().unwrap());
                if i % 10 == 0 {
                    rt::set_gomaxprocs(1 + i / 10 % 6);
                }
            }
            over.store(true, SeqCst);
            let rounds: Vec<usize> = threads.into_iter().map(|t| rt::blocking(|| t.join().unwrap())).collect();
            println!("{rounds:?} and {} readings", reader.join().unwrap());
        });
    });
}
