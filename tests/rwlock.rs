//! The read-write lock: many readers or one writer, and neither kind keeps the other out.

mod common;

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Actor, HangGuard, Rng, Started, busy, everywhere, scaled, seed, traced, wait_for};
use rt::sync::{RwLock, RwLockWriteGuard};

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(80);

/// Something that many may read or one may write, and that tells when it is not so. Its count is not atomic on purpose.
#[derive(Default)]
struct Guarded {
    readers: AtomicUsize,
    writing: AtomicBool,
    count: UnsafeCell<usize>,
}

// SAFETY: it fails if somebody writes while another is there.
unsafe impl Sync for Guarded {}

impl Guarded {
    fn read(&self, meanwhile: impl FnOnce()) -> usize {
        self.readers.fetch_add(1, SeqCst);
        assert!(!self.writing.load(SeqCst), "a reader beside a writer");
        // SAFETY: nobody writes, or the test has failed.
        let seen = unsafe { *self.count.get() };
        meanwhile();
        // SAFETY: as above.
        assert_eq!(unsafe { *self.count.get() }, seen);
        assert!(!self.writing.load(SeqCst), "a writer beside a reader");
        self.readers.fetch_sub(1, SeqCst);
        seen
    }

    fn write(&self, meanwhile: impl FnOnce()) {
        assert!(!self.writing.swap(true, SeqCst), "two writers");
        assert_eq!(self.readers.load(SeqCst), 0, "a writer beside a reader");
        // SAFETY: alone, or the test has failed.
        let before = unsafe { *self.count.get() };
        meanwhile();
        // SAFETY: as above.
        unsafe { *self.count.get() = before + 1 };
        assert_eq!(self.readers.load(SeqCst), 0, "a reader beside a writer");
        assert!(self.writing.swap(false, SeqCst), "two writers");
    }

    fn count(&self) -> usize {
        // SAFETY: all have ended.
        unsafe { *self.count.get() }
    }
}

/// Lets those who were just started begin to wait.
fn settle() {
    for _ in 0..20 {
        rt::yield_now();
    }
}

/// Waits until a writer waits (or writes): from then on nobody can read.
fn wait_for_writer<T>(lock: &RwLock<T>) {
    wait_for("a writer comes", || lock.try_read().is_none());
}

#[test]
fn smoke() {
    static GLOBAL: RwLock<Vec<u32>> = RwLock::new(Vec::new());
    traced("smoke", || {
        GLOBAL.write().push(1);
        rt::go(|| GLOBAL.write().push(2)).join().unwrap();
        assert_eq!((GLOBAL.read().len(), &**GLOBAL.read()), (2, &[1, 2][..]));

        let mut l = RwLock::from(5);
        *l.get_mut() += 1;
        assert_eq!(format!("{l:?}"), "RwLock { value: 6 }");
        let guard = l.write();
        assert_eq!(
            (format!("{l:?}"), format!("{guard:?}"), format!("{guard}")),
            ("RwLock { value: <locked> }".into(), "6".into(), "6".into())
        );
        drop(guard);
        let guard = l.read();
        assert_eq!(
            (format!("{l:?}"), format!("{guard:?}"), format!("{guard}")),
            ("RwLock { value: 6 }".into(), "6".into(), "6".into())
        );
        drop(guard);
        assert_eq!(l.into_inner(), 6);
        assert_eq!(RwLock::<u8>::default().into_inner(), 0);

        let unsized_value: Arc<RwLock<[u8]>> = Arc::new(RwLock::new([1, 2, 3]));
        unsized_value.write()[1] = 9;
        assert_eq!(*unsized_value.read(), [1, 9, 3]);
    });
}

#[test]
fn try_forms() {
    traced("try_forms", || {
        for actor in Actor::BOTH {
            let l = Arc::new(RwLock::new(0));
            let asks = |what: fn(&RwLock<i32>) -> bool| {
                let l = l.clone();
                actor.start(move || what(&l)).join()
            };
            let reads: fn(&RwLock<i32>) -> bool = |l| l.try_read().is_some();
            let writes: fn(&RwLock<i32>) -> bool = |l| l.try_write().map(|mut g| *g += 1).is_some();
            assert_eq!((asks(reads), asks(writes)), (true, true));
            let (first, second) = (l.read(), l.try_read().expect("readers share"));
            assert_eq!((asks(reads), asks(writes)), (true, false));
            drop(first);
            assert_eq!((asks(reads), asks(writes)), (true, false));
            drop(second);
            let writing = l.try_write().expect("it is free");
            assert_eq!((asks(reads), asks(writes)), (false, false));
            drop(writing);
            assert_eq!((asks(reads), asks(writes)), (true, true));
            assert_eq!(*l.read(), 2);
        }
    });
}

/// A writer that has no time to wait keeps no reader out, not even for a moment.
#[test]
fn without_time_nobody_is_kept_out() {
    traced("rwlock without time", || {
        let lock = Arc::new(RwLock::new(()));
        let over = Arc::new(AtomicBool::new(false));
        let reading = lock.read();
        let writers: Vec<_> = Actor::BOTH
            .into_iter()
            .map(|actor| {
                let (lock, over) = (lock.clone(), over.clone());
                actor.start(move || {
                    while !over.load(SeqCst) {
                        assert!(lock.try_write_for(Duration::ZERO).is_none());
                        assert!(lock.try_write_until(Instant::now()).is_none());
                        rt::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..scaled(20_000, 5_000) {
            assert!(lock.try_read().is_some(), "a writer is before it");
            rt::yield_now();
        }
        over.store(true, SeqCst);
        writers.into_iter().for_each(|w| w.join());
        drop(reading);
        assert!(lock.try_write_for(Duration::ZERO).is_some());
    });
}

#[test]
fn time_outs() {
    traced("time_outs", || {
        let short = Duration::from_millis(4);
        for actor in Actor::BOTH {
            let l = Arc::new(RwLock::new(0));
            let took = |what: fn(&RwLock<i32>, Duration) -> bool| {
                let l = l.clone();
                actor
                    .start(move || {
                        let began = Instant::now();
                        let got = what(&l, short);
                        assert!(got || began.elapsed() >= short, "gave up after {:?}", began.elapsed());
                        got
                    })
                    .join()
            };
            let forms: [fn(&RwLock<i32>, Duration) -> bool; 4] = [
                |l, t| l.try_read_for(t).is_some(),
                |l, t| l.try_read_until(Instant::now() + t).is_some(),
                |l, t| l.try_write_for(t).is_some(),
                |l, t| l.try_write_until(Instant::now() + t).is_some(),
            ];
            assert_eq!(forms.map(took), [true; 4]);
            let writing = l.write();
            assert_eq!(forms.map(took), [false; 4]);
            drop(writing);
            let reading = l.read();
            assert_eq!(forms.map(took), [true, true, false, false]);
            drop(reading);
            // Those who left have left nothing behind.
            assert_eq!(forms.map(took), [true; 4]);
            assert!(l.try_write_for(Duration::ZERO).is_some() && l.try_read_for(Duration::ZERO).is_some());
            assert!(l.try_write_until(Instant::now()).is_some() && l.try_read_for(Duration::MAX).is_some());
        }
    });
}

/// A writer waits for readers, and readers for it. It leaves: they go on.
#[test]
fn writer_that_leaves_lets_readers_in() {
    everywhere("writer_that_leaves_lets_readers_in", || {
        traced("writer_that_leaves_lets_readers_in", || {
            for actor in Actor::BOTH {
                for round in 0..10 {
                    let l = Arc::new(RwLock::new(()));
                    let reading = l.read();
                    let theirs = l.clone();
                    let writer = actor.start(move || theirs.try_write_for(Duration::from_millis(15)).is_some());
                    let others: Vec<_> = (0..6)
                        .map(|i| {
                            let l = l.clone();
                            Actor::mixed(i).start(move || {
                                if round % 2 == 0 {
                                    drop(l.read());
                                } else {
                                    assert!(l.try_read_for(NEVER).is_some());
                                }
                            })
                        })
                        .collect();
                    assert!(!writer.join(), "it got the lock beside a reader");
                    others.into_iter().for_each(Started::join);
                    drop(reading);
                    assert!(l.try_write().is_some());
                }
            }
        });
    });
}

#[test]
fn stampede() {
    everywhere("stampede", || {
        let seed = seed();
        traced("stampede", move || {
            let (actors, each) = (16, scaled(3000, 300));
            let shared = Arc::new((RwLock::new(()), Guarded::default()));
            let running: Vec<_> = (0..actors)
                .map(|a| {
                    let shared = shared.clone();
                    let mut rng = Rng::new(seed ^ a as u64);
                    Actor::mixed(usize::from(a % 4 == 0)).start(move || {
                        let mut writes = 0;
                        for _ in 0..each {
                            let (l, guarded) = &*shared;
                            let dawdle = match rng.below(64) {
                                0 | 1 => 1,
                                2 => 2,
                                3 if rng.below(8) == 0 => 3,
                                _ => 0,
                            };
                            let meanwhile = || match dawdle {
                                1 => rt::yield_now(),
                                2 => busy(Duration::from_micros(50)),
                                3 => rt::time::sleep(Duration::from_micros(100)),
                                _ => {}
                            };
                            let limit = Duration::from_micros(rng.below(300));
                            match rng.below(10) {
                                0 => {
                                    let _held = l.write();
                                    guarded.write(meanwhile);
                                    writes += 1;
                                }
                                1 => {
                                    if let Some(_held) = l.try_write_for(limit) {
                                        guarded.write(meanwhile);
                                        writes += 1;
                                    }
                                }
                                2 => {
                                    if let Some(_held) = l.try_write() {
                                        guarded.write(meanwhile);
                                        writes += 1;
                                    }
                                }
                                3 => {
                                    let held = l.write();
                                    guarded.write(|| {});
                                    writes += 1;
                                    // SAFETY: the lock is held.
                                    let mine = unsafe { *guarded.count.get() };
                                    let _held = RwLockWriteGuard::downgrade(held);
                                    assert_eq!(guarded.read(meanwhile), mine, "somebody wrote in between");
                                }
                                4 => {
                                    if let Some(_held) = l.try_read_for(limit) {
                                        guarded.read(meanwhile);
                                    }
                                }
                                5 => {
                                    if let Some(_held) = l.try_read() {
                                        guarded.read(meanwhile);
                                    }
                                }
                                _ => {
                                    let _held = l.read();
                                    guarded.read(meanwhile);
                                }
                            }
                        }
                        writes
                    })
                })
                .collect();
            let writes: usize = running.into_iter().map(Started::join).sum();
            assert_eq!(shared.1.count(), writes);
            assert!(shared.0.try_write().is_some(), "somebody still holds it");
        });
    });
}

/// Sixty-four goroutines that do little else.
#[test]
fn stress_many_turns() {
    let _guard = HangGuard::new("stress_many_turns");
    let (goroutines, each) = (64, scaled(1_000_000, 10_000));
    let began = Instant::now();
    let writes = rt::run(move || {
        let lock = Arc::new(RwLock::new(0usize));
        let running: Vec<_> = (0..goroutines)
            .map(|a| {
                let lock = lock.clone();
                rt::go(move || {
                    let mut last = 0;
                    for i in 0..each {
                        if (i + a) % 64 == 0 {
                            *lock.write() += 1;
                        } else {
                            let now = *lock.read();
                            assert!(now >= last);
                            last = now;
                        }
                    }
                })
            })
            .collect();
        running.into_iter().for_each(|h| h.join().unwrap());
        Arc::into_inner(lock).unwrap().into_inner()
    });
    assert_eq!(writes, goroutines * each / 64);
    println!("{} turns in {:?}", goroutines * each, began.elapsed());
}

/// Readers that overlap, so that there is always one, do not keep a writer out.
#[test]
fn no_starvation_of_writers() {
    everywhere("no_starvation_of_writers", || {
        traced("no_starvation_of_writers", || {
            let shared = Arc::new((RwLock::new(0usize), AtomicBool::new(false)));
            let readers: Vec<_> = (0..6)
                .map(|a| {
                    let shared = shared.clone();
                    Actor::mixed(usize::from(a == 0)).start(move || {
                        let mut turns = 0usize;
                        let mut held = Some(shared.0.read());
                        while !shared.1.load(SeqCst) {
                            busy(Duration::from_micros(100));
                            // The next one is taken before this one is let go, where that is possible.
                            held = shared.0.try_read().or_else(|| {
                                drop(held.take());
                                Some(shared.0.read())
                            });
                            turns += 1;
                        }
                        drop(held);
                        turns
                    })
                })
                .collect();
            for _ in 0..20 {
                *shared.0.write() += 1;
                rt::yield_now();
            }
            assert!(shared.0.try_write_for(NEVER).is_some());
            shared.1.store(true, SeqCst);
            let turns: usize = readers.into_iter().map(Started::join).sum();
            assert_eq!(*shared.0.read(), 20);
            println!("{turns} turns of the readers");
        });
    });
}

/// Writers that stand in line, so that there is always one, do not keep a reader out.
#[test]
fn no_starvation_of_readers() {
    everywhere("no_starvation_of_readers", || {
        traced("no_starvation_of_readers", || {
            let shared = Arc::new((RwLock::new(0usize), AtomicBool::new(false)));
            let writers: Vec<_> = (0..4)
                .map(|a| {
                    let shared = shared.clone();
                    Actor::mixed(usize::from(a == 0)).start(move || {
                        let mut turns = 0usize;
                        while !shared.1.load(SeqCst) {
                            let mut n = shared.0.write();
                            busy(Duration::from_micros(100));
                            *n += 1;
                            turns += 1;
                        }
                        turns
                    })
                })
                .collect();
            let mut last = 0;
            for _ in 0..20 {
                let now = *shared.0.read();
                assert!(now >= last);
                last = now;
                rt::yield_now();
            }
            assert!(shared.0.try_read_for(NEVER).is_some());
            shared.1.store(true, SeqCst);
            let turns: usize = writers.into_iter().map(Started::join).sum();
            assert_eq!(*shared.0.read(), turns);
            println!("{turns} turns of the writers");
        });
    });
}

/// A writer that waits keeps new readers out; when it unlocks, the readers that waited go before the next writer.
#[test]
fn turns_are_taken() {
    let name = "turns_are_taken";
    if !common::is_child(name) {
        return common::child_passes(name, &[("GOMAXPROCS", "1")]);
    }
    traced(name, || {
        for round in 0..20 {
            let shared = Arc::new((RwLock::new(Vec::new()), AtomicUsize::new(0)));
            let start = |who: &'static str, writes: bool| {
                let shared = shared.clone();
                let h = rt::go(move || {
                    shared.1.fetch_add(1, SeqCst);
                    if writes {
                        shared.0.write().push(who.to_owned());
                    } else {
                        let seen = shared.0.read().clone();
                        // What it saw, for the judge.
                        return seen.join(" ");
                    }
                    String::new()
                });
                settle();
                h
            };
            let reading = shared.0.read();
            let first = start("first", true);
            wait_for_writer(&shared.0);
            assert!(shared.0.try_read().is_none() && shared.0.try_read_for(Duration::from_micros(50)).is_none());
            // Before or after the readers that wait.
            let mut second = None;
            if round % 2 == 0 {
                second = Some(start("second", true));
            }
            let readers: Vec<_> = (0..5).map(|_| start("", false)).collect();
            let second = second.unwrap_or_else(|| start("second", true));
            wait_for("all have come", || shared.1.load(SeqCst) == 7);
            settle();
            assert!(reading.is_empty());
            drop(reading);
            first.join().unwrap();
            for r in readers {
                assert_eq!(r.join().unwrap(), "first");
            }
            second.join().unwrap();
            assert_eq!(*shared.0.read(), ["first", "second"]);
        }
    });
}

#[test]
fn downgrade() {
    everywhere("downgrade", || {
        traced("downgrade", || {
            let l = Arc::new(RwLock::new(1));
            let mut writing = l.write();
            let readers: Vec<_> = (0..6)
                .map(|i| {
                    let l = l.clone();
                    Actor::mixed(i).start(move || *l.read())
                })
                .collect();
            let theirs = l.clone();
            let writer = rt::go(move || *theirs.write() = 3);
            settle();
            *writing = 2;
            let reading = RwLockWriteGuard::downgrade(writing);
            // They share the lock with this guard. (One that comes only now may find the writer before it.)
            assert_eq!(*reading, 2);
            settle();
            assert!(!writer.is_finished(), "a writer beside a reader");
            drop(reading);
            writer.join().unwrap();
            for r in readers {
                let seen = r.join();
                assert!(seen == 2 || seen == 3, "{seen}");
            }
            assert_eq!(*l.read(), 3);
        });
    });
}

#[test]
fn panic_unlocks() {
    traced("panic_unlocks", || {
        let l = Arc::new(RwLock::new(0));
        for actor in Actor::BOTH {
            for writes in [false, true] {
                let theirs = l.clone();
                let payload = actor
                    .start(move || {
                        catch_unwind(AssertUnwindSafe(|| {
                            let (_r, _w);
                            if writes {
                                _w = theirs.write();
                            } else {
                                _r = theirs.read();
                            }
                            resume_unwind(Box::new("while locked"));
                        }))
                        .unwrap_err()
                    })
                    .join();
                assert_eq!(common::message(&*payload), "while locked");
                *l.try_write().expect("no poisoning") += 1;
            }
        }
        assert_eq!(*l.read(), 4);
    });
}
