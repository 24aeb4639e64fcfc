//! Blocking: by reason, by place, and the longest waits one by one.

use std::collections::HashMap;
use std::sync::Arc;

use super::elapsed;
use super::stack::{Stack, Taken, is_library};
use crate::read::hash::Seed;
use crate::read::tables::Tables;
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
    pub fn add(&mut self, ns: u64, open: bool) {
        self.count += 1;
        self.open += u64::from(open);
        self.total += u128::from(ns);
        self.max = self.max.max(ns);
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

/// All waits of a trace.
#[derive(Clone, Debug, Default)]
pub struct Waits {
    /// By reason, the longest in total first.
    pub by_reason: Vec<(Arc<str>, Stat)>,
    /// By reason and place, the longest in total first; duties are left out.
    pub by_site: Vec<Site>,
    /// The longest, the longest first; duties are left out.
    pub longest: Vec<Wait>,
}

/// A wait for this reason, or of a goroutine of this name, is a goroutine of the runtime waiting for its next duty.
pub fn is_duty(reason: &str, name: Option<&str>) -> bool {
    let duties = [reason::SYSTEM, reason::GC_SWEEPER, reason::GC_MARK_ASSIST, reason::GC_END, reason::PREEMPTED];
    duties.contains(&reason) || name.is_some_and(is_library)
}

/// A wait that has not ended.
#[derive(Clone, Debug)]
pub(super) struct Open {
    pub begin: i64,
    place: Place,
}

/// A reason and a stack, and where they are counted.
#[derive(Clone, Debug)]
struct Place {
    /// Of [`Collector::reasons`].
    reason: u32,
    /// Of [`Collector::sites`].
    site: u32,
    stack: Arc<Stack>,
}

/// Who waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Who<'a> {
    pub g: i64,
    pub name: Option<&'a Arc<str>>,
    pub label: Option<&'a Arc<str>>,
}

/// Collects waits as they end.
#[derive(Debug, Default)]
pub(super) struct Collector {
    reasons: Vec<(Arc<str>, Stat)>,
    reason_index: HashMap<Arc<str>, u32>,
    sites: Vec<Site>,
    site_index: HashMap<(u32, Arc<str>, u64), u32>,
    /// Places by the ids of reason and stack, in this generation.
    places: HashMap<(u64, u64), Place, Seed>,
    longest: Vec<Wait>,
}

impl Collector {
    /// Another generation: ids mean other things.
    pub fn turn(&mut self) {
        self.places.clear();
    }

    /// A wait begins, for the reason and in the stack with these ids.
    pub fn begin(&mut self, begin: i64, (reason, stack): (u64, u64), taken: &mut Taken, tables: &Tables) -> Open {
        if let Some(place) = self.places.get(&(reason, stack)) {
            return Open { begin, place: place.clone() };
        }
        let place = self.place(taken.string(reason, tables), taken.stack(stack, tables));
        self.places.insert((reason, stack), place.clone());
        Open { begin, place }
    }

    /// A wait began before the trace did.
    pub fn begin_before(&mut self, begin: i64, stack: Arc<Stack>) -> Open {
        Open { begin, place: self.place(BEFORE.into(), stack) }
    }

    fn place(&mut self, text: Arc<str>, stack: Arc<Stack>) -> Place {
        let Collector { reasons, reason_index, sites, site_index, .. } = self;
        let reason = *reason_index.entry(text.clone()).or_insert_with(|| {
            reasons.push((text.clone(), Stat::default()));
            reasons.len() as u32 - 1
        });
        let (func, file, line) = match stack.site() {
            Some(frame) => (frame.func.clone(), frame.file.clone(), frame.line),
            None => ("".into(), "".into(), 0),
        };
        let site = *site_index.entry((reason, func.clone(), line)).or_insert_with(|| {
            sites.push(Site { reason: text, func, file, line, stat: Stat::default() });
            sites.len() as u32 - 1
        });
        Place { reason, site, stack }
    }

    /// A wait ends, or the trace does.
    pub fn end(&mut self, wait: Open, end: i64, still_open: bool, who: Who<'_>) {
        let Open { begin, place: Place { reason, site, stack } } = wait;
        let ns = elapsed(begin, end);
        let (reason, stat) = &mut self.reasons[reason as usize];
        stat.add(ns, still_open);
        if is_duty(reason, who.name.map(|name| &**name)) {
            return;
        }
        self.sites[site as usize].stat.add(ns, still_open);
        if self.longest.len() == LONGEST_MAX && self.longest[LONGEST_MAX - 1].ns >= ns {
            return;
        }
        let Who { g, name, label } = who;
        let (name, label, reason) = (name.cloned(), label.cloned(), reason.clone());
        let place = self.longest.partition_point(|other| other.ns >= ns);
        self.longest.insert(place, Wait { g, name, label, reason, begin, ns, open: still_open, stack });
        self.longest.truncate(LONGEST_MAX);
    }

    pub fn finish(self) -> Waits {
        let Collector { reasons: mut by_reason, sites: mut by_site, longest, .. } = self;
        by_reason.retain(|(_, stat)| stat.count > 0);
        by_reason.sort_by(|a, b| b.1.total.cmp(&a.1.total).then_with(|| a.0.cmp(&b.0)));
        by_site.retain(|site| site.stat.count > 0);
        by_site.sort_by(|a, b| b.stat.total.cmp(&a.stat.total).then_with(|| (&a.func, a.line).cmp(&(&b.func, b.line))));
        Waits { by_reason, by_site, longest }
    }
}
