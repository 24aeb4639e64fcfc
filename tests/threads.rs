//! Blocking calls take threads, of which there are so many: the others queue, in order, and the scheduler keeps the threads that it needs
//! to run the rest.

mod common;

use std::io::{PipeReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{child_passes, events, is_child, scaled, traced, wait_for};
use rt::chan::bounded;
use tracer::wire::Ev;

const QUEUED: &str = "/gort/sched/blocking-calls/queued:calls";
const WAITING: &str = "/gort/sched/blocking-calls/waiting:goroutines";

fn metric(name: &str) -> usize {
    rt::metrics::get(name).expect(name).as_u64().expect("a count") as usize
}

/// Runs a test's body in processes with so many Ps.
fn with_procs(test: &str, procs: &[&str], body: impl FnOnce()) {
    if is_child(test) {
        return body();
    }
    for n in procs {
        child_passes(test, &[("GOMAXPROCS", n)]);
    }
}

/// What calls block on: nothing is written until it is closed.
struct Silence {
    reader: PipeReader,
    /// Calls that have begun and not ended, and the most there were.
    inside: AtomicUsize,
    most: AtomicUsize,
}

impl Silence {
    fn new() -> (Arc<Silence>, std::io::PipeWriter) {
        let (reader, writer) = std::io::pipe().unwrap();
        (Arc::new(Silence { reader, inside: AtomicUsize::new(0), most: AtomicUsize::new(0) }), writer)
    }

    /// A blocking call that ends when the pipe is closed.
    fn listen(&self) {
        rt::blocking(|| {
            self.most.fetch_max(self.inside.fetch_add(1, SeqCst) + 1, SeqCst);
            assert_eq!((&self.reader).read(&mut [0]).unwrap(), 0, "nothing is ever written");
            self.inside.fetch_sub(1, SeqCst);
        });
    }

    fn listeners(self: &Arc<Self>, n: usize) -> Vec<rt::JoinHandle<()>> {
        (0..n)
            .map(|_| {
                let this = self.clone();
                rt::go(move || this.listen())
            })
            .collect()
    }
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// Five times as many calls as threads. One who sleeps is not held up by them.
#[test]
fn stampede_of_calls() {
    const MAX: usize = 64;
    const CALLS: usize = 300;
    with_procs("stampede_of_calls", &["1", "2", "8"], || {
        let procs = rt::gomaxprocs();
        rt::Config::new().max_threads(MAX).run(|| ());
        let others = threads() - metric("/sched/threads/total:threads");
        let (ticks, trace) = traced("a stampede of calls", move || {
            let (silence, writer) = Silence::new();
            let over = Arc::new(AtomicBool::new(false));
            let ticks = Arc::new(AtomicUsize::new(0));
            let ticker = {
                let (over, ticks) = (over.clone(), ticks.clone());
                rt::go(move || {
                    let mut worst = Duration::ZERO;
                    while !over.load(SeqCst) {
                        let began = Instant::now();
                        rt::time::sleep(Duration::from_millis(10));
                        worst = worst.max(began.elapsed());
                        ticks.fetch_add(1, SeqCst);
                    }
                    worst
                })
            };
            let calls = silence.listeners(CALLS);
            wait_for("all are inside or queue", || silence.inside.load(SeqCst) + metric(WAITING) == CALLS);
            let before = ticks.load(SeqCst);
            let goal = before + scaled(50, 25);
            wait_for("the ticker goes on", || ticks.load(SeqCst) >= goal);
            assert_eq!(silence.inside.load(SeqCst) + metric(WAITING), CALLS, "nobody has come out");
            let (inside, queued) = (silence.inside.load(SeqCst), metric(QUEUED));
            assert!(inside <= MAX - procs, "{inside} inside with {MAX} threads and GOMAXPROCS {procs}");
            assert!(inside > MAX / 2, "{inside} inside with {MAX} threads");
            assert_eq!(queued, CALLS - inside);
            let not_in_go = metric("/sched/goroutines/not-in-go:goroutines");
            assert_eq!(not_in_go, inside);
            drop(writer);
            calls.into_iter().for_each(|c| c.join().unwrap());
            over.store(true, SeqCst);
            let worst = ticker.join().unwrap();
            assert_eq!((silence.inside.load(SeqCst), metric(WAITING)), (0, 0));
            assert!(silence.most.load(SeqCst) <= MAX - procs);
            println!("GOMAXPROCS {procs}: {inside} inside, {queued} queued, the ticker's worst gap {worst:?}");
            ticks.load(SeqCst)
        });
        assert!(ticks > 0);
        assert_eq!(metric("/gort/sched/threads/refused:threads"), 0, "the scheduler lacked no thread");
        let now = threads();
        // The hang guard and the tracer's reader come and go.
        assert!(now <= MAX + others + 4, "{now} threads, {others} of which are others' own");
        // Each call is there, once. (Who was slow in plain code may have lost its P too, and that has no stack.)
        let mut begun = 0;
        events(&trace, |e, tables| {
            let in_listen = || tables.stack(e.stack()).any(|f| f.func.contains("listen"));
            begun += usize::from(e.kind == Ev::GoSyscallBegin && in_listen());
        });
        assert_eq!(begun, CALLS);
    });
}

/// With one thread more than GOMAXPROCS one call at a time goes on, and nobody else is in the way of it.
#[test]
fn one_place() {
    with_procs("one_place", &["1", "2", "4"], || {
        let procs = rt::gomaxprocs();
        rt::Config::new().max_threads(procs + 1).run(|| ());
        traced("one place", move || {
            let inside = Arc::new(AtomicUsize::new(0));
            let calls = scaled(20, 10);
            let goroutines: Vec<_> = (0..20)
                .map(|_| {
                    let inside = inside.clone();
                    rt::go(move || {
                        for _ in 0..calls {
                            rt::blocking(|| {
                                assert_eq!(inside.fetch_add(1, SeqCst), 0, "there is one place");
                                std::thread::sleep(Duration::from_micros(300));
                                inside.fetch_sub(1, SeqCst);
                            });
                            // A call that uses the runtime is over when it does.
                            rt::blocking(rt::yield_now);
                            rt::yield_now();
                        }
                    })
                })
                .collect();
            let mut ticks = 0;
            while !goroutines.iter().all(rt::JoinHandle::is_finished) {
                rt::time::sleep(Duration::from_millis(1));
                ticks += 1;
            }
            goroutines.into_iter().for_each(|g| g.join().unwrap());
            println!("GOMAXPROCS {procs}: {} had to wait, {ticks} ticks beside them", metric(QUEUED));
            assert_eq!(metric(WAITING), 0);
        });
    });
}

/// First come, first served, also while others come.
#[test]
fn in_order() {
    with_procs("in_order", &["1"], || {
        rt::Config::new().max_threads(2).run(|| ());
        let (order, _) = traced("in order", || {
            let (silence, writer) = Silence::new();
            let first = silence.listeners(1);
            wait_for("the first is inside", || silence.inside.load(SeqCst) == 1);
            // Not the runtime's own mutex, which would end the call.
            let order = Arc::new(std::sync::Mutex::new(Vec::new()));
            let mut rest = Vec::new();
            for i in 0..30 {
                let order = order.clone();
                rest.push(rt::go(move || {
                    rt::blocking(|| order.lock().unwrap().push(i));
                    rt::blocking(|| std::thread::sleep(Duration::from_micros(100)));
                }));
                wait_for("it queues", || metric(WAITING) == i + 1);
            }
            drop(writer);
            first.into_iter().chain(rest).for_each(|g| g.join().unwrap());
            std::mem::take(&mut *order.lock().unwrap())
        });
        assert_eq!(order, (0..30).collect::<Vec<_>>());
    });
}

/// Fewer Ps leave more threads to calls, and more Ps fewer.
#[test]
fn places_and_gomaxprocs() {
    with_procs("places_and_gomaxprocs", &["8"], || {
        rt::Config::new().max_threads(12).run(|| ());
        traced("places and GOMAXPROCS", || {
            let (silence, writer) = Silence::new();
            let calls = silence.listeners(20);
            wait_for("some are inside", || silence.inside.load(SeqCst) + metric(WAITING) == 20);
            assert_eq!(silence.inside.load(SeqCst), 4);
            rt::set_gomaxprocs(1);
            wait_for("more are inside", || silence.inside.load(SeqCst) == 8);
            rt::set_gomaxprocs(11);
            assert_eq!((silence.inside.load(SeqCst), metric(WAITING)), (8, 12));
            drop(writer);
            calls.into_iter().for_each(|c| c.join().unwrap());
            // One place is left, and everybody gets it.
            let (silence, writer) = Silence::new();
            let calls = silence.listeners(3);
            wait_for("one is inside", || silence.inside.load(SeqCst) + metric(WAITING) == 3);
            assert_eq!(silence.inside.load(SeqCst), 1);
            drop(writer);
            calls.into_iter().for_each(|c| c.join().unwrap());
        });
    });
}

/// A goroutine that unwinds waits for a place without giving up its thread, and is not in the way of those who hold one.
#[test]
fn while_unwinding() {
    struct Calls(Arc<Silence>, bool);
    impl Drop for Calls {
        fn drop(&mut self) {
            self.0.listen();
            if self.1 {
                rt::yield_now();
            }
        }
    }
    with_procs("while_unwinding", &["1", "2"], || {
        rt::Config::new().max_threads(rt::gomaxprocs() + 1).run(|| ());
        traced("while unwinding", || {
            let (silence, writer) = Silence::new();
            let calls = silence.listeners(1);
            wait_for("the first is inside", || silence.inside.load(SeqCst) == 1);
            let unwinding: Vec<_> = (0..6)
                .map(|i| {
                    let silence = silence.clone();
                    rt::go(move || {
                        let _calls = Calls(silence, i % 2 == 0);
                        std::panic::resume_unwind(Box::new("on purpose"));
                    })
                })
                .collect();
            wait_for("they queue", || metric(WAITING) == 6);
            drop(writer);
            calls.into_iter().for_each(|c| c.join().unwrap());
            unwinding.into_iter().for_each(|u| assert!(u.join().is_err()));
            rt::blocking(|| ());
            assert_eq!(metric(WAITING), 0);
        });
    });
}

/// What waits says for what: a thread.
#[test]
fn the_trace_shows_who_queues() {
    with_procs("the_trace_shows_who_queues", &["1"], || {
        rt::Config::new().max_threads(2).run(|| ());
        let (_, trace) = traced("who queues", || {
            let (silence, writer) = Silence::new();
            let mut calls = silence.listeners(1);
            wait_for("the first is inside", || silence.inside.load(SeqCst) == 1);
            let (tx, rx) = bounded::<()>(0);
            let own = silence.clone();
            calls.push(rt::go(move || {
                own.listen();
                drop(tx);
            }));
            wait_for("the second queues", || metric(WAITING) == 1);
            drop(writer);
            assert!(rx.recv().is_err());
            calls.into_iter().for_each(|c| c.join().unwrap());
        });
        let mut blocked = 0;
        events(&trace, |e, tables| {
            let in_listen = || tables.stack(e.stack()).any(|f| f.func.contains("listen"));
            if e.kind == Ev::GoBlock && e.text(tables).is_some_and(|t| t == "sync") && in_listen() {
                blocked += 1;
            }
        });
        assert_eq!(blocked, 1);
    });
}
