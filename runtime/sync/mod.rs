//! Synchronisation for goroutines and threads, in any mix.
//!
//! Everything here blocks the goroutine, never the thread under it; called from a plain thread it blocks that thread. The
//! names are std's.

pub(crate) mod lock_word;
mod mutex;
pub(crate) mod race;
mod wait_group;
pub(crate) mod waiter;

pub use mutex::{MappedMutexGuard, Mutex, MutexGuard};
pub use wait_group::WaitGroup;
