//! Blocking: by reason, by place, and the longest waits one by one.

use std::collections::HashMap;
use std::sync::Arc;

use super::elapsed;
use super::stack::{Stack, is_library};
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
    pub reason: Arc<str>,
    pub begin: i64,
    pub stack: Arc<Stack>,
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
    reasons: HashMap<Arc<str>, Stat>,
    sites: HashMap<(Arc<str>, Arc<str>, u64), Site>,
    longest: Vec<Wait>,
}

impl Collector {
    pub fn end(&mut self, wait: Open, end: i64, still_open: bool, who: Who<'_>) {
        let ns = elapsed(wait.begin, end);
        match self.reasons.get_mut(&wait.reason) {
            Some(stat) => stat.add(ns, still_open),
            None => self.reasons.entry(wait.reason.clone()).or_default().add(ns, still_open),
        }
        if is_duty(&wait.reason, who.name.map(|name| &**name)) {
            return;
        }
        let (func, file, line) = match wait.stack.site() {
            Some(frame) => (frame.func.clone(), frame.file.clone(), frame.line),
            None => ("".into(), "".into(), 0),
        };
        let key = (wait.reason.clone(), func.clone(), line);
        let new = || Site { reason: wait.reason.clone(), func, file, line, stat: Stat::default() };
        self.sites.entry(key).or_insert_with(new).stat.add(ns, still_open);
        if self.longest.len() == LONGEST_MAX && self.longest[LONGEST_MAX - 1].ns >= ns {
            return;
        }
        let Open { reason, begin, stack } = wait;
        let Who { g, name, label } = who;
        let (name, label) = (name.cloned(), label.cloned());
        let place = self.longest.partition_point(|other| other.ns >= ns);
        self.longest.insert(place, Wait { g, name, label, reason, begin, ns, open: still_open, stack });
        self.longest.truncate(LONGEST_MAX);
    }

    pub fn finish(self) -> Waits {
        let mut by_reason: Vec<_> = self.reasons.into_iter().collect();
        by_reason.sort_by(|a, b| b.1.total.cmp(&a.1.total).then_with(|| a.0.cmp(&b.0)));
        let mut by_site: Vec<_> = self.sites.into_values().collect();
        by_site.sort_by(|a, b| b.stat.total.cmp(&a.stat.total).then_with(|| (&a.func, a.line).cmp(&(&b.func, b.line))));
        Waits { by_reason, by_site, longest: self.longest }
    }
}
