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
//!
//! A program that runs for long keeps the last seconds in memory, and writes them down when something has happened: a
//! [`FlightRecorder`] with [triggers](Trigger).
//!
//! ```no_run
//! use std::time::Duration;
//! use rt::trace::{Files, FlightRecorder, Trigger};
//!
//! rt::run(|| {
//!     let recorder = FlightRecorder::new().min_age(Duration::from_secs(5));
//!     recorder.start()?;
//!     let files = Files::new("flights/{trigger}-{time}-{n}.trace").cool_down(Duration::from_secs(60)).max_files(5);
//!     // Until they are dropped.
//!     let slow = recorder.on(Trigger::Task(Duration::from_millis(200)), files.clone())?;
//!     let panics = recorder.on(Trigger::Panic, files.clone())?;
//!     let ends = recorder.on(Trigger::FatalSignal, files)?;
//!     // ... what the program does, in tasks; and where something looks wrong to it:
//!     slow.fire("queue-too-long");
//!     # drop((panics, ends));
//!     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! }).unwrap();
//! ```
//!
//! # What is left when the process ends
//!
//! [`process::exit`](crate::process::exit), and the end of a [`run`](crate::run) with `RT_TRACE`, write everything. Whatever else ends the process, `kill -9` included,
//! a stream to a file holds the whole generations up to then, all but about the last second; if it was just being written, its
//! tail is cut, and readers take what comes before.

mod annotate;
mod flight;
mod keeper;
#[cfg(feature = "tracing")]
mod layer;
mod options;
#[cfg(feature = "tracing")]
mod span_registry;
mod trigger;

use std::any::TypeId;
use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracer::record::{self, Subscriber};

pub use annotate::{Region, Task, log, region, with_region};
pub use flight::{FlightRecorder, SnapshotError};
#[cfg(feature = "tracing")]
pub use layer::TracingLayer;
pub use options::Options;
#[cfg(feature = "tracing")]
pub use span_registry::SpanRegistry;
pub use tracer::record::{Stats, StreamError};
pub use trigger::{Armed, Files, Trigger};

use crate::prim::say::say;
use crate::sched::advance::{self, Reply};
use crate::sched::forked;
use crate::sched::run::start_default;
use crate::sched::tripwire;

/// The stream of [`start`], if there is one. `Busy` while it is being started or stopped.
enum Session {
    None,
    Busy,
    Running(Stream),
}

static SESSION: Mutex<Session> = Mutex::new(Session::None);

/// Subscribers that are being added or taken off: somebody waits for the tracer.
static BUSY: AtomicUsize = AtomicUsize::new(0);
/// Streams whose writers may do anything, sending on a channel included: those that are not std's.
static UNKNOWN_WRITERS: AtomicUsize = AtomicUsize::new(0);

/// Streams that have not ended, by number, each with what is told when it has: for whoever ends the process.
static STREAMS: Mutex<Vec<(u64, Arc<Reply<()>>)>> = Mutex::new(Vec::new());

/// Counts in one of the two as long as it lives.
struct Counted(&'static AtomicUsize);

impl Counted {
    fn new(counter: &'static AtomicUsize) -> Counted {
        counter.fetch_add(1, Ordering::SeqCst);
        Counted(counter)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether a writer may do anything besides writing.
fn is_unknown<W: 'static>() -> bool {
    let plain = [
        TypeId::of::<File>(),
        TypeId::of::<BufWriter<File>>(),
        TypeId::of::<crate::fs::File>(),
        TypeId::of::<BufWriter<crate::fs::File>>(),
        TypeId::of::<io::Sink>(),
        TypeId::of::<io::Stdout>(),
        TypeId::of::<io::Stderr>(),
    ];
    !plain.contains(&TypeId::of::<W>())
}

/// A stream of what the runtime does, into a writer. Any number of them may run at once, beside [flight
/// recorders](FlightRecorder) and the one of [`start`].
///
/// Dropping it stops it too, and then nobody hears of errors.
///
/// ```
/// rt::run(|| {
///     let stream = rt::trace::Stream::start(std::io::sink()).unwrap();
///     rt::go(|| {}).join().unwrap();
///     assert!(stream.stop().unwrap().bytes > 0);
/// });
/// ```
#[must_use = "it stops when it is dropped"]
pub struct Stream {
    number: u64,
    ended: Option<Arc<Reply<Result<Stats, StreamError>>>>,
}

impl Stream {
    /// Starts to record into `out`, and returns when events are being recorded. See [`start`].
    ///
    /// # Errors
    ///
    /// When a thread cannot be started, and beside those who record [labelled goroutines only](Options::only_labelled).
    pub fn start<W: Write + Send + 'static>(out: W) -> Result<Stream, StartError> {
        Stream::start_with(out, Options::new())
    }

    /// As [`start`](Stream::start), with a choice of what is recorded.
    ///
    /// # Errors
    ///
    /// When a thread cannot be started, and when others record [fewer goroutines than this one wants](Options::only_labelled).
    pub fn start_with<W: Write + Send + 'static>(out: W, options: Options) -> Result<Stream, StartError> {
        start_default();
        let _busy = Counted::new(&BUSY);
        let unknown = is_unknown::<W>().then(|| Counted::new(&UNKNOWN_WRITERS));
        let ended = Reply::new();
        let over = Reply::new();
        let (tell, tell_exit) = (ended.clone(), over.clone());
        let on_end = move |result| {
            tell.set(result);
            STREAMS.lock().retain(|(_, over)| !Arc::ptr_eq(over, &tell_exit));
            tell_exit.set(());
            // Whether somebody still waits or not, the writer may do something up to here.
            drop(unknown);
        };
        let stream = record::Stream::new(Box::new(out), on_end).map_err(StartError::Io)?;
        let number = advance::attach(Subscriber::Stream(stream), options.wishes()).map_err(StartError::Io)?;
        // Nobody can have detached it yet, so it has not ended.
        STREAMS.lock().push((number, over));
        Ok(Stream { number, ended: Some(ended) })
    }

    /// Stops it and waits until everything is written: for as long as the writer takes, which may be for ever. Others go on meanwhile, and
    /// other streams end; [`stop_timeout`](Stream::stop_timeout) waits no longer than it is told to.
    ///
    /// # Errors
    ///
    /// [`StopError::Stream`] when the writer did not get everything.
    pub fn stop(self) -> Result<Stats, StopError> {
        self.end(|ended| Some(ended.wait()))
    }

    /// As [`stop`](Stream::stop), and waits for the writer for so long at most.
    ///
    /// # Errors
    ///
    /// As [`stop`](Stream::stop); [`StopError::TimedOut`] when the writer is not through by then.
    pub fn stop_timeout(self, most: Duration) -> Result<Stats, StopError> {
        self.end(|ended| ended.wait_timeout(most))
    }

    fn end(
        mut self,
        wait: impl FnOnce(&Reply<Result<Stats, StreamError>>) -> Option<Result<Stats, StreamError>>,
    ) -> Result<Stats, StopError> {
        let _busy = Counted::new(&BUSY);
        advance::detach(self.number);
        let ended = self.ended.take().expect("a stream is stopped once");
        wait(&ended).ok_or(StopError::TimedOut)?.map_err(StopError::Stream)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.ended.is_some() {
            let _busy = Counted::new(&BUSY);
            advance::detach(self.number);
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").finish_non_exhaustive()
    }
}

/// Why a trace could not be started.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// One is running already. It was not disturbed.
    AlreadyStarted,
    /// The file could not be made, or the tracer's thread could not be started; or others record [labelled goroutines
    /// only](Options::only_labelled), and this one wants all ([`io::ErrorKind::ResourceBusy`]).
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
    /// The stream did not get everything: see [`StreamError`].
    Stream(StreamError),
    /// The writer has not come back in time. Recording has ended all the same; the writer gets what is left whenever it is ready, and
    /// nobody hears what became of that.
    TimedOut,
}

impl fmt::Display for StopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopError::NotStarted => f.write_str("no trace is running"),
            StopError::Stream(e) => e.fmt(f),
            StopError::TimedOut => f.write_str("the trace's writer has not taken everything yet"),
        }
    }
}

impl std::error::Error for StopError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            StopError::NotStarted | StopError::TimedOut => None,
            StopError::Stream(e) => Some(e),
        }
    }
}

/// Starts to record everything the runtime does into `out`, and returns when events are being recorded.
///
/// `out` is written to by a thread of its own, in large pieces, about once a second; the program never waits
/// for it. It needs no buffering around it. (While a writer that is not std's own records, a deadlock is reported three
/// seconds late: the writer might be what wakes somebody.)
///
/// # Errors
///
/// See [`StartError`].
pub fn start(out: impl Write + Send + 'static) -> Result<(), StartError> {
    start_with(out, Options::new())
}

/// As [`start`], with a choice of what is recorded.
///
/// # Errors
///
/// See [`StartError`].
pub fn start_with(out: impl Write + Send + 'static, options: Options) -> Result<(), StartError> {
    start_into(|| Ok(out), options)
}

/// [`start`], with a writer that is made only when no other session runs.
fn start_into<W: Write + Send + 'static>(
    make: impl FnOnce() -> io::Result<W>,
    options: Options,
) -> Result<(), StartError> {
    start_default();
    {
        let mut session = SESSION.lock();
        if !matches!(*session, Session::None) {
            return Err(StartError::AlreadyStarted);
        }
        *session = Session::Busy;
    }
    let started = make().map_err(StartError::Io).and_then(|out| Stream::start_with(out, options));
    let mut session = SESSION.lock();
    match started {
        Ok(stream) => {
            *session = Session::Running(stream);
            Ok(())
        }
        Err(e) => {
            *session = Session::None;
            Err(e)
        }
    }
}

/// Stops what [`start`] has started, and waits until everything is written, for as long as the writer takes: see [`Stream::stop`].
///
/// # Errors
///
/// See [`StopError`]. The program loses nothing but the trace.
pub fn stop() -> Result<Stats, StopError> {
    stop_with(Stream::stop)
}

/// As [`stop`], and waits for the writer for so long at most.
///
/// # Errors
///
/// See [`StopError`]. After [`StopError::TimedOut`] another trace may be started.
pub fn stop_timeout(most: Duration) -> Result<Stats, StopError> {
    stop_with(|stream| stream.stop_timeout(most))
}

fn stop_with(end: impl FnOnce(Stream) -> Result<Stats, StopError>) -> Result<Stats, StopError> {
    if forked::is_child() {
        return Err(StopError::NotStarted);
    }
    let stream = {
        let mut session = SESSION.lock();
        match std::mem::replace(&mut *session, Session::Busy) {
            Session::Running(stream) => stream,
            other => {
                *session = other;
                return Err(StopError::NotStarted);
            }
        }
    };
    let result = end(stream);
    *SESSION.lock() = Session::None;
    result
}

/// Whether a trace is being recorded. One relaxed load.
#[inline]
pub fn enabled() -> bool {
    tracer::record::enabled()
}

/// For how long nothing must have happened before it is certain that the tracer's threads wake nobody; `None`: somebody waits
/// for a stream to start or to end, so they will.
pub(crate) fn certain_after() -> Option<Duration> {
    if BUSY.load(Ordering::SeqCst) != 0 {
        return None;
    }
    // Writers are called once a generation. What one did not do in three of them it will not do.
    Some(if UNKNOWN_WRITERS.load(Ordering::SeqCst) != 0 { Duration::from_secs(3) } else { Duration::ZERO })
}

pub(crate) use keeper::{sleeping_threads as sleeping_keepers, threads as keepers};
pub(crate) use trigger::counts as snapshots;

/// Ends the trace of a run when dropped.
pub(crate) struct RunTrace(PathBuf);

/// Starts the trace that `RT_TRACE` asks for.
pub(crate) fn start_from_environment() -> Option<RunTrace> {
    let path = PathBuf::from(std::env::var_os("RT_TRACE").filter(|v| !v.is_empty())?);
    match start_into(|| File::create(&path), Options::new()) {
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

/// Whether there is a trace or a stream to be ended before the process is, or a file that is on its way.
pub(crate) fn has_session() -> bool {
    !forked::is_child() && has_own_session()
}

fn has_own_session() -> bool {
    !matches!(*SESSION.lock(), Session::None) || !STREAMS.lock().is_empty() || tripwire::is_busy()
}

/// Waits for files of triggers, and ends the trace and all streams, if there are any, because the process is about to end. Called by a thread; waits for others who are
/// about to start or stop one.
pub(crate) fn finish_for_exit() {
    // Each reply is for one who waits.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock();
    while tripwire::is_busy() {
        std::thread::sleep(Duration::from_millis(1));
    }
    loop {
        match stop() {
            Ok(_) => break,
            Err(e @ (StopError::Stream(_) | StopError::TimedOut)) => {
                say(format_args!("gort: {e}"));
                break;
            }
            Err(StopError::NotStarted) if matches!(*SESSION.lock(), Session::None) => break,
            Err(StopError::NotStarted) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    // Theirs to stop, but they will not come to it.
    let streams = STREAMS.lock().clone();
    let _busy = Counted::new(&BUSY);
    streams.iter().for_each(|(number, _)| advance::detach(*number));
    streams.iter().for_each(|(_, over)| over.wait());
}
