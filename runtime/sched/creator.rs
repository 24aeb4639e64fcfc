//! Where goroutines were made: the stack of each `go`, when the program asks for it.
//!
//! The place of the call is always known. Its callers cost a walk of the stack (5 ns per frame) and a look-up under a
//! lock that all spawns share: a quarter more for a spawn from a shallow stack on one P, more from a deep one. So they are
//! remembered only on request: `RT_CREATOR_STACKS=1` or
//! [`Config::creator_stacks`](crate::Config::creator_stacks). (A trace has them in any case, with each goroutine's creation.)
//!
//! - CS1: a stack, once remembered, is never freed or changed: a goroutine and whoever prints it hold plain references.
//! - CS2: equal stacks are remembered once, and at most [`STACKS_MAX`] of them. A program has as many as it has ways to a
//!   `go`; where recursion makes more, the later goroutines come without.
//! - CS3: the lock is taken inside the border by goroutines that make others; nothing under it calls the program, and
//!   nothing waits.

use std::collections::HashSet;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tracer::unwind::{self, Cache, Method, Regs};

use crate::sched::g::G;

/// Frames kept of a stack.
const FRAMES_MAX: usize = 32;
/// Stacks kept: at most 1 MiB.
const STACKS_MAX: usize = 4096;

/// Return addresses, innermost first.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct CreatorStack(Box<[usize]>);

impl CreatorStack {
    pub(crate) fn pcs(&self) -> &[usize] {
        &self.0
    }
}

impl std::borrow::Borrow<[usize]> for &'static CreatorStack {
    fn borrow(&self) -> &[usize] {
        &self.0
    }
}

static ON: AtomicBool = AtomicBool::new(false);
static TABLE: LazyLock<Mutex<Table>> =
    LazyLock::new(|| Mutex::new(Table { stacks: HashSet::new(), cache: Cache::new() }));

struct Table {
    stacks: HashSet<&'static CreatorStack>,
    cache: Cache,
}

/// Remembers stacks from now on, or no longer.
pub(crate) fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// What the environment says.
pub(crate) fn from_environment() -> bool {
    std::env::var_os("RT_CREATOR_STACKS").is_some_and(|v| v == "1")
}

/// The stack of `g`, which is the caller and makes a goroutine at `regs`; `None` where stacks are not remembered.
#[inline]
pub(crate) fn of(g: &G, regs: Regs) -> Option<&'static CreatorStack> {
    if !ON.load(Ordering::Relaxed) {
        return None;
    }
    remember(g, regs)
}

#[cold]
fn remember(g: &G, regs: Regs) -> Option<&'static CreatorStack> {
    let mut frames = [0; FRAMES_MAX];
    let mut table = TABLE.lock(); // CS3
    // SAFETY: the registers are of a frame of the caller's, which is alive, on its own stack, which ends above walk_end().
    let n = unsafe { unwind::walk_by(Method::Dwarf, regs, g.walk_end(), &mut table.cache, &mut frames) };
    let pcs = &frames[..n];
    if pcs.is_empty() {
        return None;
    }
    if let Some(&known) = table.stacks.get(pcs) {
        return Some(known);
    }
    if table.stacks.len() >= STACKS_MAX {
        return None; // CS2
    }
    let stack: &'static CreatorStack = Box::leak(Box::new(CreatorStack(pcs.into()))); // CS1
    table.stacks.insert(stack);
    Some(stack)
}
