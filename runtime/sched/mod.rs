//! The scheduler.
//!
//! ```text
//!   prim, stack, coro <- state, border, searchers (pure protocols)
//!                     <- tripwire, counts, block, g, slab, m, run_queue, p, procs, timer, queue (the nouns)
//!                     <- emit <- park, calls, outside, life, find, network, wake (a goroutine's way)
//!                     <- world, resize, advance, sysmon, trim, deadlock, cycle, dump, watchdog, quit, fatal (those who look from outside)
//!                     <- spawn, run (the way in)
//! ```

pub(crate) mod advance;
pub(crate) mod block;
pub(crate) mod border;
pub(crate) mod calls;
pub(crate) mod census;
pub(crate) mod counts;
pub(crate) mod creator;
pub(crate) mod cycle;
pub(crate) mod deadlock;
pub(crate) mod dump;
pub(crate) mod emit;
pub(crate) mod fatal;
pub(crate) mod find;
pub(crate) mod foreign;
pub(crate) mod forked;
pub(crate) mod g;
pub(crate) mod id;
pub(crate) mod labels;
pub(crate) mod life;
pub(crate) mod locals;
pub(crate) mod m;
pub(crate) mod network;
pub(crate) mod outside;
pub(crate) mod owner;
pub(crate) mod p;
pub(crate) mod park;
pub(crate) mod post;
pub(crate) mod procs;
pub(crate) mod queue;
pub(crate) mod quit;
pub(crate) mod reporter;
pub(crate) mod resize;
pub(crate) mod run;
pub(crate) mod run_queue;
pub(crate) mod searchers;
pub(crate) mod slab;
pub(crate) mod spawn;
pub(crate) mod standing;
pub(crate) mod standstill;
pub(crate) mod state;
pub(crate) mod sysmon;
pub(crate) mod task;
pub(crate) mod timer;
pub(crate) mod trim;
pub(crate) mod tripwire;
pub(crate) mod wake;
pub(crate) mod watchdog;
pub(crate) mod wired;
pub(crate) mod world;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use netpoll::{Poller, Waker};
use parking_lot::Mutex;

use g::G;
use m::M;
use p::{HeldP, P};
use procs::Procs;
use queue::GlobalQueue;
use searchers::Searchers;

/// The scheduler of this process.
pub(crate) struct Sched {
    procs: Procs,
    poller: OnceLock<(Poller, Waker)>,
    max_threads: AtomicUsize,
    pub(crate) global: GlobalQueue,
    pub(crate) searchers: Searchers,
    /// The world is stopped, or about to be. Then no idle P is handed out.
    pub(crate) stopping: AtomicBool,
    pub(crate) inner: Mutex<Inner>,
}

/// What the scheduler's lock protects. Nothing blocks under it, and it is never taken inside a trace guard.
pub(crate) struct Inner {
    idle_ps: Vec<&'static P>,
    pub(crate) idle_ms: Vec<&'static M>,
    /// Who sleeps in the poller.
    pub(crate) poller: Seat,
    /// Ms made so far.
    pub(crate) ms: usize,
    /// An M whose thread could not be had: for the next try.
    pub(crate) spare: Option<&'static M>,
    /// How often an M was woken or made for a P, and how often there was none to be had.
    pub(crate) wake_ups: u64,
    pub(crate) refused: u64,
}

/// The one place in the poller, so that timers have somebody who waits for them.
///
/// - One M at a time is in the poller: from taking the seat until it has come out and says so. Otherwise a second one would
///   wait for the poller's lock, where a wake-up that is meant for it is swallowed by the first.
pub(crate) struct Seat {
    /// Somebody is in the poller, or on the way in or out.
    pub(crate) occupied: bool,
    /// The M that is there and can be woken for a P. `None` when it was woken and is on its way out.
    pub(crate) sleeper: Option<&'static M>,
    /// An idle M that takes the seat when it becomes free; sleeps on its parker until then.
    pub(crate) heir: Option<&'static M>,
}

pub(crate) static SCHED: Sched = Sched {
    procs: Procs::new(),
    poller: OnceLock::new(),
    max_threads: AtomicUsize::new(512),
    global: GlobalQueue::new(),
    searchers: Searchers::new(),
    stopping: AtomicBool::new(false),
    inner: Mutex::new(Inner {
        idle_ps: Vec::new(),
        idle_ms: Vec::new(),
        poller: Seat { occupied: false, sleeper: None, heir: None },
        ms: 0,
        wake_ups: 0,
        refused: 0,
        spare: None,
    }),
};

impl Inner {
    /// Ms that sleep.
    pub(crate) fn parked(&self) -> usize {
        let seat = &self.poller;
        self.idle_ms.len() + usize::from(seat.sleeper.is_some()) + usize::from(seat.heir.is_some())
    }

    pub(crate) fn has_idle_p(&self) -> bool {
        !self.idle_ps.is_empty()
    }

    /// Puts a P on the idle list.
    pub(crate) fn put_idle_p(&mut self, p: HeldP) {
        let p = p.into_inner();
        // ORDER: Release; pairs with the load in Stopped::stop_one().
        p.idle.store(true, Ordering::Release);
        self.idle_ps.push(p);
        SCHED.searchers.p_idle();
    }
}

impl Sched {
    /// Makes the Ps, all idle. Once.
    pub(crate) fn init(&self, procs: usize, max_threads: usize) {
        self.max_threads.store(max_threads, Ordering::Relaxed);
        self.set_active_ps(procs);
        calls::fit(max_threads, procs, None);
    }

    /// GOMAXPROCS; 0 before the runtime is started.
    #[inline]
    pub(crate) fn gomaxprocs(&self) -> usize {
        self.procs.active_len()
    }

    /// The Ps that are in use: GOMAXPROCS of them. Empty before the runtime is started.
    #[inline]
    pub(crate) fn ps(&self) -> &'static [P] {
        self.procs.active()
    }

    /// All Ps there ever were, whose timers and counters count (X3).
    #[inline]
    pub(crate) fn all_ps(&self) -> &'static [P] {
        self.procs.all()
    }

    /// The Ps that are not in use (X3).
    #[inline]
    pub(crate) fn away_ps(&self) -> &'static [P] {
        self.procs.away()
    }

    /// Makes the first `n` Ps the active ones (X2); those that were not active before go to the idle list.
    pub(crate) fn set_active_ps(&self, n: usize) {
        let old = self.gomaxprocs();
        self.procs.set_active(n);
        let mut inner = self.inner.lock();
        for p in self.ps().iter().skip(old).rev() {
            inner.put_idle_p(HeldP::new(p));
        }
    }

    /// Takes this P off the idle list, if it is there. In a stopped world.
    pub(crate) fn take_this_idle_p(&self, p: &'static P) -> Option<HeldP> {
        let mut inner = self.inner.lock();
        let i = inner.idle_ps.iter().position(|x| std::ptr::eq(*x, p))?;
        inner.idle_ps.remove(i);
        p.idle.store(false, Ordering::Relaxed);
        self.searchers.p_taken();
        Some(HeldP::new(p))
    }

    /// The poller, once [`network::poller`] has made it: before the runtime starts at the latest.
    #[inline]
    pub(crate) fn poller(&self) -> &Poller {
        &self.poller.get().expect("the poller is made").0
    }

    pub(crate) fn poller_if_made(&self) -> Option<&Poller> {
        self.poller.get().map(|p| &p.0)
    }

    /// Once.
    pub(crate) fn set_poller(&self, poller: Poller) {
        let waker = poller.waker();
        assert!(self.poller.set((poller, waker)).is_ok(), "the poller is made once");
    }

    pub(crate) fn waker(&self) -> &Waker {
        &self.poller.get().expect("the poller is made").1
    }

    pub(crate) fn raise_max_threads(&self, n: usize) {
        self.max_threads.fetch_max(n, Ordering::Relaxed);
    }

    pub(crate) fn max_threads(&self) -> usize {
        self.max_threads.load(Ordering::Relaxed)
    }

    /// Takes a P off the idle list; none while the world is being stopped.
    ///
    /// MUST NOT be called inside a trace guard that then says ProcStart: taking the P is how its last transition is
    /// learned of (T3).
    pub(crate) fn take_idle_p(&self) -> Option<HeldP> {
        if self.searchers.idle_ps() == 0 {
            return None;
        }
        let mut inner = self.inner.lock();
        if self.stopping.load(Ordering::Relaxed) {
            return None;
        }
        // One with work first: what it has taken ahead (P4) nobody can steal.
        let last = inner.idle_ps.len().checked_sub(1)?;
        let i = inner.idle_ps.iter().rposition(|p| p.has_work()).unwrap_or(last);
        let p = inner.idle_ps.remove(i);
        p.idle.store(false, Ordering::Relaxed);
        self.searchers.p_taken();
        drop(inner);
        sysmon::wake();
        Some(HeldP::new(p))
    }

    /// Puts a P on the idle list.
    pub(crate) fn put_idle_p(&self, p: HeldP) {
        self.inner.lock().put_idle_p(p);
    }

    /// Gives the stacks that idle Ps keep to everybody.
    pub(crate) fn drain_idle_ps(&self) {
        // Under the lock an idle P is the caller's (P1).
        for p in &self.inner.lock().idle_ps {
            p.drain_stacks();
        }
    }

    /// Whether anything is runnable anywhere.
    pub(crate) fn has_work(&self) -> bool {
        self.global.len() != 0 || self.ps().iter().any(P::has_work)
    }

    /// When the earliest timer of all Ps is due, `u64::MAX` for never.
    pub(crate) fn next_timer_ns(&self) -> u64 {
        self.all_ps().iter().map(|p| p.timers.next_ns()).min().unwrap_or(u64::MAX)
    }
}

/// Switches from `g` to its M's stack.
///
/// # Safety
///
/// The caller runs on g's stack and has said in `m.after` what is to be done.
#[inline]
unsafe fn coro_suspend(g: &'static G) {
    // SAFETY: passed on to the caller.
    unsafe { crate::coro::suspend(g) };
}
