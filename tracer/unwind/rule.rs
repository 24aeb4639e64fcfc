//! What a row of an unwind table says, in eight bytes.
//!
//! Nearly all rows say the same three things: where the frame ends (its *CFA*: the caller's stack pointer), where the
//! return address is, and where the caller's frame pointer is. All compilers for x86-64 and aarch64 express them as a
//! register plus a constant, and two slots at constant distances from the CFA. That is a [`Rule`]; whatever says more is
//! evaluated anew each time (tables.rs).

use super::Regs;
use super::stack::{Stack, WORD, code_address};

/// How to get from a frame to its caller's. Distances are in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub(super) struct Rule {
    /// CFA = the base register + this.
    cfa: u16,
    /// The caller's frame pointer is at CFA + this, if RESTORE_FP.
    fp: i16,
    /// The return address is at CFA + this, unless RA_IN_LR or END. (Always the word below the CFA on x86-64.)
    ra: i16,
    flags: u16,
}

impl Rule {
    /// The base register is the frame pointer, not the stack pointer.
    const FROM_FP: u16 = 1;
    /// The frame pointer was saved; otherwise the caller's is the same.
    const RESTORE_FP: u16 = 2;
    /// The return address is still in the link register (aarch64, innermost frame).
    const RA_IN_LR: u16 = 4;
    /// This frame has no caller.
    const END: u16 = 8;
    /// Not from a table: what it yields must be checked.
    const GUESS: u16 = 16;
    /// The bits above are the cache's (cache.rs).
    const HINT_SHIFT: u32 = 5;

    /// This frame has no caller.
    pub(super) const END_OF_STACK: Rule = Rule { cfa: 0, fp: 0, ra: 0, flags: Rule::END };

    /// The chain of frame pointers: for code without a table.
    pub(super) const CHAIN: Rule =
        Rule { cfa: 2, fp: -2, ra: -1, flags: Rule::FROM_FP | Rule::RESTORE_FP | Rule::GUESS };

    /// The first instruction of a function without a table: nothing was pushed yet.
    pub(super) const ENTRY: Rule = if cfg!(target_arch = "aarch64") {
        Rule { cfa: 0, fp: 0, ra: 0, flags: Rule::RA_IN_LR | Rule::GUESS }
    } else {
        Rule { cfa: 1, fp: 0, ra: -1, flags: Rule::GUESS }
    };

    /// A rule from a table, distances in bytes. `fp`: where the caller's frame pointer was saved, relative to the CFA;
    /// `ra`: where the return address is, or `None` for the link register. `None` if it does not fit.
    pub(super) fn new(from_fp: bool, cfa: i64, fp: Option<i64>, ra: Option<i64>) -> Option<Rule> {
        if cfg!(target_arch = "x86_64") && ra != Some(-(WORD as i64)) {
            return None;
        }
        let words = |bytes: i64| (bytes % WORD as i64 == 0).then_some(bytes / WORD as i64);
        let slot = |bytes: Option<i64>| i16::try_from(words(bytes.unwrap_or(0))?).ok();
        Some(Rule {
            cfa: u16::try_from(words(cfa)?).ok()?,
            fp: slot(fp)?,
            ra: slot(ra)?,
            flags: if from_fp { Rule::FROM_FP } else { 0 }
                | if fp.is_some() { Rule::RESTORE_FP } else { 0 }
                | if ra.is_none() { Rule::RA_IN_LR } else { 0 },
        })
    }

    /// Whether the frame that it yields must be checked, as nobody has vouched for the rule.
    pub(super) fn is_guess(self) -> bool {
        self.flags & Rule::GUESS != 0
    }

    /// The rule as it holds for this frame: a caller is past the point where its return address was in the link register
    /// only, so that a rule which says so is incomplete (hand-written code's), and the frame record is the best there is.
    pub(super) fn in_place(self, innermost: bool) -> Rule {
        if self.flags & Rule::RA_IN_LR != 0 && !innermost { Rule::CHAIN } else { self }
    }

    /// A number below 2,048 that the rule carries for its owner.
    #[inline(always)]
    pub(super) fn hint(self) -> usize {
        usize::from(self.flags >> Rule::HINT_SHIFT)
    }

    /// Changes the number.
    #[inline(always)]
    pub(super) fn set_hint(&mut self, hint: usize) {
        self.flags = self.flags & ((1 << Rule::HINT_SHIFT) - 1) | (hint as u16) << Rule::HINT_SHIFT;
    }

    /// Whether it takes more than [`Rule::step`].
    #[inline(always)]
    pub(super) fn is_special(self) -> bool {
        self.flags & (Rule::RA_IN_LR | Rule::END | Rule::GUESS) != 0
    }

    /// The caller's pc, sp and fp by a rule that [is not special](Rule::is_special). `None` where belief ends.
    ///
    /// Plain values, not [`Regs`], so that a walk keeps them in registers: its speed is the latency of this.
    #[inline(always)]
    pub(super) fn step(self, sp: usize, fp: usize, stack: Stack) -> Option<(usize, usize, usize)> {
        let at = |cfa: usize, words: i16| cfa.wrapping_add_signed(isize::from(words) * WORD as isize);
        let base = if self.flags & Rule::FROM_FP != 0 { fp } else { sp };
        if self.flags & Rule::FROM_FP != 0 {
            stack.uses_fp();
        }
        let cfa = base.wrapping_add(usize::from(self.cfa) * WORD);
        // U2
        if cfa <= sp || cfa > stack.high() {
            return None;
        }
        let ra = stack.read_return(at(cfa, if cfg!(target_arch = "x86_64") { -1 } else { self.ra }))?;
        let fp = if self.flags & Rule::RESTORE_FP != 0 { stack.read_fp(at(cfa, self.fp))? } else { fp };
        Some((code_address(ra)?, cfa, fp))
    }

    /// The caller's registers, by any rule [in its place](Rule::in_place). `None` at the end of the stack, or where belief
    /// ends.
    pub(super) fn apply(self, regs: Regs, innermost: bool, stack: Stack) -> Option<Regs> {
        if self.flags & Rule::END != 0 {
            return None;
        }
        if self.flags & Rule::RA_IN_LR == 0 {
            let (pc, sp, fp) = self.step(regs.sp, regs.fp, stack)?;
            return Some(Regs { pc, sp, fp, lr: 0 });
        }
        let base = if self.flags & Rule::FROM_FP != 0 { regs.fp } else { regs.sp };
        if self.flags & Rule::FROM_FP != 0 {
            stack.uses_fp();
        }
        let sp = base.wrapping_add(usize::from(self.cfa) * WORD);
        let saved = sp.wrapping_add_signed(isize::from(self.fp) * WORD as isize);
        let fp = if self.flags & Rule::RESTORE_FP != 0 { stack.read_fp(saved)? } else { regs.fp };
        let to = Regs { pc: code_address(regs.lr)?, sp, fp, lr: 0 };
        leads_up(regs, innermost, to, stack).then_some(to)
    }
}

/// Whether a step from a frame to its caller's leads up, and not out of the stack (U2).
pub(super) fn leads_up(from: Regs, innermost: bool, to: Regs, stack: Stack) -> bool {
    // A leaf function on aarch64 may have an empty frame, once.
    let empty = cfg!(target_arch = "aarch64") && innermost && to.sp == from.sp;
    (to.sp > from.sp || empty) && to.sp <= stack.high()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(words: &mut [usize]) -> (usize, Stack<'_>) {
        let base = words.as_mut_ptr().expose_provenance();
        // SAFETY: the range is the slice, which outlives the test's use.
        (base, unsafe { Stack::new(base, base + size_of_val(words)) })
    }

    #[test]
    fn from_sp_and_from_fp() {
        let mut words = [0, 7777, 0x5000, 3, 0, 0x6000];
        let (base, stack) = stack(&mut words);
        let at = |i: usize| base + i * WORD;
        let regs = Regs { pc: 0x4000, sp: at(0), fp: at(4), lr: 0 };
        let sub_sp = Rule::new(false, 24, None, Some(-8)).unwrap();
        assert_eq!(sub_sp.apply(regs, true, stack), Some(Regs { pc: 0x5000, sp: at(3), fp: at(4), lr: 0 }));
        let pushed = Rule::new(false, 24, Some(-16), Some(-8)).unwrap();
        assert_eq!(pushed.apply(regs, true, stack), Some(Regs { pc: 0x5000, sp: at(3), fp: 7777, lr: 0 }));
        let framed = Rule::new(true, 16, Some(-16), Some(-8)).unwrap();
        assert_eq!(framed.apply(regs, false, stack), Some(Regs { pc: 0x6000, sp: at(6), fp: 0, lr: 0 }));
    }

    #[test]
    fn must_lead_up_and_stay_inside() {
        let mut words = [0x5000; 6];
        let (base, stack) = stack(&mut words);
        let regs = Regs { pc: 0x4000, sp: base + 16, fp: base, lr: 0x5000 };
        assert_eq!(Rule::new(true, 16, Some(-16), Some(-8)).unwrap().apply(regs, false, stack), None, "sp must grow");
        assert_eq!(Rule::new(false, 40, None, Some(-8)).unwrap().apply(regs, false, stack), None, "above the stack");
        assert_eq!(Rule::END_OF_STACK.apply(regs, true, stack), None);
        let in_lr = Rule { cfa: 2, fp: 0, ra: 0, flags: Rule::RA_IN_LR };
        assert!(in_lr.in_place(true).apply(regs, true, stack).is_some());
        assert_eq!(in_lr.in_place(false), Rule::CHAIN, "a caller has no lr");
        let wild = Regs { fp: usize::MAX - 8, ..regs };
        assert_eq!(Rule::CHAIN.apply(wild, false, stack), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert_eq!(Rule::new(false, 12, None, Some(-8)), None);
        assert_eq!(Rule::new(false, -8, None, Some(-8)), None);
        assert_eq!(Rule::new(false, 32, None, Some(-16)).is_some(), cfg!(target_arch = "aarch64"));
        assert_eq!(Rule::new(false, 65_536 * 8, None, Some(-8)), None);
        assert_eq!(Rule::new(false, 16, Some(-8 * 40_000), Some(-8)), None);
        assert!(Rule::new(false, 65_535 * 8, Some(-8 * 32_768), Some(-8)).is_some());
    }
}
