//! A flight recorder's memory: the last generations, whole.
//!
//! - R1: what is kept follows on each other without a gap. A generation that was lost clears what came before it.
//! - R2: the last generation is kept in any case. Of the others as many as fit into the bytes, and no more than the age asks for. What counts
//!   is the memory they take. One that is larger than all the bytes by itself, or nearly so, stays until the later ones take a quarter of
//!   them: otherwise the next one, which has just begun when a snapshot ends it, would be all that is left.
//! - R3: what is kept and what else the tracer holds (what waits or is being written, and blocks for reuse: N3 in `block.rs`) together are
//!   to take no more than an eighth above the bytes; one more is for what nobody counts (tables, small batches, the threads' newest
//!   blocks), so that the process grows by no more than a quarter above the bytes. So where a program makes so many events that this
//!   matters, less is kept, down to a quarter of the bytes: a moment's delay is no reason to forget everything. This holds at any
//!   time, not only when a generation ends: whoever needs one more block takes it from the oldest generation. Blocks for reuse are the first to
//!   go: so many lie there as fit, and as the next generation will take in any case.
//! - R4: what somebody else holds on to (a snapshot that is being written, a stream that is behind) comes on top, and is not forgotten for the
//!   sake of R3 while it does: that would free nothing.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::record::block::BLOCK_BYTES;
use crate::record::generation::Generation;
use crate::wire::HEADER;

impl Kept {
    /// The oldest, which is kept no longer.
    fn pop(&mut self) -> Option<Arc<Generation>> {
        let gone = self.generations.pop_front()?;
        self.bytes -= gone.memory();
        Some(gone)
    }
}

/// The last generations.
#[derive(Debug)]
pub struct Ring {
    min_age_ns: u64,
    max_bytes: usize,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    generations: VecDeque<Arc<Generation>>,
    bytes: usize,
}

impl Ring {
    /// A ring that keeps what is younger than `min_age`, as far as it fits into `max_bytes`.
    pub fn new(min_age: Duration, max_bytes: usize) -> Arc<Ring> {
        let min_age_ns = u64::try_from(min_age.as_nanos()).unwrap_or(u64::MAX);
        Arc::new(Ring { min_age_ns, max_bytes, kept: Mutex::default() })
    }

    /// How many bytes are to be kept at most.
    pub fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// How many bytes are kept, in memory.
    pub fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.kept.lock() = Kept::default();
    }

    /// A generation has ended (R2), and `used` bytes beside all generations are not for reuse.
    pub(crate) fn take(&self, generation: &Arc<Generation>, used: usize) {
        let mut gone = Vec::new();
        let mut kept = self.kept.lock();
        kept.bytes += generation.memory();
        kept.generations.push_back(generation.clone());
        let oldest = generation.ended_ns().saturating_sub(self.min_age_ns);
        while kept.generations.len() > 1 && (kept.generations[1].began_ns() <= oldest || self.is_too_much(&kept, used))
        {
            gone.push(kept.pop());
        }
        drop(kept);
    }

    /// Forgets so much of what is oldest that there is room for a block, if there is to be none beside `loose` bytes (R3). By whoever needs
    /// one; nobody is waited for.
    pub(crate) fn make_room(&self, loose: usize) {
        let Some(mut kept) = self.kept.try_lock() else { return };
        let (mut gone, mut bytes) = (Vec::new(), 0);
        while bytes < BLOCK_BYTES && self.is_too_much(&kept, loose + bytes) {
            // R4: nobody else gets at it without the lock.
            if Arc::strong_count(&kept.generations[0]) > 1 {
                break;
            }
            bytes += kept.generations[0].memory();
            gone.push(kept.pop());
        }
        // What it frees goes to the pool, when nobody is kept from the ring by that.
        drop(kept);
    }

    /// So many bytes may lie for reuse (R3) beside `used` ones that are not for that, if the next generation takes `next`, some of which it may
    /// have already.
    pub(crate) fn spare(&self, used: usize, next: usize) -> usize {
        let kept = self.kept.lock();
        let fit = self.together().saturating_sub(kept.bytes.saturating_add(used));
        // What stays when room is made.
        let (mut stays, newest) = (kept.bytes, kept.generations.len().saturating_sub(1));
        for generation in kept.generations.iter().take(newest) {
            if stays - generation.memory() < self.least() {
                break;
            }
            stays -= generation.memory();
        }
        fit.max((stays + next.saturating_sub(used)).saturating_sub(kept.bytes))
    }

    /// Whether the oldest is to go for the sake of memory (R2, R3).
    fn is_too_much(&self, kept: &Kept, loose: usize) -> bool {
        kept.generations.len() > 1
            && (kept.bytes > self.max_bytes || kept.bytes.saturating_add(loose) > self.together())
            && kept.bytes - kept.generations[0].memory() >= self.least()
    }

    /// R3: of all there is.
    fn together(&self) -> usize {
        self.max_bytes.saturating_add(self.max_bytes / 8)
    }

    /// R3: of what is kept.
    fn least(&self) -> usize {
        self.max_bytes / 4
    }

    /// What is kept, oldest first.
    pub fn generations(&self) -> Vec<Arc<Generation>> {
        self.kept.lock().generations.iter().cloned().collect()
    }

    /// Writes a header and what is kept; answers how many bytes that were. Nobody is kept waiting meanwhile.
    ///
    /// # Errors
    ///
    /// The writer's.
    pub fn write_to(&self, out: &mut dyn Write) -> io::Result<u64> {
        let generations = self.generations();
        out.write_all(&HEADER)?;
        let mut bytes = HEADER.len() as u64;
        for generation in generations {
            generation.write_to(out)?;
            bytes += generation.bytes() as u64;
        }
        out.flush()?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(ring: &Ring) -> Vec<u64> {
        ring.generations().iter().map(|g| g.number()).collect()
    }

    fn fill(ring: &Ring, numbers: std::ops::RangeInclusive<u64>, len: usize) {
        numbers.for_each(|n| ring.take(&Arc::new(Generation::of(n, vec![n as u8; len])), 0));
    }

    #[test]
    fn the_age_bounds_what_is_kept() {
        let ring = Ring::new(Duration::from_millis(2500), 1 << 20);
        fill(&ring, 1..=10, 100);
        // The last 2.5 seconds begin in the third generation from the end.
        assert_eq!(numbers(&ring), [8, 9, 10]);
        assert_eq!(ring.bytes(), 300);
    }

    #[test]
    fn the_size_wins() {
        let ring = Ring::new(Duration::from_secs(100), 250);
        fill(&ring, 1..=10, 100);
        assert_eq!(numbers(&ring), [9, 10]);
        fill(&ring, 11..=11, 1000);
        assert_eq!(numbers(&ring), [11], "the last one stays");
        fill(&ring, 12..=14, 20);
        assert_eq!(numbers(&ring), [11, 12, 13, 14], "it stays until there is something instead");
        fill(&ring, 15..=20, 20);
        assert_eq!(numbers(&ring), (12..=20).collect::<Vec<_>>());
        let next = |number, used| ring.take(&Arc::new(Generation::of(number, vec![0; 20])), used);
        next(21, 281 - 200);
        assert_eq!(numbers(&ring), (12..=21).collect::<Vec<_>>(), "it fits just so");
        next(22, 281 - 160);
        assert_eq!(numbers(&ring), (15..=22).collect::<Vec<_>>(), "there is little room beside what else there is");
        next(23, 1 << 20);
        assert_eq!(numbers(&ring), [20, 21, 22, 23], "a quarter");
        ring.clear();
        assert_eq!((numbers(&ring), ring.bytes()), (vec![], 0));
    }

    #[test]
    fn who_needs_a_block_takes_it_from_the_oldest() {
        let ring = Ring::new(Duration::from_secs(100), 16 * BLOCK_BYTES);
        fill(&ring, 1..=8, 2 * BLOCK_BYTES);
        ring.make_room(2 * BLOCK_BYTES);
        assert_eq!(numbers(&ring), (1..=8).collect::<Vec<_>>(), "there is room");
        ring.make_room(3 * BLOCK_BYTES);
        assert_eq!(numbers(&ring), (2..=8).collect::<Vec<_>>(), "one is enough");
        let held = ring.generations();
        ring.make_room(1 << 30);
        assert_eq!(numbers(&ring), (2..=8).collect::<Vec<_>>(), "it would free nothing");
        drop(held);
        (0..10).for_each(|_| ring.make_room(1 << 30));
        assert_eq!(numbers(&ring), [7, 8], "a quarter");
        assert_eq!(ring.bytes(), 4 * BLOCK_BYTES);
    }

    #[test]
    fn what_lies_for_reuse_is_what_fits_or_will_be_taken() {
        let ring = Ring::new(Duration::from_secs(100), 1600);
        assert_eq!(ring.spare(0, 0), 1800);
        fill(&ring, 1..=10, 100);
        assert_eq!(ring.spare(100, 100), 1800 - 1000 - 100);
        fill(&ring, 11..=20, 100);
        assert_eq!(ring.bytes(), 1600);
        assert_eq!(ring.spare(100, 100), 100);
        assert_eq!(ring.spare(1000, 100), 0, "older ones will make room");
        assert_eq!(ring.spare(1000, 2300), 100, "down to a quarter");
        fill(&ring, 21..=21, 1500);
        assert_eq!((numbers(&ring), ring.bytes()), (vec![20, 21], 1600));
        assert_eq!(ring.spare(0, 1500), 1400, "nothing but the small one can make room");
        fill(&ring, 22..=22, 1700);
        assert_eq!(numbers(&ring), [22]);
        assert_eq!(ring.spare(0, 1500), 1500);
        assert_eq!(ring.spare(1000, 1500), 500, "it has begun");
        assert_eq!(ring.spare(1 << 20, 1500), 0);
    }

    #[test]
    fn writes_a_header_and_whole_generations() {
        let ring = Ring::new(Duration::from_secs(100), 250);
        fill(&ring, 1..=3, 100);
        let mut out = Vec::new();
        assert_eq!(ring.write_to(&mut out).unwrap(), out.len() as u64);
        assert_eq!(out, [&HEADER[..], &[2; 100], &[3; 100]].concat());
    }
}
