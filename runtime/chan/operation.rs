//! The cases of a select, and how one of them is chosen.
//!
//! ```text
//!   all channels locked, in the order of their addresses
//!   tried in random order: one works? done                     so each of those that are ready is as likely as the others
//!   otherwise a node on each list, all with one Ending; wait; the locks are let go of in the same order
//!   somebody wins the race with one node, and does that case   the others have not happened
//!   every node is taken off again, in the same order
//! ```
//!
//! - L1: locks are taken in the order of addresses, each once. So two selects cannot wait for each other.
//! - L2: the wait's publish lets go of the locks in that order and touches nothing on the waiter's stack after the last one; the
//!   waiter, which may run as soon as the first is free, goes through all of them in the same order before it returns. So its frame
//!   outlives the publish.
//! - L4: the cases have no drop: a borrow ends with its last use, so that a branch may use the channels, even replace them.
//! - L3: an operation is shared, never borrowed exclusively, while its node may be on a list: others write into its cells.

use std::cell::{Cell, RefCell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr;

use smallvec::SmallVec;
use tracer::record::Fixed;

use crate::chan::core::{CLOSED, Chan, DONE, Received, Sent};
use crate::chan::error::{RecvError, SendError};
use crate::chan::{Receiver, Sender};
use crate::sched::g::{Kind, Wait};
use crate::sched::park::{Caller, Turn};
use crate::sync::race::TIME_UP;
use crate::sync::waiter::{Ending, Node, Waiter};

/// How long a select waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Not at all.
    Now,
    /// Until a time on CLOCK_MONOTONIC.
    Time(u64),
    Forever,
}

/// What the engine needs of a case.
pub(crate) trait Step {
    /// The channel's address, which orders the locks (L1).
    fn address(&self) -> usize;
    /// A guess whether it could be done now.
    fn looks_ready(&self) -> bool;
    fn lock(&self);
    /// # Safety
    ///
    /// Locked, once.
    unsafe fn unlock(&self);
    /// A random number.
    ///
    /// # Safety
    ///
    /// Locked.
    unsafe fn random(&self) -> u64;
    /// Does it, if that is possible now.
    ///
    /// # Safety
    ///
    /// Locked, and not done before.
    unsafe fn attempt(&self) -> Option<Option<Waiter>>;
    /// Puts a node on the list.
    ///
    /// # Safety
    ///
    /// Locked; and the operation and the ending stay in place until [`Step::leave`].
    unsafe fn enlist(&self, ending: &Ending, case: u32);
    /// Takes the node off the list.
    fn leave(&self);
    /// Its node has won.
    fn won(&self);
}

/// A case that receives.
#[doc(hidden)]
pub struct RecvCase<'a, T> {
    chan: &'a Chan<T>,
    place: UnsafeCell<MaybeUninit<T>>,
    node: UnsafeCell<Option<Node>>,
    outcome: Cell<u32>,
}

/// A case that sends.
#[doc(hidden)]
pub struct SendCase<'a, T> {
    chan: &'a Chan<T>,
    /// Where the value is. It is the channel's once the case has won with [`DONE`].
    value: *mut T,
    node: UnsafeCell<Option<Node>>,
    outcome: Cell<u32>,
}

/// A case of any type.
#[doc(hidden)]
pub struct Case<'a>(&'a dyn Step);

impl<T> Receiver<T> {
    #[doc(hidden)]
    pub fn __recv(&self) -> RecvCase<'_, T> {
        RecvCase {
            chan: self.chan(),
            place: UnsafeCell::new(MaybeUninit::uninit()),
            node: UnsafeCell::new(None),
            outcome: Cell::new(0),
        }
    }
}

impl<T> Sender<T> {
    /// # Safety
    ///
    /// `value` stays where it is and is not touched until the select that the operation is given to has returned; if
    /// [`SendCase::is_done`] says so then, it was moved away.
    #[doc(hidden)]
    pub unsafe fn __send(&self, value: *const T) -> SendCase<'_, T> {
        SendCase { chan: self.chan(), value: value.cast_mut(), node: UnsafeCell::new(None), outcome: Cell::new(0) }
    }
}

impl<T> RecvCase<'_, T> {
    #[doc(hidden)]
    pub fn case(&self) -> Case<'_> {
        assert!(self.outcome.get() == 0, "a case is used once");
        Case(self)
    }

    /// The message, after this case was chosen.
    #[doc(hidden)]
    pub fn take(&self) -> Result<T, RecvError> {
        match self.outcome.replace(TAKEN) {
            // SAFETY: H2: the value was written, and is taken once.
            DONE => Ok(unsafe { (*self.place.get()).assume_init_read() }),
            CLOSED => Err(RecvError),
            _ => unreachable!("a message is taken once, from the case that was chosen"),
        }
    }

    /// Makes it as new. Gives the message, if it holds one.
    pub(crate) fn reset(&self) -> Option<T> {
        // SAFETY: as in take().
        (self.outcome.replace(0) == DONE).then(|| unsafe { (*self.place.get()).assume_init_read() })
    }
}

impl<T> SendCase<'_, T> {
    #[doc(hidden)]
    pub fn case(&self) -> Case<'_> {
        assert!(self.outcome.get() == 0, "a case is used once");
        Case(self)
    }

    /// Whether the value has gone into the channel, after this case was chosen; otherwise the channel is closed.
    #[doc(hidden)]
    pub fn is_done(&self) -> bool {
        self.outcome.get() == DONE
    }

    /// The result of the case that was chosen, for the value that it has sent.
    #[doc(hidden)]
    pub fn result(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_done() {
            // It was moved into the channel.
            std::mem::forget(value);
            Ok(())
        } else {
            Err(SendError(value))
        }
    }
}

/// The outcome when the message was taken out.
const TAKEN: u32 = 3;

/// What receiving and sending have in common.
macro_rules! step {
    ($case:ident, $peer:ident, $looks:ident, $list:ident, $slot:expr, $attempt:expr) => {
        impl<T> Step for $case<'_, T> {
            fn address(&self) -> usize {
                ptr::from_ref(self.chan).addr()
            }

            fn looks_ready(&self) -> bool {
                self.chan.$looks()
            }

            fn lock(&self) {
                self.chan.lock();
            }

            unsafe fn unlock(&self) {
                // SAFETY: passed on to the caller.
                unsafe { self.chan.unlock() }
            }

            unsafe fn random(&self) -> u64 {
                // SAFETY: passed on to the caller.
                unsafe { self.chan.inner() }.random()
            }

            unsafe fn attempt(&self) -> Option<Option<Waiter>> {
                // SAFETY: passed on to the caller.
                let (outcome, waiter) = $attempt(self, unsafe { self.chan.inner() })?;
                self.outcome.set(outcome);
                self.chan.peers.$peer.set();
                Some(waiter)
            }

            unsafe fn enlist(&self, ending: &Ending, case: u32) {
                // SAFETY: no other reference to the cell lives: the node is on no list yet.
                let node = unsafe { &mut *self.node.get() }.insert(Node::of(ending, case));
                node.slot.set($slot(self));
                // SAFETY: passed on to the caller.
                unsafe { self.chan.inner().$list.push_back(node) };
            }

            fn leave(&self) {
                // SAFETY: the cell was filled by enlist() and is only read since (L3).
                if let Some(node) = unsafe { &*self.node.get() } {
                    self.chan.locked(|c| c.$list.remove(node));
                }
            }

            fn won(&self) {
                // SAFETY: as above.
                let node = unsafe { &*self.node.get() }.as_ref().expect("it waited");
                self.outcome.set(node.outcome.get());
                self.chan.peers.$peer.set();
            }
        }
    };
}

step!(
    RecvCase,
    receiver,
    looks_receivable,
    waiting_receivers,
    |op: &RecvCase<'_, T>| op.place.get().cast(),
    |op: &RecvCase<'_, T>, c: &mut crate::chan::core::Inner<T>| match c.receive() {
        Received::Done(v, waiter) => {
            // SAFETY: the place is empty: nothing was done before, and its node is on no list.
            unsafe { (*op.place.get()).write(v) };
            Some((DONE, waiter))
        }
        Received::Closed => Some((CLOSED, None)),
        Received::Empty => None,
    }
);

step!(
    SendCase,
    sender,
    looks_sendable,
    waiting_senders,
    |op: &SendCase<'_, T>| op.value.cast(),
    |op: &SendCase<'_, T>, c: &mut crate::chan::core::Inner<T>| {
        // SAFETY: the maker of the operation has promised that the value is there.
        match c.send(unsafe { op.value.read() }) {
            Sent::Done(waiter) => Some((DONE, waiter)),
            Sent::Closed(v) => {
                // It is still in its place.
                std::mem::forget(v);
                Some((CLOSED, None))
            }
            Sent::Full(v) => {
                std::mem::forget(v);
                None
            }
        }
    }
);

/// Cases for which no memory is allocated.
const FEW: usize = 8;

/// The channels of a select, in the order in which they are locked (L1).
struct Locks<'a, 'b> {
    cases: &'b [Case<'a>],
    /// Numbers of cases, by address.
    order: SmallVec<[u32; FEW]>,
    /// The first case of each channel, in the same order.
    distinct: SmallVec<[u32; FEW]>,
    /// Numbers of cases, in the order of the last attempt. Made beforehand: nothing is allocated under the locks.
    turns: RefCell<SmallVec<[u32; FEW]>>,
}

impl<'a, 'b> Locks<'a, 'b> {
    fn new(cases: &'b [Case<'a>]) -> Locks<'a, 'b> {
        let address = |i: u32| cases[i as usize].0.address();
        let mut order: SmallVec<[u32; FEW]> = (0..cases.len() as u32).collect();
        order.sort_unstable_by_key(|&i| address(i));
        let mut distinct = order.clone();
        distinct.dedup_by_key(|i| address(*i));
        let turns = RefCell::new((0..cases.len() as u32).collect());
        Locks { cases, order, distinct, turns }
    }

    fn lock(&self) {
        for &i in &self.distinct {
            self.cases[i as usize].0.lock();
        }
    }

    /// Lets go of all locks; after the last one nothing of `self` is touched (L2).
    ///
    /// # Safety
    ///
    /// They are locked, once.
    unsafe fn unlock(&self) {
        let (&last, others) = self.distinct.split_last().expect("a select has a case");
        let last = self.cases[last as usize].0;
        for &i in others {
            // SAFETY: passed on to the caller.
            unsafe { self.cases[i as usize].0.unlock() };
        }
        // SAFETY: as above.
        unsafe { last.unlock() };
    }

    /// Tries the cases in random order, or in theirs.
    ///
    /// # Safety
    ///
    /// They are locked.
    unsafe fn attempt(&self, biased: bool) -> Option<(usize, Option<Waiter>)> {
        let n = self.cases.len();
        let turns = &mut *self.turns.borrow_mut();
        for at in 0..n {
            if !biased && n - at > 1 {
                // SAFETY: passed on to the caller.
                let r = unsafe { self.cases[self.distinct[0] as usize].0.random() };
                // The upper half of a product: as good as even for so few.
                turns.swap(at, at + (((r >> 32) * (n - at) as u64) >> 32) as usize);
            }
            let i = turns[at] as usize;
            // SAFETY: passed on to the caller.
            if let Some(waiter) = unsafe { self.cases[i].0.attempt() } {
                return Some((i, waiter));
            }
        }
        None
    }
}

/// Does one of the cases (each operation is in them once), waiting for one that can be done; answers which, or `None` when the time is up.
///
/// `biased`: the first one that is ready; otherwise each that is ready is as likely as the others.
///
/// # Panics
///
/// Without cases, if it were to wait for ever.
pub(crate) fn choose(cases: &[Case<'_>], until: Until, biased: bool) -> Option<usize> {
    if cases.is_empty() {
        return choose_nothing(until);
    }
    let locks = Locks::new(cases);
    // A guess: if nothing is ready, the locks are taken in the runtime only.
    if until == Until::Now || cases.iter().any(|c| c.0.looks_ready()) {
        locks.lock();
        // SAFETY: just locked, let go of once.
        let done = unsafe {
            let done = locks.attempt(biased);
            locks.unlock();
            done
        };
        if let Some((i, waiter)) = done {
            if let Some(w) = waiter {
                Caller::wake_from_here(w, Turn::Next);
            }
            return Some(i);
        }
        if until == Until::Now {
            return None;
        }
    }
    choose_slow(&locks, until, biased)
}

#[inline(never)]
fn choose_slow(locks: &Locks<'_, '_>, until: Until, biased: bool) -> Option<usize> {
    // B5: cross first, lock second.
    let caller = Caller::here();
    let ending = Ending::new(caller.waiter());
    locks.lock();
    // SAFETY: just locked.
    if let Some((i, waiter)) = unsafe { locks.attempt(biased) } {
        // SAFETY: locked above; this path ends here.
        unsafe { locks.unlock() };
        if let Some(w) = waiter {
            caller.wake(w);
        }
        return Some(i);
    }
    for (i, case) in locks.cases.iter().enumerate() {
        // SAFETY: locked; the cases are borrowed and the ending lives until each has left, below.
        unsafe { case.0.enlist(&ending, i as u32) };
    }
    let until_ns = if let Until::Time(ns) = until { Some(ns) } else { None };
    let wait = Wait { reason: Fixed::Select, kind: Kind::Select, object: locks.cases.len() };
    // SAFETY: locked above; unlocked once, by this closure.
    let winner = caller.race(&ending, until_ns, wait, || unsafe { locks.unlock() });
    // L2, Z2
    for &i in &locks.order {
        locks.cases[i as usize].0.leave();
    }
    drop(caller);
    if winner == TIME_UP {
        return None;
    }
    locks.cases[winner as usize].0.won();
    Some(winner as usize)
}

#[cold]
fn choose_nothing(until: Until) -> Option<usize> {
    match until {
        Until::Now => {}
        Until::Time(ns) => crate::time::sleep_until_ns(ns),
        Until::Forever => panic!("a select without an operation and without a time-out would wait for ever"),
    }
    None
}
