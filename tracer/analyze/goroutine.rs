//! Goroutines: what each is doing and since when; how the time of all was spent.

use std::sync::Arc;

use super::elapsed;
use super::histogram::Histogram;
use super::intern::{NOWHERE, NameId, StackId, Stacks};
use super::procs::{Clocks, Meanwhile, ProcTracks};
use super::sched::{Delay, Delays};
use super::user::{OpenRegion, Users};
use super::wait::{Collector, PlaceId, Waits, Who};
use crate::read::slots::Slots;
use crate::read::{Event, State, Tables};
use crate::wire::Ev;

/// Stretches that a goroutine without a name keeps until it has one.
const EARLY_MAX: usize = 16;

/// The goroutines of a trace.
#[derive(Clone, Debug, Default)]
pub struct Goroutines {
    /// All that the trace names.
    pub seen: u64,
    /// Those that were created in it.
    pub created: u64,
    /// Those that ended in it.
    pub ended: u64,
    /// Those that were alive where the trace is broken. Behind that, nobody can tell them from others: they are seen anew.
    pub lost: u64,
    /// The most that were alive at once.
    pub peak: u64,
    /// By the function they were started with, the longest running first.
    pub groups: Vec<Group>,
}

impl Goroutines {
    /// Those that were alive at the end.
    pub fn alive(&self) -> u64 {
        self.seen - self.ended - self.lost
    }
}

/// How time was spent, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Running.
    pub running: u128,
    /// Runnable, waiting for a P.
    pub runnable: u128,
    /// Blocked.
    pub blocked: u128,
    /// In blocking calls.
    pub syscall: u128,
}

impl Spent {
    /// All of it.
    pub fn all(&self) -> u128 {
        self.running + self.runnable + self.blocked + self.syscall
    }

    pub(super) fn add(&mut self, spent: [u64; 4]) {
        let [running, runnable, blocked, syscall] = spent.map(u128::from);
        self.merge(&Spent { running, runnable, blocked, syscall });
    }

    pub(super) fn merge(&mut self, other: &Spent) {
        self.running += other.running;
        self.runnable += other.runnable;
        self.blocked += other.blocked;
        self.syscall += other.syscall;
    }
}

/// The goroutines that were started with one function, and the stretches of their lives: how often, how long, in ns.
///
/// A stretch is the time from one change of state to the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// The function; empty if the trace does not say.
    pub name: Arc<str>,
    /// How many.
    pub count: u64,
    /// How many of them were alive at the end.
    pub alive: u64,
    /// Running.
    pub running: Histogram,
    /// Runnable, waiting for a P.
    pub runnable: Histogram,
    /// Idle Ps could have saved so much of that, in ns: see [`Delays`](super::Delays).
    pub runnable_idle: u128,
    /// So much of it passed while the world was stopped, in ns.
    pub runnable_stopped: u128,
    /// Blocked, by reason, the longest in total first.
    pub blocked: Vec<(Arc<str>, Histogram)>,
    /// In blocking calls.
    pub syscall: Histogram,
    /// Assisting the GC; this is a part of the time in the other states.
    pub assist: Histogram,
}

impl Group {
    /// How the time of all of them was spent.
    pub fn spent(&self) -> Spent {
        Spent {
            running: self.running.total(),
            runnable: self.runnable.total(),
            blocked: self.blocked.iter().map(|(_, waits)| waits.total()).sum(),
            syscall: self.syscall.total(),
        }
    }

    /// All their waits, whatever the reason.
    pub fn all_blocked(&self) -> Histogram {
        let mut all = Histogram::default();
        self.blocked.iter().for_each(|(_, waits)| all.merge(waits));
        all
    }
}

/// A group in the making.
#[derive(Debug, Default)]
struct Gathering {
    name: NameId,
    group: Group,
    blocked: Vec<(NameId, Histogram)>,
}

/// From one change of state to the next.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    state: State,
    /// Why, if it is blocked.
    reason: NameId,
    ns: u64,
    open: bool,
    /// What it was for, if it is runnable.
    meanwhile: Meanwhile,
}

impl Gathering {
    #[inline]
    fn count(&mut self, stretch: &Stretch) {
        let Stretch { state, reason, ns, open, meanwhile } = *stretch;
        match state {
            State::Running => self.group.running.add_as(ns, open),
            State::Runnable => {
                self.group.runnable.add_as(ns, open);
                self.group.runnable_idle += u128::from(meanwhile.idle);
                self.group.runnable_stopped += u128::from(meanwhile.stopped);
            }
            State::Waiting => {
                let at = self.blocked.iter().position(|(other, _)| *other == reason).unwrap_or_else(|| {
                    self.blocked.push((reason, Histogram::default()));
                    self.blocked.len() - 1
                });
                self.blocked[at].1.add_as(ns, open);
            }
            State::Syscall => self.group.syscall.add_as(ns, open),
            State::Undetermined | State::NotExist | State::Idle => {}
        }
    }

    fn finish(self, stacks: &Stacks) -> Group {
        let mut group = self.group;
        group.name = stacks.text(self.name).clone();
        group.blocked = self.blocked.into_iter().map(|(reason, waits)| (stacks.text(reason).clone(), waits)).collect();
        group.blocked.sort_by(|a, b| b.1.total().cmp(&a.1.total()).then_with(|| a.0.cmp(&b.0)));
        group
    }
}

/// What few goroutines have.
#[derive(Debug, Default)]
struct Rare {
    early: Vec<Stretch>,
    regions: Vec<OpenRegion>,
    assist: Option<i64>,
}

#[derive(Debug)]
struct Track {
    state: State,
    /// The trace has the event with which this state began.
    exact: bool,
    /// A place in `Tracks::groups`, or `NOWHERE`.
    group: u32,
    /// The label it has; the empty name for none.
    label: NameId,
    /// Where it waits or calls, if it does.
    place: PlaceId,
    since: i64,
    /// What the clocks said when it became runnable.
    clocks: Clocks,
    /// How many ns it spent in each state.
    spent: [u64; 4],
    rare: Option<Box<Rare>>,
}

fn state_index(state: State) -> Option<usize> {
    match state {
        State::Running => Some(0),
        State::Runnable => Some(1),
        State::Waiting => Some(2),
        State::Syscall => Some(3),
        State::Undetermined | State::NotExist | State::Idle => None,
    }
}

/// What is known of the goroutines at one moment.
#[derive(Debug)]
pub(super) struct Tracks {
    gs: Slots<Track>,
    groups: Vec<Gathering>,
    /// The group of each name.
    group_of: Vec<u32>,
    waits: Collector,
    calls: Collector,
    delays: Delays,
    pub users: Users,
    all: Goroutines,
    /// The names of the reasons of calls, and of waits from before the trace.
    call: NameId,
    before: NameId,
}

/// What comes of the goroutines.
#[derive(Debug)]
pub(super) struct Outcome {
    pub goroutines: Goroutines,
    pub waits: Waits,
    pub calls: Waits,
    pub delays: Delays,
    pub users: Users,
}

/// What an event needs to know beside itself.
pub(super) struct Context<'a> {
    pub start: i64,
    pub stacks: &'a mut Stacks,
    pub procs: &'a mut ProcTracks,
    pub tables: &'a Tables,
}

impl Tracks {
    pub fn new(stacks: &mut Stacks) -> Tracks {
        Tracks {
            gs: Slots::default(),
            groups: Vec::new(),
            group_of: Vec::new(),
            waits: Collector::default(),
            calls: Collector::default(),
            delays: Delays::default(),
            users: Users::default(),
            all: Goroutines::default(),
            call: stacks.name(super::wait::WaitKind::Syscall.name()),
            before: stacks.name(super::wait::BEFORE),
        }
    }

    pub fn label(&mut self, g: i64, label: NameId) {
        if let Some(track) = self.gs.get_mut(g) {
            track.label = label;
        }
    }

    /// A goroutine changes its state.
    pub fn moved(&mut self, event: &Event, (id, from, to): (i64, State, State), context: &mut Context<'_>) {
        let now = event.time;
        let Context { stacks, procs, tables, .. } = context;
        let Some(track) = self.gs.get_mut(id) else {
            return self.meet(event, id, to, context);
        };
        if track.group == NOWHERE && tells_its_stack(event.kind) {
            let stack = stacks.stack(event.stack(), tables);
            if let Some(name) = stacks.root_func(stack) {
                Tracks::name(&mut self.groups, &mut self.group_of, track, name);
            }
        }
        if from == to {
            return; // A status: nothing has changed.
        }
        let ns = elapsed(track.since, now);
        let who = Who { g: id, name: self.groups.get(track.group as usize).map(|g| g.name), label: label_of(track) };
        let mut stretch =
            Stretch { state: track.state, reason: self.call, ns, open: false, meanwhile: Meanwhile::default() };
        match track.state {
            State::Runnable => {
                procs.runnable(now, -1);
                stretch.meanwhile = procs.clocks().since(track.clocks);
                if to == State::Running && track.exact {
                    let Meanwhile { idle, stopped } = stretch.meanwhile;
                    self.delays.add(Delay { g: id, name: None, begin: track.since, ns, idle, stopped }, who.name);
                }
            }
            State::Waiting => {
                stretch.reason = self.waits.reason_at(track.place);
                self.waits.end(track.place, (track.since, now), false, who, stacks);
            }
            State::Syscall => self.calls.end(track.place, (track.since, now), false, who, stacks),
            _ => {}
        }
        Tracks::count(&mut self.groups, &mut self.group_of, track, stretch);
        match to {
            State::Runnable => {
                procs.runnable(now, 1);
                track.clocks = procs.clocks();
            }
            State::Waiting => {
                let (reason, stack) = (stacks.string(event.args[0], tables), stacks.stack(event.stack(), tables));
                track.place = self.waits.place(reason, stack, stacks);
            }
            State::Syscall => {
                let stack = stacks.stack(event.stack(), tables);
                track.place = self.calls.place(self.call, stack, stacks);
            }
            _ => {}
        }
        track.state = to;
        track.since = now;
        track.exact = true;
        if to == State::NotExist {
            self.all.ended += 1;
            if let Some(track) = self.gs.remove(id) {
                self.bury(track, now, false, false);
            }
        }
    }

    /// The first that is heard of a goroutine.
    #[cold]
    fn meet(&mut self, event: &Event, id: i64, to: State, context: &mut Context<'_>) {
        let Context { start, stacks, procs, tables } = context;
        let now = event.time;
        let creates = matches!(event.kind, Ev::GoCreate | Ev::GoCreateBlocked | Ev::GoCreateSyscall);
        self.all.created += u64::from(creates);
        self.all.seen += 1;
        self.all.peak = self.all.peak.max(self.all.alive());
        if to == State::Runnable {
            procs.runnable(now, 1);
        }
        let mut track = Track {
            state: to,
            exact: creates,
            group: NOWHERE,
            label: NameId::default(),
            place: NOWHERE,
            since: if creates { now } else { *start },
            clocks: procs.clocks(),
            spent: [0; 4],
            rare: None,
        };
        let name = match event.kind {
            Ev::GoCreate | Ev::GoCreateBlocked => {
                let stack = stacks.stack(event.args[1], tables);
                stacks.site_func(stack)
            }
            kind if tells_its_stack(kind) => {
                let stack = stacks.stack(event.stack(), tables);
                stacks.root_func(stack)
            }
            _ => None,
        };
        if let Some(name) = name {
            Tracks::name(&mut self.groups, &mut self.group_of, &mut track, name);
        }
        let stack = if creates { StackId::EMPTY } else { stacks.stack(event.stack(), tables) };
        match to {
            State::Waiting => track.place = self.waits.place(self.before, stack, stacks),
            State::Syscall => track.place = self.calls.place(self.call, stack, stacks),
            _ => {}
        }
        self.gs.insert(id, track);
    }

    fn group(groups: &mut Vec<Gathering>, group_of: &mut Vec<u32>, name: NameId) -> u32 {
        let at = name.0 as usize;
        if at >= group_of.len() {
            group_of.resize(at + 1, NOWHERE);
        }
        if group_of[at] == NOWHERE {
            group_of[at] = groups.len() as u32;
            groups.push(Gathering { name, ..Gathering::default() });
        }
        group_of[at]
    }

    /// Puts a goroutine into the group of its name, with what it did before that was known.
    fn name(groups: &mut Vec<Gathering>, group_of: &mut Vec<u32>, track: &mut Track, name: NameId) {
        track.group = Tracks::group(groups, group_of, name);
        let group = &mut groups[track.group as usize];
        for stretch in track.rare.iter_mut().flat_map(|rare| rare.early.drain(..)) {
            group.count(&stretch);
        }
    }

    #[inline]
    fn count(groups: &mut Vec<Gathering>, group_of: &mut Vec<u32>, track: &mut Track, stretch: Stretch) {
        if let Some(index) = state_index(stretch.state) {
            track.spent[index] = track.spent[index].saturating_add(stretch.ns);
        }
        if let Some(group) = groups.get_mut(track.group as usize) {
            return group.count(&stretch);
        }
        let early = &mut track.rare.get_or_insert_default().early;
        early.push(stretch);
        if early.len() == EARLY_MAX {
            Tracks::name(groups, group_of, track, NameId::default());
        }
    }

    /// A goroutine assists the GC from now on.
    pub fn assist_begins(&mut self, g: i64, begin: i64) {
        if let Some(track) = self.gs.get_mut(g) {
            track.rare.get_or_insert_default().assist.get_or_insert(begin);
        }
    }

    pub fn assist_ends(&mut self, g: i64, now: i64) {
        let Some(track) = self.gs.get_mut(g) else { return };
        if let Some(begin) = track.rare.as_mut().and_then(|rare| rare.assist.take()) {
            self.assisted(g, elapsed(begin, now), false);
        }
    }

    fn assisted(&mut self, g: i64, ns: u64, open: bool) {
        let Some(track) = self.gs.get_mut(g) else { return };
        if track.group == NOWHERE {
            Tracks::name(&mut self.groups, &mut self.group_of, track, NameId::default());
        }
        self.groups[track.group as usize].group.assist.add_as(ns, open);
    }

    /// A region begins on a goroutine.
    pub fn region_begins(&mut self, event: &Event, context: &mut Context<'_>) {
        let Some(track) = self.gs.get_mut(event.g) else { return };
        let spent = track.spent_until(event.time);
        let open = self.users.region_begins(event, spent, context.stacks, context.tables);
        track.rare.get_or_insert_default().regions.push(open);
    }

    /// A region ends on a goroutine.
    pub fn region_ends(&mut self, event: &Event, context: &mut Context<'_>) {
        let Some(track) = self.gs.get_mut(event.g) else { return };
        let spent = track.spent_until(event.time);
        let rare = track.rare.get_or_insert_default();
        match rare.regions.pop() {
            Some(open) => {
                let inside = rare.regions.iter().any(|outer| outer.task == open.task);
                self.users.region_ends(&open, event.time, spent, (false, inside));
            }
            None => self.users.region_began_before(event, context),
        }
    }

    /// The last that is heard of a goroutine. It may be alive; what it is in may be open.
    fn bury(&mut self, mut track: Track, now: i64, alive: bool, open: bool) {
        if track.group == NOWHERE {
            Tracks::name(&mut self.groups, &mut self.group_of, &mut track, NameId::default());
        }
        let group = &mut self.groups[track.group as usize].group;
        group.count += 1;
        group.alive += u64::from(alive);
        let Some(rare) = track.rare else { return };
        let mut regions = rare.regions;
        while let Some(region) = regions.pop() {
            let inside = regions.iter().any(|outer| outer.task == region.task);
            self.users.region_ends(&region, now, track.spent, (open, inside));
        }
    }

    /// The trace is broken here: nothing is known of any goroutine any more.
    pub fn gap(&mut self, (start, end): (i64, i64), stacks: &Stacks, procs: &mut ProcTracks) {
        self.all.lost += self.gs.len() as u64;
        self.close(end, stacks, procs, false);
        self.users.close(start, end);
    }

    /// Closes what is open, of goroutines that are alive or lost.
    fn close(&mut self, end: i64, stacks: &Stacks, procs: &mut ProcTracks, alive: bool) {
        procs.runnable(end, 0);
        let mut live: Vec<i64> = self.gs.iter().map(|(id, _)| id).collect();
        live.sort_unstable();
        for g in live {
            let assist = self.gs.get_mut(g).and_then(|track| track.rare.as_mut()?.assist.take());
            if let Some(begin) = assist {
                self.assisted(g, elapsed(begin, end), true);
            }
            let Some(mut track) = self.gs.remove(g) else { continue };
            let name = self.groups.get(track.group as usize).map(|group| group.name);
            let who = Who { g, name, label: label_of(&track) };
            let (times, ns) = ((track.since, end), elapsed(track.since, end));
            let mut stretch =
                Stretch { state: track.state, reason: self.call, ns, open: true, meanwhile: Meanwhile::default() };
            match track.state {
                State::Waiting => {
                    stretch.reason = self.waits.reason_at(track.place);
                    self.waits.end(track.place, times, true, who, stacks);
                }
                State::Syscall => self.calls.end(track.place, times, true, who, stacks),
                State::Runnable => stretch.meanwhile = procs.clocks().since(track.clocks),
                _ => {}
            }
            Tracks::count(&mut self.groups, &mut self.group_of, &mut track, stretch);
            self.bury(track, end, alive, true);
        }
    }

    /// Closes what is open.
    pub fn finish(mut self, (start, end): (i64, i64), stacks: &Stacks, procs: &mut ProcTracks) -> Outcome {
        self.close(end, stacks, procs, true);
        self.users.finish(start, end);
        self.delays.finish(stacks);
        let mut groups: Vec<Group> = self.groups.into_iter().map(|group| group.finish(stacks)).collect();
        groups.sort_by(|a, b| b.running.total().cmp(&a.running.total()).then_with(|| a.name.cmp(&b.name)));
        self.all.groups = groups;
        Outcome {
            goroutines: self.all,
            waits: self.waits.finish(stacks),
            calls: self.calls.finish(stacks),
            delays: self.delays,
            users: self.users,
        }
    }
}

/// The event's stack is that of the goroutine that it is about.
fn tells_its_stack(kind: Ev) -> bool {
    matches!(kind, Ev::GoBlock | Ev::GoStop | Ev::GoSyscallBegin | Ev::GoStatusStack)
}

fn label_of(track: &Track) -> Option<NameId> {
    Some(track.label).filter(|&label| label != NameId::default())
}

impl Track {
    /// How many ns it has spent in each state.
    fn spent_until(&self, now: i64) -> [u64; 4] {
        let mut spent = self.spent;
        if let Some(index) = state_index(self.state) {
            spent[index] = spent[index].saturating_add(elapsed(self.since, now));
        }
        spent
    }
}
