//! What every goroutine is doing: collected while the world runs, one goroutine at a time.
//!
//! - DU1: a goroutine that does not run is looked at under SCAN: name, place, what it waits for, its stack. The word is
//!   held for that long, a microsecond or two; texts are made afterwards.
//! - DU2: one that runs has its stack in its M's hands. The M's thread is asked (see [`crate::sched::standstill`]);
//!   what is seen counts if the M ran this goroutine and its stack pointer lay in that goroutine's stack while the
//!   thread stood still. If it does not answer, a visit at the border still tells the name.
//! - DU3: nobody is waited for without a limit. A goroutine that could not be looked at is named all the same.
//! - DU4: so the goroutines are seen one after the other, not all at one moment. A goroutine that waits for what
//!   another holds may be seen before the other one lets go. Cycles are looked at twice (see [`crate::sched::cycle`]).
//!
//! Neither the scheduler's locks nor a P are needed, so it works when every P is stuck.

mod text;

use std::collections::HashMap;
use std::panic::Location;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tracer::clock::mono_ns;
use tracer::record::symbolizer;
use tracer::symbol::{self, Frame};
use tracer::unwind::{self, Cache, Method, Regs};

use crate::goroutine::Labels;
use crate::prim::coarse;
use crate::sched::cycle;
use crate::sched::g::{G, Kind, NOT_WAITING, Origin, Wait};
use crate::sched::m::M;
use crate::sched::owner::Held;
use crate::sched::slab::SLAB;
use crate::sched::standstill::{self, Answer};
use crate::sched::state::{Scan, Status};
use crate::stack::arena::guard_bytes;
use crate::stack::header::current_g;

pub(crate) use text::{Span, stack, write_stack};

/// How long a goroutine that cannot be held is tried.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a thread has to answer, how long those that do not have all together, and how long each one after that.
const ANSWER: Duration = Duration::from_secs(2);
const ANSWERS: Duration = Duration::from_secs(6);
const ANSWER_AT_LEAST: Duration = Duration::from_millis(10);
/// The number of the stack without frames.
const NO_STACK: usize = 0;
/// Frames kept per goroutine.
const FRAMES_MAX: usize = 64;

/// What a goroutine is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// It runs, or its thread does something for it that the runtime was not told of.
    Running,
    /// It could run, and waits for a processor.
    Runnable,
    /// It is in [`rt::blocking`](crate::blocking).
    Blocking,
    /// It waits for somebody.
    Waiting,
}

/// A thing that goroutines wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Object {
    /// What it is: "channel", "mutex", "wait group", ...
    pub kind: &'static str,
    /// Where it lies. Goroutines that wait for the same thing name the same address.
    pub address: usize,
}

/// Who holds what a goroutine waits for, or used a channel last; if what is waited for is the end of another goroutine, this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Holder {
    /// The goroutine with this id.
    Goroutine(u64),
    /// A thread of the program's own, with this id of the kernel's.
    Thread(u64),
    /// A goroutine that has ended without letting go.
    Ended,
    /// Nobody at this moment: it is being handed on. Or a goroutine that has not begun to run, if its end is waited
    /// for.
    Nobody,
}

/// Who used a channel last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Peers {
    /// The last one who sent, or tried to. [`Holder::Nobody`]: nobody yet.
    pub sender: Holder,
    /// The last one who received, or tried to.
    pub receiver: Holder,
}

/// Where a goroutine comes from.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Creator {
    /// The goroutine that made it; `None` if that was a thread.
    pub id: Option<u64>,
    /// The type of the function that it was made to run.
    pub function: &'static str,
    /// Where it was made.
    pub location: &'static Location<'static>,
    /// The stack of the call that made it, if those are remembered
    /// ([`Config::creator_stacks`](crate::Config::creator_stacks)); otherwise empty.
    pub stack: Arc<[Frame]>,
}

/// A goroutine, as it was seen.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Goroutine {
    /// Its number, which no other goroutine of the process has.
    pub id: u64,
    /// Its name, if it was given one.
    pub name: Option<Arc<str>>,
    /// Its labels.
    pub labels: Labels,
    /// What it is doing.
    pub state: State,
    /// Go's word for that, or for what it waits for: "running", "runnable", "syscall", "chan receive", "sync", "sleep",
    /// ...
    pub reason: &'static str,
    /// For how long it has not run; of one that runs: for how long it has not called into the runtime. `None` if that
    /// is not known (it has not run yet, or has called just now).
    ///
    /// Up to 5 ms too long (more on a machine that is short of processors), never too short; for one that runs it is
    /// the other way round.
    pub since: Option<Duration>,
    /// It runs, but its processor was taken away from it: it has kept it for too long.
    pub lost_processor: bool,
    /// What it waits for.
    pub object: Option<Object>,
    /// Who holds that; `None` if it is not a thing that somebody holds.
    pub holder: Option<Holder>,
    /// If it waits for a channel: who sent on it last and who received from it last, if anybody has.
    pub peers: Option<Peers>,
    /// Its stack, innermost first, without the runtime's own frames at both ends. Empty if it has not run yet, or if it
    /// runs and could not be asked.
    pub stack: Arc<[Frame]>,
    /// Where it comes from.
    pub creator: Option<Creator>,
}

/// All goroutines, as they were seen one after the other.
///
/// As text ([`Display`](std::fmt::Display)) it is much like the dump of a Go program; goroutines that stand in the same
/// place for the same reason are put together.
#[derive(Clone, Debug)]
pub struct Dump {
    goroutines: Vec<Goroutine>,
    cycles: Vec<Vec<u64>>,
}

impl Dump {
    /// All goroutines of the program, by id. The runtime's own are left out.
    pub fn goroutines(&self) -> &[Goroutine] {
        &self.goroutines
    }

    /// The goroutine with this id.
    pub fn get(&self, id: u64) -> Option<&Goroutine> {
        self.goroutines.binary_search_by_key(&id, |g| g.id).ok().map(|i| &self.goroutines[i])
    }

    /// Deadlocks: each goroutine waits for what the next one holds (or for its end), and the last one for what the
    /// first holds. One alone waits for what it holds itself.
    pub fn cycles(&self) -> &[Vec<u64>] {
        &self.cycles
    }
}

/// What was seen of one goroutine, before texts are made.
struct Seen {
    g: &'static G,
    id: u64,
    name: Option<Arc<str>>,
    labels: Labels,
    creator_stack: usize,
    status: Status,
    wait: Wait,
    /// 0: not known.
    since_ns: u64,
    held: Option<Held>,
    peers: Option<(Held, Held)>,
    origin: Option<Origin>,
    /// Its P was taken while it was in plain code.
    lost_processor: bool,
    /// Which of the stacks.
    stack: usize,
}

/// The stacks that were seen, each once.
struct Stacks {
    cache: Cache,
    frames: Box<[usize; FRAMES_MAX]>,
    known: HashMap<Box<[usize]>, usize>,
    /// For how much longer threads that do not answer are waited for, all together.
    patience: Duration,
}

impl Stacks {
    fn new() -> Stacks {
        let known = HashMap::from([(Box::from([]), NO_STACK)]);
        Stacks { cache: Cache::new(), frames: Box::new([0; FRAMES_MAX]), known, patience: ANSWERS }
    }

    /// Walks from `regs` to `end`; the frames are in `frames` then. Neither allocates nor locks.
    ///
    /// # Safety
    ///
    /// As for [`unwind::walk`].
    unsafe fn walk(&mut self, regs: Regs, end: usize) -> usize {
        if end == 0 {
            return 0;
        }
        // SAFETY: passed on to the caller.
        unsafe { unwind::walk_by(Method::Dwarf, regs, end, &mut self.cache, &mut self.frames[..]) }
    }

    /// The number of the stack that the first `n` frames make.
    fn number(&mut self, n: usize) -> usize {
        number_in(&mut self.known, &self.frames[..n])
    }

    /// The number of a stack.
    fn number_of(&mut self, pcs: &[usize]) -> usize {
        number_in(&mut self.known, pcs)
    }

    /// All of them, with names. Each name is looked up once.
    fn named(self) -> Vec<Arc<[Frame]>> {
        let mut named = vec![Arc::from([]); self.known.len()];
        for (pcs, i) in self.known {
            named[i] = frames_of(&pcs).into();
        }
        named
    }
}

fn number_in(known: &mut HashMap<Box<[usize]>, usize>, pcs: &[usize]) -> usize {
    let next = known.len();
    match known.get(pcs) {
        Some(&i) => i,
        None => *known.entry(pcs.into()).or_insert(next),
    }
}

/// A stack with functions, files and lines, without the runtime's own frames at its ends.
fn frames_of(pcs: &[usize]) -> Vec<Frame> {
    let words: Vec<u64> = pcs.iter().map(|&pc| pc as u64).collect();
    let trimmed = symbol::trimmed(&mut symbolizer().lock(), &words);
    trimmed.into_iter().map(|f| Frame { func: f.func, file: f.file, line: f.line }).collect()
}

/// Looks at all goroutines. `here` are the registers of the caller, should it be a goroutine.
pub(crate) fn all(here: Regs) -> Dump {
    let me = current_g();
    let mut stacks = Stacks::new();
    let look = |g: &'static G| match me {
        Some(me) if std::ptr::eq(me, g) => Some(itself(g, here, &mut stacks)),
        _ => one(g, &mut stacks),
    };
    let mut seen: Vec<Seen> = SLAB.iter().filter_map(look).collect();
    seen.sort_by_key(|s| s.id);
    let cycles = cycles(&seen);
    Dump { goroutines: finish(seen, stacks), cycles }
}

/// Looks at these goroutines only, which wait in `cycles`. The caller is none of them.
pub(crate) fn some(gs: impl Iterator<Item = &'static G>, cycles: Vec<Vec<u64>>) -> Dump {
    let mut stacks = Stacks::new();
    let mut seen: Vec<Seen> = gs.filter_map(|g| one(g, &mut stacks)).collect();
    seen.sort_by_key(|s| s.id);
    Dump { goroutines: finish(seen, stacks), cycles }
}

fn finish(mut seen: Vec<Seen>, mut stacks: Stacks) -> Vec<Goroutine> {
    for s in &mut seen {
        if let Some(stack) = s.origin.and_then(|o| o.stack) {
            s.creator_stack = stacks.number_of(stack.pcs());
        }
    }
    let (now, named) = (mono_ns(), stacks.named());
    seen.into_iter().map(|s| s.finish(now, &named)).collect()
}

/// The calling goroutine.
fn itself(g: &'static G, here: Regs, stacks: &mut Stacks) -> Seen {
    // SAFETY: the caller's own stack, in a frame that lives.
    let n = unsafe { stacks.walk(here, g.walk_end_from(&here)) };
    // SAFETY: N2: nobody but the goroutine itself could change any of it, and that is the caller.
    Seen { stack: stacks.number(n), ..unsafe { Seen::of(g, Status::Running) } }
}

/// What `g` is doing; `None` if it is nobody, or one of the runtime's own.
fn one(g: &'static G, stacks: &mut Stacks) -> Option<Seen> {
    let mut tries = 0u32;
    let mut until = None;
    loop {
        let found = match g.state.scan() {
            Scan::Nothing => return None,
            Scan::Held(status, hold) => {
                // DU1
                // SAFETY: N2: SCAN is held.
                let mut seen = unsafe { Seen::of(g, status) };
                // SAFETY: as above.
                let (regs, wait, since_ns) = unsafe { g.standing() };
                if status == Status::Waiting {
                    // SAFETY: as above; N4.
                    (seen.held, seen.peers) = unsafe { (wait.owner(), wait.peers()) };
                }
                // SAFETY: as above; the frame that took the registers is alive while the goroutine stands in it.
                let n = unsafe { stacks.walk(regs, g.walk_end_from(&regs)) };
                drop(hold);
                if status == Status::Syscall && regs.pc == 0 {
                    // Its P was taken in plain code, and where it is only its thread can tell.
                    seen.lost_processor = true;
                    asked(seen, stacks)
                } else {
                    Some(Seen { wait, since_ns, stack: stacks.number(n), ..seen })
                }
            }
            Scan::Running => visited(g).and_then(|seen| asked(seen, stacks)),
            Scan::Busy => None,
        };
        if found.is_some() {
            return found.filter(|s| !s.g.marks.is_system());
        }
        tries += 1;
        if tries < 50 {
            std::thread::yield_now();
            continue;
        }
        // DU3. Whoever holds its word may be without a processor of the kernel's for a while.
        if Instant::now() >= *until.get_or_insert_with(|| Instant::now() + PATIENCE) {
            return Some(Seen::nameless(g, Status::Running)).filter(|s| !s.g.marks.is_system());
        }
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// What a visit at the border tells of a running goroutine: who it is. `None` if it is on its way in or out.
fn visited(g: &'static G) -> Option<Seen> {
    let m = g.last_m()?;
    let _visit = m.border.visit()?;
    if !m.current().is_some_and(|x| std::ptr::eq(x, g)) {
        return None;
    }
    // SAFETY: N2: the caller is its M's visitor.
    Some(unsafe { Seen::of(g, Status::Running) })
}

/// Asks its thread where a running goroutine is (DU2); `None` if it does not run any more.
fn asked(seen: Seen, stacks: &mut Stacks) -> Option<Seen> {
    let g = seen.g;
    let m = g.last_m()?;
    let answer_in = stacks.patience.min(ANSWER).max(ANSWER_AT_LEAST);
    let answer = standstill::ask(m, answer_in, |regs| {
        // The thread stands still, so all this is of one moment. (Should it go on too early, what is read here is
        // wrong, and thrown away. Names and the like are not read for that reason.)
        let runs = m.current().is_some_and(|x| std::ptr::eq(x, g)) && g.id() == seen.id;
        if !runs || !matches!(g.state.status(), Status::Running | Status::Syscall) {
            return None;
        }
        // On an alternate stack it is nowhere that a walk could begin.
        let its_stack = g.stack.get().map_or(0..0, |s| s.low() + guard_bytes()..g.walk_end());
        // The program's code may have been inlined into the frame where the walk ends.
        if regs.sp == its_stack.end && its_stack.end != 0 {
            stacks.frames[0] = regs.pc + 1;
            return Some(1);
        }
        if !its_stack.contains(&regs.sp) {
            return Some(0);
        }
        // SAFETY: the stack is mapped and readable from the guard up.
        let n = unsafe { stacks.walk(regs, its_stack.end) };
        // Addresses are looked up as return addresses, one before; this one is exact.
        stacks.frames[0] += 1;
        Some(n)
    });
    let n = match answer {
        Answer::Stood(Some(n)) => n,
        Answer::None => {
            stacks.patience = stacks.patience.saturating_sub(answer_in);
            0
        }
        Answer::Stood(None) | Answer::WentOn => return None,
    };
    Some(Seen { since_ns: outside_since(g), stack: stacks.number(n), ..seen })
}

/// Since when the goroutine's M has not crossed its border; 0 if it has just now, or is inside.
fn outside_since(g: &G) -> u64 {
    g.last_m().and_then(M::outside_since_ns).unwrap_or(0)
}

impl Seen {
    /// Who a goroutine is that stands still, or is the caller.
    ///
    /// # Safety
    ///
    /// N2.
    unsafe fn of(g: &'static G, status: Status) -> Seen {
        // SAFETY: passed on to the caller.
        let (name, labels) = unsafe { (g.name().cloned(), Labels::of(g.labels().cloned())) };
        Seen { name, labels, origin: g.origin.get(), ..Seen::nameless(g, status) }
    }

    /// A goroutine of which nothing is known but that it is there.
    fn nameless(g: &'static G, status: Status) -> Seen {
        Seen {
            g,
            id: g.id(),
            name: None,
            labels: Labels::new(),
            creator_stack: NO_STACK,
            status,
            wait: NOT_WAITING,
            since_ns: 0,
            held: None,
            peers: None,
            origin: None,
            lost_processor: false,
            stack: NO_STACK,
        }
    }

    fn finish(self, now_ns: u64, named: &[Arc<[Frame]>]) -> Goroutine {
        let (state, reason) = match self.status {
            _ if self.lost_processor => (State::Running, "running"),
            Status::Waiting => (State::Waiting, self.wait.reason.text()),
            Status::Syscall => (State::Blocking, "syscall"),
            Status::Running => (State::Running, "running"),
            _ => (State::Runnable, "runnable"),
        };
        let is_on_something = self.status == Status::Waiting && self.wait.kind != Kind::None;
        let who = |held: Held| match (held.goroutine(), held.thread()) {
            _ if held.is_free() => Holder::Nobody,
            (Some((_, id)), _) => Holder::Goroutine(id),
            (None, Some(tid)) => Holder::Thread(tid),
            (None, None) => Holder::Ended,
        };
        Goroutine {
            id: self.id,
            name: self.name,
            labels: self.labels,
            state,
            reason,
            since: (self.since_ns != 0).then(|| Duration::from_nanos(now_ns.saturating_sub(self.since_ns))),
            lost_processor: self.lost_processor,
            object: is_on_something.then(|| Object { kind: self.wait.kind.text(), address: self.wait.object }),
            holder: self.held.map(who),
            peers: self.peers.map(|(sender, receiver)| Peers { sender: who(sender), receiver: who(receiver) }),
            stack: named[self.stack].clone(),
            creator: self.origin.map(|o| Creator {
                id: (o.creator != 0).then_some(o.creator),
                function: (o.start.name)(),
                location: o.at,
                stack: named[self.creator_stack].clone(),
            }),
        }
    }
}

/// The cycles among those that wait for what somebody holds.
fn cycles(seen: &[Seen]) -> Vec<Vec<u64>> {
    let mut found: Vec<Vec<u64>> = Vec::new();
    for s in seen.iter().filter(|s| s.held.is_some()) {
        if found.iter().flatten().any(|&id| id == s.id) {
            continue;
        }
        // CY2: the youngest waits may be as old as the clock's last step.
        if s.since_ns >= coarse::now_ns() {
            continue;
        }
        let Some(cycle) = cycle::from(s.g) else { continue };
        let ids: Vec<u64> = cycle.iter().map(|l| l.id).collect();
        if !found.contains(&ids) {
            found.push(ids);
        }
    }
    found
}
