//! M: an OS thread of the runtime.
//!
//! - M1: an M is never freed and its thread never ends: an idle one sleeps. At most `max_threads` are made.
//! - M2: `p` and `current` belong to the M while inside and to its visitor in VISITED (see [`crate::sched::border`]).
//! - M4: in a trace a goroutine that comes from the P's own queue starts at the time when the one before it stopped, to the tick after it:
//!   between the two lies only the switch, and reading the clock would cost as much as that. `stopped` is that time; whoever does anything
//!   else between the two takes it away. What may wait in the queue was put there by this M, before, or moved there by it.
//! - M3: an M that sleeps is woken with a P, by whoever took it off the idle list ([`post`](crate::sched::post)).

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use tracer::record::{Moment, Slot, thread_id};

use crate::prim::parker::Parker;
use crate::prim::rng::Rng;
use crate::sched::SCHED;
use crate::sched::border::Border;
use crate::sched::g::G;
use crate::sched::p::{HeldP, P};
use crate::sched::post::{Post, Taken};
use crate::sched::searchers::Searching;
use crate::sched::standing::Standing;
use crate::sched::world;

/// What an M does after a goroutine has switched back to it.
pub(crate) enum After {
    /// The goroutine is Waiting: publish it.
    Park(Commit),
    /// The goroutine is Runnable: put it at the end of this P's queue.
    Yield(&'static G),
    /// The goroutine is Runnable and had its time: put it at the end of the global queue.
    Preempt(&'static G),
    /// The goroutine is Dead: take back its stack and slot.
    Destroy(&'static G),
    /// The goroutine came back from outside and has no P.
    NoP(&'static G),
}

/// A closure on the parked goroutine's stack, by its address.
pub(crate) struct Commit {
    pub(crate) g: &'static G,
    pub(crate) call: unsafe fn(*mut (), &'static M, &'static G) -> bool,
    pub(crate) data: *mut (),
}

/// An OS thread of the runtime.
#[repr(align(128))]
pub(crate) struct M {
    pub(crate) border: Border,
    /// Somebody wants the goroutine off this M at its next crossing.
    pub(crate) preempt: AtomicBool,
    p: AtomicPtr<P>,
    current: AtomicPtr<G>,
    /// The generation in which its P and its goroutine were named, as [`emit::context`](crate::sched::emit::context) knows; 0 if it is to look. A
    /// goroutine that begins to run is named then. What the border protects; in a stopped world the stopper's, as the P is.
    pub(crate) named: Cell<u64>,
    pub(crate) after: Cell<Option<After>>,
    /// The blocking call that its goroutine is in is counted (M2; see [`crate::sched::calls`]).
    pub(crate) counted: Cell<bool>,
    /// The blocking call that its goroutine is in is not in the trace (E4 in emit.rs). What the border protects: its own, or its visitor's.
    pub(crate) untold: Cell<bool>,
    /// Its thread was told to give way to those that have a P (see [`crate::sched::outside::give_way`]).
    pub(crate) gives_way: AtomicBool,
    pub(crate) slot: Slot,
    /// When the goroutine that ran last has stopped, as its event says (M4).
    pub(crate) stopped: Cell<Moment>,
    pub(crate) parker: Parker,
    /// It waits for the end of a stop of the world.
    pub(crate) standing: Standing,
    /// The P it was woken with.
    pub(crate) post: Post<P>,
    /// The M was woken to search (its counter is set already). It belongs to whoever has that P.
    next_searching: Cell<Option<Searching>>,
    pub(crate) own: UnsafeCell<Own>,
    pub(crate) outside: Outside,
    tid: AtomicU64,
}

/// What sysmon saw of an M's border: written by sysmon alone, read by whoever wants to know how long it has been outside.
#[derive(Default)]
pub(crate) struct Outside {
    /// The border's counter at the last look.
    crossings: AtomicU32,
    /// When that was seen first.
    since_ns: AtomicU64,
    /// This stay outside was reported.
    pub(crate) reported: AtomicBool,
    /// Tripwires were told of it.
    pub(crate) tripped: AtomicBool,
}

impl Outside {
    /// Sysmon sees the counter; answers since when it has been the same.
    pub(crate) fn look(&self, crossings: u32, now_ns: u64) -> u64 {
        if self.crossings.load(Ordering::Relaxed) != crossings || self.since_ns.load(Ordering::Relaxed) == 0 {
            self.since_ns.store(now_ns, Ordering::Relaxed);
            // ORDER: Release; pairs with outside_since_ns(): with the counter comes the time.
            self.crossings.store(crossings, Ordering::Release);
            self.reported.store(false, Ordering::Relaxed);
            self.tripped.store(false, Ordering::Relaxed);
        }
        self.since_ns.load(Ordering::Relaxed)
    }
}

/// What only the M's own stack touches.
pub(crate) struct Own {
    pub(crate) rng: Rng,
    pub(crate) searching: Option<Searching>,
}

// SAFETY: the cells follow M2 and M3; `own` is touched by the M's thread alone.
unsafe impl Sync for M {}
// SAFETY: as above; an M is made by one thread and then run by another.
unsafe impl Send for M {}

impl M {
    /// An M for a thread that is about to start; it is to be given a P first.
    pub(crate) fn new(index: usize) -> &'static M {
        Box::leak(Box::new(M {
            border: Border::new(),
            preempt: AtomicBool::new(false),
            p: AtomicPtr::new(std::ptr::null_mut()),
            current: AtomicPtr::new(std::ptr::null_mut()),
            named: Cell::new(0),
            after: Cell::new(None),
            counted: Cell::new(false),
            untold: Cell::new(false),
            gives_way: AtomicBool::new(false),
            slot: Slot::new(0),
            stopped: Cell::default(),
            parker: Parker::new(),
            standing: Standing::new(),
            post: Post::new(),
            next_searching: Cell::new(None),
            outside: Outside::default(),
            own: UnsafeCell::new(Own { rng: Rng::new(index as u64 + 1), searching: None }),
            tid: AtomicU64::new(0),
        }))
    }

    /// Called first on the M's own thread.
    pub(crate) fn bind_thread(&'static self) {
        let tid = thread_id();
        self.tid.store(tid, Ordering::Relaxed);
        self.slot.set_m_id(tid);
        tracer::record::register(&self.slot);
    }

    /// Since when it has been outside, as far as sysmon has seen; `None` if it is inside, or has crossed since sysmon's last look.
    pub(crate) fn outside_since_ns(&self) -> Option<u64> {
        let crossings = self.border.crossings();
        // ORDER: Acquire; pairs with the Release in Outside::look().
        let seen = self.outside.crossings.load(Ordering::Acquire);
        (crossings.is_multiple_of(2) && seen == crossings).then(|| self.outside.since_ns.load(Ordering::Relaxed))
    }

    /// The kernel's id of its thread.
    pub(crate) fn tid(&self) -> u64 {
        self.tid.load(Ordering::Relaxed)
    }

    /// The P it has (M2).
    #[inline]
    pub(crate) fn p(&self) -> Option<&'static P> {
        // SAFETY: null or a P, which is never freed.
        unsafe { self.p.load(Ordering::Relaxed).as_ref() }
    }

    /// Whether that is `p`.
    #[inline]
    pub(crate) fn has_p(&self, p: &P) -> bool {
        self.p().is_some_and(|x| std::ptr::eq(x, p))
    }

    /// The P it has, where it must have one.
    #[inline]
    pub(crate) fn must_p(&self) -> &'static P {
        self.p().expect("an M in the runtime with a goroutine has a P")
    }

    /// Binds M and P to each other.
    pub(crate) fn set_p(&'static self, p: HeldP) {
        let p = p.into_inner();
        self.named.set(0);
        self.p.store(std::ptr::from_ref(p).cast_mut(), Ordering::Relaxed);
        p.set_m(Some(self));
    }

    /// What runs next has a whole time slice.
    #[inline]
    pub(crate) fn begin_slice(&self) {
        let slices = &self.must_p().slices;
        slices.store(slices.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.preempt.store(false, Ordering::Relaxed);
    }

    /// Parts M and P. By the M, or by its visitor.
    pub(crate) fn clear_p(&self) -> HeldP {
        let p = self.must_p();
        self.named.set(0);
        self.p.store(std::ptr::null_mut(), Ordering::Relaxed);
        p.set_m(None);
        HeldP::new(p)
    }

    /// The goroutine it runs (M2).
    #[inline]
    pub(crate) fn current(&self) -> Option<&'static G> {
        // SAFETY: null or a G, which is never freed.
        unsafe { self.current.load(Ordering::Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn set_current(&self, g: Option<&'static G>) {
        let g = g.map_or(std::ptr::null_mut(), |g| std::ptr::from_ref(g).cast_mut());
        self.current.store(g, Ordering::Relaxed);
    }

    /// Gives a sleeping M its next P (M3). The waker wakes it afterwards.
    pub(crate) fn assign(&'static self, p: HeldP, searching: Option<Searching>) {
        let p = p.into_inner();
        p.set_sent_to(self);
        self.next_searching.set(searching);
        self.post.leave(p);
    }

    /// Gives an M that waits with its goroutine a P.
    pub(crate) fn assign_for_good(&self, p: HeldP) {
        self.post.leave_for_good(p.into_inner());
    }

    /// The P that a waker left, with the searcher's count that came along; once the world runs.
    pub(crate) fn take_assigned(&self) -> Option<(HeldP, Option<Searching>)> {
        loop {
            match self.post.take(|| SCHED.stopping.load(Ordering::SeqCst)) {
                Taken::Got(p) => return Some(self.out_of_post(p)),
                Taken::Nothing => return None,
                Taken::Stopping => world::wait_for_start(self),
            }
        }
    }

    /// The P that a waker left for an M which does not run.
    pub(crate) fn take_unborn(&self) -> Option<(HeldP, Option<Searching>)> {
        match self.post.take(|| false) {
            Taken::Got(p) => Some(self.out_of_post(p)),
            Taken::Nothing | Taken::Stopping => None,
        }
    }

    /// Takes back `p`, which this M was woken with and has not taken. In a stopped world; see [`Post::call_back`].
    pub(crate) fn call_back(&self, p: &'static P) -> Option<(HeldP, Option<Searching>)> {
        self.post.call_back(p).then(|| self.out_of_post(p))
    }

    /// What was left with `p`, which the caller has just taken out (M3).
    fn out_of_post(&self, p: &'static P) -> (HeldP, Option<Searching>) {
        (HeldP::new(p), self.next_searching.take())
    }
}
