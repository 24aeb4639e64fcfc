//! A Go-style runtime for Rust that records everything it does.
//!
//! [`go`] starts a goroutine: a stackful coroutine that a work-stealing scheduler runs on a few threads. [Channels](chan),
//! [locks](sync), [sleeps](time) and [blocking calls](blocking) suspend the goroutine, not the thread, and the [trace]
//! says why each one waited, in the format that `go tool trace` opens.
//!
//! ```
//! use std::time::Duration;
//!
//! rt::run(|| {
//!     let (tx, rx) = rt::chan::bounded(4);
//!     for i in 0..3 {
//!         let tx = tx.clone();
//!         rt::go(move || {
//!             rt::time::sleep(Duration::from_millis(i));
//!             tx.send(i * i).unwrap();
//!         });
//!     }
//!     drop(tx);
//!     assert_eq!(rx.iter().sum::<u64>(), 0 + 1 + 4);
//! });
//! ```
//!
//! # What to know
//!
//! - **Thread-locals.** A goroutine may go on on another thread after any call into this library, and after dropping one of its guards. A `thread_local!` that is
//!   read, kept as a reference and used again after such a call is then another thread's: a data race that the compiler does
//!   not see. Do not hold a borrow of a thread-local (or anything that hides one, such as a `RefCell` guard from
//!   inside `with`) across a call; copy what you need out of it. Nor keep an `Rc` both in a `thread_local!` and
//!   on a goroutine's stack: its count would be changed from two threads. Values that belong to the goroutine go into
//!   variables, arguments, or a [`goroutine_local!`], which is used as a `thread_local!` is and moves along. Code that needs
//!   its thread, such as a C library that keeps its state there, runs under [`lock_os_thread`].
//! - **Guards that are tied to a thread**, such as std's `MutexGuard` and `StdoutLock`, must not be held across such calls either,
//!   and `std::thread::scope` must end on the thread on which it began: use [`sync::Mutex`], [`io::stdout`] and [`scope`], or
//!   [`lock_os_thread`].
//! - **Stacks do not grow.** They are 256 KiB of address space by default; [`Builder::stack_size`] gives more. An overflow ends the
//!   process with a report.
//! - **Blocking the thread** (file I/O, C code, a long loop) does not stop the others: the scheduler hands the processor on.
//!   [`blocking`] makes it do so sooner; [`fs`], [`io`] and [`process`] are std's in such calls.
//! - **What is it doing?** [`debug::goroutines`], or SIGQUIT, tells of every goroutine where it is and what it waits for.
//! - **Graphs with cycles** can live in a garbage-collected heap: the module `gc`, with the feature of that name.
//! - **Futures** that are not tied to an executor run in goroutines: [`block_on`], [`spawn_future`].
//! - When [`run`] returns, other goroutines are neither waited for nor unwound.
#![warn(missing_docs)]

mod prim;

#[cfg(not(loom))]
pub mod chan;
#[cfg(not(loom))]
pub mod context;
#[cfg(not(loom))]
mod coro;
#[cfg(not(loom))]
pub mod debug;
#[cfg(not(loom))]
pub mod fs;
#[cfg(not(loom))]
mod future;
#[cfg(all(feature = "gc", not(loom)))]
pub mod gc;
#[cfg(not(loom))]
pub mod goroutine;
#[cfg(not(loom))]
pub mod io;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
pub mod metrics;
#[cfg(all(unix, not(loom)))]
pub mod net;
#[cfg(not(loom))]
mod os_thread;
#[cfg(not(loom))]
pub mod process;
#[cfg(not(loom))]
mod sched;
#[cfg(not(loom))]
mod scope;
#[cfg(all(not(loom), unix))]
pub mod signal;
#[cfg(not(loom))]
mod stack;
#[cfg(not(loom))]
pub mod sync;
#[cfg(not(loom))]
pub mod time;
#[cfg(not(loom))]
pub mod trace;

/// The pure protocols, for the model checker.
#[cfg(loom)]
#[allow(dead_code)]
mod sched {
    mod border;
    mod post;
    mod searchers;
    mod standing;
    mod state;
}

/// As above.
#[cfg(loom)]
#[allow(dead_code)]
mod gc {
    mod bits;
    mod counts;
    #[cfg(test)]
    mod model;
    mod quiet;
}

/// As above.
#[cfg(loom)]
#[allow(dead_code)]
mod sync {
    mod lock_word;
    mod permits;
    mod race;
    mod rw_word;
    mod wake_word;
}

#[cfg(not(loom))]
pub use context::Context;
#[cfg(not(loom))]
pub use future::{block_on, spawn_future};
#[cfg(not(loom))]
pub use os_thread::{OsThreadGuard, lock_os_thread};
#[cfg(not(loom))]
pub use sched::outside::blocking;
#[cfg(not(loom))]
pub use sched::run::{Config, gomaxprocs, run, set_gomaxprocs};
#[cfg(not(loom))]
pub use sched::spawn::{Builder, go};
#[cfg(not(loom))]
pub use sched::task::JoinHandle;
#[cfg(not(loom))]
pub use scope::{Scope, ScopedJoinHandle, scope};

/// Lets other goroutines run; the caller goes to the end of its processor's queue. On a plain thread: the system's yield.
#[cfg(not(loom))]
pub fn yield_now() {
    match sched::park::Inside::enter() {
        Some(inside) => inside.offer_turn(),
        None => std::thread::yield_now(),
    }
}
