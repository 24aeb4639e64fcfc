//! Channels: what every capacity promises, from goroutines and threads in any mix.
//!
//! A test that needs somebody to wait lets them say that they are about to, and then gives them turns ([`let_wait`]). What is
//! asserted holds whether they got that far or not; on one P they always do.

mod common;

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst};

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
        let sender = rt::go(move || {
            for i in 0..10 {
                tx.send(i).unwrap();
            }
        });
        assert_eq!(rx.recv(), Ok(0));
        // A waiting sender is somebody to take from without waiting.
        let mut next = 1;
        wait_for("all ten come by try_recv", || match rx.try_recv() {
            Ok(i) => {
                assert_eq!(i, 1 + next_of(&rx, &mut 0));
                true
            }
            Err(e) => {
                assert_eq!(e, TryRecvError::Empty);
                false
            }
        });
        next += 1;
        assert_eq!(rx.iter().collect::<Vec<_>>(), (next..10).collect::<Vec<i32>>());
        sender.join().unwrap();

        // A waiting receiver is somebody to give to without waiting.
        let (tx, rx) = bounded(0);
        let receiver = rt::go(move || rx.recv());
        wait_for("the receiver waits", || tx.try_send("here").is_ok());
        assert_eq!(receiver.join().unwrap(), Ok("here"));
    });
}

/// Nothing: a rendezvous channel never holds a message.
fn next_of(rx: &Receiver<i32>, zero: &mut i32) -> i32 {
    assert!(rx.is_empty());
    *zero
}
