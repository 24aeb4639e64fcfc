//! Starting the runtime, and running a main function in it.

use std::env;
use std::num::NonZeroUsize;
use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use tracer::barrier;
use tracer::unwind::Regs;

use crate::sched::block::BLOCKS;
use crate::sched::deadlock::RUNS;
use crate::sched::emit::At;
use crate::sched::find::{find, find_next, start_p};
use crate::sched::life::execute;
use crate::sched::m::M;
use crate::sched::procs::PROCS_MAX;
use crate::sched::quit::{self, Quit};
use crate::sched::slab::SLAB;
use crate::sched::spawn::{self, Settings, spawn};
use crate::sched::{SCHED, advance, creator, forked, network, sysmon, watchdog};
use crate::stack::arena::ARENA;
use crate::stack::header::current_g;
use crate::stack::overflow;

/// Threads, if nothing is said; more if there are many Ps.
const THREADS_DEFAULT: usize = 512;

fn threads_default(procs: usize) -> usize {
    THREADS_DEFAULT.max(procs * 4)
}

/// How the runtime is started. There is one runtime per process; it is started once and runs until the process ends.
///
/// ```
/// let sum = rt::Config::new().gomaxprocs(2).run(|| {
///     let (tx, rx) = rt::chan::unbounded();
///     for i in 0..10 {
///         let tx = tx.clone();
///         rt::go(move || tx.send(i));
///     }
///     drop(tx);
///     rx.iter().sum::<i32>()
/// });
/// assert_eq!(sum, 45);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a configuration does nothing until run is called"]
pub struct Config {
    gomaxprocs: Option<usize>,
    max_threads: Option<usize>,
    creator_stacks: bool,
    watchdog: Option<Duration>,
}

/// Whether the runtime has started; whether `max_threads` was named.
static STARTED: OnceLock<bool> = OnceLock::new();
static STARTING: Mutex<()> = Mutex::new(());

impl Config {
    /// The default: as many processors as the machine has (or as `GOMAXPROCS` in the environment says), at most 512 threads
    /// (more if there are many processors).
    pub fn new() -> Config {
        Config::default()
    }

    /// How many goroutines run at the same time, 1 to 1024. Overrides the environment's `GOMAXPROCS`.
    pub fn gomaxprocs(mut self, n: usize) -> Config {
        self.gomaxprocs = Some(n);
        self
    }

    /// How many threads the runtime may have, at least GOMAXPROCS + 1. By default 512, or four for each processor if that is more.
    ///
    /// Threads beyond GOMAXPROCS are used by goroutines that block theirs. Those that say so, by [`blocking`](crate::blocking), wait for
    /// a place when nearly all are in use: about `max_threads - 2 * GOMAXPROCS` are inside at the same time, at least one. Those that
    /// block in plain code take threads until there are none; then others wait for the processors they keep.
    /// (Threads that wait together with a goroutine that is locked to them come on top.)
    pub fn max_threads(mut self, n: usize) -> Config {
        self.max_threads = Some(n);
        self
    }

    /// Remembers the stack of each call of [`go`](crate::go), not only its place, for reports of who made a goroutine. A spawn
    /// then walks its stack, up to 32 frames at 5 ns, and takes a lock. `RT_CREATOR_STACKS=1` in the environment does the same.
    pub fn creator_stacks(mut self, on: bool) -> Config {
        self.creator_stacks = on;
        self
    }

    /// How long a goroutine may stay in plain code, without a call into the runtime, before the watchdog reports it; 100 ms
    /// if nothing is said. Zero turns the watchdog off. Overrides the environment's `RT_WATCHDOG` (milliseconds, or `off`).
    ///
    /// The watchdog reports goroutines that keep a thread to themselves: an endless loop, a long computation, a call that blocks
    /// without [`blocking`](crate::blocking). The others do not suffer from that (the processor is handed on after 10 ms), but each
    /// one needs a thread. Declared blocking calls are not reported, whatever they take. Each such stay is reported once: to the
    /// [`log`](https://docs.rs/log) facade, target `gort`, level `warn`, with name and stack; and to the trace, as an extension
    /// record.
    ///
    /// It also looks, about once a second, for goroutines that wait for each other's locks for longer than this while others run
    /// on, and reports each such deadlock once, at level `error`.
    ///
    /// The time is measured in steps of up to 5 ms.
    pub fn watchdog(mut self, limit: Duration) -> Config {
        self.watchdog = Some(limit);
        self
    }

    /// Starts the runtime, runs `main` as a goroutine, waits for it and gives its value. Other goroutines are not waited for:
    /// they run on until the process ends.
    ///
    /// With `RT_TRACE=FILE` in the environment the whole run is traced into FILE.
    ///
    /// Called again, it runs another main function in the same runtime.
    ///
    /// # Panics
    ///
    /// With `main`'s panic, if it panics. If an environment variable (`GOMAXPROCS`, `RT_WATCHDOG`, `RT_SIGQUIT`) says what cannot
    /// be understood. If GOMAXPROCS, from here or from the environment, is not a number from 1 to 1024; if the
    /// runtime runs already with another GOMAXPROCS than this configuration names; if the system has no memory or
    /// threads for it; when called from a goroutine.
    #[track_caller]
    #[inline(never)]
    pub fn run<F, T>(self, main: F) -> T
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        assert!(current_g().is_none(), "rt::run was called from a goroutine: call the function itself, or rt::go");
        if let Err(e) = self.start() {
            panic!("cannot start the runtime: {e}");
        }
        let trace = crate::trace::start_from_environment();
        let settings = Settings { name: Some("main".into()), ..Settings::default() };
        let spawned = spawn(settings, Regs::here(), Location::caller(), main);
        let handle = spawned.unwrap_or_else(|e| panic!("cannot start the main goroutine: {e}"));
        struct Running;
        impl Drop for Running {
            fn drop(&mut self) {
                RUNS.fetch_sub(1, Ordering::SeqCst);
            }
        }
        RUNS.fetch_add(1, Ordering::SeqCst);
        let running = Running;
        let result = handle.join();
        drop(running);
        drop(trace);
        match result {
            Ok(v) => v,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Starts the runtime if it does not run yet.
    fn start(&self) -> Result<(), String> {
        let procs = match self.gomaxprocs {
            Some(n) if (1..=PROCS_MAX).contains(&n) => Some(n),
            Some(n) => return Err(format!("gomaxprocs({n}): want a number from 1 to {PROCS_MAX}")),
            None => None,
        };
        let _one = STARTING.lock();
        if STARTED.get().is_some() {
            let running = SCHED.gomaxprocs();
            return match procs {
                Some(n) if n != running => Err(format!("it runs already, with GOMAXPROCS={running}, not {n}")),
                _ => Ok(()),
            };
        }
        let procs = match procs {
            Some(n) => n,
            None => procs_from_environment()?,
        };
        creator::set(self.creator_stacks || creator::from_environment());
        let max_threads = self.max_threads.unwrap_or(threads_default(procs));
        if max_threads <= procs {
            return Err(format!("max_threads({max_threads}): want more than GOMAXPROCS, which is {procs}"));
        }
        let limit = match self.watchdog {
            Some(limit) => limit,
            None => watchdog::limit_from_environment()?,
        };
        let quit = Quit::from_environment()?;
        // A start that failed half-way is not tried again: handlers and threads of it may exist.
        static FAILED: Mutex<Option<String>> = Mutex::new(None);
        if let Some(e) = &*FAILED.lock() {
            return Err(e.clone());
        }
        watchdog::set_limit(limit);
        if let Err(e) = start(procs, max_threads, quit) {
            *FAILED.lock() = Some(e.clone());
            return Err(e);
        }
        let _ = STARTED.set(self.max_threads.is_some());
        Ok(())
    }
}

/// Runs `main` as a goroutine and gives its value: [`Config::run`] with the default configuration.
///
/// # Panics
///
/// As [`Config::run`].
///
/// ```
/// assert_eq!(rt::run(|| rt::go(|| "hello").join().unwrap()), "hello");
/// ```
#[track_caller]
pub fn run<F, T>(main: F) -> T
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    Config::new().run(main)
}

/// How many goroutines run at the same time. Before the runtime is started: what it would start with, or 1 if the environment's
/// `GOMAXPROCS` is not usable.
pub fn gomaxprocs() -> usize {
    match SCHED.gomaxprocs() {
        0 => procs_from_environment().unwrap_or(1),
        n => n,
    }
}

/// Sets how many goroutines run at the same time, 1 to 1024, and gives the number before. Works from goroutines and threads; the first
/// call starts the runtime.
///
/// The world is stopped for it, which takes some microseconds; user code is not waited for. When this returns, the new number holds:
/// goroutines of processors that went are in the queues of others, and one that was in plain code on such a processor goes on
/// until it calls into the runtime.
///
/// # Panics
///
/// If `n` is 0 or more than 1024. If it is not less than a [`max_threads`](Config::max_threads) that was set. If the runtime cannot be
/// started (see [`Config::run`]).
///
/// ```
/// rt::Config::new().gomaxprocs(2).run(|| {
///     assert_eq!(rt::set_gomaxprocs(4), 2);
///     assert_eq!(rt::gomaxprocs(), 4);
/// });
/// ```
#[track_caller]
#[inline(never)]
pub fn set_gomaxprocs(n: usize) -> usize {
    assert!((1..=PROCS_MAX).contains(&n), "set_gomaxprocs({n}): want a number from 1 to {PROCS_MAX}");
    start_default();
    if STARTED.get() == Some(&true) {
        let max = SCHED.max_threads();
        assert!(n < max, "set_gomaxprocs({n}): want less than max_threads, which was set to {max}");
    } else {
        SCHED.raise_max_threads(threads_default(n));
    }
    let regs = Regs::here();
    let old = advance::set_gomaxprocs(n, current_g().map(|g| At::on(g, regs)));
    // The call is not the last thing this does, so the frame of the registers stays until the reply is there.
    std::hint::black_box(old)
}

/// Starts the runtime with the default configuration, for a thread that spawns without `run`.
pub(crate) fn start_default() {
    if let Err(e) = try_start_default() {
        panic!("cannot start the runtime: {e}");
    }
}

/// As [`start_default`], for somebody who can say why it did not work.
pub(crate) fn try_start_default() -> Result<(), String> {
    if STARTED.get().is_some() { Ok(()) } else { Config::new().start() }
}

fn procs_from_environment() -> Result<usize, String> {
    match env::var("GOMAXPROCS") {
        Err(env::VarError::NotPresent) => {
            Ok(std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(PROCS_MAX))
        }
        Err(e) => Err(format!("GOMAXPROCS: {e}")),
        Ok(s) if s.is_empty() => Ok(std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(PROCS_MAX)),
        Ok(s) => match s.parse::<usize>() {
            Ok(n) if (1..=PROCS_MAX).contains(&n) => Ok(n),
            _ => Err(format!("GOMAXPROCS={s}: want a number from 1 to {PROCS_MAX}")),
        },
    }
}

fn start(procs: usize, max_threads: usize, quit: Quit) -> Result<(), String> {
    barrier::init();
    ARENA.init().map_err(|e| e.to_string())?;
    SLAB.init().map_err(|e| e.to_string())?;
    BLOCKS.init().map_err(|e| e.to_string())?;
    overflow::install();
    forked::install();
    network::poller().map_err(|e| format!("the event poller: {e}"))?;
    SCHED.init(procs, max_threads);
    sysmon::start().map_err(|e| format!("the monitor thread: {e}"))?;
    quit::install(quit);
    // The advancer is the first goroutine: it is there before anybody can ask it for a trace.
    spawn::system(advance::main);
    // The submission has started a thread for it, or sysmon, which was faster, is about to.
    loop {
        let inner = SCHED.inner.lock();
        if inner.ms != 0 {
            return Ok(());
        }
        if inner.refused != 0 {
            return Err("the system gives no thread".into());
        }
        drop(inner);
        std::thread::yield_now();
    }
}

/// The life of an M's thread.
pub(crate) fn m_main(m: &'static M) {
    m.bind_thread();
    overflow::alternate_stack();
    // There is none if it was called back (M3).
    if let Some((p, searching)) = m.take_assigned() {
        start_p(m, p);
        // SAFETY: `own` is touched on the M's own stack only; no other reference to it lives here.
        unsafe { (*m.own.get()).searching = searching };
    }
    loop {
        let (g, fresh) = find_next(m).unwrap_or_else(|| find(m));
        execute(m, g, fresh);
    }
}
