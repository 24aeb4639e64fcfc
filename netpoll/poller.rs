//! The poller, its wakers and its sources. The protocol and its invariants (N1 to N6) are in the crate's header.

use crate::flag::{Found, Notify, WakeFlag};
use crate::timer::{Arm, Timer};
use mio::event::Source;
use mio::{Events, Interest, Poll, Registry, Token};
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
    /// Something has happened to a source, and no wake is pending.
    Events,
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
/// assert_eq!(poller.wait(None, |_| {})?, Woken::Wake);
/// assert_eq!(poller.wait(Some(Duration::from_micros(50)), |_| {})?, Woken::TimedOut);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Poller {
    /// N1: the lock is held throughout a wait.
    inner: Mutex<Inner>,
    /// The way to the poll set that needs no lock.
    registry: Registry,
    shared: Arc<Shared>,
}

/// That something has happened to a source: a hint that a try may succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What the source was registered under.
    pub token: usize,
    /// There is something to read or to accept, or there never will be.
    pub readable: bool,
    /// There is room to write, a connection was made or failed, or there never will be.
    pub writable: bool,
    /// The peer has closed its half or all of it, there is an error or urgent data: one short try to read need not be the last.
    pub closing: bool,
}

impl Event {
    fn of(event: &mio::event::Event) -> Event {
        let closing = event.is_read_closed() || event.is_write_closed() || event.is_error() || event.is_priority();
        Event {
            token: event.token().0,
            readable: event.is_readable() || closing,
            writable: event.is_writable() || event.is_write_closed() || event.is_error(),
            closing,
        }
    }
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
            registry: poll.registry().try_clone()?,
            inner: Mutex::new(Inner { poll, events: Events::with_capacity(EVENTS_MAX), timer }),
            shared: Arc::new(Shared { flag: WakeFlag::new(), signal }),
        })
    }

    /// A handle that ends a wait from any thread.
    pub fn waker(&self) -> Waker {
        Waker { shared: Arc::clone(&self.shared) }
    }

    /// Puts a source into the poll set, for both directions, edge-triggered: each change is told once. On Linux urgent data are told
    /// of, too.
    ///
    /// # Errors
    ///
    /// The system's: no memory, too many watches, a descriptor that cannot be polled (a file).
    pub fn register(&self, source: &mut impl Source, token: usize) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        let interest = interest | Interest::PRIORITY;
        self.registry.register(source, Token(token), interest)
    }

    /// Takes a source out of the poll set. Events for it may still come: see [`Descriptors`](crate::Descriptors).
    ///
    /// # Errors
    ///
    /// The system's, when it is not in the set.
    pub fn deregister(&self, source: &mut impl Source) -> io::Result<()> {
        self.registry.deregister(source)
    }

    /// Waits until somebody wakes this poller, something has happened to a source, or `timeout` is over; without a time-out,
    /// until one of the first two. A wake that came since the last wait ends this one at once, without a system call.
    ///
    /// While another thread is in the poller, this one first waits for its turn; the time-out begins after that. Where
    /// this must not happen, use [`try_wait`](Poller::try_wait).
    ///
    /// `on_event` is called for each event, while other threads are kept out of the poller.
    ///
    /// # Errors
    ///
    /// What the kernel's wait answers, except for an interruption by a signal: then the wait goes on.
    pub fn wait(&self, timeout: Option<Duration>, on_event: impl FnMut(Event)) -> io::Result<Woken> {
        // Poisoned by a panic in mio at worst; between waits there is no state to be broken.
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.wait_in(&mut inner, timeout, on_event)
    }

    /// As [`wait`](Poller::wait), but answers [`TryWait::Busy`] at once when another thread is in the poller.
    ///
    /// # Errors
    ///
    /// As [`wait`](Poller::wait).
    pub fn try_wait(&self, timeout: Option<Duration>, on_event: impl FnMut(Event)) -> io::Result<TryWait> {
        let Some(mut inner) = self.try_enter() else { return Ok(TryWait::Busy) };
        self.wait_in(&mut inner, timeout, on_event).map(TryWait::Waited)
    }

    /// Collects what has happened to the sources, without waiting, and leaves wakes to those who do wait. Answers how many events there
    /// were, 0 also if another thread is in the poller.
    ///
    /// # Errors
    ///
    /// What the kernel's wait answers, except for an interruption by a signal.
    pub fn poll(&self, mut on_event: impl FnMut(Event)) -> io::Result<usize> {
        let Some(mut inner) = self.try_enter() else { return Ok(0) };
        match inner.poll_once(Some(Duration::ZERO)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        Ok(inner.deliver(&mut on_event))
    }

    fn try_enter(&self) -> Option<MutexGuard<'_, Inner>> {
        match self.inner.try_lock() {
            Ok(inner) => Some(inner),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn wait_in(
        &self,
        inner: &mut Inner,
        timeout: Option<Duration>,
        mut on_event: impl FnMut(Event),
    ) -> io::Result<Woken> {
        let flag = &self.shared.flag;
        // A deadline past the end of the clock is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let mut left = deadline.and(timeout);
        loop {
            if flag.begin_wait() == Found::Wake {
                return Ok(Woken::Wake);
            }
            let polled = inner.poll_once(left);
            // The wake first, also after an error: the flag is consumed here, the error will come again (N5). Events are told once,
            // so they are delivered in any case (N6).
            let woken = flag.end_wait() == Found::Wake;
            let events = inner.deliver(&mut on_event);
            if woken {
                return Ok(Woken::Wake);
            }
            match polled {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            if events != 0 {
                return Ok(Woken::Events);
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
    /// One call of the kernel.
    fn poll_once(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = match timeout {
            Some(timeout) if self.timer.arm(timeout) == Arm::Armed => None,
            other => other,
        };
        // An error leaves the events of the call before, which were delivered.
        let polled = self.poll.poll(&mut self.events, timeout);
        if polled.is_err() {
            self.events.clear();
        }
        polled
    }

    /// Tells of the events that the last call brought, once (N6); answers how many there were. The waker's and the timer's are not among
    /// them: they are hints for this crate (N4).
    fn deliver(&mut self, on_event: &mut impl FnMut(Event)) -> usize {
        let mut events = 0;
        for event in self.events.iter().filter(|e| e.token() != TOKEN_WAKER && e.token() != TOKEN_TIMER) {
            events += 1;
            on_event(Event::of(event));
        }
        self.events.clear();
        events
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
