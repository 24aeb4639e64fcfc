//! A read-write lock.
//!
//! Writers take turns by a [mutex](crate::sync::mutex) of their own, with its bounded waiting; what its holder and the readers
//! have to settle is in [`crate::sync::rw_word`].
//!
//! - W0: who holds the writers' mutex is the lock's owner for those who look (N-1): it writes, or waits for the readers to go. It waits
//!   with a kind of its own, that has no owner: otherwise it would seem to wait for itself. Readers have no names.
//! - W1: a writer that waits for readers is the one node of `writer`. The last reader takes it off and so hands it the lock.
//! - W2: a writer that ends, or leaves for lack of time, lets in all the readers that wait, before it lets go of the writers' mutex. So
//!   readers wait for one writer at most, however many there are.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, offset_of};
use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use tracer::clock::mono_ns;
use tracer::record::Fixed;

use crate::prim::spin::RawLock;
use crate::sched::g::{Kind, Wait};
use crate::sched::park::{Caller, Turn};
use crate::sync::mutex;
use crate::sync::rw_word::{Read, RwWord};
use crate::sync::waiter::{Node, Nodes, Taken};
use crate::time;

/// A lock that many may hold for reading, or one for writing. It blocks the goroutine, not the thread under it.
///
/// Nobody starves: a writer that waits keeps new readers out; when a writer unlocks, the readers that waited go before the next
/// writer. Therefore a goroutine that holds the lock for reading must not lock it for reading again: if a writer has come
/// meanwhile, each waits for the other.
///
/// There is no poisoning: a panic while the lock is held unlocks it.
///
/// ```
/// use rt::sync::RwLock;
///
/// let routes = RwLock::new(vec!["/"]);
/// {
///     let (a, b) = (routes.read(), routes.read());
///     assert_eq!(a.len() + b.len(), 2);
///     assert!(routes.try_write().is_none());
/// }
/// routes.write().push("/about");
/// assert_eq!(*routes.read(), ["/", "/about"]);
/// ```
// repr(C): the lock's address is the one that dumps show.
#[derive(Default)]
#[repr(C)]
pub struct RwLock<T: ?Sized> {
    raw: Raw,
    value: UnsafeCell<T>,
}

/// From the lock to its owner (W0).
pub(crate) const OWNER_OFFSET: usize = offset_of!(Raw, writers) + mutex::OWNER_OFFSET;

struct Raw {
    word: RwWord,
    writers: mutex::Raw,
    lock: RawLock,
    waiting: UnsafeCell<Waiting>,
}

struct Waiting {
    readers: Nodes,
    /// W1
    writer: Nodes,
}

impl Default for Raw {
    fn default() -> Raw {
        Raw::new()
    }
}

// SAFETY: the lists are touched under their lock only.
unsafe impl Sync for Raw {}
// SAFETY: as above.
unsafe impl Send for Raw {}
// SAFETY: the value is shared by readers (Sync) and passed on between writers (Send).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
// SAFETY: a lock owns its value.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}

impl Raw {
    const fn new() -> Raw {
        Raw {
            word: RwWord::new(),
            writers: mutex::Raw::new(),
            lock: RawLock::new(),
            waiting: UnsafeCell::new(Waiting { readers: Nodes::new(), writer: Nodes::new() }),
        }
    }

    fn locked<R>(&self, f: impl FnOnce(&mut Waiting) -> R) -> R {
        self.lock.lock();
        // SAFETY: the lock is held.
        let r = f(unsafe { &mut *self.waiting.get() });
        // SAFETY: locked above; `f` does not unlock.
        unsafe { self.lock.unlock() };
        r
    }

    /// N4
    fn address(&self) -> usize {
        std::ptr::from_ref(self).expose_provenance()
    }

    fn wait(&self, kind: Kind) -> Wait {
        Wait { reason: Fixed::Sync, kind, object: self.address() }
    }

    #[inline]
    fn try_read(&self) -> bool {
        self.word.read() == Read::Held
    }

    #[cold]
    fn read_slow(&self, until_ns: Option<u64>) -> bool {
        // B5: cross first, lock second.
        let caller = Caller::here();
        self.lock.lock();
        let read = self.word.read_or_mark();
        if read != Read::Wait {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            drop(caller);
            assert!(read == Read::Held, "too many read locks on an RwLock");
            return true;
        }
        // SAFETY: the lock is held; the node stays where it is until it is taken off.
        let enlist = |node: &Node| unsafe { (*self.waiting.get()).readers.push_back(node) };
        // SAFETY: locked above; unlocked once, by this closure.
        let unlock = || unsafe { self.lock.unlock() };
        let leave = |node: &Node| self.locked(|w| w.readers.remove(node));
        caller.wait_in(until_ns, self.wait(Kind::RwLock), enlist, unlock, leave).is_some()
    }

    fn read_until(&self, until_ns: u64) -> bool {
        until_ns > mono_ns() && self.read_slow(Some(until_ns))
    }

    #[inline]
    fn unread(&self) {
        if self.word.unread() {
            self.unread_slow();
        }
    }

    /// The last reader hands the lock to the writer (W1), if that is still there.
    #[cold]
    fn unread_slow(&self) {
        let writer =
            self.locked(|w| if self.word.is_drained() { w.writer.pop_front().map(Node::finish) } else { None });
        if let Some(w) = writer {
            Caller::here().wake(w);
        }
    }

    #[inline]
    fn write(&self) {
        if !self.writers.lock_fast() {
            self.writers.lock_slow(None, Kind::RwLock, self.address());
        }
        if !self.word.announce() {
            self.wait_for_readers(None);
        }
    }

    fn write_until(&self, until_ns: u64) -> bool {
        if until_ns <= mono_ns() {
            // A writer that is announced keeps readers out, though this one would not wait.
            return false;
        }
        let first = self.writers.lock_fast() || self.writers.lock_slow(Some(until_ns), Kind::RwLock, self.address());
        first && (self.word.announce() || self.wait_for_readers(Some(until_ns)))
    }

    #[inline]
    fn try_write(&self) -> bool {
        if !self.writers.try_lock() {
            return false;
        }
        let held = self.word.try_write();
        if !held {
            self.writers.unlock();
        }
        held
    }

    /// The announced writer waits until those who read have gone; if they do not in time, everything is as before it came.
    #[cold]
    fn wait_for_readers(&self, until_ns: Option<u64>) -> bool {
        let caller = Caller::here();
        self.lock.lock();
        // E3
        if self.word.is_drained() {
            // SAFETY: locked above.
            unsafe { self.lock.unlock() };
            return true;
        }
        // SAFETY: the lock is held; the node stays where it is until it is taken off.
        let enlist = |node: &Node| unsafe { (*self.waiting.get()).writer.push_back(node) };
        // SAFETY: locked above; unlocked once, by this closure.
        let unlock = || unsafe { self.lock.unlock() };
        let mut taken = Taken::new();
        let leave = |node: &Node| {
            self.locked(|w| {
                w.writer.remove(node);
                self.let_in(w, &mut taken, false);
            });
        };
        let held = caller.wait_in(until_ns, self.wait(Kind::RwLockReaders), enlist, unlock, leave).is_some();
        taken.wake_by(&caller, Turn::Last);
        drop(caller);
        if !held {
            // W2
            self.writers.unlock();
        }
        held
    }

    /// Lets in all readers that wait, who are to be woken. The writer's turn is over (E2); it stays as a reader if `reading`.
    fn let_in(&self, waiting: &mut Waiting, taken: &mut Taken, reading: bool) {
        taken.take(&mut waiting.readers, usize::MAX);
        self.word.let_in(taken.len() as u32 + u32::from(reading));
    }

    /// The writer unlocks, and stays as a reader if `reading`.
    #[inline]
    fn unwrite(&self, reading: bool) {
        if !self.word.unwrite(reading) {
            self.unwrite_slow(reading);
        }
        // W2
        self.writers.unlock();
    }

    #[cold]
    fn unwrite_slow(&self, reading: bool) {
        let mut taken = Taken::new();
        self.locked(|w| self.let_in(w, &mut taken, reading));
        taken.wake(Turn::Last);
    }
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { raw: Raw::new(), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for the lock and holds it for reading until the guard is dropped.
    ///
    /// # Panics
    ///
    /// If 536,870,911 read locks are held already.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        if !self.raw.try_read() {
            self.raw.read_slow(None);
        }
        RwLockReadGuard { lock: self, _not_send: PhantomData }
    }

    /// Takes the lock for reading, if nobody holds it for writing or waits for that.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        // Not `then_some`: a guard that is made and dropped would unlock somebody else's lock.
        if self.raw.try_read() { Some(RwLockReadGuard { lock: self, _not_send: PhantomData }) } else { None }
    }

    /// Takes the lock for reading, waiting for it for a limited time.
    ///
    /// # Panics
    ///
    /// As [`read`](RwLock::read).
    pub fn try_read_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, T>> {
        self.try_read_until_ns(|| time::after_ns(timeout))
    }

    /// Takes the lock for reading, waiting for it until a point in time.
    ///
    /// # Panics
    ///
    /// As [`read`](RwLock::read).
    pub fn try_read_until(&self, deadline: Instant) -> Option<RwLockReadGuard<'_, T>> {
        self.try_read_until_ns(|| time::at_ns(deadline))
    }

    fn try_read_until_ns(&self, until_ns: impl FnOnce() -> u64) -> Option<RwLockReadGuard<'_, T>> {
        if self.raw.try_read() || self.raw.read_until(until_ns()) {
            return Some(RwLockReadGuard { lock: self, _not_send: PhantomData });
        }
        None
    }

    /// Waits for the lock and holds it for writing until the guard is dropped.
    ///
    /// A goroutine that locks a lock which it holds, in either way, waits for ever.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.raw.write();
        RwLockWriteGuard { lock: self, _not_send: PhantomData }
    }

    /// Takes the lock for writing if it is free.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        if self.raw.try_write() { Some(RwLockWriteGuard { lock: self, _not_send: PhantomData }) } else { None }
    }

    /// Takes the lock for writing, waiting for it for a limited time. New readers wait meanwhile, as for any writer.
    pub fn try_write_for(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, T>> {
        self.try_write_until_ns(|| time::after_ns(timeout))
    }

    /// Takes the lock for writing, waiting for it until a point in time. New readers wait meanwhile, as for any writer.
    pub fn try_write_until(&self, deadline: Instant) -> Option<RwLockWriteGuard<'_, T>> {
        self.try_write_until_ns(|| time::at_ns(deadline))
    }

    fn try_write_until_ns(&self, until_ns: impl FnOnce() -> u64) -> Option<RwLockWriteGuard<'_, T>> {
        if self.raw.try_write() || self.raw.write_until(until_ns()) {
            return Some(RwLockWriteGuard { lock: self, _not_send: PhantomData });
        }
        None
    }

    /// The value, through the only reference there is.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever prints may hold std's lock of stdout, which is tied to the thread; the guard's drop below may have to wake somebody.
        let _stay = crate::lock_os_thread();
        match self.try_read() {
            Some(g) => f.debug_struct("RwLock").field("value", &&*g).finish(),
            None => f.debug_struct("RwLock").field("value", &format_args!("<locked>")).finish(),
        }
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

/// The right to read an [`RwLock`]'s value; dropping it unlocks.
#[must_use = "a guard that is dropped at once unlocks at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    _not_send: PhantomData<*mut ()>,
}

/// The right to use an [`RwLock`]'s value; dropping it unlocks.
#[must_use = "a guard that is dropped at once unlocks at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    _not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared access to the value only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Keeps the lock for reading only. Nobody writes in between; readers that waited go on.
    ///
    /// ```
    /// use rt::sync::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let mut writing = lock.write();
    /// *writing = 2;
    /// let reading = RwLockWriteGuard::downgrade(writing);
    /// assert_eq!((*reading, *lock.read()), (2, 2));
    /// ```
    pub fn downgrade(guard: RwLockWriteGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        let lock = ManuallyDrop::new(guard).lock;
        lock.raw.unwrite(true);
        RwLockReadGuard { lock, _not_send: PhantomData }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unread();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unwrite(false);
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock for reading.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock for writing.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock for writing, and is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
