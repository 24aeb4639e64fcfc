//! The channel itself: its lock, its queue and those who wait.
//!
//! ```text
//!   one lock, held for a few moves; no user code, no wake-up and no crossing under it
//!   send:     a receiver waits? hand the value to it     recv:   a message? take it, and let a waiting sender move up
//!             room? queue it                                     a sender waits (capacity 0)? take its value
//!             closed? give it back                               closed? say so
//!             otherwise wait with the value in a node            otherwise wait with an empty place in a node
//! ```
//!
//! - H1: if receivers wait, the queue is empty and no sender waits. If senders wait, the queue is full. (Those who are about to leave,
//!   because another case of their select or their time limit won, do not count; they may be on the lists still.)
//! - H2: a waiting node's `slot` points to a place on the waiter's stack. Whoever takes the node off the list, and nobody
//!   else, moves the value through it, before `Node::finish`.
//! - H3: fast paths run outside the runtime and touch only the channel. A goroutine enters it to wait, and to wake.
//! - H4: two hints tell whether a send or receive is likely to wait; then it enters the runtime first and locks once instead of
//!   twice. A stale hint costs time, nothing else: the slow path looks under the lock.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tracer::record::Fixed;

use crate::chan::error::{RecvError, SendError};
use crate::prim::spin::RawLock;
use crate::sched::g::{Kind, Wait};
use crate::sched::owner::Owner;
use crate::sched::park::{Caller, Turn};
use crate::sync::waiter::{Node, Nodes, Waiter};

/// Outcomes of a wait.
pub(crate) const DONE: u32 = 1;
pub(crate) const CLOSED: u32 = 2;

#[repr(C)]
pub(crate) struct Chan<T> {
    /// First: whoever waits does so with the channel's address (N6 of [`crate::sched::g`]).
    pub(crate) peers: Peers,
    lock: RawLock,
    /// Whether a receiver would find something to do without waiting, and a sender likewise: written under the lock, read without
    /// it to choose the path, never to decide (H4).
    receivable: AtomicBool,
    sendable: AtomicBool,
    inner: UnsafeCell<Inner<T>>,
    pub(crate) senders: AtomicUsize,
    pub(crate) receivers: AtomicUsize,
    /// What is to be told when the last receiver goes: the timer that sends here.
    pub(crate) feeder: OnceLock<Arc<dyn Feeder>>,
}

/// Who used a channel last, for the dump. Written under the channel's lock, where others would take the line away from its
/// holder; only a select that has waited does so after it. Read at any time.
#[repr(C)]
pub(crate) struct Peers {
    pub(crate) sender: Owner,
    pub(crate) receiver: Owner,
}

/// Something of the runtime's that sends into a channel.
pub(crate) trait Feeder: Send + Sync {
    /// The last receiver is gone.
    fn abandoned(&self);
}

pub(crate) struct Inner<T> {
    pub(crate) queue: VecDeque<T>,
    /// `usize::MAX`: unbounded.
    pub(crate) capacity: usize,
    pub(crate) closed: bool,
    pub(crate) waiting_senders: Nodes,
    pub(crate) waiting_receivers: Nodes,
    /// For selects that lock this channel first.
    random: u64,
}

// SAFETY: the inside is touched under the lock only; values cross threads.
unsafe impl<T: Send> Sync for Chan<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Chan<T> {}

/// What an attempt to send under the lock came to.
pub(crate) enum Sent<T> {
    Done(Option<Waiter>),
    Closed(T),
    Full(T),
}

/// What an attempt to receive under the lock came to.
pub(crate) enum Received<T> {
    Done(T, Option<Waiter>),
    Closed,
    Empty,
}

/// How a wait came out that did not succeed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failed {
    Closed,
    TimeUp,
}

impl<T> Inner<T> {
    #[inline(always)]
    pub(crate) fn send(&mut self, value: T) -> Sent<T> {
        if self.closed {
            return Sent::Closed(value);
        }
        if let Some(node) = self.waiting_receivers.pop_front() {
            // SAFETY: H2: the node's slot is the receiver's empty place.
            unsafe { node.slot.get().cast::<MaybeUninit<T>>().write(MaybeUninit::new(value)) };
            node.outcome.set(DONE);
            return Sent::Done(Some(node.finish()));
        }
        if self.queue.len() < self.capacity {
            self.queue.push_back(value);
            return Sent::Done(None);
        }
        Sent::Full(value)
    }

    #[inline(always)]
    pub(crate) fn receive(&mut self) -> Received<T> {
        if let Some(value) = self.queue.pop_front() {
            // H1: the queue was full if a sender waits; its value moves up.
            let waiter = self.take_sender().map(|(v, w)| {
                self.queue.push_back(v);
                w
            });
            return Received::Done(value, waiter);
        }
        if let Some((value, waiter)) = self.take_sender() {
            return Received::Done(value, Some(waiter));
        }
        if self.closed { Received::Closed } else { Received::Empty }
    }

    /// Takes the value of the first waiting sender.
    #[inline]
    fn take_sender(&mut self) -> Option<(T, Waiter)> {
        let node = self.waiting_senders.pop_front()?;
        // SAFETY: H2: the node's slot is the sender's value, which it forgets when it sees DONE.
        let value = unsafe { node.slot.get().cast::<T>().read() };
        node.outcome.set(DONE);
        Some((value, node.finish()))
    }

    /// Takes anybody who waits, for the close.
    fn take_anybody(&mut self) -> Option<Waiter> {
        let node = self.waiting_receivers.pop_front().or_else(|| self.waiting_senders.pop_front())?;
        node.outcome.set(CLOSED);
        Some(node.finish())
    }

    /// A random number (splitmix64), for a select.
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Seeds for [`Inner::random`].
static SEEDS: AtomicUsize = AtomicUsize::new(1);

impl<T> Chan<T> {
    pub(crate) fn new(capacity: usize) -> Arc<Chan<T>> {
        let queue = if capacity == usize::MAX { VecDeque::new() } else { VecDeque::with_capacity(capacity.min(1024)) };
        Arc::new(Chan {
            peers: Peers { sender: Owner::new(), receiver: Owner::new() },
            lock: RawLock::new(),
            receivable: AtomicBool::new(false),
            sendable: AtomicBool::new(capacity != 0),
            inner: UnsafeCell::new(Inner {
                queue,
                capacity,
                closed: false,
                waiting_senders: Nodes::new(),
                waiting_receivers: Nodes::new(),
                random: (SEEDS.fetch_add(1, Ordering::Relaxed) as u64) << 32,
            }),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
            feeder: OnceLock::new(),
        })
    }

    pub(crate) fn lock(&self) {
        self.lock.lock();
    }

    /// # Safety
    ///
    /// The caller holds the lock, and no other reference to the inside lives.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn inner(&self) -> &mut Inner<T> {
        // SAFETY: passed on to the caller.
        unsafe { &mut *self.inner.get() }
    }

    #[inline(always)]
    pub(crate) fn locked<R>(&self, f: impl FnOnce(&mut Inner<T>) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held.
        let r = f(unsafe { &mut *self.inner.get() });
        // SAFETY: locked above; `f` does not unlock.
        unsafe { self.unlock() };
        r
    }

    /// As [`Chan::locked`], and notes the caller as this peer.
    #[inline(always)]
    pub(crate) fn locked_by<R>(&self, peer: &Owner, f: impl FnOnce(&mut Inner<T>) -> R) -> R {
        self.locked(|c| {
            peer.set();
            f(c)
        })
    }

    /// Says what the next may expect, and unlocks.
    ///
    /// # Safety
    ///
    /// The caller holds the lock and unlocks it once.
    #[inline]
    pub(crate) unsafe fn unlock(&self) {
        // SAFETY: the lock is held.
        let c = unsafe { &*self.inner.get() };
        let receivable = !c.queue.is_empty() || !c.waiting_senders.is_empty() || c.closed;
        let sendable = c.queue.len() < c.capacity || !c.waiting_receivers.is_empty() || c.closed;
        // ORDER: Relaxed; hints (H4).
        self.receivable.store(receivable, Ordering::Relaxed);
        self.sendable.store(sendable, Ordering::Relaxed);
        // SAFETY: passed on to the caller.
        unsafe { self.lock.unlock() }
    }

    /// Whether a receive is likely to succeed at once (H4).
    pub(crate) fn looks_receivable(&self) -> bool {
        self.receivable.load(Ordering::Relaxed)
    }

    /// Whether a send is likely to succeed at once (H4).
    pub(crate) fn looks_sendable(&self) -> bool {
        self.sendable.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn send(&self, value: T) -> Result<(), SendError<T>> {
        if !self.looks_sendable() {
            return self.send_slow(value);
        }
        match self.locked_by(&self.peers.sender, |c| c.send(value)) {
            Sent::Done(None) => Ok(()),
            Sent::Done(Some(w)) => {
                Caller::wake_from_here(w, Turn::Next);
                Ok(())
            }
            Sent::Closed(v) => Err(SendError(v)),
            Sent::Full(v) => self.send_slow(v),
        }
    }

    #[inline(never)]
    fn send_slow(&self, value: T) -> Result<(), SendError<T>> {
        self.send_until(value, None).map_err(|(v, _)| SendError(v))
    }

    /// Sends, waiting until a time on CLOCK_MONOTONIC at most.
    pub(crate) fn send_until(&self, value: T, until_ns: Option<u64>) -> Result<(), (T, Failed)> {
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        self.peers.sender.set();
        // SAFETY: the lock is held.
        let c = unsafe { self.inner() };
        let value = match c.send(value) {
            Sent::Full(v) => v,
            other => {
                // SAFETY: locked above; this path ends here.
                unsafe { self.unlock() };
                return match other {
                    Sent::Done(w) => {
                        if let Some(w) = w {
                            caller.wake(w);
                        }
                        Ok(())
                    }
                    Sent::Closed(v) | Sent::Full(v) => Err((v, Failed::Closed)),
                };
            }
        };
        let value = ManuallyDrop::new(value);
        let slot = ptr::from_ref(&value).cast_mut().cast();
        let outcome = self.wait(&caller, slot, until_ns, Fixed::ChanSend, |c| &mut c.waiting_senders);
        drop(caller);
        match outcome {
            Ok(()) => Ok(()),
            // The value is still ours.
            Err(why) => Err((ManuallyDrop::into_inner(value), why)),
        }
    }

    #[inline]
    pub(crate) fn receive(&self) -> Result<T, RecvError> {
        if !self.looks_receivable() {
            return self.receive_slow();
        }
        match self.locked_by(&self.peers.receiver, Inner::receive) {
            Received::Done(v, None) => Ok(v),
            Received::Done(v, Some(w)) => {
                Caller::wake_from_here(w, Turn::Next);
                Ok(v)
            }
            Received::Closed => Err(RecvError),
            Received::Empty => self.receive_slow(),
        }
    }

    #[inline(never)]
    fn receive_slow(&self) -> Result<T, RecvError> {
        self.receive_until(None).map_err(|_| RecvError)
    }

    /// Receives, waiting until a time on CLOCK_MONOTONIC at most.
    pub(crate) fn receive_until(&self, until_ns: Option<u64>) -> Result<T, Failed> {
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        self.peers.receiver.set();
        // SAFETY: the lock is held.
        let c = unsafe { self.inner() };
        match c.receive() {
            Received::Empty => {}
            other => {
                // SAFETY: locked above; this path ends here.
                unsafe { self.unlock() };
                return match other {
                    Received::Done(v, w) => {
                        if let Some(w) = w {
                            caller.wake(w);
                        }
                        Ok(v)
                    }
                    Received::Closed | Received::Empty => Err(Failed::Closed),
                };
            }
        }
        let mut place = MaybeUninit::<T>::uninit();
        let slot = (&raw mut place).cast();
        let outcome = self.wait(&caller, slot, until_ns, Fixed::ChanReceive, |c| &mut c.waiting_receivers);
        drop(caller);
        // SAFETY: H2: whoever said DONE has written the value.
        outcome.map(|()| unsafe { place.assume_init() })
    }

    /// Waits on a list, with the lock held on entry and let go of.
    #[inline]
    fn wait(
        &self,
        caller: &Caller,
        slot: *mut (),
        until_ns: Option<u64>,
        reason: Fixed,
        list: fn(&mut Inner<T>) -> &mut Nodes,
    ) -> Result<(), Failed> {
        // N6
        let wait = Wait { reason, kind: Kind::Channel, object: ptr::from_ref(self).expose_provenance() };
        let enlist = |node: &Node| {
            node.slot.set(slot);
            // SAFETY: the lock is held; the node stays where it is until it is taken off.
            unsafe { list(self.inner()).push_back(node) };
        };
        // SAFETY: locked by the caller of this function; unlocked once, by the wait.
        let unlock = || unsafe { self.unlock() };
        match caller.wait_in(until_ns, wait, enlist, unlock, |node| self.locked(|c| list(c).remove(node))) {
            Some(DONE) => Ok(()),
            Some(_) => Err(Failed::Closed),
            None => Err(Failed::TimeUp),
        }
    }

    /// Closes; answers whether it was open.
    pub(crate) fn close(&self) -> bool {
        let (was_open, anybody) = self.shut();
        if anybody {
            self.let_go(&Caller::here());
        }
        was_open
    }

    /// As [`Chan::close`], by a caller that is in the runtime.
    pub(crate) fn close_by(&self, caller: &Caller) {
        if self.shut().1 {
            self.let_go(caller);
        }
    }

    /// Whether it was open, and whether anybody waits.
    fn shut(&self) -> (bool, bool) {
        self.locked(|c| {
            let was_open = !std::mem::replace(&mut c.closed, true);
            (was_open, !c.waiting_receivers.is_empty() || !c.waiting_senders.is_empty())
        })
    }

    fn let_go(&self, caller: &Caller) {
        while let Some(w) = self.locked(Inner::take_anybody) {
            caller.wake(w);
        }
    }

    /// Sends if there is room, and if there is none does nothing; answers whom to wake. `T` has no drop of its own.
    pub(crate) fn offer(&self, value: T) -> Option<Waiter>
    where
        T: Copy,
    {
        match self.locked(|c| c.send(value)) {
            Sent::Done(w) => w,
            Sent::Closed(_) | Sent::Full(_) => None,
        }
    }
}
