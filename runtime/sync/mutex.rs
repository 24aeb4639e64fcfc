//! A mutual-exclusion lock.
//!
//! The word and how it is unlocked: [`crate::sync::lock_word`].
//!
//! - X1: WAITERS is set under the list's lock, before a node is added, and cleared by the unlock that empties the list.
//! - X2: an unlock that sees WAITERS wakes the first waiter, which competes with newcomers for the lock: that is fast, since the
//!   lock is free while it wakes up.
//! - X3: a waiter that has waited for more than [`STARVING_MS`] is handed the lock directly, and newcomers queue behind it. So
//!   nobody waits for ever (Go's starvation mode).
//! - X6: with more than one P, whoever finds the lock taken looks a few times more, ever less often, before it waits: mostly
//!   the holder, on another processor, lets go within a microsecond, and waiting costs more than that.
//! - X4: a waiter that lost the race goes back to the front.
//! - X5: a waiter leaves for lack of time only if it was not woken, or if it was and then, under the list's lock, found the lock
//!   held: the holder's unlock wakes the next. So the wake-up that it had does not get lost.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use tracer::clock;
use tracer::record::Fixed;

use crate::prim::spin::{RawLock, look_away};
use crate::sched::SCHED;
use crate::sched::g::{Kind, Wait};
use crate::sched::owner::Owner;
use crate::sched::park::Caller;
use crate::sync::lock_word::{LockWord, Unlocked};
use crate::sync::waiter::{Node, Nodes, Waiter};
use crate::time;

/// Looks before a newcomer waits (X6), each after twice as long as the one before: a microsecond or two in all.
const LOOKS: u32 = 6;
/// After so many milliseconds a waiter is handed the lock (X3).
const STARVING_MS: u64 = 1;

/// Outcomes of a wait.
const COMPETE: u32 = 0;
const HANDED: u32 = 1;

/// A lock that blocks the goroutine, not the thread under it.
///
/// There is no poisoning: a panic while the lock is held unlocks it.
///
/// ```
/// use std::sync::Arc;
/// use rt::sync::{Mutex, WaitGroup};
///
/// let total = Arc::new(Mutex::new(0));
/// let wg = WaitGroup::new();
/// for i in 0..10 {
///     let total = total.clone();
///     wg.go(move || *total.lock() += i);
/// }
/// wg.wait();
/// assert_eq!(*total.lock(), 45);
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    raw: Raw,
    value: UnsafeCell<T>,
}

/// From the part that is not the value to the owner.
pub(super) const OWNER_OFFSET: usize = std::mem::offset_of!(Raw, owner);

pub(super) struct Raw {
    word: LockWord,
    owner: Owner,
    lock: RawLock,
    waiting: UnsafeCell<Nodes>,
}

impl Default for Raw {
    fn default() -> Raw {
        Raw::new()
    }
}

// SAFETY: the list is touched under its lock only.
unsafe impl Sync for Raw {}
// SAFETY: as above.
unsafe impl Send for Raw {}
// SAFETY: the value is reached by one holder at a time; it crosses threads with the lock.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: a mutex owns its value.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

impl Raw {
    pub(super) const fn new() -> Raw {
        Raw { word: LockWord::new(), owner: Owner::new(), lock: RawLock::new(), waiting: UnsafeCell::new(Nodes::new()) }
    }

    /// Takes the lock if it is free and nobody was woken for it: the fast half of [`Raw::lock_slow`].
    #[inline]
    pub(super) fn lock_fast(&self) -> bool {
        let locked = self.word.try_lock();
        if locked {
            self.owner.set();
        }
        locked
    }

    /// Takes the lock if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        let locked = self.word.try_lock_any();
        if locked {
            self.owner.set();
        }
        locked
    }

    /// Waits for the lock until `until_ns` on CLOCK_MONOTONIC at most; answers whether it was taken. The wait is for `object`.
    #[cold]
    pub(super) fn lock_slow(&self, until_ns: Option<u64>, kind: Kind, object: usize) -> bool {
        // X6
        if SCHED.gomaxprocs() > 1 && look_away(LOOKS, || self.try_lock()) {
            return true;
        }
        let caller = Caller::here();
        let began = clock::ticks();
        let patience = clock::ticks_per_ms() * STARVING_MS;
        let wait = Wait { reason: Fixed::Sync, kind, object };
        let mut first_time = true;
        self.word.contend();
        loop {
            let late = until_ns.is_some_and(|until| until <= clock::mono_ns());
            self.lock.lock();
            let locked = self.word.try_lock_any();
            if locked {
                self.owner.set();
            }
            // X5
            if locked || late {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                return locked;
            }
            // X1
            if !self.word.mark_waiting() {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                continue;
            }
            let starving = !first_time && clock::ticks().saturating_sub(began) > patience;
            let enlist = |node: &Node| {
                node.slot.set(std::ptr::without_provenance_mut(usize::from(starving)));
                // SAFETY: the lock is held; the node stays where it is until it is taken off.
                unsafe {
                    let waiting = &mut *self.waiting.get();
                    // X4
                    if first_time { waiting.push_back(node) } else { waiting.push_front(node) }
                }
            };
            // SAFETY: locked above; unlocked once, by this closure.
            match caller.wait_in(until_ns, wait, enlist, || unsafe { self.lock.unlock() }, |node| self.leave(node)) {
                // X5: it was not woken.
                None => return false,
                Some(HANDED) => {
                    self.owner.set();
                    return true;
                }
                Some(_) => first_time = false,
            }
        }
    }

    fn leave(&self, node: &Node) {
        self.lock.lock();
        // SAFETY: the lock is held, and let go of once.
        unsafe {
            (*self.waiting.get()).remove(node);
            self.lock.unlock();
        }
    }

    #[inline]
    pub(super) fn unlock(&self) {
        self.owner.clear();
        match self.word.unlock() {
            Unlocked::Done => {}
            how => self.unlock_slow(how),
        }
    }

    #[cold]
    fn unlock_slow(&self, how: Unlocked) {
        let caller = Caller::here();
        if let Some(w) = self.unlock_to_waiter(how) {
            caller.wake(w);
        }
    }

    /// Unlocks, for a caller that is in the runtime; answers whom to wake.
    pub(super) fn unlock_inside(&self) -> Option<Waiter> {
        self.owner.clear();
        match self.word.unlock() {
            Unlocked::Done => None,
            how => self.unlock_to_waiter(how),
        }
    }

    fn unlock_to_waiter(&self, how: Unlocked) -> Option<Waiter> {
        self.lock.lock();
        // SAFETY: the lock is held.
        let waiting = unsafe { &mut *self.waiting.get() };
        let node = waiting.pop_front();
        let more = !waiting.is_empty();
        // X3: the slot says that it was woken before and has waited for long. It can be handed only what is still locked.
        let handed = how == Unlocked::Waiters && node.is_some_and(|n| n.slot.get().addr() != 0);
        if how == Unlocked::Waiters {
            self.word.unlock_to_waiter(handed, more);
        } else if more {
            self.word.mark_more();
        }
        let waiter = node.map(|n| {
            n.outcome.set(if handed { HANDED } else { COMPETE });
            n.finish()
        });
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        waiter
    }
}

impl<T> Mutex<T> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { raw: Raw::new(), value: UnsafeCell::new(value) }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock and holds it until the guard is dropped.
    ///
    /// A goroutine that locks a mutex it holds waits for ever.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if !self.raw.lock_fast() {
            self.lock_slow(None);
        }
        MutexGuard { mutex: self, _not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Not `then_some`: a guard that is made and dropped would unlock somebody else's lock.
        if self.raw.try_lock() { Some(MutexGuard { mutex: self, _not_send: PhantomData }) } else { None }
    }

    /// Takes the lock, waiting for it for a limited time.
    ///
    /// ```
    /// use std::time::Duration;
    /// let m = rt::sync::Mutex::new(1);
    /// let held = m.lock();
    /// assert!(m.try_lock_for(Duration::from_millis(2)).is_none());
    /// drop(held);
    /// assert!(m.try_lock_for(Duration::from_millis(2)).is_some());
    /// ```
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.try_lock_until_ns(|| time::after_ns(timeout))
    }

    /// Takes the lock, waiting for it until a point in time.
    pub fn try_lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, T>> {
        self.try_lock_until_ns(|| time::at_ns(deadline))
    }

    fn try_lock_until_ns(&self, until_ns: impl FnOnce() -> u64) -> Option<MutexGuard<'_, T>> {
        if self.raw.lock_fast() || self.lock_slow(Some(until_ns())) {
            return Some(MutexGuard { mutex: self, _not_send: PhantomData });
        }
        None
    }

    #[cold]
    fn lock_slow(&self, until_ns: Option<u64>) -> bool {
        // N4
        self.raw.lock_slow(until_ns, Kind::Mutex, std::ptr::from_ref(&self.raw.owner).expose_provenance())
    }

    /// The value, through the only reference there is.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whoever prints may hold std's lock of stdout, which is tied to the thread; the guard's drop below may have to wake somebody.
        let _stay = crate::lock_os_thread();
        match self.try_lock() {
            Some(g) => f.debug_struct("Mutex").field("value", &&*g).finish(),
            None => f.debug_struct("Mutex").field("value", &format_args!("<locked>")).finish(),
        }
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

/// The right to use a [`Mutex`]'s value; dropping it unlocks.
///
/// It is tied to the goroutine (or thread) that locked, not to the thread under it.
#[must_use = "a guard that is dropped at once unlocks at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    _not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared access to the value only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The mutex.
    pub(super) fn mutex(guard: &MutexGuard<'a, T>) -> &'a Mutex<T> {
        guard.mutex
    }

    /// Unlocks, for a caller that is in the runtime; answers whom to wake.
    pub(super) fn unlock_inside(guard: MutexGuard<'a, T>) -> Option<Waiter> {
        let mutex = guard.mutex;
        std::mem::forget(guard);
        mutex.raw.unlock_inside()
    }

    /// A guard of a part of the value.
    ///
    /// ```
    /// use rt::sync::{Mutex, MutexGuard};
    /// let m = Mutex::new((1, "one"));
    /// let mut number = MutexGuard::map(m.lock(), |pair| &mut pair.0);
    /// *number += 1;
    /// drop(number);
    /// assert_eq!(*m.lock(), (2, "one"));
    /// ```
    pub fn map<U: ?Sized>(guard: MutexGuard<'a, T>, part: impl FnOnce(&mut T) -> &mut U) -> MappedMutexGuard<'a, U> {
        let mut guard = guard;
        let value = NonNull::from(part(&mut guard));
        let raw = &guard.mutex.raw;
        std::mem::forget(guard);
        MappedMutexGuard { raw, value, _value: PhantomData }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The right to use a part of a [`Mutex`]'s value, from [`MutexGuard::map`]; dropping it unlocks.
#[must_use = "a guard that is dropped at once unlocks at once"]
pub struct MappedMutexGuard<'a, T: ?Sized> {
    raw: &'a Raw,
    value: NonNull<T>,
    /// Invariant, and not Send.
    _value: PhantomData<&'a mut T>,
}

// SAFETY: a shared guard gives shared access to the value only.
unsafe impl<T: ?Sized + Sync> Sync for MappedMutexGuard<'_, T> {}

impl<'a, T: ?Sized> MappedMutexGuard<'a, T> {
    /// A guard of a part of the part.
    pub fn map<U: ?Sized>(
        guard: MappedMutexGuard<'a, T>,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedMutexGuard<'a, U> {
        let mut guard = guard;
        let value = NonNull::from(part(&mut guard));
        let raw = guard.raw;
        std::mem::forget(guard);
        MappedMutexGuard { raw, value, _value: PhantomData }
    }
}

impl<T: ?Sized> Drop for MappedMutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.raw.unlock();
    }
}

impl<T: ?Sized> Deref for MappedMutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: it was made from an exclusive reference that the guard's lock covers.
        unsafe { self.value.as_ref() }
    }
}

impl<T: ?Sized> DerefMut for MappedMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above; the guard is borrowed exclusively.
        unsafe { self.value.as_mut() }
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MappedMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MappedMutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
