//! Channels: what every capacity promises, from goroutines and threads in any mix.
//!
//! A test that needs somebody to wait lets them say that they are about to, and then gives them turns ([`let_wait`]). What is
//! asserted holds whether they got that far or not; on one P they always do.

mod common;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use common::{Actor, Rng, Started, everywhere, scaled, seed, traced, wait_for};
use rt::chan::{Receiver, RecvError, SendError, Sender, TryRecvError, TrySendError, bounded, unbounded};

/// `None`: unbounded.
const CAPACITIES: [Option<usize>; 4] = [Some(0), Some(1), Some(7), None];

fn channel<T>(capacity: Option<usize>) -> (Sender<T>, Receiver<T>) {
    match capacity {
        Some(n) => bounded(n),
        None => unbounded(),
    }
}

/// Waits until `n` have said that they are about to wait, and lets them.
fn let_wait(about_to: &AtomicUsize, n: usize) {
    wait_for("all are about to wait", || about_to.load(SeqCst) == n);
    for _ in 0..20 {
        rt::yield_now();
    }
}

/// How often each of a number of values was dropped.
#[derive(Clone)]
struct Ledger(Arc<Vec<AtomicU32>>);

/// One of a [`Ledger`]'s values.
struct Entry {
    ledger: Ledger,
    id: usize,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.ledger.0[self.id].fetch_add(1, SeqCst);
    }
}

impl Ledger {
    fn new(n: usize) -> Ledger {
        Ledger(Arc::new((0..n).map(|_| AtomicU32::new(0)).collect()))
    }

    fn entry(&self, id: usize) -> Entry {
        Entry { ledger: self.clone(), id }
    }

    fn dropped(&self) -> Vec<u32> {
        self.0.iter().map(|n| n.load(SeqCst)).collect()
    }

    #[track_caller]
    fn assert_each_dropped_once(&self, what: &str) {
        let wrong: Vec<_> = self.dropped().into_iter().enumerate().filter(|(_, n)| *n != 1).collect();
        assert!(wrong.is_empty(), "{what}: (value, times it was dropped): {wrong:?}");
    }
}

// What one caller sees.

#[test]
fn smoke_bounded() {
    traced("smoke_bounded", || {
        for capacity in [1, 2, 10] {
            let (tx, rx) = bounded(capacity);
            assert_eq!((tx.capacity(), rx.capacity()), (Some(capacity), Some(capacity)));
            assert!(tx.is_empty() && rx.is_empty());
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            for i in 0..capacity {
                assert_eq!((tx.len(), rx.len()), (i, i));
                if i % 2 == 0 { tx.send(i).unwrap() } else { tx.try_send(i).unwrap() }
            }
            assert_eq!(tx.try_send(99), Err(TrySendError::Full(99)));
            assert_eq!(rx.recv(), Ok(0));
            tx.try_send(capacity).unwrap();
            assert_eq!(tx.try_send(99), Err(TrySendError::Full(99)));
            assert_eq!(rx.try_iter().collect::<Vec<_>>(), (1..=capacity).collect::<Vec<_>>());
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        }
    });
}

#[test]
fn smoke_rendezvous() {
    traced("smoke_rendezvous", || {
        let (tx, rx) = bounded(0);
        assert_eq!((tx.capacity(), tx.len(), rx.len()), (Some(0), 0, 0));
        assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        let sender = rt::go(move || (0..10).try_for_each(|i| tx.send(i)));
        assert_eq!(rx.recv(), Ok(0));
        // A sender that waits is somebody to take from without waiting.
        let taken = AtomicUsize::new(0);
        wait_for("a message comes by try_recv", || match rx.try_recv() {
            Ok(i) => {
                taken.store(i, SeqCst);
                true
            }
            Err(e) => {
                assert_eq!((e, rx.len()), (TryRecvError::Empty, 0));
                false
            }
        });
        assert_eq!(taken.load(SeqCst), 1);
        assert_eq!(rx.iter().collect::<Vec<_>>(), (2..10).collect::<Vec<_>>());
        assert_eq!(sender.join().unwrap(), Ok(()));

        // A receiver that waits is somebody to give to without waiting.
        let (tx, rx) = bounded(0);
        let receiver = rt::go(move || rx.recv());
        wait_for("the receiver waits", || tx.try_send("here").is_ok());
        assert_eq!(receiver.join().unwrap(), Ok("here"));
    });
}

#[test]
fn smoke_unbounded() {
    traced("smoke_unbounded", || {
        let (tx, rx) = unbounded();
        assert_eq!((tx.capacity(), rx.capacity()), (None, None));
        for i in 0..5000 {
            if i % 2 == 0 { tx.send(i).unwrap() } else { tx.try_send(i).unwrap() }
        }
        assert_eq!(rx.len(), 5000);
        assert!((0..5000).all(|i| rx.recv() == Ok(i)));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    });
}

#[test]
fn smoke_halves() {
    let (tx, rx) = bounded::<u8>(3);
    let (other_tx, other_rx) = bounded::<u8>(3);
    assert!(tx.same_channel(&tx.clone()) && rx.same_channel(&rx.clone()));
    assert!(!tx.same_channel(&other_tx) && !rx.same_channel(&other_rx));
    tx.send(1).unwrap();
    for text in [format!("{tx:?}"), format!("{rx:?}")] {
        for part in ["er {", "len: 1", "capacity: Some(3)", "closed: false"] {
            assert!(text.contains(part), "{part:?} in {text}");
        }
    }
    // The capacity is a promise, not an allocation.
    let (tx, rx) = bounded(usize::MAX - 1);
    tx.send(7u64).unwrap();
    assert_eq!(rx.recv(), Ok(7));
    let refused = std::panic::catch_unwind(|| bounded::<u8>(usize::MAX)).unwrap_err();
    assert!(common::message(&*refused).contains("unbounded()"));
}

#[test]
fn smoke_errors() {
    // The message need not be printable.
    struct Opaque;
    let errors: [(Box<dyn std::error::Error>, &str); 6] = [
        (Box::new(SendError(1)), "sending on a closed channel"),
        (Box::new(TrySendError::Full(1)), "sending on a full channel"),
        (Box::new(TrySendError::Closed(1)), "sending on a closed channel"),
        (Box::new(RecvError), "receiving on a closed and empty channel"),
        (Box::new(TryRecvError::Empty), "receiving on an empty channel"),
        (Box::new(TryRecvError::Closed), "receiving on a closed and empty channel"),
    ];
    for (error, text) in errors {
        assert_eq!(error.to_string(), text);
    }
    assert_eq!(format!("{:?}", SendError(Opaque)), "SendError(..)");
    assert_eq!(format!("{:?}", TrySendError::Full(Opaque)), "Full(..)");
    assert_eq!(SendError(5).into_inner(), 5);
    assert_eq!(TrySendError::Full(5).into_inner(), 5);
    assert_eq!(TrySendError::Closed(6).into_inner(), 6);
}

#[test]
fn smoke_iterators() {
    traced("smoke_iterators", || {
        for capacity in CAPACITIES {
            let (tx, rx) = channel(capacity);
            let sender = rt::go(move || (0..100).try_for_each(|i| tx.send(i)));
            assert_eq!(rx.iter().take(10).collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
            let mut seen = 10;
            for i in &rx {
                assert_eq!(i, seen);
                seen += 1;
                if seen == 50 {
                    break;
                }
            }
            let mut rest = rx.into_iter();
            assert_eq!(rest.by_ref().collect::<Vec<_>>(), (50..100).collect::<Vec<_>>());
            assert_eq!((rest.next(), rest.next()), (None, None));
            assert_eq!(sender.join().unwrap(), Ok(()));
        }
        // try_iter ends where it would have to wait, and goes on later.
        let (tx, rx) = bounded(4);
        let mut now = rx.try_iter();
        assert_eq!(now.next(), None);
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert_eq!((now.next(), now.next(), now.next()), (Some(1), Some(2), None));
    });
}

/// Channels need no `run`: two threads of the program's own are enough.
#[test]
fn smoke_threads_only() {
    for capacity in CAPACITIES {
        let (tx, rx) = channel(capacity);
        let sender = std::thread::spawn(move || (0..200).try_for_each(|i| tx.send(i)));
        assert_eq!(rx.iter().collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
        assert_eq!(sender.join().unwrap(), Ok(()));
    }
}

#[test]
fn smoke_channels_through_channels() {
    traced("smoke_channels_through_channels", || {
        let (requests, server) = bounded::<(u64, Sender<u64>)>(0);
        let handle = rt::go(move || {
            for (n, reply) in server {
                reply.send(n * n).unwrap();
            }
        });
        let clients: Vec<_> = (0..20)
            .map(|i| {
                let requests = requests.clone();
                Actor::mixed(i as usize).start(move || {
                    let (tx, rx) = bounded(i as usize % 2);
                    requests.send((i, tx)).unwrap();
                    assert_eq!(rx.recv(), Ok(i * i));
                    assert_eq!(rx.recv(), Err(RecvError), "the server has dropped its half");
                })
            })
            .collect();
        drop(requests);
        clients.into_iter().for_each(Started::join);
        handle.join().unwrap();
    });
}

// What messages are made of.

#[test]
fn smoke_zero_sized() {
    traced("smoke_zero_sized", || {
        for capacity in CAPACITIES {
            let (tx, rx) = channel::<()>(capacity);
            let sender = rt::go(move || (0..1000).try_for_each(|_| tx.send(())));
            assert_eq!(rx.iter().count(), 1000);
            assert_eq!(sender.join().unwrap(), Ok(()));
        }
        let (tx, _rx) = bounded::<()>(2);
        assert_eq!([tx.try_send(()), tx.try_send(()), tx.try_send(())], [Ok(()), Ok(()), Err(TrySendError::Full(()))]);
    });
}

#[test]
fn smoke_large_aligned_and_owning() {
    #[derive(Clone, PartialEq, Debug)]
    #[repr(align(128))]
    struct Large {
        filler: [u64; 500],
        owned: Vec<String>,
    }
    let make =
        |i: u64| Large { filler: std::array::from_fn(|k| i * 1000 + k as u64), owned: vec![format!("message {i}"); 3] };
    traced("smoke_large_aligned_and_owning", move || {
        for actor in Actor::BOTH {
            for capacity in CAPACITIES {
                let (tx, rx) = channel(capacity);
                let sender = actor.start(move || (0..30).for_each(|i| tx.send(make(i)).unwrap()));
                let mut n = 0;
                for got in rx {
                    assert!(std::ptr::from_ref(&got).addr().is_multiple_of(128));
                    assert!(got == make(n), "message {n} from a {actor:?} through {capacity:?}");
                    n += 1;
                }
                assert_eq!(n, 30);
                sender.join();
            }
        }
    });
}

// Order and number.

/// One sender, one receiver, every capacity, every mix: all messages, in order.
#[test]
fn spsc() {
    everywhere("spsc", || {
        traced("spsc", || {
            let n = scaled(4000, 500);
            for (from, to) in [0, 1, 2, 3].map(|i| (Actor::mixed(i), Actor::mixed(i / 2))) {
                for capacity in CAPACITIES {
                    let (tx, rx) = channel(capacity);
                    let sender = from.start(move || (0..n).try_for_each(|i| tx.send(i)));
                    let receiver = to.start(move || {
                        let mut next = 0;
                        for i in rx {
                            assert_eq!(i, next, "{from:?} to {to:?} through {capacity:?}");
                            next += 1;
                        }
                        next
                    });
                    assert_eq!(receiver.join(), n, "{from:?} to {to:?} through {capacity:?}");
                    assert_eq!(sender.join(), Ok(()));
                }
            }
        });
    });
}

/// Sends `n` numbers from each sender to all receivers, and checks that each came once, and each sender's in order.
fn many_to_many(what: &str, senders: &[Actor], receivers: &[Actor], capacity: Option<usize>, n: usize) {
    let (tx, rx) = channel(capacity);
    let sending: Vec<_> = senders
        .iter()
        .enumerate()
        .map(|(s, actor)| {
            let tx = tx.clone();
            actor.start(move || (0..n).try_for_each(|i| tx.send((s, i))))
        })
        .collect();
    drop(tx);
    let receiving: Vec<_> = receivers
        .iter()
        .map(|actor| {
            let rx = rx.clone();
            actor.start(move || rx.into_iter().collect::<Vec<(usize, usize)>>())
        })
        .collect();
    drop(rx);
    let mut all = Vec::new();
    for receiver in receiving {
        let got = receiver.join();
        for s in 0..senders.len() {
            let of_one: Vec<usize> = got.iter().filter(|m| m.0 == s).map(|m| m.1).collect();
            assert!(of_one.is_sorted(), "{what}, {capacity:?}: sender {s}'s order: {of_one:?}");
        }
        all.extend(got);
    }
    for sender in sending {
        assert_eq!(sender.join(), Ok(()));
    }
    all.sort_unstable();
    let wanted: Vec<_> = (0..senders.len()).flat_map(|s| (0..n).map(move |i| (s, i))).collect();
    assert!(all == wanted, "{what}, {capacity:?}: {} messages came of {}", all.len(), wanted.len());
}

#[test]
fn mpmc() {
    everywhere("mpmc", || {
        traced("mpmc", || {
            let n = scaled(1500, 150);
            let (goroutines, threads) = ([Actor::Goroutine; 4], [Actor::Thread; 4]);
            let mixed: Vec<Actor> = (0..6).map(Actor::mixed).collect();
            for capacity in CAPACITIES {
                many_to_many("goroutines to goroutines", &goroutines, &goroutines, capacity, n);
                many_to_many("goroutines to threads", &goroutines, &threads, capacity, n);
                many_to_many("threads to goroutines", &threads, &goroutines, capacity, n);
                many_to_many("threads to threads", &threads, &threads, capacity, n);
                many_to_many("mixed to mixed", &mixed, &mixed, capacity, n);
                many_to_many("many to one", &mixed, &mixed[..1], capacity, n);
                many_to_many("one to many", &mixed[1..2], &mixed, capacity, n * 4);
            }
        });
    });
}

/// Many wait for few: all messages come, and all who wait get an answer.
#[test]
fn stampede_of_receivers() {
    everywhere("stampede_of_receivers", || {
        traced("stampede_of_receivers", || {
            for capacity in CAPACITIES {
                let (tx, rx) = channel(capacity);
                let about_to = Arc::new(AtomicUsize::new(0));
                let waiting: Vec<_> = (0..100)
                    .map(|i| {
                        let (rx, about_to) = (rx.clone(), about_to.clone());
                        let actor = if i % 20 == 0 { Actor::Thread } else { Actor::Goroutine };
                        actor.start(move || {
                            about_to.fetch_add(1, SeqCst);
                            rx.recv().ok()
                        })
                    })
                    .collect();
                let_wait(&about_to, 100);
                (0..60).for_each(|i| tx.send(i).unwrap());
                drop(tx);
                let mut got: Vec<_> = waiting.into_iter().map(Started::join).collect();
                got.sort_unstable();
                let wanted: Vec<_> = std::iter::repeat_n(None, 40).chain((0..60).map(Some)).collect();
                assert_eq!(got, wanted, "capacity {capacity:?}");
            }
        });
    });
}

#[test]
fn stampede_of_senders() {
    everywhere("stampede_of_senders", || {
        traced("stampede_of_senders", || {
            for capacity in [0, 1, 7] {
                let (tx, rx) = bounded(capacity);
                let about_to = Arc::new(AtomicUsize::new(0));
                let waiting: Vec<_> = (0..100)
                    .map(|i| {
                        let (tx, about_to) = (tx.clone(), about_to.clone());
                        let actor = if i % 20 == 0 { Actor::Thread } else { Actor::Goroutine };
                        actor.start(move || {
                            about_to.fetch_add(1, SeqCst);
                            tx.send(i)
                        })
                    })
                    .collect();
                let_wait(&about_to, 100);
                let mut got: Vec<_> = rx.iter().take(60).collect();
                rx.close();
                // What was accepted before the close can still be had.
                got.extend(rx.iter());
                let mut back: Vec<usize> =
                    waiting.into_iter().filter_map(|h| h.join().err()).map(SendError::into_inner).collect();
                assert!(got.len() >= 60 && got.len() <= 60 + capacity + 1, "{} of 100 came", got.len());
                got.append(&mut back);
                got.sort_unstable();
                assert_eq!(got, (0..100).collect::<Vec<_>>(), "capacity {capacity}: each came or came back");
            }
        });
    });
}

// The end of a channel.

#[test]
fn close_by_either_half() {
    traced("close_by_either_half", || {
        for by_receiver in [false, true] {
            for capacity in CAPACITIES {
                let (tx, rx) = channel(capacity);
                let room = capacity.unwrap_or(3).min(3);
                (0..room).for_each(|i| tx.send(i).unwrap());
                let close = || if by_receiver { rx.close() } else { tx.close() };
                assert!(!tx.is_closed() && !rx.is_closed());
                assert!(close(), "it was open");
                assert!(!close(), "it was closed");
                assert!(!tx.close() && !rx.close());
                assert!(tx.is_closed() && rx.is_closed());
                assert_eq!(tx.send(9), Err(SendError(9)));
                assert_eq!(tx.try_send(9), Err(TrySendError::Closed(9)));
                // What was sent before can still be received.
                assert_eq!(rx.len(), room);
                for i in 0..room {
                    assert_eq!(if i % 2 == 0 { rx.recv().ok() } else { rx.try_recv().ok() }, Some(i));
                }
                assert_eq!(rx.recv(), Err(RecvError));
                assert_eq!(rx.try_recv(), Err(TryRecvError::Closed));
                assert_eq!((rx.iter().count(), rx.try_iter().count()), (0, 0));
            }
        }
    });
}

#[test]
fn close_by_dropping_the_last_of_a_half() {
    traced("close_by_dropping_the_last_of_a_half", || {
        let (tx, rx) = bounded(3);
        let another = tx.clone();
        drop(tx);
        assert!(!rx.is_closed());
        another.send(1).unwrap();
        drop(another);
        assert!(rx.is_closed());
        assert_eq!((rx.recv(), rx.recv()), (Ok(1), Err(RecvError)));

        let (tx, rx) = bounded(3);
        let another = rx.clone();
        drop(rx);
        assert!(!tx.is_closed());
        tx.send(1).unwrap();
        drop(another);
        assert!(tx.is_closed());
        assert_eq!(tx.send(2), Err(SendError(2)));
    });
}

/// How a channel is closed under those who wait on it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Closing {
    Sender,
    Receiver,
    Drop,
    Race,
}

const CLOSINGS: [Closing; 4] = [Closing::Sender, Closing::Receiver, Closing::Drop, Closing::Race];

/// Closes with `close` from four actors at once; exactly one of them finds it open.
fn race<H: Clone + Send + 'static>(half: H, close: fn(&H) -> bool) {
    let racing: Vec<_> = (0..4)
        .map(|i| {
            let half = half.clone();
            Actor::mixed(i).start(move || close(&half))
        })
        .collect();
    assert_eq!(racing.into_iter().map(Started::join).filter(|&first| first).count(), 1);
}

#[test]
fn close_while_many_receive() {
    everywhere("close_while_many_receive", || {
        traced("close_while_many_receive", || {
            for closing in CLOSINGS {
                for capacity in CAPACITIES {
                    let (tx, rx) = channel::<u32>(capacity);
                    let about_to = Arc::new(AtomicUsize::new(0));
                    let waiting: Vec<_> = (0..20)
                        .map(|i| {
                            let (rx, about_to) = (rx.clone(), about_to.clone());
                            Actor::mixed(usize::from(i % 5 == 0)).start(move || {
                                about_to.fetch_add(1, SeqCst);
                                rx.recv()
                            })
                        })
                        .collect();
                    let_wait(&about_to, 20);
                    match closing {
                        Closing::Sender => assert!(tx.close()),
                        Closing::Receiver => assert!(rx.close()),
                        Closing::Drop => drop(tx),
                        Closing::Race => race(tx.clone(), Sender::close),
                    }
                    for w in waiting {
                        assert_eq!(w.join(), Err(RecvError), "{closing:?}, {capacity:?}");
                    }
                }
            }
        });
    });
}

#[test]
fn close_while_many_send() {
    everywhere("close_while_many_send", || {
        traced("close_while_many_send", || {
            for closing in CLOSINGS {
                for capacity in [0, 1, 7] {
                    let (tx, rx) = bounded::<Box<usize>>(capacity);
                    (0..capacity).for_each(|i| tx.send(Box::new(1000 + i)).unwrap());
                    let about_to = Arc::new(AtomicUsize::new(0));
                    let waiting: Vec<_> = (0..20)
                        .map(|i| {
                            let (tx, about_to) = (tx.clone(), about_to.clone());
                            Actor::mixed(usize::from(i % 5 == 0)).start(move || {
                                let value = Box::new(i);
                                let address = std::ptr::from_ref(&*value).addr();
                                about_to.fetch_add(1, SeqCst);
                                let back = tx.send(value).unwrap_err().into_inner();
                                assert_eq!((*back, std::ptr::from_ref(&*back).addr()), (i, address));
                            })
                        })
                        .collect();
                    let_wait(&about_to, 20);
                    let rx = match closing {
                        Closing::Sender => {
                            assert!(tx.close());
                            Some(rx)
                        }
                        Closing::Receiver => {
                            assert!(rx.close());
                            Some(rx)
                        }
                        Closing::Drop => {
                            drop(rx);
                            None
                        }
                        Closing::Race => {
                            race(rx.clone(), Receiver::close);
                            Some(rx)
                        }
                    };
                    waiting.into_iter().for_each(Started::join);
                    if let Some(rx) = rx {
                        let left: Vec<usize> = rx.into_iter().map(|b| *b).collect();
                        assert_eq!(left, (1000..1000 + capacity).collect::<Vec<_>>(), "{closing:?}");
                    }
                }
            }
        });
    });
}

/// Messages and a close race: each message comes or comes back, whatever the order.
#[test]
fn stress_close() {
    everywhere("stress_close", || {
        let seed = seed();
        traced("stress_close", move || {
            let mut rng = Rng::new(seed);
            for round in 0..scaled(1000, 150) {
                let capacity = CAPACITIES[round % 4];
                let (tx, rx) = channel(capacity);
                let n = 6;
                let sending: Vec<_> = (0..n)
                    .map(|s| {
                        let tx = tx.clone();
                        Actor::mixed(usize::from(s == 0)).start(move || {
                            let mut i = 0;
                            while i < 50 && tx.send((s, i)).is_ok() {
                                i += 1;
                            }
                            i
                        })
                    })
                    .collect();
                let receiving: Vec<_> = (0..3)
                    .map(|r| {
                        let rx = rx.clone();
                        Actor::mixed(usize::from(r == 0)).start(move || rx.into_iter().collect::<Vec<(usize, usize)>>())
                    })
                    .collect();
                (0..rng.below(30)).for_each(|_| rt::yield_now());
                if rng.below(2) == 0 {
                    tx.close()
                } else {
                    rx.close()
                };
                let mut got: Vec<_> = receiving.into_iter().flat_map(Started::join).collect();
                got.sort_unstable();
                let sent = sending.into_iter().map(Started::join).enumerate();
                let wanted: Vec<_> = sent.flat_map(|(s, n)| (0..n).map(move |i| (s, i))).collect();
                assert!(got == wanted, "round {round}, {capacity:?}: {} came of {}", got.len(), wanted.len());
            }
        });
    });
}

// Every message is dropped once, on every way it can go.

#[test]
fn drop_queued() {
    traced("drop_queued", || {
        for capacity in [Some(7), None] {
            for sender_first in [false, true] {
                let ledger = Ledger::new(7);
                let (tx, rx) = channel(capacity);
                (0..7).for_each(|i| tx.send(ledger.entry(i)).unwrap());
                assert_eq!(ledger.dropped(), [0; 7]);
                if sender_first {
                    drop(tx);
                    assert_eq!(ledger.dropped(), [0; 7], "they can still be received");
                    drop(rx.recv().unwrap());
                    drop(rx);
                } else {
                    drop(rx);
                    ledger.assert_each_dropped_once("nobody can receive them any more");
                    drop(tx);
                }
                ledger.assert_each_dropped_once(&format!("{capacity:?}, sender first: {sender_first}"));
            }
        }
    });
}

#[test]
fn drop_received_and_refused() {
    traced("drop_received_and_refused", || {
        let ledger = Ledger::new(6);
        let (tx, rx) = bounded(1);
        tx.send(ledger.entry(0)).unwrap();
        let full = tx.try_send(ledger.entry(1)).unwrap_err();
        assert_eq!(ledger.dropped(), [0; 6]);
        assert_eq!(full.into_inner().id, 1);
        let got = rx.try_recv().ok().unwrap();
        assert_eq!((got.id, ledger.dropped()), (0, vec![0, 1, 0, 0, 0, 0]));
        drop(got);
        tx.send(ledger.entry(2)).unwrap();
        rx.close();
        drop(tx.send(ledger.entry(3)));
        drop(tx.try_send(ledger.entry(4)));
        assert_eq!(ledger.dropped(), [1, 1, 0, 1, 1, 0]);
        assert_eq!(rx.recv().ok().map(|e| e.id), Some(2));
        drop((tx, rx));
        drop(ledger.entry(5));
        ledger.assert_each_dropped_once("received, refused");
    });
}

#[test]
fn drop_in_iterators() {
    traced("drop_in_iterators", || {
        let ledger = Ledger::new(10);
        let (tx, rx) = unbounded();
        (0..10).for_each(|i| tx.send(ledger.entry(i)).unwrap());
        assert_eq!(rx.try_iter().take(2).count(), 2);
        assert_eq!(rx.iter().take(2).count(), 2);
        let mut rest = rx.into_iter();
        drop((rest.next(), rest.next()));
        assert_eq!(ledger.dropped(), [1, 1, 1, 1, 1, 1, 0, 0, 0, 0]);
        drop(rest);
        ledger.assert_each_dropped_once("the iterator was the receiver");
        drop(tx);
        ledger.assert_each_dropped_once("and the sender has nothing left");
    });
}

/// A sender waits with its value: it is taken, or the channel is closed, or the last receiver goes.
#[test]
fn drop_in_a_waiting_sender() {
    everywhere("drop_in_a_waiting_sender", || {
        traced("drop_in_a_waiting_sender", || {
            for actor in Actor::BOTH {
                for capacity in [0, 2] {
                    for ending in 0..3 {
                        let ledger = Ledger::new(capacity + 1);
                        let (tx, rx) = bounded(capacity);
                        (0..capacity).for_each(|i| tx.send(ledger.entry(i)).unwrap());
                        let about_to = Arc::new(AtomicUsize::new(0));
                        let (l, a) = (ledger.clone(), about_to.clone());
                        let sender = actor.start(move || {
                            let last = l.entry(capacity);
                            a.fetch_add(1, SeqCst);
                            match tx.send(last) {
                                Ok(()) => true,
                                Err(SendError(back)) => {
                                    assert_eq!(l.dropped()[back.id], 0);
                                    false
                                }
                            }
                        });
                        let_wait(&about_to, 1);
                        let (sent, rx) = match ending {
                            0 => {
                                assert!(rx.iter().map(|e| e.id).take(capacity + 1).eq(0..=capacity));
                                (true, Some(rx))
                            }
                            1 => {
                                rx.close();
                                (false, Some(rx))
                            }
                            _ => {
                                drop(rx);
                                (false, None)
                            }
                        };
                        assert_eq!(sender.join(), sent, "{actor:?}, {capacity}, ending {ending}");
                        assert_eq!(ledger.dropped()[capacity], 1);
                        drop(rx);
                        ledger.assert_each_dropped_once(&format!("{actor:?}, {capacity}, ending {ending}"));
                    }
                }
            }
        });
    });
}

/// A receiver waits with an empty place: it must not be dropped as if it held something.
#[test]
fn drop_in_a_waiting_receiver() {
    everywhere("drop_in_a_waiting_receiver", || {
        traced("drop_in_a_waiting_receiver", || {
            for actor in Actor::BOTH {
                for capacity in CAPACITIES {
                    let ledger = Ledger::new(1);
                    let (tx, rx) = channel(capacity);
                    let about_to = Arc::new(AtomicUsize::new(0));
                    let a = about_to.clone();
                    let receiver = actor.start(move || {
                        a.fetch_add(1, SeqCst);
                        let first = rx.recv();
                        a.fetch_add(1, SeqCst);
                        (first.is_ok(), rx.recv().is_err())
                    });
                    let_wait(&about_to, 1);
                    tx.send(ledger.entry(0)).unwrap();
                    let_wait(&about_to, 2);
                    assert_eq!(ledger.dropped(), [0]);
                    drop(tx);
                    assert_eq!(receiver.join(), (true, true));
                    ledger.assert_each_dropped_once("handed over");
                }
            }
        });
    });
}

/// Senders, receivers and halves come and go at random.
#[test]
fn stress_drop() {
    everywhere("stress_drop", || {
        let seed = seed();
        traced("stress_drop", move || {
            for round in 0..scaled(1000, 120) as u64 {
                let capacity = CAPACITIES[round as usize % 4];
                let (actors, each) = (6, 20);
                let ledger = Ledger::new(actors * each);
                let (tx, rx) = channel(capacity);
                let senders: Vec<_> = (0..actors)
                    .map(|s| {
                        let (tx, ledger) = (tx.clone(), ledger.clone());
                        let mut rng = Rng::new(seed ^ (round << 8) ^ s as u64);
                        Actor::mixed(usize::from(s == 0)).start(move || {
                            for i in 0..each {
                                let value = ledger.entry(s * each + i);
                                match rng.below(4) {
                                    0 => drop(tx.try_send(value)),
                                    1 if rng.below(20) == 0 => drop((value, tx.close())),
                                    _ => drop(tx.send(value)),
                                }
                            }
                        })
                    })
                    .collect();
                let receivers: Vec<_> = (0..3)
                    .map(|r| {
                        let rx = rx.clone();
                        let mut rng = Rng::new(seed ^ (round << 8) ^ (100 + r));
                        Actor::mixed(usize::from(r == 0)).start(move || {
                            for _ in 0..rng.below(80) {
                                match rng.below(4) {
                                    0 => drop(rx.try_recv()),
                                    1 => drop(rx.try_iter().take(3).count()),
                                    _ if rx.recv().is_err() => break,
                                    _ => {}
                                }
                            }
                        })
                    })
                    .collect();
                drop((tx, rx));
                senders.into_iter().for_each(Started::join);
                receivers.into_iter().for_each(Started::join);
                ledger.assert_each_dropped_once(&format!("round {round}, {capacity:?}"));
            }
        });
    });
}

/// A message's destructor is the program's code: it may use the channel that drops it, and even hold it.
#[test]
fn drop_that_uses_the_channel() {
    struct Nosy {
        tx: Sender<Nosy>,
        seen: Arc<AtomicUsize>,
    }
    impl Drop for Nosy {
        fn drop(&mut self) {
            assert!(self.tx.is_closed());
            assert_eq!(self.tx.len(), 0);
            assert!(!self.tx.close());
            self.seen.fetch_add(1, SeqCst);
        }
    }
    traced("drop_that_uses_the_channel", || {
        let seen = Arc::new(AtomicUsize::new(0));
        let (tx, rx) = unbounded();
        for _ in 0..3 {
            tx.send(Nosy { tx: tx.clone(), seen: seen.clone() }).ok().unwrap();
        }
        // The channel holds its own senders, so only its last receiver can close it.
        drop(tx);
        assert!(!rx.is_closed());
        drop(rx);
        assert_eq!(seen.load(SeqCst), 3);
    });
}

/// A destructor that panics costs its own message, not the rest, and not the channel's peace.
#[test]
fn drop_that_panics() {
    struct Bomb(Entry);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0.id == 1 {
                std::panic::resume_unwind(Box::new("boom"));
            }
        }
    }
    traced("drop_that_panics", || {
        let ledger = Ledger::new(4);
        let (tx, rx) = unbounded();
        (0..4).for_each(|i| tx.send(Bomb(ledger.entry(i))).ok().unwrap());
        let payload = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(rx))).unwrap_err();
        assert_eq!(common::message(&*payload), "boom");
        ledger.assert_each_dropped_once("the rest too");
        assert!(tx.is_closed() && tx.is_empty());
    });
}

/// What a thread holds in its thread-locals is dropped when the thread's own place in the runtime may be gone already.
#[test]
fn drop_at_the_end_of_a_thread() {
    struct Last(Sender<&'static str>, Receiver<()>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.send("the last word").unwrap();
            assert_eq!(self.1.recv(), Ok(()));
        }
    }
    thread_local! {
        static FIRST: RefCell<Option<Last>> = const { RefCell::new(None) };
        static SECOND: RefCell<Option<Last>> = const { RefCell::new(None) };
    }
    traced("drop_at_the_end_of_a_thread", || {
        let ((tx, rx), (ack_tx, ack_rx)) = (bounded(0), bounded(0));
        let thread = std::thread::spawn(move || {
            // One is registered before the runtime's own thread-local, one after it.
            FIRST.with_borrow_mut(|l| *l = Some(Last(tx.clone(), ack_rx.clone())));
            tx.send("hello").unwrap();
            SECOND.with_borrow_mut(|l| *l = Some(Last(tx, ack_rx)));
        });
        assert_eq!(rx.recv(), Ok("hello"));
        for _ in 0..2 {
            assert_eq!(rx.recv(), Ok("the last word"));
            ack_tx.send(()).unwrap();
        }
        assert_eq!(rx.recv(), Err(RecvError));
        rt::blocking(|| thread.join()).unwrap();
    });
}

/// Threads wake goroutines whose processors are just going to sleep: a wake-up that is lost is a hang.
#[test]
fn stress_threads_wake_idle_processors() {
    everywhere("stress_threads_wake_idle_processors", || {
        traced("stress_threads_wake_idle_processors", || {
            let n = scaled(20_000, 1000);
            let pairs: Vec<_> = (0..3)
                .map(|_| {
                    let (tx, rx) = bounded(0);
                    let sender = Actor::Thread.start(move || (0..n).try_for_each(|i| tx.send(i)));
                    (sender, Actor::Goroutine.start(move || rx.iter().count()))
                })
                .collect();
            for (sender, receiver) in pairs {
                assert_eq!(receiver.join(), n);
                assert_eq!(sender.join(), Ok(()));
            }
        });
    });
}

/// A goroutine that serves many in turn: two messages in flight per client and a close at the end.
#[test]
fn stress_ping_pong() {
    everywhere("stress_ping_pong", || {
        traced("stress_ping_pong", || {
            let n = scaled(10_000, 1000);
            let pairs: Vec<_> = (0..4)
                .map(|i| {
                    let ((there, here), (back, home)) = (bounded(i / 2), bounded(i / 2));
                    let echo = Actor::mixed(i).start(move || here.into_iter().try_for_each(|m| back.send(m)));
                    let ping = Actor::mixed(i + i / 2).start(move || {
                        for m in 0..n {
                            there.send(m).unwrap();
                            assert_eq!(home.recv(), Ok(m));
                        }
                    });
                    (echo, ping)
                })
                .collect();
            for (echo, ping) in pairs {
                ping.join();
                assert_eq!(echo.join(), Ok(()));
            }
        });
    });
}
