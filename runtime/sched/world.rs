//! Stopping the world: no M but the caller's is in the runtime with a P.
//!
//! - S-1: a P counts as stopped when it is idle (and no idle P is handed out while `stopping`), when its M waits in
//!   [`stop_here`] ([`standing`](crate::sched::standing), S-5), or when its M is outside and visited. So user code is never waited for;
//!   only Ms that are inside are, and those reach the scheduler or leave soon.
//! - S-2: the visits are held until the start. An M that wants to enter meanwhile waits at its border.
//! - S-3: a P that is in somebody's hands on the way to an M is waited for until it was left for that M, and then counts as stopped
//!   ([`post`](crate::sched::post)).
//! - S-6: whoever has stopped the world may take the P of an M that waits in [`stop_here`]. The M MUST look whether it still has one after
//!   it has seen that the world runs. Otherwise it would speak for a P that may be somebody else's by then.
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
use crate::sched::emit;
use crate::sched::find::{poller_is_watched, timer_is_due};
use crate::sched::forked;
use crate::sched::m::M;
use crate::sched::p::{HeldP, P};
use crate::sched::park::Inside;
use crate::sched::wake::wake_searcher;

/// One stopper at a time.
static STOPPER: Mutex<()> = Mutex::new(());

/// Evidence that the world is stopped by the calling goroutine. Dropping it starts the world.
pub(crate) struct Stopped {
    visits: Vec<(&'static P, Visit<'static>)>,
    /// Ps that were left for an M that has not taken them (S-3).
    left: Vec<(&'static P, &'static M)>,
    began_ns: u64,
    pauses: &'static Pauses,
    _one: parking_lot::MutexGuard<'static, ()>,
}

/// For how long a stopper looks again and again at an M that is inside: the shortest sleep takes as long here, and most Ms are out by then,
/// those too that are waking somebody.
const SPIN_NS: u64 = 20_000;

/// From when on the stopper sleeps longer between two looks: the system has taken the CPU from that M, or the M waits for memory.
const SLEEP_LONGER_NS: u64 = 10_000_000;

const SLEEP: Duration = Duration::from_micros(5);
const SLEEP_LONGER: Duration = Duration::from_micros(100);

/// Stops the world. `None` if somebody else is at it; the caller yields and tries again (its lock must not be waited for
/// inside: the other stopper waits for the caller's M). It is counted among `pauses`.
pub(crate) fn try_stop(me: &Inside, pauses: &'static Pauses) -> Option<Stopped> {
    let one = STOPPER.try_lock()?;
    let began_ns = mono_ns();
    {
        // Under the lock, so that take_idle_p() either comes before or sees it.
        let _inner = SCHED.inner.lock();
        SCHED.stopping.store(true, Ordering::SeqCst);
    }
    chaos::window();
    let my_p = me.m().must_p();
    let mut stopped = Stopped { visits: Vec::new(), left: Vec::new(), began_ns, pauses, _one: one };
    for p in SCHED.ps() {
        if p.id == my_p.id {
            continue;
        }
        let since_ns = mono_ns();
        while !stopped.stop_one(p) {
            let waited_ns = mono_ns().saturating_sub(since_ns);
            if waited_ns < SPIN_NS {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(if waited_ns < SLEEP_LONGER_NS { SLEEP } else { SLEEP_LONGER });
            }
        }
    }
    pauses.stopping.record(mono_ns().saturating_sub(began_ns));
    Some(stopped)
}

impl Stopped {
    /// Whether `p` is stopped (S-1).
    fn stop_one(&mut self, p: &'static P) -> bool {
        let Some(m) = p.m() else {
            if let Some(m) = p.sent_to()
                && m.post.has(p)
            {
                self.left.push((p, m));
                return true;
            }
            // ORDER: Acquire; pairs with the Release in put_idle_p(). Nobody takes one off the list any more: `stopping` was set under its
            // lock.
            return p.idle.load(Ordering::Acquire);
        };
        if m.standing.waits() && m.has_p(p) {
            return true;
        }
        m.preempt.store(true, Ordering::Relaxed);
        let Some(visit) = m.border.visit() else { return false };
        // The M may have another P by now, or none.
        if m.has_p(p) {
            self.visits.push((p, visit));
            return true;
        }
        false
    }

    /// Says in the trace of `m`, the caller's, that the stop is over, and starts the world. Answers how long it was stopped, in ns. In this order: the
    /// start wakes threads, and the first of them may well get this one's CPU.
    pub(crate) fn start(self, m: &M) -> u64 {
        if let Some(mut w) = m.slot.acquire().writer() {
            emit::stw_end(&mut w, m);
        }
        mono_ns().saturating_sub(self.began_ns)
    }

    /// The visit by which `p`'s M is held, if it is held that way, and then the caller ends it.
    pub(crate) fn visit_of(&mut self, p: &P) -> Option<Visit<'static>> {
        let i = self.visits.iter().position(|(x, _)| std::ptr::eq(*x, p))?;
        Some(self.visits.swap_remove(i).1)
    }

    /// Calls `p` back from the M that it was left for, if that is where it is. The M goes back to sleep.
    pub(crate) fn call_back(&mut self, p: &P) -> Option<HeldP> {
        let i = self.left.iter().position(|(x, _)| std::ptr::eq(*x, p))?;
        let (p, m) = self.left.swap_remove(i);
        let (held, searching) = loop {
            if let Some(called_back) = m.call_back(p) {
                break called_back;
            }
            // A thread that could not be had has given it back.
            if let Some(held) = SCHED.take_this_idle_p(p) {
                break (held, None);
            }
            std::hint::spin_loop(); // The M looks at it (S-3).
        };
        if let Some(searching) = searching {
            // I2: whoever starts the world looks once more.
            SCHED.searchers.give_up(searching);
        }
        // Nobody knows any more that it may be waiting for the start (S-3).
        m.parker.unpark();
        Some(held)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        {
            let _inner = SCHED.inner.lock();
            SCHED.stopping.store(false, Ordering::SeqCst);
        }
        chaos::window();
        self.pauses.stopped.record(mono_ns().saturating_sub(self.began_ns));
        self.visits.clear();
        for p in SCHED.ps() {
            // Those who do not wait keep the token until their next park, which looks again anyway.
            if let Some(m) = p.m() {
                m.parker.unpark();
            }
        }
        for (_, m) in self.left.drain(..) {
            m.parker.unpark();
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
    // Each time anew: see S-6.
    m.standing.wait_while(|| SCHED.stopping.load(Ordering::SeqCst) && m.p().is_some(), || sleep(m));
}

/// An M that was woken with a P waits until the world runs, or the P was called back: then it is nobody whom a stopper knows of, and may not
/// wait for one.
pub(crate) fn wait_for_start(m: &M) {
    while SCHED.stopping.load(Ordering::SeqCst) && !m.post.is_empty() {
        sleep(m);
    }
}

fn sleep(m: &M) {
    forked::end_child();
    m.parker.park();
}
