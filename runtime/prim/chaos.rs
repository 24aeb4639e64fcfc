//! Bad luck on purpose, for tests: with `--cfg rt_chaos` the scheduler's choices and its pace are drawn at random. Without it everything
//! here is a constant, and costs nothing.
//!
//! The seed is `RT_CHAOS_SEED`, or one from the clock, which is then printed. It fixes which numbers are drawn, not who draws which:
//! threads race for them. A seed that fails, run again some times, fails again more often than others do.
//!
//! What is drawn: which queue is looked at first, and which one a goroutine goes to; whether a goroutine gives up its turn when it leaves the
//! runtime; whether sysmon takes a P at once, and from somebody whom nobody waits for; how late a timer is; whether a sleep ends without
//! reason; and a pause in each window of a protocol, where two threads could meet.

/// Whether choices are drawn at all.
#[cfg(not(all(rt_chaos, not(loom))))]
mod off {
    /// Whether this happens, with a chance of one in `_n`.
    #[inline(always)]
    pub(crate) const fn one_in(_n: u32) -> bool {
        false
    }

    /// A place where the others may overtake.
    #[inline(always)]
    pub(crate) const fn window() {}

    /// A number below `n`, for a choice that is made in this way only.
    #[inline(always)]
    pub(crate) const fn pick(_n: u32) -> Option<u32> {
        None
    }

    /// So much later than asked for.
    #[inline(always)]
    pub(crate) const fn late_ns() -> u64 {
        0
    }
}

#[cfg(not(all(rt_chaos, not(loom))))]
pub(crate) use off::{late_ns, one_in, pick, window};

#[cfg(all(rt_chaos, not(loom)))]
mod on {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    static SEED: OnceLock<u64> = OnceLock::new();
    static DRAWN: AtomicU64 = AtomicU64::new(0);

    fn seed() -> u64 {
        *SEED.get_or_init(|| {
            let given = std::env::var("RT_CHAOS_SEED").ok().filter(|s| !s.is_empty());
            if let Some(s) = given {
                return s.parse().unwrap_or_else(|_| panic!("RT_CHAOS_SEED={s}: want a number"));
            }
            let seed = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64);
            crate::prim::say::say(format_args!("gort: RT_CHAOS_SEED={seed}"));
            seed
        })
    }

    /// The next number (splitmix64). No thread-locals: this is called where a goroutine may have moved.
    fn draw() -> u64 {
        let n = DRAWN.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        let mut z = seed().wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(n: u64) -> u64 {
        draw() % n
    }

    pub(crate) fn one_in(n: u32) -> bool {
        below(u64::from(n)) == 0
    }

    pub(crate) fn window() {
        match below(256) {
            0 => std::thread::sleep(Duration::from_micros(1 + below(200))),
            1..=4 => std::thread::yield_now(),
            5..=40 => (0..below(2000)).for_each(|_| std::hint::spin_loop()),
            _ => {}
        }
    }

    pub(crate) fn pick(n: u32) -> Option<u32> {
        Some(below(u64::from(n)) as u32)
    }

    pub(crate) fn late_ns() -> u64 {
        if one_in(4) { below(2_000_000) } else { 0 }
    }
}

#[cfg(all(rt_chaos, not(loom)))]
pub(crate) use on::{late_ns, one_in, pick, window};
