//! Where runnable goroutines wait, and who is woken when one more does.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::prim::chaos;
use crate::sched::SCHED;
use crate::sched::counts::GlobalCounts;
use crate::sched::g::{G, GList};
use crate::sched::m::M;
use crate::sched::p::P;
use crate::sched::park::Turn;
use crate::sched::state::Status;
use crate::sched::wake::{wake_searcher, wake_searcher_for_one};

/// The global queue: what was preempted, what comes from threads without a P, what lost its P. And, apart from those, goroutines that
/// were due and that sysmon has readied: a P takes them over among its own that were due (P5).
pub(crate) struct GlobalQueue {
    /// All of them.
    len: AtomicUsize,
    due_len: AtomicUsize,
    list: Mutex<List>,
}

struct List {
    gs: GList,
    due: GList,
    counts: GlobalCounts,
}

impl GlobalQueue {
    pub(crate) const fn new() -> GlobalQueue {
        GlobalQueue {
            len: AtomicUsize::new(0),
            due_len: AtomicUsize::new(0),
            list: Mutex::new(List { gs: GList::new(), due: GList::new(), counts: GlobalCounts::new() }),
        }
    }

    /// Goroutines in it, roughly.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed)
    }

    pub(crate) fn push(&self, g: &'static G) {
        let mut list = self.list.lock();
        if g.state.status() == Status::Idle && !g.marks.is_system() {
            // A thread's, not announced yet.
            list.counts.created += 1;
        }
        list.counts.runnable(g);
        list.gs.push_back(g);
        self.publish(&list);
    }

    /// Adds one that was due.
    fn push_due(&self, g: &'static G) {
        let mut list = self.list.lock();
        list.counts.runnable(g);
        list.due.push_back(g);
        self.publish(&list);
    }

    fn publish(&self, list: &List) {
        self.len.store(list.gs.len() + list.due.len(), Ordering::Relaxed);
        self.due_len.store(list.due.len(), Ordering::Relaxed);
    }

    /// Goroutines that threads made.
    pub(crate) fn created(&self) -> u64 {
        self.list.lock().counts.created
    }

    /// Appends all of `gs`.
    pub(crate) fn push_all(&self, gs: &mut GList) {
        let mut list = self.list.lock();
        list.gs.append(gs);
        self.publish(&list);
    }

    /// Appends all of `gs`, which have just become runnable, to those that were due.
    pub(crate) fn push_all_due(&self, gs: &mut GList) {
        let mut list = self.list.lock();
        while let Some(g) = gs.pop_front() {
            list.counts.runnable(g);
            list.due.push_back(g);
        }
        self.publish(&list);
    }

    /// Takes one; one that was due if there is no other.
    pub(crate) fn pop(&self) -> Option<&'static G> {
        if self.len() == 0 {
            return None;
        }
        let mut list = self.list.lock();
        let g = list.gs.pop_front().or_else(|| list.due.pop_front());
        self.publish(&list);
        g
    }

    /// Takes a fair share for one of `procs` Ps: one to run, the rest into `p`'s queue.
    pub(crate) fn pop_batch(&self, p: &P, procs: usize) -> Option<&'static G> {
        if self.len() == 0 {
            return None;
        }
        self.take_due(p, procs);
        let mut list = self.list.lock();
        let share = share(&list.gs, procs);
        let first = list.gs.pop_front();
        for _ in 1..share {
            let Some(g) = list.gs.pop_front() else { break };
            p.take_over(g);
        }
        self.publish(&list);
        first.or_else(|| p.take_due())
    }

    /// Takes a fair share for one of `procs` Ps of those that were due, into `p`'s.
    #[inline]
    pub(crate) fn take_due(&self, p: &P, procs: usize) {
        if self.due_len.load(Ordering::Relaxed) != 0 {
            self.take_due_slow(p, procs);
        }
    }

    #[cold]
    fn take_due_slow(&self, p: &P, procs: usize) {
        let mut list = self.list.lock();
        for _ in 0..share(&list.due, procs) {
            let Some(g) = list.due.pop_front() else { break };
            p.take_over_due(g);
        }
        self.publish(&list);
    }
}

/// A fair share of `gs` for one of `procs` Ps.
fn share(gs: &GList, procs: usize) -> usize {
    (gs.len() / procs + 1).min(128)
}

/// A goroutine became runnable, for `turn` on `m`'s P.
#[inline]
pub(crate) fn submit(m: &'static M, g: &'static G, turn: Turn) {
    match turn {
        Turn::Next => submit_next(m, g),
        Turn::Last => submit_last(m, g),
    }
}

/// A goroutine became runnable because of the one that runs on `m`: it is the next there.
#[inline]
pub(crate) fn submit_next(m: &'static M, g: &'static G) {
    match chaos::pick(8) {
        Some(0) => return submit_global(g),
        Some(1 | 2) => return submit_last(m, g),
        _ => {}
    }
    let p = m.must_p();
    let displaced = p.put_next(g);
    // The caller's M has a P; if it is the only one there is, none is idle.
    if SCHED.gomaxprocs() > 1 {
        wake_for_next(displaced || p.has_queue());
    }
}

/// Somebody is the next on a P; whether there is `more` to do there.
#[inline(never)]
fn wake_for_next(more: bool) {
    if more {
        wake_searcher();
    } else {
        wake_searcher_for_one();
    }
}

/// A goroutine became runnable and queues up behind the others of `m`'s P.
pub(crate) fn submit_last(m: &'static M, g: &'static G) {
    m.must_p().put_back(g);
    if SCHED.gomaxprocs() > 1 {
        wake_searcher();
    }
}

/// A goroutine became runnable and belongs to no P.
pub(crate) fn submit_global(g: &'static G) {
    SCHED.global.push(g);
    chaos::window();
    wake_searcher();
}

/// A goroutine that was due became runnable, and belongs to no P.
pub(crate) fn submit_global_due(g: &'static G) {
    SCHED.global.push_due(g);
    chaos::window();
    wake_searcher();
}
