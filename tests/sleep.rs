//! Sleeping: at least as long as asked, in order, many at once, from goroutines and threads.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use common::{Rng, everywhere, seed, traced};
use rt::sync::{Mutex, WaitGroup};
use rt::time::sleep;

#[test]
fn at_least_as_long_as_asked() {
    everywhere("at_least_as_long_as_asked", || {
        traced("sleep at least", || {
            let mut rng = Rng::new(seed());
            let sleepers: Vec<_> = (0..200)
                .map(|_| {
                    let asked = Duration::from_micros(rng.below(20_000));
                    rt::go(move || {
                        let began = Instant::now();
                        sleep(asked);
                        (asked, began.elapsed())
                    })
                })
                .collect();
            for s in sleepers {
                let (asked, slept) = s.join().unwrap();
                assert!(slept >= asked, "slept {slept:?}, asked for {asked:?}");
            }
        });
    });
}

/// Those who sleep until different times wake in the order of these times; on one P they also run in it.
#[test]
fn smoke_order_on_one_p() {
    if !common::is_child("smoke_order_on_one_p") {
        return common::child_passes("smoke_order_on_one_p", &[("GOMAXPROCS", "1")]);
    }
    traced("sleep order", || {
        let order = Arc::new(Mutex::new(Vec::new()));
        let wg = WaitGroup::new();
        for i in [7u64, 2, 9, 4, 1, 8, 3, 6, 5] {
            let order = order.clone();
            wg.go(move || {
                sleep(Duration::from_millis(10 * i));
                order.lock().push(i);
            });
        }
        wg.wait();
        assert_eq!(*order.lock(), [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    });
}

/// Who is due does not wait behind all those that queue already: with `CROWD` goroutines on one P that give each other turns, fewer
/// than half of them run between the time somebody is due and the turn it gets. Half the naps may be worse: the kernel has a say in it.
#[test]
fn who_is_due_passes_a_crowd() {
    if !common::is_child("who_is_due_passes_a_crowd") {
        return common::child_passes("who_is_due_passes_a_crowd", &[("GOMAXPROCS", "1")]);
    }
    const CROWD: usize = 2_000;
    let (mut before, _) = traced("sleep crowd", || {
        static DONE: AtomicBool = AtomicBool::new(false);
        static DUE: AtomicU64 = AtomicU64::new(u64::MAX);
        static TURNS: AtomicUsize = AtomicUsize::new(0);
        let epoch = Instant::now();
        let now = move || epoch.elapsed().as_nanos() as u64;
        let wg = WaitGroup::new();
        for _ in 0..CROWD {
            wg.go(move || {
                while !DONE.load(SeqCst) {
                    if now() >= DUE.load(SeqCst) {
                        TURNS.fetch_add(1, SeqCst);
                    }
                    rt::yield_now();
                }
            });
        }
        let naps: Vec<usize> = (0..20)
            .map(|_| {
                TURNS.store(0, SeqCst);
                // The sleep begins no earlier, so it is due no earlier.
                DUE.store(now() + 1_000_000, SeqCst);
                sleep(Duration::from_millis(1));
                DUE.store(u64::MAX, SeqCst);
                TURNS.load(SeqCst)
            })
            .collect();
        DONE.store(true, SeqCst);
        wg.wait();
        naps
    });
    println!("turns of others: {before:?}");
    before.sort_unstable();
    assert!(before[before.len() / 2] < CROWD / 2, "{before:?}");
}

/// A crowd that is always due leaves turns to who queues.
#[test]
fn who_queues_gets_turns_beside_those_that_are_due() {
    if !common::is_child("who_queues_gets_turns_beside_those_that_are_due") {
        return common::child_passes("who_queues_gets_turns_beside_those_that_are_due", &[("GOMAXPROCS", "1")]);
    }
    let ((turns, naps), _) = traced("sleep share", || {
        static DONE: AtomicBool = AtomicBool::new(false);
        static NAPS: AtomicUsize = AtomicUsize::new(0);
        let wg = WaitGroup::new();
        for _ in 0..1_000 {
            wg.go(|| {
                while !DONE.load(SeqCst) {
                    sleep(Duration::from_nanos(1));
                    NAPS.fetch_add(1, SeqCst);
                }
            });
        }
        // All of them sleep or are due from here on.
        common::wait_for("naps", || NAPS.load(SeqCst) > 1_000);
        let (mut turns, naps) = (0, NAPS.load(SeqCst));
        let most = naps + common::scaled(100_000, 20_000);
        while NAPS.load(SeqCst) < most && turns < 1_000 {
            rt::yield_now();
            turns += 1;
        }
        let naps = NAPS.load(SeqCst) - naps;
        DONE.store(true, SeqCst);
        wg.wait();
        (turns, naps)
    });
    println!("{turns} turns beside {naps} naps");
    assert!(turns * 20 > naps, "{turns} turns beside {naps} naps");
}

#[test]
fn stampede_of_sleepers() {
    everywhere("stampede_of_sleepers", || {
        traced("sleep stampede", || {
            let n = if cfg!(debug_assertions) { 3_000 } else { 10_000 };
            let awake = Arc::new(AtomicUsize::new(0));
            let wg = WaitGroup::new();
            for i in 0..n {
                let awake = awake.clone();
                wg.go(move || {
                    for _ in 0..3 {
                        sleep(Duration::from_micros(500 + i as u64 % 700));
                    }
                    awake.fetch_add(1, SeqCst);
                });
            }
            wg.wait();
            assert_eq!(awake.load(SeqCst), n);
        });
    });
}

/// Nothing yields; for ever is for ever, and disturbs nobody.
#[test]
fn nothing_and_for_ever() {
    everywhere("nothing_and_for_ever", || {
        traced("sleep extremes", || {
            let woke = Arc::new(AtomicUsize::new(0));
            for long in [Duration::MAX, Duration::from_secs(u64::MAX), Duration::from_nanos(u64::MAX)] {
                let woke = woke.clone();
                rt::go(move || {
                    sleep(long);
                    woke.fetch_add(1, SeqCst);
                });
            }
            let turns = Arc::new(AtomicUsize::new(0));
            let other = turns.clone();
            let h = rt::go(move || {
                while other.load(SeqCst) < 100 {
                    other.fetch_add(1, SeqCst);
                    sleep(Duration::ZERO);
                }
            });
            while turns.load(SeqCst) < 100 {
                sleep(Duration::ZERO);
            }
            h.join().unwrap();
            sleep(Duration::from_millis(20));
            assert_eq!(woke.load(SeqCst), 0, "a sleep that never ends has ended");
        });
    });
}

/// From a thread it is the thread that sleeps; goroutines go on.
#[test]
fn from_threads() {
    everywhere("from_threads", || {
        traced("sleep threads", || {
            let ticks = Arc::new(AtomicUsize::new(0));
            let ticker = ticks.clone();
            rt::go(move || {
                loop {
                    sleep(Duration::from_micros(200));
                    ticker.fetch_add(1, SeqCst);
                }
            });
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    std::thread::spawn(|| {
                        let began = Instant::now();
                        sleep(Duration::from_millis(30));
                        assert!(began.elapsed() >= Duration::from_millis(30));
                    })
                })
                .collect();
            rt::blocking(|| threads.into_iter().for_each(|t| t.join().unwrap()));
            assert!(ticks.load(SeqCst) > 0);
        });
    });
}
