//! Coroutines: the only file that knows corosensei.
//!
//! ```text
//!    M's own stack (g0)                      goroutine's stack
//!    schedule                                Header { g, coro }               top
//!      execute(g)  -- resume(stack) -->      body: loop {
//!                                               sched::main(g)   the goroutine's whole life
//!      ... goes on <-- suspend(stack) --         suspend         (the goroutine has ended)
//!                                            }                   resumed again with the next goroutine in Header.g
//! ```
//!
//! - C1: a coroutine outlives its goroutines: its body loops, for as long as its stack is warm. So a goroutine on a warm stack costs
//!   two switches and no set-up.
//! - C2: a coroutine is resumed by the M that owns the goroutine (Running), never while it runs: the scheduler publishes a
//!   goroutine only after the switch.
//! - C3: a coroutine is never dropped. Dropping a suspended one would unwind it with a panic that a user's catch_unwind
//!   swallows. It owns no memory but its stack: between two goroutines it may be forgotten, with all that is on the stack (A6).
//! - C4: no panic reaches the body: `sched::main` catches them.

use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::sched::g::G;
use crate::stack::header::StackRef;

pub(crate) type Coro = Coroutine<(), (), (), StackRef>;

// SAFETY: A stack of the arena has a guard at its low end (A2), far more than the minimum of usable bytes, and addresses
// aligned to 64 bytes at both ends.
unsafe impl Stack for StackRef {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.top()).expect("stacks do not lie at address zero")
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.low()).expect("stacks do not lie at address zero")
    }
}

/// Runs the stack's goroutine until it suspends. Called on an M's own stack.
///
/// # Safety
///
/// The caller owns the stack, whose `g` is set, and its coroutine is not running (C2).
#[inline]
pub(crate) unsafe fn resume(stack: StackRef) {
    let h = stack.header();
    if !h.has_coro.get() {
        // SAFETY: the caller owns the stack; nothing else refers to the cell.
        unsafe { (*h.coro.get()).write(Coroutine::with_stack(stack, move |y, ()| body(y, stack))) };
        h.has_coro.set(true);
    }
    // SAFETY: initialised above or before; C2.
    let coro = unsafe { (*h.coro.get()).assume_init_mut() };
    match coro.resume(()) {
        CoroutineResult::Yield(()) => {}
        CoroutineResult::Return(()) => unreachable!("a coroutine's body does not return"),
    }
}

fn body(yielder: &Yielder<(), ()>, stack: StackRef) {
    let h = stack.header();
    loop {
        let g = h.g.get().expect("a resumed stack has a goroutine");
        g.yielder.set(std::ptr::from_ref(yielder).cast());
        crate::sched::life::main(g);
        yielder.suspend(());
    }
}

/// Switches from the goroutine to its M's own stack; returns when the goroutine is resumed, maybe on another M.
///
/// # Safety
///
/// The caller runs on g's stack.
#[inline]
pub(crate) unsafe fn suspend(g: &'static G) {
    // SAFETY: the body stored the address of its yielder, which lives as long as the coroutine (C3).
    let yielder = unsafe { &*g.yielder.get().cast::<Yielder<(), ()>>() };
    yielder.suspend(());
}
