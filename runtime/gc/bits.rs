//! Bitmaps of a block's slots, and how roots are found (H7).
//!
//! ```text
//!   raise    count 0 -> 1 (SeqCst);  bit set? : set it            who makes a handle out of an edge, in a window
//!   is_root  count != 0? yes.  clear the bit (SeqCst);  count != 0? set it again, yes. : no            the marker
//! ```
//!
//! Either the marker's second look sees the count, or its clearing comes before the look at the bit by whoever raised the count. So a
//! bit is never lost; at worst one is set for nothing, and cleared in the next cycle.

use crate::prim::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::prim::chaos;

/// Bits of a word.
pub(crate) const WORD: usize = usize::BITS as usize;

/// A bitmap of `N` words.
#[derive(Debug)]
pub(crate) struct Bits<const N: usize>([AtomicUsize; N]);

impl<const N: usize> Bits<N> {
    #[cfg(any(test, loom))]
    pub(crate) fn new() -> Bits<N> {
        Bits(std::array::from_fn(|_| AtomicUsize::new(0)))
    }

    #[inline]
    pub(crate) fn get(&self, i: usize) -> bool {
        // ORDER: Acquire; pairs with the Release in set() and set_word(): with the bit comes the object.
        self.0[i / WORD].load(Ordering::Acquire) & 1 << (i % WORD) != 0
    }

    /// Sets a bit; answers whether it was not set.
    #[inline]
    pub(crate) fn set(&self, i: usize) -> bool {
        // Mostly it is set, and a look is cheaper.
        !self.get(i) && self.set_word(i / WORD, 1 << (i % WORD)) & 1 << (i % WORD) == 0
    }

    #[inline]
    pub(crate) fn clear(&self, i: usize) {
        self.clear_word(i / WORD, 1 << (i % WORD));
    }

    #[inline]
    pub(crate) fn word(&self, w: usize) -> usize {
        self.0[w].load(Ordering::Acquire)
    }

    /// Sets the bits of `mask`; answers what the word was.
    #[inline]
    pub(crate) fn set_word(&self, w: usize, mask: usize) -> usize {
        self.0[w].fetch_or(mask, Ordering::AcqRel)
    }

    /// Clears the bits of `mask`.
    #[inline]
    pub(crate) fn clear_word(&self, w: usize, mask: usize) {
        self.0[w].fetch_and(!mask, Ordering::AcqRel);
    }

    /// Clears all bits of a word that nobody else touches.
    #[inline]
    pub(crate) fn reset_word(&self, w: usize) {
        self.0[w].store(0, Ordering::Relaxed);
    }

    /// A handle more; `self` is `rooted`, and this is in a window. Answers the count before.
    #[inline]
    pub(crate) fn raise(&self, i: usize, count: &AtomicU32) -> u32 {
        let before = count.fetch_add(1, Ordering::SeqCst);
        chaos::window();
        if before == 0 {
            in_order();
            let (w, bit) = (i / WORD, 1 << (i % WORD));
            // ORDER: SeqCst; pairs with the exchange in is_root(): count, then bit.
            if self.0[w].load(Ordering::SeqCst) & bit == 0 {
                self.0[w].fetch_or(bit, Ordering::SeqCst);
            }
        }
        before
    }

    /// Whether an object whose bit is set has a handle; if not, the bit is cleared. By a marker; each bit is looked at by one.
    pub(crate) fn is_root(&self, i: usize, count: &AtomicU32) -> bool {
        // ORDER: Acquire; pairs with the Release of whoever drops a handle: what was done with it comes before.
        if count.load(Ordering::Acquire) != 0 {
            return true;
        }
        let (w, bit) = (i / WORD, 1 << (i % WORD));
        self.0[w].fetch_and(!bit, Ordering::SeqCst);
        in_order();
        chaos::window();
        // ORDER: SeqCst; pairs with raise(): bit, then count.
        if count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        self.0[w].fetch_or(bit, Ordering::SeqCst);
        true
    }
}

/// Between two SeqCst accesses. Such accesses are in one order by themselves; the model checker takes them for AcqRel and wants a fence.
#[inline(always)]
fn in_order() {
    #[cfg(loom)]
    crate::prim::atomic::fence(Ordering::SeqCst);
}

/// The places of the bits in a word.
pub(crate) fn ones(mut word: usize) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let i = word.trailing_zeros() as usize;
        word &= word.wrapping_sub(1);
        (i < WORD).then_some(i)
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn gc_bits_are_set_once_and_found() {
        let bits = Bits::<4>::new();
        let mine: Vec<usize> = (0..4 * WORD).filter(|i| i % 7 == 3 || i % WORD == 0 || i % WORD == WORD - 1).collect();
        for &i in &mine {
            assert!(!bits.get(i) && bits.set(i) && bits.get(i) && !bits.set(i));
        }
        let found: Vec<usize> = (0..4).flat_map(|w| ones(bits.word(w)).map(move |i| w * WORD + i)).collect();
        assert_eq!(found, mine);
        for &i in &mine {
            bits.clear(i);
            assert!(!bits.get(i));
        }
        assert!((0..4).all(|w| bits.word(w) == 0));
        assert_eq!((bits.set_word(2, 0b1010), bits.set_word(2, 0b0110), bits.word(2)), (0, 0b1010, 0b1110));
        bits.clear_word(2, 0b0100);
        assert_eq!(bits.word(2), 0b1010);
        bits.reset_word(2);
        assert_eq!(bits.word(2), 0);
        assert_eq!(ones(usize::MAX).count(), WORD);
    }

    #[test]
    fn gc_bits_of_roots_follow_the_count() {
        let (rooted, count) = (Bits::<1>::new(), AtomicU32::new(0));
        assert_eq!((rooted.raise(5, &count), rooted.get(5)), (0, true));
        assert_eq!(rooted.raise(5, &count), 1);
        assert!(rooted.is_root(5, &count) && rooted.get(5));
        count.store(0, Ordering::Relaxed);
        assert!(!rooted.is_root(5, &count) && !rooted.get(5));
        assert_eq!((rooted.raise(5, &count), rooted.get(5)), (0, true));
    }

    #[test]
    fn gc_bits_are_set_by_one_thread_each() {
        let bits = Bits::<8>::new();
        let n = 8 * WORD;
        let won: usize = std::thread::scope(|s| {
            let threads: Vec<_> = (0..3)
                .map(|t| (t, &bits))
                .map(|(t, bits)| s.spawn(move || (0..n).filter(|i| bits.set((i * 37 + t * 11) % n)).count()))
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(won, n);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// H7: however a raise and a look meet, an object with a handle has its bit afterwards; and one that had a handle all the while is
    /// seen to have one. Fails if the marker does not look again, or without the one order.
    #[test]
    fn loom_gc_no_root_is_lost() {
        loom::model(|| {
            let s = Arc::new((Bits::<1>::new(), AtomicU32::new(0)));
            s.0.set(3);
            let raiser = {
                let s = s.clone();
                thread::spawn(move || {
                    s.0.raise(3, &s.1);
                    // A second handle comes and goes.
                    s.0.raise(3, &s.1);
                    s.1.fetch_sub(1, Ordering::Release);
                })
            };
            let _ = s.0.is_root(3, &s.1);
            raiser.join().unwrap();
            assert!(s.0.get(3), "an object with a handle lost its bit");
            assert!(s.0.is_root(3, &s.1));
        });
    }

    /// A handle that goes while another comes, beside a look.
    #[test]
    fn loom_gc_root_handed_over() {
        loom::model(|| {
            let s = Arc::new((Bits::<1>::new(), AtomicU32::new(1)));
            s.0.set(3);
            let dropper = {
                let s = s.clone();
                thread::spawn(move || {
                    s.1.fetch_sub(1, Ordering::Release);
                })
            };
            let raiser = {
                let s = s.clone();
                thread::spawn(move || {
                    s.0.raise(3, &s.1);
                })
            };
            let _ = s.0.is_root(3, &s.1);
            dropper.join().unwrap();
            raiser.join().unwrap();
            assert!(s.0.get(3), "an object with a handle lost its bit");
        });
    }
}
