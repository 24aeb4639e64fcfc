//! Where a walk starts: the program counter, stack pointer and frame pointer of one frame.
//!
//! The only file of this module with inline assembly.

/// The registers that describe one frame well enough to unwind from it.
///
/// All four belong to one instruction: the one at `pc`. `Default` (all zero) is no frame: walking it yields nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regs {
    /// Program counter. From [`Regs::here`] both `pc` and `pc - 1` lie inside the function that called it, so that such
    /// a `pc` may be symbolised like a return address; from a signal context it is exact.
    pub pc: usize,
    /// Stack pointer.
    pub sp: usize,
    /// Frame pointer register (rbp, x29), whether or not the program uses it as one.
    pub fp: usize,
    /// Link register (x30) on aarch64; 0 on x86-64.
    pub lr: usize,
}

impl Regs {
    /// The registers of the calling function, F, at this point in it.
    ///
    /// They stay valid for unwinding as long as F's frame lives: F may call functions, and may even be suspended by a
    /// stack switch inside one, because the unwind table describes F at `pc`, the slots it names lie at or above `sp`,
    /// and no callee writes there.
    ///
    /// Costs three register moves and one address computation.
    #[inline(always)]
    pub fn here() -> Regs {
        // A frameless fast path before F's prologue ("shrink wrapping") would record F's caller's frame pointer. Taking
        // the address of a stack slot is what tells LLVM that the prologue must come first.
        let anchor = core::mem::MaybeUninit::<usize>::uninit();
        let (pc, sp, fp, lr): (usize, usize, usize, usize);
        #[cfg(target_arch = "x86_64")]
        {
            lr = 0;
            // SAFETY: the block only copies registers into its outputs; it touches no memory (nomem: the anchor's address is
            // named in a comment only), pushes nothing (nostack) and leaves the flags alone (lea and mov do).
            unsafe {
                core::arch::asm!(
                    "/* frame anchor {anchor} */",
                    "lea {pc}, [rip]",
                    "mov {sp}, rsp",
                    "mov {fp}, rbp",
                    anchor = in(reg) anchor.as_ptr().addr(),
                    pc = out(reg) pc,
                    sp = out(reg) sp,
                    fp = out(reg) fp,
                    options(nomem, nostack, preserves_flags),
                );
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            // SAFETY: as above; adr and mov touch neither memory nor flags.
            unsafe {
                core::arch::asm!(
                    "/* frame anchor {anchor} */",
                    "mov {lr}, x30",
                    "adr {pc}, .",
                    "mov {sp}, sp",
                    "mov {fp}, x29",
                    anchor = in(reg) anchor.as_ptr().addr(),
                    pc = out(reg) pc,
                    sp = out(reg) sp,
                    fp = out(reg) fp,
                    lr = out(reg) lr,
                    options(nomem, nostack, preserves_flags),
                );
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        compile_error!("gort-tracer can walk stacks on x86_64 and aarch64 only: add Regs::here for this architecture");
        Regs { pc, sp, fp, lr }
    }
    /// The registers of what a signal interrupted; `context` is the handler's third argument. `pc` is exact here: see
    /// the field.
    ///
    /// # Safety
    /// `context` is that argument, in that handler.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub unsafe fn from_signal(context: *const libc::c_void) -> Regs {
        // SAFETY: the kernel passes a ucontext_t to handlers installed with SA_SIGINFO, by the caller's promise.
        let machine = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext };
        #[cfg(target_arch = "x86_64")]
        {
            let register = |r: i32| machine.gregs[r as usize] as usize;
            Regs { pc: register(libc::REG_RIP), sp: register(libc::REG_RSP), fp: register(libc::REG_RBP), lr: 0 }
        }
        #[cfg(target_arch = "aarch64")]
        {
            let register = |r: usize| machine.regs[r] as usize;
            Regs { pc: machine.pc as usize, sp: machine.sp as usize, fp: register(29), lr: register(30) }
        }
    }
}
