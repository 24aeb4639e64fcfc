//! Capturing a stack: cheaply, from the thread itself or from another one, without locks and without memory.
//!
//! A walk starts at the [`Regs`] of a frame that is alive, and ends at the top of the stack that the frame is on. It yields
//! program counters, innermost first; names are somebody else's business (`crate::symbol`), later.
//!
//! ```text
//!   stack_top ->  +----------------+      The walk reads here only, whole words only.
//!                 | entry          |
//!                 | main           |  ^
//!                 | recv           |  |  each frame's sp lies above the last one's
//!   regs.sp   ->  | park  (regs.pc)|  |
//!                 +----------------+
//!                 | callees of park: switch, or code that runs right now
//! ```
//!
//! Two [methods](Method) yield the same frames. *Frame pointers* are a linked list on the stack: two loads per frame, but
//! only if the program was built with them. *Unwind tables* (.eh_frame, which every Rust program has, for panics) say for
//! each instruction where the caller's registers are; decoding takes a quarter of a microsecond, so each walker keeps the
//! decoded rules in its [`Cache`], and a frame costs 4 to 6 ns. A probe decides which one it is, once (probe.rs).
//!
//! Most walks are those of a goroutine that stops where it stopped before. [`Recall`] knows them again by what they read.
//!
//! # Invariants
//! U1  A walk MUST read memory only inside `[regs.sp, stack_top)`, in whole aligned words, atomically. Otherwise it faults
//!     at a guard page, or races with whoever runs on that stack. One function reads: `Stack::read`.
//! U2  A frame's stack pointer MUST lie above the one before it and not above `stack_top`. Otherwise a torn or garbage
//!     stack could keep a walk busy for ever. (One step on aarch64 may stay: a leaf function with an empty frame.)
//! U3  Along frame pointers the same holds of the records.
//! U4  A walk MUST NOT allocate, lock or panic: it runs inside trace events, inside allocators, and in the SIGSEGV handler
//!     on its alternate stack. It needs 4 KiB of stack, without optimisation 12.
//! U5  PCs from [`Regs::here`] and all return addresses are *return addresses* in the sense that `pc - 1` lies in the
//!     instruction of interest. Only a PC from a signal context is exact; who records one should add 1.
//!
//! # Rejected
//! - framehop, which the design began with: 7 to 12 ns per frame, and 40 on stacks where two PCs fall on one slot of its
//!   cache, a fifth of the stacks with 16 frames. Ours is the same idea cut down to three registers, with two entries to a
//!   slot. It serves as the oracle of our tests.
//! - `_Unwind_Backtrace`, `std::backtrace`: 150 ns per frame, and they lock.
//! - Shadow stacks, or instrumenting functions: every call would pay, not every event.

mod cache;
mod frame_pointers;
mod modules;
mod probe;
mod recall;
mod regs;
mod rule;
mod stack;
mod tables;
#[cfg(test)]
mod tests;

pub use cache::Cache;
pub(crate) use modules::{Origin, origin};
pub use modules::{modules_stale, refresh_modules};
pub use probe::method;
pub use recall::Recall;
pub use regs::Regs;

use stack::Stack;

/// How stacks are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Not at all: every walk yields nothing.
    Off,
    /// Along the chain of saved frame pointers.
    FramePointers,
    /// By the unwind tables (.eh_frame), with a cache of decoded rules.
    Dwarf,
}

/// Captures the stack that `regs` is on, by this process's [`method`]: the PC of the innermost frame, then the return
/// addresses of its callers, outermost last, at most `out.len()`. Answers how many.
///
/// Neither allocates nor locks (U4). Where the walk can not go on, it ends early; if the stack changes under it, the frames
/// may be wrong, but nothing else.
///
/// # Safety
/// `[regs.sp, stack_top)` is memory that can be read and written (as stacks are) for the whole call, or empty. It need not
/// hold a stack.
#[inline]
pub unsafe fn walk(regs: Regs, stack_top: usize, cache: &mut Cache, out: &mut [usize]) -> usize {
    // SAFETY: passed on.
    unsafe { walk_by(method(), regs, stack_top, cache, out) }
}

/// [`walk`] by a method of the caller's choice. By `Dwarf`, for instance, a signal handler gets through C code that has no
/// frame pointers.
///
/// # Safety
/// As for [`walk`].
#[inline]
pub unsafe fn walk_by(method: Method, regs: Regs, stack_top: usize, cache: &mut Cache, out: &mut [usize]) -> usize {
    if method == Method::Off || regs.pc == 0 {
        return 0;
    }
    // SAFETY: passed on.
    walk_in(method, regs, unsafe { Stack::new(regs.sp, stack_top) }, cache, out)
}

/// An array that is made on the heap, not on what may be a goroutine's small stack.
fn boxed<T: Copy, const N: usize>(each: T) -> Box<[T; N]> {
    let all = vec![each; N].into_boxed_slice();
    all.try_into().unwrap_or_else(|_| unreachable!("as many as were asked for"))
}

#[inline(always)]
fn walk_in(method: Method, regs: Regs, stack: Stack<'_>, cache: &mut Cache, out: &mut [usize]) -> usize {
    match method {
        Method::Off => 0,
        Method::FramePointers => frame_pointers::walk(regs, stack, out),
        _ => cache::walk(regs, stack, cache, out),
    }
}
