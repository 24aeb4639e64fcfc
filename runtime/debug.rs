//! Looking at the program from inside: what every goroutine is doing.
//!
//! ```
//! rt::run(|| {
//!     let (tx, rx) = rt::chan::bounded::<u32>(0);
//!     let worker = rt::Builder::new().name("worker").spawn(move || rx.recv().is_err()).unwrap();
//!     rt::time::sleep(std::time::Duration::from_millis(10));
//!
//!     let dump = rt::debug::goroutines();
//!     let one = dump.goroutines().iter().find(|g| g.name.as_deref() == Some("worker")).unwrap();
//!     assert_eq!(one.reason, "chan receive");
//!     println!("{dump}");
//!
//!     drop(tx);
//!     assert!(worker.join().unwrap());
//! });
//! ```
//!
//! A signal does the same from outside: SIGQUIT (`kill -QUIT`, or Ctrl-\ at the terminal) prints the dump to stderr,
//! ends a trace that is being recorded, and ends the process with exit code 2, as in Go. With `RT_SIGQUIT=continue` in
//! the environment the program goes on afterwards; with `RT_SIGQUIT=off`, and where the program has a handler of its
//! own or ignores the signal when the runtime starts, the runtime leaves it alone.

use tracer::unwind::Regs;

pub use tracer::symbol::Frame;

pub use crate::sched::dump::{Creator, Dump, Goroutine, Holder, Object, Peers, State};

/// What every goroutine is doing, at this moment: a [`Dump`], which can be printed.
///
/// The world runs on meanwhile; each goroutine is looked at by itself, for a few microseconds. This works from
/// goroutines and from threads, also when every processor is stuck.
///
/// A goroutine that is in the middle of the program's own code is asked for its stack by a signal, SIGURG, to its
/// thread, which stands still for some microseconds. A handler that the program has installed before the first dump
/// still gets its own signals; if it installs one later, or blocks the signal, such goroutines are shown without a
/// stack. System calls that do not restart after a signal (`poll`, `nanosleep`) return EINTR in code that has not
/// declared itself [`blocking`](crate::blocking); std handles that.
///
/// Takes some microseconds per goroutine and some milliseconds for reading debug information the first time. A thread
/// that does not answer costs two seconds, all such threads together not much more than six.
#[inline(never)]
pub fn goroutines() -> Dump {
    crate::sched::dump::all(Regs::here())
}
