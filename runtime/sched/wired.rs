//! Goroutines that cannot leave their thread for the moment: those that are unwinding.
//!
//! std counts panics per thread. A goroutine that parked while it unwinds (a guard's drop that has to wait) and went on
//! elsewhere would leave one thread counted as panicking for ever and another with less than nothing. So such a goroutine does not
//! switch to its M's stack: it publishes itself, gives its P away, and waits on its M's parker, with its frames in place.
//!
//! - R1: `wired` is set before the goroutine is published and cleared when it runs again.
//! - R2: it is readied and queued like any other. The M that finds it gives its P to the goroutine's M ([`give_back`]) and sleeps.
//! - R3: meanwhile the waiting M is on no list of idle Ms: nobody else gives it a P.

use std::sync::atomic::{AtomicIsize, Ordering};

use crate::prim::{chaos, tls};
use crate::sched::coro_suspend;
use crate::sched::emit;
use crate::sched::find::{start_p, stop_p};
use crate::sched::g::G;
use crate::sched::life::afterwards;
use crate::sched::m::M;
use crate::sched::sysmon::hand_off;

/// Ms that wait in place. Counted down by whoever gives such an M a P, which may be before it has counted itself.
static WAITING: AtomicIsize = AtomicIsize::new(0);

/// Ms that wait in place with their goroutine.
pub(crate) fn waiting() -> usize {
    WAITING.load(Ordering::SeqCst).max(0) as usize
}

/// Lets the goroutine, which has said in `m.after` what is to be done, stop running; returns when it runs again.
///
/// # Safety
///
/// The caller runs on g's stack.
#[inline]
pub(crate) unsafe fn switch(m: &'static M, g: &'static G) {
    if tls::is_unwinding() {
        wait_in_place(m, g);
    } else {
        // SAFETY: passed on to the caller.
        unsafe { coro_suspend(g) };
    }
}

#[cold]
fn wait_in_place(m: &'static M, g: &'static G) {
    g.wired.set(true);
    let after = m.after.take().expect("a goroutine that stops says why");
    afterwards(m, after);
    // Before the P goes: whoever is to have it may need a thread more than there are.
    WAITING.fetch_add(1, Ordering::SeqCst);
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
    start_p(m, p);
    let guard = m.slot.acquire_if_on();
    g.state.start();
    if let Some(mut w) = guard.as_ref().and_then(|guard| guard.writer()) {
        emit::go_start(&mut w, m, g);
    }
    drop(guard);
    m.set_current(Some(g));
    g.wired.set(false);
}

/// `m` has found a wired goroutine: the P goes to the goroutine's own M (R2).
#[cold]
pub(crate) fn give_back(m: &'static M, g: &'static G) {
    let its = g.m();
    WAITING.fetch_sub(1, Ordering::SeqCst);
    chaos::window();
    its.assign(stop_p(m), None);
    its.parker.unpark();
}
