//! Synchronisation for goroutines and threads, in any mix.
//!
//! Everything here blocks the goroutine, never the thread under it; called from a plain thread it blocks that thread. The
//! names and the guards are std's, with three differences:
//!
//! - Nothing is poisoned. A panic while a lock is held unlocks it; a panic of an initialiser lets the next one try.
//! - What waits can wait for a limited time: `try_..._for` and `try_..._until` for locks and permits,
//!   `wait_timeout` and `wait_deadline` for the rest.
//! - Nobody starves: [`Mutex`] is handed on after a millisecond of waiting, [`RwLock`] lets readers and writers take turns,
//!   [`Semaphore`] serves who came first.
//!
//! Nobody who is woken is forgotten: if somebody runs out of time at the moment at which it is woken, then either it goes on as
//! one that was woken, or the next one is.
//!
//! | | waits until | in the trace |
//! |---|---|---|
//! | [`Mutex`] | it is the only one | sync |
//! | [`RwLock`] | there is no writer; it is the only one | sync |
//! | [`Condvar`] | it is notified | sync.(*Cond).Wait |
//! | [`Once`], [`OnceLock`], [`LazyLock`] | it has been done | sync |
//! | [`Semaphore`] | there are so many permits | sync |
//! | [`Barrier`] | all have arrived | sync |
//! | [`WaitGroup`] | all are done | sync |

mod barrier;
mod condvar;
mod lazy_lock;
pub(crate) mod lock_word;
mod mutex;
mod once;
mod once_lock;
pub(crate) mod permits;
pub(crate) mod race;
pub(crate) mod rw_lock;
pub(crate) mod rw_word;
mod semaphore;
mod wait_group;
pub(crate) mod waiter;
pub(crate) mod wake_word;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use lazy_lock::LazyLock;
pub use mutex::{MappedMutexGuard, Mutex, MutexGuard};
pub use once::Once;
pub use once_lock::OnceLock;
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
pub use wait_group::WaitGroup;
