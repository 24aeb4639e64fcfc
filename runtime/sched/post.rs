//! The P that an M is woken with: left by the waker, taken by the M, or called back by whoever has stopped the world.
//!
//! ```text
//!   waker    next = P;  wake the M
//!   M        P = swap(next, 0);  stopping? -> next = P, sleep while stopping, again
//!   stopper  stopping = true;  next = P? -> P is stopped, until stopping = false
//! ```
//!
//! - M3: whoever takes the P out of `next` has it, and what was left along with it. An M that finds nothing there MUST be content with that: it
//!   was called back.
//! - S-3: an M makes use of the P only if it finds that the world runs *after* it has taken it; otherwise it puts it back. So a stopper that
//!   sees it there after it has set `stopping` knows that nobody makes use of it before the start. To wake a thread takes longer than most
//!   stops: without that a stop would wait for an M that only has to learn that it is to wait.
//! - R3: what was left *for good* is taken at once, and not called back: an M that waits with its goroutine has nowhere else to go. A stopper
//!   waits until that M has it.

use crate::prim::atomic::{AtomicPtr, Ordering, fence};
use crate::prim::chaos;

/// In the address: it may be called back.
const RECALLABLE: usize = 1;

/// One M's place for it.
#[derive(Debug)]
pub(crate) struct Post<T: 'static> {
    next: AtomicPtr<T>,
}

/// What an M found.
#[derive(Debug)]
#[must_use]
pub(crate) enum Taken<T: 'static> {
    /// It has that now.
    Got(&'static T),
    /// Nothing is there.
    Nothing,
    /// Something is there, and the world is being stopped. It is to try again when that is over, or when nothing is there any more.
    Stopping,
}

fn tagged<T>(p: &'static T) -> *mut T {
    const { assert!(align_of::<T>() > RECALLABLE) };
    std::ptr::from_ref(p).cast_mut().map_addr(|address| address | RECALLABLE)
}

fn is_tagged<T>(p: *mut T) -> bool {
    p.addr() & RECALLABLE != 0
}

impl<T> Post<T> {
    pub(crate) fn new() -> Post<T> {
        Post { next: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Leaves `p`, in which nothing is.
    pub(crate) fn leave(&self, p: &'static T) {
        // ORDER: Release; pairs with the Acquire of whoever takes it.
        self.next.store(tagged(p), Ordering::Release);
    }

    /// Leaves it for good (R3).
    pub(crate) fn leave_for_good(&self, p: &'static T) {
        // ORDER: as in leave().
        self.next.store(std::ptr::from_ref(p).cast_mut(), Ordering::Release);
    }

    /// Takes what is there, by the M, unless the world is being stopped.
    pub(crate) fn take(&self, stopping: impl Fn() -> bool) -> Taken<T> {
        let p = self.next.swap(std::ptr::null_mut(), Ordering::Acquire);
        chaos::window();
        // ORDER: SeqCst; pairs with has(): take it out, load `stopping` here, store `stopping`, look for it there.
        fence(Ordering::SeqCst);
        if is_tagged(p) && stopping() {
            self.next.store(p, Ordering::Release);
            return Taken::Stopping;
        }
        // SAFETY: null or, without the tag, what a &'static was made of.
        match unsafe { p.map_addr(|address| address & !RECALLABLE).as_ref() } {
            Some(p) => Taken::Got(p),
            None => Taken::Nothing,
        }
    }

    /// Whether nothing is there.
    pub(crate) fn is_empty(&self) -> bool {
        self.next.load(Ordering::Acquire).is_null()
    }

    /// Whether `p` is there and stays there until `stopping`, which the caller has set, is taken back (S-3): at most its M takes it out for a
    /// moment.
    pub(crate) fn has(&self, p: &'static T) -> bool {
        // ORDER: SeqCst; see take(). Acquire: what was done to the P before is visible.
        fence(Ordering::SeqCst);
        self.next.load(Ordering::Acquire) == tagged(p)
    }

    /// Takes `p` out, if it is there and may be called back. May fail for the moment in which the M has it out.
    pub(crate) fn call_back(&self, p: &'static T) -> bool {
        let none = std::ptr::null_mut();
        // ORDER: Acquire; pairs with the Release in leave() and take().
        self.next.compare_exchange(tagged(p), none, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::prim::atomic::AtomicBool;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::thread;

    static P: u64 = 0;

    struct Model {
        post: Post<u64>,
        stopping: AtomicBool,
        /// What belongs to the P: its M's, and in a stopped world the stopper's.
        own: UnsafeCell<u32>,
    }

    // SAFETY: `own` is what the model is about: loom finds who touches it beside another.
    unsafe impl Sync for Model {}
    // SAFETY: as above.
    unsafe impl Send for Model {}

    fn model(calls_back: bool) {
        loom::model(move || {
            let model =
                Arc::new(Model { post: Post::new(), stopping: AtomicBool::new(false), own: UnsafeCell::new(0) });
            model.post.leave(&P);
            let m = {
                let model = model.clone();
                thread::spawn(move || {
                    loop {
                        match model.post.take(|| model.stopping.load(Ordering::SeqCst)) {
                            Taken::Stopping => {
                                thread::yield_now();
                                continue;
                            }
                            Taken::Nothing => return false,
                            // SAFETY: see `Model`.
                            Taken::Got(_) => model.own.with_mut(|own| unsafe { *own += 1 }),
                        }
                        return true;
                    }
                })
            };
            model.stopping.store(true, Ordering::SeqCst);
            let mut called_back = false;
            if model.post.has(&P) {
                // SAFETY: see `Model`.
                model.own.with_mut(|own| unsafe {
                    assert!(*own == 0, "it lies there and is made use of");
                    *own = 0;
                });
                while calls_back && !called_back {
                    called_back = model.post.call_back(&P);
                    if !called_back {
                        thread::yield_now();
                    }
                }
            }
            model.stopping.store(false, Ordering::SeqCst);
            assert_ne!(m.join().unwrap(), called_back, "a P is in one place");
        });
    }

    /// A P on its way to an M, and a stop: who sees it on its way has what belongs to it.
    #[test]
    fn loom_post_stopped_on_the_way() {
        model(false);
    }

    /// The same, and the stopper takes it back: one of the two has it afterwards.
    #[test]
    fn loom_post_called_back() {
        model(true);
    }
}
