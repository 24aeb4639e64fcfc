//! Channels: typed queues between goroutines (and threads), many to many, that can be closed.
//!
//! [`bounded`] holds so many messages; with a capacity of zero a send waits until a receiver takes the message
//! (rendezvous). [`unbounded`] never makes a sender wait.
//!
//! A channel is closed by [`Sender::close`] or [`Receiver::close`], when its last sender is dropped, or when its last receiver is.
//! What was sent before can still be received.
//!
//! ```text
//!   one lock, held for a few moves; no user code, no wake-up and no crossing under it
//!   send:     a receiver waits? hand the value to it     recv:   a message? take it, and let a waiting sender move up
//!             room? queue it                                     a sender waits (capacity 0)? take its value
//!             closed? give it back                               closed? say so
//!             otherwise wait with the value in a node            otherwise wait with an empty place in a node
//! ```
//!
//! - H1: if receivers wait, the queue is empty and no sender waits. If senders wait, the queue is full.
//! - H2: a waiting node's `slot` points to a place on the waiter's stack. Whoever takes the node off the list, and nobody
//!   else, moves the value through it, before `Node::finish`.
//! - H4: two hints tell whether a send or receive is likely to wait; then it enters the runtime first and locks once instead of
//!   twice. A stale hint costs time, nothing else: the slow path looks under the lock.
//! - H3: fast paths run outside the runtime and touch only the channel. A goroutine enters it to wait, and to wake.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::iter::FusedIterator;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tracer::record::Fixed;

use crate::prim::spin::RawLock;
use crate::sched::g::{Kind, Wait};
use crate::sched::park::Caller;
use crate::sync::waiter::{Node, Nodes, Waiter};

/// Outcomes of a wait.
const DONE: u32 = 1;
const CLOSED: u32 = 2;

struct Chan<T> {
    lock: RawLock,
    /// Whether a receiver would find something to do without waiting, and a sender likewise: written under the lock, read without
    /// it to choose the path, never to decide (H4).
    receivable: AtomicBool,
    sendable: AtomicBool,
    inner: UnsafeCell<Inner<T>>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
}

struct Inner<T> {
    queue: VecDeque<T>,
    /// `usize::MAX`: unbounded.
    capacity: usize,
    closed: bool,
    waiting_senders: Nodes,
    waiting_receivers: Nodes,
}

// SAFETY: the inside is touched under the lock only; values cross threads.
unsafe impl<T: Send> Sync for Chan<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Chan<T> {}

/// What an attempt to send under the lock came to.
enum Sent<T> {
    Done(Option<Waiter>),
    Closed(T),
    Full(T),
}

/// What an attempt to receive under the lock came to.
enum Received<T> {
    Done(T, Option<Waiter>),
    Closed,
    Empty,
}

impl<T> Inner<T> {
    fn send(&mut self, value: T) -> Sent<T> {
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

    fn receive(&mut self) -> Received<T> {
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
}

impl<T> Chan<T> {
    fn new(capacity: usize) -> Arc<Chan<T>> {
        let queue = if capacity == usize::MAX { VecDeque::new() } else { VecDeque::with_capacity(capacity.min(1024)) };
        Arc::new(Chan {
            lock: RawLock::new(),
            receivable: AtomicBool::new(false),
            sendable: AtomicBool::new(capacity != 0),
            inner: UnsafeCell::new(Inner {
                queue,
                capacity,
                closed: false,
                waiting_senders: Nodes::new(),
                waiting_receivers: Nodes::new(),
            }),
            senders: AtomicUsize::new(1),
            receivers: AtomicUsize::new(1),
        })
    }

    #[inline]
    fn locked<R>(&self, f: impl FnOnce(&mut Inner<T>) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held.
        let r = f(unsafe { &mut *self.inner.get() });
        // SAFETY: locked above; `f` does not unlock.
        unsafe { self.unlock() };
        r
    }

    /// Says what the next may expect, and unlocks.
    ///
    /// # Safety
    ///
    /// The caller holds the lock and unlocks it once.
    #[inline]
    unsafe fn unlock(&self) {
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

    #[inline]
    fn send(&self, value: T) -> Result<(), SendError<T>> {
        if !self.sendable.load(Ordering::Relaxed) {
            return self.send_slow(value);
        }
        match self.locked(|c| c.send(value)) {
            Sent::Done(None) => Ok(()),
            Sent::Done(Some(w)) => {
                Caller::here().wake(w);
                Ok(())
            }
            Sent::Closed(v) => Err(SendError(v)),
            Sent::Full(v) => self.send_slow(v),
        }
    }

    #[inline(never)]
    fn send_slow(&self, value: T) -> Result<(), SendError<T>> {
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        // SAFETY: the lock is held.
        let c = unsafe { &mut *self.inner.get() };
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
                    Sent::Closed(v) | Sent::Full(v) => {
                        drop(caller);
                        Err(SendError(v))
                    }
                };
            }
        };
        let value = ManuallyDrop::new(value);
        let node = Node::new(caller.waiter());
        node.slot.set(ptr::from_ref(&value).cast_mut().cast());
        // SAFETY: the lock is held; the node stays here until it is taken off.
        unsafe { c.waiting_senders.push_back(&node) };
        self.wait(&caller, &node, Fixed::ChanSend);
        drop(caller);
        if node.outcome.get() == DONE {
            return Ok(());
        }
        // Closed: the value is still ours.
        Err(SendError(ManuallyDrop::into_inner(value)))
    }

    #[inline]
    fn receive(&self) -> Result<T, RecvError> {
        if !self.receivable.load(Ordering::Relaxed) {
            return self.receive_slow();
        }
        match self.locked(Inner::receive) {
            Received::Done(v, None) => Ok(v),
            Received::Done(v, Some(w)) => {
                Caller::here().wake(w);
                Ok(v)
            }
            Received::Closed => Err(RecvError),
            Received::Empty => self.receive_slow(),
        }
    }

    #[inline(never)]
    fn receive_slow(&self) -> Result<T, RecvError> {
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        // SAFETY: the lock is held.
        let c = unsafe { &mut *self.inner.get() };
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
                    Received::Closed | Received::Empty => Err(RecvError),
                };
            }
        }
        let mut place = MaybeUninit::<T>::uninit();
        let node = Node::new(caller.waiter());
        node.slot.set((&raw mut place).cast());
        // SAFETY: the lock is held; the node stays here until it is taken off.
        unsafe { c.waiting_receivers.push_back(&node) };
        self.wait(&caller, &node, Fixed::ChanReceive);
        drop(caller);
        if node.outcome.get() == DONE {
            // SAFETY: H2: whoever said DONE has written the value.
            return Ok(unsafe { place.assume_init() });
        }
        Err(RecvError)
    }

    /// Waits with a node that is on a list; lets go of the lock when the waiter may be seen.
    fn wait(&self, caller: &Caller, node: &Node, reason: Fixed) {
        let wait = Wait { reason, kind: Kind::Channel, object: ptr::from_ref(self) as usize };
        // SAFETY: the caller of this function has locked; unlocked once, by this closure.
        caller.wait(node, wait, || unsafe { self.unlock() });
    }

    /// Closes; answers whether it was open.
    fn close(&self) -> bool {
        let (was_open, anybody) = self.locked(|c| {
            let was_open = !std::mem::replace(&mut c.closed, true);
            (was_open, !c.waiting_receivers.is_empty() || !c.waiting_senders.is_empty())
        });
        if anybody {
            let caller = Caller::here();
            while let Some(w) = self.locked(Inner::take_anybody) {
                caller.wake(w);
            }
        }
        was_open
    }

    fn len(&self) -> usize {
        self.locked(|c| c.queue.len())
    }

    fn capacity(&self) -> Option<usize> {
        let n = self.locked(|c| c.capacity);
        (n != usize::MAX).then_some(n)
    }

    fn is_closed(&self) -> bool {
        self.locked(|c| c.closed)
    }
}

/// A channel that holds at most `capacity` messages; with 0, a send waits for a receiver.
///
/// ```
/// let (tx, rx) = rt::chan::bounded(1);
/// rt::go(move || tx.send("hello"));
/// assert_eq!(rx.recv(), Ok("hello"));
/// assert_eq!(rx.recv(), Err(rt::chan::RecvError));
/// ```
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity != usize::MAX, "a bounded channel's capacity is less than usize::MAX: use unbounded()");
    let chan = Chan::new(capacity);
    (Sender { chan: chan.clone() }, Receiver { chan })
}

/// A channel that holds any number of messages.
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let chan = Chan::new(usize::MAX);
    (Sender { chan: chan.clone() }, Receiver { chan })
}

/// The sending half of a channel. Clones send into the same channel.
pub struct Sender<T> {
    chan: Arc<Chan<T>>,
}

/// The receiving half of a channel. Clones share the messages: each goes to one receiver.
pub struct Receiver<T> {
    chan: Arc<Chan<T>>,
}

impl<T> Sender<T> {
    /// Sends a message, waiting while there is no room.
    ///
    /// # Errors
    ///
    /// The message, if the channel is closed, now or while waiting.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan.send(value)
    }

    /// Sends a message if that is possible without waiting.
    ///
    /// # Errors
    ///
    /// The message, if there is no room (with capacity 0: no receiver waits) or the channel is closed.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        match self.chan.locked(|c| c.send(value)) {
            Sent::Done(waiter) => {
                if let Some(w) = waiter {
                    Caller::here().wake(w);
                }
                Ok(())
            }
            Sent::Closed(v) => Err(TrySendError::Closed(v)),
            Sent::Full(v) => Err(TrySendError::Full(v)),
        }
    }

    /// Closes the channel for all its senders and receivers; answers whether it was open. Messages that were sent can still be
    /// received.
    pub fn close(&self) -> bool {
        self.chan.close()
    }
}

impl<T> Receiver<T> {
    /// Takes the next message, waiting for one.
    ///
    /// # Errors
    ///
    /// If the channel is closed and empty.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.chan.receive()
    }

    /// Takes the next message if there is one (with capacity 0: if a sender waits).
    ///
    /// # Errors
    ///
    /// If there is none, and whether there can still come one.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        match self.chan.locked(Inner::receive) {
            Received::Done(v, waiter) => {
                if let Some(w) = waiter {
                    Caller::here().wake(w);
                }
                Ok(v)
            }
            Received::Closed => Err(TryRecvError::Closed),
            Received::Empty => Err(TryRecvError::Empty),
        }
    }

    /// Messages until the channel is closed and empty; waits for each.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// The messages that are there now; does not wait.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Closes the channel for all its senders and receivers; answers whether it was open. Messages that were sent can still be
    /// received.
    pub fn close(&self) -> bool {
        self.chan.close()
    }
}

/// What both halves know of their channel.
macro_rules! both {
    ($half:ident, $count:ident, $last:expr) => {
        impl<T> $half<T> {
            /// Messages in the channel.
            pub fn len(&self) -> usize {
                self.chan.len()
            }

            /// Whether no message is in the channel.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// How many messages it holds at most; `None` if it is unbounded.
            pub fn capacity(&self) -> Option<usize> {
                self.chan.capacity()
            }

            /// Whether it is closed. There may still be messages in it.
            pub fn is_closed(&self) -> bool {
                self.chan.is_closed()
            }

            /// Whether `self` and `other` belong to the same channel.
            pub fn same_channel(&self, other: &$half<T>) -> bool {
                Arc::ptr_eq(&self.chan, &other.chan)
            }
        }

        impl<T> Clone for $half<T> {
            fn clone(&self) -> $half<T> {
                self.chan.$count.fetch_add(1, Ordering::Relaxed);
                $half { chan: self.chan.clone() }
            }
        }

        impl<T> Drop for $half<T> {
            fn drop(&mut self) {
                // ORDER: AcqRel; the last one sees what the others did before they went.
                if self.chan.$count.fetch_sub(1, Ordering::AcqRel) == 1 {
                    let last: fn(&Chan<T>) = $last;
                    last(&self.chan);
                }
            }
        }

        impl<T> fmt::Debug for $half<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($half))
                    .field("len", &self.len())
                    .field("capacity", &self.capacity())
                    .field("closed", &self.is_closed())
                    .finish()
            }
        }
    };
}

both!(Sender, senders, |chan| {
    chan.close();
});

both!(Receiver, receivers, |chan| {
    chan.close();
    // Nobody can receive what is left: drop it now, without the lock, since that is user code.
    drop(chan.locked(|c| std::mem::take(&mut c.queue)));
});

/// Iterates over the messages of a channel; see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> FusedIterator for Iter<'_, T> {}

/// Iterates over the messages that are there; see [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

/// Iterates over the messages of a channel and owns its receiver.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T> FusedIterator for IntoIter<T> {}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The channel is closed; here is the message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// The message could not be sent at once; here it is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no room, or no receiver waits.
    Full(T),
    /// The channel is closed.
    Closed(T),
}

/// The channel is closed and empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// No message could be had at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// There is none now.
    Empty,
    /// There will be none: the channel is closed and empty.
    Closed,
}

impl<T> SendError<T> {
    /// The message.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// The message.
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(v) | TrySendError::Closed(v) => v,
        }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sending on a closed channel")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "sending on a full channel",
            TrySendError::Closed(_) => "sending on a closed channel",
        })
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("receiving on a closed and empty channel")
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "receiving on an empty channel",
            TryRecvError::Closed => "receiving on a closed and empty channel",
        })
    }
}

impl<T> Error for SendError<T> {}
impl<T> Error for TrySendError<T> {}
impl Error for RecvError {}
impl Error for TryRecvError {}
