//! Timers, tickers, time-outs: they fire, once, not early; they can be stopped and reset; nothing is left of them.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Rng, program, seed, traced};
use rt::time::{self, Ticker, Timer};

const MS: Duration = Duration::from_millis(1);

#[test]
fn smoke_after() {
    traced("timer after", || {
        let began = Instant::now();
        let fired = time::after(5 * MS).recv().unwrap();
        assert!(began.elapsed() >= 5 * MS);
        assert!(fired >= began + 5 * MS);
        // One message, and the channel stays open.
        let once = time::after(MS);
        once.recv().unwrap();
        assert_eq!(once.recv_timeout(5 * MS), Err(rt::chan::RecvTimeoutError::Timeout));
    });
}

#[test]
fn sleep_until_a_point_in_time() {
    traced("timer sleep_until", || {
        let until = Instant::now() + 3 * MS;
        time::sleep_until(until);
        assert!(Instant::now() >= until);
        // In the past: at once.
        time::sleep_until(until);
    });
}

#[test]
fn stop_and_reset() {
    traced("timer stop", || {
        let timer = Timer::new(3600 * 1000 * MS);
        assert!(timer.stop(), "it was armed");
        assert!(!timer.stop(), "it was not");
        assert!(!timer.reset(MS));
        timer.receiver().recv().unwrap();
        assert!(!timer.reset(2 * MS), "it had fired");
        time::sleep(10 * MS);
        assert_eq!(timer.receiver().len(), 1);
        // A message that nobody took is taken back.
        assert!(!timer.reset(3600 * 1000 * MS));
        assert!(timer.receiver().is_empty());
        assert!(timer.reset_at(Instant::now()));
        timer.receiver().recv().unwrap();
        assert!(!timer.stop());
    });
}

/// After a stop no message comes, however close to its time it was; a reset fires once, with the new time.
#[test]
fn stress_stop_races_with_fire() {
    let seed = seed();
    traced("timer stop race", move || {
        let workers: Vec<_> = (0..16u64)
            .map(|w| {
                rt::go(move || {
                    let mut rng = Rng::new(seed ^ w);
                    let timer = Timer::new(MS);
                    for _ in 0..if cfg!(debug_assertions) { 200 } else { 2_000 } {
                        timer.reset(Duration::from_micros(rng.below(60)));
                        if rng.below(2) == 0 {
                            rt::yield_now();
                        } else {
                            time::sleep(Duration::from_micros(rng.below(60)));
                        }
                        if rng.below(2) == 0 {
                            timer.stop();
                            assert!(timer.receiver().is_empty(), "a message after stop");
                            rt::yield_now();
                            assert!(timer.receiver().is_empty(), "a message after stop");
                        } else {
                            let (again, began) = (Duration::from_micros(rng.below(200)), Instant::now());
                            timer.reset(again);
                            let fired = timer.receiver().recv().unwrap();
                            assert!(fired >= began + again, "the old setting's message");
                        }
                    }
                })
            })
            .collect();
        for w in workers {
            w.join().unwrap();
        }
    });
}

#[test]
fn ticker_ticks_and_leaves_out_what_is_missed() {
    traced("ticker", || {
        let began = Instant::now();
        let ticker = Ticker::new(2 * MS);
        for i in 1..=5 {
            let at = ticker.receiver().recv().unwrap();
            assert!(at >= began + i * 2 * MS, "tick {i} is early");
        }
        // Nobody listens for a while: one tick is kept.
        time::sleep(20 * MS);
        assert_eq!(ticker.receiver().len(), 1);
        ticker.reset(3600 * 1000 * MS);
        assert!(ticker.receiver().is_empty());
        ticker.reset(MS);
        ticker.receiver().recv().unwrap();
        ticker.stop();
        assert_eq!(ticker.receiver().recv_timeout(10 * MS), Err(rt::chan::RecvTimeoutError::Timeout));
    });
}

#[test]
#[should_panic(expected = "a ticker's period is more than zero")]
fn a_ticker_of_zero() {
    let _ = Ticker::new(Duration::ZERO);
}

#[test]
#[should_panic(expected = "a ticker's period is more than zero")]
fn a_ticker_reset_to_zero() {
    Ticker::new(MS).reset(Duration::ZERO);
}

programs! { leaves_no_timer }

fn leaves_no_timer() {
    rt::run(|| {
        for _ in 0..10_000 {
            drop(time::after(3600 * 1000 * MS));
            drop(Timer::new(3600 * 1000 * MS));
            drop(Ticker::new(3600 * 1000 * MS));
            let (tx, rx) = rt::chan::bounded::<()>(1);
            rt::go(move || tx.send(()));
            rx.recv_timeout(3600 * 1000 * MS).unwrap();
        }
        let (_tx, rx) = rt::chan::bounded::<()>(0);
        let _ = rx.recv();
    });
}

/// Timers that nobody waits for any more are not kept: a process that did would be slow, and would not see its deadlock.
#[test]
fn dropped_timers_are_gone() {
    // They are gone, so this is a deadlock and not a wait of an hour.
    program("leaves_no_timer", &[]).expect_code(2).expect_stderr(&["all goroutines are asleep"]);
}

/// From a thread: the runtime is started for it, and the timers fire with nobody else there.
#[test]
fn from_a_thread() {
    let fired = time::after(MS).recv().unwrap();
    assert!(fired <= Instant::now());
    let ticker = Ticker::new(MS);
    for _ in 0..3 {
        ticker.receiver().recv().unwrap();
    }
    let timer = Timer::new(3600 * 1000 * MS);
    timer.reset(MS);
    timer.receiver().recv().unwrap();
}

/// Thousands of sleepers with all kinds of times: none wakes early, all wake.
#[test]
fn stress_sleepers() {
    let seed = seed();
    let (early, _) = traced("timer sleepers", move || {
        let early = Arc::new(AtomicU64::new(0));
        let sleepers: Vec<_> = (0..if cfg!(debug_assertions) { 2_000u64 } else { 20_000 })
            .map(|i| {
                let early = early.clone();
                rt::go(move || {
                    let mut rng = Rng::new(seed ^ i);
                    for _ in 0..5 {
                        let d = Duration::from_micros(rng.below(20_000));
                        let began = Instant::now();
                        time::sleep(d);
                        if began.elapsed() < d {
                            early.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        for s in sleepers {
            s.join().unwrap();
        }
        early.load(Ordering::Relaxed)
    });
    assert_eq!(early, 0);
}

/// Loops that never enter the runtime hold every processor: timers fire all the same, by whoever is there.
#[test]
fn timers_fire_beside_loops() {
    traced("timer hogs", || {
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..rt::gomaxprocs() * 2)
            .map(|_| {
                let stop = stop.clone();
                rt::go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        let ticker = Ticker::new(5 * MS);
        for _ in 0..10 {
            ticker.receiver().recv().unwrap();
        }
        time::sleep(5 * MS);
        stop.store(true, Ordering::Relaxed);
        for h in hogs {
            h.join().unwrap();
        }
    });
}
