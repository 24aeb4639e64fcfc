//! Waiting and waking from outside the crate.
#![cfg(not(loom))]

use netpoll::{Poller, TryWait, Waker, Woken};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// Longer than any hiccup of a loaded machine: only a lost wake takes this long.
const LOST: Duration = Duration::from_secs(60);
const STORM: usize = if cfg!(miri) { 200 } else { 50_000 };

fn assert_idle(poller: &Poller) {
    assert_eq!(poller.wait(Some(Duration::ZERO), |_| {}).unwrap(), Woken::TimedOut, "a wake was left over");
}

#[test]
fn smoke_wake_before_wait() {
    let poller = Poller::new().unwrap();
    poller.waker().wake();
    assert_eq!(poller.wait(None, |_| {}).unwrap(), Woken::Wake);
    assert_idle(&poller);
}

/// Events of two sockets, by token; each is told once, and one that came with a wake is not lost (N6).
#[cfg(unix)]
#[test]
fn smoke_events() {
    use netpoll::{Event, SourceFd};
    use std::io::{Read, Write};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    let poller = Poller::new().unwrap();
    let (mut near, mut far) = UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    poller.register(&mut SourceFd(&near.as_raw_fd()), 42).unwrap();
    let mut events: Vec<Event> = Vec::new();
    assert_eq!(poller.wait(Some(LOST), |e| events.push(e)).unwrap(), Woken::Events);
    assert_eq!(events, [Event { token: 42, readable: false, writable: true, closing: false }]);
    events.clear();
    assert_eq!(poller.poll(|e| events.push(e)).unwrap(), 0);

    far.write_all(b"x").unwrap();
    poller.waker().wake();
    // The wake ends the wait before it begins, or after: then with the event.
    assert_eq!(poller.wait(Some(LOST), |e| events.push(e)).unwrap(), Woken::Wake);
    if events.is_empty() {
        assert_eq!(poller.poll(|e| events.push(e)).unwrap(), 1);
    }
    assert!(events[0].readable && !events[0].closing && events[0].token == 42, "{events:?}");
    assert_eq!(near.read(&mut [0; 8]).unwrap(), 1);

    drop(far);
    events.clear();
    assert_eq!(poller.wait(Some(LOST), |e| events.push(e)).unwrap(), Woken::Events);
    assert!(events[0].readable && events[0].closing, "{events:?}");
    poller.deregister(&mut SourceFd(&near.as_raw_fd())).unwrap();
    assert!(poller.deregister(&mut SourceFd(&near.as_raw_fd())).is_err());
    assert_idle(&poller);
}

#[test]
fn smoke_wake_during_wait() {
    let poller = Poller::new().unwrap();
    let waker = poller.waker();
    thread::scope(|scope| {
        scope.spawn(move || {
            // Most likely in the kernel by now; if not, this is the test above.
            thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        assert_eq!(poller.wait(Some(LOST), |_| {}).unwrap(), Woken::Wake);
    });
    assert_idle(&poller);
}

#[test]
fn many_wakes_are_one() {
    let poller = Poller::new().unwrap();
    let waker = poller.waker();
    (0..1_000).for_each(|_| waker.clone().wake());
    assert_eq!(poller.wait(None, |_| {}).unwrap(), Woken::Wake);
    assert_idle(&poller);
}

#[test]
fn a_wake_beats_the_time_out() {
    let poller = Poller::new().unwrap();
    poller.waker().wake();
    assert_eq!(poller.wait(Some(Duration::ZERO), |_| {}).unwrap(), Woken::Wake);
    assert_idle(&poller);
}

#[test]
fn time_out_past_the_end_of_the_clock() {
    let poller = Poller::new().unwrap();
    let waker = poller.waker();
    thread::scope(|scope| {
        scope.spawn(move || waker.wake());
        assert_eq!(poller.wait(Some(Duration::MAX), |_| {}).unwrap(), Woken::Wake);
    });
}

#[test]
fn busy_while_another_thread_waits() {
    let poller = Poller::new().unwrap();
    let waker = poller.waker();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| poller.wait(Some(LOST), |_| {}).unwrap());
        // Not yet busy means that this thread was first: it waits for nothing, and tries again.
        while poller.try_wait(Some(Duration::ZERO), |_| {}).unwrap() != TryWait::Busy {
            thread::yield_now();
        }
        waker.wake();
        assert_eq!(waiter.join().unwrap(), Woken::Wake);
    });
    assert_eq!(poller.try_wait(Some(Duration::ZERO), |_| {}).unwrap(), TryWait::Waited(Woken::TimedOut));
}

#[test]
fn waker_outlives_the_poller() {
    let poller = Poller::new().unwrap();
    let waker = poller.waker();
    drop(poller);
    waker.wake();
}

/// Prints how late a wait is. Only the lower bound is asserted: on a busy machine there is no upper one.
#[test]
fn time_out_accuracy() {
    let poller = Poller::new().unwrap();
    for micros in [20, 50, 100, 500, 1_000, 1_500, 5_000] {
        let timeout = Duration::from_micros(micros);
        let mut late: Vec<Duration> = (0..20)
            .map(|_| {
                let start = Instant::now();
                assert_eq!(poller.wait(Some(timeout), |_| {}).unwrap(), Woken::TimedOut);
                let took = start.elapsed();
                assert!(took >= timeout, "a wait of {timeout:?} was over after {took:?}");
                took - timeout
            })
            .collect();
        late.sort();
        println!("wait of {timeout:?}: late by {:?} (median), {:?} (most)", late[late.len() / 2], late[late.len() - 1]);
    }
}

/// A timer left armed by a wait that was woken must not end the next one.
#[test]
fn a_stale_timer_ends_no_later_wait() {
    let poller = Poller::new().unwrap();
    let waker = poller.waker();
    for _ in 0..10 {
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(1));
                waker.wake();
            });
            // Woken long before its time, mostly; a loaded machine may let the time run out, which proves nothing.
            let _ = poller.wait(Some(Duration::from_millis(10)), |_| {}).unwrap();
        });
        let _ = poller.wait(Some(Duration::ZERO), |_| {}).unwrap();
        let late = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(20));
                late.store(true, Ordering::Relaxed);
                waker.wake();
            });
            assert_eq!(poller.wait(None, |_| {}).unwrap(), Woken::Wake);
            assert!(late.load(Ordering::Relaxed), "ended by nobody");
        });
    }
}

fn storm(wakers: usize, timeout_of: impl Fn(usize) -> Duration) {
    let poller = Poller::new().unwrap();
    let done = AtomicUsize::new(0);
    let start = Barrier::new(wakers + 1);
    let (mut woken, mut timed_out) = (0, 0);
    thread::scope(|scope| {
        for _ in 0..wakers {
            let waker = poller.waker();
            let (done, start) = (&done, &start);
            scope.spawn(move || {
                start.wait();
                for _ in 0..STORM {
                    // Relaxed on purpose: the wake must publish it.
                    done.fetch_add(1, Ordering::Relaxed);
                    waker.wake();
                }
            });
        }
        start.wait();
        // At least once: the others may be through before this thread runs again, and then their last wake waits for it.
        loop {
            let timeout = timeout_of(woken + timed_out);
            match poller.wait(Some(timeout), |_| {}).unwrap() {
                Woken::Wake => woken += 1,
                Woken::TimedOut => {
                    assert!(timeout < LOST, "a wake was lost");
                    timed_out += 1;
                }
                other => panic!("nobody asked for {other:?}"),
            }
            if done.load(Ordering::Relaxed) >= wakers * STORM {
                break;
            }
        }
    });
    println!("{} wakes by {wakers} threads: {woken} waits woken, {timed_out} timed out", wakers * STORM);
    assert!(woken > 0 || timed_out > 0);
}

#[test]
fn stress_storm_of_wakers() {
    storm(4, |_| LOST);
}

#[test]
fn stress_storm_against_short_time_outs() {
    storm(4, |i| Duration::from_micros(i as u64 % 7 * 10));
}

/// Two threads wake each other in turn: each wake is waited for, none is merged.
#[test]
fn ping_pong() {
    fn side(poller: Poller, peer: Waker, first: bool) -> usize {
        let rounds = STORM / 10;
        if first {
            peer.wake();
        }
        (0..rounds)
            .filter(|_| {
                let woken = poller.wait(Some(LOST), |_| {}).unwrap();
                peer.wake();
                woken == Woken::Wake
            })
            .count()
    }
    let (a, b) = (Poller::new().unwrap(), Poller::new().unwrap());
    let (to_a, to_b) = (a.waker(), b.waker());
    let (result, results) = mpsc::channel();
    let other = result.clone();
    thread::spawn(move || result.send(side(a, to_b, true)).unwrap());
    thread::spawn(move || other.send(side(b, to_a, false)).unwrap());
    assert_eq!(results.iter().take(2).sum::<usize>(), 2 * (STORM / 10));
}
