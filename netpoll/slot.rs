//! Whether one direction of a socket is ready, in one word.
//!
//! ```text
//!   | sequence 32 | tick 28 | - | CLOSING | WAITING | READY |
//!
//!   Nil      neither READY nor WAITING      the last try found nothing, and nobody waits
//!   Ready    READY                          an event has come since, or nobody has tried yet: a try may succeed
//!   Waiting  WAITING                        somebody waits for the next event
//! ```
//!
//! Readiness is edge-triggered: the kernel tells of a change once. So the word remembers it, until a try shows that it is used up.
//!
//! ```text
//!   who reads                                            the thread in the poller
//!   look = slot.look()
//!   look.is_ready()? try: recv() ...                     slot.notify(sequence)   any -> Ready, tick + 1
//!     WouldBlock -> slot.spent(look)   Ready -> Nil        was Waiting? -> Wake: wake whoever waits
//!   slot.begin_wait()                  Nil -> Waiting      another sequence? -> Stale: nothing
//!     Ready -> try again
//! ```
//!
//! - S1: each event changes the tick. So a try that began before an event cannot use it up: its `spent` finds another word.
//! - S2: a waiter MUST be where its waker finds it before the waker can look there. (The runtime keeps waiters in a list and calls
//!   [`Slot::begin_wait`] under the list's lock.) Whoever gets [`Notified::Wake`] MUST wake one of them.
//! - S3: the sequence belongs to one use of the descriptor. An event of an earlier use finds another sequence and changes
//!   nothing, so a late event never wakes who waits for the socket that has the place now.
//! - S4: CLOSING is set by an event after which there may be something to find though a try was short: the peer has
//!   closed, there is an error or urgent data. From then on a short try does not count as the last one ([`Slot::drained`]).
//!
//! # Why no event is lost
//!
//! All changes are read-modify-writes of one word, so they have one order. Take an event that comes after a try has found nothing.
//! Its `notify` N is either before the waiter's `begin_wait`, which then finds Ready and does not wait; or after it, and then
//! finds Waiting and wakes. In between there is only `spent`, and it cannot undo N: it expects the tick from before.

#[cfg(all(test, loom))]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(all(test, loom)))]
use std::sync::atomic::{AtomicU64, Ordering};

const READY: u64 = 1;
const WAITING: u64 = 2;
const CLOSING: u64 = 4;
const TICK_ONE: u64 = 1 << 4;
const SEQUENCE_SHIFT: u32 = 32;
const TICK_MASK: u64 = (1 << SEQUENCE_SHIFT) - TICK_ONE;

/// One direction of a descriptor. The protocol is in the module's header.
#[derive(Debug)]
pub struct Slot(AtomicU64);

/// What [`Slot::look`] saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look(u64);

impl Look {
    /// Whether a try may succeed. If not, the last one found nothing and no event has come since.
    #[inline]
    pub fn is_ready(self) -> bool {
        self.0 & READY != 0
    }
}

/// What [`Slot::begin_wait`] says.
#[must_use = "who does not have to wait must not"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// An event has come: try again.
    Ready,
    /// From here on the next event wakes.
    Waiting,
}

/// What [`Slot::notify`] leaves to its caller.
#[must_use = "somebody may wait (S2)"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notified {
    /// Somebody waits, and the caller is to wake them.
    Wake,
    /// Nobody waits. The next who tries finds it ready.
    Nobody,
    /// The event was for an earlier use of the descriptor (S3).
    Stale,
}

impl Slot {
    pub(crate) fn new() -> Slot {
        Slot(AtomicU64::new(READY))
    }

    /// A new use begins: ready to be tried.
    pub(crate) fn renew(&self, sequence: u32) {
        // ORDER: Release; pairs with the Acquire of a notify() that compares the sequence. Who uses the descriptor next gets it through
        // the free list's lock. (An exchange rather than a store for the model checker's sake; it is as rare as sockets are.)
        self.0.swap(u64::from(sequence) << SEQUENCE_SHIFT | READY, Ordering::Release);
    }

    /// Looks, before a try.
    #[inline]
    pub fn look(&self) -> Look {
        // ORDER: Acquire; pairs with the Release in notify(): a try sees what the event told of. (So does the kernel.)
        Look(self.0.load(Ordering::Acquire))
    }

    /// The try that began after `look` found nothing (`WouldBlock`). Ready -> Nil, unless an event has come since (S1).
    #[inline]
    pub fn spent(&self, look: Look) {
        if look.is_ready() {
            // ORDER: Relaxed; publishes nothing. Failure means that somebody else knows better.
            let _ = self.0.compare_exchange(look.0, look.0 & !READY, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// The try that began after `look` found something, and it was less than was asked for: so there is no more. As
    /// [`Slot::spent`], except after an event that says otherwise (S4).
    ///
    /// Only where the system promises that a short try took everything there was, apart from S4: Linux's TCP does.
    #[inline]
    pub fn drained(&self, look: Look) {
        if look.0 & CLOSING == 0 {
            self.spent(look);
        }
    }

    /// Nil -> Waiting, unless it is Ready. The caller is where a waker finds it, or will be before the waker can look (S2).
    pub fn begin_wait(&self) -> Begin {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & READY != 0 {
                return Begin::Ready;
            }
            if word & WAITING != 0 {
                return Begin::Waiting;
            }
            // ORDER: Release; pairs with the Acquire in notify(): the waker sees what the waiter did before. The list's lock does the
            // same again.
            match self.0.compare_exchange_weak(word, word | WAITING, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Begin::Waiting,
                Err(now) => word = now,
            }
        }
    }

    /// The last one who waited has left without an event. Under the list's lock (S2).
    pub fn end_wait(&self) {
        // ORDER: Relaxed; publishes nothing.
        self.0.fetch_and(!WAITING, Ordering::Relaxed);
    }

    /// An event of the use `sequence` has come. Any -> Ready. `closing`: see S4.
    #[inline]
    pub fn notify(&self, sequence: u32, closing: bool) -> Notified {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if (word >> SEQUENCE_SHIFT) as u32 != sequence {
                return Notified::Stale;
            }
            let tick = word.wrapping_add(TICK_ONE) & TICK_MASK;
            let flags = READY | word & CLOSING | if closing { CLOSING } else { 0 };
            let new = u64::from(sequence) << SEQUENCE_SHIFT | tick | flags;
            // ORDER: AcqRel; Release pairs with look(), Acquire with begin_wait().
            match self.0.compare_exchange_weak(word, new, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if word & WAITING != 0 => return Notified::Wake,
                Ok(_) => return Notified::Nobody,
                Err(now) => word = now,
            }
        }
    }

    /// Whether somebody waits.
    pub fn is_waiting(&self) -> bool {
        self.0.load(Ordering::Relaxed) & WAITING != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn slot(sequence: u32) -> Slot {
        let slot = Slot::new();
        slot.renew(sequence);
        slot
    }

    #[test]
    fn ready_until_spent() {
        let s = slot(3);
        let look = s.look();
        assert!(look.is_ready());
        assert_eq!(s.begin_wait(), Begin::Ready);
        s.spent(look);
        assert!(!s.look().is_ready());
        assert_eq!(s.begin_wait(), Begin::Waiting);
        assert_eq!(s.begin_wait(), Begin::Waiting);
        assert!(s.is_waiting());
        assert_eq!(s.notify(3, false), Notified::Wake);
        assert_eq!(s.notify(3, false), Notified::Nobody);
        assert!(!s.is_waiting());
    }

    #[test]
    fn an_event_during_a_try_is_not_used_up_by_it() {
        let s = slot(0);
        let look = s.look();
        assert_eq!(s.notify(0, false), Notified::Nobody);
        s.spent(look);
        assert!(s.look().is_ready());
    }

    #[test]
    fn after_closing_a_short_try_is_not_the_last() {
        let s = slot(0);
        s.drained(s.look());
        assert!(!s.look().is_ready());
        assert_eq!(s.notify(0, true), Notified::Nobody);
        s.drained(s.look());
        assert!(s.look().is_ready());
        assert_eq!(s.notify(0, false), Notified::Nobody);
        s.drained(s.look());
        assert!(s.look().is_ready(), "closing stays");
        s.spent(s.look());
        assert_eq!(s.begin_wait(), Begin::Waiting, "a try that found nothing is the last in any case");
    }

    #[test]
    fn a_late_event_changes_nothing() {
        let s = slot(7);
        s.spent(s.look());
        assert_eq!(s.begin_wait(), Begin::Waiting);
        let before = s.look();
        assert_eq!(s.notify(6, true), Notified::Stale);
        assert_eq!(s.look(), before);
    }

    #[test]
    fn the_tick_does_not_run_into_the_sequence() {
        let s = Slot(AtomicU64::new(5 << SEQUENCE_SHIFT | TICK_MASK));
        assert_eq!(s.notify(5, false), Notified::Nobody);
        assert_eq!(s.look(), Look(5 << SEQUENCE_SHIFT | READY));
    }
}

/// Against a kernel made of a counter of what there is to read, and a list of waiters made of two counters. A lost event is a
/// deadlock, which loom reports.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    #[derive(Default)]
    struct List {
        waiting: u32,
        /// Wake-ups that have not been used.
        wakes: u32,
    }

    struct Socket {
        slot: Slot,
        /// What is there to be read.
        data: Mutex<u32>,
        list: Mutex<List>,
        changed: Condvar,
    }

    impl Socket {
        fn new() -> Arc<Socket> {
            Arc::new(Socket {
                slot: Slot::new(),
                data: Mutex::new(0),
                list: Mutex::new(List::default()),
                changed: Condvar::new(),
            })
        }

        /// Data come, and an event tells of them.
        fn arrive(&self) {
            *self.data.lock().unwrap() += 1;
            if self.slot.notify(0, false) == Notified::Wake {
                self.wake_one();
            }
        }

        fn wake_one(&self) {
            let mut list = self.list.lock().unwrap();
            if list.waiting > 0 {
                list.waiting -= 1;
                list.wakes += 1;
                self.changed.notify_all();
            }
        }

        /// Takes up to `most`; 0 is WouldBlock.
        fn recv(&self, most: u32) -> u32 {
            let mut data = self.data.lock().unwrap();
            let n = (*data).min(most);
            *data -= n;
            n
        }

        /// As the runtime does it: who was woken wakes the next when it is done, for there may be more than it took.
        fn read(&self, most: u32) -> u32 {
            let mut was_woken = false;
            loop {
                let look = self.slot.look();
                if look.is_ready() {
                    let n = self.recv(most);
                    if n != 0 {
                        if n < most {
                            self.slot.drained(look);
                        }
                        if was_woken {
                            self.wake_one();
                        }
                        return n;
                    }
                    self.slot.spent(look);
                }
                let mut list = self.list.lock().unwrap();
                if self.slot.begin_wait() == Begin::Ready {
                    continue;
                }
                list.waiting += 1;
                while list.wakes == 0 {
                    list = self.changed.wait(list).unwrap();
                }
                list.wakes -= 1;
                was_woken = true;
            }
        }
    }

    #[test]
    fn loom_slot_no_event_is_lost() {
        loom::model(|| {
            let s = Socket::new();
            let peer = {
                let s = s.clone();
                thread::spawn(move || {
                    s.arrive();
                    s.arrive();
                })
            };
            let mut read = 0;
            while read < 2 {
                read += s.read(2);
            }
            assert_eq!(read, 2);
            peer.join().unwrap();
        });
    }

    /// Two readers, a byte for each.
    #[test]
    fn loom_slot_two_readers() {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(2);
        model.check(|| {
            let s = Socket::new();
            let readers = [0, 1].map(|_| {
                let s = s.clone();
                thread::spawn(move || assert_eq!(s.read(1), 1))
            });
            s.arrive();
            s.arrive();
            readers.into_iter().for_each(|r| r.join().unwrap());
        });
    }

    /// An event of an earlier use against a new one.
    #[test]
    fn loom_slot_late_event() {
        loom::model(|| {
            let s = Arc::new(Slot::new());
            let late = {
                let s = s.clone();
                thread::spawn(move || s.notify(0, true))
            };
            s.renew(1);
            s.spent(s.look());
            assert_eq!(s.begin_wait(), Begin::Waiting, "nothing has happened in this use");
            assert_ne!(late.join().unwrap(), Notified::Wake);
            assert!(s.is_waiting());
        });
    }
}
