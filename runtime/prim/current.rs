//! The goroutine that the calling thread runs, in a register's reach.
//!
//! A thread-local word that is read and written by address-free instructions: one load relative to the thread pointer, done
//! anew each time. A Rust `thread_local!` would not do: the compiler may keep its *address*, and after a goroutine has moved to
//! another thread that is the old thread's.
//!
//! - U1: the word is set by the M around each resume, so it holds the goroutine while that runs, on whatever stack: its own, or one
//!   that the program switched to (a nested coroutine, a stack that grows on demand).
//! - U3: the word is a symbol of the program's, with gort's version in its name. rustc does not export such symbols from a Rust
//!   `dylib`, so gort cannot be inside one; `cdylib`s and programs are fine.
//! - U2: each access is an `asm!` block that is not `pure`: it is executed where it stands, as often as it stands there.
//!
//! Elsewhere than on ELF systems with x86-64 or aarch64 there is no such word ([`HAS_WORD`]); the caller finds itself by its stack
//! pointer.

/// Whether there is a word.
pub(crate) const HAS_WORD: bool =
    cfg!(all(any(target_os = "linux", target_os = "freebsd"), any(target_arch = "x86_64", target_arch = "aarch64")));

// Global, so that code that is inlined into other crates reaches it; in the initial-exec model, so that it works in programs and
// in shared libraries that are loaded with them.
#[cfg(all(any(target_os = "linux", target_os = "freebsd"), any(target_arch = "x86_64", target_arch = "aarch64")))]
std::arch::global_asm!(
    ".pushsection .tbss.gort_0_1_current_goroutine,\"awT\",@nobits",
    ".globl gort_0_1_current_goroutine",
    ".type gort_0_1_current_goroutine, @object",
    ".size gort_0_1_current_goroutine, 8",
    ".p2align 3",
    "gort_0_1_current_goroutine:",
    ".zero 8",
    ".popsection",
);

/// The word of the calling thread: 0 if it runs no goroutine.
#[inline(always)]
pub(crate) fn get() -> usize {
    // Miri runs no assembly, and so no goroutines.
    if cfg!(miri) {
        return 0;
    }
    let word: usize;
    #[cfg(all(any(target_os = "linux", target_os = "freebsd"), target_arch = "x86_64"))]
    // SAFETY: reads a word of the thread's own static block (U2).
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + gort_0_1_current_goroutine@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) word,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(all(any(target_os = "linux", target_os = "freebsd"), target_arch = "aarch64"))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "adrp {1}, :gottprel:gort_0_1_current_goroutine",
            "ldr {1}, [{1}, :gottprel_lo12:gort_0_1_current_goroutine]",
            "mrs {0}, tpidr_el0",
            "ldr {0}, [{0}, {1}]",
            out(reg) word,
            out(reg) _,
            options(nostack, preserves_flags, readonly),
        );
    }
    #[cfg(not(all(
        any(target_os = "linux", target_os = "freebsd"),
        any(target_arch = "x86_64", target_arch = "aarch64")
    )))]
    {
        word = 0;
    }
    word
}

/// Sets the word of the calling thread. By an M, on its own stack (U1).
#[inline(always)]
pub(crate) fn set(word: usize) {
    #[cfg(all(any(target_os = "linux", target_os = "freebsd"), target_arch = "x86_64"))]
    // SAFETY: writes a word of the thread's own static block, which nothing but this file knows.
    unsafe {
        std::arch::asm!(
            "mov {0}, qword ptr [rip + gort_0_1_current_goroutine@GOTTPOFF]",
            "mov qword ptr fs:[{0}], {1}",
            out(reg) _,
            in(reg) word,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(all(any(target_os = "linux", target_os = "freebsd"), target_arch = "aarch64"))]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "adrp {1}, :gottprel:gort_0_1_current_goroutine",
            "ldr {1}, [{1}, :gottprel_lo12:gort_0_1_current_goroutine]",
            "mrs {0}, tpidr_el0",
            "str {2}, [{0}, {1}]",
            out(reg) _,
            out(reg) _,
            in(reg) word,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(all(
        any(target_os = "linux", target_os = "freebsd"),
        any(target_arch = "x86_64", target_arch = "aarch64")
    )))]
    let _ = word;
}
