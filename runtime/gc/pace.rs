//! When a cycle begins, how much those who allocate help, and how much memory there is.

use std::env;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::arena::ARENA;
use super::window::Phase;
use super::{cycle, sweep};

/// The heap's goal is never smaller, with GOGC at 100.
const GOAL_MIN: usize = 4 << 20;
/// No percentage.
const OFF: usize = usize::MAX;
/// Bytes that are allocated, while marking, before those who allocate help.
pub(super) const ASSIST_BYTES: usize = 64 << 10;
/// A cycle begins when so much of the way to the goal is gone, in percent.
const TRIGGER_PERCENT: usize = 70;

static PERCENT: AtomicUsize = AtomicUsize::new(100);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Bytes in objects: what was marked, and what was claimed since.
static LIVE: AtomicUsize = AtomicUsize::new(0);
/// Bytes marked in this cycle, new objects included.
static MARKED: AtomicUsize = AtomicUsize::new(0);
/// Bytes marked in the last cycle.
static SURVIVED: AtomicUsize = AtomicUsize::new(0);
static GOAL: AtomicUsize = AtomicUsize::new(GOAL_MIN);
static TRIGGER: AtomicUsize = AtomicUsize::new(GOAL_MIN / 100 * TRIGGER_PERCENT);
/// Bytes to be marked for 256 that are allocated.
static ASSIST_RATIO: AtomicUsize = AtomicUsize::new(256);
/// Pauses: how many, their sum, the longest.
static PAUSES: AtomicU64 = AtomicU64::new(0);
static PAUSED_NS: AtomicU64 = AtomicU64::new(0);
static LONGEST_NS: AtomicU64 = AtomicU64::new(0);

/// What the heap is like: see [`stats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    /// Cycles that are over, sweeping included.
    pub cycles: u64,
    /// Bytes in objects: those that the last cycle has left, and new ones. What has been claimed for new ones counts.
    pub live_bytes: usize,
    /// Bytes that the last cycle has left.
    pub marked_bytes: usize,
    /// Bytes at which the next cycle is to be over.
    pub goal_bytes: usize,
    /// Bytes of the blocks that objects lie in.
    pub used_bytes: usize,
    /// Bytes of objects freed since the program began.
    pub freed_bytes: u64,
    /// How often the world was stopped, two times for each cycle at least.
    pub pauses: u64,
    /// For how long in all.
    pub paused: Duration,
    /// The longest of these.
    pub longest_pause: Duration,
    /// The limit on `used_bytes`, if there is one.
    pub memory_limit: Option<usize>,
}

/// What the heap is like, at this moment, roughly.
pub fn stats() -> Stats {
    Stats {
        cycles: cycle::completed(),
        live_bytes: live(),
        marked_bytes: SURVIVED.load(Ordering::Relaxed),
        goal_bytes: GOAL.load(Ordering::Relaxed),
        used_bytes: ARENA.used_bytes(),
        freed_bytes: sweep::freed_bytes(),
        pauses: PAUSES.load(Ordering::Relaxed),
        paused: Duration::from_nanos(PAUSED_NS.load(Ordering::Relaxed)),
        longest_pause: Duration::from_nanos(LONGEST_NS.load(Ordering::Relaxed)),
        memory_limit: memory_limit(),
    }
}

/// GOGC: by how many percent the heap grows until the next cycle is over; `None` if only the memory limit and
/// [`collect`](super::collect) begin one. 100, or what `GOGC` in the environment says (`off`, or a number).
pub fn percent() -> Option<usize> {
    environment();
    Some(PERCENT.load(Ordering::Relaxed)).filter(|p| *p != OFF)
}

/// Sets GOGC, from now on, and gives what it was. Go's `debug.SetGCPercent`.
pub fn set_percent(percent: Option<usize>) -> Option<usize> {
    environment();
    let old = PERCENT.swap(percent.unwrap_or(OFF), Ordering::Relaxed);
    set_goal();
    Some(old).filter(|p| *p != OFF)
}

/// The limit on the memory of the heap, in bytes, if there is one.
pub fn memory_limit() -> Option<usize> {
    environment();
    Some(LIMIT.load(Ordering::Relaxed)).filter(|l| *l != usize::MAX)
}

/// Limits the memory of the heap, in bytes, from now on, and gives the limit that was. `GOMEMLIMIT` in the environment does the same (a number, with
/// `B`, `KiB`, `MiB`, `GiB` or `TiB`, or `off`).
///
/// Near the limit cycles become more frequent, whatever GOGC says. Other than Go's it is never exceeded: what does not fit is an error of
/// [`Gc::try_new`](super::Gc::try_new). It is about the blocks in which objects lie, 32 KiB each; not about what objects own
/// elsewhere, nor about the rest of the program.
pub fn set_memory_limit(bytes: Option<usize>) -> Option<usize> {
    environment();
    let old = LIMIT.swap(bytes.unwrap_or(usize::MAX), Ordering::Relaxed);
    set_goal();
    Some(old).filter(|l| *l != usize::MAX)
}

/// What `GOGC` and `GOMEMLIMIT` say was read, or cannot be understood.
static READ: OnceLock<Result<(), String>> = OnceLock::new();

/// Reads `GOGC` and `GOMEMLIMIT`, once.
///
/// # Panics
///
/// If they say what cannot be understood.
pub(super) fn environment() {
    if let Err(e) = READ.get_or_init(read_environment) {
        panic!("{e}");
    }
}

fn read_environment() -> Result<(), String> {
    let text = |name| env::var_os(name).filter(|t| !t.is_empty()).map(|t| t.to_string_lossy().into_owned());
    if let Some(text) = text("GOGC") {
        let percent = parse_percent(&text).ok_or_else(|| format!("GOGC={text}: want a number of percent, or off"))?;
        PERCENT.store(percent, Ordering::Relaxed);
    }
    if let Some(text) = text("GOMEMLIMIT") {
        let wanted = "want a number of bytes, with KiB, MiB, GiB or TiB, or off";
        let limit = parse_bytes(&text).ok_or_else(|| format!("GOMEMLIMIT={text}: {wanted}"))?;
        LIMIT.store(limit, Ordering::Relaxed);
    }
    set_goal();
    Ok(())
}

fn parse_percent(text: &str) -> Option<usize> {
    if text == "off" { Some(OFF) } else { text.parse().ok().filter(|p| *p != OFF) }
}

fn parse_bytes(text: &str) -> Option<usize> {
    if text == "off" {
        return Some(usize::MAX);
    }
    const UNITS: [(&str, u32); 5] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10), ("B", 0)];
    let (number, shift) =
        UNITS.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift))).unwrap_or((text, 0));
    number.parse::<usize>().ok()?.checked_mul(1 << shift)
}

/// Bytes that the blocks may have, for those who take some.
pub(super) fn memory_limit_bytes() -> usize {
    // The first block is limited, too. What cannot be understood is told by `environment`, outside the caller's window.
    let _ = READ.get_or_init(read_environment);
    LIMIT.load(Ordering::Relaxed)
}

pub(super) fn live() -> usize {
    LIVE.load(Ordering::Relaxed)
}

pub(super) fn goal() -> usize {
    GOAL.load(Ordering::Relaxed)
}

/// Somebody has claimed so many bytes for objects. Answers whether a cycle is due.
pub(super) fn claimed(bytes: usize, phase: Phase) -> bool {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if phase.is_marking() {
        MARKED.fetch_add(bytes, Ordering::Relaxed);
        return false;
    }
    live >= TRIGGER.load(Ordering::Relaxed)
}

/// So many were not used.
pub(super) fn unclaimed(bytes: usize, phase: Phase) {
    LIVE.fetch_sub(bytes, Ordering::Relaxed);
    if phase.is_marking() {
        MARKED.fetch_sub(bytes, Ordering::Relaxed);
    }
}

pub(super) fn marked(bytes: usize) {
    MARKED.fetch_add(bytes, Ordering::Relaxed);
}

/// Whether a cycle is due for its size.
pub(super) fn is_due() -> bool {
    live() >= TRIGGER.load(Ordering::Relaxed)
}

/// A cycle begins to mark: in a stopped world.
pub(super) fn begin_mark() {
    MARKED.store(0, Ordering::Relaxed);
    let (live, goal) = (live(), goal());
    // As much is to be marked as is live, at worst, before the goal is reached.
    let way = goal.saturating_sub(live).max(GOAL_MIN / 4);
    ASSIST_RATIO.store((live.saturating_mul(256) / way).clamp(64, 256 * 64), Ordering::Relaxed);
}

/// Everything is marked: in a stopped world.
pub(super) fn end_mark() {
    let marked = MARKED.load(Ordering::Relaxed);
    LIVE.store(marked, Ordering::Relaxed);
    SURVIVED.store(marked, Ordering::Relaxed);
    set_goal();
}

fn set_goal() {
    let survived = SURVIVED.load(Ordering::Relaxed);
    let percent = PERCENT.load(Ordering::Relaxed);
    let by_percent = match percent {
        OFF => usize::MAX,
        p => survived
            .saturating_add((survived as u128 * p as u128 / 100).min(usize::MAX as u128) as usize)
            .max((GOAL_MIN as u128 * p as u128 / 100).min(usize::MAX as u128) as usize),
    };
    // Blocks are never quite full; and there must be some way to go, or cycle would follow cycle.
    let limit = LIMIT.load(Ordering::Relaxed);
    let by_limit =
        if limit == usize::MAX { limit } else { (limit - limit / 8).max(survived + survived / 16 + (64 << 10)) };
    let goal = by_percent.min(by_limit);
    GOAL.store(goal, Ordering::Relaxed);
    let way = goal.saturating_sub(survived);
    TRIGGER.store(if goal == usize::MAX { goal } else { survived + way / 100 * TRIGGER_PERCENT }, Ordering::Relaxed);
}

/// How much somebody who has allocated so many bytes is to mark.
pub(super) fn assist_work(bytes: usize) -> usize {
    bytes.saturating_mul(ASSIST_RATIO.load(Ordering::Relaxed)) / 256
}

/// Whether so much was allocated while marking that those who allocate have to wait.
pub(super) fn is_overdrawn() -> bool {
    live() > goal().saturating_add(goal() / 4)
}

/// Free blocks whose pages are kept, in bytes: what the heap may grow into.
pub(super) fn kept_bytes() -> usize {
    goal().saturating_sub(SURVIVED.load(Ordering::Relaxed)).min(1 << 30)
}

pub(super) fn paused(ns: u64) {
    PAUSES.fetch_add(1, Ordering::Relaxed);
    PAUSED_NS.fetch_add(ns, Ordering::Relaxed);
    LONGEST_NS.fetch_max(ns, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gc_settings_are_understood() {
        assert_eq!((parse_percent("50"), parse_percent("off"), parse_percent("-1")), (Some(50), Some(OFF), None));
        assert_eq!(parse_bytes("12"), Some(12));
        assert_eq!(parse_bytes("12B"), Some(12));
        assert_eq!(parse_bytes("3MiB"), Some(3 << 20));
        assert_eq!(parse_bytes("off"), Some(usize::MAX));
        for bad in ["", "MiB", "1.5GiB", "7 KiB", "99999999TiB", "many"] {
            assert_eq!(parse_bytes(bad), None, "{bad}");
        }
    }
}
