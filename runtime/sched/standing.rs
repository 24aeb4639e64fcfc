//! How an M says that it waits for the end of a stop of the world, so that a stopper can count on it at once.
//!
//! ```text
//!   M        waits = true;  sleep while stopping;  waits = false;  stopping? -> again
//!   stopper  stopping = true;  waits? -> it is stopped, until stopping = false
//! ```
//!
//! - S-5: an M goes on only if it finds that the world runs *after* it has taken back `waits`. So a stopper that sees `waits` after it
//!   has set `stopping` knows that this M does nothing before it says so, be it asleep, or on its way out of an
//!   earlier stop. Waking a thread takes longer than most stops: without that the second of two stops would wait for an M that only
//!   has to learn that it is to wait again. (A number of the stop in `waits` does not do: it is the last one's.)

use crate::prim::atomic::{AtomicBool, Ordering, fence};
use crate::prim::chaos;

/// An M's part in it.
#[derive(Debug)]
pub(crate) struct Standing {
    waits: AtomicBool,
}

impl Standing {
    pub(crate) fn new() -> Standing {
        Standing { waits: AtomicBool::new(false) }
    }

    /// Whether the M does nothing until `stopping`, which the caller has set, is taken back (S-5).
    pub(crate) fn waits(&self) -> bool {
        // ORDER: SeqCst; pairs with wait_while(): store `stopping`, load `waits` here, store `waits`, load `stopping` there. Acquire: what the M
        // has done is visible.
        fence(Ordering::SeqCst);
        self.waits.load(Ordering::Acquire)
    }

    /// Waits, by the M, as long as the world stands still.
    pub(crate) fn wait_while(&self, stopping: impl Fn() -> bool, sleep: impl Fn()) {
        while stopping() {
            chaos::window();
            self.waits.store(true, Ordering::Release);
            while stopping() {
                sleep();
            }
            self.waits.store(false, Ordering::Relaxed);
            chaos::window();
            // ORDER: SeqCst; see waits().
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    struct Model {
        standing: Standing,
        stopping: AtomicBool,
        /// What belongs to the M, and in a stopped world to the stopper.
        own: UnsafeCell<u32>,
    }

    // SAFETY: `own` is what the model is about: loom finds who touches it beside another.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    /// An M that works between stops, and two stops one after the other. Who sees it waiting has what it has.
    #[test]
    fn loom_stopped_world_is_the_stoppers() {
        loom::model(|| {
            let model =
                Arc::new(Model { standing: Standing::new(), stopping: AtomicBool::new(true), own: UnsafeCell::new(0) });
            let m = {
                let model = model.clone();
                thread::spawn(move || {
                    for _ in 0..2 {
                        model.standing.wait_while(|| model.stopping.load(Ordering::SeqCst), thread::yield_now);
                        // A stopper that does not see it wait leaves it alone.
                        // SAFETY: see `Model`.
                        model.own.with_mut(|own| unsafe { *own += 1 });
                    }
                })
            };
            for _ in 0..2 {
                model.stopping.store(true, Ordering::SeqCst);
                if model.standing.waits() {
                    // SAFETY: see `Model`.
                    model.own.with_mut(|own| unsafe { *own += 1 });
                }
                model.stopping.store(false, Ordering::SeqCst);
            }
            m.join().unwrap();
        });
    }
}
