//! The rules that a thread has met, and the walk by them.

use super::Regs;
use super::modules::{self, Modules};
use super::rule::Rule;
use super::stack::Stack;
use super::tables::{Context, Decoded, decode};

/// Sets of two entries: 16 KiB. With one entry per set, a third of all stacks of 30 frames would have two that drive each
/// other out, at a hundred times the cost of a hit.
const SETS: usize = 512;

#[derive(Clone, Copy)]
struct Entry {
    /// The PC (less one for a return address) that the rule is for; 0: none.
    pc: usize,
    rule: Rule,
}

const EMPTY: Entry = Entry { pc: 0, rule: Rule::END_OF_STACK };

/// Decoded unwind rules, and room for decoding more, for one walker: one per thread, and another one for its signal
/// handlers, which may interrupt a walk.
///
/// 22 KiB on the heap; a walk with it allocates nothing.
pub struct Cache {
    sets: Box<[[Entry; 2]; SETS]>,
    /// The list of modules that the entries come from.
    modules: Option<&'static Modules>,
    context: Box<Context>,
}

impl Cache {
    /// An empty cache. Does what must be done once before the first walk ([`super::method`]).
    pub fn new() -> Cache {
        super::method();
        Cache::unprobed()
    }

    /// An empty cache, for the probe.
    pub(super) fn unprobed() -> Cache {
        // Made on the heap, not on what may be a goroutine's small stack.
        let sets = vec![[EMPTY; 2]; SETS].into_boxed_slice();
        Cache {
            sets: sets.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for")),
            modules: modules::current(),
            context: Box::new(Context::new_in()),
        }
    }

    /// Forgets everything when the list of modules has changed: other code may be at the same addresses now.
    #[inline]
    fn follow(&mut self, modules: Option<&'static Modules>) {
        let id = |m: Option<&'static Modules>| m.map_or(std::ptr::null(), std::ptr::from_ref);
        if id(self.modules) != id(modules) {
            self.sets.fill([EMPTY; 2]);
            self.modules = modules;
        }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Cache::new()
    }
}

/// What is remembered is the address to look up: of an innermost frame its PC, of a caller the call (U5).
#[inline(always)]
fn lookup(pc: usize, innermost: bool) -> usize {
    if innermost { pc } else { pc - 1 }
}

/// Writes `regs.pc` and the return addresses that the unwind tables lead to into `out`; returns how many.
#[inline]
pub(super) fn walk(regs: Regs, stack: Stack, cache: &mut Cache, out: &mut [usize]) -> usize {
    let Some((first, callers)) = out.split_first_mut() else { return 0 };
    cache.follow(modules::current());
    *first = regs.pc;
    let Regs { mut pc, mut sp, mut fp, .. } = regs;
    let mut n = 1;
    for caller in callers {
        let at = lookup(pc, n == 1);
        let entry = &cache.sets[at % SETS][0];
        if entry.pc == at && !entry.rule.is_special() {
            let Some(next) = entry.rule.step(sp, fp, stack) else { break };
            (pc, sp, fp) = next;
        } else {
            // A copy, so that the registers need not live in memory otherwise.
            let mut regs = Regs { pc, sp, fp, lr: if n == 1 { regs.lr } else { 0 } };
            if !slow_step(cache, &mut regs, n == 1, stack) {
                break;
            }
            (pc, sp, fp) = (regs.pc, regs.sp, regs.fp);
        }
        *caller = pc;
        n += 1;
    }
    n
}

/// A step whose rule is special, unknown, or the second of its set; whether there was one.
#[cold]
#[inline(never)]
fn slow_step(cache: &mut Cache, regs: &mut Regs, innermost: bool, stack: Stack) -> bool {
    let Cache { sets, modules, context } = cache;
    let at = lookup(regs.pc, innermost);
    let set = &mut sets[at % SETS];
    let rule = if let Some(known) = set.iter().find(|entry| entry.pc == at) {
        known.rule
    } else {
        match decode(*modules, context, at, *regs, innermost, stack) {
            Decoded::Rule(rule) => {
                *set = [Entry { pc: at, rule }, set[0]];
                rule
            }
            Decoded::RuleOnce(rule) => rule,
            Decoded::Caller(next) => return next.map(|next| *regs = next).is_some(),
        }
    };
    let Some(next) = rule.apply(*regs, innermost, stack) else { return false };
    *regs = next;
    // A guess may lead into the middle of data: believe it only if it found code.
    !rule.is_guess() || modules.is_some_and(|m| m.find(next.pc - 1).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PCs that share a set drive each other out, and are found again.
    #[test]
    fn full_sets() {
        super::super::refresh_modules();
        let mut cache = Cache::new();
        let words = [0usize; 4];
        let base = words.as_ptr().expose_provenance();
        // SAFETY: the array, which outlives the value.
        let stack = unsafe { Stack::new(base, base + size_of_val(&words)) };
        // Code nowhere: the rules are guesses, remembered all the same.
        let pcs = [1, 2, 3].map(|i| 0x7000 + i * SETS);
        for pc in pcs {
            let mut regs = Regs { pc, sp: base, fp: 0, lr: 0 };
            assert!(!slow_step(&mut cache, &mut regs, true, stack));
        }
        let set = cache.sets[0x7000 % SETS];
        assert_eq!(set.map(|e| e.pc), [pcs[2], pcs[1]], "the newest two");
        cache.follow(None);
        assert!(cache.sets.iter().flatten().all(|e| e.pc == 0), "a change of modules empties the cache");
    }
}
