//! `scope`: goroutines that borrow, and are all over when it returns.

mod common;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{Actor, Rng, everywhere, message, program, scaled, seed, traced};
use rt::chan::bounded;
use rt::goroutine;
use rt::sync::Mutex;
use tracer::read::Reader;
use tracer::wire::Ev;

programs!(cannot_start, without_a_runtime);

#[test]
fn borrows_and_changes() {
    for actor in Actor::BOTH {
        traced("borrows", move || {
            let scope = || {
                let words: Vec<String> = (0..40).map(|i| format!("word {i}")).collect();
                let mut lengths = [0; 40];
                let total = Mutex::new(0);
                let longest = rt::scope(|s| {
                    for (word, length) in words.iter().zip(&mut lengths) {
                        let total = &total;
                        s.go(move || {
                            *length = word.len();
                            rt::yield_now();
                            *total.lock() += *length;
                        });
                    }
                    // A result with a borrow in it.
                    let longest = s.go(|| words.iter().max_by_key(|w| w.len()).unwrap());
                    longest.join().unwrap().as_str()
                });
                assert_eq!(longest.len(), 7);
                assert_eq!(lengths.iter().sum::<usize>(), *total.lock());
                assert!(lengths.iter().zip(&words).all(|(l, w)| *l == w.len()));
            };
            actor.start(scope).join();
        });
    }
}

#[test]
fn nested_scopes() {
    traced("nested scopes", || {
        let counter = AtomicUsize::new(0);
        rt::scope(|s| {
            for _ in 0..4 {
                s.go(|| {
                    // From a goroutine of the scope, into the scope, and into one of its own.
                    s.go(|| {
                        rt::time::sleep(Duration::from_millis(2));
                        counter.fetch_add(1, SeqCst)
                    });
                    let local = AtomicUsize::new(0);
                    rt::scope(|inner| {
                        for _ in 0..4 {
                            inner.go(|| {
                                rt::yield_now();
                                local.fetch_add(1, SeqCst);
                                s.go(|| counter.fetch_add(1, SeqCst));
                            });
                        }
                    });
                    assert_eq!(local.load(SeqCst), 4);
                });
            }
        });
        assert_eq!(counter.load(SeqCst), 4 + 16);
    });
}

/// Counts its drops.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        rt::yield_now();
        self.0.fetch_add(1, SeqCst);
    }
}

/// What was captured and what was given back is gone when the scope is over, whatever became of the handle.
#[test]
fn nothing_is_left() {
    everywhere("nothing_is_left", || {
        traced("nothing is left", || {
            for round in 0..scaled(300, 60) {
                let drops = AtomicUsize::new(0);
                let finished = AtomicUsize::new(0);
                rt::scope(|s| {
                    let mut kept = Vec::new();
                    for i in 0..6 {
                        let captured = Counted(&drops);
                        let (drops, finished) = (&drops, &finished);
                        let h = s.go(move || {
                            let _captured = captured;
                            if i % 2 == 0 {
                                rt::yield_now();
                            }
                            finished.fetch_add(1, SeqCst);
                            Counted(drops)
                        });
                        match (i + round) % 3 {
                            0 => drop(h),
                            1 => kept.push(h),
                            _ => drop(h.join().unwrap()),
                        }
                    }
                });
                assert_eq!((finished.load(SeqCst), drops.load(SeqCst)), (6, 12));
            }
        });
    });
}

/// A handle that is leaked leaks its result and nothing else: the scope ends.
#[test]
fn leaked_handles() {
    traced("leaked handles", || {
        let text = String::from("borrowed");
        let ran = AtomicUsize::new(0);
        let payload = catch_unwind(AssertUnwindSafe(|| {
            rt::scope(|s| {
                std::mem::forget(s.go(|| {
                    ran.fetch_add(1, SeqCst);
                    &text
                }));
                // An unhandled panic is one also if the handle is gone for good.
                std::mem::forget(s.go(|| resume_unwind(Box::new(ran.fetch_add(1, SeqCst)))));
            })
        }));
        assert_eq!(message(&*payload.unwrap_err()), "a scoped goroutine panicked");
        assert_eq!(ran.load(SeqCst), 2);
    });
}

#[test]
fn panics() {
    for actor in Actor::BOTH {
        traced("panics in scopes", move || {
            let body = || {
                let ended = Cell::new(0);
                let slow = AtomicUsize::new(0);
                let sleeps = || {
                    rt::time::sleep(Duration::from_millis(3));
                    slow.fetch_add(1, SeqCst);
                };
                // A goroutine's panic that nobody has joined.
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    rt::scope(|s| {
                        s.go(|| resume_unwind(Box::new("unheard")));
                        s.go(sleeps);
                        ended.set(1);
                    })
                }));
                assert_eq!(message(&*caught.unwrap_err()), "a scoped goroutine panicked");
                assert_eq!((ended.get(), slow.load(SeqCst)), (1, 1));
                // One that was.
                let value = rt::scope(|s| {
                    let h = s.go(|| resume_unwind(Box::new("heard")));
                    s.go(sleeps);
                    let payload: Result<(), _> = h.join();
                    assert_eq!(message(&*payload.unwrap_err()), "heard");
                    5
                });
                assert_eq!((value, slow.load(SeqCst)), (5, 2));
                // The closure's own goes first, and waits.
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    rt::scope(|s| {
                        s.go(|| resume_unwind(Box::new("unheard")));
                        s.go(sleeps);
                        resume_unwind(Box::new("the closure"));
                    })
                }));
                assert_eq!(message(&*caught.unwrap_err()), "the closure");
                assert_eq!(slow.load(SeqCst), 3);
                // In a goroutine within: it is its maker's panic, then.
                let caught = catch_unwind(AssertUnwindSafe(|| {
                    rt::scope(|s| {
                        s.go(|| {
                            rt::scope(|inner| {
                                inner.go(|| resume_unwind(Box::new("deep")));
                            })
                        })
                        .join()
                    })
                }));
                assert_eq!(message(&*caught.unwrap().unwrap_err()), "a scoped goroutine panicked");
            };
            actor.start(body).join();
        });
    }
}

/// A result whose drop panics, with nobody there to hear it.
#[test]
fn results_that_panic() {
    struct Bomb<'a>(&'a AtomicUsize);
    impl Drop for Bomb<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            resume_unwind(Box::new("a result"));
        }
    }
    traced("results that panic", || {
        let dropped = AtomicUsize::new(0);
        for _ in 0..50 {
            rt::scope(|s| {
                let dropped = &dropped;
                let h = s.go(move || {
                    rt::yield_now();
                    Bomb(dropped)
                });
                // Whoever comes last drops it; here that can be heard.
                let _ = catch_unwind(AssertUnwindSafe(|| drop(h)));
            });
        }
        assert_eq!(dropped.load(SeqCst), 50);
    });
}

/// Scoped goroutines have names, labels, locals and settings as all others.
#[test]
fn settings() {
    rt::goroutine_local! {
        static AT_END: std::cell::RefCell<Option<Bell>> = const { std::cell::RefCell::new(None) };
    }
    struct Bell(Arc<AtomicUsize>);
    impl Drop for Bell {
        fn drop(&mut self) {
            rt::yield_now();
            self.0.fetch_add(1, SeqCst);
        }
    }
    traced("settings", || {
        let rung = Arc::new(AtomicUsize::new(0));
        goroutine::with_labels(&[("k", "v")], || {
            rt::scope(|s| {
                let builder = rt::Builder::new().name("scoped").label("l", "w").stack_size(1 << 20);
                let h = builder.spawn_scoped(s, || goroutine::current().unwrap()).unwrap();
                let id = h.id();
                let it = h.join().unwrap();
                assert_eq!((it.id(), it.name(), it.creator()), (id, Some("scoped"), goroutine::id()));
                assert_eq!((it.labels().get("k"), it.labels().get("l")), (Some("v"), Some("w")));
                assert!(rt::Builder::new().stack_size(1 << 30).spawn_scoped(s, || ()).is_err());
                for _ in 0..10 {
                    s.go(|| AT_END.set(Some(Bell(rung.clone()))));
                }
            });
        });
        assert_eq!(rung.load(SeqCst), 10, "locals are gone as well");
    });
}

/// The trace names goroutines after the program's functions, and their stacks end there.
#[test]
fn names_in_the_trace() {
    #[inline(never)]
    fn waits_in_scope(rx: &rt::chan::Receiver<()>) {
        while std::hint::black_box(rx.recv()).is_ok() {}
    }
    let (_, trace) = traced("names", || {
        let (tx, rx) = bounded(0);
        rt::scope(|s| {
            let rx = &rx;
            s.go(move || waits_in_scope(rx));
            // So often that it has waited at least once.
            for _ in 0..50 {
                rt::time::sleep(Duration::from_micros(500));
                tx.send(()).unwrap();
            }
            drop(tx);
        });
    });
    let mut starts = Vec::new();
    let mut outermost = Vec::new();
    let mut reader = Reader::new(&trace[..]).unwrap();
    while let Some(e) = reader.next() {
        let e = e.unwrap();
        let tables = reader.tables();
        if e.kind == Ev::GoCreate {
            starts.extend(tables.stack(e.args[1]).map(|f| f.func.to_string()).next());
        }
        let frames: Vec<String> = tables.stack(e.stack()).map(|f| f.func.to_string()).collect();
        if e.kind == Ev::GoBlock && frames.iter().any(|f| f.contains("waits_in_scope")) {
            outermost.push(frames);
        }
    }
    assert!(starts.iter().any(|s| s.contains("names_in_the_trace")), "{starts:?}");
    assert!(!starts.iter().any(|s| s.contains("rt::scope") || s.contains("Box<dyn")), "{starts:?}");
    let last = outermost.first().expect("it has waited").last().unwrap();
    assert!(last.contains("names_in_the_trace"), "{outermost:?}");
}

#[test]
fn stress_scopes() {
    fn tree(rng: &mut Rng, depth: u64, leaves: &AtomicUsize) -> usize {
        let mut sums = [0; 4];
        let n = 1 + rng.below(4) as usize;
        let seeds: Vec<u64> = (0..n).map(|_| rng.next()).collect();
        let panics = rng.below(20) == 0;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            rt::scope(|s| {
                for (sum, seed) in sums.iter_mut().zip(seeds) {
                    s.go(move || {
                        let mut rng = Rng::new(seed);
                        match rng.below(4) {
                            0 => rt::yield_now(),
                            1 => rt::time::sleep(Duration::from_micros(rng.below(100))),
                            _ => {}
                        }
                        *sum = if depth == 0 { 1 } else { tree(&mut rng, depth - 1, leaves) };
                        if depth == 0 {
                            leaves.fetch_add(1, SeqCst);
                        }
                    });
                }
                if panics {
                    resume_unwind(Box::new("a branch"));
                }
            })
        }));
        assert_eq!(caught.is_err(), panics);
        sums.iter().sum()
    }
    everywhere("stress_scopes", || {
        let seed = seed();
        traced("stress scopes", move || {
            let leaves = AtomicUsize::new(0);
            let mut sum = 0;
            for i in 0..scaled(60, 20) as u64 {
                sum += tree(&mut Rng::new(seed ^ i), 3, &leaves);
            }
            assert_eq!(sum, leaves.load(SeqCst));
            println!("{sum} leaves");
        });
    });
}

// Without a runtime.

/// A scope that makes nothing needs none; one that cannot have one says so and does not wait for what was never made.
fn cannot_start() {
    assert_eq!(rt::scope(|_| 3), 3);
    let caught = catch_unwind(|| rt::scope(|s| s.go(|| ()).join().unwrap()));
    let payload = caught.unwrap_err();
    assert!(message(&*payload).starts_with("cannot start the runtime: GOMAXPROCS=none"), "{}", message(&*payload));
}

fn without_a_runtime() {
    let mut n = 0;
    rt::scope(|s| s.go(|| n += 1).join().unwrap());
    assert_eq!(n, 1);
}

#[test]
fn scopes_start_the_runtime() {
    program("cannot_start", &[("GOMAXPROCS", "none")]).expect_code(0);
    program("without_a_runtime", &[]).expect_code(0);
}
