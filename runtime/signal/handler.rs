//! What a signal does to the process: its disposition, and the handler that [`notify`](super::notify) installs.
//!
//! This file has the unsafe code for signals that programs listen to, but for two system calls of the bell's pipe.
//!
//! - H1: the handler sets a bit, rings the [bell](super::bell), and calls the handler that was there before ours. It takes no lock,
//!   allocates nothing, and keeps `errno`.
//! - H2: a handler that was there before ours goes on being called, as the convention is among libraries. Not the runtime's own for
//!   SIGQUIT and SIGABRT, which would end the process.
//! - H3: what [`PREVIOUS`] points to is never freed, for a handler that reads it may be held up for as long as it likes. A place takes new
//!   memory only if it has to say something new.
//! - H4: when nobody listens any more, the disposition is put back, unless somebody has installed a handler over ours. It is presumed that
//!   such a one calls ours, as ours calls others: so it is left alone (`covered`), ours is not installed a second time over it, and
//!   PREVIOUS is not changed any more. Otherwise the two would call each other for ever.
//!
//! Rejected: signal-hook-registry, whose handler stays for good. A process that has listened to SIGTERM once would then not end by
//! it any more, and an ignored signal would not be ignored by the programs it runs.

use std::io;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use super::bell::Bell;
use super::number::{NUMBERS, Set, Signal};
use crate::sched::{fatal, quit};

/// Signals that came and were not seen to yet.
static PENDING: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Which handler is called after ours (H2).
static PREVIOUS: [AtomicPtr<libc::sigaction>; NUMBERS] = [const { AtomicPtr::new(null_mut()) }; NUMBERS];

/// Rings when signals are pending.
pub(super) static BELL: Bell = Bell::new();

/// The signals that came, which are now the caller's to see to.
pub(super) fn take_pending() -> Set {
    // ORDER: Acquire; pairs with the handler's Release. The bell orders them already; this is for looks without one.
    let [low, high] = PENDING.each_ref().map(|word| u128::from(word.swap(0, Ordering::Acquire)));
    Set(low | high << 64)
}

extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the thread's own errno.
    let before = unsafe { *errno() };
    let (word, bit) = (&PENDING[signal as usize / 64], 1 << (signal % 64));
    // Whoever has set the bit rings, or has rung.
    if word.fetch_or(bit, Ordering::Release) & bit == 0 {
        BELL.ring();
    }
    // ORDER: Acquire; pairs with Release in install_previous().
    let previous = PREVIOUS[signal as usize].load(Ordering::Acquire);
    // SAFETY: H3: it is null or lives for ever. It is a function of the kind that its flags tell (see `is_function`), called with what the
    // kernel gave, on the same stack.
    unsafe {
        if let Some(previous) = previous.as_ref() {
            if previous.sa_flags & libc::SA_SIGINFO != 0 {
                let f: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(previous.sa_sigaction);
                f(signal, info, context);
            } else {
                let f: extern "C" fn(libc::c_int) = std::mem::transmute(previous.sa_sigaction);
                f(signal);
            }
        }
        *errno() = before;
    }
}

/// Where the thread's errno is.
fn errno() -> *mut libc::c_int {
    #[cfg(any(target_os = "solaris", target_os = "illumos"))]
    use libc::___errno as location;
    #[cfg(any(target_os = "android", target_os = "netbsd", target_os = "openbsd"))]
    use libc::__errno as location;
    #[cfg(any(target_os = "linux", target_os = "emscripten", target_os = "redox", target_os = "hurd"))]
    use libc::__errno_location as location;
    #[cfg(any(target_vendor = "apple", target_os = "freebsd", target_os = "dragonfly"))]
    use libc::__error as location;
    // SAFETY: it has no arguments and cannot fail.
    unsafe { location() }
}

/// What is wanted of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Want {
    /// What there was before.
    Original,
    /// Our handler.
    Handled,
    Ignored,
}

/// One signal's disposition, as far as it is our affair.
pub(super) struct Disposition {
    signal: Signal,
    now: Want,
    /// What was there when ours was installed, and is called after it.
    base: libc::sigaction,
    /// While ignored: what would be there otherwise. Never ours.
    instead: libc::sigaction,
    /// H4
    covered: bool,
}

impl Disposition {
    pub(super) fn new(signal: Signal) -> Disposition {
        Disposition { signal, now: Want::Original, base: default(), instead: default(), covered: false }
    }

    pub(super) fn is(&self, what: Want) -> bool {
        self.now == what
    }

    /// Makes it so. An error leaves everything as it was.
    pub(super) fn change(&mut self, want: Want) -> io::Result<()> {
        if self.now == want {
            return Ok(());
        }
        let current = get(self.signal)?;
        let ignored_by_us = self.now == Want::Ignored && current.sa_sigaction == libc::SIG_IGN;
        // What would be there if we did not ignore it.
        let below = if ignored_by_us { self.instead } else { current };
        let ours = is_ours(&below);
        let covered = is_function(&below) && !ours && (self.covered || self.now == Want::Handled);
        let without_us = if ours { self.base } else { below };
        let mut base = self.base;
        let next = match want {
            Want::Original => without_us,
            Want::Ignored => with(libc::SIG_IGN, 0),
            Want::Handled if covered || ours => below,
            Want::Handled => {
                base = below;
                self.install_previous(&base);
                let mut action =
                    with(handler as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART);
                if is_function(&base) {
                    action.sa_mask = base.sa_mask;
                }
                action
            }
        };
        if next.sa_sigaction != current.sa_sigaction {
            put(self.signal, &next)?;
        }
        *self = Disposition { signal: self.signal, now: want, base, instead: without_us, covered };
        Ok(())
    }

    /// Sees to it that ours will call this (H2, H3). It is not installed now.
    fn install_previous(&self, base: &libc::sigaction) {
        let previous = &PREVIOUS[self.signal.index()];
        let new = (is_function(base) && !quit::is_handler(base) && !fatal::is_handler(base)).then_some(base);
        // SAFETY: H3.
        if !same(new, unsafe { previous.load(Ordering::Relaxed).as_ref() }) {
            let new = new.map_or(null_mut(), |new| Box::into_raw(Box::new(*new)));
            // ORDER: Release; pairs with Acquire in handler().
            previous.store(new, Ordering::Release);
        }
    }
}

/// Sends a signal to this process.
pub(super) fn send_to_self(signal: Signal) -> io::Result<()> {
    // SAFETY: both calls take and give integers.
    match unsafe { libc::kill(libc::getpid(), signal.as_raw()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Whether the signal has its default meaning now.
pub(super) fn is_default(signal: Signal) -> bool {
    get(signal).is_ok_and(|now| now.sa_sigaction == libc::SIG_DFL)
}

/// Whether the signal is ignored now.
pub(super) fn is_ignored(signal: Signal) -> bool {
    get(signal).is_ok_and(|now| now.sa_sigaction == libc::SIG_IGN)
}

fn default() -> libc::sigaction {
    with(libc::SIG_DFL, 0)
}

fn with(function: libc::sighandler_t, flags: libc::c_int) -> libc::sigaction {
    // SAFETY: all zeros are a sigaction: the default, without flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = function;
    action.sa_flags = flags;
    // SAFETY: the set is alive.
    unsafe { libc::sigemptyset(&mut action.sa_mask) };
    action
}

fn get(signal: Signal) -> io::Result<libc::sigaction> {
    let mut now = default();
    // SAFETY: nothing is set; the struct is written to.
    match unsafe { libc::sigaction(signal.as_raw(), std::ptr::null(), &mut now) } {
        0 => Ok(now),
        _ => Err(io::Error::last_os_error()),
    }
}

fn put(signal: Signal, action: &libc::sigaction) -> io::Result<()> {
    // SAFETY: the struct is read. Its function is our handler, which is async-signal-safe (H1), or one that was installed before.
    match unsafe { libc::sigaction(signal.as_raw(), action, null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn is_ours(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler as *const () as usize
}

fn is_function(action: &libc::sigaction) -> bool {
    action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN
}

/// Whether the same handler would be called in the same way.
fn same(a: Option<&libc::sigaction>, b: Option<&libc::sigaction>) -> bool {
    let essence = |action: &libc::sigaction| (action.sa_sigaction, action.sa_flags & libc::SA_SIGINFO);
    a.map(essence) == b.map(essence)
}
