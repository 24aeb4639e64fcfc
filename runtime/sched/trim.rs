//! What nothing was done with for a while is given back to the system: stacks, goroutine slots, the memory of tasks, the allocator's
//! spare memory.
//!
//! - R1: nothing of this is in the way of a goroutine, at its begin or at its end. Sysmon does it, at times when all Ps are idle, too.
//! - R2: an interval goes by before anything is given back, and what was used in it stays: whoever makes a thousand goroutines each
//!   millisecond is not to pay for a thousand pages each time.
//! - R3: it is done in small parts, so that sysmon sees to the Ps meanwhile. No lock is held while the kernel works, but for
//!   the allocator's own (R4).
//! - R4: the allocator is asked once after very many goroutines have ended, while all Ps are idle: it locks others out
//!   for as long as it takes. It keeps what goroutines had there: closures too large for a block, what the program itself allocated.

use std::time::Duration;

use tracer::clock::mono_ns;

use crate::sched::block::BLOCKS;
use crate::sched::slab::SLAB;
use crate::sched::sysmon::all_idle;
use crate::stack::arena::ARENA;

/// How long something lies idle before it is given back: once at least, less than twice.
const INTERVAL_NS: u64 = 1_000_000_000;
/// How long sysmon may stay at it (R3), and how long it then pauses at most.
const TURN_NS: u64 = 2_000_000;
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
/// Stacks, and stretches of slots and blocks, at a time.
const STACKS: usize = 1024;
const STRETCHES: usize = 256;
/// After so many stacks the allocator is asked as well (R4).
const MANY: usize = 10_000;

/// Sysmon's part: what it knows of it.
pub(crate) struct Trim {
    interval_ns: u64,
    aged_ns: u64,
    /// Something is due.
    due: bool,
    /// Stacks given back since the allocator was asked.
    stacks: usize,
}

impl Trim {
    pub(crate) fn new() -> Trim {
        // For tests: how long an interval is.
        let wanted = std::env::var("RT_TRIM_MS").ok().and_then(|ms| ms.parse::<u64>().ok());
        Trim {
            interval_ns: wanted.map_or(INTERVAL_NS, |ms| ms.saturating_mul(1_000_000)),
            aged_ns: mono_ns(),
            due: false,
            stacks: 0,
        }
    }

    /// Does what is to be done at `now`, for a while. Answers whether there is more.
    pub(crate) fn look(&mut self, now: u64) -> bool {
        if now.saturating_sub(self.aged_ns) >= self.interval_ns {
            self.aged_ns = now;
            ARENA.age();
            SLAB.age();
            BLOCKS.age();
            self.due = true;
        }
        let until = now + TURN_NS;
        while self.due {
            let stacks = ARENA.trim(STACKS);
            self.stacks += stacks;
            self.due = stacks + SLAB.trim(STRETCHES) + BLOCKS.trim(STRETCHES) != 0;
            if self.due && mono_ns() >= until {
                return true;
            }
        }
        if self.stacks >= MANY && all_idle() {
            self.stacks = 0;
            trim_allocator();
        }
        false
    }
}

/// Asks the system's allocator for what it keeps, if it is in use and can be asked.
fn trim_allocator() {
    #[cfg(target_env = "gnu")]
    // SAFETY: has no conditions. With another allocator in use it finds nothing.
    unsafe {
        libc::malloc_trim(0);
    }
}
