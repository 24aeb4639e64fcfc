//! Where runnable goroutines wait, and who is woken when one more does.

use std::collections::VecDeque;
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
/// were due and that sysmon has readied: a P takes them over among its own that were due (P5). And new ones of Ps that had too many (P6).
pub(crate) struct GlobalQueue {
    /// All of them.
    len: AtomicUsize,
    due_len: AtomicUsize,
    new_len: AtomicUsize,
    list: Mutex<List>,
}

struct List {
    gs: GList,
    due: GList,
    new: NewOnes,
    counts: GlobalCounts,
}

/// Goroutines that have not run yet, in the batches in which they came: the last batch is taken first (P6).
struct NewOnes {
    batches: VecDeque<GList>,
    len: usize,
}

/// So many batches there are, of 131,072 goroutines; what comes then joins the last one, behind those that are there, so that no memory is asked for
/// under the lock.
const BATCHES: usize = 1024;

impl NewOnes {
    const fn new() -> NewOnes {
        NewOnes { batches: VecDeque::new(), len: 0 }
    }

    fn push(&mut self, batch: &mut GList) {
        self.len += batch.len();
        if self.batches.len() < self.batches.capacity() {
            self.batches.push_back(std::mem::replace(batch, GList::new()));
        } else if let Some(last) = self.batches.back_mut() {
            last.append(batch);
        }
    }

    /// The one that has waited longest.
    fn pop_oldest(&mut self) -> Option<&'static G> {
        let g = self.batches.front_mut()?.pop_front();
        if self.batches.front().is_some_and(GList::is_empty) {
            self.batches.pop_front();
        }
        self.len -= usize::from(g.is_some());
        g
    }

    /// The first of the newest batch; `others` get the next ones of it, no more than there are in one that has joined no other.
    fn pop_newest(&mut self, mut others: impl FnMut(&'static G)) -> Option<&'static G> {
        let batch = self.batches.back_mut()?;
        let first = batch.pop_front();
        let mut taken = usize::from(first.is_some());
        while taken < BATCH
            && let Some(g) = batch.pop_front()
        {
            others(g);
            taken += 1;
        }
        if batch.is_empty() {
            self.batches.pop_back();
        }
        self.len -= taken;
        first
    }
}

impl GlobalQueue {
    pub(crate) const fn new() -> GlobalQueue {
        GlobalQueue {
            len: AtomicUsize::new(0),
            due_len: AtomicUsize::new(0),
            new_len: AtomicUsize::new(0),
            list: Mutex::new(List {
                gs: GList::new(),
                due: GList::new(),
                new: NewOnes::new(),
                counts: GlobalCounts::new(),
            }),
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
        self.len.store(list.gs.len() + list.due.len() + list.new.len, Ordering::Relaxed);
        self.due_len.store(list.due.len(), Ordering::Relaxed);
        self.new_len.store(list.new.len, Ordering::Relaxed);
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

    /// Adds new ones of a P that had too many, and leaves `batch` empty (P6).
    pub(crate) fn push_new(&self, batch: &mut GList) {
        let mut room = VecDeque::new();
        let mut list = self.list.lock();
        if list.new.batches.capacity() == 0 {
            drop(list);
            room.reserve_exact(BATCHES);
            list = self.list.lock();
            if list.new.batches.capacity() == 0 {
                std::mem::swap(&mut list.new.batches, &mut room);
            }
        }
        list.new.push(batch);
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

    /// Takes one: of the new ones if there is no other, and of those that were due if there is none of those.
    pub(crate) fn pop(&self) -> Option<&'static G> {
        if self.len() == 0 {
            return None;
        }
        let mut list = self.list.lock();
        let list = &mut *list;
        let g = list.gs.pop_front().or_else(|| list.new.pop_oldest()).or_else(|| list.due.pop_front());
        self.publish(list);
        g
    }

    /// Takes some for one of `procs` Ps: one to run, the rest into `p`'s queues. New ones, which would be in one of those had there been room; or else a
    /// fair share of the others.
    pub(crate) fn pop_batch(&self, p: &P, procs: usize) -> Option<&'static G> {
        if self.len() == 0 {
            return None;
        }
        self.take_due(p, procs);
        let mut list = self.list.lock();
        let first = list.new.pop_newest(|g| p.take_over_new(g)).or_else(|| {
            let share = share(&list.gs, procs);
            let first = list.gs.pop_front();
            for _ in 1..share {
                let Some(g) = list.gs.pop_front() else { break };
                p.take_over(g);
            }
            first
        });
        self.publish(&list);
        first.or_else(|| p.take_due())
    }

    /// New ones that wait for any P, roughly.
    #[inline]
    pub(crate) fn new_len(&self) -> usize {
        self.new_len.load(Ordering::Relaxed)
    }

    /// Takes the last batch of new ones: one to run, the rest into `p`'s queue. The caller is the M that holds it (P6).
    pub(crate) fn take_newest(&self, p: &P) -> Option<&'static G> {
        if self.new_len() == 0 {
            return None;
        }
        if let Some(m) = p.m() {
            m.stopped.take(); // M4
        }
        let first = {
            let mut list = self.list.lock();
            let first = list.new.pop_newest(|g| p.take_over_new(g));
            self.publish(&list);
            first
        };
        wake_for_many();
        first
    }

    /// Takes the one that has waited longest of the new ones (P6).
    #[inline]
    pub(crate) fn pop_oldest(&self) -> Option<&'static G> {
        if self.new_len() == 0 {
            return None;
        }
        let mut list = self.list.lock();
        let g = list.new.pop_oldest();
        self.publish(&list);
        g
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
    (gs.len() / procs + 1).min(BATCH)
}

/// How many change queues at once, at most.
pub(crate) const BATCH: usize = 128;

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

/// `p` has too many new ones (P6). The caller holds it (P2).
#[cold]
#[inline(never)]
pub(crate) fn give_up_new(p: &P) {
    if let Some(m) = p.m() {
        m.stopped.take(); // M4
    }
    let mut half = p.take_half_of_new();
    if !half.is_empty() {
        SCHED.global.push_new(&mut half);
        wake_for_many();
    }
}

/// Many have gone from one queue to another: they were seen in the one, are seen in the other, and were in neither for a moment.
fn wake_for_many() {
    if SCHED.gomaxprocs() > 1 {
        wake_searcher();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::g::tests::leaked;

    /// P6: the last batch first, and in it the first; the oldest of all when that is asked for; more batches than there is room for are no less.
    #[test]
    fn new_ones_come_back() {
        let (mut new, mut id) = (NewOnes::new(), 0);
        let mut batch = |len: usize| {
            let mut batch = GList::new();
            (0..len).for_each(|_| {
                id += 1;
                batch.push_back(leaked(id));
            });
            batch
        };
        new.batches.reserve_exact(4);
        let room = new.batches.capacity();
        (0..room).for_each(|_| new.push(&mut batch(3)));
        new.push(&mut batch(BATCH));
        assert_eq!((new.len, new.batches.len(), new.batches.capacity()), (3 * room + BATCH, room, room));
        let newest = |new: &mut NewOnes| {
            let mut all = Vec::new();
            let first = new.pop_newest(|g| all.push(g.id()));
            all.splice(0..0, first.map(G::id));
            all
        };
        // Two batches that have become one.
        let from = 3 * (room as u64 - 1);
        let most = BATCH as u64;
        assert_eq!(newest(&mut new), (from + 1..=from + most).collect::<Vec<_>>());
        assert_eq!(new.pop_oldest().map(G::id), Some(1));
        assert_eq!(newest(&mut new), (from + most + 1..=from + most + 3).collect::<Vec<_>>());
        assert_eq!(newest(&mut new), [from - 2, from - 1, from]);
        let rest = std::iter::from_fn(|| new.pop_oldest().map(G::id)).collect::<Vec<_>>();
        assert_eq!(rest, (2..=from - 3).collect::<Vec<_>>());
        assert_eq!((new.len, new.batches.len()), (0, 0));
        assert!(newest(&mut new).is_empty() && new.pop_oldest().is_none());
    }
}
