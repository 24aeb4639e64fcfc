//! Tasks, regions and logs: they are in the trace, and no misuse makes a trace that is refused.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use common::{Buffer, HangGuard, Rng, count, events, everywhere, judge, scaled, seed, traced};
use rt::Context;
use rt::trace::{self, Region, Stream, Task};
use tracer::wire::Ev;

/// What a trace says of tasks, regions and logs, in order, with strings instead of ids.
fn notes(trace: &[u8]) -> Vec<String> {
    let mut notes = Vec::new();
    events(trace, |e, tables| {
        let text = |i: usize| tables.string(e.args[i]).unwrap_or_else(|| panic!("{e:?} has no string {i}")).to_string();
        match e.kind {
            Ev::UserTaskBegin => notes.push(format!("task {} in {}: {}", e.args[0], e.args[1], text(2))),
            Ev::UserTaskEnd => notes.push(format!("end of task {}", e.args[0])),
            Ev::UserRegionBegin => notes.push(format!("begin {} of {}", text(1), e.args[0])),
            Ev::UserRegionEnd => notes.push(format!("end {} of {}", text(1), e.args[0])),
            Ev::UserLog => notes.push(format!("{}={} of {}", text(1), text(2), e.args[0])),
            _ => {}
        }
    });
    notes
}

#[test]
fn smoke() {
    everywhere("smoke", || {
        let ((), trace) = traced("annotations", || {
            let (ctx, request) = Task::begin(&Context::background(), "request");
            let (inner, part) = Task::begin(&ctx, "part");
            rt::go(move || {
                let _outer = trace::region(&inner, "outer");
                trace::with_region(&Context::background(), "inner", || trace::log(&inner, "n", 42));
            })
            .join()
            .unwrap();
            part.end();
            drop(request);
            trace::log(&ctx, "", "after the end");
        });
        let notes = notes(&trace);
        let first: u64 = notes[0].split(' ').nth(1).unwrap().parse().unwrap();
        let second = first + 1;
        assert_eq!(
            notes,
            [
                format!("task {first} in 0: request"),
                format!("task {second} in {first}: part"),
                format!("begin outer of {second}"),
                "begin inner of 0".into(),
                format!("n=42 of {second}"),
                "end inner of 0".into(),
                format!("end outer of {second}"),
                format!("end of task {second}"),
                format!("end of task {first}"),
                format!("=after the end of {first}"),
            ]
        );
    });
}

/// Guards that are dropped in another order, forgotten, kept beyond the trace.
#[test]
fn misuse() {
    everywhere("misuse", || {
        let ((), trace) = traced("misuse", || {
            let ctx = Context::background();
            rt::go({
                let ctx = ctx.clone();
                move || {
                    let [a, b, c] = ["a", "b", "c"].map(|name| trace::region(&ctx, name));
                    drop(a);
                    drop(c);
                    drop(b);
                    std::mem::forget(trace::region(&ctx, "forgotten"));
                    let d = trace::region(&ctx, "d");
                    drop(d);
                }
            })
            .join()
            .unwrap();
            let (_, task) = Task::begin(&ctx, &"long name ".repeat(1000));
            std::mem::forget(task);
            trace::log(&ctx, &"ü".repeat(2000), "x".repeat(1 << 20));
            trace::log(&ctx, "\0\u{fffd}", "\0");
            drop(trace::region(&ctx, ""));
            // A panic unwinds its regions.
            let failed = rt::go(move || {
                let _outer = trace::region(&ctx, "unwound");
                panic!("for the test");
            });
            assert!(failed.join().is_err());
        });
        let notes = notes(&trace);
        assert_eq!(
            &notes[..9],
            [
                "begin a of 0",
                "begin b of 0",
                "begin c of 0",
                "end c of 0",
                "end b of 0",
                "end a of 0",
                "begin forgotten of 0",
                "begin d of 0",
                "end d of 0"
            ]
        );
        assert!(notes.iter().any(|n| n == "end unwound of 0"));
        assert!(notes.iter().all(|n| n.len() < 2200));
    });
}

/// Nothing is recorded, and nothing is formatted, while tracing is off or on a plain thread.
#[test]
fn off() {
    everywhere("off", || {
        struct Loud;
        impl std::fmt::Display for Loud {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                panic!("formatted")
            }
        }
        rt::run(|| {
            let _guard = HangGuard::new("off");
            let ctx = Context::background();
            trace::log(&ctx, "a", Loud);
            let region = trace::region(&ctx, "began before");
            let (_, task) = Task::begin(&ctx, "began before");
            let buffer = Buffer::default();
            trace::start(buffer.clone()).unwrap();
            std::thread::spawn(|| {
                let ctx = Context::background();
                let _region = trace::region(&ctx, "on a thread");
                trace::log(&ctx, "on a", "thread");
            })
            .join()
            .unwrap();
            drop(region);
            drop(task);
            trace::stop().unwrap();
            let trace = buffer.take();
            judge("off", &trace);
            assert_eq!(count(&trace, Ev::UserRegionBegin) + count(&trace, Ev::UserRegionEnd), 0);
            assert_eq!((count(&trace, Ev::UserTaskEnd), count(&trace, Ev::UserLog)), (1, 0));
        });
    });
}

/// Regions and tasks at random, while streams come and go: every one of them is accepted.
#[test]
fn stress_streams_come_and_go() {
    everywhere("stress_streams_come_and_go", || {
        let _guard = HangGuard::new("stress_streams_come_and_go");
        rt::run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let seed = seed();
            let all: Vec<_> = (0..8u64)
                .map(|i| {
                    let stop = stop.clone();
                    rt::go(move || {
                        let mut rng = Rng::new(seed + i);
                        let mut contexts = vec![(Context::background(), None)];
                        let mut regions: Vec<Region> = Vec::new();
                        while !stop.load(SeqCst) {
                            let ctx = contexts[rng.below(contexts.len() as u64) as usize].0.clone();
                            match rng.below(7) {
                                0 | 1 => regions.push(trace::region(&ctx, ["r", "s", "t"][rng.below(3) as usize])),
                                2 if !regions.is_empty() => {
                                    drop(regions.swap_remove(rng.below(regions.len() as u64) as usize));
                                }
                                3 => drop(regions.pop()),
                                4 if contexts.len() < 10 => {
                                    let (ctx, task) = Task::begin(&ctx, "task");
                                    contexts.push((ctx, Some(task)));
                                }
                                5 if contexts.len() > 1 => drop(contexts.pop()),
                                _ => trace::log(&ctx, "category", rng.below(1000)),
                            }
                            if rng.below(20) == 0 {
                                rt::time::sleep(Duration::from_micros(100));
                            }
                            if regions.len() > 20 {
                                regions.clear();
                            }
                        }
                    })
                })
                .collect();
            let mut rng = Rng::new(seed);
            for _ in 0..scaled(30, 10) {
                let buffer = Buffer::default();
                let stream = Stream::start(buffer.clone()).unwrap();
                let other = (rng.below(2) == 0).then(|| Stream::start(std::io::sink()).unwrap());
                rt::time::sleep(Duration::from_micros(rng.below(4000)));
                if rng.below(2) == 0 {
                    drop(other);
                }
                stream.stop().unwrap();
                judge("one of those that come and go", &buffer.take());
            }
            stop.store(true, SeqCst);
            all.into_iter().for_each(|g| g.join().unwrap());
        });
    });
}

/// A region that has ended with the one around it does not end those that began later.
#[test]
fn what_has_ended_ends_nothing() {
    let (_, trace) = traced("regions that have ended", || {
        let ctx = Context::background();
        let outer = trace::region(&ctx, "outer");
        let inner = trace::region(&ctx, "inner");
        drop(outer);
        let later = trace::region(&ctx, "later");
        drop(inner);
        trace::log(&ctx, "where", "in later");
        drop(later);
    });
    let mut open = Vec::new();
    let mut seen = false;
    common::events(&trace, |e, tables| match e.kind {
        Ev::UserRegionBegin => open.push(tables.string(e.args[1]).unwrap().into_owned()),
        Ev::UserRegionEnd => drop(open.pop()),
        Ev::UserLog => {
            seen = true;
            assert_eq!(open, ["later"]);
        }
        _ => {}
    });
    assert!(seen && open.is_empty());
}
