//! A handle to a socket: tries, waits, time limits, and the end.
//!
//! - H1: the descriptor's number stays this socket's until the last handle goes, also after [`Handle::close`]. Otherwise somebody who
//!   is about to use it, or has borrowed it ([`AsFd`]), would meet whatever file got the number next. `close` puts a file in its place
//!   that is no socket ([`nothing`]); the kernel does that in one step.
//! - H2: whoever uses the socket holds a handle, if only a borrowed one. So nobody uses it when the last one goes.
//! - H3: all that ends a wait beside an event (closing, a deadline that moves) is written under the lock of the end's list, or before
//!   that lock is taken to wake; and whoever is about to wait looks under that lock.
//! - H4: whoever was woken with [`EVENT_AND_MORE`] wakes the next when it leaves, in whatever way ([`Baton`]). While there are waiters
//!   without a baton on its way to them, the slot says Waiting.
//! - H5: a try is a system call that does not block, in plain code; no lock is held, and it is not inside the runtime.
//! - H6: a call that gives up (its time is over, or it is not to wait) MUST have tried since it began. Otherwise it would miss what was there
//!   before it, of which the poller has not told yet.
//!
//! Rejected: a socket that is connected to nothing in the place of closed ones, which all of them share: somebody could connect it.
//! And counting the uses of a descriptor to close it with the last one, as Go does. That costs two exchanges a
//! call, and a `BorrowedFd` is a use that nobody counts.

use std::io;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use netpoll::{Begin, Slot, SourceFd};
use tracer::clock::mono_ns;
use tracer::record::Fixed;

use crate::net::error::{closed, deadline_passed, invalid_timeout, shared, would_block};
use crate::net::sys;
use crate::prim::chaos;
use crate::sched::g::{Kind, Wait};
use crate::sched::network::{self, EVENT_AND_MORE, End, Place, SOCKETS};
use crate::sched::park::{Caller, Inside, Turn};
use crate::sched::{SCHED, find, run, wake};
use crate::time;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Receiving and accepting.
    Read,
    /// Sending and connecting.
    Write,
}

/// What is to be known of a kind of socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// A short read has taken everything there was, except after an event that says otherwise, and a short write has filled all the room
    /// there was: Linux's TCP.
    Drains,
    /// Nothing special.
    Plain,
    /// A Unix socket: a peer that shuts down its reading half ends a wait for room without an event, and room in the queue of
    /// another socket is told late. (A short read may end where a message with descriptors does.)
    Local,
}

impl Behaviour {
    /// That of TCP.
    pub(crate) const TCP: Behaviour =
        if cfg!(any(target_os = "linux", target_os = "android")) { Behaviour::Drains } else { Behaviour::Plain };
}

/// A handle. Clones are handles to the same socket.
pub(crate) struct Handle(&'static Place);

impl Handle {
    /// Takes over a socket, which must not block or is only tried with flags that say so. With an error comes the descriptor.
    pub(crate) fn new(fd: OwnedFd, how: Behaviour) -> Result<Handle, (OwnedFd, io::Error)> {
        let poller = match network::poller() {
            Ok(poller) => poller,
            Err(e) => return Err((fd, e)),
        };
        let place = SOCKETS.take();
        if let Err(e) = poller.register(&mut SourceFd(&fd.as_raw_fd()), place.token()) {
            SOCKETS.put(place);
            return Err((fd, e));
        }
        use std::os::fd::IntoRawFd;
        let data = &place.data;
        data.handles.store(1, Ordering::Relaxed);
        data.drains.store(how == Behaviour::Drains, Ordering::Relaxed);
        data.write.is_unreliable.store(how == Behaviour::Local, Ordering::Relaxed);
        place.data.fd.store(fd.into_raw_fd(), Ordering::Relaxed);
        // Nobody may be there to see its events (E2).
        if SCHED.searchers.idle_ps() != 0 && !find::poller_is_occupied() {
            wake::wake_searcher();
        }
        Ok(Handle(place))
    }

    /// As [`Handle::new`]; an error closes the socket.
    pub(crate) fn own(fd: OwnedFd, how: Behaviour) -> io::Result<Handle> {
        Handle::new(fd, how).map_err(|(_, e)| e)
    }

    /// The descriptor's number, while there are handles (H1).
    #[inline]
    fn raw(&self) -> RawFd {
        self.0.data.fd.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: H1: it is open as long as the handle lives.
        unsafe { BorrowedFd::borrow_raw(self.raw()) }
    }

    fn end(&self, direction: Direction) -> (&'static Slot, &'static End) {
        match direction {
            Direction::Read => (&self.0.read, &self.0.data.read),
            Direction::Write => (&self.0.write, &self.0.data.write),
        }
    }

    fn is_closed(&self) -> bool {
        // ORDER: Acquire; pairs with close(). A try that began before may still find what is in the socket's place, and then looks again.
        self.0.data.closed.load(Ordering::Acquire)
    }

    /// Tries until it works or fails. `attempt` is one system call that does not block (H5); `is_short` says of its result that it was
    /// less than was asked for.
    #[inline]
    pub(crate) fn run<T>(
        &self,
        direction: Direction,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
        is_short: impl Fn(&T) -> bool,
    ) -> io::Result<T> {
        let (slot, end) = self.end(direction);
        // A loop of tries that always work is to give others their turn.
        drop(Inside::enter());
        self.may_try(end)?;
        let mut waits =
            Waits { handle: self, direction, until_ns: None, baton: None, pause_ns: PAUSE_NS, tries: false };
        loop {
            let look = slot.look();
            let tried = look.is_ready() || waits.tries;
            if tried {
                match attempt(self.fd()) {
                    // What a socket answers that is connected to nothing means nothing.
                    Ok(_) if self.is_closed() => return Err(closed()),
                    Ok(value) => {
                        if is_short(&value) && self.0.data.drains.load(Ordering::Relaxed) {
                            chaos::window();
                            slot.drained(look);
                        }
                        return Ok(value);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        chaos::window();
                        slot.spent(look);
                    }
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                    Err(e) => return Err(if self.is_closed() { closed() } else { e }),
                }
            }
            if let Err(in_vain) = waits.wait() {
                return if tried && !self.waits() { Err(in_vain) } else { self.last_try(attempt, in_vain) };
            }
        }
    }

    /// H6: instead of an error `in_vain` there may be something.
    #[cold]
    fn last_try<T>(
        &self,
        mut attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
        in_vain: io::Error,
    ) -> io::Result<T> {
        loop {
            return match self.ask(|| attempt(self.fd())) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(in_vain),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                other => other,
            };
        }
    }

    /// What a stream answers to empty buffers, without a try.
    pub(crate) fn nothing_to_do(&self, direction: Direction) -> io::Result<usize> {
        self.may_try(self.end(direction).1)?;
        Ok(0)
    }

    fn may_try(&self, end: &End) -> io::Result<()> {
        if self.is_closed() {
            return Err(closed());
        }
        let deadline_ns = end.deadline_ns.load(Ordering::Relaxed);
        if deadline_ns != u64::MAX && deadline_ns <= mono_ns() {
            return Err(deadline_passed());
        }
        Ok(())
    }

    /// As [`Handle::run`], where a success says nothing of what is left.
    #[inline]
    pub(crate) fn run_simply<T>(
        &self,
        direction: Direction,
        attempt: impl FnMut(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        self.run(direction, attempt, |_| false)
    }

    /// Tries once.
    pub(crate) fn try_now<T>(&self, direction: Direction, attempt: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        self.may_try(self.end(direction).1)?;
        drop(Inside::enter());
        self.ask(attempt)
    }

    /// A call that has nothing to do with time limits.
    pub(crate) fn ask<T>(&self, call: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        // After close() it meets what is in the socket's place.
        let result = call();
        if self.is_closed() { Err(closed()) } else { result }
    }

    /// Shuts down one direction or both, and wakes who waits for it: not every kind of socket tells the poller.
    pub(crate) fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if self.is_closed() {
            return Err(closed());
        }
        rustix::net::shutdown(
            self.fd(),
            match how {
                Shutdown::Read => rustix::net::Shutdown::Read,
                Shutdown::Write => rustix::net::Shutdown::Write,
                Shutdown::Both => rustix::net::Shutdown::Both,
            },
        )?;
        for (direction, other) in [(Direction::Read, Shutdown::Write), (Direction::Write, Shutdown::Read)] {
            if how != other {
                let (slot, _) = self.end(direction);
                // As an event would. Whoever it finds waiting is woken below, with all others.
                let _ = slot.notify(self.0.sequence(), true);
                self.look_again(direction, || {});
            }
        }
        Ok(())
    }

    /// Whether calls that cannot go on wait.
    pub(crate) fn waits(&self) -> bool {
        !self.0.data.nonblocking.load(Ordering::Relaxed)
    }

    /// Another handle to the socket.
    pub(crate) fn duplicate(&self) -> Handle {
        self.0.data.handles.fetch_add(1, Ordering::Relaxed);
        Handle(self.0)
    }

    /// Closes the socket for all handles (H1).
    pub(crate) fn close(&self) -> io::Result<()> {
        let data = &self.0.data;
        let nothing = nothing()?;
        // ORDER: Release; pairs with is_closed(). Who waits is woken under the lists' locks below (H3).
        if data.closed.swap(true, Ordering::AcqRel) {
            return Err(closed());
        }
        chaos::window();
        let fd = self.raw();
        if let Ok(poller) = network::poller() {
            // Another process may have the socket too, and keep it in the set.
            let _ = poller.deregister(&mut SourceFd(&fd));
        }
        chaos::window();
        let replaced = replace(fd, nothing);
        chaos::window();
        self.look_again(Direction::Read, || {});
        self.look_again(Direction::Write, || {});
        replaced
    }

    /// Has all who wait look again, after `change`, which is made under the list's lock (H3).
    fn look_again(&self, direction: Direction, change: impl FnOnce()) {
        let (slot, end) = self.end(direction);
        end.waiters.wake_all_if(Turn::Next, || {
            change();
            slot.end_wait();
            true
        });
    }

    pub(crate) fn set_deadline(&self, direction: Direction, deadline: Option<Instant>) {
        let ns = deadline.map_or(u64::MAX, time::at_ns);
        let (_, end) = self.end(direction);
        self.look_again(direction, || end.deadline_ns.store(ns, Ordering::Relaxed));
    }

    pub(crate) fn set_timeout(&self, direction: Direction, timeout: Option<Duration>) -> io::Result<()> {
        let ns = match timeout {
            None => u64::MAX,
            Some(Duration::ZERO) => return Err(invalid_timeout()),
            Some(t) => u64::try_from(t.as_nanos()).unwrap_or(u64::MAX),
        };
        let (_, end) = self.end(direction);
        end.limit_ns.store(ns, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn timeout(&self, direction: Direction) -> Option<Duration> {
        let (_, end) = self.end(direction);
        match end.limit_ns.load(Ordering::Relaxed) {
            u64::MAX => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    /// What it was made with.
    pub(crate) fn behaviour(&self) -> Behaviour {
        let data = &self.0.data;
        match (data.drains.load(Ordering::Relaxed), data.write.is_unreliable.load(Ordering::Relaxed)) {
            (true, _) => Behaviour::Drains,
            (false, true) => Behaviour::Local,
            (false, false) => Behaviour::Plain,
        }
    }

    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.0.data.nonblocking.store(on, Ordering::Relaxed);
    }

    /// Gives the socket away.
    pub(crate) fn into_fd(self) -> io::Result<OwnedFd> {
        if self.is_closed() {
            return Err(closed());
        }
        if self.0.data.handles.load(Ordering::Acquire) != 1 {
            return Err(shared());
        }
        // The only one, and it is the caller's: nobody makes another.
        let place = self.0;
        std::mem::forget(self);
        Ok(retire(place))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // ORDER: AcqRel; what was done by way of other handles comes before the end.
        if self.0.data.handles.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(retire(self.0));
        }
    }
}

/// A descriptor of somebody else's, in the poll set for as long as this lives: to wait until it is ready.
pub(crate) struct Watched<'fd> {
    handle: ManuallyDrop<Handle>,
    _fd: PhantomData<BorrowedFd<'fd>>,
}

impl<'fd> Watched<'fd> {
    /// Watches a descriptor.
    ///
    /// # Errors
    ///
    /// `PermissionDenied` for what cannot be watched, such as a file; `AlreadyExists` if somebody else watches it.
    pub(crate) fn new(fd: BorrowedFd<'fd>) -> io::Result<Watched<'fd>> {
        // SAFETY: the owned descriptor is taken back before it is dropped: by drop(), or here.
        let handle = match Handle::new(unsafe { OwnedFd::from_raw_fd(fd.as_raw_fd()) }, Behaviour::Plain) {
            Ok(handle) => handle,
            Err((fd, e)) => {
                std::mem::forget(fd);
                return Err(e);
            }
        };
        Ok(Watched { handle: ManuallyDrop::new(handle), _fd: PhantomData })
    }

    /// Waits until there is something to read, or room to write, or there never will be.
    pub(crate) fn wait(&self, direction: Direction) -> io::Result<()> {
        self.handle.run_simply(direction, |fd| sys::is_ready(fd, direction))
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        std::mem::forget(retire(self.handle.0));
    }
}

/// The last handle is gone: makes the place ready for another socket and gives the descriptor.
fn retire(place: &'static Place) -> OwnedFd {
    let data = &place.data;
    let fd = data.fd.load(Ordering::Relaxed);
    if !data.closed.swap(false, Ordering::Relaxed)
        && let Ok(poller) = network::poller()
    {
        // It is in the set, so this does not fail; if it did, its events would be late ones.
        let _ = poller.deregister(&mut SourceFd(&fd));
    }
    // Its events that are on their way are late from now on, or are told before.
    chaos::window();
    data.nonblocking.store(false, Ordering::Relaxed);
    for end in [&data.read, &data.write] {
        end.deadline_ns.store(u64::MAX, Ordering::Relaxed);
        end.limit_ns.store(u64::MAX, Ordering::Relaxed);
    }
    SOCKETS.put(place);
    // SAFETY: H1, H2: it was this socket's alone, and nobody uses it any more.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// The waits of one call.
struct Waits<'a> {
    handle: &'a Handle,
    direction: Direction,
    /// When the call's own time limit is over, once it has begun to wait.
    until_ns: Option<u64>,
    baton: Option<Baton>,
    /// How long the next wait takes at most, at an end that is not told of every change.
    pause_ns: u64,
    /// The last wait was over for that reason: try, whatever the slot says.
    tries: bool,
}

/// How long the first wait takes at an end that is not told of every change; each takes twice as long as the one before, up to
/// [`PAUSE_MAX_NS`].
const PAUSE_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 64_000_000;

impl Waits<'_> {
    /// Waits for an event, or for another reason to try again.
    #[cold]
    #[inline(never)]
    fn wait(&mut self) -> io::Result<()> {
        let handle = self.handle;
        self.tries = false;
        if !handle.waits() {
            return Err(would_block());
        }
        let (slot, end) = handle.end(self.direction);
        let limit_ns = end.limit_ns.load(Ordering::Relaxed);
        if self.until_ns.is_none() && limit_ns != u64::MAX {
            self.until_ns = Some(mono_ns().saturating_add(limit_ns));
        }
        let mut caller = Caller::here();
        if let Caller::Thread(_) = caller {
            // Somebody has to be in the poller.
            drop(caller);
            run::try_start_default().map_err(io::Error::other)?;
            caller = Caller::here();
        }
        chaos::window();
        end.waiters.lock();
        // SAFETY: locked above; called once, on whichever path.
        let unlock = || unsafe { end.waiters.unlock() };
        // H3
        if handle.is_closed() {
            unlock();
            return Err(closed());
        }
        let deadline_ns = end.deadline_ns.load(Ordering::Relaxed);
        let until_ns = deadline_ns.min(self.until_ns.unwrap_or(u64::MAX));
        let timed_out = || if deadline_ns == until_ns { deadline_passed() } else { would_block() };
        if until_ns != u64::MAX && until_ns <= mono_ns() {
            unlock();
            return Err(timed_out());
        }
        if slot.begin_wait() == Begin::Ready {
            unlock();
            return Ok(());
        }
        let pause_ns = match end.is_unreliable.load(Ordering::Relaxed) {
            true => mono_ns().saturating_add(self.pause_ns),
            false => u64::MAX,
        };
        let until = match (&caller, until_ns.min(pause_ns)) {
            // A thread that waits for the network is not asleep for good (D1).
            (Caller::Thread(_), ns) => Some(ns),
            (_, u64::MAX) => None,
            (_, ns) => Some(ns),
        };
        let wait = Wait { reason: Fixed::Network, kind: Kind::Socket, object: std::ptr::from_ref(handle.0) as usize };
        // SAFETY: the list is locked; the node stays in place until it is taken off, by whoever wakes it or below.
        let enlist = |node: &_| unsafe { end.waiters.push(node) };
        let leave = |node: &_| {
            end.waiters.remove_and(node, |last| {
                if last {
                    slot.end_wait();
                }
            })
        };
        match caller.wait_in(until, wait, enlist, unlock, leave) {
            // One baton is enough; and one that went here would enter the runtime a second time.
            Some(EVENT_AND_MORE) if self.baton.is_none() => self.baton = Some(Baton { slot, end }),
            Some(_) => {}
            None if pause_ns < until_ns => {
                self.pause_ns = (self.pause_ns * 2).min(PAUSE_MAX_NS);
                self.tries = true;
            }
            None => return Err(timed_out()),
        }
        Ok(())
    }
}

/// Whoever has it wakes the next who waits when it goes (H4).
struct Baton {
    slot: &'static Slot,
    end: &'static End,
}

impl Drop for Baton {
    fn drop(&mut self) {
        chaos::window();
        if let Some(waiter) = self.end.take_first(self.slot) {
            Caller::wake_from_here(waiter, Turn::Next);
        }
    }
}

/// The end of a pipe that nobody writes to: no call for sockets works on it, and so nobody can make something of it.
fn nothing() -> io::Result<&'static OwnedFd> {
    static NOTHING: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(fd) = NOTHING.get() {
        return Ok(fd);
    }
    let (reader, _) = io::pipe()?;
    Ok(NOTHING.get_or_init(|| reader.into()))
}

/// Puts `with` in the place of `fd`, whose file is closed by it (H1).
fn replace(fd: RawFd, with: &OwnedFd) -> io::Result<()> {
    loop {
        // SAFETY: both numbers are open and ours (H1). What `fd` referred to may be in use by a system call, which keeps the file.
        let replaced = unsafe {
            #[cfg(any(target_os = "linux", target_os = "android"))]
            let replaced = libc::dup3(with.as_raw_fd(), fd, libc::O_CLOEXEC);
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            let replaced = libc::dup2(with.as_raw_fd(), fd);
            replaced
        };
        if replaced != -1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            // EBUSY: another thread is opening a file just now, for which the kernel has this number in mind.
            Some(libc::EINTR | libc::EBUSY) => std::thread::yield_now(),
            _ => {
                // The limit of numbers was set below this one, or the call is not allowed. At least the connection ends.
                // SAFETY: a number and a constant.
                unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
                return Err(error);
            }
        }
    }
}
