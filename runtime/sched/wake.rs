//! Waking Ms: for a submission, for a P that was handed over.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::sched::SCHED;
use crate::sched::m::M;
use crate::sched::p::HeldP;
use crate::sched::searchers::Searching;

/// After a submission: wakes one searcher if a P is idle and nobody searches (I1, I3).
#[inline]
pub(crate) fn wake_searcher() {
    if let Some(s) = SCHED.searchers.claim() {
        wake_claimed(s);
    }
}

/// Wakes an M for a claim, with an idle P.
#[cold]
pub(crate) fn wake_claimed(s: Searching) {
    match SCHED.take_idle_p() {
        Some(p) => start_m(p, Some(s)),
        None => SCHED.searchers.withdraw(s),
    }
}

/// Ms that could not be started because `max_threads` exist.
pub(crate) static STARVED: AtomicUsize = AtomicUsize::new(0);

/// Lets some M run with `p`: a sleeping one, the one in the poller, or a new one.
pub(crate) fn start_m(p: HeldP, searching: Option<Searching>) {
    let mut inner = SCHED.inner.lock();
    if let Some(m) = inner.idle_ms.pop() {
        drop(inner);
        m.assign(p, searching);
        m.parker.unpark();
        return;
    }
    if let Some(m) = inner.poller_m.take() {
        m.assign(p, searching);
        drop(inner);
        SCHED.waker().wake();
        return;
    }
    if inner.ms >= SCHED.max_threads() {
        drop(inner);
        return too_many(p, searching);
    }
    inner.ms += 1;
    let index = inner.ms;
    drop(inner);
    let m = M::new(index, p, searching);
    let spawned = std::thread::Builder::new()
        .name(format!("gort-m{index}"))
        .spawn(move || crate::sched::run::m_main(m));
    if spawned.is_err() {
        SCHED.inner.lock().ms -= 1;
        let (p, searching) = m.take_assigned().expect("an M that did not start has its P");
        too_many(p, searching);
    }
}

/// No thread for the P: it stays idle. Its work is found by the Ms there are, or by sysmon's next look.
#[cold]
fn too_many(p: HeldP, searching: Option<Searching>) {
    static SAID: AtomicBool = AtomicBool::new(false);
    STARVED.fetch_add(1, Ordering::Relaxed);
    if !SAID.swap(true, Ordering::Relaxed) {
        eprintln!(
            "gort: no more threads: {} exist and max_threads is {}; goroutines wait until one comes back",
            SCHED.inner.lock().ms,
            SCHED.max_threads()
        );
    }
    SCHED.put_idle_p(p);
    if let Some(s) = searching {
        SCHED.searchers.give_up(s);
    }
}
