//! What a traced resource (a goroutine or a P) remembers: whether its status was written in a generation, and its
//! sequence numbers.
//!
//! - S1: the first event that names a resource in a generation is preceded by its status (or its creation). Whoever wins
//!   [`ResourceState::acquire_status`] writes it, in the same guard as the event. (Or sees that the trace is to have nothing of it.)
//! - S2: three flags: the advancer must still read the old generation's flag while the new one's is in use, and
//!   the next one's must already be clear. (There are four, as a remainder by four costs less.) Two sequence numbers
//!   (gen % 2), restarting at each generation.
//! - S3: `acquire_status(n)` and the census of n clear what n+1 will use. The census visits every slot, dead ones too, so
//!   a slot that is reused later starts clean.

use crate::atomic::{AtomicU8, AtomicU32, Ordering};

/// Flags of a resource (S2).
const FLAGS: usize = 4;

/// Status flags and sequence numbers of one goroutine or P, for the generations in flight.
#[derive(Debug, Default)]
pub struct ResourceState {
    traced: [AtomicU8; FLAGS],
    seq: [AtomicU32; 2],
}

impl ResourceState {
    /// A resource that was traced in no generation.
    #[cfg(not(loom))]
    pub const fn new() -> ResourceState {
        ResourceState { traced: [const { AtomicU8::new(0) }; FLAGS], seq: [const { AtomicU32::new(0) }; 2] }
    }

    /// Wins the right to write the status in `gen`, at most once per generation.
    #[inline]
    #[must_use]
    pub fn acquire_status(&self, r#gen: u64) -> bool {
        let flag = &self.traced[r#gen as usize % FLAGS];
        if flag.load(Ordering::Relaxed) != 0 {
            return false;
        }
        // ORDER: Relaxed; whoever may write this resource's status owns the resource, and ownership is handed over with
        // acquire and release elsewhere. The exchange only settles who of an owner and the census comes first.
        if flag.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return false;
        }
        self.ready_next(r#gen);
        true
    }

    /// Clears what the generation after `gen` will use (S3).
    #[inline]
    pub fn ready_next(&self, r#gen: u64) {
        let (seq, flag) = (&self.seq[((r#gen + 1) % 2) as usize], &self.traced[(r#gen + 1) as usize % FLAGS]);
        // Mostly they are, and the census of a million goroutines is not to write to a million lines of memory.
        if seq.load(Ordering::Relaxed) != 0 {
            seq.store(0, Ordering::Relaxed);
        }
        if flag.load(Ordering::Relaxed) != 0 {
            flag.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the status of this generation is written (or the resource was created in it).
    #[inline]
    pub fn was_traced(&self, r#gen: u64) -> bool {
        self.traced[r#gen as usize % FLAGS].load(Ordering::Acquire) != 0
    }

    /// Records that the resource was created in `gen`: creation counts as its status.
    #[inline]
    pub fn set_traced(&self, r#gen: u64) {
        self.seq[(r#gen % 2) as usize].store(0, Ordering::Relaxed);
        self.traced[r#gen as usize % FLAGS].store(1, Ordering::Release);
        self.ready_next(r#gen);
    }

    /// The next sequence number in `gen`, from 1. Called by the resource's owner.
    #[inline]
    pub fn next_seq(&self, r#gen: u64) -> u64 {
        let s = &self.seq[(r#gen % 2) as usize];
        let n = s.load(Ordering::Relaxed) + 1;
        s.store(n, Ordering::Relaxed);
        u64::from(n)
    }
}
