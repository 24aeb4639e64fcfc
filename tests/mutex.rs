//! The mutex: exclusion, nobody starves, and the lock belongs to the goroutine wherever it runs.

mod common;

use std::cell::{RefCell, UnsafeCell};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

use common::{Actor, HangGuard, Rng, Started, busy, everywhere, scaled, seed, traced, wait_for};
use rt::sync::{MappedMutexGuard, Mutex, MutexGuard};

/// Something that only one at a time may touch, and that tells when it is not so. Its count is not atomic on purpose.
#[derive(Default)]
struct Exclusive {
    inside: AtomicBool,
    count: UnsafeCell<usize>,
}

// SAFETY: `alone` fails if two touch the count at once.
unsafe impl Sync for Exclusive {}

impl Exclusive {
    fn alone(&self, meanwhile: impl FnOnce()) {
        assert!(!self.inside.swap(true, SeqCst), "two hold the lock");
        // SAFETY: the flag was won; it is the caller's business that others do not come.
        let before = unsafe { *self.count.get() };
        meanwhile();
        // SAFETY: as above.
        unsafe { *self.count.get() = before + 1 };
        assert!(self.inside.swap(false, SeqCst), "two hold the lock");
    }
}

/// Waits until `n` have said that they are about to lock, and lets them.
fn let_wait(about_to: &AtomicUsize, n: usize) {
    wait_for("all are about to wait", || about_to.load(SeqCst) == n);
    for _ in 0..20 {
        rt::yield_now();
    }
}

#[test]
fn smoke() {
    static GLOBAL: Mutex<Vec<u32>> = Mutex::new(Vec::new());
    traced("smoke", || {
        GLOBAL.lock().push(1);
        rt::go(|| GLOBAL.lock().push(2)).join().unwrap();
        assert_eq!(*GLOBAL.lock(), [1, 2]);

        let mut m = Mutex::from(5);
        *m.get_mut() += 1;
        assert_eq!(format!("{m:?}"), "Mutex { value: 6 }");
        let guard = m.lock();
        assert_eq!(
            (format!("{m:?}"), format!("{guard:?}"), format!("{guard}")),
            ("Mutex { value: <locked> }".into(), "6".into(), "6".into())
        );
        drop(guard);
        assert_eq!(m.into_inner(), 6);
        assert_eq!(Mutex::<u8>::default().into_inner(), 0);

        let unsized_value: Arc<Mutex<[u8]>> = Arc::new(Mutex::new([1, 2, 3]));
        unsized_value.lock()[1] = 9;
        assert_eq!(*unsized_value.lock(), [1, 9, 3]);
    });
}

#[test]
fn smoke_threads_only() {
    let m = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let m = m.clone();
            std::thread::spawn(move || (0..scaled(50_000, 5_000)).for_each(|_| *m.lock() += 1))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    assert_eq!(*m.lock(), 4 * scaled(50_000, 5_000));
}

#[test]
fn try_lock() {
    traced("try_lock", || {
        let m = Arc::new(Mutex::new(0));
        *m.try_lock().expect("it is free") += 1;
        let guard = m.lock();
        assert!(m.try_lock().is_none());
        for actor in Actor::BOTH {
            let m = m.clone();
            assert!(actor.start(move || m.try_lock().is_none()).join(), "a {actor:?} must not get it");
        }
        drop(guard);
        for actor in Actor::BOTH {
            let m = m.clone();
            assert!(actor.start(move || m.try_lock().map(|mut g| *g += 1).is_some()).join(), "a {actor:?} may have it");
        }
        assert_eq!(*m.lock(), 3);
    });
}

/// "Takes the lock if it is free", also when others wait for it and none has taken it yet.
#[test]
fn try_lock_before_those_who_wait() {
    if !common::is_child("try_lock_before_those_who_wait") {
        return common::child_passes("try_lock_before_those_who_wait", &[("GOMAXPROCS", "1")]);
    }
    traced("try_lock_before_those_who_wait", || {
        for waiters in 1..4 {
            let m = Arc::new(Mutex::new(0));
            let about_to = Arc::new(AtomicUsize::new(0));
            let guard = m.lock();
            let waiting: Vec<_> = (0..waiters)
                .map(|_| {
                    let (m, about_to) = (m.clone(), about_to.clone());
                    rt::go(move || {
                        about_to.fetch_add(1, SeqCst);
                        *m.lock() += 1;
                    })
                })
                .collect();
            let_wait(&about_to, waiters);
            drop(guard);
            // There is one P, and this goroutine has it: nobody can have taken the lock. (A preemption here could let one,
            // but then it has finished as well.)
            let free = m.try_lock().is_some();
            waiting.into_iter().for_each(|h| h.join().unwrap());
            assert_eq!(*m.lock(), waiters);
            assert!(free, "{waiters} waited, nobody held the lock, and try_lock did not take it");
        }
    });
}

/// Many at once, goroutines and threads, some of whom give up their turn while they hold the lock.
#[test]
fn stampede() {
    everywhere("stampede", || {
        let seed = seed();
        traced("stampede", move || {
            let (actors, each) = (16, scaled(4000, 400));
            let shared = Arc::new((Mutex::new(()), Exclusive::default()));
            let running: Vec<_> = (0..actors)
                .map(|a| {
                    let shared = shared.clone();
                    let mut rng = Rng::new(seed ^ a as u64);
                    Actor::mixed(usize::from(a % 4 == 0)).start(move || {
                        for _ in 0..each {
                            let held = shared.0.lock();
                            shared.1.alone(|| match rng.below(64) {
                                0 | 1 => rt::yield_now(),
                                2 => busy(Duration::from_micros(50)),
                                3 if rng.below(8) == 0 => rt::time::sleep(Duration::from_micros(100)),
                                _ => {}
                            });
                            drop(held);
                            if rng.below(16) == 0 {
                                rt::yield_now();
                            }
                        }
                    })
                })
                .collect();
            running.into_iter().for_each(Started::join);
            // SAFETY: all have ended.
            assert_eq!(unsafe { *shared.1.count.get() }, actors * each);
        });
    });
}

/// As a stampede, but each takes the lock only if it need not wait.
#[test]
fn stampede_of_try_lock() {
    everywhere("stampede_of_try_lock", || {
        traced("stampede_of_try_lock", || {
            let (actors, each) = (8, scaled(5000, 500));
            let shared = Arc::new((Mutex::new(()), Exclusive::default()));
            let running: Vec<_> = (0..actors)
                .map(|a| {
                    let shared = shared.clone();
                    Actor::mixed(usize::from(a % 4 == 0)).start(move || {
                        let mut got = 0;
                        for i in 0..each {
                            // Now and then somebody waits, so that every state of the lock is seen.
                            let held = if i % 50 == 0 { Some(shared.0.lock()) } else { shared.0.try_lock() };
                            if held.is_some() {
                                shared.1.alone(|| {
                                    if i % 10 == 0 {
                                        rt::yield_now()
                                    }
                                });
                                got += 1;
                            }
                        }
                        got
                    })
                })
                .collect();
            let got: usize = running.into_iter().map(Started::join).sum();
            // SAFETY: all have ended.
            assert_eq!(unsafe { *shared.1.count.get() }, got);
            assert!(got >= actors * each / 50);
        });
    });
}

#[test]
fn held_across_yields() {
    everywhere("held_across_yields", || {
        traced("held_across_yields", || {
            let m = Arc::new(Mutex::new(Vec::new()));
            let running: Vec<_> = (0..10)
                .map(|a| {
                    let m = m.clone();
                    Actor::mixed(usize::from(a % 5 == 0)).start(move || {
                        let mut list = m.lock();
                        for i in 0..20 {
                            list.push((a, i));
                            rt::yield_now();
                        }
                    })
                })
                .collect();
            running.into_iter().for_each(Started::join);
            let list = m.lock();
            assert_eq!(list.len(), 200);
            for block in list.chunks(20) {
                assert!(block.iter().enumerate().all(|(i, e)| *e == (block[0].0, i)), "torn: {block:?}");
            }
            assert_eq!(list.iter().map(|e| e.0).collect::<HashSet<_>>().len(), 10);
        });
    });
}

#[test]
fn unlock_while_many_wait() {
    everywhere("unlock_while_many_wait", || {
        traced("unlock_while_many_wait", || {
            for round in 0..20 {
                let shared = Arc::new((Mutex::new(0), AtomicUsize::new(0)));
                let held = shared.0.lock();
                let waiting: Vec<_> = (0..50)
                    .map(|i| {
                        let shared = shared.clone();
                        Actor::mixed(usize::from(i % 10 == 0)).start(move || {
                            shared.1.fetch_add(1, SeqCst);
                            *shared.0.lock() += 1;
                        })
                    })
                    .collect();
                let_wait(&shared.1, 50);
                if round % 2 == 0 {
                    // Those who wait for longer than a millisecond are handed the lock.
                    rt::time::sleep(Duration::from_millis(3));
                }
                assert_eq!(*held, 0);
                drop(held);
                waiting.into_iter().for_each(Started::join);
                assert_eq!(*shared.0.lock(), 50);
            }
        });
    });
}

/// One that takes the lock again and again as fast as it can, and holds it for nearly all the time, does not keep the
/// others out.
fn others_get_the_lock(what: &'static str, greedy: Actor, hold: Duration) {
    traced(what, move || {
        let shared = Arc::new((Mutex::new(0usize), AtomicBool::new(false)));
        let s = shared.clone();
        let greedy = greedy.start(move || {
            let mut turns = 0usize;
            while !s.1.load(SeqCst) {
                let mut n = s.0.lock();
                busy(hold);
                *n += 1;
                turns += 1;
            }
            turns
        });
        let (others, each) = (6, 5);
        let running: Vec<_> = (0..others)
            .map(|a| {
                let shared = shared.clone();
                Actor::mixed(usize::from(a == 0)).start(move || {
                    for _ in 0..each {
                        *shared.0.lock() += 1;
                        rt::yield_now();
                    }
                })
            })
            .collect();
        running.into_iter().for_each(Started::join);
        shared.1.store(true, SeqCst);
        let turns = greedy.join();
        assert_eq!(*shared.0.lock(), turns + others * each);
        println!("{what}: {turns} turns of the greedy one");
    });
}

#[test]
fn no_starvation_by_a_goroutine() {
    everywhere("no_starvation_by_a_goroutine", || {
        others_get_the_lock("no_starvation, short", Actor::Goroutine, Duration::ZERO);
        others_get_the_lock("no_starvation, long", Actor::Goroutine, Duration::from_micros(300));
    });
}

#[test]
fn no_starvation_by_a_thread() {
    everywhere("no_starvation_by_a_thread", || {
        others_get_the_lock("no_starvation by a thread, short", Actor::Thread, Duration::ZERO);
        others_get_the_lock("no_starvation by a thread, long", Actor::Thread, Duration::from_micros(300));
    });
}

#[test]
fn panic_unlocks() {
    everywhere("panic_unlocks", || {
        traced("panic_unlocks", || {
            let m = Arc::new(Mutex::new(0));
            for actor in Actor::BOTH {
                for waiters in [0, 5] {
                    let about_to = Arc::new(AtomicUsize::new(0));
                    let (go_on, stop) = rt::chan::bounded::<()>(0);
                    let (locked, is_locked) = rt::chan::bounded::<()>(0);
                    let victim = m.clone();
                    let panicking = actor.start(move || {
                        catch_unwind(AssertUnwindSafe(|| {
                            let mut held = victim.lock();
                            locked.send(()).unwrap();
                            stop.recv().unwrap();
                            *held += 1;
                            resume_unwind(Box::new("while locked"));
                        }))
                        .unwrap_err()
                    });
                    is_locked.recv().unwrap();
                    let waiting: Vec<_> = (0..waiters)
                        .map(|i| {
                            let (m, about_to) = (m.clone(), about_to.clone());
                            Actor::mixed(i).start(move || {
                                about_to.fetch_add(1, SeqCst);
                                *m.lock() += 1;
                            })
                        })
                        .collect();
                    let_wait(&about_to, waiters);
                    assert!(m.try_lock().is_none());
                    go_on.send(()).unwrap();
                    assert_eq!(common::message(&*panicking.join()), "while locked");
                    waiting.into_iter().for_each(Started::join);
                }
            }
            assert_eq!(*m.lock(), 14, "no poisoning");
        });
    });
}

/// A goroutine locks on one thread and unlocks on another.
#[test]
fn drop_guard_after_migration() {
    let name = "drop_guard_after_migration";
    if !common::is_child(name) {
        for procs in ["2", "8"] {
            common::child_passes(name, &[("GOMAXPROCS", procs)]);
        }
        return;
    }
    traced(name, || {
        let shared = Arc::new((Mutex::new(0usize), AtomicUsize::new(0), Exclusive::default()));
        let here = || -> ThreadId { std::thread::current().id() };
        let running: Vec<_> = (0..8)
            .map(|_| {
                let shared = shared.clone();
                rt::go(move || {
                    // Until each of many locks was let go elsewhere than where it was taken.
                    while shared.1.load(SeqCst) < 20 {
                        let mut n = shared.0.lock();
                        let locked_on = here();
                        shared.2.alone(|| (0..5).for_each(|_| rt::yield_now()));
                        *n += 1;
                        if here() != locked_on {
                            shared.1.fetch_add(1, SeqCst);
                        }
                        drop(n);
                    }
                })
            })
            .collect();
        running.into_iter().for_each(|h| h.join().unwrap());
        // SAFETY: all have ended.
        assert_eq!(*shared.0.lock(), unsafe { *shared.2.count.get() });
    });
}

/// Locks in the destructors of a thread's thread-locals, when the thread's own place in the runtime may be gone.
#[test]
fn drop_at_the_end_of_a_thread() {
    struct Last(Arc<Mutex<u32>>, Arc<AtomicUsize>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.1.fetch_add(1, SeqCst);
            *self.0.lock() += 1;
        }
    }
    thread_local! {
        static FIRST: RefCell<Option<Last>> = const { RefCell::new(None) };
        static SECOND: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    traced("drop_at_the_end_of_a_thread", || {
        let (m, about_to) = (Arc::new(Mutex::new(0)), Arc::new(AtomicUsize::new(0)));
        let held = m.lock();
        let (m2, a2) = (m.clone(), about_to.clone());
        let (tx, rx) = rt::chan::bounded(0);
        let thread = std::thread::spawn(move || {
            FIRST.with_borrow_mut(|l| *l = Some(Last(m2.clone(), a2.clone())));
            tx.send(()).unwrap();
            SECOND.with_borrow_mut(|l| *l = Some(Last(m2, a2)));
        });
        rx.recv().unwrap();
        let_wait(&about_to, 1);
        drop(held);
        rt::blocking(|| thread.join()).unwrap();
        assert_eq!(*m.lock(), 2);
    });
}

#[test]
fn time_outs() {
    traced("time_outs", || {
        let short = Duration::from_millis(4);
        for actor in Actor::BOTH {
            let m = Arc::new(Mutex::new(0));
            let tries = || {
                let m = m.clone();
                actor
                    .start(move || {
                        let began = Instant::now();
                        let first = m.try_lock_for(short).map(|mut n| *n += 1).is_some();
                        let second = m.try_lock_until(Instant::now() + short).map(|mut n| *n += 1).is_some();
                        assert!(first || began.elapsed() >= short, "gave up after {:?}", began.elapsed());
                        (first, second)
                    })
                    .join()
            };
            assert_eq!(tries(), (true, true));
            let held = m.lock();
            assert_eq!(tries(), (false, false));
            assert!(m.try_lock_for(Duration::ZERO).is_none());
            drop(held);
            assert_eq!(tries(), (true, true));
            assert!(m.try_lock_for(Duration::ZERO).is_some() && m.try_lock_until(Instant::now()).is_some());
            assert_eq!(m.try_lock_for(Duration::MAX).map(|n| *n), Some(4));
        }
    });
}

/// Those who run out of time at the moment at which they are woken leave nobody behind.
#[test]
fn stress_time_outs() {
    everywhere("stress_time_outs", || {
        let seed = seed();
        traced("stress_time_outs", move || {
            let (actors, each) = (16, scaled(3000, 300));
            let shared = Arc::new((Mutex::new(()), Exclusive::default()));
            let running: Vec<_> = (0..actors)
                .map(|a| {
                    let shared = shared.clone();
                    let mut rng = Rng::new(seed ^ a as u64);
                    Actor::mixed(usize::from(a % 4 == 0)).start(move || {
                        let mut got = 0;
                        for _ in 0..each {
                            let limit = Duration::from_micros(rng.below(100));
                            let held = match rng.below(4) {
                                // These would wait for ever for a wake-up that was lost.
                                0 => Some(shared.0.lock()),
                                1 => shared.0.try_lock_until(Instant::now() + limit),
                                _ => shared.0.try_lock_for(limit),
                            };
                            let Some(held) = held else { continue };
                            got += 1;
                            shared.1.alone(|| match rng.below(16) {
                                0 | 1 => rt::yield_now(),
                                2 => busy(Duration::from_micros(20)),
                                3 => rt::time::sleep(Duration::from_micros(50)),
                                _ => {}
                            });
                            drop(held);
                        }
                        got
                    })
                })
                .collect();
            let got: usize = running.into_iter().map(Started::join).sum();
            // SAFETY: all have ended.
            assert_eq!(unsafe { *shared.1.count.get() }, got);
            println!("{got} of {} got it", actors * each);
            assert!(shared.0.try_lock().is_some());
        });
    });
}

/// Sixty-four goroutines that do nothing else.
#[test]
fn stress_many_turns() {
    let _guard = HangGuard::new("stress_many_turns");
    let (goroutines, each) = (64, scaled(1_000_000, 10_000));
    let began = Instant::now();
    let turns = rt::run(move || {
        let m = Arc::new(Mutex::new(0usize));
        let running: Vec<_> = (0..goroutines)
            .map(|_| {
                let m = m.clone();
                rt::go(move || (0..each).for_each(|_| *m.lock() += 1))
            })
            .collect();
        running.into_iter().for_each(|h| h.join().unwrap());
        Arc::into_inner(m).unwrap().into_inner()
    });
    assert_eq!(turns, goroutines * each);
    println!("{turns} turns in {:?}", began.elapsed());
}

#[test]
fn map_a_guard() {
    traced("map_a_guard", || {
        let m = Arc::new(Mutex::new((1, [2, 3])));
        let array = MutexGuard::map(m.lock(), |v| &mut v.1);
        assert_eq!(format!("{array:?}"), "[2, 3]");
        let mut last = MappedMutexGuard::map(array, |a| &mut a[1]);
        *last += 1;
        assert_eq!(format!("{last}"), "4");
        assert!(m.try_lock().is_none());
        let theirs = m.clone();
        let waiting = rt::go(move || *theirs.lock());
        rt::yield_now();
        drop(last);
        assert_eq!(waiting.join().unwrap(), (1, [2, 4]));
        // A panic on the way unlocks.
        let mapped = catch_unwind(AssertUnwindSafe(|| {
            let _guard = MutexGuard::map(m.lock(), |_| -> &mut i32 { resume_unwind(Box::new("no part")) });
        }));
        assert!(mapped.is_err() && m.try_lock().is_some());
    });
}

/// One is woken in time and comes to run when its time is up: it leaves, or takes the lock, but the other gets it as well.
#[test]
fn woken_and_out_of_time() {
    let name = "woken_and_out_of_time";
    if !common::is_child(name) {
        return common::child_passes(name, &[("GOMAXPROCS", "1")]);
    }
    traced(name, || {
        for round in 0..20 {
            let shared = Arc::new((Mutex::new(()), AtomicUsize::new(0)));
            let held = shared.0.lock();
            let (first, second) = (shared.clone(), shared.clone());
            let first = rt::go(move || {
                first.1.fetch_add(1, SeqCst);
                first.0.try_lock_for(Duration::from_millis(5)).is_some()
            });
            let_wait(&shared.1, 1);
            let second = rt::go(move || {
                second.1.fetch_add(1, SeqCst);
                drop(second.0.lock());
            });
            let_wait(&shared.1, 2);
            // There is one P: who is woken here runs when this goroutine stops. Nobody else comes for the lock then.
            drop(held);
            busy(Duration::from_millis(if round % 2 == 0 { 6 } else { 8 }));
            first.join().unwrap();
            second.join().unwrap();
            assert!(shared.0.try_lock().is_some());
        }
    });
}
