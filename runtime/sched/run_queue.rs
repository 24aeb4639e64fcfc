//! One of a P's queues: first in, first out; its owner puts and takes, thieves take.
//!
//! - RQ1: the owner is whoever holds the P (P2). Thieves see `shared` alone, which never holds more than [`SHARED_MAX`]: its memory,
//!   which grows with it and is the allocator's, stays small. Those that come after so many wait in `rest`, a list through the
//!   goroutines themselves.
//! - RQ2: while there is a rest, whoever comes goes to its end; and whenever the owner puts or takes and half of `shared` is used up,
//!   it fills that up. So the order holds, and thieves find something.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use crossbeam_deque::{Steal, Stealer, Worker};

use crate::sched::g::{G, GList};

/// How many thieves can see.
const SHARED_MAX: usize = 1 << 14;

pub(crate) struct RunQueue {
    shared: Worker<&'static G>,
    stealer: Stealer<&'static G>,
    rest: UnsafeCell<GList>,
    rest_len: AtomicUsize,
}

// SAFETY: the worker's half and `rest` are touched by the owner alone (RQ1).
unsafe impl Sync for RunQueue {}
// SAFETY: as above; nothing is tied to the thread that made it.
unsafe impl Send for RunQueue {}

impl RunQueue {
    pub(crate) fn new() -> RunQueue {
        let shared = Worker::new_fifo();
        let stealer = shared.stealer();
        RunQueue { shared, stealer, rest: UnsafeCell::new(GList::new()), rest_len: AtomicUsize::new(0) }
    }

    #[inline]
    fn has_rest(&self) -> bool {
        self.rest_len.load(Ordering::Relaxed) != 0
    }

    /// Puts `g` at the end. By the owner.
    #[inline]
    pub(crate) fn push(&self, g: &'static G) {
        if self.shared.len() < SHARED_MAX && !self.has_rest() {
            self.shared.push(g);
        } else {
            self.push_rest(g);
        }
    }

    #[cold]
    fn push_rest(&self, g: &'static G) {
        // SAFETY: RQ1; no other reference to the cell lives.
        let rest = unsafe { &mut *self.rest.get() };
        rest.push_back(g);
        self.rest_len.store(rest.len(), Ordering::Relaxed);
        self.fill_up();
    }

    /// RQ2
    fn fill_up(&self) {
        if self.shared.len() > SHARED_MAX / 2 {
            return;
        }
        // SAFETY: RQ1; no other reference to the cell lives.
        let rest = unsafe { &mut *self.rest.get() };
        for _ in 0..SHARED_MAX / 2 {
            let Some(g) = rest.pop_front() else { break };
            self.shared.push(g);
        }
        self.rest_len.store(rest.len(), Ordering::Relaxed);
    }

    /// Takes the first. By the owner.
    #[inline]
    pub(crate) fn pop(&self) -> Option<&'static G> {
        if self.has_rest() { self.pop_and_fill_up() } else { self.shared.pop() }
    }

    fn pop_and_fill_up(&self) -> Option<&'static G> {
        loop {
            self.fill_up();
            match self.shared.pop() {
                // Thieves were faster.
                None if self.has_rest() => {}
                found => return found,
            }
        }
    }

    /// How many thieves could see, for the owner, who needs no fence to know.
    #[inline]
    pub(crate) fn shared_len(&self) -> usize {
        self.shared.len()
    }

    /// How many there are, for the owner.
    #[inline]
    pub(crate) fn len_to_owner(&self) -> usize {
        self.shared.len() + self.rest_len.load(Ordering::Relaxed)
    }

    /// Whether there is nothing, for the owner.
    #[inline]
    pub(crate) fn is_empty_to_owner(&self) -> bool {
        self.shared.is_empty() && !self.has_rest()
    }

    /// Whether there is nothing. Anybody may ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.stealer.is_empty() && !self.has_rest()
    }

    /// How many there are, roughly. Anybody may ask.
    pub(crate) fn len(&self) -> usize {
        self.stealer.len() + self.rest_len.load(Ordering::Relaxed)
    }

    /// Steals half of `victim`'s, or some; gives one to run and how many there are here now. By the owner of this one.
    pub(crate) fn steal_from(&self, victim: &RunQueue) -> Option<(&'static G, usize)> {
        loop {
            match victim.stealer.steal_batch_and_pop(&self.shared) {
                Steal::Success(g) => return Some((g, self.shared.len())),
                Steal::Empty => return None,
                Steal::Retry => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::rng::Rng;
    use crate::sched::g::tests::leaked as g;
    use std::collections::VecDeque;

    /// RQ1, RQ2: the order of a list, whatever the length, with thieves that take from the front.
    #[test]
    fn order_of_many() {
        let (queue, thief) = (RunQueue::new(), RunQueue::new());
        let (mut model, mut rng, mut id) = (VecDeque::new(), Rng::new(5), 0);
        let most = if cfg!(miri) { 100 } else { 3 * SHARED_MAX };
        for aim in [most, 0, most, SHARED_MAX / 2, SHARED_MAX + 5, 0] {
            while model.len() != aim {
                let grow = model.len() < aim;
                if grow || rng.below(8) == 0 {
                    id += 1;
                    queue.push(g(id));
                    model.push_back(id);
                }
                if !grow || rng.below(8) == 0 {
                    assert_eq!(queue.pop().map(G::id), model.pop_front());
                }
                if rng.below(500) == 0
                    && let Some((first, _)) = thief.steal_from(&queue)
                {
                    assert_eq!(Some(first.id()), model.pop_front());
                    while let Some(next) = thief.pop() {
                        assert_eq!(Some(next.id()), model.pop_front());
                    }
                }
                assert_eq!(queue.len(), model.len());
                assert_eq!((queue.is_empty(), queue.is_empty_to_owner()), (model.is_empty(), model.is_empty()));
                assert!(queue.shared_len() <= SHARED_MAX);
                if model.len() == aim || !grow && model.len() < aim {
                    break;
                }
            }
        }
    }

    /// Thieves find something for as long as the owner only puts.
    #[test]
    fn thieves_of_a_long_queue() {
        let (queue, thief) = (RunQueue::new(), RunQueue::new());
        (1..=2 * SHARED_MAX as u64).for_each(|id| queue.push(g(id)));
        let mut expected = 1;
        for id in 1..=4 * SHARED_MAX as u64 {
            queue.push(g(2 * SHARED_MAX as u64 + id));
            let (first, _) = thief.steal_from(&queue).expect("the owner fills up");
            for got in std::iter::once(first).chain(std::iter::from_fn(|| thief.pop())) {
                assert_eq!(got.id(), expected);
                expected += 1;
            }
            if queue.len() < 10 {
                return;
            }
        }
        unreachable!("a thief takes more than one at a time");
    }
}
