//! Who waits, and lists of them.
//!
//! - Q1: a node lies on its waiter's stack. It is on at most one list, and comes off under that list's lock, by whoever will
//!   wake it. From [`Node::wake`]'s store on, the node of a thread may be gone; a goroutine's lives until it is readied.
//! - Q2: a list's lock is held for a few pointer moves; nothing is woken and no user code runs under it (B5).

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::prim::spin::RawLock;
use crate::sched::foreign::Foreign;
use crate::sched::g::G;
use crate::sched::park::{Caller, Turn};

/// Who waits.
#[derive(Clone, Copy)]
pub(crate) enum Waiter {
    Goroutine(&'static G),
    Thread(&'static Foreign),
}

/// A place in a list of waiters.
pub(crate) struct Node {
    waiter: Waiter,
    woken: AtomicBool,
    next: Cell<Option<NonNull<Node>>>,
    prev: Cell<Option<NonNull<Node>>>,
    /// What the waiter and its waker hand over: an address on the waiter's stack, a flag, as the primitive likes.
    pub(crate) slot: Cell<*mut ()>,
    /// How the wait ended, as the primitive likes.
    pub(crate) outcome: Cell<u32>,
}

impl Node {
    pub(crate) fn new(waiter: Waiter) -> Node {
        Node {
            waiter,
            woken: AtomicBool::new(false),
            next: Cell::new(None),
            prev: Cell::new(None),
            slot: Cell::new(std::ptr::null_mut()),
            outcome: Cell::new(0),
        }
    }

    /// Who waits here.
    pub(crate) fn waiter(&self) -> Waiter {
        self.waiter
    }

    /// Whether the wait is over. For threads; a goroutine is resumed instead.
    pub(crate) fn is_woken(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in finish(): what the waker handed over is visible.
        self.woken.load(Ordering::Acquire)
    }

    /// Ends the wait; answers whom to wake with [`Caller::wake`]. The node MUST NOT be touched afterwards (Q1).
    pub(crate) fn finish(&self) -> Waiter {
        let waiter = self.waiter;
        // ORDER: Release; pairs with is_woken(). For a goroutine the hand-over is its state word's.
        self.woken.store(true, Ordering::Release);
        waiter
    }
}

/// A first-in-first-out list of nodes. The caller keeps it from concurrent use.
#[derive(Default)]
pub(crate) struct Nodes {
    head: Option<NonNull<Node>>,
    tail: Option<NonNull<Node>>,
}

impl Nodes {
    pub(crate) const fn new() -> Nodes {
        Nodes { head: None, tail: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Appends a node.
    ///
    /// # Safety
    ///
    /// The node is on no list, and stays where it is until it has been taken off this one.
    pub(crate) unsafe fn push_back(&mut self, node: &Node) {
        let ptr = NonNull::from(node);
        node.prev.set(self.tail);
        match self.tail.replace(ptr) {
            // SAFETY: nodes on the list are alive (Q1).
            Some(t) => unsafe { t.as_ref() }.next.set(Some(ptr)),
            None => self.head = Some(ptr),
        }
    }

    /// Puts a node before all others: one that was at the front already and has to wait on.
    ///
    /// # Safety
    ///
    /// As for [`Nodes::push_back`].
    pub(crate) unsafe fn push_front(&mut self, node: &Node) {
        let ptr = NonNull::from(node);
        node.next.set(self.head);
        match self.head.replace(ptr) {
            // SAFETY: nodes on the list are alive (Q1).
            Some(h) => unsafe { h.as_ref() }.prev.set(Some(ptr)),
            None => self.tail = Some(ptr),
        }
    }

    /// Takes off the first node, which stays alive until [`Node::finish`].
    pub(crate) fn pop_front<'a>(&mut self) -> Option<&'a Node> {
        let head = self.head?;
        // SAFETY: nodes on the list are alive, and the waiter waits until finish() is called (Q1).
        let node = unsafe { head.as_ref() };
        self.head = node.next.take();
        match self.head {
            // SAFETY: as above.
            Some(h) => unsafe { h.as_ref() }.prev.set(None),
            None => self.tail = None,
        }
        Some(node)
    }
}

// SAFETY: a list is a set of addresses; what is behind them is used under Q1 by whoever holds the list.
unsafe impl Send for Nodes {}

/// A list with its lock, for waits that have no other lock.
///
/// - Q3: whoever is about to wait sets `used`, then looks whether there is still something to wait for; whoever ends that
///   makes it so, then reads `used`. All four are SeqCst: one of the two sees the other. `used` is never cleared.
pub(crate) struct WaitList {
    used: AtomicBool,
    lock: RawLock,
    nodes: UnsafeCell<Nodes>,
}

// SAFETY: the nodes are touched under the lock only.
unsafe impl Sync for WaitList {}
// SAFETY: as above.
unsafe impl Send for WaitList {}

impl WaitList {
    pub(crate) const fn new() -> WaitList {
        WaitList { used: AtomicBool::new(false), lock: RawLock::new(), nodes: UnsafeCell::new(Nodes::new()) }
    }

    /// Locks, for somebody who is about to look whether he has to wait (Q3).
    pub(crate) fn lock(&self) {
        self.lock.lock();
        self.used.store(true, Ordering::SeqCst);
    }

    /// # Safety
    ///
    /// The caller holds the lock and unlocks it once.
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: passed on to the caller.
        unsafe { self.lock.unlock() }
    }

    /// # Safety
    ///
    /// The caller holds the lock; as for [`Nodes::push_back`].
    pub(crate) unsafe fn push(&self, node: &Node) {
        // SAFETY: the lock is held; the rest is passed on.
        unsafe { (*self.nodes.get()).push_back(node) }
    }

    /// Wakes everybody who waits now, for `turn`. The caller has made true what they wait for, with a SeqCst store, once and
    /// for all.
    pub(crate) fn wake_all(&self, turn: Turn) {
        // Q3
        if self.used.load(Ordering::SeqCst) {
            self.wake_all_if(turn, || true);
        }
    }

    /// Wakes everybody who waits if `done`, which runs under the list's lock: nobody can begin to wait between the two.
    pub(crate) fn wake_all_if(&self, turn: Turn, done: impl FnOnce() -> bool) {
        self.lock.lock();
        let mut taken = Nodes::new();
        if done() {
            // SAFETY: the lock is held.
            std::mem::swap(&mut taken, unsafe { &mut *self.nodes.get() });
        }
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        if taken.is_empty() {
            return;
        }
        let caller = Caller::here();
        while let Some(node) = taken.pop_front() {
            caller.wake_in(node.finish(), turn);
        }
    }
}
