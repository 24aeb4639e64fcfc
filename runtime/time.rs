//! Time for goroutines.

use std::time::Duration;

use tracer::clock::mono_ns;

use crate::sched::find;
use crate::sched::park::Inside;

/// Suspends the calling goroutine (or thread) for at least `duration`. Zero yields.
///
/// ```
/// use std::time::{Duration, Instant};
/// let slept = rt::run(|| {
///     let began = Instant::now();
///     rt::time::sleep(Duration::from_millis(5));
///     began.elapsed()
/// });
/// assert!(slept >= Duration::from_millis(5));
/// ```
pub fn sleep(duration: Duration) {
    let Some(inside) = Inside::enter() else { return std::thread::sleep(duration) };
    if duration.is_zero() {
        inside.yield_now(tracer::record::Fixed::Yield);
        return;
    }
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    // A time that cannot be reached is as good as never, but MUST NOT be mistaken for "no timer".
    find::sleep_until(&inside, mono_ns().saturating_add(ns).min(u64::MAX - 1));
}
