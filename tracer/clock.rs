//! The trace clock: the cheapest one that never goes backwards on a thread.
//!
//! Where the processor says that its time-stamp counter is invariant, a tick is some counts of it (on x86-64 sixteen, about
//! 6 ns: half of what a reading takes; so most times in a trace, which are differences, fit one byte); otherwise a tick is
//! a nanosecond of CLOCK_MONOTONIC (31 ns to read). Ticks are counted from the process's first use, so that a
//! small error of the frequency is not multiplied by the machine's uptime. Counters of two cores may differ by some 25 ns:
//! the order of events on different threads comes from sequence numbers, never from this clock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// One reading of all three clocks, as close together as can be had.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot {
    /// Trace ticks.
    pub ticks: u64,
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub mono_ns: u64,
    /// Wall clock, as the time since the Unix epoch in nanoseconds.
    pub wall_ns: u64,
}

#[derive(Clone, Copy)]
struct Base {
    counter: u64,
    mono_ns: u64,
    is_counter: bool,
    /// For tests. (Then `is_counter` is not set, so it costs nothing else.)
    wrong: Option<Wrong>,
}

/// What may be the matter with a clock.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// It jumps back by 2 ms, and later forward again, a hundred times a second.
    JumpsBack,
    /// It stands still for 3 ms at a time.
    StandsStill,
    /// Threads read times that are up to 1 ms apart.
    Differs,
}

impl Wrong {
    fn ns(self) -> u64 {
        const MS: u64 = 1_000_000;
        let now = mono_ns();
        match self {
            Wrong::JumpsBack => now - now / (5 * MS) % 2 * (2 * MS),
            Wrong::StandsStill => now - now % (3 * MS),
            Wrong::Differs => now - thread() * 7919 % 1000 * 1000,
        }
    }
}

/// A number of the calling thread's own.
fn thread() -> u64 {
    #[cfg(not(loom))]
    return crate::record::thread_id();
    // Nothing records in a model.
    #[cfg(loom)]
    0
}

/// Makes the clock wrong for the rest of the process, to see what becomes of a trace. For tests; before anything else.
///
/// # Panics
///
/// When the clock is in use.
#[doc(hidden)]
pub fn be_wrong(how: Wrong) {
    // Readings may be a bit before the first.
    let early = mono_ns() - 10_000_000;
    let base = Base { counter: early, mono_ns: early, is_counter: false, wrong: Some(how) };
    assert!(BASE.set(base).is_ok(), "the clock is in use");
}

static BASE: OnceLock<Base> = OnceLock::new();

/// The counter at the clock's first use, so that a reading needs one load. 0 before, and without a counter.
static COUNTER_BASE: AtomicU64 = AtomicU64::new(0);

/// A tick is a count of the counter, shifted by so many bits.
const COUNTS_SHIFT: u32 = if cfg!(target_arch = "x86_64") { 4 } else { 0 };

fn base() -> &'static Base {
    BASE.get_or_init(|| {
        let is_counter = has_invariant_counter();
        let (counter, mono_ns) = if is_counter { pair() } else { (mono_ns(), mono_ns()) };
        if is_counter {
            // ORDER: Relaxed; the number is all there is to see.
            COUNTER_BASE.store(counter, Ordering::Relaxed);
        }
        Base { counter, mono_ns, is_counter, wrong: None }
    })
}

/// The present time in ticks since the clock's first use, at least 1.
#[inline]
pub fn ticks() -> u64 {
    match COUNTER_BASE.load(Ordering::Relaxed) {
        0 => ticks_slow(),
        base => (counter().saturating_sub(base) >> COUNTS_SHIFT) + 1,
    }
}

/// The first time, and without a counter.
#[cold]
#[inline(never)]
fn ticks_slow() -> u64 {
    let b = base();
    if b.is_counter {
        return (counter().saturating_sub(b.counter) >> COUNTS_SHIFT) + 1;
    }
    b.wrong.map_or_else(mono_ns, Wrong::ns).saturating_sub(b.counter) + 1
}

/// Ticks per second, from the clock's first use to now. More exact the longer the process runs: 0.01 ppm after 50 ms.
pub fn ticks_per_second() -> u64 {
    let b = base();
    if !b.is_counter {
        return 1_000_000_000;
    }
    // A pair taken over less than a millisecond says little: wait that long, once, at a process's start.
    let (mut c, mut m) = pair();
    while m - b.mono_ns < 1_000_000 {
        std::thread::sleep(std::time::Duration::from_micros(200));
        (c, m) = pair();
    }
    let hz = (c - b.counter) as u128 * 1_000_000_000 / u128::from(m - b.mono_ns);
    hz as u64 >> COUNTS_SHIFT
}

/// Ticks per millisecond, measured once: for intervals of the runtime's own, where a per mille does not matter.
pub fn ticks_per_ms() -> u64 {
    static TICKS: AtomicU64 = AtomicU64::new(0);
    let known = TICKS.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let ticks = (ticks_per_second() / 1000).max(1);
    TICKS.store(ticks, Ordering::Relaxed);
    ticks
}

/// Reads all clocks at once.
pub fn snapshot() -> Snapshot {
    let ticks = ticks();
    let mono_ns = mono_ns();
    let wall_ns = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u64);
    Snapshot { ticks, mono_ns, wall_ns }
}

/// CLOCK_MONOTONIC in nanoseconds.
#[inline]
pub fn mono_ns() -> u64 {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec, and CLOCK_MONOTONIC exists everywhere we run.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut ts) };
    ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64
}

/// A counter reading and the monotonic time that belongs to it: of a few tries, the one that took least.
fn pair() -> (u64, u64) {
    let mut best = (u64::MAX, 0, 0);
    for _ in 0..5 {
        let before = counter();
        let ns = mono_ns();
        let after = counter();
        let width = after.saturating_sub(before);
        if width < best.0 {
            best = (width, before + width / 2, ns);
        }
    }
    (best.1, best.2)
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn counter() -> u64 {
    // SAFETY: rdtsc has no memory operand and is available on every x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(target_arch = "x86_64")]
fn has_invariant_counter() -> bool {
    use core::arch::x86_64::__cpuid;
    __cpuid(0x8000_0000).eax >= 0x8000_0007 && __cpuid(0x8000_0007).edx & (1 << 8) != 0
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn counter() -> u64 {
    let v: u64;
    // SAFETY: reading the virtual counter is allowed at EL0 on Linux and touches no memory.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) v, options(nomem, nostack, preserves_flags)) };
    v
}

#[cfg(target_arch = "aarch64")]
fn has_invariant_counter() -> bool {
    true // The generic timer counts at a fixed rate by definition.
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_grow_and_match_the_frequency() {
        let (t0, m0) = (ticks(), mono_ns());
        std::thread::sleep(std::time::Duration::from_millis(20));
        let (t1, m1) = (ticks(), mono_ns());
        assert!(t1 > t0);
        let ns = (t1 - t0) as f64 * 1e9 / ticks_per_second() as f64;
        let error = (ns - (m1 - m0) as f64).abs() / (m1 - m0) as f64;
        assert!(error < 0.01, "trace clock and monotonic clock differ by {error}");
    }
}
