//! SIGQUIT: the dump on stderr, the trace's end, exit code 2.
//!
//! - QU1: the handler is installed when the runtime starts, and only where the signal has its default meaning then. A
//!   handler of the program's, or its wish to ignore the signal, is left alone, whichever comes first.
//! - QU2: the handler only notes the wish and wakes sysmon, which has a thread made for the rest: dumping takes locks
//!   and memory, and must work when a report is being made already. Where there is no thread to be had, sysmon does it.
//! - QU3: a second signal before the process has ended means that something hangs: it has the default meaning again,
//!   and ends the process with a core dump if the system makes those.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use tracer::unwind::Regs;

use crate::prim::say::say;
use crate::sched::{dump, sysmon};

/// What SIGQUIT does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quit {
    /// Dumps, and ends the process.
    Exit,
    /// Dumps, and lets it go on.
    Continue,
    /// The runtime does not care.
    Off,
}

impl Quit {
    /// What `RT_SIGQUIT` says.
    pub(crate) fn from_environment() -> Result<Quit, String> {
        match std::env::var_os("RT_SIGQUIT") {
            None => Ok(Quit::Exit),
            Some(v) => match v.to_str() {
                Some("" | "exit") => Ok(Quit::Exit),
                Some("continue") => Ok(Quit::Continue),
                Some("off") => Ok(Quit::Off),
                _ => Err(format!("RT_SIGQUIT={}: want exit, continue or off", v.to_string_lossy())),
            },
        }
    }
}

/// As Go's: of a dump that ends the process, and of a deadlock.
pub(crate) const EXIT_CODE: i32 = 2;

const NOTHING: u32 = 0;
const WANTED: u32 = 1;
const BUSY: u32 = 2;

static WISH: AtomicU32 = AtomicU32::new(NOTHING);
static THREADS: AtomicUsize = AtomicUsize::new(0);
static GOES_ON: AtomicU32 = AtomicU32::new(0);

/// Installs the handler (QU1). Once.
pub(crate) fn install(quit: Quit) {
    if quit == Quit::Off {
        return;
    }
    GOES_ON.store(u32::from(quit == Quit::Continue), Ordering::Relaxed);
    // SAFETY: sigaction reads and writes the structs it is given. The handler is async-signal-safe (QU2).
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGQUIT, std::ptr::null(), &mut now) != 0 || now.sa_sigaction != libc::SIG_DFL {
            return;
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        libc::sigaction(libc::SIGQUIT, &action, std::ptr::null_mut());
    }
}

extern "C" fn handler(signal: libc::c_int) {
    let first = WISH.compare_exchange(NOTHING, WANTED, Ordering::Release, Ordering::Relaxed).is_ok();
    if first {
        sysmon::wake_for_signal();
    } else if GOES_ON.load(Ordering::Relaxed) == 0 {
        // QU3. SAFETY: both calls are async-signal-safe; the signal comes again when this handler returns.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
}

/// Whether this is our handler.
pub(crate) fn is_handler(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler as *const () as usize
}

/// Sysmon's half: sees to it that the dump is made, if there was a signal.
pub(crate) fn look() {
    if WISH.load(Ordering::Relaxed) != WANTED || WISH.swap(BUSY, Ordering::Acquire) != WANTED {
        return;
    }
    THREADS.fetch_add(1, Ordering::Relaxed);
    let life = || {
        dump();
        THREADS.fetch_sub(1, Ordering::Relaxed);
        WISH.store(NOTHING, Ordering::Release);
    };
    if std::thread::Builder::new().name("gort-sigquit".into()).spawn(life).is_err() {
        life();
    }
}

/// How many threads make a dump.
pub(crate) fn threads() -> usize {
    THREADS.load(Ordering::Relaxed)
}

fn dump() {
    let dump = dump::all(Regs::default());
    say(format_args!("SIGQUIT: {} goroutines\n\n{}", dump.goroutines().len(), dump.to_string().trim_end()));
    if GOES_ON.load(Ordering::Relaxed) == 0 {
        finish(EXIT_CODE);
    }
}

/// Ends the process, after the trace has been finished, if that is possible.
pub(crate) fn finish(code: i32) -> ! {
    if crate::trace::has_session() {
        // The trace's writer may be what everybody waits for.
        let (done, finished) = std::sync::mpsc::channel();
        let finishing = std::thread::Builder::new().spawn(move || {
            crate::trace::finish_for_exit();
            let _ = done.send(());
        });
        if finishing.is_ok() {
            let _ = finished.recv_timeout(Duration::from_secs(5));
        }
    }
    std::process::exit(code);
}
