//! Recording what the runtime does: an execution trace in the format of Go's, which `go tool trace` opens.
//!
//! ```no_run
//! rt::run(|| {
//!     rt::trace::start(std::fs::File::create("app.trace")?)?;
//!     // ... the part of the program that is of interest ...
//!     let stats = rt::trace::stop()?;
//!     println!("{} bytes in {} generations", stats.bytes, stats.generations);
//!     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! }).unwrap();
//! ```
//!
//! `RT_TRACE=FILE` in the environment traces a whole [`run`](crate::run) without a change to the program.

use std::any::TypeId;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

pub use tracer::record::{Stats, StreamError};

use crate::prim::say::say;
use crate::sched::advance::{self, Reply};
use crate::sched::run::start_default;

type Ended = Arc<Reply<Result<Stats, StreamError>>>;

/// The session, if there is one. `Busy` while one is being started or stopped.
enum Session {
    None,
    Busy,
    Running(Ended, Writer),
}

/// What a session's writer may do besides writing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// Nothing: it is std's, or a file of ours.
    Plain,
    /// Anything, sending on a channel included.
    Unknown,
}

impl Writer {
    fn of<W: 'static>() -> Writer {
        let plain = [
            TypeId::of::<File>(),
            TypeId::of::<BufWriter<File>>(),
            TypeId::of::<crate::fs::File>(),
            TypeId::of::<BufWriter<crate::fs::File>>(),
            TypeId::of::<io::Sink>(),
            TypeId::of::<io::Stdout>(),
            TypeId::of::<io::Stderr>(),
        ];
        if plain.contains(&TypeId::of::<W>()) { Writer::Plain } else { Writer::Unknown }
    }
}

static SESSION: Mutex<Session> = Mutex::new(Session::None);

/// Why a trace could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// One is running already. It was not disturbed.
    AlreadyStarted,
    /// The file could not be made, or the tracer's thread could not be started.
    Io(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::AlreadyStarted => {
                f.write_str("a trace is running already: stop it with rt::trace::stop() first")
            }
            StartError::Io(e) => write!(f, "cannot start the trace: {e}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StartError::AlreadyStarted => None,
            StartError::Io(e) => Some(e),
        }
    }
}

/// Why stopping a trace did not give a whole file.
#[derive(Debug)]
#[non_exhaustive]
pub enum StopError {
    /// None was running.
    NotStarted,
    /// The stream did not get everything. What it has got is whole generations, which any reader opens.
    Stream(StreamError),
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopError::NotStarted => f.write_str("no trace is running"),
            StopError::Stream(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for StopError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StopError::NotStarted => None,
            StopError::Stream(e) => Some(e),
        }
    }
}

/// Starts to record everything the runtime does into `out`, and returns when events are being recorded.
///
/// `out` is written to by a thread of the tracer's own, in large pieces, about once a second; the program never waits
/// for it. It needs no buffering around it. (While a writer that is not std's own records, a deadlock is reported three
/// seconds late: the writer might be what wakes somebody.)
///
/// # Errors
///
/// See [`StartError`].
pub fn start(out: impl Write + Send + 'static) -> Result<(), StartError> {
    start_with(|| Ok(out))
}

/// [`start`], with a writer that is made only when no other session runs.
fn start_with<W: Write + Send + 'static>(make: impl FnOnce() -> io::Result<W>) -> Result<(), StartError> {
    start_default();
    {
        let mut session = SESSION.lock();
        if !matches!(*session, Session::None) {
            return Err(StartError::AlreadyStarted);
        }
        *session = Session::Busy;
    }
    match make().and_then(|out| advance::start(Box::new(out))) {
        Ok(ended) => {
            *SESSION.lock() = Session::Running(ended, Writer::of::<W>());
            Ok(())
        }
        Err(e) => {
            *SESSION.lock() = Session::None;
            Err(StartError::Io(e))
        }
    }
}

/// Stops recording and waits until everything is written.
///
/// # Errors
///
/// See [`StopError`]. The program loses nothing but the trace.
pub fn stop() -> Result<Stats, StopError> {
    let ended = {
        let mut session = SESSION.lock();
        match std::mem::replace(&mut *session, Session::Busy) {
            Session::Running(ended, _) => ended,
            other => {
                *session = other;
                return Err(StopError::NotStarted);
            }
        }
    };
    let result = advance::stop(&ended);
    *SESSION.lock() = Session::None;
    result.map_err(StopError::Stream)
}

/// Whether a trace is being recorded. One relaxed load.
#[inline]
pub fn enabled() -> bool {
    tracer::record::enabled()
}

/// For how long nothing must have happened before it is certain that the tracer's thread wakes nobody; `None`: somebody waits
/// for a session to start or to end, so it will.
pub(crate) fn certain_after() -> Option<Duration> {
    match &*SESSION.lock() {
        Session::None | Session::Running(_, Writer::Plain) => Some(Duration::ZERO),
        Session::Busy => None,
        // It is called once a generation. What it did not do in three of them it will not do.
        Session::Running(_, Writer::Unknown) => Some(Duration::from_secs(3)),
    }
}

/// Ends the trace of a run when dropped.
pub(crate) struct RunTrace(PathBuf);

/// Starts the trace that `RT_TRACE` asks for.
pub(crate) fn start_from_environment() -> Option<RunTrace> {
    let path = PathBuf::from(std::env::var_os("RT_TRACE").filter(|v| !v.is_empty())?);
    match start_with(|| File::create(&path)) {
        Ok(()) => Some(RunTrace(path)),
        Err(e) => {
            say(format_args!("gort: RT_TRACE={}: {e}; running without a trace", path.display()));
            None
        }
    }
}

impl Drop for RunTrace {
    fn drop(&mut self) {
        match stop() {
            // The program has stopped it itself.
            Ok(_) | Err(StopError::NotStarted) => {}
            Err(e) => say(format_args!("gort: RT_TRACE={}: {e}", self.0.display())),
        }
    }
}

/// Whether there is a trace to be ended before the process is.
pub(crate) fn has_session() -> bool {
    !matches!(*SESSION.lock(), Session::None)
}

/// Ends the trace, if there is one, because the process is about to end. Called by a thread; waits for others who are about
/// to start or stop one.
pub(crate) fn finish_for_exit() {
    loop {
        match stop() {
            Ok(_) => return,
            Err(StopError::Stream(e)) => return say(format_args!("gort: {e}")),
            Err(StopError::NotStarted) if !has_session() => return,
            Err(StopError::NotStarted) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}
