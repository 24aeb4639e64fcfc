//! The watchdog: reports goroutines that keep a thread to themselves, and deadlocks of a few while the others run.
//!
//! - WD1: a goroutine is reported when its M has not crossed the border for longer than the limit while it was in plain
//!   code: an endless loop, a long computation, a system call that was not declared. It is reported once for each such
//!   stay. One in [`rt::blocking`](crate::blocking) has said that it will take its time, and is never reported.
//! - WD2: also one that was asked to give its processor to others and did not, though it calls into the runtime: it is
//!   unwinding.
//! - WD3: sysmon finds them, at the cost of a comparison per P and look. Names and stacks are the reporter's, and only
//!   if there is somebody to read them.
//! - WD4: once a second, if anybody has waited for a lock at all, goroutines that wait for one for longer than the
//!   limit are followed to whom they wait for; likewise those that wait for another one's end. A look passes [`SLOTS`]
//!   goroutines at most, reading one byte of each, and follows [`FOLLOWS`], so that it takes a few milliseconds at
//!   most; where there are more it takes several looks to see all.
//! - WD5: a cycle is reported once: goroutines in it never go on (CY3). One that was dissolved by a time-out and closed
//!   again is another.
//! - WD6: whoever has set a tripwire for it is told, by a limit of his own, of the same that WD1 and WD2 report. Once for each stay.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tracer::record::Slot;
use tracer::wire::ext::Record;

use crate::prim::coarse;
use crate::sched::cycle::{self, Link};
use crate::sched::dump::{self, Span};
use crate::sched::g::G;
use crate::sched::m::M;
use crate::sched::owner;
use crate::sched::p::P;
use crate::sched::reporter;
use crate::sched::slab::SLAB;
use crate::sched::state::Status;
use crate::sched::tripwire::{self, Kind};

/// The limit, if nothing is said.
pub(crate) const LIMIT_DEFAULT: Duration = Duration::from_millis(100);
/// How often cycles are looked for.
const CYCLES_EVERY_NS: u64 = 1_000_000_000;
/// Goroutines that one such look passes (WD4).
const SLOTS: usize = 1 << 17;
/// Goroutines that one such look follows (WD4).
const FOLLOWS: usize = 1 << 12;

/// The target of log records.
const TARGET: &str = "gort";

/// In nanoseconds; 0: off.
static LIMIT_NS: AtomicU64 = AtomicU64::new(0);
/// Reports so far.
static REPORTS: AtomicU64 = AtomicU64::new(0);

/// How much the watchdog has reported so far.
pub(crate) fn reports() -> u64 {
    REPORTS.load(Ordering::Relaxed)
}

/// What `RT_WATCHDOG` says, or the default.
pub(crate) fn limit_from_environment() -> Result<Duration, String> {
    match std::env::var_os("RT_WATCHDOG") {
        None => Ok(LIMIT_DEFAULT),
        Some(v) => match v.to_str() {
            Some("") => Ok(LIMIT_DEFAULT),
            Some("off") => Ok(Duration::ZERO),
            text => match text.and_then(|s| s.parse::<u64>().ok()) {
                Some(ms) => Ok(Duration::from_millis(ms)),
                None => Err(format!("RT_WATCHDOG={}: want milliseconds, or off", v.to_string_lossy())),
            },
        },
    }
}

/// Sets the limit. Before sysmon starts.
pub(crate) fn set_limit(limit: Duration) {
    LIMIT_NS.store(u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
}

/// Ms whose P was taken by somebody else than sysmon while they were in plain code, until sysmon looks after them.
static LOST: parking_lot::Mutex<Vec<&'static M>> = parking_lot::Mutex::new(Vec::new());

/// The P of `m` was taken in plain code, by somebody else than sysmon.
pub(crate) fn lost_p_to_others(m: &'static M) {
    if LIMIT_NS.load(Ordering::Relaxed) != 0 || tripwire::is_set(Kind::Stuck) {
        LOST.lock().push(m);
    }
}

/// Sysmon's part.
pub(crate) struct Watchdog {
    limit_ns: u64,
    /// Ms whose P was taken while they were in plain code, before that was a case for a report. They are on no P any
    /// more.
    away: Vec<Away>,
    cycles_looked_ns: u64,
}

struct Away {
    m: &'static M,
    crossings: u32,
    since_ns: u64,
}

/// Why a goroutine is reported.
#[derive(Clone, Copy)]
enum Why {
    /// WD1
    Outside,
    /// WD2
    KeepsProcessor,
}

impl Watchdog {
    pub(crate) fn new() -> Watchdog {
        Watchdog { limit_ns: LIMIT_NS.load(Ordering::Relaxed), away: Vec::new(), cycles_looked_ns: 0 }
    }

    /// From when on somebody is to be told of a stay.
    #[inline]
    fn soonest_ns(&self) -> u64 {
        let report = if self.limit_ns == 0 { tripwire::OFF } else { self.limit_ns };
        report.min(tripwire::limit_ns(Kind::Stuck))
    }

    /// Whether somebody is still to be told of the stay that `m` is in.
    fn wants(&self, m: &M) -> bool {
        let left = |said: &AtomicBool| !said.load(Ordering::Relaxed);
        self.limit_ns != 0 && left(&m.outside.reported) || tripwire::is_set(Kind::Stuck) && left(&m.outside.tripped)
    }

    /// Whether nobody is watched who is on no P.
    pub(crate) fn is_idle(&self) -> bool {
        self.away.is_empty()
    }

    /// `m`, which has a P, has not crossed its border since `since_ns`.
    #[inline]
    pub(crate) fn is_outside(&self, m: &'static M, crossings: u32, since_ns: u64, now_ns: u64) {
        if now_ns - since_ns >= self.soonest_ns() {
            self.stays(m, crossings, since_ns, now_ns);
        }
    }

    /// `m` keeps its P, though others want it and it was told so at `since_ns` (WD2).
    #[inline]
    pub(crate) fn keeps(&self, p: &P, m: &'static M, since_ns: u64, now_ns: u64) {
        let for_ns = now_ns - since_ns;
        if for_ns >= tripwire::limit_ns(Kind::Stuck)
            && !p.seen.tripped.replace(true)
            && let Some(g) = m.current().filter(|g| !g.marks.is_system())
        {
            tripwire::trip_if_long(Kind::Stuck, "stuck", for_ns, g.id());
        }
        if self.limit_ns != 0 && for_ns >= self.limit_ns && !p.seen.reported.get() {
            let crossings = m.border.crossings();
            if let Some(g) = m.current().filter(|g| !g.marks.is_system()) {
                p.seen.reported.set(true);
                report(Suspect { m, g, id: g.id(), crossings, for_ns, why: Why::KeepsProcessor });
            }
        }
    }

    /// The P of `m` was taken in plain code.
    pub(crate) fn lost_p(&mut self, m: &'static M, crossings: u32, since_ns: u64) {
        if self.wants(m) {
            self.away.push(Away { m, crossings, since_ns });
        }
    }

    /// Looks after those that are on no P, and for cycles.
    pub(crate) fn look(&mut self, now_ns: u64) {
        if self.limit_ns == 0 && !tripwire::is_set(Kind::Stuck) && self.away.is_empty() {
            return;
        }
        for m in std::mem::take(&mut *LOST.lock()) {
            let crossings = m.border.crossings();
            if crossings.is_multiple_of(2) && m.p().is_none() {
                self.lost_p(m, crossings, m.outside.look(crossings, now_ns));
            }
        }
        let mut away = std::mem::take(&mut self.away);
        away.retain(|a| {
            let stays = a.m.border.crossings() == a.crossings;
            if stays && now_ns - a.since_ns >= self.soonest_ns() {
                self.stays(a.m, a.crossings, a.since_ns, now_ns);
            }
            stays && self.wants(a.m)
        });
        self.away = away;
        if self.limit_ns != 0 && now_ns - self.cycles_looked_ns >= CYCLES_EVERY_NS {
            self.cycles_looked_ns = now_ns;
            if owner::is_contended() {
                seek_cycles(self.limit_ns);
            }
        }
    }

    #[cold]
    fn stays(&self, m: &'static M, crossings: u32, since_ns: u64, now_ns: u64) {
        // Of a goroutine that is outside, state and id do not change; whether it has been all the while is asked last.
        // A P that was taken in plain code makes it Syscall as well, so then the M's P tells.
        let Some(g) = m.current() else { return };
        let (id, declared) = (g.id(), g.state.status() == Status::Syscall && m.p().is_some());
        let for_ns = now_ns - since_ns;
        let is_one = !declared && !g.marks.is_system() && m.border.crossings() == crossings;
        // Both are to be said once for each stay, when their time has come.
        let first =
            |said: &AtomicBool, limit_ns: u64| for_ns >= limit_ns && !said.swap(true, Ordering::Relaxed) && is_one;
        if first(&m.outside.tripped, tripwire::limit_ns(Kind::Stuck)) {
            tripwire::trip_if_long(Kind::Stuck, "stuck", for_ns, id);
        }
        if self.limit_ns != 0 && first(&m.outside.reported, self.limit_ns) {
            report(Suspect { m, g, id, crossings, for_ns, why: Why::Outside });
        }
    }
}

/// A goroutine to be reported.
struct Suspect {
    m: &'static M,
    g: &'static G,
    id: u64,
    crossings: u32,
    for_ns: u64,
    why: Why,
}

fn report(s: Suspect) {
    REPORTS.fetch_add(1, Ordering::Relaxed);
    // Only an atomic is looked at here: the logger itself is the program's, and is asked by the reporter.
    let is_read = log::max_level() >= log::LevelFilter::Warn;
    if !is_read && !tracer::record::enabled() {
        return; // WD3
    }
    reporter::submit(Box::new(move |slot| {
        record(slot, Record::Stall { g: s.id, for_ns: s.for_ns, m: s.m.tid() });
        if is_read && log::log_enabled!(target: TARGET, log::Level::Warn) {
            log::warn!(target: TARGET, "{}", text_of(&s));
        }
    }));
}

fn record(slot: &'static Slot, record: Record) {
    // The full gate: nothing holds this thread still in a stopped world.
    let guard = slot.acquire();
    if let Some(mut w) = guard.writer() {
        w.extension(record);
    }
}

fn text_of(s: &Suspect) -> String {
    let dump = dump::some(std::iter::once(s.g), Vec::new());
    let seen = dump.get(s.id);
    let mut text = format!("goroutine {}", s.id);
    if let Some(name) = seen.and_then(|g| g.name.as_ref()) {
        let _ = write!(text, " {name:?}");
    }
    let span = Span(Duration::from_nanos(s.for_ns));
    let limit = Span(Duration::from_nanos(LIMIT_NS.load(Ordering::Relaxed)));
    let _ = match s.why {
        Why::Outside => write!(
            text,
            " has not called into the runtime for {span} (limit {limit}): use rt::blocking for calls that block"
        ),
        Why::KeepsProcessor => {
            write!(text, " has kept its processor for {span} while others wait for it (limit {limit})")
        }
    };
    match seen {
        Some(g) if s.m.border.crossings() == s.crossings || matches!(s.why, Why::KeepsProcessor) => {
            text.push('\n');
            let _ = dump::write_stack(&mut text, g);
        }
        _ => text.push_str("; it has gone on since"),
    }
    text.truncate(text.trim_end().len());
    text
}

/// Has a look for cycles made, unless one is being made (WD4).
fn seek_cycles(limit_ns: u64) {
    static SEEKING: AtomicBool = AtomicBool::new(false);
    if !SEEKING.swap(true, Ordering::Relaxed) {
        struct Done;
        impl Drop for Done {
            fn drop(&mut self) {
                SEEKING.store(false, Ordering::Relaxed);
            }
        }
        // Goes with the job, whether that is run or not.
        let done = Done;
        reporter::submit(Box::new(move |slot| {
            let _done = done;
            // The lock is let go before the program's logger is called.
            let found = SEEKER.lock().look(limit_ns);
            found.iter().for_each(|cycle| report_cycle(cycle, slot));
        }));
    }
}

/// What is remembered from one look for cycles to the next. Used by the reporter alone.
struct Seeker {
    /// Where the next look begins.
    next: usize,
    /// Somebody was found to wait in this round over all goroutines.
    found: bool,
    /// Cycles that were reported: the lowest id, and since when that one waits (WD5).
    reported: Option<HashSet<(u64, u64)>>,
}

static SEEKER: parking_lot::Mutex<Seeker> = parking_lot::Mutex::new(Seeker { next: 0, found: false, reported: None });

impl Seeker {
    /// Looks at the next goroutines; answers new cycles.
    fn look(&mut self, limit_ns: u64) -> Vec<Vec<Link>> {
        let mut new = Vec::new();
        let len = SLAB.len();
        if self.next == 0 || self.next >= len {
            self.next = 0;
            self.found = false;
            owner::forget_contention();
        }
        let end = len.min(self.next + SLOTS);
        let before_ns = coarse::now_ns().saturating_sub(limit_ns);
        let mut follows = 0;
        while self.next < end && follows < FOLLOWS {
            let g = SLAB.get(self.next);
            self.next += 1;
            if !g.waits_for_held.load(Ordering::Relaxed) {
                continue;
            }
            let status = g.state.status();
            // One that is on its way to wait has said so already.
            self.found |= status != Status::Dead;
            if status == Status::Waiting {
                follows += 1;
                new.extend(self.follow(g, before_ns));
            }
        }
        if self.found || self.next < len {
            // Those who wait already do not say so again.
            owner::remember_contention();
        }
        new
    }

    /// The cycle that `g` waits for, if it has waited for long and the cycle is new.
    fn follow(&mut self, g: &'static G, before_ns: u64) -> Option<Vec<Link>> {
        Link::of(g).filter(|l| l.since_ns <= before_ns)?;
        let cycle = cycle::from(g)?;
        let is_new = self.reported.get_or_insert_default().insert((cycle[0].id, cycle[0].since_ns));
        is_new.then_some(cycle)
    }
}

fn report_cycle(cycle: &[Link], slot: &'static Slot) {
    REPORTS.fetch_add(1, Ordering::Relaxed);
    for (i, link) in cycle.iter().enumerate() {
        let holder = cycle[(i + 1) % cycle.len()].id;
        record(slot, Record::LockCycle { g: link.id, holder, object: link.wait.object as u64 });
    }
    if !log::log_enabled!(target: TARGET, log::Level::Error) {
        return;
    }
    let dump = dump::some(cycle.iter().map(|l| l.g), vec![cycle.iter().map(|l| l.id).collect()]);
    log::error!(target: TARGET, "{}", dump.to_string().trim_end());
}
