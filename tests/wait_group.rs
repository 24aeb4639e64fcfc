//! The wait group: everybody who waits goes on when the count is zero, not before, and every time.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Actor, HangGuard, Rng, Started, everywhere, scaled, seed, traced, wait_for};
use rt::sync::WaitGroup;

#[test]
fn smoke() {
    traced("smoke", || {
        let wg = WaitGroup::new();
        wg.wait();
        let count = Arc::new(AtomicUsize::new(0));
        for _ in 0..10 {
            let count = count.clone();
            wg.go(move || {
                rt::yield_now();
                count.fetch_add(1, SeqCst);
            });
        }
        wg.wait();
        assert_eq!(count.load(SeqCst), 10);
        // What `go` starts can also be joined.
        assert_eq!(wg.go(|| 7).join().unwrap(), 7);
        wg.wait();
        assert_eq!(format!("{wg:?}"), "WaitGroup { count: 0 }");
        wg.add(3);
        assert_eq!(format!("{:?}", wg.clone()), "WaitGroup { count: 3 }");
        (0..3).for_each(|_| wg.done());
        wg.add(0);
        wg.wait();
        WaitGroup::default().wait();
    });
}

/// What was done before `done` is visible after `wait`, from goroutines and threads in any mix.
#[test]
fn stampede() {
    everywhere("stampede", || {
        traced("stampede", || {
            for round in 0..scaled(200, 20) {
                let wg = WaitGroup::new();
                let cells: Arc<Vec<AtomicUsize>> = Arc::new((0..40).map(|_| AtomicUsize::new(0)).collect());
                wg.add(40);
                let workers: Vec<_> = (0..40)
                    .map(|i| {
                        let (wg, cells) = (wg.clone(), cells.clone());
                        Actor::mixed(usize::from(i % 8 == 0)).start(move || {
                            cells[i].store(round + 1, std::sync::atomic::Ordering::Relaxed);
                            wg.done();
                        })
                    })
                    .collect();
                let waiters: Vec<_> = (0..4)
                    .map(|i| {
                        let (wg, cells) = (wg.clone(), cells.clone());
                        Actor::mixed(i).start(move || {
                            wg.wait();
                            let seen = cells.iter().all(|c| c.load(std::sync::atomic::Ordering::Relaxed) == round + 1);
                            assert!(seen, "wait returned before everybody was done");
                        })
                    })
                    .collect();
                waiters.into_iter().for_each(Started::join);
                workers.into_iter().for_each(Started::join);
            }
        });
    });
}

#[test]
fn wait_from_several_at_once() {
    everywhere("wait_from_several_at_once", || {
        traced("wait_from_several_at_once", || {
            let shared = Arc::new((WaitGroup::new(), AtomicUsize::new(0), AtomicBool::new(false)));
            shared.0.add(1);
            let waiting: Vec<_> = (0..40)
                .map(|i| {
                    let shared = shared.clone();
                    Actor::mixed(usize::from(i % 8 == 0)).start(move || {
                        shared.1.fetch_add(1, SeqCst);
                        shared.0.wait();
                        assert!(shared.2.load(SeqCst), "wait returned early");
                    })
                })
                .collect();
            wait_for("all are about to wait", || shared.1.load(SeqCst) == 40);
            (0..20).for_each(|_| rt::yield_now());
            shared.2.store(true, SeqCst);
            shared.0.done();
            waiting.into_iter().for_each(Started::join);
        });
    });
}

/// The same group, round after round: from zero up, and down again.
#[test]
fn stress_add_from_zero_again() {
    everywhere("stress_add_from_zero_again", || {
        let seed = seed();
        traced("stress_add_from_zero_again", move || {
            let mut rng = Rng::new(seed);
            let (wg, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
            let mut wanted = 0;
            for _ in 0..scaled(2000, 200) {
                let n = rng.below(6) as usize;
                for i in 0..n {
                    let done = done.clone();
                    let yields = rng.below(3);
                    if i == 0 && rng.below(4) == 0 {
                        wg.add(1);
                        let wg = wg.clone();
                        std::thread::spawn(move || {
                            done.fetch_add(1, SeqCst);
                            wg.done();
                        });
                    } else {
                        wg.go(move || {
                            (0..yields).for_each(|_| rt::yield_now());
                            done.fetch_add(1, SeqCst);
                        });
                    }
                }
                wanted += n;
                wg.wait();
                assert_eq!(done.load(SeqCst), wanted);
            }
        });
    });
}

#[test]
fn wait_timeout() {
    everywhere("wait_timeout", || {
        traced("wait_timeout", || {
            let short = Duration::from_millis(4);
            for actor in Actor::BOTH {
                let wg = WaitGroup::new();
                let waits = |time: Duration| {
                    let wg = wg.clone();
                    actor.start(move || {
                        let began = Instant::now();
                        let zero = wg.wait_timeout(time);
                        assert!(zero || began.elapsed() >= time);
                        zero
                    })
                };
                assert!(waits(short).join() && waits(Duration::ZERO).join());
                wg.add(1);
                assert!(!waits(short).join() && !waits(Duration::ZERO).join());
                let waiting = waits(Duration::from_secs(80));
                for _ in 0..10 {
                    rt::yield_now();
                }
                wg.done();
                assert!(waiting.join() && waits(short).join());
            }
            // Many who leave, and some who stay.
            let wg = WaitGroup::new();
            wg.add(1);
            let leaving: Vec<_> = (0..40)
                .map(|i| {
                    let wg = wg.clone();
                    Actor::mixed(usize::from(i % 8 == 0)).start(move || match i % 4 {
                        0 => wg.wait(),
                        _ => {
                            wg.wait_timeout(Duration::from_micros(20 * i as u64));
                        }
                    })
                })
                .collect();
            rt::time::sleep(Duration::from_micros(400));
            wg.done();
            leaving.into_iter().for_each(Started::join);
            assert!(wg.wait_timeout(Duration::ZERO));
        });
    });
}

#[test]
fn panic_is_done() {
    traced("panic_is_done", || {
        let wg = WaitGroup::new();
        let handles: Vec<_> = (0..10)
            .map(|i| {
                wg.go(move || {
                    if i % 2 == 0 {
                        resume_unwind(Box::new("on purpose"));
                    }
                })
            })
            .collect();
        wg.wait();
        assert_eq!(handles.into_iter().filter_map(|h| h.join().err()).count(), 5);
    });
}

#[test]
fn misuse_done_without_add() {
    traced("misuse_done_without_add", || {
        let wg = WaitGroup::new();
        let payload = catch_unwind(AssertUnwindSafe(|| wg.done())).unwrap_err();
        assert_eq!(common::message(&*payload), "WaitGroup::done without an add");
        // Usable after: the count is what it was.
        wg.wait();
        wg.add(1);
        let waiter = rt::go({
            let wg = wg.clone();
            move || wg.wait()
        });
        wg.done();
        waiter.join().unwrap();
        assert!(catch_unwind(AssertUnwindSafe(|| wg.done())).is_err());
        wg.wait();
    });
}

#[test]
fn misuse_overflow() {
    traced("misuse_overflow", || {
        let wg = WaitGroup::new();
        wg.add(1);
        let payload = catch_unwind(AssertUnwindSafe(|| wg.add(usize::MAX))).unwrap_err();
        assert_eq!(common::message(&*payload), "WaitGroup counter overflow");
        // Usable after: the count is what it was.
        assert_eq!(format!("{wg:?}"), "WaitGroup { count: 1 }");
        wg.done();
        wg.wait();
    });
}

/// A misuse that is caught must not be noticed by those who use the same group properly at that moment.
#[test]
fn stress_misuse_harms_no_other() {
    let name = "stress_misuse_harms_no_other";
    if !common::is_child(name) {
        return common::child_passes(name, &[("GOMAXPROCS", "2")]);
    }
    let _guard = HangGuard::new(name);
    // The panics are expected.
    std::panic::set_hook(Box::new(|_| {}));
    let (wg, over) = (WaitGroup::new(), Arc::new(AtomicBool::new(false)));
    // The count is zero, whatever the culprit tries: there is nothing to wait for.
    let (user, o) = (wg.clone(), over.clone());
    let user = rt::go(move || {
        let mut waits = 0u64;
        while !o.load(SeqCst) {
            user.wait();
            waits += 1;
        }
        waits
    });
    let culprits: Vec<_> = (0..2)
        .map(|_| {
            let wg = wg.clone();
            let rounds = scaled(300_000, 100_000);
            std::thread::spawn(move || {
                (0..rounds).filter(|_| catch_unwind(AssertUnwindSafe(|| wg.done())).is_ok()).count()
            })
        })
        .collect();
    let unnoticed: usize = culprits.into_iter().map(|c| c.join().unwrap()).sum();
    let _ = std::panic::take_hook();
    over.store(true, SeqCst);
    let began = Instant::now();
    while !user.is_finished() && began.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(unnoticed, 0, "done() without an add must panic each time");
    assert!(user.is_finished(), "wait() on a group whose count is zero waits for ever");
    println!("{} waits", user.join().unwrap());
}
