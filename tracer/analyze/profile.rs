//! Profiles of waits: how often and how long goroutines were in a state, by stack.
//!
//! Of the kinds that `go tool trace -pprof=` has (net, sync, syscall, sched), counts and totals are the same as Go's. That
//! tool leaves out what it is not sure of: waits that were open when the trace began or ended, and of each goroutine all
//! that came before it first ran, such as the wait of a new goroutine for its first turn. [`Builder::complete`] counts
//! these, too, but for waits from before the trace if a reason matters, as no event tells it.
//!
//! Memory: 40 bytes for each live goroutine, and the distinct stacks.

use super::elapsed;
use super::intern::{IdCache, NOWHERE, StackId, Stacks};
use crate::read::slots::Slots;
use crate::read::{Event, State, Tables, Transition};
use crate::wire::{Ev, reason};

/// What a profile is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProfileKind {
    /// Waits for sockets and pipes.
    Net,
    /// Waits for channels, selects, locks and conditions.
    Sync,
    /// Blocking calls.
    Syscall,
    /// From being made runnable to running, by where that was done.
    Sched,
    /// Waits for channels and selects alone.
    Chan,
    /// Running, by where it stopped.
    Running,
}

impl ProfileKind {
    /// All, in order.
    pub const ALL: [ProfileKind; 6] = [
        ProfileKind::Net,
        ProfileKind::Sync,
        ProfileKind::Syscall,
        ProfileKind::Sched,
        ProfileKind::Chan,
        ProfileKind::Running,
    ];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            ProfileKind::Net => "net",
            ProfileKind::Sync => "sync",
            ProfileKind::Syscall => "syscall",
            ProfileKind::Sched => "sched",
            ProfileKind::Chan => "chan",
            ProfileKind::Running => "running",
        }
    }

    const fn state(self) -> State {
        match self {
            ProfileKind::Net | ProfileKind::Sync | ProfileKind::Chan => State::Waiting,
            ProfileKind::Syscall => State::Syscall,
            ProfileKind::Sched => State::Runnable,
            ProfileKind::Running => State::Running,
        }
    }

    /// Waits for this reason count. The other states have none.
    fn wants(self, reason: &str) -> bool {
        let any = |words: &[&str]| words.iter().any(|word| reason.contains(word));
        match self {
            ProfileKind::Net => reason == reason::NETWORK,
            ProfileKind::Sync => any(&["chan", "sync", "select"]),
            ProfileKind::Chan => any(&["chan", "select"]),
            ProfileKind::Syscall | ProfileKind::Sched | ProfileKind::Running => true,
        }
    }
}

/// What happened in one stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// The stack, in [`Profile::stacks`].
    pub stack: StackId,
    /// How often.
    pub count: u64,
    /// How long in all, in ns.
    pub ns: u64,
}

/// A profile.
#[derive(Clone, Debug)]
pub struct Profile {
    /// What it is of.
    pub kind: ProfileKind,
    /// By stack, in the order in which the stacks were met.
    pub records: Vec<Record>,
    /// The stacks.
    pub stacks: Stacks,
    /// From the first event to the last, in ns.
    pub duration_ns: u64,
}

impl Profile {
    /// How often and how long, over all stacks.
    pub fn total(&self) -> (u64, u128) {
        self.records.iter().fold((0, 0), |(count, ns), record| (count + record.count, ns + u128::from(record.ns)))
    }
}

#[derive(Clone, Copy, Debug)]
struct Track {
    /// Since when it has been in the state of the profile.
    since: i64,
    /// Where that began; `NOWHERE` if it is not in it.
    stack: u32,
    /// It has been seen running.
    ran: bool,
    /// Ended, but counts only if the goroutine never runs: in which stack, and how long.
    held_back: Option<(StackId, u64)>,
}

const NEW: Track = Track { since: 0, stack: NOWHERE, ran: false, held_back: None };

/// Whose state an event changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Nobody,
    /// That of the goroutine that is its first argument.
    Named,
    /// That of the goroutine that it happens on.
    Own,
    /// [`Event::transition`] tells.
    Told,
}

/// For each number of an event, whose state it changes, and to which.
static MOVES: [(Whose, State); 256] = {
    let mut moves = [(Whose::Nobody, State::Undetermined); 256];
    moves[Ev::GoCreate as usize] = (Whose::Named, State::Runnable);
    moves[Ev::GoCreateBlocked as usize] = (Whose::Named, State::Waiting);
    moves[Ev::GoCreateSyscall as usize] = (Whose::Named, State::Syscall);
    moves[Ev::GoStart as usize] = (Whose::Named, State::Running);
    moves[Ev::GoDestroy as usize] = (Whose::Own, State::NotExist);
    moves[Ev::GoDestroySyscall as usize] = (Whose::Own, State::NotExist);
    moves[Ev::GoStop as usize] = (Whose::Own, State::Runnable);
    moves[Ev::GoBlock as usize] = (Whose::Own, State::Waiting);
    moves[Ev::GoUnblock as usize] = (Whose::Named, State::Runnable);
    moves[Ev::GoSwitch as usize] = (Whose::Named, State::Runnable);
    moves[Ev::GoSwitchDestroy as usize] = (Whose::Named, State::Runnable);
    moves[Ev::GoSyscallBegin as usize] = (Whose::Own, State::Syscall);
    moves[Ev::GoSyscallEnd as usize] = (Whose::Own, State::Running);
    moves[Ev::GoSyscallEndBlocked as usize] = (Whose::Own, State::Runnable);
    moves[Ev::GoStatus as usize] = (Whose::Told, State::Undetermined);
    moves[Ev::GoStatusStack as usize] = (Whose::Told, State::Undetermined);
    moves
};

/// Collects a profile from the events of a trace.
#[derive(Debug)]
pub struct Builder {
    kind: ProfileKind,
    state: State,
    complete: bool,
    start: Option<i64>,
    /// When the part of the trace began that is not broken.
    since: Option<i64>,
    end: i64,
    gs: Slots<Track>,
    stacks: Stacks,
    /// By stack.
    records: Vec<(u64, u64)>,
    /// Whether the reason with this id counts, in this generation.
    wanted: IdCache,
}

impl Builder {
    /// A builder that has seen nothing.
    pub fn new(kind: ProfileKind) -> Builder {
        Builder {
            kind,
            state: kind.state(),
            complete: false,
            start: None,
            since: None,
            end: 0,
            gs: Slots::default(),
            stacks: Stacks::default(),
            records: Vec::new(),
            wanted: IdCache::default(),
        }
    }

    /// Counts also what Go's tool leaves out.
    pub fn complete(mut self) -> Builder {
        self.complete = true;
        self
    }

    /// Takes the next event.
    #[inline]
    pub fn event(&mut self, event: &Event, tables: &Tables) {
        if event.kind == Ev::Sync {
            self.stacks.turn();
            self.wanted.clear();
            return;
        }
        self.start.get_or_insert(event.time);
        self.since.get_or_insert(event.time);
        self.end = event.time;
        // The kinds of events come in no order that a processor could foresee: so a look into a table, and few branches.
        let (whose, to) = MOVES[event.kind as usize];
        match whose {
            Whose::Nobody => {}
            Whose::Named => self.moved(event, (event.args[0] as i64, false, to), tables),
            Whose::Own => self.moved(event, (event.g, false, to), tables),
            Whose::Told => {
                if let Some(Transition::G { id, from, to }) = event.transition() {
                    self.moved(event, (id, from == State::Undetermined, to), tables);
                }
            }
        }
    }

    #[inline]
    fn moved(&mut self, event: &Event, (id, new, to): (i64, bool, State), tables: &Tables) {
        let slot = match self.gs.find(id) {
            Some(slot) => slot,
            None => self.gs.insert(id, NEW),
        };
        let Some(track) = self.gs.at(slot) else { return };
        if to == self.state {
            if track.stack == NOWHERE {
                let waits = self.state == State::Waiting;
                if !waits || wants(self.kind, &mut self.wanted, event, tables) {
                    track.since = if self.complete && new { self.since.unwrap_or(event.time) } else { event.time };
                    let running = self.kind == ProfileKind::Running;
                    track.stack = if running { 0 } else { self.stacks.stack(event.stack(), tables).0 };
                }
            }
        } else if track.stack != NOWHERE {
            let mut stack = StackId(std::mem::replace(&mut track.stack, NOWHERE));
            let ns = elapsed(track.since, event.time);
            if self.kind == ProfileKind::Running {
                stack = self.stacks.stack(event.stack(), tables);
            }
            if track.ran || self.complete {
                add(&mut self.records, stack, ns);
            } else if to != State::Running {
                track.held_back = Some((stack, ns));
            }
        }
        match to {
            State::Running if !track.ran => {
                track.ran = true;
                track.held_back = None;
            }
            State::NotExist => {
                if let Some((stack, ns)) = track.held_back {
                    add(&mut self.records, stack, ns);
                }
                self.gs.remove(id);
            }
            _ => {}
        }
    }

    /// The trace is broken behind the last event: what is open ends there, as at the end of a trace.
    pub fn gap(&mut self) {
        self.close();
        self.since = None;
    }

    fn close(&mut self) {
        let gs = std::mem::take(&mut self.gs);
        let mut live: Vec<(i64, Track)> = gs.iter().map(|(id, track)| (id, *track)).collect();
        live.sort_unstable_by_key(|(id, _)| *id);
        for (_, track) in live {
            if let Some((stack, ns)) = track.held_back {
                add(&mut self.records, stack, ns);
            }
            if self.complete && track.stack != NOWHERE {
                add(&mut self.records, StackId(track.stack), elapsed(track.since, self.end));
            }
        }
    }

    /// Closes what is open.
    pub fn finish(mut self) -> Profile {
        self.close();
        let records = self.records.iter().zip(0..).filter(|((count, _), _)| *count > 0);
        Profile {
            kind: self.kind,
            records: records.map(|(&(count, ns), stack)| Record { stack: StackId(stack), count, ns }).collect(),
            duration_ns: elapsed(self.start.unwrap_or(0), self.end),
            stacks: self.stacks,
        }
    }
}

/// The reason of a wait is one that counts. What a status says of a wait has no reason.
#[inline]
fn wants(kind: ProfileKind, wanted: &mut IdCache, event: &Event, tables: &Tables) -> bool {
    if event.kind != Ev::GoBlock {
        return false;
    }
    let id = event.args[0];
    let known = wanted.get(id).unwrap_or_else(|| {
        let wants = u32::from(kind.wants(&tables.string(id).unwrap_or_default()));
        wanted.set(id, wants);
        wants
    });
    known != 0
}

#[inline]
fn add(records: &mut Vec<(u64, u64)>, stack: StackId, ns: u64) {
    if ns == 0 {
        return;
    }
    let at = stack.index();
    if at >= records.len() {
        records.resize(at + 1, (0, 0));
    }
    let (count, total) = &mut records[at];
    *count += 1;
    *total = total.saturating_add(ns);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::Prior;
    use crate::wire::SPECS;

    #[test]
    fn the_table_says_what_events_say() {
        for spec in SPECS.iter().filter(|spec| spec.timed) {
            let (time, kind, prior) = (0, spec.ev, Prior::Implied);
            let event = Event { time, file_time: 0, m: 1, p: 2, g: 3, kind, prior, args: [4, 0, 0, 0], offset: 0 };
            let (whose, to) = MOVES[kind as usize];
            match (event.transition(), whose) {
                (Some(Transition::G { .. }), Whose::Told) => {}
                (Some(Transition::G { id, to: told, .. }), _) => {
                    let named = if whose == Whose::Named { 4 } else { 3 };
                    assert_eq!((id, told), (named, to), "{}", spec.name);
                }
                (_, whose) => assert_eq!(whose, Whose::Nobody, "{}", spec.name),
            }
        }
    }
}
