//! Stack overflow: a fault in a guard becomes a report, then the signal's usual end.
//!
//! - O-1: the handler runs on an alternate stack, which every M has. It takes no lock and allocates nothing: the faulting code
//!   may have been in the allocator. It notes what it knows, wakes sysmon, and waits for it to print; if sysmon does not come
//!   back in time, it prints the bare addresses itself.
//! - O-2: a fault elsewhere is not ours: the handler that was there before gets it (std's, which reports overflows of
//!   threads' own stacks).
//! - O-3: in between, whoever has set a tripwire for it has its moment.

use std::cell::UnsafeCell;
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tracer::unwind::{self, Cache, Regs};

use crate::sched::g::G;
use crate::sched::state::Status;
use crate::sched::{dump, sysmon, tripwire};
use crate::stack::arena::{ARENA, guard_bytes};
use crate::stack::header;

const FRAMES_MAX: usize = 96;

const NONE: u32 = 0;
const ASKED: u32 = 1;
const PRINTED: u32 = 2;

/// The one fault that is reported; a second thread that faults meanwhile waits for the end of the process.
struct Fault {
    taken: AtomicBool,
    state: AtomicU32,
    g: UnsafeCell<Option<&'static G>>,
    len: AtomicUsize,
    frames: UnsafeCell<[usize; FRAMES_MAX]>,
    cache: UnsafeCell<Option<Cache>>,
}

// SAFETY: the cells are written by the thread that won `taken`, and read by sysmon after `state` says ASKED (Release,
// Acquire); the cache is made before the handler is installed.
unsafe impl Sync for Fault {}

static FAULT: Fault = Fault {
    taken: AtomicBool::new(false),
    state: AtomicU32::new(NONE),
    g: UnsafeCell::new(None),
    len: AtomicUsize::new(0),
    frames: UnsafeCell::new([0; FRAMES_MAX]),
    cache: UnsafeCell::new(None),
};

struct Previous(UnsafeCell<MaybeUninit<[libc::sigaction; 2]>>);
// SAFETY: written once, before the handlers that read it are installed.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));

const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Installs the handler. Once, before the first M.
pub(crate) fn install() {
    unwind::method();
    // SAFETY: called once, before the handler can run: nobody else touches the cells.
    unsafe {
        *FAULT.cache.get() = Some(Cache::new());
        let previous = (*PREVIOUS.0.get()).assume_init_mut();
        for (i, &signal) in SIGNALS.iter().enumerate() {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(signal, &action, &mut previous[i]);
        }
    }
}

/// Gives the calling thread an alternate stack for the handler, for ever.
pub(crate) fn alternate_stack() {
    const BYTES: usize = 64 << 10;
    // SAFETY: an anonymous mapping of our own, handed to the kernel and never unmapped. An M's thread never ends.
    unsafe {
        let p = libc::mmap(
            std::ptr::null_mut(),
            BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        if p == libc::MAP_FAILED {
            return; // An overflow will then end the process without a report.
        }
        let stack = libc::stack_t { ss_sp: p, ss_flags: 0, ss_size: BYTES };
        libc::sigaltstack(&stack, std::ptr::null_mut());
    }
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo and context for SA_SIGINFO.
    let (address, regs) = unsafe { ((*info).si_addr() as usize, regs_of(context)) };
    // SAFETY: only looked at when the stack pointer, too, lies in that stack: then it is in use.
    let overflow = unsafe { faulted(address, regs.sp) };
    if let Some(g) = overflow {
        report(g, regs);
    }
    // O-3
    // SAFETY: as above.
    if tripwire::fatal(signal, overflow.is_some(), unsafe { tripwire::was_sent(info) }) {
        return;
    }
    // O-2, and the end of our own case: whatever was there before takes it from here.
    // SAFETY: written by install() before the handler was installed.
    let previous = unsafe { (*PREVIOUS.0.get()).assume_init_ref() };
    let i = SIGNALS.iter().position(|&s| s == signal).unwrap_or(0);
    // SAFETY: re-installs a disposition the kernel gave us; the fault happens again and meets it.
    unsafe {
        if FAULT.taken.load(Ordering::Relaxed) || previous[i].sa_sigaction == libc::SIG_IGN {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &default, std::ptr::null_mut());
            // The guard is open, so the instruction would succeed if it ran again. The signal is blocked until this handler
            // returns, and ends the process then.
            libc::raise(signal);
        } else if previous[i].sa_sigaction == libc::SIG_DFL {
            libc::sigaction(signal, &previous[i], std::ptr::null_mut());
        } else if previous[i].sa_flags & libc::SA_SIGINFO != 0 {
            let f: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(previous[i].sa_sigaction);
            f(signal, info, context);
        } else {
            let f: extern "C" fn(libc::c_int) = std::mem::transmute(previous[i].sa_sigaction);
            f(signal);
        }
    }
}

/// The goroutine whose guard was hit.
///
/// # Safety
///
/// Both addresses come from a fault of the calling thread.
unsafe fn faulted(address: usize, sp: usize) -> Option<&'static G> {
    // The stack pointer of an overflow lies in the guard or just above it, in the same stack.
    // SAFETY: the thread runs on that stack, so it was handed out.
    let h = unsafe { header::of_fault(sp) }?;
    let low = sp & !(h.class.bytes() - 1);
    if address < low || address >= low + guard_bytes() {
        return None;
    }
    h.g.get()
}

fn report(g: &'static G, regs: Regs) {
    if FAULT.taken.swap(true, Ordering::SeqCst) {
        // Another thread is reporting; the process is about to end.
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let end = g.walk_end();
    let low = g.stack.get().map_or(usize::MAX, |s| s.low());
    // The stack pointer may lie in the guard: a walk from there must not fault. The goroutine does not go on anyway.
    let readable = ARENA.open_guard(low);
    // SAFETY: `taken` was won, so the cells are ours. The stack is mapped from `low` up, now that the guard is open.
    unsafe {
        *FAULT.g.get() = Some(g);
        let frames = &mut *FAULT.frames.get();
        let n = match &mut *FAULT.cache.get() {
            Some(cache) if readable && regs.sp >= low => {
                unwind::walk_by(unwind::Method::Dwarf, regs, end, cache, frames)
            }
            _ => {
                frames[0] = regs.pc;
                1
            }
        };
        // Addresses are looked up as return addresses, one before; this one is exact.
        frames[0] += 1;
        // The switch to the M's stack pushes without telling the unwinder. Then the goroutine does not count as running any
        // more, and has just said where it stands.
        let stopped = matches!(g.state.status(), Status::Waiting | Status::Runnable);
        let n = match (g.stands_in(regs.sp, end), &mut *FAULT.cache.get()) {
            (Some(stands), Some(cache)) if stopped && readable => {
                unwind::walk_by(unwind::Method::Dwarf, stands, end, cache, frames)
            }
            _ => n,
        };
        FAULT.len.store(n, Ordering::Relaxed);
    }
    FAULT.state.store(ASKED, Ordering::Release);
    sysmon::wake_for_signal();
    for _ in 0..300 {
        if FAULT.state.load(Ordering::Acquire) == PRINTED {
            return;
        }
        // SAFETY: nanosleep is async-signal-safe; the pointer is to a live timespec.
        unsafe {
            libc::nanosleep(&libc::timespec { tv_sec: 0, tv_nsec: 10_000_000 }, std::ptr::null_mut());
        }
    }
    bare();
}

/// Sysmon's half: prints the report if a fault waits for one.
pub(crate) fn report_pending() {
    if FAULT.state.load(Ordering::Acquire) != ASKED {
        return;
    }
    // SAFETY: ASKED was seen: the faulting thread has written the cells and waits.
    let (g, frames) = unsafe { ((*FAULT.g.get()).expect("set"), &*FAULT.frames.get()) };
    let pcs = &frames[..FAULT.len.load(Ordering::Relaxed)];
    let mut text = String::new();
    // SAFETY: N2: the goroutine runs on the M that faulted, and waits for us.
    let name = unsafe { g.name() }.map(|n| format!(" {n:?}")).unwrap_or_default();
    text.push_str(&format!(
        "fatal error: stack overflow\n\ngoroutine {}{name} has used up its stack of {} bytes; give it a larger one with \
         rt::Builder::new().stack_size(BYTES)\n\n",
        g.id(),
        g.class.get().bytes()
    ));
    dump::stack(&mut text, pcs);
    if pcs.len() == FRAMES_MAX {
        text.push_str("...more frames\n");
    }
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
    FAULT.state.store(PRINTED, Ordering::Release);
}

/// The report of last resort: no allocation, no lock.
fn bare() {
    let mut buf = [0u8; 4096];
    let mut out = &mut buf[..];
    // SAFETY: `taken` is ours, and sysmon only reads.
    let (g, frames) = unsafe { (*FAULT.g.get(), &*FAULT.frames.get()) };
    let pcs = &frames[..FAULT.len.load(Ordering::Relaxed)];
    let id = g.map_or(0, |g| g.id());
    let bytes = g.map_or(0, |g| g.class.get().bytes());
    let _ = writeln!(out, "fatal error: stack overflow\n\ngoroutine {id} has used up its stack of {bytes} bytes");
    for pc in pcs {
        let _ = writeln!(out, "\t{pc:#x}");
    }
    let rest = out.len();
    let len = buf.len() - rest;
    // SAFETY: write is async-signal-safe; the buffer is live.
    unsafe { libc::write(2, buf.as_ptr().cast(), len) };
}

/// The registers at the fault.
///
/// # Safety
///
/// `context` is the kernel's ucontext of a signal.
unsafe fn regs_of(context: *mut libc::c_void) -> Regs {
    #[cfg(target_os = "linux")]
    // SAFETY: passed on to the caller.
    return unsafe { Regs::from_signal(context) };
    #[cfg(not(target_os = "linux"))]
    {
        let _ = context;
        Regs::default()
    }
}
