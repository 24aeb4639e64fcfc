//! Who waits, and lists of them.
//!
//! - Q1: a node lies on its waiter's stack. It is on at most one list, and comes off under that list's lock, by whoever will
//!   wake it, or by its waiter, who leaves. From [`Node::finish`]'s store on, the node of a thread may be gone; a goroutine's lives
//!   until it is readied.
//! - Q2: a list's lock is held for a few pointer moves; nothing is woken and no user code runs under it (B5). (One who waits
//!   for a condition lets go of his mutex under it, and that may wake somebody: see [`crate::sync::condvar`].)
//! - Q4: where several could end a wait, its nodes share an [`Ending`]: [`Nodes::pop_front`] gives only nodes whose race
//!   (see [`crate::sync::race`]) it has won. A node that lost is off the list, and its waiter finds that out under the lock.

use std::cell::{Cell, UnsafeCell};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::prim::spin::RawLock;
use crate::sched::foreign::Foreign;
use crate::sched::g::G;
use crate::sched::park::{Caller, Turn};
use crate::sync::race::Race;

/// Who waits.
#[derive(Clone, Copy)]
pub(crate) enum Waiter {
    Goroutine(&'static G),
    Thread(&'static Foreign),
}

/// The end of a wait that several could bring about: the cases of a select, a time limit. Lies on the waiter's stack.
pub(crate) struct Ending {
    pub(crate) race: Race,
    pub(crate) waiter: Waiter,
    woken: AtomicBool,
}

impl Ending {
    pub(crate) fn new(waiter: Waiter) -> Ending {
        Ending { race: Race::new(), waiter, woken: AtomicBool::new(false) }
    }

    /// Whether the wait is over. For threads; a goroutine is resumed instead.
    pub(crate) fn is_woken(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in Node::finish(): what the winner handed over is visible.
        self.woken.load(Ordering::Acquire)
    }
}

/// A place in a list of waiters.
pub(crate) struct Node {
    waiter: Waiter,
    /// The wait's ending, if others could bring it about too (Q4), and which of its nodes this is.
    ending: Option<NonNull<Ending>>,
    case: u32,
    woken: AtomicBool,
    /// On a list. Touched under its lock.
    listed: Cell<bool>,
    next: Cell<Option<NonNull<Node>>>,
    prev: Cell<Option<NonNull<Node>>>,
    /// What the waiter and its waker hand over: an address on the waiter's stack, a flag, as the primitive likes.
    pub(crate) slot: Cell<*mut ()>,
    /// How the wait ended, as the primitive likes.
    pub(crate) outcome: Cell<u32>,
}

impl Node {
    /// The only node of a wait without a time limit.
    #[inline]
    pub(crate) fn new(waiter: Waiter) -> Node {
        Node {
            waiter,
            ending: None,
            case: 0,
            woken: AtomicBool::new(false),
            listed: Cell::new(false),
            next: Cell::new(None),
            prev: Cell::new(None),
            slot: Cell::new(std::ptr::null_mut()),
            outcome: Cell::new(0),
        }
    }

    /// One of the nodes of a wait. The ending MUST outlive the node's time on a list.
    pub(crate) fn of(ending: &Ending, case: u32) -> Node {
        Node { ending: Some(NonNull::from(ending)), case, ..Node::new(ending.waiter) }
    }

    /// Whether the wait is over. For threads with a single node; a goroutine is resumed instead.
    pub(crate) fn is_woken(&self) -> bool {
        // ORDER: Acquire; pairs with the Release in finish(): what the waker handed over is visible.
        self.woken.load(Ordering::Acquire)
    }

    /// Ends the wait; answers whom to wake with [`Caller::wake`]. The node MUST NOT be touched afterwards (Q1).
    #[inline]
    pub(crate) fn finish(&self) -> Waiter {
        let waiter = self.waiter;
        // SAFETY: the waiter waits until `woken` is set, so its ending is alive.
        let woken = self.ending.map_or(&self.woken, |e| unsafe { &(*e.as_ptr()).woken });
        // ORDER: Release; pairs with is_woken(). For a goroutine the hand-over is its state word's.
        woken.store(true, Ordering::Release);
        waiter
    }

    /// Wins the wait's race, if there is one. Under the lock of the list it was on.
    #[inline]
    fn win(&self) -> bool {
        // SAFETY: Z2: the waiter takes its nodes off under the lock before the ending goes.
        self.ending.is_none_or(|e| unsafe { e.as_ref() }.race.win(self.case))
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

    /// Whether nobody is on the list. Somebody who is may be about to leave.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Appends a node.
    ///
    /// # Safety
    ///
    /// The node is on no list, and stays where it is until it has been taken off this one.
    #[inline]
    pub(crate) unsafe fn push_back(&mut self, node: &Node) {
        let ptr = NonNull::from(node);
        node.listed.set(true);
        node.next.set(None);
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
        node.listed.set(true);
        node.prev.set(None);
        node.next.set(self.head);
        match self.head.replace(ptr) {
            // SAFETY: nodes on the list are alive (Q1).
            Some(h) => unsafe { h.as_ref() }.prev.set(Some(ptr)),
            None => self.tail = Some(ptr),
        }
    }

    /// Takes off the first node whose wait the caller may end (Q4); it stays alive until [`Node::finish`].
    #[inline]
    pub(crate) fn pop_front<'a>(&mut self) -> Option<&'a Node> {
        self.pop_front_if(|_| true)
    }

    /// As [`Nodes::pop_front`], unless it is the turn of a node that `fits` refuses.
    #[inline]
    pub(crate) fn pop_front_if<'a>(&mut self, fits: impl Fn(&Node) -> bool) -> Option<&'a Node> {
        loop {
            // SAFETY: nodes on the list are alive (Q1).
            if !fits(unsafe { self.head?.as_ref() }) {
                return None;
            }
            let node = self.take_head()?;
            if node.win() {
                return Some(node);
            }
        }
    }

    /// Takes off the first node, whoever may end its wait.
    #[inline]
    fn take_head<'a>(&mut self) -> Option<&'a Node> {
        // SAFETY: nodes on the list are alive; and the waiter of one whose race was won waits until finish() (Q1).
        let node: &'a Node = unsafe { self.head?.as_ref() };
        node.listed.set(false);
        self.head = node.next.get();
        match self.head {
            // SAFETY: as above.
            Some(h) => unsafe { h.as_ref() }.prev.set(None),
            None => self.tail = None,
        }
        Some(node)
    }

    /// Takes off a node, if it is still on this list.
    pub(crate) fn remove(&mut self, node: &Node) {
        if !node.listed.replace(false) {
            return;
        }
        let (prev, next) = (node.prev.take(), node.next.take());
        match prev {
            // SAFETY: nodes on the list are alive (Q1).
            Some(p) => unsafe { p.as_ref() }.next.set(next),
            None => self.head = next,
        }
        match next {
            // SAFETY: as above.
            Some(n) => unsafe { n.as_ref() }.prev.set(prev),
            None => self.tail = prev,
        }
    }
}

// SAFETY: a list is a set of addresses; what is behind them is used under Q1 by whoever holds the list.
unsafe impl Send for Nodes {}

// A panic leaves a list as it is: complete.
impl UnwindSafe for Nodes {}
impl RefUnwindSafe for Nodes {}
impl RefUnwindSafe for WaitList {}

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

    /// A waiter leaves.
    pub(crate) fn remove(&self, node: &Node) {
        self.remove_and(node, |_| {});
    }

    /// A waiter leaves; `and` is told, under the lock, whether it was the last.
    pub(crate) fn remove_and(&self, node: &Node, and: impl FnOnce(bool)) {
        self.lock.lock();
        // SAFETY: the lock is held, and let go of once.
        unsafe {
            let nodes = &mut *self.nodes.get();
            nodes.remove(node);
            and(nodes.is_empty());
            self.lock.unlock();
        }
    }

    /// Takes the first who waits off the list and ends the wait, with an outcome that may depend on whether more wait; answers whom
    /// to wake with [`Caller::wake`]. If nobody is left `last` is called, under the lock.
    #[inline]
    pub(crate) fn finish_first(&self, outcome: impl FnOnce(bool) -> u32, last: impl FnOnce()) -> Option<Waiter> {
        self.lock.lock();
        // SAFETY: the lock is held, and let go of once.
        unsafe {
            let nodes = &mut *self.nodes.get();
            let node = nodes.pop_front();
            if nodes.is_empty() {
                last();
            }
            let waiter = node.map(|node| {
                node.outcome.set(outcome(!nodes.is_empty()));
                node.finish()
            });
            self.lock.unlock();
            waiter
        }
    }

    /// Wakes everybody who waits now, for `turn`. The caller has made true what they wait for, with a SeqCst store, once and
    /// for all.
    pub(crate) fn wake_all(&self, turn: Turn) {
        // Q3
        if !self.used.load(Ordering::SeqCst) {
            return;
        }
        self.lock.lock();
        // SAFETY: the lock is held.
        let nodes = unsafe { &mut *self.nodes.get() };
        let first = nodes.pop_front();
        if nodes.is_empty() {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            // Mostly there is one, or nobody.
            if let Some(node) = first {
                Caller::wake_from_here(node.finish(), turn);
            }
            return;
        }
        let mut taken = Taken::new();
        if let Some(node) = first {
            taken.push(node);
        }
        taken.take(nodes, usize::MAX);
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        taken.wake(turn);
    }

    /// Wakes everybody who waits if `done`, which runs under the list's lock: nobody can begin to wait between the two.
    pub(crate) fn wake_all_if(&self, turn: Turn, done: impl FnOnce() -> bool) {
        self.lock.lock();
        let mut taken = Taken::new();
        if done() {
            // SAFETY: the lock is held.
            taken.take(unsafe { &mut *self.nodes.get() }, usize::MAX);
        }
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        taken.wake(turn);
    }
}

/// Nodes that were taken off a list under its lock, to be woken when it is let go. MUST be woken.
#[derive(Default)]
#[must_use]
pub(crate) struct Taken {
    nodes: Nodes,
    len: usize,
}

impl Taken {
    pub(crate) const fn new() -> Taken {
        Taken { nodes: Nodes::new(), len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a node that [`Nodes::pop_front`] gave: its wait is the caller's to end.
    pub(crate) fn push(&mut self, node: &Node) {
        // SAFETY: it is on no list, nobody else looks at it, and its waiter waits until finish() (Q1).
        unsafe { self.nodes.push_back(node) };
        self.len += 1;
    }

    /// Adds the first `most` of a list, whose lock the caller holds.
    pub(crate) fn take(&mut self, from: &mut Nodes, most: usize) {
        let most = self.len.saturating_add(most);
        while self.len < most
            && let Some(node) = from.pop_front()
        {
            self.push(node);
        }
    }

    /// Wakes them all, in order.
    pub(crate) fn wake(self, turn: Turn) {
        if self.len != 0 {
            self.wake_by(&Caller::here(), turn);
        }
    }

    /// As [`Taken::wake`], by a caller that is in the runtime already.
    pub(crate) fn wake_by(mut self, caller: &Caller, turn: Turn) {
        // Their races were won when they were taken.
        while let Some(node) = self.nodes.take_head() {
            caller.wake_in(node.finish(), turn);
        }
    }
}
