//! What the scheduler counts for [`crate::metrics`].
//!
//! - U1: a [`Counter`] or [`Durations`] has one writer at a time: whoever holds the P, or the lock, that it belongs to. So counting is a
//!   load and a store, without a locked instruction; readers add up what they find.
//! - U2: how long goroutines wait for their turn is measured for one of [`SAMPLE_MEAN`] on average, so that the others pay for no clock.
//!   The distance to the next one is random: otherwise a program with a rhythm of its own could always show the same of its
//!   goroutines. While somebody wants to be told of long waits all of them are measured, from the next one of the sample on.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tracer::clock;
use tracer::wire::ext::Cause;

use crate::prim::rng::Rng;
use crate::sched::g::G;
use crate::sched::tripwire;

/// A number that grows (U1).
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) const fn new() -> Counter {
        Counter(AtomicU64::new(0))
    }

    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Bits of the first bucket's width: 128 ns.
const FIRST_BITS: u32 = 7;
/// Each power of two is divided into 4.
const SUB_BITS: u32 = 2;
/// Durations from 2^48 ns (three days) on share the last bucket.
const MAX_BITS: u32 = 48;
/// Buckets, the last one included.
pub(crate) const BUCKETS: usize = ((MAX_BITS - FIRST_BITS - SUB_BITS + 1) << SUB_BITS) as usize + 1;

/// How often durations of which length occurred: Go's buckets (U1).
pub(crate) struct Durations([Counter; BUCKETS]);

impl Durations {
    pub(crate) const fn new() -> Durations {
        Durations([const { Counter::new() }; BUCKETS])
    }

    pub(crate) fn record(&self, ns: u64) {
        self.0[bucket_of(ns)].add(1);
    }

    /// Adds what it counted to `to`.
    pub(crate) fn add_to(&self, to: &mut [u64; BUCKETS]) {
        for (to, from) in to.iter_mut().zip(&self.0) {
            *to += from.get();
        }
    }
}

fn bucket_of(ns: u64) -> usize {
    let bits = ns.checked_ilog2().unwrap_or(0);
    if bits < FIRST_BITS + SUB_BITS {
        return (ns >> FIRST_BITS) as usize;
    }
    if bits >= MAX_BITS {
        return BUCKETS - 1;
    }
    let within = (ns >> (bits - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    (((bits + 1 - FIRST_BITS - SUB_BITS) << SUB_BITS) as u64 + within) as usize
}

/// Where bucket `i` begins, in nanoseconds.
pub(crate) fn bucket_begin_ns(i: usize) -> u64 {
    let (power, within) = ((i >> SUB_BITS) as u32, (i as u64) & ((1 << SUB_BITS) - 1));
    match power {
        0 => within << FIRST_BITS,
        _ => ((1 << SUB_BITS) + within) << (FIRST_BITS + power - 1),
    }
}

/// One in so many is measured (U2).
const SAMPLE_MEAN: u32 = 64;

/// When the next goroutine is measured.
struct Sampler {
    left: Cell<u32>,
    rng: Cell<Rng>,
}

impl Sampler {
    fn new(seed: u64) -> Sampler {
        Sampler { left: Cell::new(0), rng: Cell::new(Rng::new(seed)) }
    }

    /// Whether this one is.
    #[inline]
    fn take(&self) -> bool {
        let left = self.left.get();
        if left == 0 {
            self.choose();
            return true;
        }
        self.left.set(left - 1);
        false
    }

    #[cold]
    fn choose(&self) {
        if tripwire::is_set(tripwire::Kind::Runnable) {
            return; // U2: the next one, too.
        }
        let mut rng = self.rng.replace(Rng::new(0));
        self.left.set(SAMPLE_MEAN / 2 + rng.below(SAMPLE_MEAN as usize) as u32 - 1);
        self.rng.set(rng);
    }
}

/// What a P counts. Written by whoever holds it.
pub(crate) struct Counts {
    /// Goroutines made and ended here.
    pub(crate) created: Counter,
    pub(crate) ended: Counter,
    /// Successful steals, and how many goroutines came.
    pub(crate) steals: Counter,
    pub(crate) stolen: Counter,
    sampler: Sampler,
    /// From runnable to running, of those that are measured.
    pub(crate) latencies: Durations,
}

impl Counts {
    pub(crate) fn new(p: u32) -> Counts {
        Counts {
            created: Counter::new(),
            ended: Counter::new(),
            steals: Counter::new(),
            stolen: Counter::new(),
            sampler: Sampler::new(u64::from(p) + 1),
            latencies: Durations::new(),
        }
    }

    /// `g` has become runnable and is about to be queued; nobody else knows of it yet.
    #[inline]
    pub(crate) fn runnable(&self, g: &G) {
        if self.sampler.take() {
            stamp(g);
        }
    }

    /// `g` is about to run.
    #[inline]
    pub(crate) fn runs(&self, g: &G) {
        if g.marks.is_stamped() {
            self.measure(g);
        }
    }

    #[cold]
    fn measure(&self, g: &G) {
        g.marks.set_stamped(false);
        // Another processor's clock may be a little behind.
        let ticks = clock::ticks().saturating_sub(g.stamp.get());
        let ns = u128::from(ticks) * 1_000_000 / u128::from(clock::ticks_per_ms().max(1));
        let ns = ns as u64;
        self.latencies.record(ns);
        if ns >= tripwire::limit_ns(tripwire::Kind::Runnable) && !g.marks.is_system() {
            tripwire::trip_if_long(tripwire::Kind::Runnable, "runnable", ns, g.id());
        }
    }
}

/// The same for the global queue, under whose lock this is.
pub(crate) struct GlobalCounts {
    left: u32,
    /// Goroutines that threads made.
    pub(crate) created: u64,
}

impl GlobalCounts {
    pub(crate) const fn new() -> GlobalCounts {
        GlobalCounts { left: 0, created: 0 }
    }

    /// As [`Counts::runnable`]; threads have no rhythm worth a random number.
    pub(crate) fn runnable(&mut self, g: &G) {
        if self.left == 0 {
            self.left = if tripwire::is_set(tripwire::Kind::Runnable) { 1 } else { SAMPLE_MEAN };
            stamp(g);
        }
        self.left -= 1;
    }
}

#[cold]
fn stamp(g: &G) {
    g.stamp.set(clock::ticks());
    g.marks.set_stamped(true);
}

/// How often a P was taken from an M that kept it. Sysmon does that, and whoever makes GOMAXPROCS smaller.
pub(crate) static HAND_OFFS: HandOffs =
    HandOffs { blocking_call: AtomicU64::new(0), outside_too_long: AtomicU64::new(0), gomaxprocs: AtomicU64::new(0) };

pub(crate) struct HandOffs {
    pub(crate) blocking_call: AtomicU64,
    pub(crate) outside_too_long: AtomicU64,
    pub(crate) gomaxprocs: AtomicU64,
}

impl HandOffs {
    pub(crate) fn count(&self, cause: Cause) {
        let counter = match cause {
            Cause::BlockingCall => &self.blocking_call,
            Cause::OutsideTooLong => &self.outside_too_long,
            Cause::Gomaxprocs => &self.gomaxprocs,
            other => unreachable!("nobody takes a P for {other}"),
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Goroutines that are outside and lost their P.
pub(crate) static WITHOUT_P: AtomicU64 = AtomicU64::new(0);

/// From the decision to stop the world until it stood still, and until it ran again. Written by the stopper, of whom there is one.
pub(crate) struct Pauses {
    pub(crate) stopping: Durations,
    pub(crate) stopped: Durations,
}

/// The collector's.
#[cfg(feature = "gc")]
pub(crate) static GC_PAUSES: Pauses = Pauses::new();
/// All others.
pub(crate) static OTHER_PAUSES: Pauses = Pauses::new();

impl Pauses {
    const fn new() -> Pauses {
        Pauses { stopping: Durations::new(), stopped: Durations::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_meet() {
        for i in 0..BUCKETS {
            let begin = bucket_begin_ns(i);
            assert_eq!(bucket_of(begin), i, "the first of {begin} ns");
            if i > 0 {
                assert_eq!(bucket_of(begin - 1), i - 1, "the last before {begin} ns");
            }
        }
        assert_eq!((bucket_begin_ns(0), bucket_begin_ns(1), bucket_begin_ns(BUCKETS - 1)), (0, 128, 1 << MAX_BITS));
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn samples_one_in_so_many() {
        let sampler = Sampler::new(7);
        let n = 100_000;
        let taken = (0..n).filter(|_| sampler.take()).count() as u32;
        assert!((n / SAMPLE_MEAN * 9 / 10..n / SAMPLE_MEAN * 11 / 10).contains(&taken), "{taken} of {n}");
    }
}
