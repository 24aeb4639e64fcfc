//! `lock_os_thread`: the goroutine stays, and nobody else comes.

mod common;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use common::{Rng, everywhere, gettid, message, program, scaled, seed, traced, wait_for};
use rt::chan::{Receiver, Sender, bounded, unbounded};
use rt::lock_os_thread;
use rt::sync::{Mutex, WaitGroup};
use tracer::read::Reader;
use tracer::wire::ext::{Cause, Record};

programs!(more_than_max_threads, locked_deadlock);

/// The threads that belong to locked goroutines, with how many guards each of them has.
static LOCKED: std::sync::Mutex<Option<HashMap<u64, usize>>> = std::sync::Mutex::new(None);

fn locked<T>(f: impl FnOnce(&mut HashMap<u64, usize>) -> T) -> T {
    f(LOCKED.lock().unwrap().get_or_insert_default())
}

/// A guard and the thread it keeps.
struct Locked {
    tid: u64,
    guard: Option<rt::OsThreadGuard>,
}

impl Locked {
    fn new() -> Locked {
        let guard = Some(lock_os_thread());
        let tid = gettid();
        locked(|l| *l.entry(tid).or_default() += 1);
        Locked { tid, guard }
    }

    #[track_caller]
    fn check(&self) {
        assert_eq!(gettid(), self.tid, "a locked goroutine has moved");
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.check();
        locked(|l| {
            let n = l.get_mut(&self.tid).unwrap();
            *n -= 1;
            if *n == 0 {
                l.remove(&self.tid);
            }
        });
        self.guard.take();
    }
}

/// A goroutine that is not locked never runs on the thread of one that is.
#[track_caller]
fn check_free() {
    let tid = gettid();
    assert!(!locked(|l| l.contains_key(&tid)), "thread {tid} is a locked goroutine's");
}

struct Sea {
    rendezvous: (Sender<u64>, Receiver<u64>),
    buffered: (Sender<u64>, Receiver<u64>),
    lock: Mutex<u64>,
}

/// Something that may let go of the thread. Partners of the channels are those of [`feed`].
fn turn(sea: &Sea, rng: &mut Rng) {
    match rng.below(10) {
        0 => rt::yield_now(),
        1 => rt::time::sleep(Duration::from_micros(rng.below(300))),
        2 => rt::blocking(|| std::thread::sleep(Duration::from_micros(rng.below(300)))),
        3 => assert!(sea.rendezvous.1.recv().is_ok()),
        4 => assert!(sea.buffered.1.recv().is_ok()),
        5 => {
            let mut guard = sea.lock.lock();
            let before = *guard;
            if rng.below(2) == 0 {
                rt::yield_now();
            }
            assert_eq!(*guard, before);
            *guard += 1;
        }
        6 => {
            let group = WaitGroup::new();
            group.go(check_free);
            group.wait();
        }
        7 => {
            // What is made inside is not locked.
            rt::go(|| {
                check_free();
                rt::yield_now();
                check_free();
            })
            .join()
            .unwrap();
        }
        8 if rng.below(10) == 0 => common::busy(Duration::from_millis(12)),
        _ => drop(rt::go(check_free)),
    }
}

#[test]
fn stress_stays_on_its_thread() {
    everywhere("stress_stays_on_its_thread", || {
        let seed = seed();
        let (migrated, trace) = traced("locked storm", move || {
            let sea = Arc::new(Sea { rendezvous: bounded(0), buffered: bounded(4), lock: Mutex::new(0) });
            let feeders: Vec<_> = [sea.rendezvous.0.clone(), sea.buffered.0.clone()]
                .into_iter()
                .map(|tx| {
                    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
                    let stop = over.clone();
                    let h = rt::go(move || {
                        while !stop.load(SeqCst) {
                            // Nobody may be there any more.
                            if tx.try_send(1).is_err() {
                                rt::time::sleep(Duration::from_micros(50));
                            }
                            check_free();
                        }
                    });
                    (over, h)
                })
                .collect();
            let migrated = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..24)
                .map(|i| {
                    let (sea, migrated) = (sea.clone(), migrated.clone());
                    rt::go(move || {
                        let mut rng = Rng::new(seed ^ i);
                        for _ in 0..scaled(30, 10) {
                            let before = gettid();
                            for _ in 0..rng.below(4) {
                                turn(&sea, &mut rng);
                                check_free();
                            }
                            migrated.fetch_add(usize::from(gettid() != before), SeqCst);
                            let outer = Locked::new();
                            for _ in 0..rng.below(6) {
                                turn(&sea, &mut rng);
                                outer.check();
                                let inner = (rng.below(3) == 0).then(Locked::new);
                                turn(&sea, &mut rng);
                                outer.check();
                                drop(inner);
                                outer.check();
                            }
                        }
                    })
                })
                .collect();
            all.into_iter().for_each(|h| h.join().unwrap_or_else(|e| resume_unwind(e)));
            for (over, h) in feeders {
                over.store(true, SeqCst);
                h.join().unwrap();
            }
            assert!(locked(|l| l.is_empty()));
            migrated.load(SeqCst)
        });
        println!("{migrated} migrations of unlocked ones, {} Ps given back", given_back(&trace));
        assert!(given_back(&trace) > 0);
    });
}

/// How often a P was given to the thread of a locked goroutine.
fn given_back(trace: &[u8]) -> usize {
    let mut reader = Reader::new(trace).unwrap();
    let (mut generation, mut n) = (0, 0);
    while let Some(e) = reader.next() {
        e.unwrap();
        if std::mem::replace(&mut generation, reader.generation().number) != generation {
            let records = reader.tables().ext_records().map(|r| r.unwrap().record);
            n += records.filter(|r| matches!(r, Some(Record::HandOff { cause: Cause::LockedThread, .. }))).count();
        }
    }
    n
}

/// Guards count, and a std thread-local is as good as a variable in between.
#[test]
fn guards_count() {
    thread_local! {
        static HELD: std::cell::RefCell<Vec<u64>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    everywhere("guards_count", || {
        traced("nested guards", || {
            let all: Vec<_> = (0..8u64)
                .map(|i| {
                    rt::go(move || {
                        let a = lock_os_thread();
                        let tid = gettid();
                        HELD.with_borrow_mut(|held| {
                            for turn in 0..20 {
                                let b = lock_os_thread();
                                held.push(i);
                                rt::yield_now();
                                drop(b);
                                assert_eq!(gettid(), tid);
                                assert_eq!(*held, vec![i; turn + 1]);
                                rt::time::sleep(Duration::from_micros(20));
                            }
                            held.clear();
                        });
                        // Out of order.
                        let b = lock_os_thread();
                        drop(a);
                        rt::yield_now();
                        assert_eq!(gettid(), tid);
                        drop(b);
                    })
                })
                .collect();
            all.into_iter().for_each(|h| h.join().unwrap());
        });
    });
}

/// Without a guard goroutines do move: the tests above would notice.
#[test]
fn free_again_after_the_last_guard() {
    if !common::is_child("free_again_after_the_last_guard") {
        return common::child_passes("free_again_after_the_last_guard", &[("GOMAXPROCS", "4")]);
    }
    traced("free again", || {
        let moved = Arc::new(AtomicUsize::new(0));
        while moved.load(SeqCst) < 5 {
            let all: Vec<_> = (0..16)
                .map(|i| {
                    let moved = moved.clone();
                    rt::go(move || {
                        let guard = lock_os_thread();
                        if i % 2 == 0 {
                            rt::yield_now();
                        }
                        drop(guard);
                        let before = gettid();
                        for _ in 0..20 {
                            rt::yield_now();
                            rt::time::sleep(Duration::from_micros(100));
                        }
                        moved.fetch_add(usize::from(gettid() != before), SeqCst);
                    })
                })
                .collect();
            all.into_iter().for_each(|h| h.join().unwrap());
        }
    });
}

/// A panic drops the guard; until then, and in what waits while unwinding, the goroutine stays.
#[test]
fn stress_panics_while_locked() {
    struct Waits(u64, Receiver<()>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            rt::yield_now();
            self.1.recv().unwrap();
            let _inner = Locked::new();
            rt::time::sleep(Duration::from_micros(100));
            assert!(std::thread::panicking());
            assert_eq!(gettid(), self.0);
        }
    }
    everywhere("stress_panics_while_locked", || {
        traced("panics while locked", || {
            let n = scaled(200, 60);
            let (tx, rx) = bounded(0);
            let all: Vec<_> = (0..n)
                .map(|i| {
                    let rx = rx.clone();
                    rt::go(move || {
                        let caught = catch_unwind(AssertUnwindSafe(|| {
                            // Dropped before the guard, or after it: unwinding keeps the thread as well.
                            let _late = (i % 2 == 0).then(|| Waits(gettid(), rx.clone()));
                            let _locked = Locked::new();
                            let _early = (i % 2 != 0).then(|| Waits(gettid(), rx.clone()));
                            if i % 2 != 0 {
                                rt::yield_now();
                            }
                            resume_unwind(Box::new("on purpose"));
                        }));
                        assert_eq!(message(&*caught.unwrap_err()), "on purpose");
                        assert!(!std::thread::panicking());
                        rt::yield_now();
                        check_free();
                        assert!(!std::thread::panicking());
                    })
                })
                .collect();
            for _ in 0..n {
                tx.send(()).unwrap();
            }
            all.into_iter().for_each(|h| h.join().unwrap());
            assert!(locked(|l| l.is_empty()));
        });
    });
}

/// A goroutine that ends with its guard leaked, or dropped by somebody else on its thread, leaves its thread to the others.
#[test]
fn leaked_guards() {
    thread_local! {
        static LEFT: std::cell::RefCell<Vec<rt::OsThreadGuard>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    everywhere("leaked_guards", || {
        traced("leaked guards", || {
            for i in 0..200 {
                let h = rt::go(move || {
                    let guard = lock_os_thread();
                    rt::yield_now();
                    if i % 2 == 0 {
                        std::mem::forget(guard);
                    } else {
                        LEFT.with_borrow_mut(|l| l.push(guard));
                    }
                    let tid = gettid();
                    rt::time::sleep(Duration::from_micros(50));
                    assert_eq!(gettid(), tid, "still locked");
                });
                h.join().unwrap();
                // Whoever comes next on that thread drops what was left there, and is itself as locked as before.
                let h = rt::go(|| {
                    let mine = lock_os_thread();
                    let tid = gettid();
                    LEFT.take();
                    rt::yield_now();
                    assert_eq!(gettid(), tid);
                    drop(mine);
                });
                h.join().unwrap();
            }
            // Nobody is locked, so few threads do all of it.
            let all: Vec<_> = (0..100).map(|_| rt::go(rt::yield_now)).collect();
            all.into_iter().for_each(|h| h.join().unwrap());
        });
    });
}

/// On a thread there is nothing to do.
#[test]
fn threads_are_their_own() {
    let a = lock_os_thread();
    let b = lock_os_thread();
    let tid = gettid();
    let (tx, rx) = unbounded();
    rt::go(move || tx.send(gettid()).unwrap());
    assert_ne!(rx.recv().unwrap(), tid);
    drop(a);
    assert_eq!(gettid(), tid);
    assert_eq!(format!("{b:?}"), "OsThreadGuard { goroutine: None }");
}

/// Locked goroutines that wait come on top of the limit: otherwise those they wait for could not run.
fn more_than_max_threads() {
    let n = 40;
    rt::Config::new().gomaxprocs(2).max_threads(4).run(move || {
        let (tx, rx) = bounded::<usize>(0);
        let ready = Arc::new(AtomicUsize::new(0));
        let all: Vec<_> = (0..n)
            .map(|_| {
                let (rx, ready) = (rx.clone(), ready.clone());
                rt::go(move || {
                    let _guard = lock_os_thread();
                    let tid = gettid();
                    ready.fetch_add(1, SeqCst);
                    let got = rx.recv().unwrap();
                    assert_eq!(gettid(), tid);
                    (tid, got)
                })
            })
            .collect();
        wait_for("all are locked", || ready.load(SeqCst) == n);
        (0..n).for_each(|i| tx.send(i).unwrap());
        let mut ends: Vec<_> = all.into_iter().map(|h| h.join().unwrap()).collect();
        ends.sort_unstable();
        ends.dedup_by_key(|(tid, _)| *tid);
        assert_eq!(ends.len(), n, "each had a thread of its own");
    });
}

#[test]
fn limit_of_threads() {
    program("more_than_max_threads", &[]).expect_code(0);
}

/// A locked goroutine that waits for ever is as deadlocked as any other.
fn locked_deadlock() {
    rt::run(|| {
        let (tx, rx) = bounded::<()>(0);
        let other = rt::go({
            let rx = rx.clone();
            move || {
                let _guard = lock_os_thread();
                rx.recv()
            }
        });
        let _guard = lock_os_thread();
        let _ = (rx.recv(), other.join());
        drop(tx);
    });
}

#[test]
fn deadlock_while_locked() {
    for procs in ["1", "4"] {
        let ended = program("locked_deadlock", &[("GOMAXPROCS", procs)]);
        ended.expect_code(2).expect_stderr(&["all goroutines are asleep - deadlock!", "locked_deadlock"]);
    }
}
