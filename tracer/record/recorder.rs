//! A flight recorder's memory: the last generations, whole.
//!
//! - R1: what is kept follows on each other without a gap. A generation that was lost clears what came before it.
//! - R2: the last generation is kept in any case. Of the others as many as fit into the bytes, and no more than the age asks for.
//! - R3: what is kept and what is on its way here together are to take no more than a quarter above the bytes. So where a program makes
//!   so many events that this matters, less is kept, down to a quarter of them: a moment's delay is no reason to forget
//!   everything.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::record::generation::Generation;
use crate::wire::HEADER;

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

    /// How many bytes are kept.
    pub fn bytes(&self) -> usize {
        self.kept.lock().bytes
    }

    /// Forgets everything.
    pub fn clear(&self) {
        *self.kept.lock() = Kept::default();
    }

    /// A generation has ended (R2), and `coming` bytes are on their way.
    pub(crate) fn take(&self, generation: &Arc<Generation>, coming: usize) {
        let mut kept = self.kept.lock();
        // R3
        let together = self.max_bytes.saturating_add(self.max_bytes / 4);
        let bytes_max = together.saturating_sub(coming).clamp(self.max_bytes / 4, self.max_bytes);
        kept.bytes += generation.bytes().len();
        kept.generations.push_back(generation.clone());
        let oldest = generation.ended_ns().saturating_sub(self.min_age_ns);
        while kept.generations.len() > 1 && (kept.bytes > bytes_max || kept.generations[1].began_ns() <= oldest) {
            let gone = kept.generations.pop_front().expect("there are two");
            kept.bytes -= gone.bytes().len();
        }
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
            out.write_all(generation.bytes())?;
            bytes += generation.bytes().len() as u64;
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
        fill(&ring, 12..=15, 20);
        ring.take(&Arc::new(Generation::of(16, vec![0; 20])), 272);
        assert_eq!(numbers(&ring), [14, 15, 16], "there is little room beside what is coming");
        ring.take(&Arc::new(Generation::of(17, vec![0; 20])), 1 << 20);
        assert_eq!(numbers(&ring), [15, 16, 17], "a quarter");
        ring.clear();
        assert_eq!((numbers(&ring), ring.bytes()), (vec![], 0));
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
