//! What a trace leaves out on request it leaves out whole, and what is left is a good trace.

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use common::alone::judge_alone;
use common::{Buffer, HangGuard, everywhere, judge};
use rt::trace::{self, FlightRecorder, Options, StartError, Stream, Task};
use rt::{Context, goroutine};
use tracer::read::Transition;
use tracer::wire::Ev;

/// Of a trace: how many events of each kind there are, and how many goroutines.
fn kinds(trace: &[u8]) -> (BTreeMap<Ev, usize>, BTreeSet<i64>) {
    let (mut kinds, mut goroutines) = (BTreeMap::new(), BTreeSet::new());
    common::events(trace, |e, _| {
        *kinds.entry(e.kind).or_default() += 1;
        if let Some(Transition::G { id, .. }) = e.transition() {
            goroutines.insert(id);
        }
    });
    (kinds, goroutines)
}

/// The calling goroutine, as an event names it.
fn me() -> i64 {
    goroutine::id().expect("a goroutine").get() as i64
}

/// Waits in a call, without the runtime, which would end it.
fn stay_until(flag: &AtomicBool, is: bool) {
    while flag.load(SeqCst) != is {
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn recorded<T>(what: &str, options: Options, body: impl FnOnce() -> T) -> (T, Vec<u8>) {
    let buffer = Buffer::default();
    let stream = Stream::start_with(buffer.clone(), options).unwrap();
    let value = body();
    stream.stop().unwrap();
    let trace = buffer.take();
    judge(what, &trace);
    judge_alone(what, &trace);
    // For Go's reader.
    let name = format!("filters-{}-p{}.trace", what.replace(' ', "-"), rt::gomaxprocs());
    common::keep(&name, &trace);
    (value, trace)
}

/// Calls that nobody waited for are left out; one that lost its processor is there, with its stack.
#[test]
fn without_short_calls() {
    everywhere("without_short_calls", || {
        let _guard = HangGuard::new("without_short_calls");
        rt::Config::new().gomaxprocs(1).run(|| {
            let calls = |trace: &[u8]| kinds(trace).0.get(&Ev::GoSyscallBegin).copied().unwrap_or(0);
            let work = || (0..1000).for_each(|_| rt::blocking(|| ()));
            let (_, all) = recorded("with short calls", Options::new(), work);
            assert!(calls(&all) >= 1000, "{}", calls(&all));
            let (_, few) = recorded("without short calls", Options::new().syscalls(false), work);
            // Sysmon may have come by in the middle of one.
            assert!(calls(&few) < 100, "{}", calls(&few));

            let ((), one) = recorded("a long call", Options::new().syscalls(false), || {
                let (called, answered) = (AtomicBool::new(false), AtomicBool::new(false));
                rt::scope(|s| {
                    s.go(|| {
                        rt::blocking(|| {
                            called.store(true, SeqCst);
                            stay_until(&answered, true);
                        });
                    });
                    s.go(|| {
                        while !called.load(SeqCst) {
                            rt::yield_now();
                        }
                        answered.store(true, SeqCst);
                    });
                });
            });
            let (mut begun, mut taken, mut ended) = (Vec::new(), 0, 0);
            common::events(&one, |e, _| match e.kind {
                Ev::GoSyscallBegin => begun.push(e.args[1] != 0),
                Ev::ProcSteal => taken += 1,
                Ev::GoSyscallEndBlocked => ended += 1,
                _ => {}
            });
            let walks = tracer::unwind::method() != tracer::unwind::Method::Off;
            assert!(begun.contains(&walks) && taken >= 1 && ended >= 1, "{begun:?}, {taken} taken, {ended} ended");
        });
    });
}

/// A call that goes on while generations come and go, subscribers want different things, and tracing ends and begins.
#[test]
fn a_call_over_many_generations() {
    everywhere("a_call_over_many_generations", || {
        let _guard = HangGuard::new("a_call_over_many_generations");
        rt::Config::new().gomaxprocs(2).run(|| {
            let (goes_on, calls) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU64::new(0)));
            let few = Options::new().syscalls(false);
            for order in 0..6 {
                let whole = Buffer::default();
                let early = (order % 2 == 0).then(|| Stream::start_with(whole.clone(), few).unwrap());
                goes_on.store(true, SeqCst);
                let caller = rt::go({
                    let (goes_on, calls) = (goes_on.clone(), calls.clone());
                    move || {
                        rt::blocking(|| {
                            calls.fetch_add(1, SeqCst);
                            stay_until(&goes_on, false);
                        });
                        rt::yield_now();
                    }
                });
                while calls.load(SeqCst) <= order {
                    rt::time::sleep(Duration::from_micros(100));
                }
                let mut traces = Vec::new();
                for labelled in [false, order >= 3 && early.is_none()] {
                    let recorder = FlightRecorder::new().options(few.only_labelled(labelled));
                    recorder.start().unwrap();
                    for _ in 0..3 {
                        let mut trace = Vec::new();
                        recorder.snapshot(&mut trace).unwrap();
                        traces.push(trace);
                    }
                    if !labelled {
                        let (_, trace) = recorded("beside them", Options::new(), rt::yield_now);
                        traces.push(trace);
                    }
                    if order == 5 {
                        goes_on.store(false, SeqCst);
                        rt::time::sleep(Duration::from_millis(1));
                    }
                    recorder.stop();
                }
                goes_on.store(false, SeqCst);
                caller.join().unwrap();
                if let Some(early) = early {
                    early.stop().unwrap();
                    traces.push(whole.take());
                }
                for (i, trace) in traces.iter().enumerate() {
                    let what = format!("order {order}, trace {i}");
                    judge(&what, trace);
                    judge_alone(&what, trace);
                }
            }
        });
    });
}

/// Does what a goroutine can do, and answers who took part.
fn everything() -> BTreeSet<i64> {
    let (tx, rx) = rt::chan::bounded(0);
    let ctx = Context::background();
    let ids = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let is_here = |ids: &std::sync::Mutex<BTreeSet<i64>>| {
        ids.lock().unwrap().insert(me());
    };
    let (ctx, task) = Task::begin(&ctx, "task");
    let others: Vec<_> = (0..4)
        .map(|i| {
            let (tx, ids, ctx) = (tx.clone(), ids.clone(), ctx.clone());
            rt::go(move || {
                is_here(&ids);
                trace::with_region(&ctx, "part", || {
                    for n in 0..20 {
                        tx.send(n).unwrap();
                        rt::yield_now();
                        rt::time::sleep(Duration::from_micros(20));
                        rt::blocking(|| std::thread::sleep(Duration::from_micros(10 * i)));
                    }
                    trace::log(&ctx, "category", "message");
                });
            })
        })
        .collect();
    assert_eq!(rx.iter().take(80).sum::<i32>(), 4 * (0..20).sum::<i32>());
    others.into_iter().for_each(|g| g.join().unwrap());
    task.end();
    std::mem::take(&mut *ids.lock().unwrap())
}

#[test]
fn only_labelled_goroutines() {
    everywhere("only_labelled_goroutines", || {
        let _guard = HangGuard::new("only_labelled_goroutines");
        rt::run(|| {
            let few = Options::new().only_labelled(true);
            // What lives before, between, and waits throughout.
            let (keep, kept) = rt::chan::bounded::<()>(0);
            let waiting = rt::go(move || kept.recv().is_err());
            let ((unlabelled, labelled), trace) = recorded("only labelled", few, || {
                let unlabelled = everything();
                let mut labelled = goroutine::with_labels(&[("request", "17")], everything);
                // Twice the same goroutine in one generation, and a generation that ends meanwhile.
                let recorder = FlightRecorder::new().options(few);
                recorder.start().unwrap();
                goroutine::with_labels(&[("request", "18")], || {
                    recorder.snapshot(io::sink()).unwrap();
                    rt::yield_now();
                    goroutine::with_labels(&[("more", "yes")], || recorder.snapshot(io::sink()).unwrap());
                });
                recorder.snapshot(io::sink()).unwrap();
                recorder.stop();
                let builder = rt::Builder::new().label("made", "so");
                let made = builder.spawn(me).unwrap();
                labelled.insert(made.join().unwrap());
                labelled.insert(me());
                (unlabelled, labelled)
            });
            let (kinds, seen) = kinds(&trace);
            assert!(labelled.is_subset(&seen), "{labelled:?} in {seen:?}");
            assert!(seen.is_disjoint(&unlabelled), "{unlabelled:?} not in {seen:?}");
            // The runtime's own, too.
            assert!(seen.len() <= labelled.len() + 2, "{labelled:?} in {seen:?}");
            assert_eq!(kinds[&Ev::UserTaskBegin], 1);
            assert_eq!((kinds[&Ev::UserTaskEnd], kinds[&Ev::UserRegionBegin], kinds[&Ev::UserLog]), (1, 4, 4));
            drop(keep);
            assert!(waiting.join().unwrap());
        });
    });
}

/// Regions and tasks that a goroutine begins before it has labels and ends after, and the other way round.
#[test]
fn what_is_said_across_labels() {
    let _guard = HangGuard::new("what_is_said_across_labels");
    rt::run(|| {
        let ctx = Context::background();
        let labels = goroutine::Labels::new().with(&[("a", "b")]);
        let ((), trace) = recorded("across labels", Options::new().only_labelled(true), || {
            let (_, silent_task) = Task::begin(&ctx, "silent task");
            let silent = trace::region(&ctx, "silent region");
            goroutine::set_labels(labels.clone());
            drop(silent);
            let (_, loud_task) = Task::begin(&ctx, "loud task");
            let over = trace::region(&ctx, "over before");
            goroutine::set_labels(goroutine::Labels::new());
            rt::yield_now();
            goroutine::set_labels(labels.clone());
            let inside = trace::region(&ctx, "inside");
            // It began in another life, and ends what began after it.
            drop(over);
            drop(inside);
            silent_task.end();
            loud_task.end();
            trace::log(&ctx, "category", "heard");
            goroutine::set_labels(goroutine::Labels::new());
            struct Unsaid;
            impl std::fmt::Display for Unsaid {
                fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    panic!("nobody hears it")
                }
            }
            trace::log(&ctx, "category", Unsaid);
        });
        let (kinds, seen) = kinds(&trace);
        let n = |kind| kinds.get(&kind).copied().unwrap_or(0);
        assert_eq!((n(Ev::UserTaskBegin), n(Ev::UserTaskEnd), n(Ev::UserLog)), (1, 1, 1));
        assert_eq!((n(Ev::UserRegionBegin), n(Ev::UserRegionEnd)), (2, 1));
        // Twice this one, and the advancer.
        assert_eq!(seen.len(), 3, "{seen:?}");
    });
}

/// In each trace a goroutine's first time has its own number.
#[test]
fn numbers_begin_anew() {
    let _guard = HangGuard::new("numbers_begin_anew");
    rt::run(|| {
        let me = me();
        for turn in 0..3 {
            let ((), trace) = recorded("numbers", Options::new().only_labelled(true), || {
                (0..2).for_each(|_| goroutine::with_labels(&[("a", "b")], rt::yield_now));
            });
            let seen = kinds(&trace).1;
            assert!(seen.len() == 3 && seen.contains(&me), "{me} in {seen:?}, turn {turn}");
        }
    });
}

/// Labels that come and go on a thread of one's own, and while a panic unwinds.
#[test]
fn labels_on_a_thread_of_its_own_and_in_a_panic() {
    everywhere("labels_on_a_thread_of_its_own_and_in_a_panic", || {
        let _guard = HangGuard::new("labels_on_a_thread_of_its_own_and_in_a_panic");
        rt::run(|| {
            let labels = [("a", "b")];
            let ((), trace) = recorded("locked and unwinding", Options::new().only_labelled(true), || {
                let locked = rt::go(move || {
                    let _locked = rt::lock_os_thread();
                    for _ in 0..20 {
                        rt::time::sleep(Duration::from_micros(50));
                        goroutine::with_labels(&labels, || rt::time::sleep(Duration::from_micros(50)));
                        rt::blocking(|| std::thread::sleep(Duration::from_micros(50)));
                    }
                });
                let unwinding = rt::go(move || {
                    struct Waits;
                    impl Drop for Waits {
                        fn drop(&mut self) {
                            rt::time::sleep(Duration::from_micros(100));
                            goroutine::with_labels(&[("c", "d")], || rt::time::sleep(Duration::from_micros(100)));
                        }
                    }
                    let _waits = Waits;
                    goroutine::with_labels(&labels, || std::panic::resume_unwind(Box::new("as is wanted")))
                });
                locked.join().unwrap();
                assert!(unwinding.join().is_err());
            });
            // 20 lives, two of the one that panics, and the advancer.
            assert_eq!(kinds(&trace).1.len(), 23);
        });
    });
}

/// The collector's events, while goroutines with and without labels allocate.
#[cfg(feature = "gc")]
#[test]
fn a_collected_heap_of_the_unlabelled() {
    everywhere("a_collected_heap_of_the_unlabelled", || {
        let _guard = HangGuard::new("a_collected_heap_of_the_unlabelled");
        rt::run(|| {
            let allocate = || {
                let mut last = None;
                for n in 0..20_000u64 {
                    let next = rt::gc::Gc::new((n, [0u64; 15]));
                    if n % 100 == 0 {
                        last = Some(next);
                    }
                }
                drop(last);
            };
            let ((), trace) = recorded("collected", Options::new().only_labelled(true), || {
                for _ in 0..3 {
                    let all: Vec<_> = (0..3).map(|_| rt::go(allocate)).collect();
                    goroutine::with_labels(&[("a", "b")], || rt::go(allocate).join().unwrap());
                    all.into_iter().for_each(|g| g.join().unwrap());
                    rt::gc::collect();
                }
            });
            assert!(kinds(&trace).0[&Ev::GcEnd] >= 3);
        });
    });
}

/// All of a session is of one kind.
#[test]
fn who_wants_all_goroutines_beside_who_wants_some() {
    let _guard = HangGuard::new("who_wants_all_goroutines_beside_who_wants_some");
    rt::run(|| {
        let few = Options::new().only_labelled(true);
        let (buffer, all) = (Buffer::default(), Buffer::default());
        let stream = Stream::start_with(buffer.clone(), few).unwrap();
        match Stream::start(io::sink()).map(drop) {
            Err(StartError::Io(e)) => {
                assert_eq!(e.kind(), io::ErrorKind::ResourceBusy);
                assert!(e.to_string().contains("only goroutines with labels are being recorded"), "{e}");
            }
            other => panic!("{other:?}"),
        }
        assert!(FlightRecorder::new().start().is_err());
        // Nothing is left of those who could not.
        let second = Stream::start_with(io::sink(), few).unwrap();
        rt::go(|| ()).join().unwrap();
        second.stop().unwrap();
        stream.stop().unwrap();
        let trace = buffer.take();
        judge("beside who could not", &trace);
        assert_eq!(kinds(&trace).0.get(&Ev::GoCreate), None);

        let stream = Stream::start(all.clone()).unwrap();
        let second = Stream::start_with(buffer.clone(), few).unwrap();
        rt::go(|| ()).join().unwrap();
        second.stop().unwrap();
        stream.stop().unwrap();
        for trace in [all.take(), buffer.take()] {
            judge("of all", &trace);
            assert!(kinds(&trace).0[&Ev::GoCreate] >= 1);
        }
    });
}
