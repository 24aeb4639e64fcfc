//! Signals that end the process, for whoever wants a word before (see [`tripwire`]): SIGABRT, SIGILL, SIGFPE. SIGSEGV and SIGBUS are
//! [`overflow`](crate::stack::overflow)'s, which asks here too.
//!
//! - FA1: the handlers are installed when the first such wish is uttered, over what is there then, and stay. While nobody wishes for anything
//!   they do nothing but what was there before.
//! - FA2: after the word, what was there before has its turn: a handler is called, and without one the signal has its default meaning again
//!   and is raised anew. A signal that was ignored is left alone from the start.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Once;

use crate::sched::tripwire;

const SIGNALS: [libc::c_int; 3] = [libc::SIGABRT, libc::SIGILL, libc::SIGFPE];

struct Previous(UnsafeCell<MaybeUninit<[libc::sigaction; SIGNALS.len()]>>);
// SAFETY: an entry is written before the handler that reads it is installed, once.
unsafe impl Sync for Previous {}
static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));

/// Installs the handlers, once (FA1).
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for (i, &signal) in SIGNALS.iter().enumerate() {
            // SAFETY: sigaction reads and writes the structs it is given. The entry is written before its handler can run, and
            // all zeros are a sigaction. The handler is async-signal-safe.
            unsafe {
                let previous = &raw mut (*(*PREVIOUS.0.get()).as_mut_ptr())[i];
                if libc::sigaction(signal, std::ptr::null(), previous) != 0 || (*previous).sa_sigaction == libc::SIG_IGN
                {
                    continue;
                }
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&mut action.sa_mask);
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
        }
    });
}

/// Whether this is our handler.
pub(crate) fn is_handler(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler as *const () as usize
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo for SA_SIGINFO.
    if tripwire::fatal(signal, false, unsafe { tripwire::was_sent(info) }) {
        return;
    }
    let i = SIGNALS.iter().position(|&s| s == signal).unwrap_or(0);
    // SAFETY: the entry was written before this handler was installed. FA2: a function of the kind that its flags tell, called with what
    // the kernel gave; or the default, for a signal that is blocked until this handler returns.
    unsafe {
        let previous = (&raw const (*(*PREVIOUS.0.get()).as_ptr())[i]).read();
        match previous.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &default, std::ptr::null_mut());
                libc::raise(signal);
            }
            f if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let f: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = std::mem::transmute(f);
                f(signal, info, context);
            }
            f => {
                let f: extern "C" fn(libc::c_int) = std::mem::transmute(f);
                f(signal);
            }
        }
    }
}
