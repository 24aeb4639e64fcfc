//! The census of a generation that is about to end: every goroutine that nobody has named in it is noted, with what it does and where (V1,
//! V2, V7 in `advance.rs`).
//!
//! There may be millions of them, again at the end of each generation, so the note of one is small, and such notes are never moved: lists that
//! grow would touch several times as much memory, and with many goroutines that is what a census costs. (Names, labels and calls are in lists
//! that grow.)

use std::sync::atomic::Ordering;
use std::time::Duration;

use tracer::record::{self, Fixed, NotedStatus, StackWalker};
use tracer::wire::ext::{self, Record};
use tracer::wire::{GoStatus, NO_M};

use crate::sched::advance::name_p;
use crate::sched::emit;
use crate::sched::g::G;
use crate::sched::park::Inside;
use crate::sched::slab::{SLAB, Still};
use crate::sched::state::{Scan, Status};

/// A goroutine that stands still, on no M.
struct Note {
    id: u64,
    stack: u32,
    /// Its slot, and whether it waits for something (or else for its turn).
    slot_and_waits: u32,
}

const WAITS: u32 = 1 << 31;
const _: () = assert!(crate::sched::slab::SLOTS_WANTED <= WAITS as usize);

/// The census asks the cache for what lies so many slots ahead: with many goroutines it does little but wait for memory.
const AHEAD: usize = 12;
/// And for the frames of so many goroutines at once.
const AT_ONCE: usize = 8;

/// Notes that lie together.
const CHUNK: usize = 4096;

/// What a census has found.
#[derive(Default)]
pub(crate) struct Noted {
    still: Vec<Vec<Note>>,
    /// Those in blocking calls.
    away: Vec<(&'static G, NotedStatus)>,
    /// Names and labels, and when they were these (V7).
    told: Vec<(&'static G, u64, Record)>,
}

impl Noted {
    fn note(&mut self, slot: usize, g: &'static G, status: Status, stack: u32) {
        let waits = match status {
            Status::Runnable => 0,
            Status::Waiting => WAITS,
            Status::Syscall => {
                let m = g.last_m().map_or(NO_M, |m| m.tid());
                let noted = NotedStatus { g: emit::id(g), m, status: GoStatus::Syscall, stack: stack.into() };
                return self.away.push((g, noted));
            }
            s => unreachable!("a goroutine in {s:?} cannot be held"),
        };
        if self.still.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.still.push(Vec::with_capacity(CHUNK));
        }
        let chunk = self.still.last_mut().expect("just seen to");
        chunk.push(Note { id: emit::id(g), stack, slot_and_waits: slot as u32 | waits });
    }

    /// Those that still nobody has named (V2). The slots are still held.
    pub(crate) fn unnamed(&self, r#gen: u64) -> impl Iterator<Item = NotedStatus> {
        let still = self.still.iter().flatten().map(|n| {
            let waits = n.slot_and_waits & WAITS != 0;
            let status = if waits { GoStatus::Waiting } else { GoStatus::Runnable };
            let g = SLAB.get((n.slot_and_waits & !WAITS) as usize);
            (g, NotedStatus { g: n.id, m: NO_M, status, stack: n.stack.into() })
        });
        let away = self.away.iter().copied();
        still.chain(away).filter(move |(g, _)| !g.trace.was_traced(r#gen)).map(|(_, noted)| noted)
    }

    /// Names and labels that still nobody has told (V7).
    pub(crate) fn untold(&self, r#gen: u64) -> ext::Writer {
        let mut records = ext::Writer::new();
        self.told.iter().filter(|(g, ..)| !g.has_told(r#gen)).for_each(|(_, time, what)| records.push(*time, *what));
        records
    }
}

/// Notes every goroutine that nobody has named in `r#gen`, and the names and labels of those that have not told them.
pub(crate) fn take(inside: &Inside, still: &Still, r#gen: u64, stacks: &mut StackWalker) -> Noted {
    let mut noted = Noted::default();
    let mut slots = still.numbered();
    for n in 0.. {
        let some: [_; AT_ONCE] = std::array::from_fn(|_| {
            let (i, g) = slots.next()?;
            SLAB.prefetch(i + AHEAD);
            if !g.trace.was_traced(r#gen) && matches!(g.state.status(), Status::Waiting | Status::Runnable) {
                g.prefetch_frames();
            }
            Some((i, g))
        });
        if some[0].is_none() {
            break;
        }
        look_at(some.into_iter().flatten(), inside, r#gen, stacks, &mut noted);
        if n % (1024 / AT_ONCE) == 1024 / AT_ONCE - 1 && inside.m().preempt.load(Ordering::Relaxed) {
            inside.yield_now(Fixed::Preempted);
        }
    }
    noted
}

/// Notes those of them that nobody has named or that have not told.
fn look_at(
    slots: impl Iterator<Item = (usize, &'static G)>,
    inside: &Inside,
    r#gen: u64,
    stacks: &mut StackWalker,
    noted: &mut Noted,
) {
    for (i, g) in slots {
        // S3, for dead slots too: they may come alive with a new identity. (Those whose pages were given back are ready: B3.)
        g.trace.ready_next(r#gen);
        let mut turns = 0u32;
        loop {
            let is_named = g.trace.was_traced(r#gen);
            if is_named && g.has_told(r#gen) {
                break;
            }
            match g.state.scan() {
                Scan::Nothing => break,
                Scan::Held(status, hold) => {
                    if emit::is_silent(g) {
                        break;
                    }
                    if !is_named {
                        noted.note(i, g, status, walk(g, r#gen, stacks));
                    }
                    tell(g, r#gen, &mut noted.told);
                    drop(hold);
                    break;
                }
                // One that was named while it ran, or has begun to run since, has told them in the same guard.
                Scan::Running if is_named => break,
                Scan::Running => {
                    if let Some(p) = g.last_m().and_then(|m| m.p()) {
                        name_p(inside, p, r#gen);
                    }
                }
                Scan::Busy => {}
            }
            turns += 1;
            if turns < 50 {
                std::hint::spin_loop();
            } else {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    }
}

/// Notes the name and the labels of a goroutine that stands still (its state word is held).
fn tell(g: &'static G, r#gen: u64, told: &mut Vec<(&'static G, u64, Record)>) {
    // SAFETY: N2: the word is held.
    let (name, labels) = unsafe { (g.name(), g.labels()) };
    if name.is_none() && labels.is_none() {
        return;
    }
    let now = tracer::clock::ticks();
    let mut note = |text: &str, record: &dyn Fn(u64) -> Record| {
        // SAFETY: the generation is not closed.
        let id = unsafe { record::noted_string(r#gen, text) };
        // 0: the table is full, and it is counted as lost.
        if id != 0 {
            told.push((g, now, record(id)));
        }
    };
    if let Some(name) = name {
        note(name, &|name| Record::Name { g: emit::id(g), name });
    }
    if let Some(labels) = labels {
        note(labels.text(), &|labels| Record::Labels { g: emit::id(g), labels });
    }
}

/// Where a goroutine stands (its state word is held), as a stack id.
fn walk(g: &'static G, r#gen: u64, stacks: &mut StackWalker) -> u32 {
    // SAFETY: the word is held.
    let regs = unsafe { g.standing() }.0;
    match g.walk_end_from(&regs) {
        0 => 0,
        // SAFETY: the word is held, so the frame of park() or blocking() that took the registers is alive; the
        // generation is not closed.
        end => unsafe { stacks.stack(r#gen, regs, end) as u32 },
    }
}
