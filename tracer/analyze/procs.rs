//! Ps: what each did with its time, and whether goroutines waited while one had nothing to do.
//!
//! At each moment a P is idle (nobody's), held (an M has it and runs no goroutine: it looks for one, or switches),
//! running a goroutine, or lent to a blocking call. Two clocks say what every wait of a runnable goroutine was for, and the
//! wait takes the difference from its begin to its end. One runs while the world is stopped. The other runs while a P is
//! idle, at the rate at which idle Ps could have shortened the wait: I of them serve I of R goroutines that wait at once, so
//! the rate is I / R, but not more than 1; and of a queue longer than all P of them they would have taken the part that is
//! theirs, so it is I / P if R > P.

use super::elapsed;
use crate::read::hash::IdMap;
use crate::read::{Event, NONE, State, Transition};
use crate::wire::Ev;

/// Ids up to this one are looked up in an array.
const DENSE_MAX: i64 = 1 << 12;

/// What a P does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    /// Nothing is known, or it is not one of the GOMAXPROCS.
    #[default]
    Unknown,
    Idle,
    Held,
    Running,
    Call,
}

/// How one P spent its time, in ns. What is missing to the whole was before the trace first names it, or while
/// GOMAXPROCS was too small for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proc {
    /// Which.
    pub id: i64,
    /// Running goroutines.
    pub running: u128,
    /// Lent to blocking calls, and not taken from them.
    pub calls: u128,
    /// Some M had it and ran no goroutine: it looked for one, or went from one to the next.
    pub held: u128,
    /// Nobody's.
    pub idle: u128,
    /// How often a goroutine began to run on it.
    pub starts: u64,
}

/// What all Ps did.
#[derive(Clone, Debug, Default)]
pub struct Procs {
    /// One by one, by id.
    pub each: Vec<Proc>,
    /// For how long at least one goroutine was runnable, in ns.
    pub runnable: u128,
    /// For how long a goroutine was runnable and a P idle at the same time, in ns.
    pub idle_while_runnable: u128,
    /// The same, times the goroutines that could have run then: what was lost, in ns of a P.
    pub lost: u128,
    /// For how long the world was stopped, in ns.
    pub stopped: u128,
}

impl Procs {
    /// How all Ps together spent their time.
    pub fn all(&self) -> Proc {
        let add = |a: Proc, p: &Proc| Proc {
            id: NONE,
            running: a.running + p.running,
            calls: a.calls + p.calls,
            held: a.held + p.held,
            idle: a.idle + p.idle,
            starts: a.starts + p.starts,
        };
        self.each.iter().fold(Proc { id: NONE, ..Proc::default() }, add)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Track {
    doing: Doing,
    /// Only its status has told so.
    told: bool,
    since: i64,
    spent: Proc,
}

/// The clocks that tell what a wait was for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    /// Runs while a P is idle and the world is not stopped; in parts of a ns.
    idle: u64,
    /// Runs while the world is stopped; in ns.
    stopped: u64,
}

/// How much of a wait was for what, in ns.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Meanwhile {
    /// Idle Ps could have saved so much.
    pub idle: u64,
    /// The world was stopped for so long.
    pub stopped: u64,
}

/// The parts of a ns in which the clock of idle Ps counts.
const PARTS: u64 = 1 << 10;

impl Clocks {
    /// From `begin` to now.
    #[inline]
    pub fn since(self, begin: Clocks) -> Meanwhile {
        Meanwhile { idle: (self.idle - begin.idle) / PARTS, stopped: self.stopped - begin.stopped }
    }
}

/// What is known of the Ps at one moment.
#[derive(Debug)]
pub(super) struct ProcTracks {
    dense: Vec<Track>,
    sparse: IdMap<Track>,
    idle: u64,
    runnable: u64,
    stops: u64,
    /// Until when the clocks have run.
    last: Option<i64>,
    clocks: Clocks,
    gomaxprocs: i64,
    procs: Procs,
}

impl Default for ProcTracks {
    fn default() -> ProcTracks {
        ProcTracks {
            dense: Vec::new(),
            sparse: IdMap::default(),
            idle: 0,
            runnable: 0,
            stops: 0,
            last: None,
            clocks: Clocks::default(),
            gomaxprocs: i64::MAX,
            procs: Procs::default(),
        }
    }
}

impl ProcTracks {
    /// The clocks now.
    #[inline]
    pub fn clocks(&self) -> Clocks {
        self.clocks
    }

    #[inline]
    fn run_clocks(&mut self, now: i64) {
        let Some(last) = self.last.replace(now) else { return };
        let ns = elapsed(last, now);
        if self.runnable > 0 {
            self.procs.runnable += u128::from(ns);
        }
        if self.stops > 0 {
            self.clocks.stopped = self.clocks.stopped.saturating_add(ns);
        } else if self.idle > 0 && self.runnable > 0 {
            let serve = if self.gomaxprocs == i64::MAX { self.runnable } else { self.gomaxprocs.max(1) as u64 };
            let waiting = self.runnable.min(serve).max(1);
            let parts = (ns.saturating_mul(PARTS) / waiting).saturating_mul(self.idle.min(waiting));
            self.clocks.idle = self.clocks.idle.saturating_add(parts);
            self.procs.idle_while_runnable += u128::from(ns);
            self.procs.lost += u128::from(ns) * u128::from(self.idle.min(self.runnable));
        }
    }

    /// A goroutine becomes runnable (1) or is no longer (-1). Comes before the goroutine's clocks are read.
    #[inline]
    pub fn runnable(&mut self, now: i64, change: i64) {
        self.run_clocks(now);
        self.runnable = self.runnable.saturating_add_signed(change);
    }

    #[inline]
    fn track(&mut self, p: i64) -> &mut Track {
        if (0..DENSE_MAX).contains(&p) {
            let at = p as usize;
            if at >= self.dense.len() {
                self.dense.resize(at + 1, Track::default());
            }
            return &mut self.dense[at];
        }
        self.sparse.entry(p).or_default()
    }

    fn set(&mut self, p: i64, doing: Doing, since: i64, now: i64) {
        self.run_clocks(now);
        // One that is not in use is told as idle.
        let doing = if doing == Doing::Idle && p >= self.gomaxprocs { Doing::Unknown } else { doing };
        let track = self.track(p);
        let before = track.doing;
        track.told = false;
        track.spend(now);
        track.since = if before == Doing::Unknown { since } else { now };
        track.doing = doing;
        track.spent.id = p;
        self.idle -= u64::from(before == Doing::Idle);
        self.idle += u64::from(doing == Doing::Idle);
    }

    /// Takes an event. What the trace is the first to tell of a P holds from `start`.
    #[inline]
    pub fn event(&mut self, event: &Event, start: i64) {
        let (now, p) = (event.time, event.p);
        let held = |state| if state == State::Running { Doing::Held } else { Doing::Idle };
        match event.kind {
            Ev::GoStart if p != NONE => {
                self.set(p, Doing::Running, now, now);
                self.track(p).spent.starts += 1;
            }
            Ev::GoSyscallEnd if p != NONE => self.set(p, Doing::Running, now, now),
            Ev::GoBlock | Ev::GoStop | Ev::GoDestroy if p != NONE => self.set(p, Doing::Held, now, now),
            Ev::GoSyscallBegin if p != NONE => self.set(p, Doing::Call, now, now),
            // The status of a goroutine that runs here.
            Ev::GoStatus | Ev::GoStatusStack if p != NONE && event.args[1] as i64 == event.m => {
                if let Some(Transition::G { to: to @ (State::Running | State::Syscall), .. }) = event.transition() {
                    let doing = if to == State::Running { Doing::Running } else { Doing::Call };
                    let track = self.track(p);
                    if track.told && track.doing == Doing::Held {
                        // The P's own status, just before, holds since `start`: so does this.
                        (track.doing, track.told) = (doing, false);
                    } else {
                        self.set(p, doing, start, now);
                    }
                }
            }
            Ev::StwBegin => {
                self.run_clocks(now);
                self.stops += 1;
            }
            Ev::StwEnd => {
                self.run_clocks(now);
                self.stops = self.stops.saturating_sub(1);
            }
            Ev::ProcsChange => self.change(event.args[0] as i64, now),
            Ev::ProcStart | Ev::ProcStop | Ev::ProcSteal => {
                if let Some(Transition::P { id, to, .. }) = event.transition() {
                    self.set(id, held(to), now, now);
                }
            }
            Ev::ProcStatus => {
                if let Some(Transition::P { id, from, to }) = event.transition()
                    && from != to
                {
                    self.set(id, held(to), start, now);
                    self.track(id).told = true;
                }
            }
            _ => {}
        }
    }

    fn change(&mut self, procs: i64, now: i64) {
        self.gomaxprocs = procs;
        let dense = (procs.clamp(0, DENSE_MAX)..self.dense.len() as i64).collect::<Vec<_>>();
        let gone = self.sparse.keys().copied().filter(|&p| p >= procs).chain(dense).collect::<Vec<_>>();
        for p in gone {
            self.set(p, Doing::Unknown, now, now);
        }
    }

    /// The trace is broken here: nothing is known of any P any more.
    pub fn gap(&mut self, end: i64) {
        self.run_clocks(end);
        for track in self.dense.iter_mut().chain(self.sparse.values_mut()) {
            track.spend(end);
            (track.doing, track.told) = (Doing::Unknown, false);
        }
        (self.idle, self.runnable, self.stops) = (0, 0, 0);
        self.last = None;
    }

    /// Closes what is open.
    pub fn finish(mut self, end: i64) -> Procs {
        self.run_clocks(end);
        let mut tracks: Vec<Track> = self.dense.into_iter().chain(self.sparse.into_values()).collect();
        for track in &mut tracks {
            track.spend(end);
        }
        let known = |track: &Track| track.spent != Proc::default() || track.doing != Doing::Unknown;
        self.procs.each = tracks.iter().filter(|track| known(track)).map(|track| track.spent).collect();
        self.procs.each.sort_by_key(|p| p.id);
        self.procs.stopped = self.clocks.stopped.into();
        self.procs
    }
}

impl Track {
    #[inline]
    fn spend(&mut self, now: i64) {
        let of = match self.doing {
            Doing::Unknown => return,
            Doing::Idle => &mut self.spent.idle,
            Doing::Held => &mut self.spent.held,
            Doing::Running => &mut self.spent.running,
            Doing::Call => &mut self.spent.calls,
        };
        *of += u128::from(elapsed(self.since, now));
    }
}
