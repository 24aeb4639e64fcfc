//! A mutual-exclusion lock.
//!
//! The word and how it is unlocked: [`crate::sync::lock_word`].
//!
//! - X1: WAITERS is set under the list's lock, before a node is added, and cleared by the unlock that empties the list.
//! - X2: an unlock that sees WAITERS wakes the first waiter, which competes with newcomers for the lock: that is fast, since the
//!   lock is free while it wakes up.
//! - X3: a waiter that has waited for more than [`STARVING_MS`] is handed the lock directly, and newcomers queue behind it. So
//!   nobody waits for ever (Go's starvation mode).
//! - X4: a waiter that lost the race goes back to the front.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use tracer::clock;
use tracer::record::Fixed;

use crate::prim::spin::RawLock;
use crate::sched::g::{Kind, Wait};
use crate::sched::owner::Owner;
use crate::sched::park::Caller;
use crate::sync::lock_word::{LockWord, Unlocked};
use crate::sync::waiter::{Node, Nodes};

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

struct Raw {
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
    const fn new() -> Raw {
        Raw { word: LockWord::new(), owner: Owner::new(), lock: RawLock::new(), waiting: UnsafeCell::new(Nodes::new()) }
    }

    #[cold]
    fn lock_slow(&self) {
        let caller = Caller::here();
        let began = clock::ticks();
        let patience = clock::ticks_per_ms() * STARVING_MS;
        let mut first_time = true;
        self.word.contend();
        loop {
            self.lock.lock();
            if self.word.try_lock_any() {
                self.owner.set();
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                return;
            }
            // X1
            if !self.word.mark_waiting() {
                // SAFETY: locked above.
                unsafe { self.lock.unlock() };
                continue;
            }
            let node = Node::new(caller.waiter());
            let starving = !first_time && clock::ticks() - began > patience;
            node.slot.set(std::ptr::without_provenance_mut(usize::from(starving)));
            // SAFETY: the lock is held; the node stays here until it is taken off.
            unsafe {
                let waiting = &mut *self.waiting.get();
                // X4
                if first_time { waiting.push_back(&node) } else { waiting.push_front(&node) }
            }
            first_time = false;
            // N4
            let object = std::ptr::from_ref(&self.owner).expose_provenance();
            let wait = Wait { reason: Fixed::Sync, kind: Kind::Mutex, object };
            // SAFETY: locked above; unlocked once, by this closure.
            caller.wait(&node, wait, || unsafe { self.lock.unlock() });
            if node.outcome.get() == HANDED {
                return;
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        self.owner.clear();
        match self.word.unlock() {
            Unlocked::Done => {}
            how => self.unlock_slow(how),
        }
    }

    #[cold]
    fn unlock_slow(&self, how: Unlocked) {
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
            if handed {
                self.owner.hand_to(n.waiter());
            }
            n.finish()
        });
        // SAFETY: locked above.
        unsafe { self.lock.unlock() };
        if let Some(w) = waiter {
            Caller::here().wake(w);
        }
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
        if !self.raw.word.try_lock() {
            self.raw.lock_slow();
        } else {
            self.raw.owner.set();
        }
        MutexGuard { mutex: self, _not_send: PhantomData }
    }

    /// Takes the lock if it is free.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        // Not `then_some`: a guard that is made and dropped would unlock somebody else's lock.
        if !self.raw.word.try_lock_any() {
            return None;
        }
        self.raw.owner.set();
        Some(MutexGuard { mutex: self, _not_send: PhantomData })
    }

    /// The value, through the only reference there is.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
#[must_use = "a guard that is dropped at once unlocks at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    _not_send: PhantomData<*mut ()>,
}

// SAFETY: a shared guard gives shared access to the value only.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

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
