//! Stacks as ids in a generation's table. Most walks are those of a moment ago, and are remembered.

use std::mem::MaybeUninit;

use crate::record::{tables, wants_stacks};
use crate::unwind::{self, Regs};
use crate::wire::MAX_FRAMES;

/// What walks stacks: its memory, and room for one walk.
pub struct StackWalker {
    /// From the first walk on.
    memory: Option<(unwind::Cache, unwind::Recall)>,
    frames: [MaybeUninit<usize>; MAX_FRAMES],
    words: [u64; MAX_FRAMES],
}

impl StackWalker {
    /// One that remembers nothing.
    pub const fn new() -> StackWalker {
        StackWalker { memory: None, frames: [const { MaybeUninit::uninit() }; MAX_FRAMES], words: [0; MAX_FRAMES] }
    }

    /// Records the stack of a frame that is alive in a generation's table and answers its id, 0 for none.
    ///
    /// # Safety
    ///
    /// `r#gen` is not closed. `regs` was taken on the stack that ends at `top`, in a frame that still lives and stays so for this call, and
    /// that stack stays mapped.
    #[inline(always)]
    pub unsafe fn stack(&mut self, r#gen: u64, regs: Regs, top: usize) -> u64 {
        if let Some((_, recall)) = &self.memory
            // SAFETY: passed on to the caller.
            && let Some(id) = unsafe { recall.recall(r#gen, &regs, top) }
        {
            return u64::from(id);
        }
        // SAFETY: passed on to the caller.
        unsafe { self.walk(r#gen, regs, top) }
    }

    /// A stack that is not remembered.
    ///
    /// # Safety
    ///
    /// As for [`StackWalker::stack`].
    #[inline(never)]
    unsafe fn walk(&mut self, r#gen: u64, regs: Regs, top: usize) -> u64 {
        if let Some((_, recall)) = &self.memory
            // SAFETY: passed on to the caller.
            && let Some(id) = unsafe { recall.recall_beside(r#gen, &regs, top) }
        {
            return u64::from(id);
        }
        if !wants_stacks() || unwind::method() == unwind::Method::Off || regs.pc == 0 {
            return 0;
        }
        if self.memory.is_none() {
            self.begin();
        }
        let Some((cache, recall)) = &mut self.memory else { return 0 };
        // SAFETY: the array is plain memory; walk writes before anything is read.
        let frames: &mut [usize; MAX_FRAMES] = unsafe { &mut *self.frames.as_mut_ptr().cast() };
        // SAFETY: passed on to the caller.
        let n = unsafe { recall.walk(regs, top, cache, frames) };
        for (w, &f) in self.words.iter_mut().zip(&frames[..n]) {
            *w = f as u64;
        }
        let id = tables(r#gen).stacks.put(&self.words[..n]);
        if id != 0 {
            recall.remember(r#gen, &regs, top, id);
        }
        u64::from(id)
    }

    /// Makes the memory. Apart, because it passes over the stack, and a frame with room for it would make the first walk on each goroutine's stack
    /// touch a page more.
    #[cold]
    #[inline(never)]
    fn begin(&mut self) {
        self.memory = Some((unwind::Cache::new(), unwind::Recall::new()));
    }
}

impl Default for StackWalker {
    fn default() -> StackWalker {
        StackWalker::new()
    }
}
