//! Futures: a goroutine (or thread) that polls one.
//!
//! ```text
//!   block_on:  poll -> pending -> woken meanwhile? poll again : sleep until woken -> poll ...
//!   waker:     a counted Bell; ringing it says so in its word, and wakes who sleeps
//! ```
//!
//! The word is in [`crate::sync::wake_word`], with U1 to U3. Besides:
//!
//! - U4: ringing runs no code of the user's and gives nobody a turn: it queues the goroutine and leaves. For it is done under other
//!   people's locks, whose guards are tied to a thread. (A goroutine whose processor was taken from it, for it was in plain code
//!   for too long, gets a new one when it rings, as at any entry to the runtime, and may go on elsewhere.)
//! - U5: a bell that outlives its future is a word that nobody looks at.
//! - U6: a future is polled outside the border and without a lock, as any user code is.

use std::cell::Cell;
use std::panic::Location;
use std::pin::pin;
use std::ptr;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use tracer::record::Fixed;
use tracer::unwind::Regs;

use crate::sched::g::{Kind, Wait};
use crate::sched::park::{Caller, Inside};
use crate::sched::spawn::{Settings, spawn};
use crate::sched::task::{JoinHandle, start_of};
use crate::sync::waiter::Node;
use crate::sync::wake_word::WakeWord;

/// What a waker rings.
struct Bell {
    word: WakeWord,
    /// Who sleeps: a node on its stack (U3).
    sleeper: Cell<*const Node>,
}

// SAFETY: the cell is the poller's, and while that sleeps, the one waker's who made the word NOTIFIED (U3).
unsafe impl Sync for Bell {}
// SAFETY: as above.
unsafe impl Send for Bell {}

impl Bell {
    /// Sleeps until somebody has rung since the last time.
    fn wait(&self) {
        if self.word.take() {
            // Mostly a future that wants to be polled again at once: it means to give others a turn.
            if let Some(inside) = Inside::enter() {
                inside.yield_now(Fixed::Yield);
            }
            return;
        }
        let caller = Caller::here();
        let node = Node::new(caller.waiter());
        self.sleeper.set(&node);
        let wait = Wait { reason: Fixed::Sync, kind: Kind::Future, object: ptr::from_ref(self) as usize };
        caller.wait_unless(&node, wait, || !self.word.wait());
        self.word.take();
    }

    fn ring(&self) {
        if self.word.wake() {
            // SAFETY: U3: the node's owner sleeps until finish().
            let waiter = unsafe { &*self.sleeper.get() }.finish();
            // U4
            let _stay = crate::lock_os_thread();
            let caller = Caller::here();
            caller.wake(waiter);
            caller.leave_at_once();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        self.ring();
    }
}

/// Runs a future to its end, in the calling goroutine or thread, which sleeps while the future waits.
///
/// This is for futures that bring what they need: channels, locks and timers of crates that are not tied to one executor. Those
/// that need another runtime's reactor (tokio's sockets and timers) need it here, too.
///
/// Inside the future everything of this library may be used, and blocks the goroutine, with all futures that are polled in it.
///
/// The future is polled, and dropped, by the caller. Its wakers may be used from any thread, at any time, also after it has ended; they
/// never wait and never run anything.
///
/// # Panics
///
/// If the future does.
///
/// ```
/// let answer = rt::go(|| rt::block_on(async { 6 * 7 }));
/// assert_eq!(answer.join().unwrap(), 42);
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let bell = Arc::new(Bell { word: WakeWord::new(), sleeper: Cell::new(ptr::null()) });
    let waker = Waker::from(bell.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(value) => return value,
            Poll::Pending => bell.wait(),
        }
    }
}

/// Starts a goroutine that runs a future: [`go`](crate::go) and [`block_on`].
///
/// The future lies on the goroutine's stack: box what is large (tens of kilobytes).
///
/// # Panics
///
/// As [`go`](crate::go). A panic of the future is given to whoever joins it.
///
/// ```
/// let (tx, rx) = rt::chan::unbounded();
/// let h = rt::spawn_future(async move { tx.send("from a future").unwrap() });
/// assert_eq!(rx.recv(), Ok("from a future"));
/// h.join().unwrap();
/// ```
#[track_caller]
#[inline(never)]
pub fn spawn_future<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // The trace names the goroutine after the future, not after the wrapper.
    let settings = Settings { start: Some(start_of::<F>()), ..Settings::default() };
    match spawn(settings, Regs::here(), Location::caller(), move || block_on(future)) {
        Ok(handle) => handle,
        Err(e) => panic!("rt::spawn_future: {e}"),
    }
}
