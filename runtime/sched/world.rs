//! Stopping the world: no M but the caller's is in the runtime with a P.
//!
//! - S-1: a P counts as stopped when it is idle (and no idle P is handed out while `stopping`), when its M waits in
//!   [`stop_here`], or when its M is outside and visited. So user code is never waited for; only Ms that are inside are, and
//!   those reach the scheduler or leave soon.
//! - S-2: the visits are held until the start. An M that wants to enter meanwhile waits at its border.
//! - S-3: a P that is in somebody's hands on the way to an M is waited for until that M has it.
//! - S-5: stops are numbered, and an M that waits says for which stop. Otherwise one that is on its way on, but has not run
//!   since, would count as stopped in the next.
//! - S-6: whoever has stopped the world may take the P of an M that waits in [`stop_here`]. The M MUST look whether it still has one after
//!   it has seen that the world runs, or that the stop is another. Otherwise it would speak for a P that may be somebody else's by then.
//! - S-4: Ms without a P (coming back from a call, sleeping in the poller), sysmon and foreign threads go on. What they do
//!   is guarded by the full gate, so a trace start waits for them there.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tracer::clock::mono_ns;

use crate::prim::chaos;
use crate::sched::SCHED;
use crate::sched::border::Visit;
use crate::sched::counts::Pauses;
use crate::sched::find::{poller_is_watched, timer_is_due};
use crate::sched::forked;
use crate::sched::m::M;
use crate::sched::p::P;
use crate::sched::park::Inside;
use crate::sched::wake::wake_searcher;

/// One stopper at a time.
static STOPPER: Mutex<u64> = Mutex::new(0);

/// Evidence that the world is stopped by the calling goroutine. Dropping it starts the world.
pub(crate) struct Stopped {
    visits: Vec<(&'static P, Visit<'static>)>,
    began_ns: u64,
    pauses: &'static Pauses,
    _one: parking_lot::MutexGuard<'static, u64>,
}

/// Stops the world. `None` if somebody else is at it; the caller yields and tries again (its lock must not be waited for
/// inside: the other stopper waits for the caller's M). It is counted among `pauses`.
pub(crate) fn try_stop(me: &Inside, pauses: &'static Pauses) -> Option<Stopped> {
    let mut one = STOPPER.try_lock()?;
    *one += 1;
    let began_ns = mono_ns();
    {
        // Under the lock, so that take_idle_p() either comes before or sees it.
        let _inner = SCHED.inner.lock();
        SCHED.stopping.store(*one, Ordering::SeqCst);
    }
    chaos::window();
    let my_p = me.m().must_p();
    let mut visits = Vec::with_capacity(SCHED.ps().len());
    for p in SCHED.ps() {
        if p.id == my_p.id {
            continue;
        }
        let mut turns = 0u32;
        while !stop_one(p, *one, &mut visits) {
            turns += 1;
            if turns < 100 {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(Duration::from_micros(if turns < 200 { 5 } else { 100 }));
            }
        }
    }
    pauses.stopping.record(mono_ns().saturating_sub(began_ns));
    Some(Stopped { visits, began_ns, pauses, _one: one })
}

/// Whether `p` is stopped (S-1).
fn stop_one(p: &'static P, stop: u64, visits: &mut Vec<(&'static P, Visit<'static>)>) -> bool {
    if p.stopped_in.load(Ordering::SeqCst) == stop {
        return true;
    }
    let Some(m) = p.m() else {
        let _inner = SCHED.inner.lock();
        return p.idle.load(Ordering::Relaxed);
    };
    m.preempt.store(true, Ordering::Relaxed);
    let Some(visit) = m.border.visit() else { return false };
    // The M may have another P by now, or none.
    if m.p().is_some_and(|x| std::ptr::eq(x, p)) {
        visits.push((p, visit));
        return true;
    }
    false
}

impl Stopped {
    /// The visit by which `p`'s M is held, if it is held that way, and then the caller ends it.
    pub(crate) fn visit_of(&mut self, p: &P) -> Option<Visit<'static>> {
        let i = self.visits.iter().position(|(x, _)| std::ptr::eq(*x, p))?;
        Some(self.visits.swap_remove(i).1)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        {
            let _inner = SCHED.inner.lock();
            SCHED.stopping.store(0, Ordering::SeqCst);
        }
        chaos::window();
        self.visits.clear();
        self.pauses.stopped.record(mono_ns().saturating_sub(self.began_ns));
        for p in SCHED.ps() {
            // Those who do not wait keep the token until their next park, which looks again anyway.
            if let Some(m) = p.m() {
                m.parker.unpark();
            }
        }
        // Whoever submitted meanwhile, and the M that waits for timers, found no idle P to be had.
        // And those who left the poller's seat could wake nobody for it.
        if SCHED.has_work() || timer_is_due() || !poller_is_watched() {
            wake_searcher();
        }
    }
}

/// An M with a P waits, in the scheduler, until the world runs again or its P was taken away (S-6).
pub(crate) fn stop_here(m: &'static M) {
    loop {
        let stop = SCHED.stopping.load(Ordering::SeqCst);
        if stop == 0 {
            return;
        }
        if forked::is_child() {
            forked::end();
        }
        // Each time anew: see S-6.
        let Some(p) = m.p() else { return };
        // S-5. ORDER: SeqCst; pairs with the load in stop_one(): everything this M did is visible to the stopper.
        chaos::window();
        p.stopped_in.store(stop, Ordering::SeqCst);
        if SCHED.stopping.load(Ordering::SeqCst) == stop {
            m.parker.park();
        }
    }
}
