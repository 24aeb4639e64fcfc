//! Chains and cycles of goroutines that wait for what others hold.
//!
//! - CY1: what is seen of one goroutine is seen under SCAN, so it is true at that moment. A cycle is followed twice: if
//!   everybody in it waits the same wait as before, then all of them waited at the end of the first round, each for
//!   what the next one held. Otherwise it would be put together from moments that never were one.
//! - CY2: a wait is the same if it began at the same time by the coarse clock, and that time had passed when it was
//!   seen first. A cycle that is younger than the clock's last step is not called one yet.
//! - CY3: a goroutine that waits cannot let go. So a cycle stays, unless somebody in it waits with a time-out.

use crate::prim::coarse;
use crate::sched::g::{G, Wait};
use crate::sched::owner::Held;
use crate::sched::state::{Scan, Status};

/// Goroutines in a chain, at most. Whoever makes longer ones has other worries.
const LONGEST: usize = 256;

/// A goroutine that waits for something that can be held.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) g: &'static G,
    pub(crate) id: u64,
    pub(crate) wait: Wait,
    pub(crate) since_ns: u64,
    pub(crate) held: Held,
}

impl Link {
    /// What `g` waits for, if it does and that can be held.
    pub(crate) fn of(g: &'static G) -> Option<Link> {
        for _ in 0..100 {
            match g.state.scan() {
                Scan::Busy => std::thread::yield_now(),
                Scan::Held(Status::Waiting, hold) => {
                    // SAFETY: SCAN is held.
                    let (_, wait, since_ns) = unsafe { g.standing() };
                    // SAFETY: as above, and it is Waiting (N4).
                    let held = unsafe { wait.owner() };
                    let id = g.id();
                    drop(hold);
                    return held.map(|held| Link { g, id, wait, since_ns, held });
                }
                Scan::Nothing | Scan::Running | Scan::Held(..) => return None,
            }
        }
        None
    }

    /// Whether the two are of one wait, given that the first was seen when the clock stood at `then_ns` (CY2).
    fn is_same(&self, later: &Link, then_ns: u64) -> bool {
        self.since_ns < then_ns
            && (self.id, self.since_ns, self.wait.object) == (later.id, later.since_ns, later.wait.object)
            && self.held == later.held
    }

    /// Whoever holds it, if that is a goroutine that waits in turn.
    fn next(&self) -> Option<Link> {
        let (g, id) = self.held.goroutine()?;
        Link::of(g).filter(|next| next.id == id)
    }
}

/// The cycle that `g`'s chain of waits leads into, beginning with the lowest id: each waits for what the next one
/// holds, the last one for what the first holds. One alone waits for what it holds itself.
pub(crate) fn from(g: &'static G) -> Option<Vec<Link>> {
    let then_ns = coarse::now_ns();
    let mut chain = vec![Link::of(g)?];
    let first = loop {
        let next = chain[chain.len() - 1].next()?;
        if let Some(i) = chain.iter().position(|l| std::ptr::eq(l.g, next.g)) {
            break i;
        }
        if chain.len() == LONGEST {
            return None;
        }
        chain.push(next);
    };
    let mut cycle = chain.split_off(first);
    // CY1
    let stays = |l: &Link| Link::of(l.g).is_some_and(|again| l.is_same(&again, then_ns));
    if !cycle.iter().all(stays) {
        return None;
    }
    let lowest = (0..cycle.len()).min_by_key(|&i| cycle[i].id)?;
    cycle.rotate_left(lowest);
    Some(cycle)
}
