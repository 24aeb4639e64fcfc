//! Minimum mutator utilisation: how much of the processors the GC left to the program, in the worst window of each length.
//!
//! At each moment the utilisation is the share of the Ps that the GC does not use: a P on which a mark worker (idle ones do
//! not count) or an assist runs is the GC's; while the world is stopped for the GC, all are. The MMU of a window length is the least
//! mean utilisation of all windows of that length in the trace. This is what `go tool trace` draws as *Minimum mutator
//! utilization*; without mark workers the curves are the same. With them there are two departures. There, a worker that
//! works a second time is counted twice when it starts and once when it stops, so its P is the GC's from then on; here a
//! worker counts while it runs. And there, a trace that ends while nothing is left to the program ends when that began.
//!
//! Memory: 24 bytes for each change of the utilisation, which only happens while the GC marks.

use std::collections::HashSet;

use crate::read::hash::{IdMap, Seed};
use crate::read::{Event, NONE, State, Tables, Transition};
use crate::wire::{Ev, reason};

/// More Ps than this no trace has; a file that says so is not believed.
const PS_MAX: u64 = 1 << 16;

/// What of the GC's counts as taken from the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Causes {
    /// The world stopped for the GC: all Ps.
    pub stops: bool,
    /// Mark workers that are not idle ones: their Ps.
    pub workers: bool,
    /// Goroutines that assist: their Ps.
    pub assists: bool,
    /// Sweeping: the Ps on which it happens.
    pub sweeps: bool,
}

impl Default for Causes {
    /// Those of `go tool trace`: all but sweeping.
    fn default() -> Causes {
        Causes { stops: true, workers: true, assists: true, sweeps: false }
    }
}

/// The utilisation from a moment on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Utilization {
    /// Since when, in ns on the trace's clock.
    pub time: i64,
    /// The share of the Ps that the program has, 0 to 1.
    pub share: f64,
}

/// The utilisation over time, with what is needed to ask for windows.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    changes: Vec<Utilization>,
    /// The integral up to each change, in ns.
    sums: Vec<f64>,
}

/// Collects the utilisation from the events of a trace.
#[derive(Debug, Default)]
pub struct Builder {
    causes: Causes,
    /// How many things of the GC's run on each P.
    ps: Vec<u32>,
    /// Ps of which that is not zero.
    busy: usize,
    stops: u32,
    assisting: HashSet<i64, Seed>,
    /// Ps that sweep.
    sweeping: HashSet<i64, Seed>,
    /// Mark workers that run.
    working: HashSet<i64, Seed>,
    /// Whether goroutines execute, as long as one may turn out to have assisted since before the trace.
    executing: IdMap<bool>,
    syncs: u64,
    last: i64,
    changes: Vec<Utilization>,
}

fn executes(state: State) -> bool {
    matches!(state, State::Running | State::Syscall)
}

impl Builder {
    /// A builder that counts these.
    pub fn new(causes: Causes) -> Builder {
        Builder { causes, ..Builder::default() }
    }

    /// Takes the next event.
    #[inline]
    pub fn event(&mut self, event: &Event, tables: &Tables) {
        self.last = event.time;
        match event.kind {
            Ev::Sync => {
                self.syncs = event.args[0];
                if self.syncs > 1 {
                    self.executing = IdMap::default();
                }
            }
            Ev::ProcsChange => self.procs(event),
            _ if self.ps.is_empty() => {}
            Ev::StwBegin | Ev::StwEnd => {
                if self.causes.stops && event.text(tables).is_some_and(|reason| reason.contains("GC")) {
                    let stops = if event.kind == Ev::StwBegin { self.stops + 1 } else { self.stops.saturating_sub(1) };
                    self.stops = stops;
                    self.change(event.time);
                }
            }
            Ev::GcMarkAssistBegin | Ev::GcMarkAssistActive | Ev::GcMarkAssistEnd => {
                if self.causes.assists {
                    self.assist(event);
                }
            }
            Ev::GcSweepBegin | Ev::GcSweepActive | Ev::GcSweepEnd => {
                if self.causes.sweeps {
                    self.sweep(event);
                }
            }
            Ev::GoLabel if self.causes.workers => {
                let label = event.text(tables).unwrap_or_default();
                let works = label.starts_with("GC ") && label != reason::GC_IDLE;
                if works && self.working.insert(event.g) {
                    self.on_p(event.p, true);
                    self.change(event.time);
                }
            }
            _ if self.working.is_empty() && self.assisting.is_empty() && self.syncs > 1 => {}
            _ => {
                if let Some(Transition::G { id, from, to }) = event.transition() {
                    self.moved(event, (id, from, to));
                }
            }
        }
    }

    fn moved(&mut self, event: &Event, (id, from, to): (i64, State, State)) {
        if self.syncs <= 1 {
            self.executing.insert(id, executes(to));
        }
        if executes(from) == executes(to) {
            return;
        }
        if !executes(to) && self.working.remove(&id) {
            // It says anew what it is when it runs again.
            self.on_p(event.p, false);
        } else if self.assisting.contains(&id) {
            self.on_p(event.p, executes(to));
        } else {
            return;
        }
        self.change(event.time);
    }

    fn procs(&mut self, event: &Event) {
        let first = self.ps.is_empty();
        self.ps.resize(event.args[0].min(PS_MAX) as usize, 0);
        self.busy = self.ps.iter().filter(|&&things| things > 0).count();
        if first && !self.ps.is_empty() {
            self.changes.push(Utilization { time: event.time, share: 1.0 });
        }
        self.change(event.time);
    }

    fn assist(&mut self, event: &Event) {
        match event.kind {
            Ev::GcMarkAssistEnd => {
                if self.assisting.remove(&event.g) {
                    self.on_p(event.p, false);
                }
            }
            Ev::GcMarkAssistBegin => {
                if self.assisting.insert(event.g) {
                    self.on_p(event.p, true);
                }
            }
            _ => {
                let g = event.args[0] as i64;
                if self.syncs > 1 || !self.assisting.insert(g) {
                    return;
                }
                if self.executing.get(&g).copied().unwrap_or(false) {
                    self.since_the_beginning();
                    self.on_p(event.p, true);
                }
            }
        }
        self.change(event.time);
    }

    fn sweep(&mut self, event: &Event) {
        match event.kind {
            Ev::GcSweepEnd => {
                if self.sweeping.remove(&event.p) {
                    self.on_p(event.p, false);
                }
            }
            Ev::GcSweepBegin => {
                if self.sweeping.insert(event.p) {
                    self.on_p(event.p, true);
                }
            }
            _ => {
                let p = event.args[0] as i64;
                if self.syncs > 1 || !self.sweeping.insert(p) {
                    return;
                }
                self.since_the_beginning();
                self.on_p(p, true);
            }
        }
        self.change(event.time);
    }

    /// Something turns out to have used a P of the GC's since the trace began.
    fn since_the_beginning(&mut self) {
        let part = 1.0 / self.ps.len() as f64;
        self.changes.iter_mut().for_each(|change| change.share = (change.share - part).max(0.0));
    }

    fn on_p(&mut self, p: i64, begins: bool) {
        let Some(things) = usize::try_from(p).ok().and_then(|p| self.ps.get_mut(p)) else {
            debug_assert!(p == NONE || p >= 0);
            return;
        };
        let before = *things > 0;
        *things = if begins { *things + 1 } else { things.saturating_sub(1) };
        let after = *things > 0;
        self.busy = self.busy + usize::from(after) - usize::from(before);
    }

    fn change(&mut self, time: i64) {
        if self.ps.is_empty() {
            return;
        }
        let busy = if self.stops > 0 { self.ps.len() } else { self.busy };
        self.push(Utilization { time, share: 1.0 - busy as f64 / self.ps.len() as f64 });
    }

    fn push(&mut self, next: Utilization) {
        match self.changes.last_mut() {
            Some(last) if last.share == next.share => {}
            Some(last) if last.time == next.time => last.share = last.share.min(next.share),
            _ => self.changes.push(next),
        }
    }

    /// The trace is broken behind the last event: the GC counts as doing nothing until it says that it does.
    pub fn gap(&mut self) {
        self.ps.fill(0);
        (self.busy, self.stops) = (0, 0);
        self.assisting.clear();
        self.sweeping.clear();
        self.working.clear();
        self.executing.clear();
        self.change(self.last);
    }

    /// The whole curve.
    pub fn finish(mut self) -> Curve {
        if !self.changes.is_empty() {
            self.push(Utilization { time: self.last, share: 0.0 });
        }
        let mut sums = Vec::with_capacity(self.changes.len());
        let (mut sum, mut before) = (0.0, Utilization { time: 0, share: 0.0 });
        for &change in &self.changes {
            sum += before.share * change.time.saturating_sub(before.time) as f64;
            sums.push(sum);
            before = change;
        }
        Curve { changes: self.changes, sums }
    }
}

/// Walks along the curve and knows the integral.
struct Edge<'a> {
    curve: &'a Curve,
    at: usize,
}

impl Edge<'_> {
    /// The integral up to `time`, which never falls from call to call.
    fn integral(&mut self, time: i64) -> f64 {
        while self.curve.changes.get(self.at + 1).is_some_and(|next| next.time <= time) {
            self.at += 1;
        }
        let change = self.curve.changes[self.at];
        self.curve.sums[self.at] + change.share * time.saturating_sub(change.time) as f64
    }

    /// When the utilisation changes next.
    fn next(&self) -> i64 {
        self.curve.changes.get(self.at + 1).map_or(i64::MAX, |next| next.time)
    }
}

impl Curve {
    /// The changes of the utilisation; the last one is the end of the trace.
    pub fn changes(&self) -> &[Utilization] {
        &self.changes
    }

    /// From the first change to the last, in ns.
    pub fn duration_ns(&self) -> u64 {
        let (first, last) = (self.changes.first(), self.changes.last());
        first.zip(last).map_or(0, |(first, last)| last.time.saturating_sub(first.time).max(0) as u64)
    }

    /// The least mean utilisation of all windows of this length in ns, and when the first such window begins. A window longer than
    /// the trace is as long as the trace. `None` if the trace does not tell GOMAXPROCS, or lasts no time.
    pub fn mmu(&self, window_ns: u64) -> Option<(f64, i64)> {
        let window = i64::try_from(window_ns.max(1).min(self.duration_ns())).ok().filter(|&window| window > 0)?;
        let (first, last) = (self.changes.first()?.time, self.changes.last()?.time);
        let (mut left, mut right) = (Edge { curve: self, at: 0 }, Edge { curve: self, at: 0 });
        let (mut least, mut when, mut time) = (f64::INFINITY, first, first);
        // The mean is linear between the moments at which an edge of the window meets a change.
        loop {
            let mean = (right.integral(time.saturating_add(window)) - left.integral(time)) / window as f64;
            if mean < least {
                (least, when) = (mean, time);
            }
            if time >= last.saturating_sub(window) {
                return Some((least.clamp(0.0, 1.0), when));
            }
            time = left.next().min(right.next().saturating_sub(window)).min(last.saturating_sub(window));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(changes: &[(i64, f64)]) -> Curve {
        let changes = changes.iter().map(|&(time, share)| Utilization { time, share }).collect();
        Builder { changes, last: 0, ..Builder::default() }.finish()
    }

    /// By looking at every window.
    fn slow(changes: &[(i64, f64)], window: i64) -> f64 {
        let (first, last) = (changes[0].0, changes[changes.len() - 1].0);
        let at = |t: i64| changes.iter().rev().find(|change| change.0 <= t).map_or(0.0, |change| change.1);
        let mean = |from: i64| (from..from + window).map(at).sum::<f64>() / window as f64;
        (first..=last - window).map(mean).fold(1.0, f64::min)
    }

    #[test]
    fn the_worst_window_is_found() {
        let changes = [(10, 1.0), (20, 0.5), (25, 0.0), (27, 0.75), (40, 1.0), (60, 0.25), (66, 1.0), (100, 0.0)];
        let curve = curve(&changes);
        assert_eq!(curve.duration_ns(), 90);
        for window in 1..=90 {
            let (mmu, _) = curve.mmu(window as u64).expect("there is a curve");
            assert!((mmu - slow(&changes, window)).abs() < 1e-9, "{window}: {mmu} {}", slow(&changes, window));
        }
        assert_eq!(curve.mmu(1), Some((0.0, 25)));
        assert_eq!(curve.mmu(1_000), curve.mmu(90));
    }

    #[test]
    fn no_curve_no_mmu() {
        assert_eq!(curve(&[]).mmu(5), None);
    }
}
