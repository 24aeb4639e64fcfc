//! A set of small numbers, of which the least is found fast: which stacks, which slots.
//!
//! A summary says which words of the set are not empty, so that a search passes over 4,096 numbers with each word that it looks at.

/// Numbers in a word.
pub(crate) const WORD: usize = u64::BITS as usize;

/// A set of numbers. It grows with the largest.
pub(crate) struct Bits {
    words: Vec<u64>,
    /// Which words are not 0.
    summary: Vec<u64>,
    /// All words of `summary` before this one are 0.
    from: usize,
    len: usize,
}

impl Bits {
    pub(crate) const fn new() -> Bits {
        Bits { words: Vec::new(), summary: Vec::new(), from: 0, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn contains(&self, i: usize) -> bool {
        self.word(i / WORD) & 1 << (i % WORD) != 0
    }

    pub(crate) fn insert(&mut self, i: usize) {
        self.set_word(i / WORD, self.word(i / WORD) | 1 << (i % WORD));
    }

    pub(crate) fn remove(&mut self, i: usize) {
        self.set_word(i / WORD, self.word(i / WORD) & !(1 << (i % WORD)));
    }

    /// Takes out the least.
    pub(crate) fn pop_first(&mut self) -> Option<usize> {
        let w = self.first_word()?;
        let i = w * WORD + self.words[w].trailing_zeros() as usize;
        self.remove(i);
        Some(i)
    }

    /// Numbers from `WORD * w` on, as bits.
    pub(crate) fn word(&self, w: usize) -> u64 {
        self.words.get(w).copied().unwrap_or(0)
    }

    pub(crate) fn set_word(&mut self, w: usize, to: u64) {
        if w >= self.words.len() {
            if to == 0 {
                return;
            }
            self.words.resize(w + 1, 0);
            self.summary.resize(w / WORD + 1, 0);
        }
        let old = std::mem::replace(&mut self.words[w], to);
        self.len = self.len + to.count_ones() as usize - old.count_ones() as usize;
        let (at, bit) = (w / WORD, 1 << (w % WORD));
        if to != 0 {
            self.summary[at] |= bit;
            self.from = self.from.min(at);
        } else {
            self.summary[at] &= !bit;
        }
    }

    /// The first word that is not 0.
    pub(crate) fn first_word(&mut self) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        while self.summary[self.from] == 0 {
            self.from += 1;
        }
        Some(self.from * WORD + self.summary[self.from].trailing_zeros() as usize)
    }

    /// A copy of the set, word by word.
    pub(crate) fn words(&self) -> Vec<u64> {
        self.words.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn agrees_with_a_set_of_std() {
        let mut rng = Rng::new(7);
        // Within one word, within one of the summary's, and beyond.
        for below in [10, 64, 65, 4096, 4097, 100_000] {
            let (mut bits, mut set) = (Bits::new(), BTreeSet::new());
            assert_eq!(bits.pop_first(), None);
            for _ in 0..if cfg!(miri) { 200 } else { 20_000 } {
                let i = rng.below(below);
                match rng.below(5) {
                    0 | 1 => {
                        bits.insert(i);
                        set.insert(i);
                    }
                    2 => {
                        bits.remove(i);
                        set.remove(&i);
                    }
                    3 => assert_eq!(bits.pop_first(), set.pop_first()),
                    _ => assert_eq!(bits.contains(i), set.contains(&i)),
                }
                assert_eq!(bits.len(), set.len());
            }
            while let Some(i) = set.pop_first() {
                assert_eq!(bits.pop_first(), Some(i));
            }
            assert_eq!((bits.pop_first(), bits.first_word()), (None, None));
        }
    }
}
