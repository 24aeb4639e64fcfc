//! One wait, several who could end it: the cases of a select, a time limit. Pure.
//!
//! ```text
//!   winner   OPEN -> index of the one who ends the wait        once, by exchange
//! ```
//!
//! - Z1: whoever finds a node of the wait (on a list, in a heap) wins the race before it does anything for the waiter, under
//!   the lock of the list or heap where it found it. Who loses takes the node off and looks further: nothing has happened.
//! - Z2: the waiter goes on when the winner has said so. Before its frame goes it takes every node off, under the lock of
//!   its list: after that nobody can find one, and nobody who found one still looks at it.
//! - Z3: so exactly one case happens, and a wake-up is never given to somebody who has left: it goes to the next.

use crate::prim::atomic::{AtomicU32, Ordering};

const OPEN: u32 = u32::MAX;

/// The winner when a wait's time is up.
pub(crate) const TIME_UP: u32 = u32::MAX - 1;

/// Who ends a wait.
pub(crate) struct Race(AtomicU32);

impl Race {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Race {
        Race(AtomicU32::new(OPEN))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Race {
        Race(AtomicU32::new(OPEN))
    }

    /// Tries to be the one who ends the wait (Z1).
    pub(crate) fn win(&self, who: u32) -> bool {
        // ORDER: Relaxed: it decides, and publishes nothing. What the winner hands over is published when it wakes the waiter.
        self.0.compare_exchange(OPEN, who, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Who has won. For the waiter, once it goes on.
    pub(crate) fn winner(&self) -> Option<u32> {
        Some(self.0.load(Ordering::Relaxed)).filter(|w| *w != OPEN)
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// A wait on two lists with a place for one value, as a select has it.
    struct Wait {
        race: Race,
        place: UnsafeCell<Option<u32>>,
        woken: (Mutex<bool>, Condvar),
    }

    /// A list with at most one waiter, and the queue beside it.
    #[derive(Default)]
    struct List {
        waiting: Option<Arc<Wait>>,
        queue: Vec<u32>,
    }

    fn send(list: &Mutex<List>, case: u32, value: u32) {
        let mut l = list.lock().unwrap();
        if let Some(w) = l.waiting.take() {
            if w.race.win(case) {
                w.place.with_mut(|p| unsafe { *p = Some(value) });
                drop(l);
                *w.woken.0.lock().unwrap() = true;
                w.woken.1.notify_one();
                return;
            }
        }
        l.queue.push(value);
    }

    /// Two senders on two channels, one select that receives from both: one value arrives, the other stays in its queue.
    #[test]
    fn loom_race_select_commits_one_case() {
        loom::model(|| {
            let lists = Arc::new([Mutex::new(List::default()), Mutex::new(List::default())]);
            let wait = Arc::new(Wait {
                race: Race::new(),
                place: UnsafeCell::new(None),
                woken: (Mutex::new(false), Condvar::new()),
            });
            for l in lists.iter() {
                l.lock().unwrap().waiting = Some(wait.clone());
            }
            let senders: Vec<_> = (0..2u32)
                .map(|i| {
                    let lists = lists.clone();
                    thread::spawn(move || send(&lists[i as usize], i, 10 + i))
                })
                .collect();
            let mut woken = wait.woken.0.lock().unwrap();
            while !*woken {
                woken = wait.woken.1.wait(woken).unwrap();
            }
            drop(woken);
            let winner = wait.race.winner().expect("woken by a winner");
            // Z2
            for l in lists.iter() {
                l.lock().unwrap().waiting = None;
            }
            assert_eq!(wait.place.with(|p| unsafe { *p }), Some(10 + winner));
            for s in senders {
                s.join().unwrap();
            }
            let other = 1 - winner;
            assert_eq!(lists[other as usize].lock().unwrap().queue, [10 + other]);
            assert!(lists[winner as usize].lock().unwrap().queue.is_empty());
        });
    }

    /// A sender, a timer and a waiter that goes on when either has won, then takes its timer out of the heap: the value is
    /// received or stays in the queue, and nobody touches the waiter's place after it has left.
    #[test]
    fn loom_race_timer_is_deleted() {
        loom::model(|| {
            let list = Arc::new(Mutex::new(List::default()));
            let heap = Arc::new(Mutex::new(None::<Arc<Wait>>));
            let wait = Arc::new(Wait {
                race: Race::new(),
                place: UnsafeCell::new(None),
                woken: (Mutex::new(false), Condvar::new()),
            });
            list.lock().unwrap().waiting = Some(wait.clone());
            *heap.lock().unwrap() = Some(wait.clone());
            let sender = {
                let list = list.clone();
                thread::spawn(move || send(&list, 0, 7))
            };
            let timer = {
                let heap = heap.clone();
                thread::spawn(move || {
                    let due = {
                        let mut h = heap.lock().unwrap();
                        h.take().filter(|w| w.race.win(TIME_UP))
                    };
                    if let Some(w) = due {
                        *w.woken.0.lock().unwrap() = true;
                        w.woken.1.notify_one();
                    }
                })
            };
            let mut woken = wait.woken.0.lock().unwrap();
            while !*woken {
                woken = wait.woken.1.wait(woken).unwrap();
            }
            drop(woken);
            list.lock().unwrap().waiting = None;
            heap.lock().unwrap().take();
            // The frame goes: nobody may write the place from here on.
            let got = wait.place.with_mut(|p| unsafe { (*p).take() });
            sender.join().unwrap();
            timer.join().unwrap();
            let queued = list.lock().unwrap().queue.clone();
            match wait.race.winner() {
                Some(TIME_UP) => assert_eq!((got, queued), (None, vec![7])),
                _ => assert_eq!((got, queued), (Some(7), vec![])),
            }
        });
    }

    /// One notification, two who wait for it, the first with a time limit that runs out at that moment: exactly one of them is
    /// notified, whatever the order.
    #[test]
    fn loom_race_notification_goes_to_one() {
        loom::model(|| {
            let seat = || Arc::new((Race::new(), Mutex::new(false), Condvar::new()));
            let (first, second) = (seat(), seat());
            let list = Arc::new(Mutex::new(vec![first.clone(), second.clone()]));
            let wake = |s: &(Race, Mutex<bool>, Condvar)| {
                *s.1.lock().unwrap() = true;
                s.2.notify_one();
            };
            let notifier = {
                let list = list.clone();
                thread::spawn(move || {
                    let taken = {
                        let mut l = list.lock().unwrap();
                        // Z1
                        loop {
                            if l.is_empty() {
                                break None;
                            }
                            let s = l.remove(0);
                            if s.0.win(0) {
                                break Some(s);
                            }
                        }
                    };
                    wake(&taken.expect("the second cannot leave"));
                })
            };
            let timer = {
                let first = first.clone();
                thread::spawn(move || {
                    if first.0.win(TIME_UP) {
                        wake(&first);
                    }
                })
            };
            let mut woken = first.1.lock().unwrap();
            while !*woken {
                woken = first.2.wait(woken).unwrap();
            }
            drop(woken);
            // Z2
            list.lock().unwrap().retain(|s| !Arc::ptr_eq(s, &first));
            notifier.join().unwrap();
            timer.join().unwrap();
            let notified = [&first, &second].iter().filter(|s| s.0.winner() == Some(0)).count();
            assert_eq!(notified, 1);
            assert_eq!(*second.1.lock().unwrap(), first.0.winner() == Some(TIME_UP));
        });
    }
}
