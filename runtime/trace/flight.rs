//! The flight recorder.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tracer::record::{Ring, Subscriber};

use crate::sched::advance;
use crate::sched::run::start_default;
use crate::trace::{BUSY, Counted, Options, StartError};

/// Keeps the last seconds of what the runtime does in memory, to be written out when something has happened: Go's
/// `runtime/trace.FlightRecorder`.
///
/// It keeps whole generations: at least what is younger than [`min_age`](FlightRecorder::min_age), unless that takes more than
/// [`max_bytes`](FlightRecorder::max_bytes), which wins. Any number of recorders may run, beside a trace.
///
/// ```
/// use std::time::Duration;
///
/// rt::run(|| {
///     let recorder = rt::trace::FlightRecorder::new().min_age(Duration::from_secs(5));
///     recorder.start().unwrap();
///     rt::go(|| rt::time::sleep(Duration::from_millis(5))).join().unwrap();
///     let mut last = Vec::new();
///     recorder.snapshot(&mut last).unwrap();
///     assert!(last.starts_with(b"go 1.26 trace"));
///     recorder.stop();
/// });
/// ```
pub struct FlightRecorder {
    min_age: Duration,
    max_bytes: usize,
    options: Options,
    /// Shared with the triggers that are armed.
    running: LazyLock<Arc<Mutex<State>>>,
}

#[derive(Default)]
pub(super) enum State {
    #[default]
    Off,
    /// It is being started or stopped.
    Busy,
    On(Running),
}

impl State {
    /// What is kept, if it records.
    pub(super) fn ring(&self) -> Option<Arc<Ring>> {
        match self {
            State::On(running) => Some(running.ring.clone()),
            _ => None,
        }
    }
}

#[derive(Clone)]
pub(super) struct Running {
    ring: Arc<Ring>,
    number: u64,
}

impl FlightRecorder {
    /// A recorder that keeps 10 seconds, in 10 MiB at most. It records once it is [started](FlightRecorder::start).
    pub const fn new() -> FlightRecorder {
        FlightRecorder {
            min_age: Duration::from_secs(10),
            max_bytes: 10 << 20,
            options: Options::new(),
            running: LazyLock::new(Arc::default),
        }
    }

    /// How far back a snapshot reaches, if the bytes allow it. It holds from the next start on.
    pub const fn min_age(mut self, age: Duration) -> FlightRecorder {
        self.min_age = age;
        self
    }

    /// How many bytes are kept; fewer, down to a quarter, while so much is on its way that the program would grow by more than a quarter
    /// above this. What a snapshot is writing comes on top if it is no longer kept. A generation that is larger by itself is kept all
    /// the same, for a while. They are cut to a sixteenth of this, 64 KiB at least, unless there are so many goroutines that most of the time would go
    /// into that. It holds from the next start on.
    pub const fn max_bytes(mut self, bytes: usize) -> FlightRecorder {
        self.max_bytes = bytes;
        self
    }

    /// What is to be recorded; everything, if not said otherwise. It holds from the next start on.
    pub const fn options(mut self, options: Options) -> FlightRecorder {
        self.options = options;
        self
    }

    /// Starts to record, and returns when events are being recorded. The first call starts the runtime.
    ///
    /// # Errors
    ///
    /// [`StartError::AlreadyStarted`] if it runs (or is just being started or stopped); [`StartError::Io`] when a thread
    /// cannot be started, and when others record [fewer goroutines than this one wants](Options::only_labelled).
    pub fn start(&self) -> Result<(), StartError> {
        start_default();
        {
            let mut state = self.running.lock();
            if !matches!(*state, State::Off) {
                return Err(StartError::AlreadyStarted);
            }
            *state = State::Busy;
        }
        let ring = Ring::new(self.min_age, self.max_bytes);
        let _busy = Counted::new(&BUSY);
        let attached = advance::attach(Subscriber::Ring(ring.clone()), self.options.wishes());
        let mut state = self.running.lock();
        match attached {
            Ok(number) => {
                *state = State::On(Running { ring, number });
                Ok(())
            }
            Err(e) => {
                *state = State::Off;
                Err(StartError::Io(e))
            }
        }
    }

    /// Stops recording and forgets what was kept. Nothing happens if it does not run.
    pub fn stop(&self) {
        let running = {
            let mut state = self.running.lock();
            match std::mem::replace(&mut *state, State::Busy) {
                State::On(running) => running,
                other => return *state = other,
            }
        };
        let _busy = Counted::new(&BUSY);
        advance::detach(running.number);
        *self.running.lock() = State::Off;
    }

    /// Whether it records.
    pub fn enabled(&self) -> bool {
        matches!(*self.running.lock(), State::On(_))
    }

    /// Writes what was recorded up to now: a trace of its own, that every reader opens. Answers its bytes.
    ///
    /// Recording goes on meanwhile, and so do other snapshots. `out` is called by the caller.
    ///
    /// # Errors
    ///
    /// [`SnapshotError::NotStarted`] if it does not run; the writer's.
    pub fn snapshot(&self, mut out: impl Write) -> Result<u64, SnapshotError> {
        let running = match &*self.running.lock() {
            State::On(running) => running.clone(),
            _ => return Err(SnapshotError::NotStarted),
        };
        {
            let _busy = Counted::new(&BUSY);
            advance::flush();
        }
        running.ring.write_to(&mut out).map_err(SnapshotError::Io)
    }

    /// For a trigger.
    pub(super) fn shared(&self) -> Arc<Mutex<State>> {
        self.running.clone()
    }

    /// Bytes that are kept just now.
    pub fn bytes(&self) -> usize {
        match &*self.running.lock() {
            State::On(running) => running.ring.bytes(),
            _ => 0,
        }
    }
}

impl Default for FlightRecorder {
    fn default() -> FlightRecorder {
        FlightRecorder::new()
    }
}

impl Drop for FlightRecorder {
    fn drop(&mut self) {
        self.stop();
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder")
            .field("min_age", &self.min_age)
            .field("max_bytes", &self.max_bytes)
            .field("options", &self.options)
            .field("enabled", &self.enabled())
            .finish()
    }
}

/// Why there is no snapshot.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The recorder does not run.
    NotStarted,
    /// The writer failed.
    Io(io::Error),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SnapshotError::NotStarted => f.write_str("the flight recorder does not run: call start() first"),
            SnapshotError::Io(e) => write!(f, "cannot write the snapshot: {e}"),
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SnapshotError::NotStarted => None,
            SnapshotError::Io(e) => Some(e),
        }
    }
}
