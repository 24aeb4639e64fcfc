//! Changing GOMAXPROCS, in a stopped world.
//!
//! - Z1: the Ps that go are the last ones. Each is taken from where it is: off the idle list, back from an M that was woken with it and has not
//!   taken it, from an M that waits in the scheduler
//!   ([`stop_here`](crate::sched::world::stop_here)), or from one that is held by a visit; that one's goroutine goes on without a P, as
//!   one whose P was retaken.
//! - Z2: in the trace a P that goes is idle from then on: with ProcStop in the stream of the M that waited, or as the victim of
//!   ProcSteal. Readers know no end of a P, so it stays idle for ever, or until it comes back.
//! - Z3: if the caller's own P goes, the caller takes one that stays first, and looks in the trace as if it had given up a turn.
//! - Z4: what a P has goes to others before it counts as away (X3), so that nothing runnable is ever out of sight.

use tracer::record::Fixed;
use tracer::wire::ext::Cause;

use crate::sched::emit::{self, At};
use crate::sched::g::Place;
use crate::sched::m::M;
use crate::sched::p::{HeldP, P};
use crate::sched::park::Inside;
use crate::sched::state::Status;
use crate::sched::world::Stopped;
use crate::sched::{SCHED, calls, outside, watchdog};

/// Makes GOMAXPROCS `n`.
pub(crate) fn resize(stopped: &mut Stopped, me: &Inside, n: usize) {
    let m = me.m();
    if m.must_p().id as usize >= n {
        let (old, new) = (m.must_p(), take_one_that_stays(stopped, m, n));
        change_p(me, new).into_inner();
        old.give_away();
    }
    for p in SCHED.ps().iter().skip(n) {
        // The caller's own has gone already.
        if let Some(held) = take(stopped, m, p) {
            held.into_inner().give_away();
        }
    }
    SCHED.set_active_ps(n);
    calls::fit(SCHED.max_threads(), n, Some(m));
}

/// Any of the first `n`, with as little disturbance as possible.
fn take_one_that_stays(stopped: &mut Stopped, me: &'static M, n: usize) -> HeldP {
    let stay = &SCHED.ps()[..n];
    let waits = |p: &&P| p.m().is_some_and(|m| m.current().is_none());
    if let Some(p) = stay.iter().find_map(|p| stopped.call_back(p).or_else(|| SCHED.take_this_idle_p(p))) {
        return p;
    }
    let p = stay.iter().find(waits).unwrap_or(&stay[0]);
    take(stopped, me, p).expect("in a stopped world each P but the caller's can be taken")
}

/// Takes `p` from where it is (Z1, Z2). `None` if it is nowhere: with nobody, and not idle.
fn take(stopped: &mut Stopped, me: &'static M, p: &'static P) -> Option<HeldP> {
    let Some(m) = p.m() else {
        return stopped.call_back(p).or_else(|| SCHED.take_this_idle_p(p));
    };
    if let Some(visit) = stopped.visit_of(p) {
        if m.current().is_some_and(|g| g.state.status() != Status::Syscall) {
            watchdog::lost_p_to_others(m);
        }
        return Some(outside::take_p(&me.slot, m, visit, Some(Cause::Gomaxprocs)));
    }
    {
        let guard = me.slot.acquire();
        // SAFETY: m waits in stop_here(), where it records nothing, until the world runs.
        if let Some(mut w) = unsafe { guard.writer_for(&m.slot) } {
            emit::proc_stop(&mut w, m);
        }
    }
    let held = m.clear_p();
    // It has no part in this any more (S-6).
    m.parker.unpark();
    Some(held)
}

/// Lets the caller go on with `new`; gives what it had (Z3).
fn change_p(me: &Inside, new: HeldP) -> HeldP {
    let (g, m) = (me.g(), me.m());
    let place = Place::here();
    g.stand_at(&place);
    let guard = m.slot.acquire_if_on();
    let mut writer = guard.as_ref().and_then(|guard| guard.writer());
    if let Some(w) = &mut writer {
        emit::go_stop(w, m, Fixed::Yield, At::on(g, place.regs));
    }
    g.state.stop();
    m.set_current(None);
    if let Some(w) = &mut writer {
        emit::proc_stop(w, m);
    }
    let old = m.clear_p();
    if let Some(w) = &mut writer {
        emit::proc_start(w, new.p());
    }
    m.set_p(new);
    m.begin_slice();
    if let Some(w) = &mut writer {
        emit::go_start(w, m, g);
    }
    g.state.start();
    m.set_current(Some(g));
    old
}
