//! Where a running thread stands: asked by a signal, which it answers with its registers and by standing still for a
//! moment.
//!
//! The dump needs it for goroutines in the middle of the program's own code, and nothing else does: scheduling uses no
//! signals.
//!
//! ```text
//!   asker (one at a time)                          the thread, in the handler, on its alternate stack
//!   0 -> ASKED(n);  signal
//!   waits for STANDING(n)                          ASKED(n) -> ANSWERING(n);  writes its registers;  -> STANDING(n)
//!   looks at the thread's stack                    waits while STANDING(n), at most for a second
//!   STANDING(n) -> 0                               or, when it has waited enough: STANDING(n) -> 0
//! ```
//!
//! - Z1: the handler takes no lock and allocates nothing, and keeps `errno`. The thread may have been stopped anywhere,
//!   with any lock held. So the asker, too, MUST NOT take a lock or allocate between STANDING and 0. Otherwise both
//!   would wait.
//! - Z2: whoever moves STANDING(n) to 0 decides: what an asker has seen counts only if it was the asker, for until then
//!   the thread stood still. Nobody waits for ever, and a thread is never left standing.
//! - Z3: an asker that gives up moves ASKED(n) to 0, and a handler that comes late finds nothing to answer. A thread
//!   that is held up in ANSWERING keeps the place; until it is done nobody is asked.
//! - Z4: the signal is SIGURG, which is ignored by default and which Go uses for the like. It carries the address of
//!   [`ASK`], which tells it from others; those go to the handler that was there before ours. If the program has
//!   installed one since, nobody is asked any more.
//!
//! A thread that is asked in the middle of a system call sees what a signal does there: most calls go on by themselves
//! (SA_RESTART); `poll`, `nanosleep` and the like return EINTR.

/// What became of a question.
pub(crate) enum Answer<R> {
    /// The thread stood still all the while.
    Stood(R),
    /// It went on too early; what was seen may be wrong.
    WentOn,
    /// It did not answer in time, or cannot be asked.
    None,
}

/// Stops `m`'s thread, which has so long to answer, and looks. One that runs answers within microseconds; one that
/// waits for a processor of the kernel's, when it gets one.
///
/// `look` MUST NOT take a lock, allocate or panic (Z1). MUST NOT be called by that thread itself.
#[cfg(not(target_os = "linux"))]
pub(crate) fn ask<R>(
    _m: &'static crate::sched::m::M,
    _answer_in: std::time::Duration,
    _look: impl FnOnce(tracer::unwind::Regs) -> R,
) -> Answer<R> {
    Answer::None
}

#[cfg(target_os = "linux")]
pub(crate) use linux::ask;

#[cfg(target_os = "linux")]
mod linux {
    use std::cell::UnsafeCell;
    use std::mem::MaybeUninit;
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
    use std::time::{Duration, Instant};

    use parking_lot::Mutex;
    use tracer::record::thread_id;
    use tracer::unwind::Regs;

    use super::Answer;
    use crate::prim::parker::{futex_wait, futex_wake};
    use crate::sched::m::M;

    const SIGNAL: libc::c_int = libc::SIGURG;

    /// How long somebody waits for his turn to ask.
    const TURNS: Duration = Duration::from_secs(5);
    /// How often a thread looks whether it may go on, and how many times.
    const PATIENCE: Duration = Duration::from_millis(100);
    const LOOKS: u32 = 10;

    /// The low bits of the word; the number of the question is above them.
    const NOTHING: u32 = 0;
    const ASKED: u32 = 1;
    const ANSWERING: u32 = 2;
    const STANDING: u32 = 3;
    const TAG_BITS: u32 = 2;
    const TAG_MASK: u32 = (1 << TAG_BITS) - 1;

    struct Ask {
        word: AtomicU32,
        /// Whom.
        tid: AtomicU64,
        regs: UnsafeCell<Regs>,
    }

    // SAFETY: the registers are written in ANSWERING, by the one thread that moved the word there, and read in
    // STANDING.
    unsafe impl Sync for Ask {}

    static ASK: Ask = Ask {
        word: AtomicU32::new(NOTHING),
        tid: AtomicU64::new(0),
        regs: UnsafeCell::new(Regs { pc: 0, sp: 0, fp: 0, lr: 0 }),
    };

    struct Previous(UnsafeCell<MaybeUninit<libc::sigaction>>);
    // SAFETY: written once, before the handler that reads it is installed.
    unsafe impl Sync for Previous {}
    static PREVIOUS: Previous = Previous(UnsafeCell::new(MaybeUninit::zeroed()));

    /// The askers' turn, and the number of questions so far.
    static TURN: Mutex<u32> = Mutex::new(0);

    pub(crate) fn ask<R>(m: &'static M, answer_in: Duration, look: impl FnOnce(Regs) -> R) -> Answer<R> {
        let tid = m.tid();
        let Some(mut turn) = TURN.try_lock_for(TURNS) else { return Answer::None };
        if tid == 0 || !is_ready() {
            return Answer::None;
        }
        *turn = turn.wrapping_add(1);
        let number = *turn << TAG_BITS;
        ASK.tid.store(tid, Ordering::Relaxed);
        // ORDER: Release; pairs with the handler's Acquire: it sees whom this question is for.
        if ASK.word.compare_exchange(NOTHING, number | ASKED, Ordering::Release, Ordering::Relaxed).is_err() {
            return Answer::None; // Z3
        }
        if !signal(tid) || !stands(number, answer_in) {
            return Answer::None;
        }
        // SAFETY: STANDING: the handler has written them and does not touch them again.
        let seen = look(unsafe { *ASK.regs.get() });
        // ORDER: Release; pairs with the handler's load: it goes on after the look. Z2.
        let stood = ASK.word.compare_exchange(number | STANDING, NOTHING, Ordering::Release, Ordering::Relaxed);
        futex_wake(&ASK.word, i32::MAX);
        if stood.is_ok() { Answer::Stood(seen) } else { Answer::WentOn }
    }

    /// Waits until the thread stands still; false if it does not come to that.
    fn stands(number: u32, answer_in: Duration) -> bool {
        let until = Instant::now() + answer_in;
        loop {
            // ORDER: Acquire; pairs with the handler's Release: its registers, and all that the thread did before.
            let word = ASK.word.load(Ordering::Acquire);
            if word == number | STANDING {
                return true;
            }
            let left = until.saturating_duration_since(Instant::now());
            if !left.is_zero() {
                futex_wait(&ASK.word, word, Some(left));
            } else if ASK.word.compare_exchange(number | ASKED, NOTHING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return false;
            } else {
                // It came at the last moment, and stands in an instant or (held up by the kernel) keeps the place (Z3).
                std::thread::sleep(Duration::from_millis(1));
                return ASK.word.load(Ordering::Acquire) == number | STANDING;
            }
        }
    }

    /// Whether the signal's handler is ours; installs it the first time. Under the askers' lock.
    fn is_ready() -> bool {
        static INSTALLED: AtomicBool = AtomicBool::new(false);
        let ours = handler as *const () as usize;
        // SAFETY: sigaction reads and writes the structs it is given; PREVIOUS is written before the handler can run,
        // and by one thread, since the caller holds the lock.
        unsafe {
            let mut now: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(SIGNAL, std::ptr::null(), &mut now) != 0 {
                return false;
            }
            if INSTALLED.load(Ordering::Relaxed) {
                return now.sa_sigaction == ours;
            }
            (*PREVIOUS.0.get()).write(now);
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = ours;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
            action.sa_mask = now.sa_mask;
            let done = libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) == 0;
            INSTALLED.store(done, Ordering::Relaxed);
            done
        }
    }

    /// What the kernel takes for a siginfo_t: the head of it, and the room of the rest.
    #[repr(C)]
    struct Info {
        signo: i32,
        errno: i32,
        code: i32,
        _align: i32,
        pid: i32,
        uid: u32,
        value: *const Ask,
        _rest: [u64; 12],
    }

    const _: () = assert!(size_of::<Info>() == size_of::<libc::siginfo_t>());

    /// Sends the signal, with the address that makes it ours (Z4).
    fn signal(tid: u64) -> bool {
        // SAFETY: getpid and getuid have no arguments and cannot fail; the info is a live siginfo_t in all but name.
        unsafe {
            let info = Info {
                signo: SIGNAL,
                errno: 0,
                code: libc::SI_QUEUE,
                _align: 0,
                pid: libc::getpid(),
                uid: libc::getuid(),
                value: &raw const ASK,
                _rest: [0; 12],
            };
            let sent = libc::syscall(libc::SYS_rt_tgsigqueueinfo, info.pid, tid, SIGNAL, &raw const info);
            if sent != 0 {
                ASK.word.store(NOTHING, Ordering::Relaxed);
            }
            sent == 0
        }
    }

    extern "C" fn handler(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel gives a valid siginfo for SA_SIGINFO; with SI_QUEUE it has a pid and a value.
        let ours = unsafe {
            (*info).si_code == libc::SI_QUEUE
                && (*info).si_pid() == libc::getpid()
                && std::ptr::eq((*info).si_value().sival_ptr.cast::<Ask>(), &raw const ASK)
        };
        if !ours {
            return pass_on(signal, info, context);
        }
        // SAFETY: the thread's own errno.
        let errno = unsafe { *libc::__errno_location() };
        // SAFETY: the third argument of this handler.
        answer(unsafe { Regs::from_signal(context) });
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }

    fn answer(regs: Regs) {
        // ORDER: Acquire; pairs with the asker's Release.
        let asked = ASK.word.load(Ordering::Acquire);
        if asked & TAG_MASK != ASKED || ASK.tid.load(Ordering::Relaxed) != thread_id() {
            return; // Z3
        }
        let number = asked & !TAG_MASK;
        // If the question is another one by now, this fails.
        if ASK.word.compare_exchange(asked, number | ANSWERING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        // SAFETY: ANSWERING(n) is this thread's.
        unsafe { *ASK.regs.get() = regs };
        ASK.word.store(number | STANDING, Ordering::Release);
        futex_wake(&ASK.word, i32::MAX);
        for _ in 0..LOOKS {
            if ASK.word.load(Ordering::Acquire) != number | STANDING {
                return;
            }
            futex_wait(&ASK.word, number | STANDING, Some(PATIENCE));
        }
        // Z2. An asker that is in `stands` looks again by itself.
        let _ = ASK.word.compare_exchange(number | STANDING, NOTHING, Ordering::Acquire, Ordering::Relaxed);
    }

    /// Somebody else's signal.
    fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: written before this handler was installed. A disposition that is neither default nor ignored is a
        // function of the kind that its flags tell.
        unsafe {
            let previous = (*PREVIOUS.0.get()).assume_init_ref();
            match previous.sa_sigaction {
                // The default of this signal is to ignore it.
                libc::SIG_DFL | libc::SIG_IGN => {}
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
}
