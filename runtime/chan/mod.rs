//! Channels: typed queues between goroutines (and threads), many to many, that can be closed.
//!
//! [`bounded`] holds so many messages; with a capacity of zero a send waits until a receiver takes the message
//! (rendezvous). [`unbounded`] never makes a sender wait.
//!
//! A channel is closed by [`Sender::close`] or [`Receiver::close`], when its last sender is dropped, or when its last receiver is.
//! What was sent before can still be received.
//!
//! [`select!`](crate::select!) waits for one of several operations. How a channel works inside: `chan/core.rs`; a select:
//! `chan/operation.rs`.

mod core;
mod error;
mod iter;
mod operation;
mod select;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

pub use error::{
    RecvError, RecvTimeoutError, SelectTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySelectError,
    TrySendError,
};
pub use iter::{IntoIter, Iter, TryIter};
#[doc(hidden)]
pub use select::hidden;
pub use select::{Select, Selected};

use crate::sched::park::{Caller, Turn};
use crate::time;
pub(crate) use core::{Chan, Feeder, Peers};
use core::{Failed, Inner, Received, Sent};

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

/// A channel on which nothing ever comes: a receiver that can stand where a select has nothing to wait for.
///
/// ```
/// let nothing = rt::chan::never::<u32>();
/// rt::select! {
///     recv(nothing) -> _ => unreachable!(),
///     default => {}
/// }
/// ```
pub fn never<T>() -> Receiver<T> {
    let (tx, rx) = bounded(0);
    // A sender that is never dropped: the channel stays open. Its memory goes with the receiver.
    tx.chan.senders.fetch_add(1, Ordering::Relaxed);
    rx
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
                self.chan.peers.sender.set();
                if let Some(w) = waiter {
                    Caller::wake_from_here(w, Turn::Next);
                }
                Ok(())
            }
            Sent::Closed(v) => Err(TrySendError::Closed(v)),
            Sent::Full(v) => Err(TrySendError::Full(v)),
        }
    }

    /// Sends a message, waiting for room for a limited time.
    ///
    /// # Errors
    ///
    /// The message, if there was no room in time or the channel is closed.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_until(value, time::after_ns(timeout))
    }

    /// Sends a message, waiting for room until a point in time.
    ///
    /// # Errors
    ///
    /// The message, if there was no room in time or the channel is closed.
    pub fn send_deadline(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_until(value, time::at_ns(deadline))
    }

    fn send_until(&self, value: T, ns: u64) -> Result<(), SendTimeoutError<T>> {
        self.chan.send_until(value, Some(ns)).map_err(|(v, why)| match why {
            Failed::Closed => SendTimeoutError::Closed(v),
            Failed::TimeUp => SendTimeoutError::Timeout(v),
        })
    }

    /// Closes the channel for all its senders and receivers; answers whether it was open. Messages that were sent can still be
    /// received.
    pub fn close(&self) -> bool {
        self.chan.close()
    }
}

impl<T> Receiver<T> {
    /// The first receiver of a new channel, whose sender is the runtime.
    pub(crate) fn of(chan: Arc<Chan<T>>) -> Receiver<T> {
        Receiver { chan }
    }

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
                self.chan.peers.receiver.set();
                if let Some(w) = waiter {
                    Caller::wake_from_here(w, Turn::Next);
                }
                Ok(v)
            }
            Received::Closed => Err(TryRecvError::Closed),
            Received::Empty => Err(TryRecvError::Empty),
        }
    }

    /// Takes the next message, waiting for one for a limited time.
    ///
    /// # Errors
    ///
    /// If none came in time, or the channel is closed and empty.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_until(time::after_ns(timeout))
    }

    /// Takes the next message, waiting for one until a point in time.
    ///
    /// # Errors
    ///
    /// If none came in time, or the channel is closed and empty.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_until(time::at_ns(deadline))
    }

    fn recv_until(&self, ns: u64) -> Result<T, RecvTimeoutError> {
        self.chan.receive_until(Some(ns)).map_err(|why| match why {
            Failed::Closed => RecvTimeoutError::Closed,
            Failed::TimeUp => RecvTimeoutError::Timeout,
        })
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
                self.chan.locked(|c| c.queue.len())
            }

            /// Whether no message is in the channel.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// How many messages it holds at most; `None` if it is unbounded.
            pub fn capacity(&self) -> Option<usize> {
                Some(self.chan.locked(|c| c.capacity)).filter(|n| *n != usize::MAX)
            }

            /// Whether it is closed. There may still be messages in it.
            pub fn is_closed(&self) -> bool {
                self.chan.locked(|c| c.closed)
            }

            pub(crate) fn chan(&self) -> &Chan<T> {
                &self.chan
            }

            /// The channel's address: its identity.
            pub(crate) fn address(&self) -> usize {
                Arc::as_ptr(&self.chan).addr()
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
    if let Some(feeder) = chan.feeder.get() {
        feeder.abandoned();
    }
    // Nobody can receive what is left: drop it now, without the lock, since that is user code.
    drop(chan.locked(|c| std::mem::take(&mut c.queue)));
});
