//! A clock that costs a load: when a goroutine stopped is noted by it.
//!
//! Sysmon sets it at each of its looks, and whoever wakes sysmon from a deep sleep does. So while anything runs it is
//! at most one pause of sysmon behind (20 us to 5 ms, more where the kernel lets sysmon wait for a processor), and
//! never ahead. What is measured from it is too long by that much, never too short.

use std::sync::atomic::{AtomicU64, Ordering};

use crossbeam_utils::CachePadded;

/// CLOCK_MONOTONIC, in nanoseconds. Written many times a second, read at every switch.
static NOW_NS: CachePadded<AtomicU64> = CachePadded::new(AtomicU64::new(0));

/// The time of the last look.
#[inline(always)]
pub(crate) fn now_ns() -> u64 {
    NOW_NS.load(Ordering::Relaxed)
}

/// It is `now_ns`. The clock never goes back, though two may set it at once.
pub(crate) fn set(now_ns: u64) {
    NOW_NS.fetch_max(now_ns, Ordering::Relaxed);
}
