//! The words at the top of every stack, and the way from the stack pointer to them.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use crate::coro::Coro;
use crate::prim::current;
use crate::sched::g::G;
use crate::stack::arena::ARENA;
use crate::stack::{CLASS_BYTES, Class};

/// What lies at the top of a stack.
#[repr(C, align(64))]
pub(crate) struct Header {
    /// The goroutine that owns the stack now; written by whoever owns the stack (A4).
    pub(crate) g: Cell<Option<&'static G>>,
    pub(crate) class: Class,
    /// The coroutine that lives on this stack, from its first use until it is made anew.
    pub(crate) coro: UnsafeCell<MaybeUninit<Coro>>,
    pub(crate) has_coro: Cell<bool>,
}

// One line of the cache, so that a switch misses once.
const _: () = assert!(size_of::<Header>() == 64);

/// A stack, by its header. Stacks are never unmapped, so the reference is good for ever; who may use what is behind it is
/// A4's business.
#[derive(Clone, Copy)]
pub(crate) struct StackRef(&'static Header);

// SAFETY: a StackRef is moved between threads together with the ownership of the stack (A4), which the queues and locks
// that carry it hand over with acquire and release.
unsafe impl Send for StackRef {}

impl StackRef {
    /// The stack whose lowest address is `low`.
    ///
    /// # Safety
    ///
    /// `low` is the low end of a stack of the arena whose memory above the guard is readable and writable, and the caller
    /// owns it.
    pub(crate) unsafe fn init(low: usize, class: Class) -> StackRef {
        let header = header_at(low).expect("a stack of the arena").cast_mut();
        // SAFETY: the memory is mapped, aligned (colours are multiples of 64) and owned by the caller.
        unsafe {
            header.write(Header {
                g: Cell::new(None),
                class,
                coro: UnsafeCell::new(MaybeUninit::uninit()),
                has_coro: Cell::new(false),
            });
            StackRef(&*header)
        }
    }

    pub(crate) fn header(self) -> &'static Header {
        self.0
    }

    /// One past the highest address that the goroutine's frames use: where the header begins.
    pub(crate) fn top(self) -> usize {
        std::ptr::from_ref(self.0) as usize
    }

    /// The lowest address, guard included.
    pub(crate) fn low(self) -> usize {
        self.low_of(self.0.class)
    }

    /// As [`StackRef::low`], of a stack that is known to be of this class.
    #[inline]
    pub(crate) fn low_of(self, class: Class) -> usize {
        self.top() & !(class.bytes() - 1)
    }
}

/// The stack pointer of the calling function.
#[inline(always)]
fn stack_pointer() -> usize {
    let sp: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: copies a register; no memory, no stack, no flags.
    unsafe {
        std::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("mov {}, sp", out(reg) sp, options(nomem, nostack, preserves_flags));
    }
    sp
}

/// The header of the stack that holds the address, if the arena does.
#[inline(always)]
fn header_at(address: usize) -> Option<*const Header> {
    // ORDER: Acquire; pairs with the Release in Arena::init(): with the size comes the base.
    let bytes = ARENA.bytes.load(Ordering::Acquire);
    let offset = address.wrapping_sub(ARENA.base.load(Ordering::Relaxed));
    if offset >= bytes {
        return None;
    }
    let class = (offset >> ARENA.region_shift.load(Ordering::Relaxed)) & 3;
    let top = (address | (CLASS_BYTES[class] - 1)) + 1;
    let colour = (offset >> CLASS_SHIFT[class]) % COLOURS * COLOUR_BYTES;
    Some((top - colour - size_of::<Header>()) as *const Header)
}

/// log2 of the class sizes.
const CLASS_SHIFT: [u32; 4] = {
    let mut shift = [0; 4];
    let mut i = 0;
    while i < 4 {
        shift[i] = CLASS_BYTES[i].trailing_zeros();
        i += 1;
    }
    shift
};

/// Neighbouring stacks begin at different places in their top page, so that what every switch touches does not all fall into
/// the same set of the first-level cache (A5). Half a page, so that a small goroutine still needs one page.
const COLOURS: usize = 32;
const COLOUR_BYTES: usize = 64;

/// The goroutine that the calling thread runs: from its word, or, where threads have none, from the stack pointer (A1).
#[inline(always)]
pub(crate) fn current_g() -> Option<&'static G> {
    if current::HAS_WORD {
        let g = std::ptr::with_exposed_provenance::<G>(current::get());
        // SAFETY: null or a G, which is never freed.
        unsafe { g.as_ref() }
    } else {
        g_of_stack()
    }
}

/// The goroutine on whose stack the caller runs (A1).
fn g_of_stack() -> Option<&'static G> {
    let header = header_at(stack_pointer())?;
    // SAFETY: the caller runs on this stack, so its top is mapped and initialised, and its goroutine is bound.
    unsafe { (*header).g.get() }
}

/// The header of the stack that holds `address`, for the fault handler.
///
/// # Safety
///
/// Only when `address` is known to lie in a stack that was handed out.
pub(crate) unsafe fn of_fault(address: usize) -> Option<&'static Header> {
    let header = header_at(address)?;
    // SAFETY: passed on to the caller.
    Some(unsafe { &*header })
}
