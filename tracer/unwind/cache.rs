//! The rules that a thread has met, and the walk by them.
//!
//! A walk is a chain of loads: the rule for a PC says where the next PC is. To look the rule up by the PC would put the
//! hash and the load of the rule into the chain as well; instead each entry says which entry came next, the last time (its
//! *hint*). The processor goes ahead with that one while the PC is still on its way, and is right as long as a function is
//! called from where it was called last. A wrong hint costs a mispredicted branch, and is corrected.

use super::modules::{self, Modules};
use super::rule::Rule;
use super::stack::Stack;
use super::tables::{Context, Decoded, decode};
use super::{Regs, boxed};

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
/// 20 KiB on the heap; a walk with it allocates nothing.
pub struct Cache {
    entries: Box<[Entry; 2 * SETS]>,
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
        Cache { entries: boxed(EMPTY), modules: modules::current(), context: Box::new(Context::new_in()) }
    }

    /// Forgets everything when the list of modules has changed: other code may be at the same addresses now.
    #[inline]
    fn follow(&mut self, modules: Option<&'static Modules>) {
        let id = |m: Option<&'static Modules>| m.map_or(std::ptr::null(), std::ptr::from_ref);
        if id(self.modules) != id(modules) {
            self.entries.fill(EMPTY);
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

/// The first entry of the set for an address. Functions of one shape lie at regular distances: the high bits must count,
/// too.
#[inline(always)]
fn set_of(at: usize) -> usize {
    (at ^ (at / SETS)) % SETS * 2
}

/// Writes `regs.pc` and the return addresses that the unwind tables lead to into `out`; returns how many.
pub(super) fn walk(regs: Regs, stack: Stack, cache: &mut Cache, out: &mut [usize]) -> usize {
    let Some((first, callers)) = out.split_first_mut() else { return 0 };
    cache.follow(modules::current());
    *first = regs.pc;
    let Regs { mut pc, mut sp, mut fp, .. } = regs;
    let mut index = set_of(pc);
    // `index`: where the rule is expected; `below`: the entry that expects it.
    let (mut n, mut below) = (1, index);
    for caller in callers {
        let at = lookup(pc, n == 1);
        let mut entry = cache.entries[index];
        if entry.pc != at {
            index = set_of(at);
            entry = cache.entries[index];
            if n > 1 {
                cache.entries[below].rule.set_hint(index);
            }
        }
        if entry.pc == at && !entry.rule.is_special() {
            let Some(next) = entry.rule.step(sp, fp, stack) else { break };
            (pc, sp, fp) = next;
            below = index;
            index = entry.rule.hint() % (2 * SETS);
        } else {
            // A copy, so that the registers need not live in memory otherwise.
            let mut regs = Regs { pc, sp, fp, lr: if n == 1 { regs.lr } else { 0 } };
            let Some(found) = slow_step(cache, &mut regs, n == 1, stack) else { break };
            (pc, sp, fp) = (regs.pc, regs.sp, regs.fp);
            if n > 1 {
                cache.entries[below].rule.set_hint(found);
            }
            below = found;
            index = cache.entries[below].rule.hint() % (2 * SETS);
        }
        *caller = pc;
        n += 1;
    }
    n
}

/// A step whose rule is special, unknown, or the second of its set. `None` if there is none; else an entry of the cache, if
/// possible the rule's.
#[cold]
#[inline(never)]
fn slow_step(cache: &mut Cache, regs: &mut Regs, innermost: bool, stack: Stack) -> Option<usize> {
    let Cache { entries, modules, context } = cache;
    let at = lookup(regs.pc, innermost);
    let mut index = set_of(at);
    let rule = if let Some(way) = entries[index..index + 2].iter().position(|entry| entry.pc == at) {
        index += way;
        entries[index].rule
    } else {
        match decode(*modules, context, at, *regs, innermost, stack) {
            Decoded::Rule(rule) => {
                entries[index + 1] = entries[index];
                entries[index] = Entry { pc: at, rule };
                rule
            }
            Decoded::RuleOnce(rule) => rule,
            Decoded::Caller(next) => {
                *regs = next?;
                return Some(index);
            }
        }
    };
    let rule = rule.in_place(innermost);
    *regs = rule.apply(*regs, innermost, stack)?;
    // A guess may lead into the middle of data: believe it only if it found code.
    let believed = !rule.is_guess() || modules.is_some_and(|m| m.find(regs.pc - 1).is_some());
    believed.then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// PCs that share a set drive each other out, and are found again.
    #[test]
    fn full_sets() {
        super::super::refresh_modules();
        let mut cache = Cache::new();
        let mut words = [0usize; 4];
        let base = words.as_mut_ptr().expose_provenance();
        // SAFETY: the array, which outlives the value.
        let stack = unsafe { Stack::new(base, base + size_of_val(&words)) };
        // Code nowhere: the rules are guesses, remembered all the same.
        let pcs = [1, 2, 3].map(|i| (i * SETS) | (i ^ 100));
        for pc in pcs {
            let mut regs = Regs { pc, sp: base, fp: 0, lr: 0 };
            assert!(slow_step(&mut cache, &mut regs, true, stack).is_none());
        }
        assert!(pcs.iter().all(|&pc| set_of(pc) == 200));
        assert_eq!([200, 201].map(|i| cache.entries[i].pc), [pcs[2], pcs[1]], "the newest two");
        cache.follow(None);
        assert!(cache.entries.iter().all(|e| e.pc == 0), "a change of modules empties the cache");
    }
}
