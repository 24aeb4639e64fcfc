//! P: the right to run goroutines, with the queues that go with it.
//!
//! - P1: a P is in exactly one place: with an M (`m` set), on the idle list, in somebody's hands ([`HeldP`]) on the
//!   way between the two, or away ([`crate::sched::procs`]).
//! - P2: the cells belong to whoever holds the P: its M while inside, a visitor of that M, or the holder of the HeldP.
//! - P4: with many in the queue, the owner takes a few out ahead of their turn, in order, so that the cache can load what their
//!   switch will touch: with a thousand goroutines that take turns, waiting for that is most of a switch. Thieves do not see
//!   these few; they have the many. The P takes them along when it is handed on.
//! - P5: goroutines that have slept until they were due, or were readied by the network, have a queue of their own, `due`, so that they need not wait behind all that queue
//!   already: as long as there are any, [`DUE_SHARE`] of them are taken for each one of the other queue, which gets its turn all the same.
//!   The rest is as with the other queue: the owner puts and takes, thieves steal. `has_due` is set before a goroutine is put there, and
//!   cleared by the owner when it finds nothing more, so where it is not set nobody need look; others may find it set for nothing.
//! - P6: goroutines that goroutines have made and that have not run yet have a queue of their own, too, `fresh`: first in, first out, as long as it is
//!   no longer than [`CROWD`]. Beyond that the older half of it goes to the global queue as a batch, and the last batch comes back first. So those
//!   that make others, which make others, go into depth before they go on: hundreds wait at each level, where it would be all, each with
//!   its memory. For those that have run little changes by that: the owner goes by rounds. It takes as many of those as there were when the
//!   round began; then new ones: as many as it took of the others, or [`CROWD`], but no more than its share of all; or twice as many as
//!   those that have run have made in this round, if that is more. So who makes many and yields has its next turn when about as many have run,
//!   and the last of them with it; and a tree, whose goroutines make others when they begin, is not in the way of those that are about to end.
//!   Where there are always younger ones all the same, the one that has waited longest for any P is taken now and then. `has_new` is set before
//!   one is put into `fresh`, and when there are global ones; the owner takes it away when it finds neither.
//! - P7: a thief leaves a P the only goroutine that queues there as long as the P has a turn every microsecond: it comes to that one sooner than
//!   the thief has its lines of the cache. Otherwise those who wait for a lock whose holder yields, say, are torn apart by turns, and each turn
//!   takes two or three times as long. But such a P may have work for two all the same, so that holds for the first five microseconds of a search, or
//!   for its first round where others search, too. New ones are not meant, nor those that were due: for them somebody may wait.
//! - P3: `run_next` is taken by exchange, by the owner and by thieves. A thief leaves it to the owner for a few
//!   microseconds first: the owner is about to run it.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use crossbeam_utils::CachePadded;
use tracer::record::ResourceState;

use crate::prim::chaos;
use crate::prim::prefetch::prefetch;
use crate::sched::SCHED;
use crate::sched::block::{BLOCKS, Block};
use crate::sched::counts::Counts;
use crate::sched::g::{G, GList};
use crate::sched::life;
use crate::sched::m::M;
use crate::sched::queue;
use crate::sched::run_queue::RunQueue;
use crate::sched::slab::{ID_BLOCK, SLAB};
use crate::sched::timer::Timers;
use crate::stack::Class;
use crate::stack::arena::ARENA;
use crate::stack::header::StackRef;

/// Dead goroutine slots that a P keeps for itself.
const FREE_MAX: usize = 64;
/// How many goroutines are taken out of the queue ahead of their turn.
const AHEAD: usize = 3;
/// From how many in the queue on.
const AHEAD_FROM: usize = 16;
/// How many that were due are taken for each one that queues (P5). Much more than half, since a crowd that goes to sleep one after the
/// other is due at the rate at which it does so.
const DUE_SHARE: u32 = 7;
/// More new ones than that do not wait for a P (P6).
const CROWD: usize = 256;
/// Blocks of memory for tasks that a P keeps for itself.
const BLOCKS_MAX: usize = 128;
/// Warm stacks that a P keeps for itself.
const STACKS_MAX: usize = 32;

/// A processor.
pub(crate) struct P {
    pub(crate) id: u32,
    pub(crate) trace: ResourceState,
    m: CachePadded<AtomicPtr<M>>,
    run_next: CachePadded<AtomicPtr<G>>,
    queue: RunQueue,
    /// Goroutines that have not run yet (P6).
    fresh: RunQueue,
    has_new: Cell<bool>,
    round: Cell<Round>,
    /// How many were made in it by those that had stopped before.
    made: Cell<usize>,
    /// Goroutines that were due (P5).
    due: RunQueue,
    has_due: AtomicBool,
    /// How many of those were taken since one of the other queue was.
    due_taken: Cell<u32>,
    /// The first of the queue, taken out ahead of their turn (P4).
    ahead: [Cell<Option<&'static G>>; AHEAD],
    ahead_len: AtomicU32,
    /// Counts the time slices that began here; a goroutine that comes from `run_next` goes on with the last one.
    pub(crate) slices: AtomicU32,
    /// Counts the searches for something to run here, whichever M makes them: with a new M for each, as many short blocking calls do it,
    /// nothing that is due now and then would ever be.
    pub(crate) searches: Cell<u32>,
    /// Counts the turns of the program's goroutines here.
    pub(crate) turns: AtomicU32,
    pub(crate) timers: Timers,
    pub(crate) counts: CachePadded<Counts>,
    /// The M that was last woken with it: a hint for who wants it back. Written by whoever holds the P.
    sent_to: AtomicPtr<M>,
    /// On the idle list. Written under the scheduler's lock.
    pub(crate) idle: AtomicBool,
    /// What sysmon saw last.
    pub(crate) seen: Seen,
    free: UnsafeCell<GList>,
    stacks: UnsafeCell<Vec<StackRef>>,
    /// Memory for tasks.
    blocks: UnsafeCell<Vec<Block>>,
    ids: Cell<(u64, u64)>,
}

/// A round (P6).
#[derive(Clone, Copy)]
struct Round {
    /// How many goroutines that have run are still to be taken, of how many.
    left: usize,
    begun: usize,
    /// How many new ones, when that is over; and whether it has not been looked yet whether there are to be more.
    new: usize,
    may_grow: bool,
}

impl Round {
    const OVER: Round = Round { left: 0, begun: 0, new: 0, may_grow: false };
}

/// What sysmon remembers of a P between two looks; touched by sysmon alone.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) slice: Cell<u32>,
    pub(crate) slice_since_ns: Cell<u64>,
    /// When its M was first told that this slice is over; 0: not yet.
    pub(crate) told_ns: Cell<u64>,
    /// That this slice is too long was reported.
    pub(crate) reported: Cell<bool>,
    /// Tripwires were told of it.
    pub(crate) tripped: Cell<bool>,
    /// How many queued when that was last written, and in which generation.
    pub(crate) queued: Cell<(u64, u64)>,
}

// SAFETY: the cells follow P2, and `seen` belongs to one thread.
unsafe impl Sync for P {}
// SAFETY: as above; nothing is tied to the thread that made it.
unsafe impl Send for P {}

/// Evidence of holding a P that no M has. It MUST be given to an M or put on the idle list.
#[must_use = "a P that is dropped is lost for ever"]
pub(crate) struct HeldP(&'static P);

impl HeldP {
    /// The caller has just taken the P from its place (P1).
    pub(crate) fn new(p: &'static P) -> HeldP {
        HeldP(p)
    }

    pub(crate) fn p(&self) -> &'static P {
        self.0
    }

    pub(crate) fn into_inner(self) -> &'static P {
        let p = self.0;
        std::mem::forget(self);
        p
    }
}

impl Drop for HeldP {
    fn drop(&mut self) {
        debug_assert!(std::thread::panicking(), "P {} was dropped", self.0.id);
    }
}

impl P {
    pub(crate) fn new(id: u32) -> P {
        P {
            id,
            trace: ResourceState::new(),
            m: CachePadded::new(AtomicPtr::new(std::ptr::null_mut())),
            run_next: CachePadded::new(AtomicPtr::new(std::ptr::null_mut())),
            queue: RunQueue::new(),
            fresh: RunQueue::new(),
            has_new: Cell::new(false),
            round: Cell::new(Round::OVER),
            made: Cell::new(usize::MAX),
            due: RunQueue::new(),
            has_due: AtomicBool::new(false),
            due_taken: Cell::new(0),
            ahead: Default::default(),
            ahead_len: AtomicU32::new(0),
            slices: AtomicU32::new(0),
            searches: Cell::new(0),
            turns: AtomicU32::new(0),
            timers: Timers::new(),
            counts: CachePadded::new(Counts::new(id)),
            sent_to: AtomicPtr::new(std::ptr::null_mut()),
            idle: AtomicBool::new(false),
            seen: Seen::default(),
            free: UnsafeCell::new(GList::new()),
            stacks: UnsafeCell::new(Vec::with_capacity(STACKS_MAX)),
            blocks: UnsafeCell::new(Vec::new()),
            ids: Cell::new((0, 0)),
        }
    }

    /// The M that has it, if one has.
    pub(crate) fn m(&self) -> Option<&'static M> {
        // SAFETY: null or an M, which is never freed.
        unsafe { self.m.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn set_m(&self, m: Option<&'static M>) {
        let m = m.map_or(std::ptr::null_mut(), |m| std::ptr::from_ref(m).cast_mut());
        self.m.store(m, Ordering::Release);
    }

    /// The M that was last woken with it. It may have taken it since, and be done with it.
    pub(crate) fn sent_to(&self) -> Option<&'static M> {
        // SAFETY: null or an M, which is never freed.
        unsafe { self.sent_to.load(Ordering::Acquire).as_ref() }
    }

    pub(crate) fn set_sent_to(&self, m: &'static M) {
        self.sent_to.store(std::ptr::from_ref(m).cast_mut(), Ordering::Release);
    }

    /// Makes `g` the next to run; whom it displaces goes to the queue's end. Answers whether there was somebody.
    #[inline]
    pub(crate) fn put_next(&self, g: &'static G) -> bool {
        self.counts.runnable(g);
        // ORDER: AcqRel; pairs with the exchange in take_next() and steal_next(): publishes the goroutine.
        let old = self.run_next.swap(std::ptr::from_ref(g).cast_mut(), Ordering::AcqRel);
        // SAFETY: null or a G, which is never freed.
        match unsafe { old.as_ref() } {
            Some(old) => {
                if old.has_begun() {
                    self.queue.push(old)
                } else {
                    self.put_new(old)
                }
                true
            }
            None => false,
        }
    }

    /// Whether somebody queues, for its holder (P2).
    #[inline]
    pub(crate) fn has_queue(&self) -> bool {
        !self.queue.is_empty_to_owner() || !self.fresh.is_empty_to_owner()
    }

    /// Puts a new one at the end of those (P6).
    #[inline]
    fn put_new(&self, g: &'static G) {
        self.take_over_new(g);
        if self.fresh.shared_len() >= CROWD {
            queue::give_up_new(self);
        }
    }

    /// As [`P::put_new`], of one that comes from another queue.
    #[inline]
    pub(crate) fn take_over_new(&self, g: &'static G) {
        self.has_new.set(true);
        self.fresh.push(g);
    }

    /// Takes the older half of its new ones, for the global queue. The caller holds the P (P2).
    pub(crate) fn take_half_of_new(&self) -> GList {
        let mut half = GList::new();
        std::iter::from_fn(|| self.fresh.pop()).take(CROWD / 2).for_each(|g| half.push_back(g));
        half
    }

    /// There are new ones in the global queue, too. The caller holds the P (P2).
    pub(crate) fn think_of_new(&self) {
        self.has_new.set(true);
    }

    /// Puts `g` at the queue's end.
    #[inline]
    pub(crate) fn put_back(&self, g: &'static G) {
        self.counts.runnable(g);
        self.queue.push(g);
    }

    /// Puts `g`, which was due, at the end of those that were (P5).
    pub(crate) fn put_due(&self, g: &'static G) {
        self.counts.runnable(g);
        self.take_over_due(g);
    }

    /// As [`P::put_due`], of one that comes from another queue.
    pub(crate) fn take_over_due(&self, g: &'static G) {
        self.has_due.store(true, Ordering::Relaxed);
        self.due.push(g);
    }

    /// Puts `g`, which comes from another queue, at the end of this one.
    #[inline]
    pub(crate) fn take_over(&self, g: &'static G) {
        self.queue.push(g);
    }

    #[inline]
    pub(crate) fn take_next(&self) -> Option<&'static G> {
        if self.run_next.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // SAFETY: null or a G, which is never freed.
        unsafe { self.run_next.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
    }

    /// Whether some that were due may wait here (P5). Asked by the holder (P2).
    #[inline]
    pub(crate) fn has_due(&self) -> bool {
        self.has_due.load(Ordering::Relaxed)
    }

    /// Takes the first of those that were due, should there be any (P5). The caller holds the P (P2).
    #[inline]
    pub(crate) fn take_due(&self) -> Option<&'static G> {
        if !self.has_due() {
            return None;
        }
        let g = self.due.pop();
        if g.is_none() {
            self.has_due.store(false, Ordering::Relaxed);
        }
        g
    }

    /// Takes the first that queues: of those that were due, or of the others (P5). The caller holds the P (P2).
    #[inline]
    pub(crate) fn take_front(&self) -> Option<&'static G> {
        let n = self.ahead_len.load(Ordering::Relaxed);
        if n == 0 && !self.has_many() {
            return self.take_queued();
        }
        self.take_ahead(n as usize)
    }

    /// Whether so many queue that some are taken out ahead of their turn (P4).
    #[inline]
    fn has_many(&self) -> bool {
        self.queue.shared_len() >= AHEAD_FROM
            || self.has_due() && self.due.shared_len() >= AHEAD_FROM
            || self.has_new.get() && self.fresh.shared_len() >= AHEAD_FROM
    }

    #[inline]
    fn take_queued(&self) -> Option<&'static G> {
        if !self.has_due() { self.take_in_turn() } else { self.take_by_share() }
    }

    /// The first that was not due.
    #[inline]
    fn take_in_turn(&self) -> Option<&'static G> {
        if !self.has_new.get() { self.queue.pop() } else { self.take_by_round() }
    }

    /// One that has run, or a new one (P6).
    fn take_by_round(&self) -> Option<&'static G> {
        let mut round = self.round.get();
        loop {
            if round.left != 0 {
                if let Some(g) = self.queue.pop() {
                    self.round.set(Round { left: round.left - 1, ..round });
                    return Some(g);
                }
                // Thieves were faster.
                round.left = 0;
            }
            if round.begun != 0 {
                round = Round { new: self.new_in_round(round.begun), may_grow: true, ..Round::OVER };
            }
            if round.new != 0
                && let Some(g) = self.fresh.pop().or_else(|| SCHED.global.take_newest(self))
            {
                self.round.set(Round { new: round.new - 1, ..round });
                return Some(g);
            }
            if round.may_grow && self.made.get() != 0 {
                // By one of those before, which was taken ahead of its turn (P4), and had it after the new ones were counted.
                round = Round { new: self.new_in_round(0), ..Round::OVER };
                continue;
            }
            let begun = self.queue.len_to_owner();
            if self.fresh.is_empty_to_owner() && SCHED.global.new_len() == 0 {
                self.end_rounds();
                return self.queue.pop();
            }
            round = match begun {
                0 => Round { new: self.new_in_round(0), ..Round::OVER },
                _ => Round { left: begun, begun, ..Round::OVER },
            };
        }
    }

    /// How many new ones are to be taken in a round with so many others.
    fn new_in_round(&self, begun: usize) -> usize {
        let (own, all) = (self.fresh.len_to_owner(), SCHED.global.new_len());
        let share = own + all.div_ceil(SCHED.gomaxprocs().max(1));
        let most = CROWD.max(begun).min(share).max(self.made.replace(0).saturating_mul(2));
        most.min(own + all)
    }

    /// There are no new ones any more.
    fn end_rounds(&self) {
        self.has_new.set(false);
        self.round.set(Round::OVER);
        // Of those that come next nobody has counted who made them.
        self.made.set(usize::MAX);
    }

    /// A goroutine that has had a turn already makes another one. The caller holds the P (P2).
    #[inline]
    pub(crate) fn makes_later(&self) {
        self.made.set(self.made.get().saturating_add(1));
    }

    /// The first of the one queue or of the other (P5).
    fn take_by_share(&self) -> Option<&'static G> {
        let taken = self.due_taken.get();
        if taken < DUE_SHARE
            && let Some(g) = self.take_due()
        {
            self.due_taken.set(taken + 1);
            return Some(g);
        }
        self.due_taken.set(0);
        self.take_in_turn().or_else(|| self.take_due())
    }

    /// The first of those that were taken out of the queue ahead of their turn (P4), and asks the cache for what the next
    /// ones will touch.
    fn take_ahead(&self, n: usize) -> Option<&'static G> {
        let first = if n == 0 { self.take_queued() } else { self.ahead[0].get() };
        for i in 1..n {
            self.ahead[i - 1].set(self.ahead[i].get());
        }
        let mut n = n.saturating_sub(1);
        while n < AHEAD && self.has_many() {
            let Some(g) = self.take_queued() else { break };
            G::prefetch(g);
            self.ahead[n].set(Some(g));
            n += 1;
        }
        self.ahead_len.store(n as u32, Ordering::Relaxed);
        // Each step needs what the one before has brought: the slot, then the stack's header, then the frames.
        if let Some(g) = self.ahead[1].get().filter(|_| n > 1)
            && let Some(s) = g.stack.get()
        {
            prefetch(s.header());
            // The line below has the link to the M's stack.
            prefetch((s.top() - 64) as *const u8);
        }
        if let Some(g) = self.ahead[0].get().filter(|_| n > 0) {
            g.prefetch_frames();
        }
        first
    }

    /// Whether there is something to run here. Anybody may ask.
    pub(crate) fn has_work(&self) -> bool {
        !self.run_next.load(Ordering::Acquire).is_null()
            || !self.queue.is_empty()
            || !self.fresh.is_empty()
            || self.has_due.load(Ordering::Relaxed) && !self.due.is_empty()
            || self.ahead_len.load(Ordering::Relaxed) != 0
    }

    /// As [`P::has_work`], for its holder, who needs no fence to know its own queue (P2).
    #[inline]
    pub(crate) fn has_own_work(&self) -> bool {
        !self.run_next.load(Ordering::Relaxed).is_null()
            || self.has_queue()
            || self.has_due() && !self.due.is_empty_to_owner()
            || self.ahead_len.load(Ordering::Relaxed) != 0
    }

    /// Goroutines that wait here, roughly. Anybody may ask.
    pub(crate) fn queued(&self) -> usize {
        let next = !self.run_next.load(Ordering::Relaxed).is_null();
        self.queue.len()
            + self.fresh.len()
            + self.due.len()
            + self.ahead_len.load(Ordering::Relaxed) as usize
            + usize::from(next)
    }

    /// Steals half of what queues with `victim`: of those that were due, or else of the new ones or of the others, whichever are more; gives one to
    /// run and how many more came. The caller holds this P (P2).
    pub(crate) fn steal_from(&self, victim: &P) -> Option<(&'static G, usize)> {
        if victim.has_due.load(Ordering::Relaxed) {
            self.has_due.store(true, Ordering::Relaxed);
            if let Some(stolen) = self.due.steal_from(&victim.due) {
                return Some(stolen);
            }
        }
        let new = || {
            self.has_new.set(true);
            self.fresh.steal_from(&victim.fresh)
        };
        let others = || self.queue.steal_from(&victim.queue);
        if victim.fresh.len() > victim.queue.len() { new().or_else(others) } else { others().or_else(new) }
    }

    /// Whether a thief is to leave it the only goroutine that queues here (P7). `look`: see whether it takes turns at all.
    pub(crate) fn comes_to_its_only_one(&self, look: bool) -> bool {
        let has_one = self.queue.len() == 1
            && self.ahead_len.load(Ordering::Relaxed) == 0
            && self.fresh.is_empty()
            && !self.has_due.load(Ordering::Relaxed);
        has_one && (!look || self.takes_turns())
    }

    /// Whether it has another turn within a microsecond.
    fn takes_turns(&self) -> bool {
        let turns = self.turns.load(Ordering::Relaxed);
        happens_within(1, || self.turns.load(Ordering::Relaxed) != turns)
    }

    /// Steals `victim`'s next goroutine if it stays there for a few microseconds (P3).
    pub(crate) fn steal_next(victim: &P) -> Option<&'static G> {
        let first = victim.run_next.load(Ordering::Acquire);
        if first.is_null() {
            return None;
        }
        if happens_within(3, || victim.run_next.load(Ordering::Relaxed) != first) {
            return None;
        }
        victim
            .run_next
            .compare_exchange(first, std::ptr::null_mut(), Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            // SAFETY: a G, which is never freed.
            .map(|g| unsafe { &*g })
    }

    /// A free goroutine slot with a new id. The caller holds the P (P2).
    pub(crate) fn new_g(&self) -> &'static G {
        // SAFETY: P2; no other reference to the cell lives.
        let free = unsafe { &mut *self.free.get() };
        let g = free.pop_front().unwrap_or_else(|| {
            SLAB.take(FREE_MAX / 2, free);
            free.pop_front().expect("the slab gives at least one slot")
        });
        let (mut next, mut end) = self.ids.get();
        if next == end {
            next = SLAB.ids();
            end = next + ID_BLOCK;
        }
        self.ids.set((next + 1, end));
        self.counts.created.add(1);
        g.recycle(next);
        g
    }

    /// Takes back the slot of a goroutine that has ended. The caller holds the P (P2).
    pub(crate) fn free_g(&self, g: &'static G) {
        // SAFETY: P2.
        let free = unsafe { &mut *self.free.get() };
        self.counts.ended.add(1);
        free.push_front(g);
        if free.len() > FREE_MAX {
            let mut surplus = GList::new();
            while free.len() > FREE_MAX / 2 {
                surplus.push_back(free.pop_front().expect("longer than half"));
            }
            SLAB.put(&mut surplus);
        }
    }

    /// A stack of the class. The caller holds the P (P2).
    pub(crate) fn take_stack(&self, class: Class) -> Option<StackRef> {
        if class == Class::DEFAULT {
            // SAFETY: P2.
            if let Some(s) = unsafe { &mut *self.stacks.get() }.pop() {
                return Some(s);
            }
        }
        ARENA.take_quietly(class)
    }

    /// Memory for a small task. The caller holds the P (P2).
    #[inline]
    pub(crate) fn take_block(&self) -> Block {
        // SAFETY: P2.
        let blocks = unsafe { &mut *self.blocks.get() };
        blocks.pop().unwrap_or_else(|| more_blocks(blocks))
    }

    /// Keeps the memory of a task that is no more. The caller holds the P (P2).
    #[inline]
    pub(crate) fn put_block(&self, block: Block) {
        // SAFETY: P2.
        let blocks = unsafe { &mut *self.blocks.get() };
        if blocks.len() == BLOCKS_MAX {
            BLOCKS.put(blocks.drain(BLOCKS_MAX / 2..));
        }
        blocks.push(block);
    }

    /// Takes back a stack. The caller holds the P (P2).
    pub(crate) fn put_stack(&self, s: StackRef) {
        // SAFETY: P2.
        let stacks = unsafe { &mut *self.stacks.get() };
        if s.header().class == Class::DEFAULT && stacks.len() < STACKS_MAX {
            stacks.push(s);
        } else {
            ARENA.put(s);
        }
    }
}

impl P {
    /// Gives everything but its timers and the rest of its block of ids to others: goroutines, free slots, stacks. The caller holds the P
    /// (P2), and nobody steals.
    pub(crate) fn give_away(&self) {
        let mut gs = GList::new();
        // Of the new ones its own only.
        self.end_rounds();
        while let Some(g) = self.take_next().or_else(|| self.take_front()).or_else(|| self.fresh.pop()) {
            gs.push_back(g);
        }
        SCHED.global.push_all(&mut gs);
        // SAFETY: P2; no other reference to the cell lives.
        SLAB.put(unsafe { &mut *self.free.get() });
        life::give_stacks(self);
        // SAFETY: P2; no other reference to the cell lives.
        BLOCKS.put(unsafe { &mut *self.blocks.get() }.drain(..));
    }

    /// Gives the cached stacks to everybody; answers how many. The caller holds the P (P2).
    pub(crate) fn drain_stacks(&self) -> usize {
        // SAFETY: P2.
        let stacks = unsafe { &mut *self.stacks.get() };
        let n = stacks.len();
        for s in stacks.drain(..) {
            ARENA.put(s);
        }
        n
    }
}

/// Whether a thief sees it happen within so many microseconds. (Under chaos it may not look for as long.)
fn happens_within(us: u64, happens: impl Fn() -> bool) -> bool {
    let until = tracer::clock::ticks() + tracer::clock::ticks_per_ms() * us / 1000;
    while !chaos::one_in(64) && tracer::clock::ticks() < until {
        std::hint::spin_loop();
        if happens() {
            return true;
        }
    }
    false
}

/// Fetches some blocks, the lowest of which is the first to be used.
#[cold]
fn more_blocks(blocks: &mut Vec<Block>) -> Block {
    BLOCKS.take(BLOCKS_MAX / 2, |block| blocks.push(block));
    blocks.reverse();
    blocks.pop().expect("one at least")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gs(ids: std::ops::Range<u64>) -> impl Iterator<Item = &'static G> {
        ids.map(crate::sched::g::tests::leaked)
    }

    fn ids(p: &P, n: usize) -> Vec<u64> {
        std::iter::from_fn(|| p.take_front()).take(n).map(|g| g.id()).collect()
    }

    /// P6: in each round as many of either kind as there were, those that have run first.
    #[test]
    fn new_ones_take_turns_with_others() {
        let p = P::new(0);
        gs(1..4).for_each(|g| p.put_back(g));
        gs(101..106).for_each(|g| p.take_over_new(g));
        assert_eq!(p.queued(), 8);
        assert_eq!(ids(&p, 2), [1, 2]);
        gs(4..6).for_each(|g| p.put_back(g));
        gs(106..107).for_each(|g| p.take_over_new(g));
        assert_eq!(ids(&p, 100), [3, 101, 102, 103, 104, 105, 106, 4, 5]);
        assert!(!p.has_work() && !p.has_own_work() && p.queued() == 0);
        // Whoever steals takes of the longer queue.
        let thief = P::new(1);
        gs(1..10).for_each(|g| p.put_back(g));
        gs(101..131).for_each(|g| p.take_over_new(g));
        let (first, more) = thief.steal_from(&p).expect("there are many");
        assert!(first.id() == 101 && more > 1 && thief.has_own_work(), "{} and {more} more", first.id());
        let stolen = ids(&thief, 100);
        assert_eq!(stolen, (102..102 + more as u64).collect::<Vec<_>>());
    }

    /// P5: neither queue waits for the end of the other, and each keeps its order.
    #[test]
    fn those_that_were_due_get_most_of_the_turns() {
        for n in [5, 200] {
            let p = P::new(0);
            gs(1..n + 1).for_each(|g| p.put_back(g));
            gs(1001..1001 + n).for_each(|g| p.put_due(g));
            assert_eq!(p.queued() as u64, 2 * n);
            let first = ids(&p, 2);
            // No more than those that were taken ahead (P4) come before.
            assert_eq!(first, [1001, 1002]);
            let all: Vec<u64> = first.into_iter().chain(ids(&p, usize::MAX)).collect();
            assert_eq!(all.len() as u64, 2 * n);
            assert!(!p.has_work() && !p.has_own_work() && p.queued() == 0 && !p.has_due());
            let (due, others): (Vec<u64>, Vec<u64>) = all.iter().partition(|&&id| id > 1000);
            assert!(due.is_sorted() && others.is_sorted());
            let last_due = all.iter().rposition(|&id| id > 1000).unwrap() as u64;
            let others_before = last_due + 1 - n;
            assert_eq!(others_before, (n - 1) / u64::from(DUE_SHARE));
        }
    }

    /// P4, P5: who comes while some were taken ahead of their turn waits for no more than those.
    #[test]
    fn one_that_was_due_passes_a_long_queue() {
        let p = P::new(0);
        gs(1..100).for_each(|g| p.put_back(g));
        assert_eq!(ids(&p, 1), [1]);
        gs(1001..1002).for_each(|g| p.put_due(g));
        let place = ids(&p, usize::MAX).iter().position(|&id| id == 1001).unwrap();
        assert!(place <= AHEAD, "it came after {place}");
    }

    /// P7
    #[test]
    fn the_only_one_is_left_to_a_p_that_takes_turns() {
        use std::sync::atomic::AtomicBool;
        let p = P::new(0);
        let mut all = gs(1..10);
        let mut next = || all.next().unwrap();
        assert!(!p.comes_to_its_only_one(false), "it has none");
        p.put_back(next());
        assert!(p.comes_to_its_only_one(false));
        assert!(!p.comes_to_its_only_one(true), "its turn lasts");
        let stop = AtomicBool::new(false);
        let left = std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    p.turns.fetch_add(1, Ordering::Relaxed);
                }
            });
            // That thread may have to wait for a processor.
            while !p.comes_to_its_only_one(true) {
                std::thread::yield_now();
            }
            p.take_over_new(next());
            let beside_new = p.comes_to_its_only_one(true);
            let mut taken = ids(&p, 2);
            p.put_back(next());
            p.put_due(next());
            let beside_due = p.comes_to_its_only_one(true);
            taken.extend(ids(&p, 2));
            p.put_back(next());
            p.put_back(next());
            let two = p.comes_to_its_only_one(true);
            taken.extend(ids(&p, 2));
            stop.store(true, Ordering::Relaxed);
            (beside_new, beside_due, two, taken)
        });
        assert_eq!(left, (false, false, false, vec![1, 2, 4, 3, 5, 6]));
    }

    /// What was due is seen and found by others, before the rest, and is still that in the thief's hands.
    #[test]
    fn thieves_find_those_that_were_due() {
        let (thief, victim) = (P::new(0), P::new(1));
        assert!(thief.steal_from(&victim).is_none());
        gs(1..5).for_each(|g| victim.put_back(g));
        gs(1001..1005).for_each(|g| victim.put_due(g));
        assert!(victim.has_work());
        let (first, more) = thief.steal_from(&victim).unwrap();
        assert_eq!((first.id(), more), (1001, 1));
        gs(2001..2002).for_each(|g| thief.put_back(g));
        assert!(thief.has_work());
        assert_eq!(ids(&thief, usize::MAX), [1002, 2001]);
        let mut rest = Vec::new();
        while let Some((g, _)) = thief.steal_from(&victim) {
            rest.push(g.id());
            rest.extend(ids(&thief, usize::MAX));
        }
        assert_eq!(rest, [1003, 1004, 1, 2, 3, 4]);
        assert!(!victim.has_work() && !thief.has_work());
    }
}
