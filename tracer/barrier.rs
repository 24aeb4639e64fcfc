//! The asymmetric fence: free for the side that crosses often, dear for the side that visits seldom.
//!
//! A store-then-load pair on two threads needs a full fence on both. Where one side runs millions of times a second
//! and the other a few times, the kernel can run the fence on behalf of the fast one: `membarrier(PRIVATE_EXPEDITED)`
//! makes every running thread of the process pass a full barrier before it returns.
//!
//! - B1: the fast side calls [`light`] between its store and its load; the slow side calls [`heavy`] between its own.
//!   Then at least one of the two sees the other's store.
//! - B2: the choice between membarrier and fences is made once, by [`init`], which MUST come before the first [`heavy`] of the process.
//!   Until then the fast side uses real fences, which is correct together with either choice. A heavy fence of before the choice would
//!   not be, together with a light one of after it.
//!
//! `RT_BORDER=fence` forces the fences, so that tests run both.

use crate::atomic::{AtomicU8, Ordering, fence};

/// How the two sides are kept in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The slow side asks the kernel; the fast side pays a compiler fence.
    Membarrier,
    /// Both sides pay a sequentially consistent fence.
    Fence,
}

const FENCE: u8 = 0;
const MEMBARRIER: u8 = 1;

#[cfg(not(loom))]
static KIND: AtomicU8 = AtomicU8::new(FENCE);

/// Chooses the kind for the whole process. Called once, before the runtime starts its threads; later calls change
/// nothing, since [`crate::barrier`] may be in use.
pub fn init() -> Kind {
    #[cfg(not(loom))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            let forced = std::env::var("RT_BORDER").ok();
            match forced.as_deref() {
                Some("fence") => {}
                None | Some("") | Some("membarrier") => {
                    if register_membarrier() {
                        KIND.store(MEMBARRIER, Ordering::SeqCst);
                    } else if forced.as_deref() == Some("membarrier") {
                        eprintln!("gort: RT_BORDER=membarrier: this kernel has no membarrier(2); using fences");
                    }
                }
                Some(other) => {
                    eprintln!(
                        "gort: RT_BORDER={other}: want \"membarrier\" or \"fence\"; choosing by what the kernel has"
                    );
                    if register_membarrier() {
                        KIND.store(MEMBARRIER, Ordering::SeqCst);
                    }
                }
            }
        });
    }
    kind()
}

/// The kind in force.
pub fn kind() -> Kind {
    #[cfg(not(loom))]
    if KIND.load(Ordering::Relaxed) == MEMBARRIER {
        return Kind::Membarrier;
    }
    Kind::Fence
}

/// The fast side's half: between its store and its load.
#[inline(always)]
pub fn light() {
    #[cfg(not(loom))]
    if KIND.load(Ordering::Relaxed) == MEMBARRIER {
        // ORDER: pairs with heavy(): the kernel runs the fence here when the other side asks for it.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        return;
    }
    fence(Ordering::SeqCst);
}

/// As [`light`], for a caller that keeps the kind with its data. It MUST have asked for it, at whatever time: a fence too many does no harm.
#[inline(always)]
pub fn light_as(kind: Kind) {
    match kind {
        // ORDER: as in light().
        Kind::Membarrier => std::sync::atomic::compiler_fence(std::sync::atomic::Ordering::SeqCst),
        Kind::Fence => fence(Ordering::SeqCst),
    }
}

/// The slow side's half: between its store and its load.
pub fn heavy() {
    // ORDER: SeqCst; pairs with light(). The fence is kept beside membarrier for this thread's own store-load pair.
    fence(Ordering::SeqCst);
    #[cfg(not(loom))]
    if KIND.load(Ordering::Relaxed) == MEMBARRIER {
        membarrier();
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
fn register_membarrier() -> bool {
    const QUERY: libc::c_int = 0;
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;
    // SAFETY: membarrier takes integers only and touches no memory of ours.
    let supported = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0, 0) };
    if supported < 0 || supported & libc::c_long::from(PRIVATE_EXPEDITED) == 0 {
        return false;
    }
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
}

#[cfg(all(target_os = "linux", not(loom)))]
fn membarrier() {
    const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    // SAFETY: as above.
    let r = unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
    assert_eq!(r, 0, "membarrier(PRIVATE_EXPEDITED) failed after it was registered");
}

#[cfg(all(not(target_os = "linux"), not(loom)))]
fn register_membarrier() -> bool {
    false
}

#[cfg(all(not(target_os = "linux"), not(loom)))]
fn membarrier() {}
