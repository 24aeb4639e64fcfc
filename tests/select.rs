//! Selects: exactly one case, uniform among those that are ready, nothing lost.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Rng, seed, traced};
use rt::chan::{self, RecvError, Select, SendError};

#[test]
fn smoke_every_kind_of_case() {
    traced("select smoke", || {
        let (tx, rx) = chan::bounded(1);
        let (full, _keep) = chan::bounded(1);
        full.send(0).unwrap();
        // Nothing is ready.
        let word = rt::select! {
            recv(rx) -> _ => "recv",
            send(full, 1) -> _ => "send",
            default => "default",
        };
        assert_eq!(word, "default");
        let word = rt::select! {
            recv(rx) -> _ => "recv",
            default(Duration::from_millis(3)) => "time",
        };
        assert_eq!(word, "time");
        tx.send(5).unwrap();
        let got = rt::select! {
            recv(rx) -> message => message,
            send(full, 1) -> _ => unreachable!(),
        };
        assert_eq!(got, Ok(5));
        let sent = rt::select! {
            recv(rx) -> _ => unreachable!(),
            send(tx, 6) -> result => result,
        };
        assert_eq!(sent, Ok(()));
        assert_eq!(rx.recv(), Ok(6));
        drop(tx);
        assert_eq!(rt::select! { recv(rx) -> m => m }, Err(RecvError));
        drop(rx);
    });
}

#[test]
fn closed_channels_are_ready_and_give_the_message_back() {
    traced("select closed", || {
        let (tx, rx) = chan::bounded::<String>(1);
        drop(rx);
        let word = String::from("mine");
        let back = rt::select! {
            send(tx, word) -> result => result,
            default(Duration::from_secs(20)) => panic!("a closed channel is ready"),
        };
        assert_eq!(back, Err(SendError(String::from("mine"))));
    });
}

#[test]
fn a_variable_stays_where_it_is_unless_it_is_sent() {
    traced("select in place", || {
        let (tx, rx) = chan::bounded::<Box<u64>>(1);
        let (ticks, tick) = chan::bounded(8);
        for i in 0..8 {
            ticks.send(i).unwrap();
        }
        drop(ticks);
        tx.send(Box::new(1)).unwrap();
        let mut value = Box::new(10);
        let mut seen = 0;
        // The send is never possible: the value survives every turn of the loop and can be changed in between.
        loop {
            rt::select! {
                send(tx, value) -> _ => unreachable!("the channel is full"),
                recv(tick) -> t => match t {
                    Ok(_) => {
                        *value += 1;
                        seen += 1;
                    }
                    Err(_) => break,
                },
            }
        }
        assert_eq!((*value, seen), (18, 8));
        assert_eq!(rx.recv().as_deref(), Ok(&1));
        let sent = rt::select! { send(tx, value) -> r => r };
        sent.unwrap();
        assert_eq!(rx.recv().as_deref(), Ok(&18));
    });
}

#[test]
fn a_branch_may_replace_the_channel() {
    traced("select replace", || {
        let (tx, mut rx) = chan::bounded::<u32>(1);
        tx.send(3).unwrap();
        drop(tx);
        let mut got = Vec::new();
        for _ in 0..3 {
            rt::select! {
                recv(rx) -> m => match m {
                    Ok(m) => got.push(m),
                    Err(_) => rx = chan::never(),
                },
                default(Duration::from_millis(1)) => {}
            }
        }
        assert_eq!(got, [3]);
    });
}

/// Two channels with one value each, again and again: every value arrives once.
#[test]
fn stress_two_channels_sums_are_exact() {
    let rounds: u64 = if cfg!(debug_assertions) { 30_000 } else { 1_000_000 };
    let (sum, _) = traced("select sums", move || {
        let (tx1, rx1) = chan::bounded(0);
        let (tx2, rx2) = chan::bounded(0);
        for tx in [tx1, tx2] {
            rt::go(move || {
                for i in 0..rounds {
                    tx.send(i).unwrap();
                }
            });
        }
        let (mut sum, mut open1, mut open2) = (0, true, true);
        let (mut rx1, mut rx2) = (rx1, rx2);
        while open1 || open2 {
            rt::select! {
                recv(rx1) -> m => match m {
                    Ok(m) => sum += m,
                    Err(_) => (open1, rx1) = (false, chan::never()),
                },
                recv(rx2) -> m => match m {
                    Ok(m) => sum += m,
                    Err(_) => (open2, rx2) = (false, chan::never()),
                },
            }
        }
        sum
    });
    assert_eq!(sum, rounds * (rounds - 1));
}

/// Everybody selects over sending to and receiving from the same few channels.
#[test]
fn stress_selects_meet_selects() {
    let seed = seed();
    let (sums, _) = traced("select mesh", move || {
        let n = 8;
        let rounds = if cfg!(debug_assertions) { 2_000 } else { 50_000 };
        let chans: Arc<Vec<_>> = Arc::new((0..3).map(|i| chan::bounded::<u64>(i % 2)).collect());
        let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let workers: Vec<_> = (0..n)
            .map(|w| {
                let (chans, sent, received) = (chans.clone(), sent.clone(), received.clone());
                rt::go(move || {
                    let mut rng = Rng::new(seed ^ w);
                    for i in 0..rounds {
                        let value = w * rounds + i;
                        let (a, b) = (rng.below(3) as usize, rng.below(3) as usize);
                        rt::select! {
                            send(chans[a].0, value) -> r => {
                                r.unwrap();
                                sent.fetch_add(value, Ordering::Relaxed);
                            },
                            recv(chans[b].1) -> m => { received.fetch_add(m.unwrap(), Ordering::Relaxed); },
                            default(Duration::from_micros(rng.below(300))) => {}
                        }
                    }
                })
            })
            .collect();
        for w in workers {
            w.join().unwrap();
        }
        let left: u64 = chans.iter().flat_map(|c| c.1.try_iter()).sum();
        (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed) + left)
    });
    assert_eq!(sums.0, sums.1);
}

/// Threads and goroutines on both sides of a select.
#[test]
fn threads_select_too() {
    traced("select threads", || {
        let n = 2_000u64;
        let (tx, rx) = chan::bounded(0);
        let (back, answers) = chan::bounded(0);
        let (quit, quitting) = chan::bounded::<()>(0);
        let thread = std::thread::spawn(move || {
            loop {
                let m: u64 = rt::select! {
                    recv(rx) -> m => m.unwrap(),
                    recv(quitting) -> _ => return,
                    default(Duration::from_secs(60)) => panic!("nothing for a minute"),
                };
                rt::select! {
                    send(back, m + 1) -> r => r.unwrap(),
                    default(Instant::now() + Duration::from_secs(60)) => panic!("nobody for a minute"),
                }
            }
        });
        for i in 0..n {
            tx.send(i).unwrap();
            assert_eq!(answers.recv(), Ok(i + 1));
        }
        drop(quit);
        rt::blocking(move || thread.join()).unwrap();
    });
}

/// A goroutine sends to a thread with random gaps; a wake-up that got lost would show as a wait without end.
#[test]
fn stress_goroutine_to_thread() {
    let seed = seed();
    let n: u64 = if cfg!(debug_assertions) { 100_000 } else { 10_000_000 };
    let (tx, rx) = chan::bounded(0);
    let receiver = std::thread::spawn(move || {
        let (mut next, mut longest) = (0, Duration::ZERO);
        loop {
            let began = Instant::now();
            match rx.recv_timeout(Duration::from_secs(60)) {
                Ok(v) => assert_eq!(v, next, "in order, once each"),
                Err(chan::RecvTimeoutError::Closed) => break,
                Err(chan::RecvTimeoutError::Timeout) => panic!("value {next} did not come within a minute"),
            }
            next += 1;
            longest = longest.max(began.elapsed());
        }
        (next, longest)
    });
    rt::run(move || {
        let mut rng = Rng::new(seed);
        for i in 0..n {
            tx.send(i).unwrap();
            match rng.below(2_000) {
                0 => rt::time::sleep(Duration::from_micros(rng.below(200))),
                1..100 => rt::yield_now(),
                100..400 => (0..rng.below(500)).for_each(|_| std::hint::spin_loop()),
                _ => {}
            }
        }
    });
    let (received, longest) = receiver.join().unwrap();
    println!("{received} values, the longest wait {longest:?}");
    assert_eq!(received, n);
}

/// Chi-square over 2 to 64 cases that are all ready, in any mix with ones that are not.
#[test]
fn uniform_among_the_ready() {
    traced("select uniform", || {
        for n in [2usize, 3, 5, 8, 16, 33, 64] {
            let all: Vec<_> = (0..n).map(|_| chan::bounded::<u8>(1)).collect();
            let never = chan::never::<u8>();
            // With many a round takes long: each is put into all of their lists.
            let rounds = if n < 20 { 200 * n } else { 50 * n };
            let mut counts = vec![0u64; n];
            for (tx, _) in &all {
                tx.send(0).unwrap();
            }
            for _ in 0..rounds {
                let mut select = Select::new();
                let mut of = Vec::new();
                for (i, (_, rx)) in all.iter().enumerate() {
                    // Those that are not ready lie unevenly between the others.
                    for _ in 0..i % 3 {
                        select.recv(&never);
                        of.push(usize::MAX);
                    }
                    select.recv(rx);
                    of.push(i);
                }
                let done = select.wait();
                let i = of[done.index()];
                done.recv(&all[i].1).unwrap();
                counts[i] += 1;
                all[i].0.send(0).unwrap();
            }
            let expected = rounds as f64 / n as f64;
            let chi: f64 = counts.iter().map(|&c| (c as f64 - expected).powi(2) / expected).sum();
            // Mean n - 1, deviation sqrt(2 (n - 1)): seven of those are out of the question for an honest die.
            let limit = (n - 1) as f64 + 7.0 * (2.0 * (n - 1) as f64).sqrt();
            println!("{n} cases: chi-square {chi:.1}, limit {limit:.1}");
            assert!(chi < limit, "{n} cases: chi-square {chi:.1} > {limit:.1}: {counts:?}");
        }
    });
}

#[test]
fn biased_takes_the_first() {
    traced("select biased", || {
        let (tx1, rx1) = chan::bounded(1);
        let (tx2, rx2) = chan::bounded(1);
        for _ in 0..100 {
            tx1.send(1).unwrap();
            tx2.send(2).unwrap();
            let got = rt::select_biased! { recv(rx1) -> m => m, recv(rx2) -> m => m };
            assert_eq!(got, Ok(1));
            assert_eq!(rx2.recv(), Ok(2));
        }
    });
}

#[test]
fn the_dynamic_select() {
    traced("select dynamic", || {
        let (tx, rx) = chan::bounded::<String>(1);
        let (words, word) = chan::bounded::<&str>(1);
        let mut select = Select::new();
        let receive = select.recv(&word);
        let send = select.send(&tx, "first".to_owned());
        let done = select.wait();
        assert_eq!(done.index(), send);
        done.send(&tx).unwrap();
        assert_eq!(rx.recv().as_deref(), Ok("first"));
        // The send is spent; the receive can be waited for again and again.
        for _ in 0..3 {
            assert!(select.try_now().is_err());
            assert!(select.wait_timeout(Duration::from_millis(1)).is_err());
            words.send("word").unwrap();
            let done = select.wait();
            assert_eq!(done.index(), receive);
            assert_eq!(done.recv(&word), Ok("word"));
        }
        // A message that was not sent comes back.
        tx.send("fills it".to_owned()).unwrap();
        let again = select.send(&tx, "again".to_owned());
        assert!(select.try_now().is_err());
        assert_eq!(select.take_back(again, &tx).as_deref(), Some("again"));
        // One that nobody takes is dropped.
        words.send("dropped").unwrap();
        drop(select.wait());
        assert!(word.is_empty());
    });
}

/// Messages are dropped once each: those that arrive, those that lose, those that nobody takes.
#[test]
fn drop_counts_are_exact() {
    struct Counted(Arc<AtomicU64>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let drops = Arc::new(AtomicU64::new(0));
    let counter = drops.clone();
    let (made, _) = traced("select drops", move || {
        let mut made = 0;
        let mut make = || {
            made += 1;
            Counted(counter.clone())
        };
        let (tx, rx) = chan::bounded(2);
        for i in 0..300 {
            rt::select! {
                send(tx, make()) -> _ => {}
                default => {}
            }
            if i % 3 == 0 {
                rt::select! {
                    recv(rx) -> m => drop(m),
                    send(tx, make()) -> _ => {}
                    default => {}
                }
            }
            let mut select = Select::new();
            select.send(&tx, make());
            select.recv(&rx);
            drop(select.wait());
        }
        drop((tx, rx));
        made
    });
    assert_eq!(drops.load(Ordering::Relaxed), made);
}

/// A receiver is cancelled just when a send has woken it: the value goes to it or to the next one.
#[test]
fn stress_cancel_after_wake() {
    let seed = seed();
    traced("select cancel", move || {
        let rounds = if cfg!(debug_assertions) { 3_000 } else { 50_000 };
        let mut rng = Rng::new(seed);
        for round in 0..rounds {
            let (tx, rx) = chan::bounded::<u64>(0);
            let (ctx, cancel) = rt::Context::background().with_cancel();
            let first = {
                let rx = rx.clone();
                rt::go(move || {
                    rt::select! {
                        recv(rx) -> m => Some(m.unwrap()),
                        recv(ctx.done()) -> _ => None,
                    }
                })
            };
            let sender = rt::go(move || tx.send(round));
            for _ in 0..rng.below(4) {
                rt::yield_now();
            }
            cancel.cancel();
            let got = first.join().unwrap().or_else(|| rx.recv().ok());
            assert_eq!(got, Some(round));
            sender.join().unwrap().unwrap();
        }
    });
}

#[test]
fn a_wait_that_times_out_leaves_nothing_behind() {
    traced("select timeouts", || {
        let (tx, rx) = chan::bounded::<u32>(0);
        let waiters: Vec<_> = (0..50)
            .map(|i| {
                let rx = rx.clone();
                rt::go(move || rx.recv_timeout(Duration::from_micros(i * 40)))
            })
            .collect();
        for w in waiters {
            assert_eq!(w.join().unwrap(), Err(chan::RecvTimeoutError::Timeout));
        }
        // Had one of them been left on the list, this would be handed to it.
        assert_eq!(tx.try_send(1), Err(chan::TrySendError::Full(1)));
        assert_eq!(tx.send_timeout(1, Duration::from_millis(1)), Err(chan::SendTimeoutError::Timeout(1)));
        let began = Instant::now();
        assert_eq!(rx.recv_deadline(began + Duration::from_millis(2)), Err(chan::RecvTimeoutError::Timeout));
        assert!(began.elapsed() >= Duration::from_millis(2));
        drop(tx);
        assert_eq!(rx.recv_timeout(Duration::from_secs(60)), Err(chan::RecvTimeoutError::Closed));
    });
}

#[test]
#[should_panic(expected = "a select without an operation and without a time-out would wait for ever")]
fn a_select_without_operations_panics() {
    let _ = Select::new().wait();
}

#[test]
fn a_select_without_operations_can_time_out() {
    assert!(Select::new().wait_timeout(Duration::from_millis(1)).is_err());
    assert!(Select::new().try_now().is_err());
}

#[test]
#[should_panic(expected = "is not a receive from this channel")]
fn the_wrong_channel_is_refused() {
    let (tx, rx) = chan::bounded(1);
    let (_other_tx, other) = chan::bounded::<u8>(1);
    tx.send(1u8).unwrap();
    let mut select = Select::new();
    select.recv(&rx);
    let _ = select.wait().recv(&other);
}

/// What looks like a variable and is none: a constant, a unit variant, a literal.
#[test]
fn constants_are_sent() {
    const SEVEN: u32 = 7;
    let (tx, rx) = chan::bounded(1);
    rt::select! { send(tx, SEVEN) -> r => r.unwrap() }
    assert_eq!(rx.recv(), Ok(7));
    let (tx, rx) = chan::bounded::<Option<u8>>(1);
    rt::select! { send(tx, None) -> r => r.unwrap() }
    assert_eq!(rx.recv(), Ok(None));
    let (tx, rx) = chan::bounded(1);
    rt::select! { send(tx, true) -> r => r.unwrap() }
    assert_eq!(rx.recv(), Ok(true));
}
