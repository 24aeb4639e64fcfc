//! The memory of one stack: the only place where a walk reads what it does not own.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::recall::{Trail, Use};

/// Bytes of a word.
pub(super) const WORD: usize = size_of::<usize>();

/// A readable range of addresses, the frames of one stack.
#[derive(Clone, Copy)]
pub(super) struct Stack<'a> {
    low: usize,
    high: usize,
    /// Who wants to know what is read.
    trail: Option<&'a Trail>,
}

impl<'a> Stack<'a> {
    /// The stack between `low` and `high`; empty when they are the wrong way round.
    ///
    /// # Safety
    /// Every whole, aligned word of `[low, high)` stays readable and (being a stack) writable as long as the value is used.
    /// Other threads may write there all the while.
    pub(super) unsafe fn new(low: usize, high: usize) -> Stack<'a> {
        Stack { low, high: high.max(low), trail: None }
    }

    /// As [`Stack::new`], and tells `trail` of each word that is read.
    ///
    /// # Safety
    /// As for [`Stack::new`].
    pub(super) unsafe fn noted(low: usize, high: usize, trail: &'a Trail) -> Stack<'a> {
        Stack { low, high: high.max(low), trail: Some(trail) }
    }

    /// The word at `addr`; `None` when it is misaligned or not all of it lies in the range.
    #[inline(always)]
    pub(super) fn read(self, addr: usize) -> Option<usize> {
        let word = self.peek(addr)?;
        if let Some(trail) = self.trail {
            trail.read(addr, word, Use::Any);
        }
        Some(word)
    }

    /// As [`Stack::read`], of a word that is used as a return address and nothing else.
    #[inline(always)]
    pub(super) fn read_return(self, addr: usize) -> Option<usize> {
        let word = self.peek(addr)?;
        if let Some(trail) = self.trail {
            trail.read(addr, word, Use::Return);
        }
        Some(word)
    }

    #[inline(always)]
    fn peek(self, addr: usize) -> Option<usize> {
        // Below `low` the difference wraps and is large.
        if !addr.is_multiple_of(WORD) || addr.wrapping_sub(self.low) >= (self.high - self.low).saturating_sub(WORD - 1)
        {
            return None;
        }
        // SAFETY: the word is aligned and inside the range by the check above, and accessible by the promise to new().
        Some(unsafe { reread(addr) })
    }

    /// As [`Stack::read`], of a caller's frame pointer, which may turn out not to matter.
    #[inline(always)]
    pub(super) fn read_fp(self, addr: usize) -> Option<usize> {
        let word = self.peek(addr)?;
        if let Some(trail) = self.trail {
            trail.found_fp(addr, word);
        }
        Some(word)
    }

    /// Something is computed from what was read, and from more than distances.
    pub(super) fn computes(self) {
        if let Some(trail) = self.trail {
            trail.is_here_only();
        }
    }

    /// The frame pointer, as it was given or found last, matters.
    #[inline(always)]
    pub(super) fn uses_fp(self) {
        if let Some(trail) = self.trail {
            trail.uses_fp();
        }
    }

    /// The end of the range.
    #[inline(always)]
    pub(super) fn high(self) -> usize {
        self.high
    }
}

/// The word at `addr`, which [`Stack::read`] has read before or could read.
///
/// # Safety
/// `addr` is aligned, and the word there readable and writable memory of a stack.
#[inline(always)]
pub(super) unsafe fn reread(addr: usize) -> usize {
    let word = std::ptr::with_exposed_provenance_mut::<usize>(addr);
    // SAFETY: passed on to the caller. A thread that runs on this stack may write it meanwhile, which is why the load is
    // atomic: it may bring an old or a new word, nothing worse. (Its plain stores race with it in the language's eyes; as with
    // every sampling profiler, that is settled by the machine: an aligned word is read whole.)
    // ORDER: Relaxed; a torn stack gives wrong frames, which the walk's own bounds make harmless.
    unsafe { AtomicUsize::from_ptr(word) }.load(Ordering::Relaxed)
}

/// The lowest and the end of the addresses that code can have: nothing lives in the first page, and user space ends here.
const CODE: std::ops::Range<usize> = 4096..1 << if cfg!(target_arch = "aarch64") { 48 } else { 47 };

/// A return address as it was found on a stack, without its signature (pointer authentication); `None` if nothing can
/// return there.
#[inline(always)]
pub(super) fn code_address(word: usize) -> Option<usize> {
    let pc = if cfg!(target_arch = "aarch64") { word & (CODE.end - 1) } else { word };
    CODE.contains(&pc).then_some(pc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_only_whole_aligned_words_inside() {
        let mut words = [10usize, 11, 12, 13];
        let base = words.as_mut_ptr().expose_provenance();
        // SAFETY: the range is inside the array.
        let stack = unsafe { Stack::new(base + WORD, base + 3 * WORD) };
        assert_eq!([1, 2].map(|i| stack.read(base + i * WORD)), [Some(11), Some(12)]);
        for outside in [base, base + 3 * WORD, base + WORD + 1, base + 2 * WORD + 4, 0, usize::MAX, usize::MAX - 7] {
            assert_eq!(stack.read(outside), None, "{outside:#x}");
        }
        // SAFETY: as above.
        let ragged = unsafe { Stack::new(base + 3, base + 2 * WORD - 1) };
        assert!((base - 16..base + 48).all(|a| ragged.read(a).is_none()), "no whole word fits");
        // SAFETY: an empty range.
        let reversed = unsafe { Stack::new(base + WORD, base) };
        assert!((base - 16..base + 48).all(|a| reversed.read(a).is_none()));
    }

    #[test]
    fn code_addresses() {
        assert_eq!(code_address(0), None);
        assert_eq!(code_address(4095), None);
        assert_eq!(code_address(0x5555_5555_1234), Some(0x5555_5555_1234));
        if cfg!(target_arch = "x86_64") {
            assert_eq!(code_address(usize::MAX), None);
            assert_eq!(code_address(1 << 47), None);
        } else {
            assert_eq!(code_address(0x00a5_5555_5555_1234), Some(0x5555_5555_1234));
        }
    }
}
