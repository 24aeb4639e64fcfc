//! Extension records: what a trace says beyond Go's format.

mod common;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use common::{HangGuard, everywhere, judge, traced, wait_for};
use rt::trace::FlightRecorder;
use tracer::read::Reader;
use tracer::wire::Ev;
use tracer::wire::ext::{GLOBAL_QUEUE, Record};

/// Calls `each` with the number of a generation, a record of it, and the text that the record names.
fn records(trace: &[u8], mut each: impl FnMut(u64, Record, Option<String>)) {
    let mut reader = Reader::new(trace).expect("a good header");
    let mut generation = 0;
    while let Some(e) = reader.next() {
        e.expect("a good event");
        let now = reader.generation().number;
        if std::mem::replace(&mut generation, now) == now {
            continue;
        }
        for r in reader.tables().ext_records() {
            let r = r.expect("a good record").record.expect("a known record");
            let text = match r {
                Record::Labels { labels: id, .. } | Record::Name { name: id, .. } => {
                    Some(reader.tables().string(id).expect("in the table").into_owned())
                }
                _ => None,
            };
            each(now, r, text);
        }
    }
}

/// Whoever stands still for generations is still called what it is called, in each of them.
#[test]
fn names_and_labels_of_those_that_stand_still() {
    everywhere("names_and_labels_of_those_that_stand_still", || {
        let _guard = HangGuard::new("names of still ones");
        rt::run(|| {
            let (tx, rx) = rt::chan::bounded::<()>(0);
            let (call, called) = std::sync::mpsc::channel::<()>();
            let still: Vec<_> = (0..20)
                .map(|i| {
                    let rx = rx.clone();
                    let builder = rt::Builder::new().name(format!("still {i}")).label("of", i.to_string());
                    builder.spawn(move || rx.recv().is_ok()).unwrap()
                })
                .collect();
            let builder = rt::Builder::new().name("caller").label("of", "call");
            let caller = builder.spawn(move || rt::blocking(|| called.recv()).is_ok()).unwrap();
            let silent = rt::go({
                let rx = rx.clone();
                move || rx.recv().is_ok()
            });
            // One that runs in a generation is shown with its name there, and needs no record.
            wait_for("all stand still", || {
                let mut waiting = [rt::metrics::Sample::new("/sched/goroutines/waiting:goroutines")];
                rt::metrics::read(&mut waiting);
                waiting[0].value.as_ref().and_then(|v| v.as_u64()).is_some_and(|n| n > still.len() as u64)
            });
            let recorder = FlightRecorder::new();
            recorder.start().unwrap();
            let mut trace = Vec::new();
            for _ in 0..4 {
                // Somebody does something, in each generation.
                rt::go(|| rt::time::sleep(Duration::from_millis(2))).join().unwrap();
                trace.clear();
                recorder.snapshot(&mut trace).unwrap();
                judge("who stands still", &trace);
            }
            recorder.stop();
            let mut told = BTreeMap::<(u64, u64), (Vec<String>, Vec<String>)>::new();
            records(&trace, |generation, r, text| match (r, text) {
                (Record::Name { g, .. }, Some(text)) => told.entry((generation, g)).or_default().0.push(text),
                (Record::Labels { g, .. }, Some(text)) => told.entry((generation, g)).or_default().1.push(text),
                _ => {}
            });
            let last = told.keys().map(|k| k.0).max().expect("there are records");
            for generation in last - 2..=last {
                for (i, h) in still.iter().enumerate() {
                    let (names, labels) = &told[&(generation, h.id().get())];
                    assert_eq!(*names, [format!("still {i}")], "in generation {generation}");
                    assert_eq!(*labels, [format!(r#"{{"of": "{i}"}}"#)], "in generation {generation}");
                }
                assert_eq!(told[&(generation, caller.id().get())].1, [r#"{"of": "call"}"#]);
                assert!(!told.contains_key(&(generation, silent.id().get())));
            }
            drop((tx, call));
            still.into_iter().chain([caller, silent]).for_each(|h| assert!(!h.join().unwrap()));
        });
    });
}

/// Many who sleep until the same moment are one record.
#[test]
fn timers_that_are_due_together() {
    let (count, trace) = traced("timers together", || {
        let until = Instant::now() + Duration::from_millis(200);
        let alarms: Vec<_> = (0..10).map(|_| rt::time::after(until - Instant::now())).collect();
        let all: Vec<_> = (0..50).map(|_| rt::go(move || rt::time::sleep_until(until))).collect();
        let count = all.len() as u64;
        all.into_iter().for_each(|h| h.join().unwrap());
        alarms.iter().for_each(|a| assert!(a.recv().is_ok()));
        count
    });
    let (mut goroutines, mut alarms) = (0, 0);
    records(&trace, |_, r, _| {
        if let Record::Timers { goroutines: g, alarms: a, .. } = r {
            assert!(g + a > 1, "one is no batch");
            (goroutines, alarms) = (goroutines + g, alarms + a);
        }
    });
    // On a slow machine some may have been due alone, or too late to wait.
    assert!(goroutines > 1 && goroutines <= count, "{goroutines} of {count} goroutines");
    assert!(alarms <= 10, "{alarms} alarms");
    assert!(common::count(&trace, Ev::GoUnblock) as u64 >= goroutines);
}

/// The lengths of the queues: of all when a generation begins, and again while it lasts.
#[test]
fn run_queues() {
    everywhere("run_queues", || {
        let (procs, trace) = traced("run queues", || {
            let until = Instant::now() + Duration::from_millis(300);
            let crowd: Vec<_> = (0..100)
                .map(|_| {
                    rt::go(move || {
                        while Instant::now() < until {
                            common::busy(Duration::from_micros(20));
                            rt::yield_now();
                        }
                    })
                })
                .collect();
            crowd.into_iter().for_each(|h| h.join().unwrap());
            wait_for("the time is over", move || Instant::now() >= until);
            rt::gomaxprocs() as u64
        });
        let mut told = BTreeMap::<u64, Vec<(u64, u64)>>::new();
        records(&trace, |generation, r, _| {
            if let Record::RunQueue { p, len } = r {
                told.entry(generation).or_default().push((p, len));
            }
        });
        let all = told.values().flatten();
        for list in told.values() {
            for p in (0..procs).chain([GLOBAL_QUEUE]) {
                assert!(list.iter().any(|x| x.0 == p), "nothing of queue {p}: {list:?}");
            }
        }
        let most = all.clone().map(|x| x.1).max().unwrap();
        assert!(most >= 100 / procs / 2 && most <= 200, "at most {most}");
        assert!(all.count() as u64 > procs + 2, "sysmon has looked, too: {told:?}");
    });
}
