//! Futures of other people's in goroutines: woken from anywhere, at any time, and no wake-up is lost.

mod common;

use std::cell::Cell;
use std::future::{Future, poll_fn, ready};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use common::{Actor, Rng, Started, busy, count, events, everywhere, message, scaled, seed, traced, wait_for};
use futures::channel::{mpsc, oneshot};
use futures::future::{Either, join_all, join3, select};
use futures::{SinkExt, StreamExt, stream};
use tracer::wire::{Ev, reason};

/// A timer as other crates have it: a thread sleeps and wakes.
struct Sleep {
    until: Instant,
    state: Arc<Mutex<Option<Waker>>>,
    started: bool,
}

impl Sleep {
    fn new(time: Duration) -> Sleep {
        Sleep { until: Instant::now() + time, state: Arc::default(), started: false }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if Instant::now() >= self.until {
            return Poll::Ready(());
        }
        *self.state.lock().unwrap() = Some(cx.waker().clone());
        if !self.started {
            self.started = true;
            let (until, state) = (self.until, self.state.clone());
            std::thread::spawn(move || {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                // Under a lock of std's, as many do it.
                if let Some(w) = &*state.lock().unwrap() {
                    w.wake_by_ref();
                }
            });
        }
        Poll::Pending
    }
}

#[test]
fn smoke() {
    traced("smoke", || {
        assert_eq!(rt::block_on(ready(1)), 1);
        assert_eq!(rt::block_on(async { 1 + ready(1).await }), 2);
        assert_eq!(rt::spawn_future(async { 3 }).join().unwrap(), 3);
        // One in another, in a thread, and with what blocks a goroutine inside.
        assert_eq!(rt::block_on(async { rt::block_on(async { 4 }) }), 4);
        assert_eq!(Actor::Thread.start(|| rt::block_on(async { 5 })).join(), 5);
        let (tx, rx) = rt::chan::bounded(0);
        let h = rt::spawn_future(async move { rx.recv() });
        tx.send(6).unwrap();
        assert_eq!(h.join().unwrap(), Ok(6));
        // A reference to what the caller has.
        let text = String::from("seven");
        assert_eq!(rt::block_on(async { text.len() }), 5);
    });
    // Without a runtime.
    assert_eq!(rt::block_on(async { 8 }), 8);
}

/// A future that wants to be polled again at once gives the others a turn.
#[test]
fn woken_in_its_poll() {
    let name = "woken_in_its_poll";
    if !common::is_child(name) {
        return common::child_passes(name, &[("GOMAXPROCS", "1")]);
    }
    traced(name, || {
        for actor in Actor::BOTH {
            let polls = actor
                .start(|| {
                    let mut polls = 0;
                    rt::block_on(poll_fn(|cx| {
                        polls += 1;
                        // More often than once is as good as once.
                        (0..polls % 4 + 1).for_each(|_| cx.waker().wake_by_ref());
                        if polls == 100 { Poll::Ready(()) } else { Poll::Pending }
                    }));
                    polls
                })
                .join();
            assert_eq!(polls, 100);
        }
        let flag = Arc::new(AtomicBool::new(false));
        let theirs = flag.clone();
        let waiting = rt::spawn_future(async move {
            while !theirs.load(SeqCst) {
                futures_lite::future::yield_now().await;
            }
        });
        rt::yield_now();
        // There is one P: if the other kept it, this one would have to wait for sysmon.
        flag.store(true, SeqCst);
        waiting.join().unwrap();
    });
}

#[test]
fn sleeps_until_it_is_woken() {
    let (_, trace) = traced("sleeps_until_it_is_woken", || {
        for actor in Actor::BOTH {
            let polls = actor
                .start(|| {
                    let (mut sleep, mut polls) = (Sleep::new(Duration::from_millis(10)), 0);
                    rt::block_on(poll_fn(|cx| {
                        polls += 1;
                        Pin::new(&mut sleep).poll(cx)
                    }));
                    assert!(Instant::now() >= sleep.until);
                    polls
                })
                .join();
            assert_eq!(polls, 2, "it was polled though nobody had woken it");
        }
    });
    let mut blocked = 0;
    events(&trace, |event, tables| {
        if event.kind == Ev::GoBlock && event.text(tables).is_some_and(|t| t == reason::SYNC) {
            let mut frames = tables.stack(event.stack());
            blocked += usize::from(frames.any(|f| f.func.contains("sleeps_until_it_is_woken")));
        }
    });
    assert!(blocked >= 1, "no goroutine blocked in block_on");
    assert!(count(&trace, Ev::GoUnblock) >= 1);
}

#[test]
fn channels_of_futures() {
    everywhere("channels_of_futures", || {
        traced("channels_of_futures", || {
            for actor in Actor::BOTH {
                let (tx, rx) = oneshot::channel();
                let receiving = actor.start(move || rt::block_on(rx));
                rt::yield_now();
                tx.send(5).unwrap();
                assert_eq!(receiving.join(), Ok(5));
                let (tx, rx) = oneshot::channel::<u32>();
                let receiving = actor.start(move || rt::block_on(rx));
                drop(tx);
                assert!(receiving.join().is_err());
            }
            let (tx, mut rx) = mpsc::channel(2);
            let each = scaled(3000, 300);
            let senders: Vec<_> = (0..4)
                .map(|a| {
                    let mut tx = tx.clone();
                    Actor::mixed(usize::from(a == 0)).start(move || {
                        rt::block_on(async move {
                            for i in 0..each {
                                tx.send(a * each + i).await.unwrap();
                            }
                        })
                    })
                })
                .collect();
            drop(tx);
            let sum = rt::block_on(async {
                let mut sum = 0;
                while let Some(n) = rx.next().await {
                    sum += n;
                }
                sum
            });
            senders.into_iter().for_each(Started::join);
            assert_eq!(sum, 4 * each * (4 * each - 1) / 2);
        });
    });
}

#[test]
fn async_channel_ping_pong() {
    everywhere("async_channel_ping_pong", || {
        traced("async_channel_ping_pong", || {
            for actor in Actor::BOTH {
                let (ping, pinged) = async_channel::bounded(1);
                let (pong, ponged) = async_channel::bounded(1);
                let rounds = scaled(2000, 300);
                let other = actor.start(move || {
                    rt::block_on(async {
                        while let Ok(n) = pinged.recv().await {
                            pong.send(n + 1).await.unwrap();
                        }
                    })
                });
                rt::block_on(async {
                    for n in 0..rounds {
                        ping.send(n).await.unwrap();
                        assert_eq!(ponged.recv().await, Ok(n + 1));
                    }
                });
                drop(ping);
                other.join();
            }
            // Many to many.
            let (tx, rx) = async_channel::bounded(3);
            let each = scaled(2000, 200);
            let senders: Vec<_> = (0..4)
                .map(|a| {
                    let tx = tx.clone();
                    rt::spawn_future(async move {
                        for i in 0..each {
                            tx.send(a * each + i).await.unwrap();
                        }
                    })
                })
                .collect();
            drop(tx);
            let receivers: Vec<_> = (0..4)
                .map(|a| {
                    let rx = rx.clone();
                    Actor::mixed(usize::from(a == 0)).start(move || {
                        rt::block_on(async move {
                            let mut sum = 0;
                            while let Ok(n) = rx.recv().await {
                                sum += n;
                            }
                            sum
                        })
                    })
                })
                .collect();
            senders.into_iter().for_each(|h| h.join().unwrap());
            let sum: usize = receivers.into_iter().map(Started::join).sum();
            assert_eq!(sum, 4 * each * (4 * each - 1) / 2);
        });
    });
}

#[test]
fn several_at_once() {
    everywhere("several_at_once", || {
        traced("several_at_once", || {
            let slow = || async {
                Sleep::new(Duration::from_millis(3)).await;
                1
            };
            let (tx, rx) = oneshot::channel();
            rt::go(move || tx.send(2).unwrap());
            let (a, b, c) = rt::block_on(join3(slow(), rx, async {
                futures_lite::future::yield_now().await;
                3
            }));
            assert_eq!((a, b, c), (1, Ok(2), 3));
            assert_eq!(rt::block_on(join_all((0..10).map(|_| slow()))), [1; 10]);

            // The loser of a select is dropped, and its timer wakes nobody.
            let (tx, rx) = oneshot::channel();
            rt::go(move || {
                rt::time::sleep(Duration::from_millis(1));
                tx.send(7)
            });
            match rt::block_on(select(rx, Sleep::new(Duration::from_millis(200)))) {
                Either::Left((n, sleep)) => drop((assert_eq!(n, Ok(7)), sleep)),
                Either::Right(_) => println!("a busy machine"),
            }
            let (tx, rx) = oneshot::channel::<u32>();
            match rt::block_on(select(rx, Sleep::new(Duration::from_millis(2)))) {
                Either::Left(_) => panic!("nobody sends"),
                Either::Right(((), rx)) => drop(rx),
            }
            drop(tx);

            let squares = stream::iter(0..100u64).map(|n| async move {
                futures_lite::future::yield_now().await;
                n * n
            });
            assert_eq!(rt::block_on(squares.buffer_unordered(8).fold(0, |a, n| ready(a + n))), 328_350);
        });
    });
}

/// The future and its panic.
#[test]
fn panics_go_to_the_caller() {
    struct Tells(Arc<Mutex<Vec<&'static str>>>, &'static str);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1);
        }
    }
    traced("panics_go_to_the_caller", || {
        let log = Arc::new(Mutex::new(Vec::new()));
        let tells = Tells(log.clone(), "in the future");
        let payload = rt::spawn_future(async move {
            let _tells = tells;
            futures_lite::future::yield_now().await;
            resume_unwind(Box::new("in a future"));
        })
        .join()
        .unwrap_err();
        assert_eq!(message(&*payload), "in a future");
        assert_eq!(*log.lock().unwrap(), ["in the future"], "it is dropped before the join");
        let payload = catch_unwind(AssertUnwindSafe(|| rt::block_on(async { resume_unwind(Box::new("here")) })));
        assert_eq!(message(&*payload.unwrap_err()), "here");
        // One that has ended is dropped by who ran it.
        let tells = Tells(log.clone(), "ended");
        rt::block_on(async {
            let _tells = &tells;
        });
        drop(tells);
        assert_eq!(*log.lock().unwrap(), ["in the future", "ended"]);
    });
}

/// A waker that outlives its future, and is used from everywhere.
#[test]
fn wakers_after_the_end() {
    everywhere("wakers_after_the_end", || {
        traced("wakers_after_the_end", || {
            struct WakesWhenDropped(Waker);
            impl Drop for WakesWhenDropped {
                fn drop(&mut self) {
                    self.0.wake_by_ref();
                }
            }
            for actor in Actor::BOTH {
                let waker = actor.start(|| rt::block_on(poll_fn(|cx| Poll::Ready(cx.waker().clone())))).join();
                let others: Vec<_> = (0..4)
                    .map(|i| {
                        let waker = waker.clone();
                        Actor::mixed(i).start(move || {
                            waker.wake_by_ref();
                            let again = waker.clone();
                            assert!(again.will_wake(&waker));
                            again.wake();
                            drop(WakesWhenDropped(waker));
                        })
                    })
                    .collect();
                others.into_iter().for_each(Started::join);
                // In a destructor that runs during a panic.
                let unwound = actor
                    .start(move || {
                        catch_unwind(AssertUnwindSafe(|| {
                            let _wakes = WakesWhenDropped(waker);
                            resume_unwind(Box::new("on purpose"));
                        }))
                    })
                    .join();
                assert!(unwound.is_err());
            }
            // In the destructor of a future, of itself.
            rt::spawn_future(async {
                let mut kept = None;
                poll_fn(|cx| {
                    if kept.is_some() {
                        return Poll::Ready(());
                    }
                    kept = Some(WakesWhenDropped(cx.waker().clone()));
                    cx.waker().wake_by_ref();
                    Poll::Pending
                })
                .await;
            })
            .join()
            .unwrap();
        });
    });
}

/// A thread's last words: its own place in the runtime may be gone.
#[test]
fn wakers_at_the_end_of_a_thread() {
    struct Last(Cell<Option<Waker>>, Arc<AtomicBool>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.1.store(true, SeqCst);
            self.0.take().unwrap().wake();
        }
    }
    thread_local! {
        static LAST: Cell<Option<Last>> = const { Cell::new(None) };
    }
    traced("wakers_at_the_end_of_a_thread", || {
        let flag = Arc::new(AtomicBool::new(false));
        let mut started = false;
        rt::block_on(poll_fn(|cx| {
            if flag.load(SeqCst) {
                return Poll::Ready(());
            }
            if !std::mem::replace(&mut started, true) {
                let last = Last(Cell::new(Some(cx.waker().clone())), flag.clone());
                std::thread::spawn(move || LAST.with(|l| l.set(Some(last))));
            }
            Poll::Pending
        }));
    });
}

/// What the torturers and their victim share.
#[derive(Default)]
struct Rack {
    done: AtomicUsize,
    waker: Mutex<Option<Waker>>,
}

/// Many wake, as they like, and often for nothing; the last to have done something must be seen.
#[test]
fn stress_wakers() {
    everywhere("stress_wakers", || {
        let seed = seed();
        traced("stress_wakers", move || {
            for round in 0..scaled(60, 12) as u64 {
                let mut rng = Rng::new(seed ^ round << 32);
                let (wakers, each) = (4 + rng.below(4) as usize, 40);
                let rack = Arc::new(Rack::default());
                let theirs = rack.clone();
                let actor = Actor::mixed(round as usize % 4 / 3);
                let victim = actor.start(move || {
                    let mut polls = 0;
                    let mut rng = Rng::new(seed ^ round << 32 ^ 99);
                    rt::block_on(poll_fn(|cx| {
                        polls += 1;
                        *theirs.waker.lock().unwrap() = Some(cx.waker().clone());
                        if theirs.done.load(Relaxed) == wakers * each {
                            return Poll::Ready(());
                        }
                        match rng.below(16) {
                            0 => cx.waker().wake_by_ref(),
                            1 => busy(Duration::from_micros(20)),
                            2 => rt::yield_now(),
                            _ => {}
                        }
                        Poll::Pending
                    }));
                    polls
                });
                let torturers: Vec<_> = (0..wakers)
                    .map(|a| {
                        let rack = rack.clone();
                        let mut rng = Rng::new(seed ^ round << 32 ^ a as u64);
                        Actor::mixed(usize::from(a % 3 == 0)).start(move || {
                            for _ in 0..each {
                                if rng.below(4) == 0 {
                                    // For nothing.
                                    if let Some(w) = &*rack.waker.lock().unwrap() {
                                        w.wake_by_ref();
                                    }
                                }
                                rack.done.fetch_add(1, Relaxed);
                                if rng.below(2) == 0 {
                                    // Under the lock.
                                    if let Some(w) = &*rack.waker.lock().unwrap() {
                                        w.wake_by_ref();
                                    }
                                } else {
                                    let waker = rack.waker.lock().unwrap().clone();
                                    if let Some(w) = waker {
                                        w.wake();
                                    }
                                }
                                match rng.below(8) {
                                    0 => rt::yield_now(),
                                    1 => rt::time::sleep(Duration::from_micros(30)),
                                    _ => {}
                                }
                            }
                        })
                    })
                    .collect();
                torturers.into_iter().for_each(Started::join);
                assert!(victim.join() >= 1);
            }
        });
    });
}

/// Wakes one after the other, under a lock of std's, for longer than a time slice.
#[inline(never)]
fn wakes_under_a_lock(lock: &Mutex<()>, wakers: &[Waker]) {
    let held = lock.lock().unwrap();
    for w in wakers {
        busy(Duration::from_micros(300));
        w.wake_by_ref();
    }
    drop(held);
}

/// Waking gives nobody a turn, though the time slice is over.
#[test]
fn waking_does_not_give_way() {
    let name = "waking_does_not_give_way";
    if !common::is_child(name) {
        return common::child_passes(name, &[("GOMAXPROCS", "1")]);
    }
    let (_, trace) = traced(name, || {
        let lock = Mutex::new(());
        let (tx, rx) = rt::chan::unbounded();
        let waiting: Vec<_> = (0..100)
            .map(|_| {
                let tx = tx.clone();
                let mut polled = false;
                rt::spawn_future(poll_fn(move |cx| {
                    if std::mem::replace(&mut polled, true) {
                        return Poll::Ready(());
                    }
                    tx.send(cx.waker().clone()).unwrap();
                    Poll::Pending
                }))
            })
            .collect();
        let wakers: Vec<_> = rx.iter().take(100).collect();
        (0..5).for_each(|_| rt::yield_now());
        wakes_under_a_lock(&lock, &wakers);
        waiting.into_iter().for_each(|h| h.join().unwrap());
    });
    let (mut woken, mut gave_way) = (0, 0);
    events(&trace, |event, tables| {
        let here = || tables.stack(event.stack()).any(|f| f.func.contains("wakes_under_a_lock"));
        match event.kind {
            Ev::GoUnblock => woken += usize::from(here()),
            Ev::GoStop => gave_way += usize::from(here()),
            _ => {}
        }
    });
    assert!(woken >= 50, "{woken} of 100 were asleep");
    assert_eq!(gave_way, 0, "others ran while a lock of std's was held");
}

#[test]
fn many_futures() {
    everywhere("many_futures", || {
        traced("many_futures", || {
            let n = scaled(2000, 300);
            let (tx, rx) = async_channel::unbounded();
            let futures: Vec<_> = (0..n)
                .map(|i| {
                    let tx = tx.clone();
                    rt::spawn_future(async move {
                        for _ in 0..3 {
                            futures_lite::future::yield_now().await;
                        }
                        tx.send(i).await.unwrap();
                        i
                    })
                })
                .collect();
            drop(tx);
            let sum = rt::block_on(rx.fold(0, |a, n| ready(a + n)));
            assert_eq!(sum, n * (n - 1) / 2);
            wait_for("all end", || futures.iter().all(rt::JoinHandle::is_finished));
            assert_eq!(futures.into_iter().map(|h| h.join().unwrap()).sum::<usize>(), sum);
        });
    });
}
