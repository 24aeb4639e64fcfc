//! The wake flag: one word between the thread that waits and those that wake it.
//!
//! | state    | who waits                                   | wake pending | the next `notify` must signal |
//! |----------|---------------------------------------------|--------------|-------------------------------|
//! | Empty    | nobody                                      | no           | no                            |
//! | Waiting  | one thread, in the kernel or on its way     | no           | yes                           |
//! | Notified | nobody, or one thread that is being signalled | yes        | no                            |
//!
//! `begin_wait` and `end_wait` belong to the one waiter (N1), `notify` to everybody.
//!
//! # Why no wake is lost
//!
//! All transitions are read-modify-writes of one word, so they have one order. Take a `notify` N and the waiter's
//! next transition after it, W.
//!
//! 1. W is `begin_wait`: it finds Notified and does not wait.
//! 2. W is `end_wait`: the waiter was in Waiting when the first notify since its `begin_wait` came, and that one
//!    signals the kernel (N2). The signal is kept by the kernel until the waiter collects it, so the wait ends, if it
//!    had begun at all, and `end_wait` finds Notified.
//!
//! In both cases W acquires what N released, and, because the notifies in between are read-modify-writes too (N3), what
//! all earlier ones released: one release sequence. So the waiter sees the work of each waker that it answers for.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU8, Ordering};

const EMPTY: u8 = 0;
const WAITING: u8 = 1;
const NOTIFIED: u8 = 2;

/// See the table above.
#[derive(Debug)]
pub(crate) struct WakeFlag(AtomicU8);

/// What [`WakeFlag::notify`] leaves to its caller.
#[must_use = "a waiter in the kernel sleeps on unless it is signalled (N2)"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Notify {
    /// A thread waits: signal the kernel.
    Signal,
    /// Nobody waits, or an earlier notifier signals: done.
    Done,
}

/// What [`WakeFlag::begin_wait`] and [`WakeFlag::end_wait`] found.
#[must_use = "a wake that was found is consumed"]
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No wake: wait (begin), or the wait ended for another reason (end).
    Nothing,
    /// A wake, now consumed.
    Wake,
}

impl WakeFlag {
    pub(crate) fn new() -> WakeFlag {
        WakeFlag(AtomicU8::new(EMPTY))
    }

    /// Any state -> Notified.
    pub(crate) fn notify(&self) -> Notify {
        // ORDER: Release; pairs with Acquire in begin_wait() and end_wait(); publishes what the waker did before. N3.
        match self.0.swap(NOTIFIED, Ordering::Release) {
            WAITING => Notify::Signal,
            _ => Notify::Done,
        }
    }

    /// Empty -> Waiting, or Notified -> Empty. Only for the waiter (N1).
    pub(crate) fn begin_wait(&self) -> Found {
        // ORDER: Relaxed; success publishes nothing (the waker only reads that somebody waits), failure is followed by
        // the Acquire below.
        match self.0.compare_exchange(EMPTY, WAITING, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Found::Nothing,
            Err(_) => {
                // ORDER: Acquire; pairs with Release in notify().
                let old = self.0.swap(EMPTY, Ordering::Acquire);
                debug_assert_eq!(old, NOTIFIED, "a second waiter (N1)");
                Found::Wake
            }
        }
    }

    /// Waiting or Notified -> Empty. Only for the waiter (N1).
    pub(crate) fn end_wait(&self) -> Found {
        // ORDER: Acquire; pairs with Release in notify().
        match self.0.swap(EMPTY, Ordering::Acquire) {
            NOTIFIED => Found::Wake,
            old => {
                debug_assert_eq!(old, WAITING, "a second waiter (N1)");
                Found::Nothing
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_wake_before_the_wait_needs_no_signal() {
        let flag = WakeFlag::new();
        assert_eq!(flag.notify(), Notify::Done);
        assert_eq!(flag.notify(), Notify::Done);
        assert_eq!(flag.begin_wait(), Found::Wake);
        assert_eq!(flag.begin_wait(), Found::Nothing);
        assert_eq!(flag.end_wait(), Found::Nothing);
    }

    #[test]
    fn only_the_first_wake_of_a_wait_signals() {
        let flag = WakeFlag::new();
        assert_eq!(flag.begin_wait(), Found::Nothing);
        assert_eq!(flag.notify(), Notify::Signal);
        assert_eq!(flag.notify(), Notify::Done);
        assert_eq!(flag.end_wait(), Found::Wake);
    }
}

/// The flag with a kernel made of a mutex and a condition variable: a signal is kept until it is collected, as an
/// edge-triggered eventfd keeps it. A lost wake is a deadlock, which loom reports.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::atomic::AtomicUsize;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    #[derive(Default)]
    struct Kernel {
        signalled: Mutex<bool>,
        changed: Condvar,
    }

    impl Kernel {
        fn signal(&self) {
            *self.signalled.lock().unwrap() = true;
            self.changed.notify_one();
        }

        fn wait(&self) {
            let mut signalled = self.signalled.lock().unwrap();
            while !*signalled {
                signalled = self.changed.wait(signalled).unwrap();
            }
            *signalled = false;
        }
    }

    struct Shared {
        flag: WakeFlag,
        kernel: Kernel,
        work: [AtomicUsize; 2],
    }

    fn shared() -> Arc<Shared> {
        Arc::new(Shared {
            flag: WakeFlag::new(),
            kernel: Kernel::default(),
            work: [AtomicUsize::new(0), AtomicUsize::new(0)],
        })
    }

    fn wake(shared: &Shared) {
        if shared.flag.notify() == Notify::Signal {
            shared.kernel.signal();
        }
    }

    /// One wait, as `Poller::wait` does it: until there was a wake.
    fn wait(shared: &Shared) {
        loop {
            if shared.flag.begin_wait() == Found::Wake {
                return;
            }
            shared.kernel.wait();
            if shared.flag.end_wait() == Found::Wake {
                return;
            }
        }
    }

    /// Two wakers publish with relaxed stores: a waiter that is answered for both must see both, or it waits for ever.
    #[test]
    fn loom_no_wake_is_lost() {
        loom::model(|| {
            let shared = shared();
            let wakers = [0, 1].map(|i| {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.work[i].store(1, Ordering::Relaxed);
                    wake(&shared);
                })
            });
            while shared.work.iter().any(|work| work.load(Ordering::Relaxed) == 0) {
                wait(&shared);
            }
            wakers.into_iter().for_each(|waker| waker.join().unwrap());
        });
    }

    /// One waker, two pieces of work one after the other, a wake for each.
    #[test]
    fn loom_wakes_in_a_row() {
        loom::model(|| {
            let shared = shared();
            let waker = {
                let shared = shared.clone();
                thread::spawn(move || {
                    for work in 1..=2 {
                        shared.work[0].store(work, Ordering::Relaxed);
                        wake(&shared);
                    }
                })
            };
            while shared.work[0].load(Ordering::Relaxed) < 2 {
                wait(&shared);
            }
            waker.join().unwrap();
        });
    }

    /// A wait that ends without a wake (its time is up) while one comes: the wake ends this wait or the next.
    #[test]
    fn loom_time_out_against_wake() {
        loom::model(|| {
            let shared = shared();
            let waker = {
                let shared = shared.clone();
                thread::spawn(move || {
                    shared.work[0].store(1, Ordering::Relaxed);
                    wake(&shared);
                })
            };
            let timed_out = shared.flag.begin_wait() == Found::Nothing && shared.flag.end_wait() == Found::Nothing;
            if timed_out {
                wait(&shared);
            }
            assert_eq!(shared.work[0].load(Ordering::Relaxed), 1);
            waker.join().unwrap();
        });
    }
}
