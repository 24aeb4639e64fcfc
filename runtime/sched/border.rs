//! The border between user code and the runtime, and how others get across it without a signal.
//!
//! ```text
//!     state: a counter, odd while its M is inside the runtime (written by the M alone)
//!     req:   0 | ASKED(n) | VISITED | VISITED_SLEEPING | TAKEN      (n: a number of its own for each request)
//!
//!   M      enter:   state += 1;  light fence;  req != 0 -> answer
//!          leave:   state += 1 (Release)
//!          answer:  ASKED: CAS -> 0, go on.   VISITED: wait for 0 or TAKEN.   TAKEN -> 0: the P is gone
//!   visitor         CAS req 0 -> ASKED;  heavy fence;  state even?  CAS ASKED -> VISITED : CAS ASKED -> 0
//!          end:     req = 0 or TAKEN
//! ```
//!
//! - B1: outside, an M MUST NOT touch its P, its trace batches or the runtime's part of its goroutine. A visitor in
//!   VISITED owns all three.
//! - B2: the exchange on `req` decides, not the read of `state`. If the visitor reads an even state, then either the M has
//!   not entered since, or its entry comes after the heavy fence and its load of `req` sees ASKED or VISITED: it
//!   either withdraws ASKED, and the visitor's exchange fails, or it waits.
//! - B3: one visitor at a time: whoever moved 0 -> ASKED(n) and then that same ASKED(n) -> VISITED. The number matters: if
//!   a visitor could go on with the request of a second one, made after its own was withdrawn, its heavy fence would lie
//!   before that request, and an M could be inside without having seen it.
//! - B4: only the M turns TAKEN back into 0. Until then no visitor comes: there is nothing to take.
//! - B5: cross first, lock second. A crossing can wait, so no lock of the runtime is held when one is made.
//!
//! Rejected: Go's status exchange at every system call (2.9 ns, and it cannot reach code that makes none); signals (a user's
//! system calls return EINTR, and a handler that runs anywhere can do nothing with locks).

use crate::prim::atomic::{AtomicU32, Ordering, spin_hint};
use crate::prim::{barrier, chaos};

const NOTHING: u32 = 0;
const ASKED: u32 = 1;
const VISITED: u32 = 2;
const VISITED_SLEEPING: u32 = 3;
const TAKEN: u32 = 4;

/// The words below are tags in the low bits; ASKED carries its number above them.
const TAG_BITS: u32 = 3;
const TAG_MASK: u32 = (1 << TAG_BITS) - 1;

/// One M's border.
#[derive(Debug)]
pub(crate) struct Border {
    state: AtomicU32,
    req: AtomicU32,
    /// The kind of barrier in force, beside the words it stands between.
    barrier: barrier::Kind,
    /// Requests made so far (B3).
    requests: AtomicU32,
}

/// How an entry that was asked for came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Answer {
    /// A visitor asked and was refused: it wants something; look at the flags.
    Refused,
    /// A visitor came and went.
    Released,
    /// The P was taken. Nothing of it may be touched.
    Taken,
}

impl Border {
    /// A border whose M is inside: an M is born in the runtime.
    pub(crate) fn new() -> Border {
        Border {
            state: AtomicU32::new(1),
            req: AtomicU32::new(NOTHING),
            barrier: barrier::kind(),
            requests: AtomicU32::new(0),
        }
    }

    /// Enters the runtime; true if somebody asked, and then [`Border::answer`] MUST follow at once.
    #[inline(always)]
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        let s = self.state.load(Ordering::Relaxed);
        debug_assert!(s.is_multiple_of(2), "entered the runtime from inside");
        self.state.store(s.wrapping_add(1), Ordering::Relaxed);
        chaos::window();
        // ORDER: pairs with the heavy fence in visit(): store `state`, then load `req` (B2).
        barrier::light_as(self.barrier);
        // ORDER: Acquire; pairs with the Release in Visit::end(): a visit that has come and gone unseen has changed things.
        self.req.load(Ordering::Acquire) != NOTHING
    }

    /// Leaves the runtime.
    #[inline(always)]
    pub(crate) fn leave(&self) {
        let s = self.state.load(Ordering::Relaxed);
        chaos::window();
        debug_assert!(!s.is_multiple_of(2), "left the runtime from outside");
        // ORDER: Release; pairs with the Acquire in visit(): what was done inside is visible to a visitor.
        self.state.store(s.wrapping_add(1), Ordering::Release);
    }

    /// The counter, for whoever wants to see whether the M has crossed since: even means outside.
    pub(crate) fn crossings(&self) -> u32 {
        self.state.load(Ordering::Relaxed)
    }

    /// Settles what a visitor wants, right after [`Border::enter`] said that there is one.
    #[cold]
    pub(crate) fn answer(&self) -> Answer {
        let mut turns = 0;
        let mut waited = false;
        loop {
            match self.req.load(Ordering::Acquire) {
                NOTHING => return if waited { Answer::Released } else { Answer::Refused },
                asked if asked & TAG_MASK == ASKED => {
                    chaos::window();
                    // B2: withdraw the request; if the visitor was faster, wait for it.
                    if self.req.compare_exchange(asked, NOTHING, Ordering::Acquire, Ordering::Acquire).is_ok() {
                        return Answer::Refused;
                    }
                }
                TAKEN => {
                    // ORDER: the Acquire load above pairs with the Release in Visit::end().
                    self.req.store(NOTHING, Ordering::Relaxed);
                    return Answer::Taken;
                }
                word => {
                    waited = true;
                    turns += 1;
                    if turns < 200 || cfg!(loom) {
                        spin_hint();
                    } else {
                        #[cfg(not(loom))]
                        // The visitor would be in the parent, and here nobody knows how far it was.
                        crate::sched::forked::end_child();
                        self.sleep(word);
                    }
                }
            }
        }
    }

    /// Sleeps until a visitor's end.
    #[cfg(all(target_os = "linux", not(loom)))]
    fn sleep(&self, word: u32) {
        let announced = word == VISITED_SLEEPING
            || self.req.compare_exchange(VISITED, VISITED_SLEEPING, Ordering::Acquire, Ordering::Relaxed).is_ok();
        if announced {
            crate::prim::parker::futex_wait(&self.req, VISITED_SLEEPING, None);
        }
    }

    #[cfg(not(all(target_os = "linux", not(loom))))]
    fn sleep(&self, _word: u32) {
        std::thread::yield_now();
    }

    /// Tries to stop the M at the border. `None`: it is inside (and will look at its flags soon), or has nothing to
    /// take, or another visitor is there.
    ///
    /// The caller MUST NOT be the M itself.
    pub(crate) fn visit(&self) -> Option<Visit<'_>> {
        // A cheap look first: the heavy fence costs microseconds.
        if !self.state.load(Ordering::Relaxed).is_multiple_of(2) {
            return None;
        }
        let asked = self.requests.fetch_add(1, Ordering::Relaxed) << TAG_BITS | ASKED;
        self.req.compare_exchange(NOTHING, asked, Ordering::Relaxed, Ordering::Relaxed).ok()?;
        chaos::window();
        barrier::heavy();
        chaos::window();
        // ORDER: Acquire; pairs with the Release in leave().
        if self.state.load(Ordering::Acquire).is_multiple_of(2)
            && self.req.compare_exchange(asked, VISITED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        {
            return Some(Visit { border: self, ended: false });
        }
        // It is inside. Withdraw; if it withdrew first, that is the same.
        let _ = self.req.compare_exchange(asked, NOTHING, Ordering::Relaxed, Ordering::Relaxed);
        None
    }
}

/// Evidence that the M stands still at its border (B1). Dropping it lets the M go on with its P.
#[must_use]
pub(crate) struct Visit<'a> {
    border: &'a Border,
    ended: bool,
}

impl Visit<'_> {
    /// Ends the visit: the M goes on without its P, which the caller keeps.
    pub(crate) fn take(mut self) {
        self.end(TAKEN);
    }

    fn end(&mut self, word: u32) {
        self.ended = true;
        chaos::window();
        // ORDER: Release; pairs with the Acquire in answer(): what the visitor wrote is visible to the M.
        let old = self.border.req.swap(word, Ordering::Release);
        debug_assert!(matches!(old, VISITED | VISITED_SLEEPING));
        #[cfg(all(target_os = "linux", not(loom)))]
        if old == VISITED_SLEEPING {
            crate::prim::parker::futex_wake(&self.border.req, 1);
        }
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(NOTHING);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Shared {
        border: Border,
        /// What an M owns inside and a visitor owns in VISITED: loom reports any overlap.
        owned: UnsafeCell<u32>,
    }

    fn model(take: bool) {
        loom::model(move || {
            let s = Arc::new(Shared { border: Border::new(), owned: UnsafeCell::new(0) });
            s.border.leave();
            let m = {
                let s = s.clone();
                thread::spawn(move || {
                    let mut mine = true;
                    for _ in 0..2 {
                        if s.border.enter() && s.border.answer() == Answer::Taken {
                            assert!(take);
                            mine = false;
                        }
                        if mine {
                            s.owned.with_mut(|p| unsafe { *p += 1 });
                        }
                        s.border.leave();
                    }
                    mine
                })
            };
            let mut taken = false;
            if let Some(v) = s.border.visit() {
                s.owned.with_mut(|p| unsafe { *p += 1 });
                if take {
                    v.take();
                    taken = true;
                    // It stays ours after the visit.
                    s.owned.with_mut(|p| unsafe { *p += 1 });
                }
            }
            let mine = m.join().unwrap();
            // Taken after its last entry: the M has not noticed yet.
            if taken && mine {
                assert!(s.border.enter());
                assert_eq!(s.border.answer(), Answer::Taken);
            }
        });
    }

    #[test]
    fn loom_border_visit() {
        model(false);
    }

    #[test]
    fn loom_border_take() {
        model(true);
    }

    /// Two visitors: one at a time, and the M gets its border back. Fails if the requests carry no number (B3).
    #[test]
    fn loom_border_two_visitors() {
        loom::model(|| {
            let s = Arc::new(Shared { border: Border::new(), owned: UnsafeCell::new(0) });
            s.border.leave();
            let visitors: Vec<_> = (0..2)
                .map(|_| {
                    let s = s.clone();
                    thread::spawn(move || {
                        if let Some(_v) = s.border.visit() {
                            s.owned.with_mut(|p| unsafe { *p += 1 });
                        }
                    })
                })
                .collect();
            for _ in 0..2 {
                if s.border.enter() {
                    assert_ne!(s.border.answer(), Answer::Taken);
                }
                s.owned.with_mut(|p| unsafe { *p += 1 });
                s.border.leave();
            }
            for v in visitors {
                v.join().unwrap();
            }
        });
    }
}
