//! The word between somebody who polls a future and whoever wakes it. Pure.
//!
//! ```text
//!   EMPTY     polling, or about to                 EMPTY --wait--> WAITING --wake--> NOTIFIED --take--> EMPTY
//!   NOTIFIED  woken, and not polled since          EMPTY --wake--> NOTIFIED
//!   WAITING   asleep
//! ```
//!
//! - U1: only the poller moves into WAITING, when it has let go of everything, and back to EMPTY, before it polls. So a wake-up that
//!   comes during a poll makes for another one, and any number of them count as one.
//! - U2: who moves WAITING to NOTIFIED wakes the poller, once. Nobody else does.
//! - U3: what the poller has written before it waits (who is to be woken) belongs, from then on, to who makes that move, until it
//!   wakes the poller.

use crate::prim::atomic::{AtomicU32, Ordering};

const EMPTY: u32 = 0;
const NOTIFIED: u32 = 1;
const WAITING: u32 = 2;

/// The word.
pub(crate) struct WakeWord(AtomicU32);

impl WakeWord {
    pub(crate) fn new() -> WakeWord {
        WakeWord(AtomicU32::new(EMPTY))
    }

    /// Anybody: the future wants to be polled. True if the poller sleeps, and then the caller MUST wake it (U2).
    #[must_use]
    pub(crate) fn wake(&self) -> bool {
        // ORDER: Release; pairs with the Acquire in take(): what the waker has done before is visible to the next poll. Acquire;
        // pairs with the Release in wait() (U3).
        self.0.swap(NOTIFIED, Ordering::AcqRel) == WAITING
    }

    /// The poller: whether it was woken since it last asked. It does not sleep.
    pub(crate) fn take(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in wake().
        self.0.swap(EMPTY, Ordering::Acquire) == NOTIFIED
    }

    /// The poller: it sleeps; false if it was woken already. From here on somebody may wake it.
    #[must_use]
    pub(crate) fn wait(&self) -> bool {
        // ORDER: Release; pairs with the Acquire in wake() (U3).
        self.0.compare_exchange(EMPTY, WAITING, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::atomic::AtomicU32 as Counter;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    #[derive(Default)]
    struct Seat {
        woken: Mutex<bool>,
        bell: Condvar,
    }

    struct Model {
        word: WakeWord,
        /// Who is to be woken (U3).
        seat: UnsafeCell<Option<Arc<Seat>>>,
        /// What the future waits for.
        done: Counter,
    }

    /// The wakers set what the future waits for, with no order of their own, and wake; the last of them must be seen.
    fn model(wakers: u32, wakes: u32) {
        loom::model(move || {
            let m = Arc::new(Model { word: WakeWord::new(), seat: UnsafeCell::new(None), done: Counter::new(0) });
            let wakers: Vec<_> = (0..wakers)
                .map(|_| {
                    let m = m.clone();
                    thread::spawn(move || {
                        for _ in 0..wakes {
                            m.done.fetch_add(1, Ordering::Relaxed);
                            if m.word.wake() {
                                let seat = m.seat.with(|p| unsafe { (*p).clone() }).expect("somebody sleeps");
                                *seat.woken.lock().unwrap() = true;
                                seat.bell.notify_one();
                            }
                        }
                    })
                })
                .collect();
            // The poll.
            while m.done.load(Ordering::Relaxed) != wakers.len() as u32 * wakes {
                if m.word.take() {
                    continue;
                }
                let seat = Arc::new(Seat::default());
                m.seat.with_mut(|p| unsafe { *p = Some(seat.clone()) });
                if m.word.wait() {
                    // A wake-up that is lost is a deadlock, which loom reports.
                    let mut woken = seat.woken.lock().unwrap();
                    while !*woken {
                        woken = seat.bell.wait(woken).unwrap();
                    }
                }
                m.word.take();
            }
            wakers.into_iter().for_each(|w| w.join().unwrap());
        });
    }

    #[test]
    fn loom_wake_word_one_waker() {
        model(1, 2);
    }

    #[test]
    fn loom_wake_word_two_wakers() {
        model(2, 1);
    }
}
