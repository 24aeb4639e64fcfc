//! The semaphore: never more than there are, first come first served, and no permit is lost or made.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Actor, Rng, Started, everywhere, message, scaled, seed, traced, wait_for};
use rt::sync::{Mutex, Semaphore};

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(80);

/// Waits until somebody is in the queue: then nobody gets what there is.
fn wait_for_queue(s: &Semaphore) {
    wait_for("somebody waits", || s.try_acquire_many(0).is_none());
}

#[test]
fn smoke() {
    static GLOBAL: Semaphore = Semaphore::new(2);
    traced("smoke", || {
        let (a, b) = (GLOBAL.acquire(), GLOBAL.try_acquire().expect("there is one"));
        assert_eq!((GLOBAL.available_permits(), GLOBAL.try_acquire().is_none()), (0, true));
        let waiting = rt::go(|| GLOBAL.acquire().num_permits());
        rt::yield_now();
        drop(a);
        assert_eq!(waiting.join().unwrap(), 1);
        drop(b);
        assert!(GLOBAL.try_acquire_many(3).is_none());
        assert_eq!(GLOBAL.acquire_many(2).num_permits(), 2);
        assert_eq!(format!("{GLOBAL:?}"), "Semaphore { available_permits: 2, .. }");
        GLOBAL.acquire().forget();
        GLOBAL.add_permits(3);
        assert_eq!(GLOBAL.available_permits(), 4);
        // Nothing of nothing.
        let none = Semaphore::new(0);
        assert_eq!(none.acquire_many(0).num_permits(), 0);

        let owned = Arc::new(Semaphore::new(3));
        let permit = owned.clone().acquire_owned();
        let two = owned.clone().try_acquire_many_owned(2).expect("there are two");
        assert_eq!((permit.num_permits(), two.num_permits()), (1, 2));
        assert!(owned.clone().try_acquire_owned().is_none());
        let waiting = rt::go({
            let owned = owned.clone();
            move || owned.acquire_many_owned(3).num_permits()
        });
        rt::go(move || drop(two)).join().unwrap();
        drop(permit);
        assert_eq!(waiting.join().unwrap(), 3);
        owned.clone().acquire_many_owned(2).forget();
        assert_eq!(owned.available_permits(), 1);
    });
}

/// Who has no time to wait keeps nobody out, not even for a moment.
#[test]
fn without_time_nobody_is_kept_out() {
    traced("semaphore without time", || {
        let s = Arc::new(Semaphore::new(1));
        let over = Arc::new(AtomicBool::new(false));
        let greedy: Vec<_> = Actor::BOTH
            .into_iter()
            .map(|actor| {
                let (s, over) = (s.clone(), over.clone());
                actor.start(move || {
                    while !over.load(SeqCst) {
                        assert!(s.try_acquire_many_for(2, Duration::ZERO).is_none());
                        assert!(s.try_acquire_many_until(2, Instant::now()).is_none());
                        rt::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..scaled(20_000, 5_000) {
            assert!(s.try_acquire().is_some(), "somebody is before it");
            rt::yield_now();
        }
        over.store(true, SeqCst);
        greedy.into_iter().for_each(|g| g.join());
    });
}

#[test]
fn time_outs() {
    traced("time_outs", || {
        for actor in Actor::BOTH {
            actor
                .start(|| {
                    let s = Semaphore::new(2);
                    let short = Duration::from_millis(4);
                    let began = Instant::now();
                    assert!(s.try_acquire_many_for(3, short).is_none());
                    assert!(began.elapsed() >= short);
                    assert!(s.try_acquire_many_until(3, Instant::now() + short).is_none());
                    assert!(began.elapsed() >= 2 * short);
                    let both = s.try_acquire_many_for(2, short).expect("there are two");
                    assert!(s.try_acquire_for(Duration::ZERO).is_none() && s.try_acquire_until(began).is_none());
                    assert_eq!(s.available_permits(), 0);
                    drop(both);
                    assert!(s.try_acquire_for(NEVER).is_some() && s.try_acquire_until(began).is_some());
                    assert_eq!(s.available_permits(), 2);
                })
                .join();
        }
    });
}

#[test]
#[cfg_attr(rt_chaos, ignore = "who comes first is drawn, too")]
fn first_come_first_served() {
    let name = "first_come_first_served";
    if !common::is_child(name) {
        return common::child_passes(name, &[("GOMAXPROCS", "1")]);
    }
    traced(name, || {
        let shared = Arc::new((Semaphore::new(0), Mutex::new(Vec::new()), AtomicUsize::new(0)));
        let waiting: Vec<_> = (0..30)
            .map(|i| {
                let theirs = shared.clone();
                let h = rt::go(move || {
                    theirs.2.fetch_add(1, SeqCst);
                    let permits = theirs.0.acquire_many(i % 3 + 1);
                    theirs.1.lock().push(i);
                    permits.forget();
                });
                (0..3).for_each(|_| rt::yield_now());
                h
            })
            .collect();
        assert_eq!(shared.2.load(SeqCst), 30);
        for _ in 0..60 {
            shared.0.add_permits(1);
            (0..3).for_each(|_| rt::yield_now());
        }
        waiting.into_iter().for_each(|h| h.join().unwrap());
        assert!(shared.1.lock().iter().copied().eq(0..30), "{:?}", shared.1.lock());
        assert_eq!(shared.0.available_permits(), 0);
    });
}

/// A large request is not overtaken; when it leaves, those behind it get what there is.
#[test]
fn one_who_leaves_lets_the_others_go() {
    everywhere("one_who_leaves_lets_the_others_go", || {
        traced("one_who_leaves_lets_the_others_go", || {
            for actor in Actor::BOTH {
                let shared = Arc::new((Semaphore::new(3), AtomicUsize::new(0)));
                let theirs = shared.clone();
                let large = actor.start(move || drop(theirs.0.acquire_many(5)));
                wait_for_queue(&shared.0);
                assert!(shared.0.try_acquire().is_none() && shared.0.try_acquire_for(Duration::ZERO).is_none());
                assert_eq!(shared.0.available_permits(), 3);
                shared.0.add_permits(2);
                large.join();
                shared.0.acquire_many(2).forget();

                let theirs = shared.clone();
                let large = actor.start(move || theirs.0.try_acquire_many_for(5, Duration::from_millis(40)).is_some());
                for _ in 0..20 {
                    rt::yield_now();
                }
                let small: Vec<_> = (0..3)
                    .map(|i| {
                        let shared = shared.clone();
                        Actor::mixed(i).start(move || {
                            let permit = shared.0.acquire();
                            shared.1.fetch_add(1, SeqCst);
                            // All three are held at once.
                            wait_for("the others", || shared.1.load(SeqCst) == 3);
                            drop(permit);
                        })
                    })
                    .collect();
                assert!(!large.join());
                small.into_iter().for_each(Started::join);
                assert_eq!(shared.0.available_permits(), 3);
                assert_eq!(shared.0.try_acquire_many(3).map(|p| p.num_permits()), Some(3));
            }
        });
    });
}

/// A stream of small requests does not keep a large one out.
#[test]
fn no_starvation() {
    everywhere("no_starvation", || {
        traced("no_starvation", || {
            let shared = Arc::new((Semaphore::new(4), AtomicBool::new(false)));
            let small: Vec<_> = (0..8)
                .map(|a| {
                    let shared = shared.clone();
                    Actor::mixed(usize::from(a == 0)).start(move || {
                        while !shared.1.load(SeqCst) {
                            let _permit = shared.0.acquire();
                            rt::yield_now();
                        }
                    })
                })
                .collect();
            for _ in 0..20 {
                assert_eq!(shared.0.acquire_many(4).num_permits(), 4);
                rt::yield_now();
            }
            assert!(shared.0.try_acquire_many_for(4, NEVER).is_some());
            shared.1.store(true, SeqCst);
            small.into_iter().for_each(Started::join);
            assert_eq!(shared.0.available_permits(), 4);
        });
    });
}

/// Never more than there are, and in the end all are there: with time limits that run out as permits come.
#[test]
fn stress_permits_are_conserved() {
    everywhere("stress_permits_are_conserved", || {
        let seed = seed();
        traced("stress_permits_are_conserved", move || {
            let (actors, each, permits) = (16, scaled(3000, 300), 5);
            let shared = Arc::new((Semaphore::new(permits), AtomicUsize::new(0)));
            let running: Vec<_> = (0..actors)
                .map(|a| {
                    let shared = shared.clone();
                    let mut rng = Rng::new(seed ^ a as u64);
                    Actor::mixed(usize::from(a % 4 == 0)).start(move || {
                        let (s, out) = &*shared;
                        let mut left = 0;
                        for _ in 0..each {
                            let n = rng.below(permits as u64 + 1) as usize;
                            let limit = Duration::from_micros(rng.below(200));
                            let got = match rng.below(4) {
                                0 => Some(s.acquire_many(n)),
                                1 => s.try_acquire_many(n),
                                // Now and then more than there ever are.
                                2 => s.try_acquire_many_for(n + usize::from(rng.below(8) == 0), limit),
                                _ => s.try_acquire_many_until(n, Instant::now() + limit),
                            };
                            let Some(got) = got else {
                                left += 1;
                                continue;
                            };
                            let n = got.num_permits();
                            let now = out.fetch_add(n, SeqCst) + n;
                            assert!(now <= permits, "{now} of {permits} permits are out");
                            match rng.below(16) {
                                0 | 1 => rt::yield_now(),
                                2 => rt::time::sleep(Duration::from_micros(50)),
                                _ => {}
                            }
                            out.fetch_sub(n, SeqCst);
                            if n > 0 && rng.below(8) == 0 {
                                got.forget();
                                s.add_permits(n);
                            }
                        }
                        left
                    })
                })
                .collect();
            let left: usize = running.into_iter().map(Started::join).sum();
            println!("{left} of {} left without", actors * each);
            assert_eq!((shared.0.available_permits(), shared.1.load(SeqCst)), (permits, 0));
            // Nobody is in the queue.
            assert!(shared.0.try_acquire_many(permits).is_some());
        });
    });
}

#[test]
fn misuse_too_many() {
    traced("misuse_too_many", || {
        let said = |f: &dyn Fn()| match catch_unwind(AssertUnwindSafe(f)) {
            Ok(()) => String::new(),
            Err(payload) => message(&*payload).to_owned(),
        };
        const WORDS: &str = "more permits than a semaphore can have";
        assert_eq!(said(&|| _ = Semaphore::new(Semaphore::MAX_PERMITS + 1)), WORDS);
        let s = Semaphore::new(Semaphore::MAX_PERMITS - 1);
        s.add_permits(1);
        assert_eq!((said(&|| s.add_permits(1)), said(&|| s.add_permits(usize::MAX))), (WORDS.into(), WORDS.into()));
        // Usable after: the count is what it was.
        assert_eq!(s.available_permits(), Semaphore::MAX_PERMITS);
        assert_eq!(s.acquire_many(Semaphore::MAX_PERMITS).num_permits(), Semaphore::MAX_PERMITS);
        s.add_permits(0);
        assert!(s.try_acquire_many_for(usize::MAX, Duration::from_millis(1)).is_none());
        assert_eq!(s.available_permits(), Semaphore::MAX_PERMITS);
    });
}

#[test]
fn panic_gives_back() {
    traced("panic_gives_back", || {
        let s = Arc::new(Semaphore::new(2));
        for actor in Actor::BOTH {
            let theirs = s.clone();
            let panicked = actor
                .start(move || {
                    catch_unwind(AssertUnwindSafe(|| {
                        let _both = theirs.acquire_many(2);
                        std::panic::resume_unwind(Box::new("while held"));
                    }))
                    .is_err()
                })
                .join();
            assert!(panicked);
            assert_eq!(s.available_permits(), 2);
        }
    });
}
