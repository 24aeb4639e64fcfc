//! The condition variable: no notification is lost, and each ends one wait.

mod common;

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Actor, Rng, Started, everywhere, scaled, seed, traced, wait_for};
use rt::sync::{Condvar, Mutex};

/// Longer than any test takes.
const NEVER: Duration = Duration::from_secs(80);

#[test]
fn smoke() {
    static READY: (Mutex<bool>, Condvar) = (Mutex::new(false), Condvar::new());
    traced("smoke", || {
        // Nobody waits.
        READY.1.notify_one();
        READY.1.notify_all();
        let waiting = rt::go(|| *READY.1.wait_while(READY.0.lock(), |ready| !*ready));
        rt::yield_now();
        *READY.0.lock() = true;
        READY.1.notify_one();
        assert!(waiting.join().unwrap());
        assert!(format!("{:?}", Condvar::default()).starts_with("Condvar"));
    });
}

/// How many wait on it, and how many went on.
#[derive(Default)]
struct Hall {
    waiting: usize,
    left: usize,
    stop: bool,
}

#[test]
fn notify_one_and_all() {
    everywhere("notify_one_and_all", || {
        traced("notify_one_and_all", || {
            let hall = Arc::new((Mutex::new(Hall::default()), Condvar::new()));
            let waiting: Vec<_> = (0..12)
                .map(|i| {
                    let hall = hall.clone();
                    Actor::mixed(usize::from(i % 3 == 0)).start(move || {
                        let mut h = hall.0.lock();
                        h.waiting += 1;
                        h = hall.1.wait(h);
                        h.left += 1;
                    })
                })
                .collect();
            // Once the mutex is had again, they wait.
            wait_for("all wait", || hall.0.lock().waiting == 12);
            for n in 1..=5 {
                hall.1.notify_one();
                wait_for("one goes on", || hall.0.lock().left == n);
            }
            {
                // Also under the lock.
                let _h = hall.0.lock();
                hall.1.notify_one();
            }
            wait_for("one goes on", || hall.0.lock().left == 6);
            rt::time::sleep(Duration::from_millis(5));
            assert_eq!(hall.0.lock().left, 6, "somebody went on without a notification");
            hall.1.notify_all();
            waiting.into_iter().for_each(Started::join);
            assert_eq!(hall.0.lock().left, 12);
        });
    });
}

#[test]
fn first_come_first_notified() {
    let name = "first_come_first_notified";
    if !common::is_child(name) {
        return common::child_passes(name, &[("GOMAXPROCS", "1")]);
    }
    traced(name, || {
        let shared = Arc::new((Mutex::new((0, Vec::new())), Condvar::new()));
        let waiting: Vec<_> = (0..20)
            .map(|i| {
                let theirs = shared.clone();
                let h = rt::go(move || {
                    let mut held = theirs.0.lock();
                    held.0 += 1;
                    theirs.1.wait(held).1.push(i);
                });
                wait_for("it waits", || shared.0.lock().0 == i + 1);
                h
            })
            .collect();
        for n in 0..20 {
            shared.1.notify_one();
            wait_for("one goes on", || shared.0.lock().1.len() == n + 1);
        }
        waiting.into_iter().for_each(|h| h.join().unwrap());
        assert!(shared.0.lock().1.iter().copied().eq(0..20), "{:?}", shared.0.lock().1);
    });
}

#[test]
fn time_outs() {
    traced("time_outs", || {
        for actor in Actor::BOTH {
            actor
                .start(|| {
                    let (m, c) = (Mutex::new(7), Condvar::new());
                    let short = Duration::from_millis(4);
                    let began = Instant::now();
                    let (held, result) = c.wait_timeout(m.lock(), short);
                    assert!(result.timed_out() && began.elapsed() >= short);
                    assert!(m.try_lock().is_none(), "the mutex is not locked after the wait");
                    let (held, result) = c.wait_deadline(held, Instant::now() + short);
                    assert!(result.timed_out() && began.elapsed() >= 2 * short);
                    let (held, result) = c.wait_deadline(held, began);
                    assert!(result.timed_out());
                    let (held, result) = c.wait_timeout(held, Duration::ZERO);
                    assert!(result.timed_out());
                    let (held, result) = c.wait_timeout_while(held, short, |n| *n == 7);
                    assert!(result.timed_out() && began.elapsed() >= 3 * short);
                    let (held, result) = c.wait_timeout_while(held, NEVER, |n| *n != 7);
                    assert!(!result.timed_out() && *held == 7);
                    drop(held);
                    assert_eq!(*m.lock(), 7);
                })
                .join();
        }
        // In time.
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        for actor in Actor::BOTH {
            let theirs = shared.clone();
            let waiting = actor.start(move || {
                let (n, result) = theirs.1.wait_timeout_while(theirs.0.lock(), NEVER, |n| *n < 3);
                (*n, result.timed_out())
            });
            for _ in 0..3 {
                *shared.0.lock() += 1;
                shared.1.notify_all();
                rt::yield_now();
            }
            assert_eq!(waiting.join(), (3, false));
            *shared.0.lock() = 0;
        }
    });
}

/// A queue with room for a few, from many to many.
#[test]
fn stampede() {
    everywhere("stampede", || {
        let seed = seed();
        traced("stampede", move || {
            #[derive(Default)]
            struct Queue {
                items: Mutex<VecDeque<usize>>,
                filled: Condvar,
                emptied: Condvar,
            }
            let (room, each, pairs) = (3, scaled(3000, 300), 6);
            let queue = Arc::new(Queue::default());
            let senders: Vec<_> = (0..pairs)
                .map(|a| {
                    let queue = queue.clone();
                    let mut rng = Rng::new(seed ^ a as u64);
                    Actor::mixed(usize::from(a % 3 == 0)).start(move || {
                        for i in 0..each {
                            let full = |q: &mut VecDeque<usize>| q.len() == room;
                            let mut q = queue.emptied.wait_while(queue.items.lock(), full);
                            q.push_back(a * each + i);
                            if rng.below(2) == 0 {
                                drop(q);
                            }
                            queue.filled.notify_one();
                        }
                    })
                })
                .collect();
            let receivers: Vec<_> = (0..pairs)
                .map(|a| {
                    let queue = queue.clone();
                    let mut rng = Rng::new(seed ^ a as u64 ^ 77);
                    Actor::mixed(usize::from(a % 3 == 1)).start(move || {
                        let mut sum = 0;
                        for _ in 0..each {
                            let empty = |q: &mut VecDeque<usize>| q.is_empty();
                            let mut q = queue.items.lock();
                            loop {
                                // Some come and go.
                                let limit =
                                    if rng.below(2) == 0 { NEVER } else { Duration::from_micros(rng.below(100)) };
                                let (held, result) = queue.filled.wait_timeout_while(q, limit, empty);
                                q = held;
                                if !result.timed_out() {
                                    break;
                                }
                            }
                            sum += q.pop_front().expect("not empty");
                            drop(q);
                            queue.emptied.notify_one();
                        }
                        sum
                    })
                })
                .collect();
            senders.into_iter().for_each(Started::join);
            let sum: usize = receivers.into_iter().map(Started::join).sum();
            let n = pairs * each;
            assert_eq!(sum, n * (n - 1) / 2);
            assert!(queue.items.lock().is_empty());
        });
    });
}

/// Waiters whose time runs out while they are notified: each notification ends one wait, neither none nor two.
#[test]
fn stress_notifications_are_conserved() {
    everywhere("stress_notifications_are_conserved", || {
        let seed = seed();
        traced("stress_notifications_are_conserved", move || {
            for round in 0..scaled(20, 4) as u64 {
                let mut rng = Rng::new(seed ^ round << 32);
                let notifications = 40;
                let hall = Arc::new((Mutex::new(Hall::default()), Condvar::new()));
                let notified = Arc::new(AtomicUsize::new(0));
                // Those who do not leave: as many as there are notifications, so that each finds somebody.
                let steady: Vec<_> = (0..notifications)
                    .map(|i| {
                        let (hall, notified) = (hall.clone(), notified.clone());
                        Actor::mixed(usize::from(i % 10 == 0)).start(move || {
                            let mut h = hall.0.lock();
                            h.waiting += 1;
                            h = hall.1.wait(h);
                            if !h.stop {
                                notified.fetch_add(1, SeqCst);
                            }
                        })
                    })
                    .collect();
                // Those who come and go.
                let fickle: Vec<_> = (0..8)
                    .map(|i| {
                        let (hall, notified) = (hall.clone(), notified.clone());
                        let mut rng = Rng::new(seed ^ round << 32 ^ i);
                        Actor::mixed(usize::from(i % 4 == 0)).start(move || {
                            let mut h = hall.0.lock();
                            while !h.stop {
                                let limit = Duration::from_micros(rng.below(150));
                                let (held, result) = hall.1.wait_timeout(h, limit);
                                h = held;
                                if !result.timed_out() && !h.stop {
                                    notified.fetch_add(1, SeqCst);
                                }
                            }
                        })
                    })
                    .collect();
                wait_for("all wait", || hall.0.lock().waiting == notifications);
                for _ in 0..notifications {
                    hall.1.notify_one();
                    for _ in 0..rng.below(4) {
                        rt::yield_now();
                    }
                    if rng.below(4) == 0 {
                        rt::time::sleep(Duration::from_micros(rng.below(150)));
                    }
                }
                wait_for("each notification ends a wait", || notified.load(SeqCst) >= notifications);
                rt::time::sleep(Duration::from_millis(2));
                assert_eq!(notified.load(SeqCst), notifications, "a wait ended without a notification");
                hall.0.lock().stop = true;
                hall.1.notify_all();
                steady.into_iter().for_each(Started::join);
                fickle.into_iter().for_each(Started::join);
            }
        });
    });
}

/// The mutex of one who waits can be taken by those who wait for it, and by the next who waits.
#[test]
fn waiting_lets_go_of_the_mutex() {
    everywhere("waiting_lets_go_of_the_mutex", || {
        traced("waiting_lets_go_of_the_mutex", || {
            let shared = Arc::new((Mutex::new(0), Condvar::new()));
            for actor in Actor::BOTH {
                let held = shared.0.lock();
                let lockers: Vec<_> = (0..6)
                    .map(|i| {
                        let theirs = shared.clone();
                        Actor::mixed(i).start(move || {
                            *theirs.0.lock() += 1;
                            theirs.1.notify_all();
                        })
                    })
                    .collect();
                drop(held);
                let theirs = shared.clone();
                let n = actor.start(move || *theirs.1.wait_while(theirs.0.lock(), |n| *n < 6)).join();
                assert_eq!(n, 6);
                lockers.into_iter().for_each(Started::join);
                *shared.0.lock() = 0;
            }
        });
    });
}

#[test]
fn panic_in_a_condition_unlocks() {
    traced("panic_in_a_condition_unlocks", || {
        let (m, c) = (Mutex::new(0), Condvar::new());
        let payload = catch_unwind(AssertUnwindSafe(|| {
            let _held = c.wait_while(m.lock(), |_| resume_unwind(Box::new("no idea")));
        }))
        .unwrap_err();
        assert_eq!(common::message(&*payload), "no idea");
        assert!(m.try_lock().is_some());
    });
}
