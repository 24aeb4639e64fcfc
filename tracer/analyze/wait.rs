//! Blocking: by reason, by place, by stack, and the longest waits one by one.

use std::collections::HashMap;
use std::sync::Arc;

use super::elapsed;
use super::histogram::Histogram;
use super::intern::{NOWHERE, NameId, StackId, Stacks};
use super::stack::{Frame, Stack, is_library};
use crate::read::hash::Seed;
use crate::wire::reason;

/// How many of the longest waits are kept.
const LONGEST_MAX: usize = 20;

/// The reason that is given to a wait that began before the trace did.
pub const BEFORE: &str = "(began before the trace)";

/// A count of durations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// How many.
    pub count: u64,
    /// How many of them were still open when the trace ended.
    pub open: u64,
    /// Their sum, in ns.
    pub total: u128,
    /// The longest, in ns.
    pub max: u64,
}

impl Stat {
    /// Counts one.
    #[inline]
    pub fn add(&mut self, ns: u64, open: bool) {
        self.count += 1;
        self.open += u64::from(open);
        self.total += u128::from(ns);
        self.max = self.max.max(ns);
    }

    fn merge(&mut self, other: &Stat) {
        self.count += other.count;
        self.open += other.open;
        self.total += other.total;
        self.max = self.max.max(other.max);
    }
}

impl Histogram {
    /// The same in short.
    pub fn stat(&self) -> Stat {
        Stat { count: self.count(), open: self.open(), total: self.total(), max: self.max() }
    }
}

/// What a wait is for, coarsely.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// A channel.
    Chan,
    /// One of several channel operations.
    Select,
    /// A lock, a condition, a wait group.
    Sync,
    /// A socket or pipe.
    Network,
    /// Time.
    Sleep,
    /// A blocking call.
    Syscall,
    /// The garbage collector.
    Gc,
    /// Something else, or not told.
    Other,
}

impl WaitKind {
    /// All, in order.
    pub const ALL: [WaitKind; 8] = [
        WaitKind::Chan,
        WaitKind::Select,
        WaitKind::Sync,
        WaitKind::Network,
        WaitKind::Sleep,
        WaitKind::Syscall,
        WaitKind::Gc,
        WaitKind::Other,
    ];

    /// The kind of the waits for this reason of a `GoBlock`.
    pub fn of(reason: &str) -> WaitKind {
        match reason {
            reason::NETWORK => WaitKind::Network,
            reason::SLEEP => WaitKind::Sleep,
            _ if reason.contains("select") => WaitKind::Select,
            _ if reason.contains("chan") => WaitKind::Chan,
            _ if reason.starts_with("GC ") || reason == reason::GC_END => WaitKind::Gc,
            _ if reason.contains("sync") && reason != reason::SYNCTEST => WaitKind::Sync,
            _ => WaitKind::Other,
        }
    }

    /// A word for it.
    pub const fn name(self) -> &'static str {
        match self {
            WaitKind::Chan => "chan",
            WaitKind::Select => "select",
            WaitKind::Sync => "sync",
            WaitKind::Network => "network",
            WaitKind::Sleep => "sleep",
            WaitKind::Syscall => "syscall",
            WaitKind::Gc => "gc",
            WaitKind::Other => "other",
        }
    }
}

/// One wait of one goroutine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Which goroutine.
    pub g: i64,
    /// What it is called: the function it was started with.
    pub name: Option<Arc<str>>,
    /// The label it had.
    pub label: Option<Arc<str>>,
    /// Why it waited.
    pub reason: Arc<str>,
    /// When it blocked, in ns on the trace's clock.
    pub begin: i64,
    /// How long, in ns.
    pub ns: u64,
    /// It was still waiting when the trace ended.
    pub open: bool,
    /// Where it waited; `Stack::site` is the place in the program.
    pub stack: Arc<Stack>,
}

/// A place of the program at which goroutines wait for one reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Why.
    pub reason: Arc<str>,
    /// The function, or nothing if the trace has no stacks.
    pub func: Arc<str>,
    /// The source file.
    pub file: Arc<str>,
    /// The line.
    pub line: u64,
    /// How often and how long.
    pub stat: Stat,
}

/// The waits for one reason in one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackWaits {
    /// Of [`Waits::by_reason`], the place.
    pub reason: usize,
    /// The stack, in [`Summary::stacks`](super::Summary::stacks).
    pub stack: StackId,
    /// How often and how long; duties count, too.
    pub all: Stat,
    /// The same without those that are left out elsewhere.
    pub stat: Stat,
}

/// All waits of a trace.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// By reason, the longest in total first.
    pub by_reason: Vec<(Arc<str>, Histogram)>,
    /// By reason and place, the longest in total first; duties are left out, and waits from before the trace of which not even
    /// the place is known.
    pub by_site: Vec<Site>,
    /// By reason and stack, the longest in total first.
    pub by_stack: Vec<StackWaits>,
    /// The longest, the longest first; the same are left out.
    pub longest: Vec<Wait>,
}

/// A wait for this reason, or of a goroutine of this name, is a goroutine of the runtime waiting for its next duty.
pub fn is_duty(reason: &str, name: Option<&str>) -> bool {
    is_duty_reason(reason) || name.is_some_and(is_library)
}

fn is_duty_reason(reason: &str) -> bool {
    let duties = [reason::SYSTEM, reason::GC_SWEEPER, reason::GC_MARK_ASSIST, reason::GC_END, reason::PREEMPTED];
    duties.contains(&reason)
}

/// The number of a reason in a [`Collector`].
pub(super) type ReasonId = u32;

/// A reason and a stack in a [`Collector`].
pub(super) type PlaceId = u32;

/// Who waits, when a wait ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who {
    pub g: i64,
    pub name: Option<NameId>,
    pub label: Option<NameId>,
}

#[derive(Debug)]
struct Place {
    reason: ReasonId,
    /// Neither why nor where is known.
    dark: bool,
    stack: StackId,
    all: Stat,
    stat: Stat,
}

#[derive(Debug)]
struct Reason {
    name: NameId,
    duty: bool,
    waits: Histogram,
}

#[derive(Clone, Copy, Debug)]
struct Long {
    who: Who,
    place: PlaceId,
    begin: i64,
    ns: u64,
    open: bool,
}

/// Collects waits as they end.
#[derive(Debug, Default)]
pub(super) struct Collector {
    reasons: Vec<Reason>,
    /// The reason of each name.
    reason_of: Vec<u32>,
    places: Vec<Place>,
    place_index: HashMap<u64, PlaceId, Seed>,
    longest: Vec<Long>,
}

impl Collector {
    /// The place of waits for this reason in this stack.
    #[inline]
    pub fn place(&mut self, reason: NameId, stack: StackId, stacks: &Stacks) -> PlaceId {
        let key = u64::from(reason.0) << 32 | u64::from(stack.0);
        if let Some(&place) = self.place_index.get(&key) {
            return place;
        }
        let place = self.places.len() as PlaceId;
        let reason = self.reason(reason, stacks);
        let dark = stack == StackId::EMPTY && &**stacks.text(self.reasons[reason as usize].name) == BEFORE;
        self.places.push(Place { reason, dark, stack, all: Stat::default(), stat: Stat::default() });
        self.place_index.insert(key, place);
        place
    }

    fn reason(&mut self, name: NameId, stacks: &Stacks) -> ReasonId {
        let at = name.0 as usize;
        if at >= self.reason_of.len() {
            self.reason_of.resize(at + 1, NOWHERE);
        }
        if self.reason_of[at] == NOWHERE {
            self.reason_of[at] = self.reasons.len() as u32;
            let duty = is_duty_reason(stacks.text(name));
            self.reasons.push(Reason { name, duty, waits: Histogram::default() });
        }
        self.reason_of[at]
    }

    /// The reason of a place.
    #[inline]
    pub fn reason_at(&self, place: PlaceId) -> NameId {
        self.reasons[self.places[place as usize].reason as usize].name
    }

    /// A wait ends, or the trace does.
    #[inline]
    pub fn end(&mut self, place: PlaceId, (begin, end): (i64, i64), open: bool, who: Who, stacks: &Stacks) {
        let ns = elapsed(begin, end);
        let Place { reason, dark, all, stat, .. } = &mut self.places[place as usize];
        let reason = &mut self.reasons[*reason as usize];
        reason.waits.add_as(ns, open);
        all.add(ns, open);
        if *dark || reason.duty || who.name.is_some_and(|name| stacks.is_library(name)) {
            return;
        }
        stat.add(ns, open);
        if self.longest.len() < LONGEST_MAX || self.longest[LONGEST_MAX - 1].ns < ns {
            let at = self.longest.partition_point(|other| other.ns >= ns);
            self.longest.insert(at, Long { who, place, begin, ns, open });
            self.longest.truncate(LONGEST_MAX);
        }
    }

    pub fn finish(self, stacks: &Stacks) -> Waits {
        let text = |name: NameId| stacks.text(name).clone();
        let longest = self.longest.iter().map(|long| {
            let place = &self.places[long.place as usize];
            Wait {
                g: long.who.g,
                name: long.who.name.map(text),
                label: long.who.label.map(text),
                reason: text(self.reasons[place.reason as usize].name),
                begin: long.begin,
                ns: long.ns,
                open: long.open,
                stack: Arc::new(stacks.get(place.stack)),
            }
        });
        let longest = longest.collect();
        let by_site = self.by_site(stacks);

        let mut order: Vec<usize> = (0..self.reasons.len()).filter(|&i| self.reasons[i].waits.count() > 0).collect();
        let of = |i: usize| &self.reasons[i];
        order.sort_by(|&a, &b| {
            let totals = of(b).waits.total().cmp(&of(a).waits.total());
            totals.then_with(|| stacks.text(of(a).name).cmp(stacks.text(of(b).name)))
        });
        let mut rank = vec![0; self.reasons.len()];
        for (at, &reason) in order.iter().enumerate() {
            rank[reason] = at;
        }
        let mut by_stack: Vec<StackWaits> = (self.places.iter())
            .filter(|place| place.all.count > 0)
            .map(|&Place { reason, stack, all, stat, .. }| StackWaits {
                reason: rank[reason as usize],
                stack,
                all,
                stat,
            })
            .collect();
        by_stack.sort_by_key(|waits| (std::cmp::Reverse(waits.all.total), waits.reason, waits.stack));
        let mut reasons: Vec<Option<Reason>> = self.reasons.into_iter().map(Some).collect();
        let by_reason = order.iter().filter_map(|&i| reasons[i].take()).map(|r| (text(r.name), r.waits)).collect();
        Waits { by_reason, by_site, by_stack, longest }
    }

    fn by_site(&self, stacks: &Stacks) -> Vec<Site> {
        let mut sites: Vec<Site> = Vec::new();
        let mut index: HashMap<(ReasonId, Frame), usize> = HashMap::new();
        for place in self.places.iter().filter(|place| place.stat.count > 0) {
            let frame = stacks.site(place.stack).unwrap_or_default();
            // One function may have its name from two files; the line tells enough.
            let key = (place.reason, Frame { file: "".into(), ..frame.clone() });
            let at = *index.entry(key).or_insert_with(|| {
                let reason = stacks.text(self.reasons[place.reason as usize].name).clone();
                let Frame { func, file, line } = frame;
                sites.push(Site { reason, func, file, line, stat: Stat::default() });
                sites.len() - 1
            });
            sites[at].stat.merge(&place.stat);
        }
        sites.sort_by(|a, b| {
            let totals = b.stat.total.cmp(&a.stat.total);
            totals.then_with(|| (&a.func, a.line, &a.reason).cmp(&(&b.func, b.line, &b.reason)))
        });
        sites
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_kind() {
        let kinds = reason::BLOCK.map(WaitKind::of);
        use WaitKind::*;
        let expected =
            [Other, Other, Network, Select, Sync, Sync, Chan, Chan, Gc, Gc, Other, Other, Other, Gc, Sleep, Gc, Other];
        assert_eq!(kinds, expected);
    }
}
