//! A barrier.
//!
//! - The last one to arrive takes all others off the list and begins the next round, in one step under the lock: who arrives for
//!   the next round meanwhile is not woken for this one.

use std::cell::UnsafeCell;
use std::fmt;

use tracer::record::Fixed;

use crate::prim::spin::RawLock;
use crate::sched::g::{Kind, Wait};
use crate::sched::park::{Caller, Turn};
use crate::sync::waiter::{Node, Nodes, Taken};

/// A point that a number of goroutines (or threads) pass together, again and again.
///
/// ```
/// use std::sync::Arc;
/// use rt::sync::Barrier;
///
/// let barrier = Arc::new(Barrier::new(3));
/// let others: Vec<_> = (0..2)
///     .map(|_| {
///         let barrier = barrier.clone();
///         rt::go(move || barrier.wait().is_leader())
///     })
///     .collect();
/// let me = barrier.wait().is_leader();
/// let leaders = others.into_iter().map(|h| h.join().unwrap()).chain([me]);
/// assert_eq!(leaders.filter(|l| *l).count(), 1);
/// ```
pub struct Barrier {
    n: usize,
    lock: RawLock,
    round: UnsafeCell<Round>,
}

struct Round {
    arrived: usize,
    waiting: Nodes,
}

// SAFETY: the round is touched under the lock only.
unsafe impl Sync for Barrier {}
// SAFETY: as above.
unsafe impl Send for Barrier {}

/// What [`Barrier::wait`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// Whether the caller is the one of its round that was chosen to lead: the last to arrive.
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

impl Barrier {
    /// A barrier for `n`. With 0, as with 1, nobody waits.
    pub const fn new(n: usize) -> Barrier {
        let round = Round { arrived: 0, waiting: Nodes::new() };
        Barrier { n, lock: RawLock::new(), round: UnsafeCell::new(round) }
    }

    /// Waits until as many have arrived as the barrier is for, the caller among them.
    pub fn wait(&self) -> BarrierWaitResult {
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        // SAFETY: the lock is held.
        let round = unsafe { &mut *self.round.get() };
        round.arrived += 1;
        if round.arrived < self.n {
            let node = Node::new(caller.waiter());
            // SAFETY: the lock is held; the node stays in place until it is woken, which takes it off first.
            unsafe { round.waiting.push_back(&node) };
            let wait = Wait { reason: Fixed::Sync, kind: Kind::Barrier, object: std::ptr::from_ref(self) as usize };
            // SAFETY: locked above; unlocked once, by this closure.
            caller.wait(&node, wait, || unsafe { self.lock.unlock() });
            return BarrierWaitResult(false);
        }
        round.arrived = 0;
        let mut others = Taken::new();
        others.take(&mut round.waiting, usize::MAX);
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        others.wake_by(&caller, Turn::Last);
        BarrierWaitResult(true)
    }
}

// What a panic leaves of it is whole: nothing of the program's own runs while it is being changed.
impl std::panic::RefUnwindSafe for Barrier {}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("n", &self.n).finish_non_exhaustive()
    }
}
