//! G: a goroutine.
//!
//! - N1: a G's slot is never freed (see [`crate::sched::slab`]), so a reference to one is good for ever; its id tells whether it is
//!   still the same goroutine. Slots are reused.
//! - N2: who may touch the cells: the M that runs it (or that M's visitor) while Running; whoever holds SCAN otherwise;
//!   its maker while Idle. Its labels and `voice` change while it runs, by its own doing, and when it is dead. So its M and that M's visitor may
//!   read these in a call (Syscall), too, and so may whoever readies it, until it is queued.
//! - N4: `locals`, `locks` and `locked` belong to the goroutine's own code, inside and outside: nobody else touches them
//!   between its first instruction and its last.
//! - N5: all zeros is a dead goroutine, as good as any other. So a slot needs no making, and the pages of dead ones may be given back.

use std::cell::{Cell, UnsafeCell};
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64, Ordering};

use tracer::record::{Fixed, ResourceState, Start};
use tracer::unwind::Regs;

use crate::chan::Peers;
use crate::prim::coarse;
use crate::prim::prefetch::prefetch;
use crate::sched::creator::CreatorStack;
use crate::sched::labels::LabelSet;
use crate::sched::locals::Locals;
use crate::sched::m::M;
use crate::sched::owner::{Held, Owner};
use crate::sched::state::StateWord;
use crate::sched::task::{self, RawTask};
use crate::stack::Class;
use crate::stack::header::StackRef;
use crate::sync::rw_lock;

/// What kind of thing a goroutine waits for, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Nothing that has an address.
    None,
    Channel,
    /// Several channels; `object` is their number.
    Select,
    Mutex,
    RwLock,
    /// As [`Kind::RwLock`], of the writer that has only readers before it, who have no names.
    RwLockReaders,
    Condvar,
    Once,
    Semaphore,
    Barrier,
    WaitGroup,
    GoroutineEnd,
    Future,
    /// A place among those who may block their thread.
    Thread,
    Trace,
    Socket,
}

impl Kind {
    /// How far behind the object's address the word lies that says who holds it (N4); `None` for kinds that nobody holds.
    ///
    /// A new kind of lock has an [`Owner`] and gives its place here, `offset_of!` the struct whose address it waits with.
    #[inline(always)]
    pub(crate) fn owner_offset(self) -> Option<usize> {
        match self {
            Kind::Mutex => Some(0),
            Kind::RwLock => Some(rw_lock::OWNER_OFFSET),
            Kind::GoroutineEnd => Some(task::RUNNER_OFFSET),
            _ => None,
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            Kind::None => "",
            Kind::Channel => "channel",
            Kind::Select => "channels",
            Kind::Mutex => "mutex",
            Kind::RwLock | Kind::RwLockReaders => "read-write lock",
            Kind::Condvar => "condition variable",
            Kind::Once => "once",
            Kind::Semaphore => "semaphore",
            Kind::Barrier => "barrier",
            Kind::Future => "future",
            Kind::Thread => "free thread",
            Kind::WaitGroup => "wait group",
            Kind::GoroutineEnd => "goroutine's end",
            Kind::Trace => "trace",
            Kind::Socket => "socket",
        }
    }
}

/// What a waiting goroutine waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    /// Go's word for it.
    pub(crate) reason: Fixed,
    pub(crate) kind: Kind,
    /// The object's address, 0 if there is none.
    ///
    /// - N4: of a kind with an [owner](Kind::owner_offset) it MUST be the address of an object that has an [`Owner`] at that offset,
    ///   with its provenance exposed. The object lives as long as somebody stands in it, so whoever holds SCAN of a Waiting
    ///   goroutine may read the owner through it.
    /// - N6: of a channel it is that of the channel, which begins with its [`Peers`], exposed likewise.
    pub(crate) object: usize,
}

impl Wait {
    /// Who holds what is waited for; `None` if that is nothing that can be held.
    ///
    /// # Safety
    ///
    /// This is what a goroutine waits for that is Waiting, and whose state word the caller holds (N4).
    pub(crate) unsafe fn owner(&self) -> Option<Held> {
        let owner = std::ptr::with_exposed_provenance::<Owner>(self.object + self.kind.owner_offset()?);
        // SAFETY: N4, passed on to the caller.
        Some(unsafe { (*owner).get() })
    }
}

impl Wait {
    /// Who sent last, and who received last, through the channel that is waited for; `None` if it is no channel.
    ///
    /// # Safety
    ///
    /// As for [`Wait::owner`] (N6).
    pub(crate) unsafe fn peers(&self) -> Option<(Held, Held)> {
        if self.kind != Kind::Channel {
            return None;
        }
        let peers = std::ptr::with_exposed_provenance::<Peers>(self.object);
        // SAFETY: N6, passed on to the caller.
        Some(unsafe { ((*peers).sender.get(), (*peers).receiver.get()) })
    }
}

/// Where a goroutine stands, and for what. Lies on its stack, in the frame of the function that stopped it.
pub(crate) struct Place {
    pub(crate) regs: Regs,
    pub(crate) wait: Wait,
    /// When it stopped there, by the coarse clock.
    pub(crate) since_ns: u64,
}

impl Place {
    /// A place of the calling function, which waits for nothing.
    #[inline(always)]
    pub(crate) fn here() -> Place {
        Place::at(Regs::here(), NOT_WAITING)
    }

    /// The place with these registers, now.
    #[inline(always)]
    pub(crate) fn at(regs: Regs, wait: Wait) -> Place {
        Place { regs, wait, since_ns: coarse::now_ns() }
    }
}

/// Where a goroutine comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) start: &'static Start,
    pub(crate) at: &'static Location<'static>,
    /// The goroutine that made it, 0 for a thread.
    pub(crate) creator: u64,
    /// Where that one stood, if that is remembered (see [`crate::sched::creator`]).
    pub(crate) stack: Option<&'static CreatorStack>,
}

/// What is seldom so. One byte, since a look at all of it comes with every switch.
/// Written by who may touch the goroutine's cells (N2); others may look.
pub(crate) struct Marks(AtomicU8);

impl Marks {
    const WIRED: u8 = 1;
    const SYSTEM: u8 = 2;
    const STAMPED: u8 = 4;

    /// Whether there is none.
    #[inline]
    pub(crate) fn is_clear(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    #[inline]
    fn set(&self, mark: u8, to: bool) {
        let marks = self.0.load(Ordering::Relaxed) & !mark | if to { mark } else { 0 };
        self.0.store(marks, Ordering::Relaxed);
    }

    /// Whether it waits on its M's own thread, which alone may run it (see [`crate::sched::wired`]).
    pub(crate) fn is_wired(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Marks::WIRED != 0
    }

    pub(crate) fn set_wired(&self, to: bool) {
        self.set(Marks::WIRED, to);
    }

    /// Whether it is one of the runtime's own, which do not keep a program alive.
    pub(crate) fn is_system(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Marks::SYSTEM != 0
    }

    #[inline]
    pub(crate) fn set_system(&self, to: bool) {
        self.set(Marks::SYSTEM, to);
    }

    /// Whether `stamp` says since when it is runnable. Both belong to whoever readies it until it is queued, then to whoever takes it
    /// off; nobody changes another mark meanwhile.
    pub(crate) fn is_stamped(&self) -> bool {
        self.0.load(Ordering::Relaxed) & Marks::STAMPED != 0
    }

    pub(crate) fn set_stamped(&self, to: bool) {
        self.set(Marks::STAMPED, to);
    }
}

/// A goroutine.
///
/// The fields are in the order of use: a switch touches the first line only.
#[repr(C, align(64))]
pub(crate) struct G {
    pub(crate) state: StateWord,
    /// Of its stack, once it has one.
    pub(crate) class: Cell<Class>,
    /// Of its own kind, or in its own way: almost always nothing of that.
    pub(crate) marks: Marks,
    /// It stays on its M's thread until it says otherwise: `locks` is not 0 (N4).
    pub(crate) locked: Cell<bool>,
    /// If it waits: for something that somebody holds. A hint for those who look for cycles, who then hold SCAN.
    pub(crate) waits_for_held: AtomicBool,
    /// The M that runs it.
    m: AtomicPtr<M>,
    pub(crate) stack: Cell<Option<StackRef>>,
    /// Its coroutine's handle to suspend itself, an address in its stack; set when it begins to run.
    pub(crate) yielder: Cell<*const ()>,
    /// The next in the one list that holds it.
    pub(crate) link: Cell<Option<&'static G>>,
    /// Where its own frames end: the stack pointer in the last of the runtime's frames below them. 0 before it runs.
    entry: Cell<usize>,
    /// Where it stands while it does not run; null where that is not known.
    ///
    /// - N3: set before it leaves Running, or under SCAN; the frame it points into lives until the goroutine runs on. So it may be followed
    ///   under SCAN, and only then. Who only asks the cache for what lies there may look at any time.
    place: AtomicPtr<Place>,
    id: AtomicU64,
    pub(crate) task: Cell<Option<RawTask>>,
    pub(crate) trace: ResourceState,
    /// When its name and labels were last told (see [`G::has_told`]). Written by who may touch the cells (N2); others may look.
    told_in: AtomicU64,
    pub(crate) name: UnsafeCell<Option<Arc<str>>>,
    pub(crate) origin: Cell<Option<Origin>>,
    pub(crate) labels: UnsafeCell<Option<Arc<LabelSet>>>,
    /// Its goroutine-locals (N4); null while it has none.
    pub(crate) locals: Cell<*mut Locals>,
    /// How many guards keep it on its thread (N4).
    pub(crate) locks: Cell<u32>,
    /// In which trace of labelled goroutines it has ended to exist, the last time (E3 in emit.rs). In others it has its own number.
    pub(crate) voice_in: Cell<u32>,
    /// In clock ticks.
    pub(crate) stamp: Cell<u64>,
    /// The number by which it is known in that trace.
    pub(crate) voice: Cell<u64>,
}

const _: () = assert!(std::mem::offset_of!(G, task) == 64 && size_of::<G>() <= 192);

// SAFETY: the cells follow N2; the state word's transitions carry acquire and release.
unsafe impl Sync for G {}

pub(crate) const NOT_WAITING: Wait = Wait { reason: Fixed::Forever, kind: Kind::None, object: 0 };

impl G {
    #[inline]
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// The M that runs it. Only its own code, which is running, may rely on the answer.
    #[inline]
    pub(crate) fn m(&self) -> &'static M {
        // SAFETY: set before the goroutine first ran; Ms are never freed.
        unsafe { &*self.m.load(Ordering::Relaxed) }
    }

    /// The M that runs it or ran it last, for others to verify.
    pub(crate) fn last_m(&self) -> Option<&'static M> {
        // SAFETY: null or an M, which is never freed.
        unsafe { self.m.load(Ordering::Acquire).as_ref() }
    }

    #[inline]
    pub(crate) fn set_m(&self, m: &'static M) {
        self.m.store(std::ptr::from_ref(m).cast_mut(), Ordering::Release);
    }

    /// Whether it has run. Of one that is in nobody's hands but the caller's.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.stack.get().is_some()
    }

    /// The calling function is the last of the runtime's before the goroutine's own code: a walk of its stack need not
    /// go further.
    #[inline(always)]
    pub(crate) fn begin_here(&self) {
        self.entry.set(Regs::here().sp);
    }

    /// Where a walk of its stack ends; 0 if it has not begun.
    #[inline]
    pub(crate) fn walk_end(&self) -> usize {
        self.entry.get()
    }

    /// Where a walk that begins at `regs` ends; 0 if there is nothing to walk: it has not begun, or stands on a stack that is not its own
    /// (the program switched to another one), of whose extent nobody knows.
    #[inline]
    pub(crate) fn walk_end_from(&self, regs: &Regs) -> usize {
        // By what this line of the cache says: the census comes by a million of them, and the stack's header is another one.
        let (end, low) = (self.entry.get(), self.stack.get().map_or(usize::MAX, |s| s.low_of(self.class.get())));
        if (low..end).contains(&regs.sp) { end } else { 0 }
    }

    /// It stops at `place`, in the calling function's frame (N3).
    #[inline(always)]
    pub(crate) fn stand_at(&self, place: &Place) {
        // ORDER: Relaxed, here and below; N3: the state word hands it on.
        self.place.store(std::ptr::from_ref(place).cast_mut(), Ordering::Relaxed);
    }

    /// Whether this is not its first turn. To itself.
    #[inline]
    pub(crate) fn has_stopped(&self) -> bool {
        !self.place.load(Ordering::Relaxed).is_null()
    }

    /// A visitor stops it somewhere in its own code.
    pub(crate) fn stand_anywhere(&self) {
        self.place.store(std::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Asks the cache for its first two lines: what its start needs, and what events need. Any address will do.
    #[inline]
    pub(crate) fn prefetch(g: *const G) {
        prefetch(g);
        prefetch(g.wrapping_byte_add(64));
    }

    /// Asks the cache for the frames that it will return into: it runs soon, or somebody walks them. A hint, from anybody.
    #[inline]
    pub(crate) fn prefetch_frames(&self) {
        let place = self.place.load(Ordering::Relaxed).cast_const().cast::<u8>();
        if place.is_null() {
            return;
        }
        for line in -3..5isize {
            prefetch(place.wrapping_offset(line * 64));
        }
    }

    /// Where it stands, what it waits for, and since when; the time is 0 where that is not known.
    ///
    /// # Safety
    ///
    /// The caller holds SCAN (N3).
    pub(crate) unsafe fn standing(&self) -> (Regs, Wait, u64) {
        // SAFETY: passed on to the caller: null, or a frame that lives.
        let place = unsafe { self.place.load(Ordering::Relaxed).as_ref() };
        place.map_or((Regs::default(), NOT_WAITING, 0), |p| (p.regs, p.wait, p.since_ns))
    }

    /// Where it said last that it stands, if that is in a frame between these two addresses of its stack.
    ///
    /// # Safety
    ///
    /// The memory between is readable, and the goroutine is the caller's own.
    pub(crate) unsafe fn stands_in(&self, low: usize, high: usize) -> Option<Regs> {
        let place = self.place.load(Ordering::Relaxed).cast_const();
        if !(low..high).contains(&place.addr()) || !place.is_aligned() {
            return None;
        }
        // SAFETY: passed on to the caller; any bytes are a Regs, and whoever walks from it bounds what it reads.
        let regs = unsafe { (&raw const (*place).regs).read() };
        (low..high).contains(&regs.sp).then_some(regs)
    }

    /// Its name, if it has one.
    ///
    /// # Safety
    ///
    /// N2.
    pub(crate) unsafe fn name(&self) -> Option<&Arc<str>> {
        // SAFETY: passed on to the caller; the name is written while Idle only.
        unsafe { (*self.name.get()).as_ref() }
    }

    /// Its labels, if it has any.
    ///
    /// # Safety
    ///
    /// N2.
    pub(crate) unsafe fn labels(&self) -> Option<&Arc<LabelSet>> {
        // SAFETY: passed on to the caller; a running goroutine's labels are written by itself, inside, only.
        unsafe { (*self.labels.get()).as_ref() }
    }

    /// Whether its name and labels, if it has any, were told in a generation.
    #[inline]
    pub(crate) fn has_told(&self, r#gen: u64) -> bool {
        self.told_in.load(Ordering::Relaxed) / 2 == r#gen
    }

    /// It tells them in a record, without having run.
    #[inline]
    pub(crate) fn set_told(&self, r#gen: u64) {
        self.told_in.store(r#gen * 2, Ordering::Relaxed);
    }

    /// Whether it has told its name and its labels itself, for nothing of that is told twice.
    #[inline]
    pub(crate) fn has_said(&self, r#gen: u64) -> bool {
        self.told_in.load(Ordering::Relaxed) == r#gen * 2 + 1
    }

    /// As if it had: it has neither.
    pub(crate) fn set_said(&self, r#gen: u64) {
        self.told_in.store(r#gen * 2 + 1, Ordering::Relaxed);
    }

    /// It runs, and tells its name, for that the first time in a generation. Answers whether it has to tell its labels, too.
    pub(crate) fn says(&self, r#gen: u64) -> bool {
        let told = self.told_in.load(Ordering::Relaxed);
        self.set_said(r#gen);
        told != r#gen * 2
    }

    /// Puts other labels in the place of its own, which it gives back.
    ///
    /// # Safety
    ///
    /// N2, and no reference from [`G::labels`] lives.
    pub(crate) unsafe fn swap_labels(&self, labels: Option<Arc<LabelSet>>) -> Option<Arc<LabelSet>> {
        // SAFETY: passed on to the caller.
        unsafe { std::mem::replace(&mut *self.labels.get(), labels) }
    }

    /// Where its maker stood when it made it, innermost frame first, if that is remembered.
    ///
    /// # Safety
    ///
    /// N2.
    pub(crate) unsafe fn creator_stack(&self) -> Option<&'static [usize]> {
        self.origin.get()?.stack.map(CreatorStack::pcs)
    }

    /// Makes the slot a new goroutine: Dead -> Idle. The caller took it from a free list.
    pub(crate) fn recycle(&self, id: u64) {
        self.state.claim();
        self.id.store(id, Ordering::Relaxed);
        self.told_in.store(0, Ordering::Relaxed);
        self.marks.set_system(false);
        self.entry.set(0);
        self.place.store(std::ptr::null_mut(), Ordering::Relaxed);
        debug_assert!(self.stack.get().is_none() && self.link.get().is_none() && self.voice_in.get() == 0);
    }
}

/// An intrusive first-in-first-out list through `G::link`.
#[derive(Default)]
pub(crate) struct GList {
    head: Option<&'static G>,
    tail: Option<&'static G>,
    len: usize,
}

impl GList {
    pub(crate) const fn new() -> GList {
        GList { head: None, tail: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn push_back(&mut self, g: &'static G) {
        debug_assert!(g.link.get().is_none(), "goroutine {} is on a list already", g.id());
        match self.tail.replace(g) {
            Some(t) => t.link.set(Some(g)),
            None => self.head = Some(g),
        }
        self.len += 1;
    }

    pub(crate) fn push_front(&mut self, g: &'static G) {
        debug_assert!(g.link.get().is_none(), "goroutine {} is on a list already", g.id());
        g.link.set(self.head.replace(g));
        if self.tail.is_none() {
            self.tail = Some(g);
        }
        self.len += 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<&'static G> {
        let g = self.head?;
        self.head = g.link.take();
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(g)
    }

    /// Moves everything from `other` to the back.
    pub(crate) fn append(&mut self, other: &mut GList) {
        let Some(head) = other.head.take() else { return };
        match self.tail {
            Some(t) => t.link.set(Some(head)),
            None => self.head = Some(head),
        }
        self.tail = other.tail.take();
        self.len += std::mem::take(&mut other.len);
    }
}

// SAFETY: a list is a set of references to Gs, whose ownership moves with it.
unsafe impl Send for GList {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::sched::state::{Scan, Status};

    /// One with this id, to be put into lists.
    pub(crate) fn leaked(id: u64) -> &'static G {
        // SAFETY: all zeros is a dead goroutine (N5).
        let g: &'static G = Box::leak(Box::new(unsafe { std::mem::zeroed() }));
        g.recycle(id);
        g
    }

    /// N5. A field that it cannot be so for ends the test: `zeroed` panics.
    #[test]
    fn all_zeros_is_a_dead_goroutine() {
        // SAFETY: what the test is about; checked field by field, each of which has a niche or is a number.
        let g: G = unsafe { std::mem::zeroed() };
        assert_eq!(g.state.status(), Status::Dead);
        assert!(matches!(g.state.scan(), Scan::Nothing));
        assert!(g.last_m().is_none() && g.stack.get().is_none() && g.link.get().is_none() && g.task.get().is_none());
        assert!(g.origin.get().is_none() && g.yielder.get().is_null() && g.locals.get().is_null());
        assert!(!g.marks.is_wired() && !g.marks.is_system() && !g.locked.get() && !g.marks.is_stamped());
        assert_eq!(
            (g.id(), g.walk_end(), g.locks.get(), g.stamp.get(), g.told_in.load(Ordering::Relaxed)),
            (0, 0, 0, 0, 0)
        );
        assert!((g.voice.get(), g.voice_in.get()) == (0, 0) && !g.waits_for_held.load(Ordering::Relaxed));
        // SAFETY: nobody else has it.
        unsafe {
            assert!(g.name().is_none() && g.labels().is_none() && g.creator_stack().is_none());
            assert!(g.standing().1.kind == Kind::None);
        }
        for generation in 0..6 {
            assert!(!g.trace.was_traced(generation));
        }
        g.recycle(7);
        assert_eq!((g.id(), g.state.status()), (7, Status::Idle));
    }
}
