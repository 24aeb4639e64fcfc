//! Where a scheduler's last idle thread sleeps: readiness, wake-ups and a precise time-out over [`mio`].
//!
//! The crate knows no scheduler. It has three nouns: a [`Poller`], in which one thread at a time waits; any number of [`Waker`]s,
//! which end that wait from other threads; and [`Descriptors`], one for each source in the poll set, whose [`Slot`]s remember for
//! each direction whether it is ready.
//!
//! # Protocol
//!
//! A wait ends for one of three reasons, and [`Woken`] says which: somebody woke it, something has happened to a source, or its
//! time is up. A wake is a token, not a pulse: given before the wait, it ends the next one at once; given many times, it ends
//! one wait. Events are told once, to whoever waits or [polls](Poller::poll) next; what becomes of them is in `slot.rs`.
//!
//! ```text
//!   waiter                                     waker
//!   flag.begin_wait()   Empty -> Waiting       (publish the work)
//!   epoll_wait(time-out)                       flag.notify()   any -> Notified
//!   flag.end_wait()     any -> Empty             was Waiting?  write the eventfd
//!   (look for work)                              otherwise     no system call
//! ```
//!
//! # Invariants
//!
//! - N1: At most one thread MUST be in the kernel's wait. Otherwise two threads would move the one flag, and a wake
//!   meant for the first would be eaten by the second. The mutex around [`Poller`]'s inner half enforces it.
//! - N2: Whoever moves the flag from Waiting to Notified MUST signal the kernel. Otherwise the waiter sleeps on.
//! - N3: A notifier MUST write the flag with a read-modify-write, also when it finds Notified. A plain "already set,
//!   nothing to do" would publish nothing, and the waiter could go back to sleep without seeing that waker's work.
//! - N4: An event from the kernel is a hint. The flag and the clock decide. Otherwise a late eventfd write (the waiter
//!   saw the flag first) or a timer left armed by an earlier wait would end a later wait for no reason.
//! - N5: A wait MUST NOT report [`Woken::TimedOut`] while a wake is pending, nor before its time.
//! - N6: An event that the kernel has told MUST be delivered, however the wait ends: it is not told again.
//!
//! The flag's table, its memory order and its loom model are in `flag.rs`.
//!
//! # Time-outs
//!
//! mio hands epoll whole milliseconds, rounded up: a wait of 50 us would take 1 ms and more. So on Linux and Android
//! time-outs are armed on a timerfd in the poll set (see `timer.rs`), which has neither that rounding nor the 50 us
//! timer slack of a thread. Elsewhere the rounding is mio's: none with kqueue, up to the next millisecond on Windows.
//! No wait is ever too short.
//!
//! # Tokens
//!
//! Every source in the poll set has a token. The crate keeps the two at the top of the range for itself (waker and
//! timer); those below are free for sockets. A descriptor's token is its index and a sequence that changes with each use, so that
//! a late event is recognised.
//!
//! # Rejected
//!
//! - A futex for sleeping and epoll only for sockets: two places to sleep, and a waker would have to know which.
//! - A flag of one bit: it cannot tell "nobody waits" from "somebody does", so that each first wake would cost a
//!   system call (0.5 us), also when the waiter is about to look anyway.
//! - Disarming the timer after an early wake: one system call for each wake, against one needless turn of the loop,
//!   and that only when the next wait has not armed it again.
//! - `epoll_pwait2`: precise without a second descriptor, but mio does not call it, and its descriptor cannot be
//!   borrowed from mio in safe code.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod descriptors;
mod flag;
mod poller;
mod slot;
mod timer;

pub use descriptors::{Descriptor, Descriptors};
pub use mio::event::Source;
#[cfg(unix)]
pub use mio::unix::SourceFd;
pub use poller::{Event, Poller, TryWait, Waker, Woken};
pub use slot::{Begin, Look, Notified, Slot};
