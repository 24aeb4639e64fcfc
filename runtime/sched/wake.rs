//! Waking Ms: for a submission, for a P that was handed over.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::MutexGuard;

use crate::prim::chaos;
use crate::prim::say::say;
use crate::sched::find::{poller_is_watched, timer_is_due};
use crate::sched::life::world_runs;
use crate::sched::m::M;
use crate::sched::p::HeldP;
use crate::sched::searchers::Searching;
use crate::sched::{Inner, SCHED, wired};

/// After a submission: wakes one searcher if a P is idle and nobody searches (I1, I3).
#[inline]
pub(crate) fn wake_searcher() {
    if let Some(s) = SCHED.searchers.claim() {
        wake_claimed(s);
    }
}

/// Until when lone goroutines in a next slot are left to their M, in clock ticks.
static QUIET_UNTIL: AtomicU64 = AtomicU64::new(0);
/// How long the last quiet time was, in clock ticks.
static QUIET: AtomicU64 = AtomicU64::new(0);

/// After a submission that is all its M has to do next. Mostly the M's goroutine is about to wait, and the new one follows it
/// there; then a searcher costs a wake-up (8 us here) and finds nothing. So when searches were in vain, lone goroutines
/// are left alone for a while, at most a millisecond; one success ends that.
#[inline]
pub(crate) fn wake_searcher_for_one() {
    if SCHED.searchers.idle_ps() != 0 && tracer::clock::ticks() >= QUIET_UNTIL.load(Ordering::Relaxed) {
        wake_searcher();
    }
}

/// A search ended; says whether it found anything.
pub(crate) fn learn(found: bool) {
    if found {
        if QUIET.load(Ordering::Relaxed) != 0 {
            QUIET.store(0, Ordering::Relaxed);
            QUIET_UNTIL.store(0, Ordering::Relaxed);
        }
        return;
    }
    let per_ms = tracer::clock::ticks_per_ms();
    let quiet = (QUIET.load(Ordering::Relaxed) * 2).clamp(per_ms / 20, per_ms);
    QUIET.store(quiet, Ordering::Relaxed);
    QUIET_UNTIL.store(tracer::clock::ticks() + quiet, Ordering::Relaxed);
}

/// Wakes an M for a claim, with an idle P.
#[cold]
pub(crate) fn wake_claimed(mut s: Searching) {
    loop {
        if let Some(p) = SCHED.take_idle_p() {
            return start_m(p, Some(s));
        }
        SCHED.searchers.give_up(s);
        // While the claim stood, others woke nobody because of it: look for what they submitted, as a searcher would (I2).
        let is_needed = || SCHED.has_work() || timer_is_due() || !poller_is_watched();
        if !world_runs() || SCHED.searchers.idle_ps() == 0 || !is_needed() {
            return;
        }
        match SCHED.searchers.claim() {
            Some(again) => s = again,
            None => return,
        }
    }
}

/// Lets some M run with `p`: a sleeping one, the one in the poller, or a new one.
pub(crate) fn start_m(p: HeldP, searching: Option<Searching>) {
    chaos::window();
    let mut inner = SCHED.inner.lock();
    inner.wake_ups += 1;
    if let Some(m) = inner.idle_ms.pop().or_else(|| inner.poller.heir.take()) {
        m.assign(p, searching);
        drop(inner);
        chaos::window();
        m.parker.unpark();
        return;
    }
    if let Some(m) = inner.poller.sleeper.take() {
        m.assign(p, searching);
        drop(inner);
        chaos::window();
        SCHED.waker().wake();
        return;
    }
    // Ms that wait in place with their goroutine do not count: they need somebody else to go on (R2).
    if inner.ms >= SCHED.max_threads() + wired::waiting() {
        return too_many(inner, p, searching);
    }
    inner.ms += 1;
    let index = inner.ms;
    let spare = inner.spare.take();
    drop(inner);
    let m = spare.unwrap_or_else(|| M::new(index));
    m.assign(p, searching);
    let spawned =
        std::thread::Builder::new().name(format!("gort-m{index}")).spawn(move || crate::sched::run::m_main(m));
    if spawned.is_err() {
        let assigned = m.take_unborn();
        let mut inner = SCHED.inner.lock();
        inner.ms -= 1;
        inner.spare = Some(m);
        match assigned {
            Some((p, searching)) => too_many(inner, p, searching),
            // It was called back (M3), and who did that has seen to it.
            None => {
                inner.wake_ups -= 1;
                inner.refused += 1;
            }
        }
    }
}

/// No thread for the P, which goes back to the idle list. Its work is found by the Ms there are (they look before they sleep, under the lock
/// that put the P on the list), or by sysmon.
#[cold]
fn too_many(mut inner: MutexGuard<'_, Inner>, p: HeldP, searching: Option<Searching>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    let ms = inner.ms;
    inner.wake_ups -= 1;
    inner.refused += 1;
    inner.put_idle_p(p);
    drop(inner);
    if let Some(s) = searching {
        SCHED.searchers.give_up(s);
    }
    // Last, and without a lock: whoever holds stderr may be waiting for the scheduler.
    if !SAID.swap(true, Ordering::Relaxed) {
        let max = SCHED.max_threads();
        say(format_args!(
            "gort: no more threads: {ms} exist and max_threads is {max}; goroutines wait until one comes back"
        ));
    }
}
