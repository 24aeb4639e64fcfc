//! How many goroutines may hold a thread in declared blocking calls, and those who wait for a place.
//!
//! A call needs a thread more than there are Ps as soon as its P is taken. Without a limit such calls would use up `max_threads`, and
//! nobody would be left to run the Ps.
//!
//! - L1: a call is counted, at the latest, when its P is taken: from then on its M is one that no P can have. The mark is the M's
//!   (`counted`, under M2), and whoever clears it takes the call off the count.
//! - L2: it is taken off when its M can have a P again: it has one, or is on a list of idle Ms. Otherwise the next call would be let
//!   on before its thread is there.
//! - L3: while a place is free a call begins without a look at anything but [`COUNTING`], and is not counted before L1. So it may happen
//!   that GOMAXPROCS - 1 more than the limit hold a thread: those that had begun when the last place went. The limit allows for them.
//! - L4: while no place is free (or if there are too few threads for L3) a call is counted from its beginning, or waits in the queue.
//!   Places go to the first of the queue by being handed on, so nobody overtakes.
//! - L5: somebody is in the queue only if the count has reached the limit, which is at least one. So there is a counted call that will
//!   hand its place on when it ends.
//!
//! Rejected: one shared count of all calls, up at the begin and down at the end. Each call would pay for two exchanges of a
//! line that all processors want, and mostly for nothing: a short call ends before anybody takes its P.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracer::record::Fixed;

use crate::prim::chaos;
use crate::sched::emit::{self, At};
use crate::sched::g::{G, GList, Kind, Wait};
use crate::sched::m::M;
use crate::sched::park::Inside;
use crate::sched::queue;

/// Threads that are left for the scheduler beyond those that run the Ps.
const RESERVE: usize = 2;

/// The places.
struct Calls {
    /// Calls that are counted (L1, L4).
    counted: usize,
    limit: usize,
    /// All calls are counted from their beginning: there are too few threads for L3.
    exact: bool,
    queue: GList,
    /// How many had to wait so far.
    waited: u64,
}

static CALLS: Mutex<Calls> =
    Mutex::new(Calls { counted: 0, limit: usize::MAX, exact: false, queue: GList::new(), waited: 0 });

/// Calls that begin are to be counted (L4). Written under the lock.
static COUNTING: AtomicBool = AtomicBool::new(false);

impl Calls {
    fn is_free(&self) -> bool {
        self.counted < self.limit && self.queue.is_empty()
    }

    /// After a change.
    fn publish(&self) {
        let counting = self.exact || self.counted >= self.limit;
        if COUNTING.load(Ordering::Relaxed) != counting {
            // ORDER: Relaxed. Who reads it late is one of those that L3 allows for: it runs on a P that was not taken since.
            COUNTING.store(counting, Ordering::Relaxed);
        }
    }
}

/// So many threads and Ps there are. Those whom this lets on are readied by `m`, which is the caller's if there can be any.
pub(crate) fn fit(max_threads: usize, procs: usize, m: Option<&'static M>) {
    let mut on = GList::new();
    {
        let mut calls = CALLS.lock();
        (calls.limit, calls.exact) = limit(max_threads, procs);
        while calls.counted < calls.limit
            && let Some(g) = calls.queue.pop_front()
        {
            calls.counted += 1;
            on.push_back(g);
        }
        calls.publish();
    }
    while let Some(g) = on.pop_front() {
        let_on(m.expect("nobody waits before the runtime has started"), g);
    }
}

/// How many calls may hold a thread, and whether that is exact.
fn limit(max_threads: usize, procs: usize) -> (usize, bool) {
    let spare = max_threads.saturating_sub(procs);
    match spare.saturating_sub(procs + RESERVE) {
        // Less than half of them: then rather a lock for each call, and all of them.
        loose if loose * 2 < spare => (spare.max(1), true),
        loose => (loose, false),
    }
}

/// A call is about to begin. It waits here if there is no place for it; the goroutine may be on another M afterwards.
#[inline]
pub(crate) fn enter(inside: &Inside) {
    if COUNTING.load(Ordering::Relaxed) {
        enter_counted(inside);
    }
}

#[cold]
fn enter_counted(inside: &Inside) {
    let take = |calls: &mut Calls| {
        let free = calls.is_free();
        if free {
            calls.counted += 1;
            calls.publish();
        }
        free
    };
    let free = take(&mut CALLS.lock());
    if !free {
        let wait = Wait { reason: Fixed::Sync, kind: Kind::Thread, object: 0 };
        inside.park(wait, |_, g| {
            let mut calls = CALLS.lock();
            // A place that was given back meanwhile went to nobody.
            if take(&mut calls) {
                return false;
            }
            calls.queue.push_back(g);
            calls.waited += 1;
            true
        });
    }
    chaos::window();
    // L4: the place is this call's, whoever took it.
    inside.m().counted.set(true);
}

/// The P of `m`, which is in a declared call, is being taken (L1). The caller visits `m`.
pub(crate) fn count(m: &M) {
    if !m.counted.replace(true) {
        let mut calls = CALLS.lock();
        calls.counted += 1;
        calls.publish();
    }
}

/// `m` can have a P again: the call it was in, if there was one that counted, does not count any more (L2).
#[inline]
pub(crate) fn leave(m: &'static M) {
    if m.counted.get() {
        leave_counted(m);
    }
}

#[cold]
fn leave_counted(m: &'static M) {
    m.counted.set(false);
    chaos::window();
    let next = {
        let mut calls = CALLS.lock();
        let next = if calls.counted <= calls.limit { calls.queue.pop_front() } else { None };
        if next.is_none() {
            calls.counted -= 1;
            calls.publish();
        }
        next
    };
    if let Some(g) = next {
        let_on(m, g);
    }
}

/// Readies a goroutine that has got a place. `m` is the caller's, with or without a P.
fn let_on(m: &'static M, g: &'static G) {
    {
        // The full gate: without a P no stopped world holds this M still.
        let guard = m.slot.acquire();
        g.state.ready();
        if let Some(mut w) = guard.writer() {
            emit::go_unblock(&mut w, Some(m), g, At::nowhere());
        }
    }
    queue::submit_global(g);
}

/// For the metrics: calls that wait now, and calls that had to wait so far.
pub(crate) fn waiting() -> (usize, u64) {
    let calls = CALLS.lock();
    (calls.queue.len(), calls.waited)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits() {
        // Never none, and never more than there are threads beyond the Ps, whatever L3 adds.
        for procs in 1..=64 {
            for max in procs + 1..600 {
                let (n, exact) = limit(max, procs);
                let most = if exact { n } else { n + procs - 1 };
                assert!(n >= 1 && most <= max - procs, "max_threads {max}, GOMAXPROCS {procs}: {n}, exact: {exact}");
            }
        }
        assert_eq!(limit(3, 2), (1, true));
        assert_eq!(limit(64, 2), (58, false));
        assert_eq!(limit(512, 8), (494, false));
    }
}
