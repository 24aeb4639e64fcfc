//! Which method this program allows: decided once, by trying.
//!
//! Whether frames have frame pointers depends on the flags that the final program was built with, which neither this
//! crate's source nor its build can know (and std, which is built with them, proves nothing about the rest). So the first
//! call runs a chain of small functions of ours, whose addresses are known, walks the stack from the innermost, and asks
//! of each method whether it finds them, in order. Functions of this crate stand for all: `-C force-frame-pointers` comes
//! in RUSTFLAGS or in Cargo's configuration, for the whole program.
//!
//! Frame pointers win when both work: they cost a third. (They lose frames in C code that was built without them, such as
//! a callback from qsort; the tables do not.)
//!
//! Rejected: trusting the program's debug information (DW_AT_producer), which may be missing, or a Cargo feature, which
//! would be wrong half the time.

use super::cache::{self, Cache};
use super::stack::Stack;
use super::{Method, Regs, frame_pointers, modules};
use std::hint::black_box;
use std::sync::atomic::{AtomicU8, Ordering};

/// Overrides the probe: off, fp or dwarf.
const VARIABLE: &str = "RT_TRACE_STACKS";

/// 0: not chosen yet; else 1 + Method.
static METHOD: AtomicU8 = AtomicU8::new(0);

/// How stacks are walked in this process.
///
/// Chosen by the first call, which allocates and takes the dynamic loader's lock (some 100 microseconds); after that, one
/// load. The environment variable RT_TRACE_STACKS (`off`, `fp` or `dwarf`) decides, otherwise a probe: frame pointers if
/// the program was built with them, else unwind tables.
#[inline]
pub fn method() -> Method {
    // ORDER: Relaxed; the list of modules is published on its own, and a walk that does not see it yet is merely short.
    decode(METHOD.load(Ordering::Relaxed)).unwrap_or_else(choose)
}

fn decode(chosen: u8) -> Option<Method> {
    match chosen {
        0 => None,
        1 => Some(Method::Off),
        2 => Some(Method::FramePointers),
        _ => Some(Method::Dwarf),
    }
}

#[cold]
#[inline(never)]
fn choose() -> Method {
    modules::refresh_modules();
    let wish = std::env::var_os(VARIABLE).unwrap_or_default();
    let method = match wish.to_str() {
        Some("off") => Method::Off,
        Some("fp") => Method::FramePointers,
        Some("dwarf") if modules::current().is_some() => Method::Dwarf,
        Some("") => probe(),
        Some("dwarf") => {
            eprintln!("gort: {VARIABLE}=dwarf: unwind tables cannot be found on this system; choosing automatically");
            probe()
        }
        _ => {
            eprintln!("gort: {VARIABLE}={}: expected off, fp or dwarf; choosing automatically", wish.display());
            probe()
        }
    };
    // ORDER: Relaxed; two first callers choose alike.
    METHOD.store(method as u8 + 1, Ordering::Relaxed);
    method
}

/// The best method that works.
pub(super) fn probe() -> Method {
    let works = |method| finds_chain(method);
    [Method::FramePointers, Method::Dwarf].into_iter().find(|&m| works(m)).unwrap_or(Method::Off)
}

/// No function of the chain is longer, in bytes.
const FUNCTION_BYTES_MAX: usize = 1024;

/// Whether `method` finds the chain of functions below.
pub(super) fn finds_chain(method: Method) -> bool {
    // The chain's frames lie below this local's: the range between is stack, mapped, ours.
    let top = black_box(0usize);
    let end = (&raw const top).expose_provenance();
    let mut pcs = [0; 4];
    let n = outer(black_box(method), black_box(end), &mut pcs);
    let chain = [innermost as *const () as usize, inner as *const () as usize, outer as *const () as usize];
    n >= 3 && pcs.iter().zip(chain).all(|(&pc, function)| (function..function + FUNCTION_BYTES_MAX).contains(&pc))
}

// Each function has work to do after its call, so that no call can be a jump, and takes what the optimiser cannot know, so
// that it makes no special copy.

#[inline(never)]
fn outer(method: Method, end: usize, pcs: &mut [usize; 4]) -> usize {
    let n = inner(black_box(method), black_box(end), pcs);
    black_box(n) + black_box(0)
}

#[inline(never)]
fn inner(method: Method, end: usize, pcs: &mut [usize; 4]) -> usize {
    let n = innermost(black_box(method), black_box(end), pcs);
    black_box(n) + black_box(0)
}

#[inline(never)]
fn innermost(method: Method, end: usize, pcs: &mut [usize; 4]) -> usize {
    let regs = Regs::here();
    let n = walk(method, regs, end, pcs);
    black_box(n) + black_box(0)
}

#[inline(never)]
fn walk(method: Method, regs: Regs, end: usize, pcs: &mut [usize; 4]) -> usize {
    // SAFETY: from the frame of `innermost` up to the local of `finds_chain`, both alive: this thread's stack.
    let stack = unsafe { Stack::new(regs.sp, end) };
    match method {
        Method::Off => 0,
        Method::FramePointers => frame_pointers::walk(regs, stack, pcs),
        Method::Dwarf => cache::walk(regs, stack, &mut Cache::unprobed(), pcs),
    }
}
