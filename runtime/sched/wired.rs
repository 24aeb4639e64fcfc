//! Goroutines that cannot leave their thread for the moment: those that are locked to it, and those that are unwinding.
//!
//! `lock_os_thread` is a promise to the program. And std counts panics per thread: a goroutine that parked while it unwinds
//! (a guard's drop that has to wait) and went on elsewhere would leave one thread counted as panicking for ever and another with
//! less than nothing. So such a goroutine does not
//! switch to its M's stack: it publishes itself, gives its P away, and waits on its M's parker, with its frames in place.
//!
//! - R1: `wired` is set before the goroutine is published and cleared when it runs again.
//! - R2: it is readied and queued like any other. The M that finds it gives its P to the goroutine's M ([`give_back`]) and sleeps.
//! - R3: meanwhile the waiting M is on no list of idle Ms: nobody else gives it a P.
//! - R4: a goroutine is locked as long as `locks` is not 0. Only its own code counts, up and down, and only while it runs
//!   (N4). It is born unlocked, and when it ends its M is as any other again.
//! - R5: an M counts itself as waiting when all that it has to do can be seen by others, and before it hands on its P, so
//!   that there is a thread for that one; until it has another P. Whoever counts it among the sleeping ones MUST see that all
//!   Ps are idle, too.
//!
//! Every stop of a goroutine (park, yield, preemption, coming back without a P) goes through [`switch`], so none can leave its
//! thread otherwise. The M of a locked goroutine never runs another in the meantime: it waits.
//!
//! Ms that wait in place come on top of `max_threads`. Otherwise so many locked goroutines that wait for one more would wait
//! for ever. Rejected: Go's end of the thread with a goroutine that is still locked at its end. M1 says that Ms do not end, and a
//! guard that was not dropped was leaked on purpose.

use std::sync::atomic::{AtomicUsize, Ordering};

use tracer::wire::ext::Cause;

use crate::prim::{chaos, tls};
use crate::sched::coro_suspend;
use crate::sched::emit;
use crate::sched::find::{start_p, stop_p};
use crate::sched::g::G;
use crate::sched::life::afterwards;
use crate::sched::m::M;
use crate::sched::sysmon::hand_off;

/// See [`waiting`].
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// Ms that wait in place with their goroutine (R5).
pub(crate) fn waiting() -> usize {
    WAITING.load(Ordering::SeqCst)
}

/// Locks the calling goroutine to its thread, once more (R4).
pub(crate) fn lock(g: &'static G) {
    g.locks.set(g.locks.get().checked_add(1).expect("fewer than 4 billion guards"));
    g.locked.set(true);
}

/// Takes back one [`lock`] (R4).
pub(crate) fn unlock(g: &'static G) {
    let left = g.locks.get().saturating_sub(1);
    g.locks.set(left);
    g.locked.set(left != 0);
}

/// The calling goroutine ends and is still locked (R4).
#[cold]
pub(crate) fn release(g: &'static G) {
    g.locks.set(0);
    g.locked.set(false);
}

/// Lets the goroutine, which has said in `m.after` what is to be done, stop running; returns when it runs again.
///
/// # Safety
///
/// The caller runs on g's stack.
#[inline]
pub(crate) unsafe fn switch(m: &'static M, g: &'static G) {
    if g.locked.get() || tls::is_unwinding() {
        wait_in_place(m, g);
    } else {
        // SAFETY: passed on to the caller.
        unsafe { coro_suspend(g) };
    }
}

#[cold]
fn wait_in_place(m: &'static M, g: &'static G) {
    g.marks.set_wired(true);
    let after = m.after.take().expect("a goroutine that stops says why");
    afterwards(m, after);
    m.stopped.take(); // M4
    WAITING.fetch_add(1, Ordering::SeqCst); // R5
    if m.p().is_some() {
        hand_off(stop_p(m), tracer::clock::mono_ns());
    }
    chaos::window();
    let p = loop {
        match m.take_assigned() {
            Some((p, None)) => break p,
            Some((_, Some(_))) => unreachable!("R3: a wired M is not woken to search"),
            None => m.parker.park(),
        }
    };
    WAITING.fetch_sub(1, Ordering::SeqCst);
    start_p(m, p);
    if !g.marks.is_system() {
        let turns = &m.must_p().turns;
        turns.store(turns.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }
    m.begin_slice();
    let guard = m.slot.acquire_if_on();
    g.state.start();
    if let Some(mut w) = guard.as_ref().and_then(|guard| guard.writer()) {
        emit::go_start(&mut w, m, g);
    }
    drop(guard);
    m.set_current(Some(g));
    g.marks.set_wired(false);
}

/// `m` has found a wired goroutine: the P goes to the goroutine's own M (R2).
#[cold]
pub(crate) fn give_back(m: &'static M, g: &'static G) {
    let its = g.m();
    if let Some(guard) = m.slot.acquire_if_on()
        && let Some(mut w) = guard.writer()
    {
        // To the M that the goroutine is locked to.
        emit::hand_off(&mut w, m.must_p(), m, Cause::LockedThread);
    }
    chaos::window();
    its.assign_for_good(stop_p(m));
    its.parker.unpark();
}
