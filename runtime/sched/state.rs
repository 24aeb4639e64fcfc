//! The state word of a goroutine, and every transition there is.
//!
//! ```text
//!              on a queue?      who owns the stack?              an M?   a P?
//! Idle         global or none   nobody; it has none yet          no      no     made, not yet announced (foreign spawn)
//! Runnable     exactly one      the word (SCAN) or nobody        no      no
//! Running      no               its M, or that M's visitor       yes     yes
//! Syscall      no               its M; readable under SCAN       yes     yes, until it is taken
//! Waiting      no               the word (SCAN) or nobody        no      no     whoever readies it holds the only claim
//! Dead         no               nobody; the slot is free         no      no
//!
//!   Idle -> Runnable -> Running -> Waiting -> Runnable ...      Running -> Runnable (yield)      Running -> Dead
//!                       Running <-> Syscall -> Runnable (came back without a P)
//! ```
//!
//! - W1: SCAN may be set by whoever wants to look at a goroutine that is not Running. While it is set nobody else moves the
//!   word, so id, reason and saved registers stay what they are. It is held for a short time and never while waiting.
//! - W2: only the M that runs a goroutine (or that M's visitor) moves it out of Running; nobody scans a Running one. So
//!   these moves are plain stores.
//! - W3: a move out of a state that can be scanned waits for SCAN to clear.

use crate::prim::atomic::{AtomicU32, Ordering, spin_hint};

/// What a goroutine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Status {
    Dead = 0,
    Idle = 1,
    Runnable = 2,
    Running = 3,
    Syscall = 4,
    Waiting = 5,
}

const SCAN: u32 = 0x100;

impl Status {
    #[inline]
    fn from_word(w: u32) -> Status {
        match w & !SCAN {
            0 => Status::Dead,
            1 => Status::Idle,
            2 => Status::Runnable,
            3 => Status::Running,
            4 => Status::Syscall,
            5 => Status::Waiting,
            _ => unreachable!("goroutine state word {w:#x}"),
        }
    }
}

/// Whether a goroutine could be held for inspection.
#[must_use]
pub(crate) enum Scan<'a> {
    /// Held, in this status, until the guard is dropped.
    Held(Status, ScanGuard<'a>),
    /// It is running: visit its M instead.
    Running,
    /// There is nothing to see (Idle or Dead).
    Nothing,
    /// Somebody else is looking; try again.
    Busy,
}

/// Evidence of SCAN; clears it when dropped.
pub(crate) struct ScanGuard<'a>(&'a StateWord, u32);

impl Drop for ScanGuard<'_> {
    fn drop(&mut self) {
        // ORDER: Release; pairs with the Acquire of the next transition.
        self.0.0.store(self.1, Ordering::Release);
    }
}

/// The word was not what a move expects: somebody scans, or the move is wrong.
#[cold]
fn wait_for_scan(w: u32, from: Status, to: Status) {
    assert!(w & !SCAN == from as u32, "goroutine moved {from:?} -> {to:?} but is {:?}", Status::from_word(w));
    spin_hint();
}

/// The word.
pub(crate) struct StateWord(AtomicU32);

impl StateWord {
    /// Elsewhere it begins as zeros: Dead.
    #[cfg(loom)]
    pub(crate) fn new() -> StateWord {
        StateWord(AtomicU32::new(Status::Dead as u32))
    }

    /// What it is doing at this moment.
    #[inline]
    pub(crate) fn status(&self) -> Status {
        Status::from_word(self.0.load(Ordering::Acquire))
    }

    /// Whether it is made and not announced, for whoever has taken it off a queue. Nobody scans one that is (see scan()).
    #[inline(always)]
    pub(crate) fn is_idle(&self) -> bool {
        self.0.load(Ordering::Acquire) == Status::Idle as u32
    }

    /// Whether it is outside in a call, for the goroutine itself.
    #[inline(always)]
    pub(crate) fn is_syscall(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in move_owned(), which may have been a visitor's.
        // Its own code runs, so it is nothing but that or Running, which nobody scans (W2).
        self.0.load(Ordering::Acquire) != Status::Running as u32
    }

    /// Moves `from` -> `to` where others may scan meanwhile (W3).
    #[inline]
    fn move_scanned(&self, from: Status, to: Status) {
        loop {
            // ORDER: AcqRel; pairs with itself and with the stores of W2: hands over the goroutine with all its fields.
            match self.0.compare_exchange_weak(from as u32, to as u32, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(w) => wait_for_scan(w, from, to),
            }
        }
    }

    /// Moves out of Running, by its owner (W2).
    #[inline]
    fn move_owned(&self, to: Status) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), Status::Running as u32, "-> {to:?}");
        // ORDER: Release; pairs with the Acquire in move_scanned() and scan().
        self.0.store(to as u32, Ordering::Release);
    }

    /// A slot of the free list becomes a goroutine: Dead -> Idle.
    pub(crate) fn claim(&self) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), Status::Dead as u32);
        self.0.store(Status::Idle as u32, Ordering::Release);
    }

    /// It was announced and may run: Idle -> Runnable.
    #[inline]
    pub(crate) fn create(&self) {
        debug_assert_eq!(self.0.load(Ordering::Relaxed), Status::Idle as u32);
        self.0.store(Status::Runnable as u32, Ordering::Release);
    }

    /// An M runs it: Runnable -> Running.
    #[inline]
    pub(crate) fn start(&self) {
        self.move_scanned(Status::Runnable, Status::Running);
    }

    /// It gives up its turn: Running -> Runnable.
    #[inline]
    pub(crate) fn stop(&self) {
        self.move_owned(Status::Runnable);
    }

    /// It waits: Running -> Waiting.
    #[inline]
    pub(crate) fn park(&self) {
        self.move_owned(Status::Waiting);
    }

    /// What it waited for has come: Waiting -> Runnable.
    #[inline]
    pub(crate) fn ready(&self) {
        self.move_scanned(Status::Waiting, Status::Runnable);
    }

    /// It ends: Running -> Dead.
    #[inline]
    pub(crate) fn destroy(&self) {
        self.move_owned(Status::Dead);
    }

    /// It enters a blocking call, or a visitor puts it there: Running -> Syscall.
    #[inline]
    pub(crate) fn syscall_begin(&self) {
        self.move_owned(Status::Syscall);
    }

    /// It comes back with its P: Syscall -> Running.
    #[inline]
    pub(crate) fn syscall_end(&self) {
        self.move_scanned(Status::Syscall, Status::Running);
    }

    /// It comes back and has no P: Syscall -> Runnable.
    #[inline]
    pub(crate) fn syscall_end_blocked(&self) {
        self.move_scanned(Status::Syscall, Status::Runnable);
    }

    /// Tries to hold it for inspection (W1).
    pub(crate) fn scan(&self) -> Scan<'_> {
        let w = self.0.load(Ordering::Acquire);
        match Status::from_word(w) {
            _ if w & SCAN != 0 => Scan::Busy,
            Status::Running => Scan::Running,
            Status::Idle | Status::Dead => Scan::Nothing,
            status => match self.0.compare_exchange(w, w | SCAN, Ordering::Acquire, Ordering::Relaxed) {
                // ORDER: Acquire; pairs with the Release of the last transition: its fields are visible.
                Ok(_) => Scan::Held(status, ScanGuard(self, w)),
                Err(_) => Scan::Busy,
            },
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    /// One thread runs a goroutine through park, ready and start, writing its fields while Running; another scans and
    /// reads them. loom reports a race if W1 to W3 do not keep them apart.
    #[test]
    fn loom_state_scan_excludes_owner() {
        loom::model(|| {
            let g = Arc::new((StateWord::new(), UnsafeCell::new(0u32)));
            g.0.claim();
            g.0.create();
            g.0.start();
            let scanner = {
                let g = g.clone();
                thread::spawn(move || {
                    if let Scan::Held(status, guard) = g.0.scan() {
                        assert!(matches!(status, Status::Waiting | Status::Runnable | Status::Syscall));
                        g.1.with(|p| unsafe { assert!(*p >= 1) });
                        drop(guard);
                    }
                })
            };
            g.1.with_mut(|p| unsafe { *p += 1 });
            g.0.park();
            g.0.ready();
            g.0.start();
            g.1.with_mut(|p| unsafe { *p += 1 });
            g.0.syscall_begin();
            g.0.syscall_end();
            g.1.with_mut(|p| unsafe { *p += 1 });
            g.0.destroy();
            scanner.join().unwrap();
        });
    }
}
