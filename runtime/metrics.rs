//! Numbers on what the runtime does, under the names of Go's `runtime/metrics` where Go has the notion.
//!
//! ```
//! rt::run(|| {
//!     let before = rt::metrics::get("/sched/goroutines-created:goroutines").unwrap().as_u64().unwrap();
//!     rt::go(|| ()).join().unwrap();
//!     let after = rt::metrics::get("/sched/goroutines-created:goroutines").unwrap().as_u64().unwrap();
//!     assert_eq!(after, before + 1);
//!     println!("{}", rt::metrics::snapshot());
//! });
//! ```
//!
//! Reading works from goroutines and threads, before the runtime is started too, and stops nobody. The counts are kept by each processor
//! for itself and added up by the reader. So they are of the moment, not a snapshot: while the program runs, numbers that ought to add
//! up may be off by what happened meanwhile. A cumulative number never becomes smaller.

use std::borrow::Cow;
use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::sched::counts::{self, BUCKETS, Durations, HAND_OFFS, OTHER_PAUSES, WITHOUT_P};
use crate::sched::p::P;
use crate::sched::state::Status;
use crate::sched::{SCHED, calls, quit, reporter, run, tripwire, watchdog};

/// What kind of value a metric has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A count.
    Uint64,
    /// A distribution.
    Float64Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Uint64 => "uint64",
            Kind::Float64Histogram => "float64 histogram",
        })
    }
}

/// One metric that there is.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub struct Description {
    /// Its name: a path, a colon, the unit.
    pub name: &'static str,
    /// What it says, in words.
    pub description: &'static str,
    /// What it counts, or what the buckets of its distribution are in.
    pub unit: &'static str,
    /// The kind of its value.
    pub kind: Kind,
    /// Whether it only grows: of a distribution, each bucket.
    pub cumulative: bool,
    read: fn() -> Value,
}

impl fmt::Debug for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Description")
            .field("name", &self.name)
            .field("description", &self.description)
            .field("unit", &self.unit)
            .field("kind", &self.kind)
            .field("cumulative", &self.cumulative)
            .finish()
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cumulative = if self.cumulative { ", cumulative" } else { "" };
        write!(f, "{} ({}{cumulative}): {}", self.name, self.kind, self.description)
    }
}

/// A metric's value.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// A count.
    Uint64(u64),
    /// A distribution.
    Float64Histogram(Histogram),
}

impl Value {
    /// The count, if it is one.
    pub fn as_u64(&self) -> Option<u64> {
        match self {
            Value::Uint64(n) => Some(*n),
            _ => None,
        }
    }

    /// The distribution, if it is one.
    pub fn as_histogram(&self) -> Option<&Histogram> {
        match self {
            Value::Float64Histogram(h) => Some(h),
            _ => None,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Value::Uint64(_) => Kind::Uint64,
            Value::Float64Histogram(_) => Kind::Float64Histogram,
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Uint64(n) => n.fmt(f),
            Value::Float64Histogram(h) => h.fmt(f),
        }
    }
}

/// A distribution, as Go has it: `counts[i]` values were at least `buckets[i]` and less than `buckets[i + 1]`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Histogram {
    /// How many values were in each bucket.
    pub counts: Vec<u64>,
    /// Where the buckets begin, in the metric's unit, and where the last one ends, which is infinity. One more than there are counts.
    pub buckets: Vec<f64>,
}

impl Histogram {
    /// How many values there were.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// A bound that this share of the values is below, 0 to 1: the end of a bucket. `None` if there are no values.
    ///
    /// # Panics
    ///
    /// If `share` is not from 0 to 1.
    pub fn quantile(&self, share: f64) -> Option<f64> {
        assert!((0.0..=1.0).contains(&share), "quantile({share}): want a number from 0 to 1");
        let total = self.total();
        let wanted = ((total as f64 * share).ceil() as u64).max(1);
        let mut so_far = 0;
        let ends = self.buckets.iter().skip(1);
        self.counts.iter().zip(ends).find_map(|(n, end)| {
            so_far += n;
            (so_far >= wanted).then_some(*end)
        })
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} values", self.total())?;
        for (share, name) in [(0.5, "half"), (0.99, "99%"), (1.0, "all")] {
            if let Some(end) = self.quantile(share) {
                match Duration::try_from_secs_f64(end) {
                    Ok(end) => write!(f, ", {name} below {end:?}")?,
                    Err(_) => write!(f, ", {name} below infinity")?,
                }
            }
        }
        Ok(())
    }
}

/// A metric to read, and then its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Which.
    pub name: Cow<'static, str>,
    /// What [`read`] found; `None` before, or if there is no metric of that name.
    pub value: Option<Value>,
}

impl Sample {
    /// A metric to read.
    pub fn new(name: impl Into<Cow<'static, str>>) -> Sample {
        Sample { name: name.into(), value: None }
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{} {value}", self.name),
            None => write!(f, "{} (no value)", self.name),
        }
    }
}

/// All metrics with their values; as text, one a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot(Vec<Sample>);

impl Snapshot {
    /// The value of one.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|s| s.name == name)?.value.as_ref()
    }

    /// All of them, by name.
    pub fn iter(&self) -> std::slice::Iter<'_, Sample> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a Snapshot {
    type Item = &'a Sample;
    type IntoIter = std::slice::Iter<'a, Sample>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|sample| writeln!(f, "{sample}"))
    }
}

/// All metrics there are, by name.
pub fn all() -> &'static [Description] {
    ALL
}

/// Reads metrics by name.
///
/// ```
/// use rt::metrics::{Sample, read};
/// let mut samples = [Sample::new("/sched/gomaxprocs:threads"), Sample::new("/no/such:thing")];
/// read(&mut samples);
/// assert_eq!(samples[0].value.as_ref().unwrap().as_u64(), Some(rt::gomaxprocs() as u64));
/// assert_eq!(samples[1].value, None);
/// ```
pub fn read(samples: &mut [Sample]) {
    for sample in samples {
        sample.value = get(&sample.name);
    }
}

/// Reads one metric; `None` if there is none of that name.
pub fn get(name: &str) -> Option<Value> {
    let i = ALL.binary_search_by(|d| d.name.cmp(name)).ok()?;
    Some((ALL[i].read)())
}

/// Reads all metrics.
pub fn snapshot() -> Snapshot {
    Snapshot(ALL.iter().map(|d| Sample { name: d.name.into(), value: Some((d.read)()) }).collect())
}

/// A metric that is a count.
const fn count(name: &'static str, cumulative: bool, description: &'static str, read: fn() -> Value) -> Description {
    Description { name, description, unit: unit_of(name), kind: Kind::Uint64, cumulative, read }
}

/// A metric that is a distribution, which grows.
const fn distribution(name: &'static str, description: &'static str, read: fn() -> Value) -> Description {
    Description { name, description, unit: unit_of(name), kind: Kind::Float64Histogram, cumulative: true, read }
}

/// What follows the colon.
const fn unit_of(name: &'static str) -> &'static str {
    let mut rest = name.as_bytes();
    while let [c, tail @ ..] = rest {
        rest = tail;
        if *c == b':' {
            break;
        }
    }
    match std::str::from_utf8(rest) {
        Ok(unit) => unit,
        Err(_) => panic!("names are ASCII"),
    }
}

const NOW: bool = false;
const EVER: bool = true;

/// Sorted by name.
static ALL: &[Description] = &[
    #[cfg(feature = "gc")]
    count("/gc/cycles/total:gc-cycles", EVER, "Cycles of the collected heap that are over, sweeping included.", || {
        number(crate::gc::stats().cycles)
    }),
    #[cfg(feature = "gc")]
    count("/gc/heap/goal:bytes", NOW, "Bytes of objects at which the next cycle is to be over.", || {
        number(crate::gc::stats().goal_bytes as u64)
    }),
    #[cfg(feature = "gc")]
    count("/gc/heap/live:bytes", NOW, "Bytes of objects that the last cycle has left.", || {
        number(crate::gc::stats().marked_bytes as u64)
    }),
    count(
        "/gort/sched/blocking-calls/queued:calls",
        EVER,
        "Blocking calls that had to wait for a place among those that may hold a thread.",
        || number(calls::waiting().1),
    ),
    count(
        "/gort/sched/blocking-calls/waiting:goroutines",
        NOW,
        "Goroutines that wait for a place among those that may hold a thread in a blocking call.",
        || number(calls::waiting().0 as u64),
    ),
    count(
        "/gort/sched/hand-offs/blocking-call:hand-offs",
        EVER,
        "Processors taken from a goroutine in a blocking call.",
        || number(HAND_OFFS.blocking_call.load(Ordering::Relaxed)),
    ),
    count(
        "/gort/sched/hand-offs/gomaxprocs:hand-offs",
        EVER,
        "Processors taken from a goroutine because GOMAXPROCS became smaller.",
        || number(HAND_OFFS.gomaxprocs.load(Ordering::Relaxed)),
    ),
    count(
        "/gort/sched/hand-offs/outside-too-long:hand-offs",
        EVER,
        "Processors taken from a goroutine that was in plain code for too long.",
        || number(HAND_OFFS.outside_too_long.load(Ordering::Relaxed)),
    ),
    count("/gort/sched/steals/goroutines:goroutines", EVER, "Goroutines that moved in steals.", || {
        number(sum(|p| p.counts.stolen.get()))
    }),
    count("/gort/sched/steals/total:steals", EVER, "Times a processor took goroutines from another's queue.", || {
        number(sum(|p| p.counts.steals.get()))
    }),
    count(
        "/gort/sched/threads/parked:threads",
        NOW,
        "Threads of the scheduler that sleep because there is nothing to run.",
        || number(SCHED.inner.lock().parked() as u64),
    ),
    count(
        "/gort/sched/threads/refused:threads",
        EVER,
        "Times a processor with work found no thread: max_threads existed, or the system gave no more.",
        || number(SCHED.inner.lock().refused),
    ),
    count(
        "/gort/sched/threads/wake-ups:wake-ups",
        EVER,
        "Times a thread was woken, or made, to run a processor.",
        || number(SCHED.inner.lock().wake_ups),
    ),
    count(
        "/gort/stacks/cold:stacks",
        NOW,
        "Stacks that have given all their memory back; they are used again.",
        || number(crate::stack::arena::ARENA.cold() as u64),
    ),
    count("/gort/stacks/total:stacks", NOW, "Stacks made so far, in use and in caches; they are used again.", || {
        number(crate::stack::arena::ARENA.live() as u64)
    }),
    count("/gort/timers:timers", NOW, "Timers that are set, one for each goroutine that sleeps.", || {
        number(sum(|p| p.timers.len() as u64))
    }),
    count(
        "/gort/trace/snapshots/failed:files",
        EVER,
        "Files of flight recorders that a trigger wanted and that could not be written.",
        || number(crate::trace::snapshots().1),
    ),
    count(
        "/gort/trace/snapshots/suppressed:triggers",
        EVER,
        "Times a trigger of a flight recorder went off and nothing was written, because its last file was too recent.",
        || number(tripwire::suppressed()),
    ),
    count("/gort/trace/snapshots/written:files", EVER, "Files of flight recorders that triggers have written.", || {
        number(crate::trace::snapshots().0)
    }),
    count("/gort/watchdog/reports:reports", EVER, "Reports of the watchdog.", || number(watchdog::reports())),
    count("/sched/gomaxprocs:threads", NOW, "GOMAXPROCS: how many goroutines run at the same time.", || {
        number(run::gomaxprocs() as u64)
    }),
    count(
        "/sched/goroutines-created:goroutines",
        EVER,
        "Goroutines made since the program started, without the runtime's own.",
        || number(created()),
    ),
    count(
        "/sched/goroutines/not-in-go:goroutines",
        NOW,
        "Goroutines in a blocking call, or in plain code for so long that their processor was taken, about. Need not add up with the \
         others to /sched/goroutines:goroutines.",
        || number(Now::look().not_in_go),
    ),
    count(
        "/sched/goroutines/runnable:goroutines",
        NOW,
        "Goroutines that wait for a processor, about. Need not add up with the others to /sched/goroutines:goroutines.",
        || number(Now::look().runnable),
    ),
    count(
        "/sched/goroutines/running:goroutines",
        NOW,
        "Goroutines that run, about; at most GOMAXPROCS. Need not add up with the others to /sched/goroutines:goroutines.",
        || number(Now::look().running),
    ),
    count(
        "/sched/goroutines/waiting:goroutines",
        NOW,
        "Goroutines that wait for something else than a processor, about. Need not add up with the others to \
         /sched/goroutines:goroutines.",
        || {
            let now = Now::look();
            number(live().saturating_sub(now.running + now.runnable + now.not_in_go))
        },
    ),
    count("/sched/goroutines:goroutines", NOW, "Goroutines that live, without the runtime's own.", || number(live())),
    distribution(
        "/sched/latencies:seconds",
        "How long goroutines were runnable before they ran. One in 64 is measured, at random; all of them while a trigger of a flight recorder asks for it.",
        || seconds(SCHED.all_ps().iter().map(|p| &p.counts.latencies)),
    ),
    #[cfg(feature = "gc")]
    distribution(
        "/sched/pauses/stopping/gc:seconds",
        "How long it took the collector to stop the world, from the decision until all processors stood still. A part of \
         /sched/pauses/total/gc:seconds.",
        || seconds([&counts::GC_PAUSES.stopping]),
    ),
    distribution(
        "/sched/pauses/stopping/other:seconds",
        "How long it took to stop the world, from the decision until all processors stood still. A part of \
         /sched/pauses/total/other:seconds.",
        || seconds([&OTHER_PAUSES.stopping]),
    ),
    #[cfg(feature = "gc")]
    distribution(
        "/sched/pauses/total/gc:seconds",
        "How long the world was stopped by the collector, from the decision until it ran again. Plain code goes on meanwhile.",
        || seconds([&counts::GC_PAUSES.stopped]),
    ),
    distribution(
        "/sched/pauses/total/other:seconds",
        "How long the world was stopped, from the decision until it ran again. Plain code goes on meanwhile.",
        || seconds([&OTHER_PAUSES.stopped]),
    ),
    count("/sched/threads/total:threads", NOW, "Threads of the runtime that live, its helpers among them.", || {
        number(threads())
    }),
];

fn number(n: u64) -> Value {
    Value::Uint64(n)
}

/// A sum over all Ps there ever were.
fn sum(of: impl Fn(&P) -> u64) -> u64 {
    SCHED.all_ps().iter().map(of).sum()
}

fn created() -> u64 {
    SCHED.global.created() + sum(|p| p.counts.created.get())
}

fn live() -> u64 {
    // Those that ended first: one that begins and ends in between is then at worst counted as alive.
    let ended = sum(|p| p.counts.ended.get());
    created().saturating_sub(ended)
}

fn threads() -> u64 {
    let ms = SCHED.inner.lock().ms as u64;
    // Sysmon, once the runtime has started, and the tracer's threads, and who makes reports and dumps.
    let others = reporter::threads() + crate::trace::keepers() + quit::threads() + tracer::record::threads().len();
    ms + u64::from(ms > 0) + others as u64
}

fn seconds<'a>(all: impl IntoIterator<Item = &'a Durations>) -> Value {
    let mut counts = [0; BUCKETS];
    all.into_iter().for_each(|durations| durations.add_to(&mut counts));
    let begins = (0..BUCKETS).map(|i| counts::bucket_begin_ns(i) as f64 * 1e-9);
    Value::Float64Histogram(Histogram { counts: counts.to_vec(), buckets: begins.chain([f64::INFINITY]).collect() })
}

/// What goroutines do at the moment.
struct Now {
    running: u64,
    runnable: u64,
    not_in_go: u64,
}

impl Now {
    fn look() -> Now {
        let mut now =
            Now { running: 0, runnable: SCHED.global.len() as u64, not_in_go: WITHOUT_P.load(Ordering::Relaxed) };
        for p in SCHED.ps() {
            now.runnable += p.queued() as u64;
            match p.m().and_then(|m| m.current()).map(|g| g.state.status()) {
                Some(Status::Running) => now.running += 1,
                Some(Status::Syscall) => now.not_in_go += 1,
                _ => {}
            }
        }
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_units_are_theirs() {
        assert!(ALL.is_sorted_by(|a, b| a.name < b.name));
        for d in all() {
            let (path, unit) = d.name.split_once(':').expect("a unit");
            assert!(["/sched/", "/gort/", "/gc/"].iter().any(|group| path.starts_with(group)), "{d}");
            assert_eq!(unit, d.unit);
            assert_eq!((d.read)().kind(), d.kind, "{d}");
        }
    }

    #[test]
    fn quantiles() {
        let h = Histogram { counts: vec![1, 0, 98, 1], buckets: vec![0.0, 1.0, 2.0, 3.0, f64::INFINITY] };
        assert_eq!(h.quantile(0.0), Some(1.0));
        assert_eq!(h.quantile(0.5), Some(3.0));
        assert_eq!(h.quantile(0.99), Some(3.0));
        assert_eq!(h.quantile(1.0), Some(f64::INFINITY));
        assert_eq!(h.to_string(), "100 values, half below 3s, 99% below 3s, all below infinity");
        let none = Histogram { counts: vec![0], buckets: vec![0.0, 1.0] };
        assert_eq!((none.quantile(0.5), none.to_string().as_str()), (None, "0 values"));
    }
}
