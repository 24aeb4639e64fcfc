//! Goroutines: what each is doing and since when; how the time of all was spent.

use std::collections::HashMap;
use std::sync::Arc;

use super::stack::Taken;
use super::wait::{Collector, Open, Stat, Who};
use super::{Summary, elapsed};
use crate::read::event::{Event, State};
use crate::read::hash::{IdMap, Seed};
use crate::read::tables::Tables;
use crate::wire::Ev;

/// The goroutines of a trace.
#[derive(Clone, Debug, Default)]
pub struct Goroutines {
    /// All that the trace names.
    pub seen: u64,
    /// Those that were created in it.
    pub created: u64,
    /// Those that ended in it.
    pub ended: u64,
    /// The most that were alive at once.
    pub peak: u64,
    /// By the function they were started with, the longest running first.
    pub groups: Vec<Group>,
}

impl Goroutines {
    /// Those that were alive at the end.
    pub fn alive(&self) -> u64 {
        self.seen - self.ended
    }
}

/// The goroutines that were started with one function, and how their time was spent, in ns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The function; empty if the trace does not say.
    pub name: Arc<str>,
    /// How many.
    pub count: u64,
    /// How many of them were alive at the end.
    pub alive: u64,
    /// Running.
    pub running: u128,
    /// Runnable, waiting for a P.
    pub runnable: u128,
    /// Blocked.
    pub blocked: u128,
    /// In blocking calls.
    pub syscall: u128,
}

impl Group {
    fn spend(&mut self, state: State, ns: u64) {
        let of = match state {
            State::Running => &mut self.running,
            State::Runnable => &mut self.runnable,
            State::Waiting => &mut self.blocked,
            State::Syscall => &mut self.syscall,
            State::Undetermined | State::NotExist | State::Idle => return,
        };
        *of += u128::from(ns);
    }

    fn merge(&mut self, other: &Group) {
        self.count += other.count;
        self.alive += other.alive;
        self.running += other.running;
        self.runnable += other.runnable;
        self.blocked += other.blocked;
        self.syscall += other.syscall;
    }
}

#[derive(Debug)]
struct Track {
    state: State,
    since: i64,
    /// The trace has the event with which this state began.
    exact: bool,
    name: Option<Arc<str>>,
    label: Option<Arc<str>>,
    /// The wait it is in, if it is blocked.
    wait: Option<Open>,
    /// How many ns it spent in each state, as a group of one.
    spent: [u64; 4],
}

const STATES: [State; 4] = [State::Running, State::Runnable, State::Waiting, State::Syscall];

/// What is known of the goroutines at one moment.
#[derive(Debug, Default)]
pub(super) struct Tracks {
    gs: IdMap<Track>,
    groups: HashMap<Arc<str>, Group>,
    waits: Collector,
    /// The names of goroutines by the id of the stack they are created with, in this generation.
    names: HashMap<u64, Arc<str>, Seed>,
}

impl Tracks {
    /// Another generation: ids mean other things.
    pub fn turn(&mut self) {
        self.names.clear();
        self.waits.turn();
    }

    pub fn label(&mut self, g: i64, label: Arc<str>) {
        if let Some(track) = self.gs.get_mut(&g) {
            track.label = Some(label);
        }
    }

    pub fn moved(
        &mut self,
        event: &Event,
        (id, from, to): (i64, State, State),
        summary: &mut Summary,
        taken: &mut Taken,
        tables: &Arc<Tables>,
    ) {
        let now = event.time;
        let creates = matches!(event.kind, Ev::GoCreate | Ev::GoCreateBlocked | Ev::GoCreateSyscall);
        let all = &mut summary.goroutines;
        all.created += u64::from(creates);
        let named = match event.kind {
            Ev::GoCreate | Ev::GoCreateBlocked => Some(self.name_of(event.args[1], taken, tables)),
            _ => None,
        };
        let mut first = false;
        let track = self.gs.entry(id).or_insert_with(|| {
            first = true;
            let since = if creates { now } else { summary.start };
            let state = if creates { to } else { State::Undetermined };
            Track { state, since, exact: creates, name: named, label: None, wait: None, spent: [0; 4] }
        });
        if first {
            all.seen += 1;
            all.peak = all.peak.max(all.alive());
        }
        let status = from == to || track.state == State::Undetermined;
        if track.name.is_none()
            && matches!(event.kind, Ev::GoBlock | Ev::GoStop | Ev::GoSyscallBegin | Ev::GoStatusStack)
        {
            track.name = taken.stack(event.stack(), tables).root().map(|frame| frame.func.clone());
        }
        if first || status {
            if first && to == State::Waiting {
                track.wait = Some(self.waits.begin_before(track.since, taken.stack(event.stack(), tables)));
            }
            track.state = to;
            return;
        }
        let spent = elapsed(track.since, now);
        track.spend(spent);
        match (track.state, to) {
            (State::Runnable, State::Running) if track.exact => summary.latency.add(spent),
            (State::Syscall, _) => summary.syscalls.add(spent, false),
            _ => {}
        }
        if let Some(wait) = track.wait.take() {
            let who = Who { g: id, name: track.name.as_ref(), label: track.label.as_ref() };
            self.waits.end(wait, now, false, who);
        }
        if to == State::Waiting {
            track.wait = Some(self.waits.begin(now, (event.args[0], event.stack()), taken, tables));
        }
        track.state = to;
        track.since = now;
        track.exact = true;
        if to == State::NotExist {
            all.ended += 1;
            if let Some(track) = self.gs.remove(&id) {
                self.fold(track, false);
            }
        }
    }

    /// What a goroutine is called that is created with this stack.
    fn name_of(&mut self, stack: u64, taken: &mut Taken, tables: &Tables) -> Arc<str> {
        let take = || {
            let stack = taken.stack(stack, tables);
            stack.site().map_or_else(|| "".into(), |frame| frame.func.clone())
        };
        self.names.entry(stack).or_insert_with(take).clone()
    }

    fn fold(&mut self, track: Track, alive: bool) {
        let name = track.name.unwrap_or_default();
        let mut one = Group { name: name.clone(), count: 1, alive: u64::from(alive), ..Group::default() };
        for (state, ns) in STATES.into_iter().zip(track.spent) {
            one.spend(state, ns);
        }
        match self.groups.get_mut(&name) {
            Some(group) => group.merge(&one),
            None => drop(self.groups.insert(name, one)),
        }
    }

    /// Closes what is open.
    pub fn finish(mut self, end: i64, summary: &mut Summary) {
        let mut live: Vec<(i64, Track)> = self.gs.drain().collect();
        live.sort_unstable_by_key(|(id, _)| *id);
        for (g, mut track) in live {
            let spent = elapsed(track.since, end);
            track.spend(spent);
            if track.state == State::Syscall {
                summary.syscalls.add(spent, true);
            }
            if let Some(wait) = track.wait.take() {
                let who = Who { g, name: track.name.as_ref(), label: track.label.as_ref() };
                self.waits.end(wait, end, true, who);
            }
            self.fold(track, true);
        }
        summary.waits = self.waits.finish();
        let mut groups: Vec<Group> = self.groups.into_values().collect();
        groups.sort_by(|a, b| b.running.cmp(&a.running).then_with(|| a.name.cmp(&b.name)));
        summary.goroutines.groups = groups;
    }
}

impl Track {
    fn spend(&mut self, ns: u64) {
        if let Some(place) = STATES.iter().position(|&state| state == self.state) {
            self.spent[place] += ns;
        }
    }
}

impl Summary {
    /// How the time of all goroutines together was spent.
    pub fn spent(&self) -> Group {
        let mut all = Group::default();
        for group in &self.goroutines.groups {
            all.merge(group);
        }
        all
    }

    /// The waits for this reason.
    pub fn waits_for(&self, reason: &str) -> Stat {
        self.waits.by_reason.iter().find(|(other, _)| &**other == reason).map(|(_, stat)| *stat).unwrap_or_default()
    }
}
