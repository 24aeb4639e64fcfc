//! The poller and its wakers. The protocol and its invariants (N1 to N5) are in the crate's header.

use crate::flag::{Found, Notify, WakeFlag};
use crate::timer::{Arm, Timer};
use mio::{Events, Poll, Token};
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

const TOKEN_WAKER: Token = Token(usize::MAX);
const TOKEN_TIMER: Token = Token(usize::MAX - 1);

/// Events collected by one call of the kernel.
const EVENTS_MAX: usize = 256;

/// Why a wait ended.
#[must_use]
#[non_exhaustive]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// A [`Waker`] ended it. What its owner did before it called [`Waker::wake`] is visible, and so is what all others
    /// did whose wakes were merged into this one.
    Wake,
    /// The time-out is over and no wake is pending.
    TimedOut,
}

/// What [`Poller::try_wait`] did.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TryWait {
    /// It waited.
    Waited(Woken),
    /// It did not: another thread is in the poller.
    Busy,
}

/// Where one thread at a time waits.
///
/// ```
/// use netpoll::{Poller, Woken};
/// use std::time::Duration;
///
/// let poller = Poller::new()?;
/// let waker = poller.waker();
/// std::thread::spawn(move || waker.wake());
/// assert_eq!(poller.wait(None)?, Woken::Wake);
/// assert_eq!(poller.wait(Some(Duration::from_micros(50)))?, Woken::TimedOut);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Poller {
    /// N1: the lock is held throughout a wait.
    inner: Mutex<Inner>,
    shared: Arc<Shared>,
}

struct Inner {
    poll: Poll,
    events: Events,
    timer: Timer,
}

struct Shared {
    flag: WakeFlag,
    signal: mio::Waker,
}

impl Poller {
    /// Makes a poller: an epoll set (or what the system has in its place), an eventfd, a timerfd.
    ///
    /// # Errors
    ///
    /// When the system gives no descriptor.
    pub fn new() -> io::Result<Poller> {
        let poll = Poll::new()?;
        let signal = mio::Waker::new(poll.registry(), TOKEN_WAKER)?;
        let timer = Timer::new(poll.registry(), TOKEN_TIMER)?;
        Ok(Poller {
            inner: Mutex::new(Inner { poll, events: Events::with_capacity(EVENTS_MAX), timer }),
            shared: Arc::new(Shared { flag: WakeFlag::new(), signal }),
        })
    }

    /// A handle that ends a wait from any thread.
    pub fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }

    /// Waits until somebody wakes this poller or `timeout` is over; without a time-out, until a wake. A wake that came
    /// since the last wait ends this one at once, without a system call.
    ///
    /// While another thread is in the poller, this one first waits for its turn; the time-out begins after that. Where
    /// this must not happen, use [`try_wait`](Poller::try_wait).
    ///
    /// # Errors
    ///
    /// What the kernel's wait answers, except for an interruption by a signal: then the wait goes on.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Woken> {
        // Poisoned by a panic in mio at worst; between waits there is no state to be broken.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.wait_in(&mut inner, timeout)
    }

    /// As [`wait`](Poller::wait), but answers [`TryWait::Busy`] at once when another thread is in the poller.
    ///
    /// # Errors
    ///
    /// As [`wait`](Poller::wait).
    pub fn try_wait(&self, timeout: Option<Duration>) -> io::Result<TryWait> {
        let mut inner = match self.inner.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return Ok(TryWait::Busy),
        };
        self.wait_in(&mut inner, timeout).map(TryWait::Waited)
    }

    fn wait_in(&self, inner: &mut MutexGuard<'_, Inner>, timeout: Option<Duration>) -> io::Result<Woken> {
        let flag = &self.shared.flag;
        // A deadline past the end of the clock is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = deadline.and(timeout);
        loop {
            if flag.begin_wait() == Found::Wake {
                return Ok(Woken::Wake);
            }
            let polled = inner.poll_once(left);
            // The wake first, also after an error: the flag is consumed here, the error will come again (N5).
            if flag.end_wait() == Found::Wake {
                return Ok(Woken::Wake);
            }
            match polled {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            // N4: no wake, whatever the kernel said. Only the clock can end the wait now.
            left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            if left == Some(Duration::ZERO) {
                return Ok(Woken::TimedOut);
            }
        }
    }
}

impl Inner {
    /// One call of the kernel. Which events it brought does not matter yet: the waker's and the timer's are hints (N4).
    fn poll_once(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = match timeout {
            Some(timeout) if self.timer.arm(timeout) == Arm::Armed => None,
            other => other,
        };
        self.poll.poll(&mut self.events, timeout)
    }
}

impl fmt::Debug for Poller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poller").field("flag", &self.shared.flag).finish_non_exhaustive()
    }
}

/// Ends a [`Poller`]'s wait. Clones wake the same poller; a waker may outlive it and then wakes nobody.
#[derive(Clone)]
pub struct Waker {
    shared: Arc<Shared>,
}

impl Waker {
    /// Ends the wait in progress, or else the next one. Wakes that come before the waiter has answered are merged into
    /// one. Costs a system call only when a thread waits and nobody has woken it yet; otherwise one atomic swap.
    ///
    /// # Panics
    ///
    /// When the kernel refuses the signal. It has no reason to, and a waiter that was not signalled would never wake.
    pub fn wake(&self) {
        match self.shared.flag.notify() {
            Notify::Signal => self.signal_slow(),
            Notify::Done => {}
        }
    }

    #[cold]
    fn signal_slow(&self) {
        if let Err(error) = self.shared.signal.wake() {
            panic!("netpoll: cannot signal the waiting thread: {error}");
        }
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waker").field("flag", &self.shared.flag).finish_non_exhaustive()
    }
}
