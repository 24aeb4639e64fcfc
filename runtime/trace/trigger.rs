//! Triggers: when something of note has happened, what a flight recorder holds is written to a file.
//!
//! What happens is found by whoever is there anyway, and told to a tripwire (`sched/tripwire.rs`); the file is written by a thread that is
//! there for it (`trace/keeper.rs`).
//!
//! - TR1: no file is overwritten: each has a number, and one that exists is passed over.
//! - TR4: a file gets its name when it is whole: the process may end at any time, and nothing waits for the keeper when `main` returns. Until
//!   then it has [`UNFINISHED`] behind it.
//! - TR2: the panic hook waits without the scheduler: it may be anywhere, on any stack, with any lock held. It does not wait on threads that
//!   the snapshot needs, nor on more than a few of those that the scheduler has.
//! - TR3: a recorder's lock is not waited for without end: whoever holds it may be the one who dies.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tracer::record::Ring;

use crate::prim::say::say;
use crate::sched::forked;
use crate::sched::outside::blocking_at_once;
use crate::sched::run::try_start_default;
use crate::sched::tripwire::{self, Kind, Trip, Wire};
use crate::sched::{fatal, reporter};
use crate::stack::header::current_g;
use crate::trace::flight::{FlightRecorder, State};
use crate::trace::keeper;

/// The target of log records.
const TARGET: &str = "gort";

/// Files written, and those that could not be.
static WRITTEN: AtomicU64 = AtomicU64::new(0);
static FAILED: AtomicU64 = AtomicU64::new(0);

/// Files that triggers have written so far, and how many could not be written.
pub(crate) fn counts() -> (u64, u64) {
    (WRITTEN.load(Ordering::Relaxed), FAILED.load(Ordering::Relaxed))
}

/// What makes a [flight recorder](FlightRecorder) write a file: see [`FlightRecorder::on`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Trigger {
    /// A [`Task`](crate::trace::Task) that began since took this long or longer. Found when it ends.
    Task(Duration),
    /// A [region](crate::trace::region) that began since took this long or longer. Found when it ends.
    Region(Duration),
    /// A goroutine was runnable for this long or longer, before it got its turn. Found when it runs.
    ///
    /// While such a trigger is armed nearly all goroutines are looked at, at the cost of two readings of a clock for each turn (otherwise
    /// one in 64 is, for the metrics).
    Runnable(Duration),
    /// A goroutine has been in plain code for this long or longer without a word to the runtime, or has kept its processor though others
    /// want it: what the [watchdog](crate::Config::watchdog) reports, with a limit of its own. Declared
    /// [blocking calls](crate::blocking) do not count. Found while it lasts, in steps of up to 5 ms.
    Stuck(Duration),
    /// A panic, of any goroutine or thread, whether it is caught or not. It goes on when the file is written, or after ten seconds. (Where many
    /// goroutines panic at once, some of them wait.)
    ///
    /// It is found by a panic hook, which is installed by the first such trigger, calls the hook that was there before, and stays.
    /// A hook that the program sets later ends this, unless it calls the one before it.
    Panic,
    /// A goroutine has used up its stack. The process ends when the file is written, or after ten seconds.
    StackOverflow,
    /// A signal that is about to end the process: SIGSEGV, SIGBUS, SIGABRT (so `abort`, too), SIGILL, SIGFPE; stack overflows among them.
    /// What there was before has its turn when the file is written, or after ten seconds. It happens once: a fault that a handler
    /// repairs counts.
    ///
    /// If the thread that dies holds what the scheduler needs, the file ends with the last whole generation, about a second
    /// earlier. If it is in the middle of the memory allocator there may be no file.
    FatalSignal,
    /// A signal, which has no other effect while the trigger is armed (see [`crate::signal`]).
    #[cfg(unix)]
    Signal(crate::signal::Signal),
    /// Nothing but [`Armed::fire`].
    Manual,
}

impl Trigger {
    fn wire(&self) -> (Kind, Duration) {
        match self {
            Trigger::Task(limit) => (Kind::Task, *limit),
            Trigger::Region(limit) => (Kind::Region, *limit),
            Trigger::Runnable(limit) => (Kind::Runnable, *limit),
            Trigger::Stuck(limit) => (Kind::Stuck, *limit),
            Trigger::Panic => (Kind::Panic, Duration::ZERO),
            Trigger::StackOverflow => (Kind::Overflow, Duration::ZERO),
            Trigger::FatalSignal => (Kind::Fatal, Duration::ZERO),
            #[cfg(unix)]
            Trigger::Signal(_) => (Kind::Hand, Duration::ZERO),
            Trigger::Manual => (Kind::Hand, Duration::ZERO),
        }
    }
}

/// Which files a [trigger](FlightRecorder::on) writes, how often, and how many.
///
/// ```
/// use std::time::Duration;
/// use rt::trace::Files;
///
/// let files = Files::new("flights/{trigger}-{time}-{n}.trace").cool_down(Duration::from_secs(60)).max_files(3);
/// # let _ = files;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    pattern: String,
    cool_down: Duration,
    max_files: usize,
}

impl Files {
    /// Files of this name, with a cool-down of 10 seconds, and 10 of them at most.
    ///
    /// In the name, `{trigger}` stands for what happened (`task`, `panic`, `sigusr1`, the reason of [`Armed::fire`]), `{pid}` for the
    /// process, `{time}` for the time in UTC (`20261130T092300Z`), and `{n}` for a number that counts up from 1. A name without
    /// `{n}` gets it before its extension. Nothing is overwritten: a number whose file exists is passed over. Directories are
    /// made.
    ///
    /// While a file is written its name ends in `.part`, so one that has its own name is whole. What is left of a process that ended in the
    /// meantime can be read, too, up to where it was cut: `gort` says what is missing.
    pub fn new(pattern: impl Into<String>) -> Files {
        Files { pattern: pattern.into(), cool_down: Duration::from_secs(10), max_files: 10 }
    }

    /// For how long after one file no other is written. What happens meanwhile is counted
    /// (`/gort/trace/snapshots/suppressed:triggers`), and nothing else.
    pub fn cool_down(mut self, time: Duration) -> Files {
        self.cool_down = time;
        self
    }

    /// How many files there are at most, of those that this trigger has written: with one more the oldest is deleted.
    pub fn max_files(mut self, n: usize) -> Files {
        self.max_files = n;
        self
    }

    /// The same with a `{n}`, or what is wrong with it.
    fn checked(mut self) -> io::Result<Files> {
        let refuse = |why: String| Err(Error::new(ErrorKind::InvalidInput, why));
        let pattern = &self.pattern;
        if self.max_files == 0 {
            return refuse("max_files(0): want at least 1, or no trigger".into());
        }
        let mut rest = pattern.as_str();
        while let Some(at) = rest.find(['{', '}']) {
            let known = PLACEHOLDERS.iter().find(|p| rest[at..].starts_with(**p));
            match known {
                Some(p) => rest = &rest[at + p.len()..],
                None => {
                    return refuse(format!("{pattern}: braces stand for {} only", PLACEHOLDERS.join(", ")));
                }
            }
        }
        let name = Path::new(pattern).file_name().and_then(|n| n.to_str());
        let Some(name) = name.filter(|_| !pattern.ends_with('/')) else {
            return refuse(format!("{pattern:?}: want the name of a file, such as flight-{{trigger}}-{{n}}.trace"));
        };
        if !name.contains("{n}") {
            let dir = pattern.len() - name.len();
            let dot = name.rfind('.').filter(|dot| *dot != 0).unwrap_or(name.len());
            self.pattern.insert_str(dir + dot, "-{n}");
        }
        Ok(self)
    }

    fn name(&self, trigger: &str, n: u64, time: SystemTime) -> PathBuf {
        let mut name = self.pattern.clone();
        for (placeholder, value) in
            PLACEHOLDERS.iter().zip([tame(trigger), std::process::id().to_string(), n.to_string(), utc(time)])
        {
            name = name.replace(placeholder, &value);
        }
        name.into()
    }
}

const PLACEHOLDERS: [&str; 4] = ["{trigger}", "{pid}", "{n}", "{time}"];

impl From<&str> for Files {
    fn from(pattern: &str) -> Files {
        Files::new(pattern)
    }
}

impl From<String> for Files {
    fn from(pattern: String) -> Files {
        Files::new(pattern)
    }
}

/// A text that is a part of a file's name.
fn tame(text: &str) -> String {
    let text: String =
        text.chars().take(64).map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    let text = text.trim_start_matches('.');
    if text.is_empty() { "manual".into() } else { text.into() }
}

/// As `20261130T092300Z`.
fn utc(time: SystemTime) -> String {
    let s = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    // Years that begin in March, so that the leap day is the last one; of 400 years, which are all alike.
    let days = s / 86_400 + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month_of_year) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = era * 400 + year + u64::from(month_of_year <= 2);
    let (h, m, s) = (s / 3600 % 24, s / 60 % 60, s % 60);
    format!("{year:04}{month_of_year:02}{day:02}T{h:02}{m:02}{s:02}Z")
}

impl FlightRecorder {
    /// Arms a trigger: when it happens, what the recorder holds is written to a file, up to that moment. Until the result is dropped.
    ///
    /// The recorder may be stopped and started meanwhile; while it does not run nothing is written. Any number of triggers may be armed, of
    /// any number of recorders. Who sets off a trigger does not wait for the file (but for what ends the process, and panics). Each
    /// file is told to the [`log`](https://docs.rs/log) facade, target `gort`, level `info`, and each that could not be written at
    /// level `warn`; the metrics `/gort/trace/snapshots/...` count them.
    ///
    /// The first call starts the runtime, and two threads for the files.
    ///
    /// # Errors
    ///
    /// If the pattern is not a name of a file or has braces around anything else than what [`Files::new`] tells, if `max_files` is 0, if the
    /// signal cannot be had, if no thread can be started, or if a hook for panics cannot be set because the calling thread panics.
    ///
    /// ```
    /// use std::time::Duration;
    /// use rt::trace::{self, Files, FlightRecorder, Trigger};
    ///
    /// rt::run(|| {
    ///     let recorder = FlightRecorder::new();
    ///     recorder.start().unwrap();
    ///     let dir = std::env::temp_dir().join("flights");
    ///     let files = Files::new(format!("{}/{{trigger}}-{{pid}}-{{n}}.trace", dir.display()));
    ///     let slow = recorder.on(Trigger::Region(Duration::from_millis(5)), files).unwrap();
    ///
    ///     trace::with_region(&rt::Context::background(), "request", || rt::time::sleep(Duration::from_millis(10)));
    ///     while slow.files().is_empty() {
    ///         rt::time::sleep(Duration::from_millis(1));
    ///     }
    ///     # slow.files().iter().for_each(|f| std::fs::remove_file(f).unwrap());
    /// });
    /// ```
    pub fn on(&self, trigger: Trigger, files: impl Into<Files>) -> io::Result<Armed> {
        let files = files.into().checked()?;
        try_start_default().map_err(Error::other)?;
        keeper::start()?;
        let (kind, limit) = trigger.wire();
        match kind {
            Kind::Panic => install_hook()?,
            Kind::Fatal => fatal::install(),
            _ => {}
        }
        let cool_down = files.cool_down;
        let place = Arc::new(Place { files, written: Mutex::default() });
        let (recorder, theirs) = (self.shared(), place.clone());
        let act = move |trip: &Trip| tell(trip, write(&recorder, &theirs, trip));
        let wire = Wire::new(kind, limit, cool_down, Box::new(act));
        #[cfg(unix)]
        let signal = match trigger {
            Trigger::Signal(signal) => {
                let wire = wire.clone();
                let name = signal.to_string().to_lowercase();
                let fire = move || {
                    tripwire::fire(&wire, || Trip::new(name.clone()));
                };
                Some(crate::signal::hook(signal, fire)?)
            }
            _ => None,
        };
        tripwire::set(wire.clone());
        Ok(Armed {
            trigger,
            wire,
            place,
            #[cfg(unix)]
            _signal: signal,
        })
    }

    /// Writes a [snapshot](FlightRecorder::snapshot) to a file, which is made anew; its directories are made, too. Answers its bytes.
    ///
    /// # Errors
    ///
    /// As [`FlightRecorder::snapshot`].
    pub fn dump_to(&self, path: impl AsRef<Path>) -> Result<u64, crate::trace::SnapshotError> {
        use crate::trace::SnapshotError;
        if !self.enabled() {
            return Err(SnapshotError::NotStarted);
        }
        let path = path.as_ref();
        let file = crate::blocking(|| {
            make_directory(path)?;
            File::create(path)
        })
        .map_err(SnapshotError::Io)?;
        self.snapshot(crate::fs::File::from(file))
    }
}

/// A trigger of a flight recorder that is armed, until this is dropped: see [`FlightRecorder::on`].
///
/// What has happened before the drop is still written.
#[must_use = "it is disarmed when this is dropped"]
pub struct Armed {
    trigger: Trigger,
    wire: Arc<Wire>,
    place: Arc<Place>,
    #[cfg(unix)]
    _signal: Option<crate::signal::Hooked>,
}

impl Armed {
    /// Sets it off by hand, with a reason that the file is named after. Answers whether a file will be written: not if one is being
    /// written, or was within the cool-down.
    ///
    /// This does not wait for the file; [`FlightRecorder::dump_to`] does, and [`process::exit`](crate::process::exit) waits for files that are
    /// on their way.
    pub fn fire(&self, reason: impl Into<Cow<'static, str>>) -> bool {
        let reason = reason.into();
        let g = current_g().map_or(0, |g| g.id());
        tripwire::fire(&self.wire, || Trip { g, ..Trip::new(reason) })
    }

    /// The files that it has written and not deleted, oldest first.
    pub fn files(&self) -> Vec<PathBuf> {
        self.place.written.lock().files.iter().cloned().collect()
    }

    /// Disarms it. So does dropping it.
    pub fn disarm(self) {}
}

impl Drop for Armed {
    fn drop(&mut self) {
        tripwire::unset(&self.wire);
    }
}

impl fmt::Debug for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Armed")
            .field("trigger", &self.trigger)
            .field("to", &self.place.files.pattern)
            .finish_non_exhaustive()
    }
}

/// Where a trigger writes to.
struct Place {
    files: Files,
    written: Mutex<Written>,
}

/// A file that is not whole yet, and what it will be called after.
struct Unfinished {
    part: PathBuf,
    trigger: String,
    n: u64,
    now: SystemTime,
}

#[derive(Default)]
struct Written {
    last_n: u64,
    files: VecDeque<PathBuf>,
}

/// Numbers that are tried when files exist (TR1).
const TRIES: u64 = 100_000;

/// What the name of a file ends in that is not whole (TR4).
const UNFINISHED: &str = ".part";

impl Place {
    /// A file that did not exist, and does not until it is [finished](Place::finish).
    fn make(&self, trigger: &str) -> io::Result<(Unfinished, File)> {
        let now = SystemTime::now();
        let before = self.written.lock().last_n;
        for n in before + 1..=before + TRIES {
            let path = self.files.name(trigger, n, now);
            make_directory(&path)?;
            if path.symlink_metadata().is_ok() {
                continue;
            }
            let mut part = path.into_os_string();
            part.push(UNFINISHED);
            let part = PathBuf::from(part);
            match OpenOptions::new().write(true).create_new(true).open(&part) {
                Ok(file) => {
                    self.written.lock().last_n = n;
                    return Ok((Unfinished { part, trigger: trigger.into(), n, now }, file));
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(Error::new(e.kind(), format!("{}: {e}", part.display()))),
            }
        }
        Err(self.too_many())
    }

    /// Gives a file that is whole and closed its name, which is answered (TR4).
    fn finish(&self, file: &Unfinished) -> io::Result<PathBuf> {
        for n in file.n..file.n + TRIES {
            let path = self.files.name(&file.trigger, n, file.now);
            make_directory(&path)?;
            // Unlike a new name a second one does not replace what somebody else has made meanwhile.
            let named = match fs::hard_link(&file.part, &path) {
                Err(e) if e.kind() == ErrorKind::AlreadyExists => continue,
                // Not every file system has second names.
                Err(_) if path.symlink_metadata().is_ok() => continue,
                Err(_) => fs::rename(&file.part, &path),
                Ok(()) => {
                    // It has its name, whatever becomes of the first one.
                    let _ = fs::remove_file(&file.part);
                    Ok(())
                }
            };
            self.written.lock().last_n = n;
            return named
                .map(|()| path)
                .map_err(|e| Error::new(e.kind(), format!("{}: cannot give it its name: {e}", file.part.display())));
        }
        Err(self.too_many())
    }

    fn too_many(&self) -> Error {
        let pattern = &self.files.pattern;
        Error::new(
            ErrorKind::AlreadyExists,
            format!("{pattern}: {TRIES} files exist already: delete some, or add {{pid}} or {{time}}"),
        )
    }

    /// One more file is written.
    fn add(&self, path: PathBuf) {
        let gone = {
            let mut written = self.written.lock();
            written.files.push_back(path);
            if written.files.len() > self.files.max_files { written.files.pop_front() } else { None }
        };
        if let Some(gone) = gone {
            // Somebody may have taken it away.
            let _ = fs::remove_file(gone);
        }
    }
}

fn make_directory(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => {
            fs::create_dir_all(dir).map_err(|e| Error::new(e.kind(), format!("{}: {e}", dir.display())))
        }
        _ => Ok(()),
    }
}

/// What was written.
struct Wrote {
    path: PathBuf,
    bytes: u64,
    /// Up to the moment of writing, and not only to the last generation's end.
    whole: bool,
}

/// Writes a file. By the keeper.
fn write(recorder: &Mutex<State>, place: &Place, trip: &Trip) -> io::Result<Wrote> {
    let not_running = || Error::other("the flight recorder does not run");
    // TR3
    let ring: Arc<Ring> =
        recorder.try_lock_for(Duration::from_millis(300)).as_deref().and_then(State::ring).ok_or_else(not_running)?;
    let whole = keeper::flush(trip.until_ns);
    if ring.bytes() == 0 {
        return Err(Error::other("nothing is recorded yet, and the present generation cannot be ended"));
    }
    let (unfinished, file) = place.make(&trip.name)?;
    // Closed before anything else is done with it.
    let written = ring.write_to(&mut BufWriter::with_capacity(1 << 16, file));
    match written {
        Ok(bytes) => {
            let path = place.finish(&unfinished)?;
            place.add(path.clone());
            Ok(Wrote { path, bytes, whole })
        }
        Err(e) => {
            let _ = fs::remove_file(&unfinished.part);
            Err(Error::new(e.kind(), format!("{}: {e}", unfinished.part.display())))
        }
    }
}

/// Tells of a file. By the keeper; the program's logger is called by the reporter.
fn tell(trip: &Trip, result: io::Result<Wrote>) {
    let mut what = trip.name.to_string();
    if trip.g != 0 {
        what.push_str(&format!(", goroutine {}", trip.g));
    }
    if let Some(ns) = trip.ns {
        what.push_str(&format!(", {:?}", Duration::from_nanos(ns)));
    }
    let (level, text) = match result {
        Ok(wrote) => {
            WRITTEN.fetch_add(1, Ordering::Relaxed);
            let rest = if wrote.whole { "" } else { "; without what happened since the last whole generation" };
            let Wrote { path, bytes, .. } = wrote;
            (log::Level::Info, format!("flight recorder: {what}: wrote {} ({bytes} bytes){rest}", path.display()))
        }
        Err(e) => {
            FAILED.fetch_add(1, Ordering::Relaxed);
            (log::Level::Warn, format!("flight recorder: {what}: no file was written: {e}"))
        }
    };
    if trip.until_ns.is_some() {
        // A logger would hardly have the time.
        return say(format_args!("gort: {text}"));
    }
    if log::max_level() >= level {
        reporter::submit(Box::new(move |_| log::log!(target: TARGET, level, "{text}")));
    }
}

/// For how long a panic waits for its file.
const PANIC_PATIENCE: Duration = Duration::from_secs(10);

fn install_hook() -> io::Result<()> {
    static ONCE: Once = Once::new();
    if !ONCE.is_completed() && std::thread::panicking() {
        return Err(Error::other("a trigger for panics cannot be armed by a thread that panics: arm it before"));
    }
    ONCE.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // The file first: the hook before may end the process.
            if tripwire::is_set(Kind::Panic) && !forked::is_child() {
                panicked();
            }
            previous(info);
        }));
    });
    Ok(())
}

/// Goroutines that wait for a panic's file, and how many may: each keeps a thread, and there must be some left to make the file.
static WAITING: AtomicUsize = AtomicUsize::new(0);
const WAITING_MAX: usize = 16;

/// TR2
#[cold]
fn panicked() {
    if keeper::is_one() {
        return;
    }
    let is_tracers = tracer::record::threads().contains(&tracer::record::thread_id());
    let patience = if is_tracers { Duration::ZERO } else { PANIC_PATIENCE };
    let me = current_g();
    let g = me.map_or(0, |g| g.id());
    let wait = |patience| tripwire::trip_and_wait(Kind::Panic, || Trip { g, ..Trip::new("panic") }, patience);
    match me {
        None => wait(patience),
        Some(_) if WAITING.fetch_add(1, Ordering::Relaxed) >= WAITING_MAX => wait(Duration::ZERO),
        // An even count: outside, so that the runtime may be called.
        Some(g) if g.m().border.crossings().is_multiple_of(2) => blocking_at_once(|| wait(patience)),
        Some(_) => wait(patience),
    }
    if me.is_some() {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        let of = |s| utc(UNIX_EPOCH + Duration::from_secs(s));
        assert_eq!(of(0), "19700101T000000Z");
        assert_eq!(of(951_782_399), "20000228T235959Z");
        assert_eq!(of(951_782_400), "20000229T000000Z");
        assert_eq!(of(951_868_800), "20000301T000000Z");
        assert_eq!(of(1_735_689_599), "20241231T235959Z");
        assert_eq!(of(4_107_542_400), "21000301T000000Z");
    }

    #[test]
    fn names() {
        let name = |pattern: &str, trigger| {
            let files = Files::new(pattern).checked().unwrap();
            files.name(trigger, 7, UNIX_EPOCH).to_str().unwrap().to_owned()
        };
        let pid = std::process::id();
        assert_eq!(name("a/{trigger}-{pid}-{time}.{n}", "task"), format!("a/task-{pid}-19700101T000000Z.7"));
        assert_eq!(name("a.b/flight.trace", "x"), "a.b/flight-7.trace");
        assert_eq!(name("flight", "x"), "flight-7");
        assert_eq!(name(".flight", "x"), ".flight-7");
        assert_eq!(name("{trigger}", "../../etc/{n}"), "-..-etc--n--7");
        assert_eq!(name("{n}{trigger}", "..."), "7manual");
    }

    /// TR1, TR4
    #[test]
    fn a_file_gets_its_name_when_it_is_whole() {
        let dir = std::env::temp_dir().join(format!("gort-place-{}", std::process::id()));
        let files = Files::new(format!("{}/{{trigger}}-{{n}}.trace", dir.display())).checked().unwrap();
        let place = Place { files, written: Mutex::default() };
        let list = || {
            let mut names: Vec<_> =
                fs::read_dir(&dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort_unstable();
            names
        };
        let begin = || place.make("x").unwrap();
        let (first, file) = begin();
        drop(file);
        assert_eq!(list(), ["x-1.trace.part"]);
        assert_eq!(place.finish(&first).unwrap(), dir.join("x-1.trace"));
        assert_eq!(list(), ["x-1.trace"]);

        fs::write(dir.join("x-2.trace"), "somebody's").unwrap();
        fs::write(dir.join("x-3.trace.part"), "of a process that ended").unwrap();
        let (fourth, mut file) = begin();
        io::Write::write_all(&mut file, b"mine").unwrap();
        drop(file);
        fs::write(dir.join("x-4.trace"), "somebody's, made meanwhile").unwrap();
        assert_eq!(place.finish(&fourth).unwrap(), dir.join("x-5.trace"));
        assert_eq!(fs::read(dir.join("x-5.trace")).unwrap(), b"mine");
        assert_eq!(list(), ["x-1.trace", "x-2.trace", "x-3.trace.part", "x-4.trace", "x-5.trace"]);
        assert_eq!(begin().0.part, dir.join("x-6.trace.part"));
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn refusals() {
        let refusal = |files: Files| files.checked().unwrap_err().to_string();
        assert!(refusal(Files::new("a-{date}")).contains("braces stand for {trigger}, {pid}, {n}, {time} only"));
        assert!(refusal(Files::new("a}")).contains("braces"));
        assert!(refusal(Files::new("")).contains("want the name of a file"));
        assert!(refusal(Files::new("a/")).contains("want the name of a file"));
        assert!(refusal(Files::new("a/..")).contains("want the name of a file"));
        assert!(refusal(Files::new("a").max_files(0)).contains("max_files(0)"));
    }
}
