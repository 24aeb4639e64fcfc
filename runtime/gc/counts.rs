//! The two words of an object's header: how many handles there are, and flags.
//!
//! - N1: `count` is what keeps an object besides traced edges (H8): handles, and counted edges. Whoever raises it has a handle, or an edge
//!   in a window (H6), or a weak handle in one.
//! - N2: flags are set by somebody with a handle, or when the object is dead by whoever sweeps it.
//! - N3: whoever has the only count of an object that is not *linked* and has no weak handles is alone with it: nobody else has a way to the
//!   header, but markers, who only read it. So it may change both words by plain stores. An object is linked from the first time on that a
//!   traced edge is about to lead to it, or that it is taken out of a counted edge that others can read: one of them may have read the
//!   edge and not yet raised the count (H6). The count is looked at first: what another handle has set is there when that handle is gone.

use crate::prim::atomic::{AtomicU32, Ordering};

/// It is dead, and its `Drop` is yet to run or runs.
pub(crate) const DOOMED: u32 = 1;
/// Its `Drop` has run: the next sweep frees the slot.
pub(crate) const DROPPED: u32 = 2;
/// It has a finaliser.
pub(crate) const FINALIZER: u32 = 4;
/// There are weak handles, or were.
pub(crate) const WEAK: u32 = 8;
/// There may be others on their way to it (N3).
const LINKED: u32 = 16;

/// The bits of flags; those above are for the object's type.
pub(crate) const FLAGS: u32 = 31;

/// Handles and flags.
#[derive(Debug)]
pub(crate) struct Counts {
    /// Handles, and counted edges (N1).
    pub(crate) count: AtomicU32,
    word: AtomicU32,
}

impl Counts {
    /// A new object with one handle and no type.
    #[inline]
    pub(crate) fn prepare(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.count.store(1, Ordering::Release);
    }

    /// The value is there, of the type that `payload` tells.
    #[inline]
    pub(crate) fn publish(&self, payload: u32) {
        debug_assert!(payload & FLAGS == 0 && payload != 0);
        // ORDER: Release; pairs with the Acquire in payload(): the value.
        self.word.store(payload, Ordering::Release);
    }

    /// What [`Counts::publish`] has stored, or 0.
    #[inline]
    pub(crate) fn payload(&self) -> u32 {
        self.word.load(Ordering::Acquire) & !FLAGS
    }

    #[inline]
    pub(crate) fn has(&self, flags: u32) -> bool {
        self.word.load(Ordering::Acquire) & flags != 0
    }

    pub(crate) fn set(&self, flags: u32) {
        self.word.fetch_or(flags, Ordering::AcqRel);
    }

    pub(crate) fn unset(&self, flags: u32) {
        self.word.fetch_and(!flags, Ordering::AcqRel);
    }

    /// A handle more, by somebody who has one. Answers the count before.
    #[inline]
    pub(crate) fn retain(&self) -> u32 {
        self.count.fetch_add(1, Ordering::Relaxed)
    }

    /// A handle less.
    #[inline]
    pub(crate) fn release(&self) {
        // ORDER: Release; pairs with the Acquire in is_root(): what was done with the handle comes before the object's end. And with the
        // one in release_linked().
        self.count.fetch_sub(1, Ordering::Release);
    }

    /// A traced edge is about to lead here, or a counted one was overwritten (N3): by somebody who has a count.
    #[inline]
    pub(crate) fn link(&self) {
        if !self.has(LINKED) {
            self.set(LINKED);
        }
    }

    /// A handle less, by somebody who is about to store a traced edge to here in the same window.
    #[inline]
    pub(crate) fn release_linked(&self) {
        // N3. ORDER: Acquire; pairs with release().
        if self.count.load(Ordering::Acquire) == 1 {
            let word = self.word.load(Ordering::Relaxed);
            if word & (LINKED | WEAK) == 0 {
                // ORDER: Release; pairs with the Acquire in payload(), as publish() does, whose store this one hides.
                self.word.store(word | LINKED, Ordering::Release);
                // ORDER: Release; as in release().
                return self.count.store(0, Ordering::Release);
            }
        }
        self.link();
        self.release();
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    fn counts() -> Counts {
        let counts = Counts { count: AtomicU32::new(0), word: AtomicU32::new(0) };
        counts.prepare();
        counts.publish(64);
        counts
    }

    /// What the other one does, who has a handle, too.
    #[derive(Clone, Copy, PartialEq)]
    enum Other {
        Drops,
        /// Makes a weak handle, drops its own, and has a new one of the weak one.
        Weakens,
        /// Stores into a traced edge, drops its handle, and has a new one of the edge.
        Links,
    }

    /// One's counted edge becomes traced, while another uses a handle. The count is what there is in the end, and no flag is lost.
    #[test]
    fn loom_gc_counts_of_an_edge_that_becomes_traced() {
        for other in [Other::Drops, Other::Weakens, Other::Links] {
            loom::model(move || {
                let counts = Arc::new(counts());
                assert_eq!(counts.retain(), 1);
                let theirs = Arc::clone(&counts);
                let thread = thread::spawn(move || {
                    match other {
                        Other::Drops => {}
                        Other::Weakens => theirs.set(WEAK),
                        Other::Links => theirs.link(),
                    }
                    theirs.release();
                    if other != Other::Drops {
                        theirs.count.fetch_add(1, Ordering::SeqCst); // bits::raise
                    }
                });
                counts.release_linked();
                thread.join().expect("does not panic");
                assert_eq!(counts.count.load(Ordering::Relaxed), u32::from(other != Other::Drops));
                assert!(counts.has(LINKED) && counts.payload() == 64);
                assert_eq!(counts.has(WEAK), other == Other::Weakens);
            });
        }
    }

    /// One takes the object out of a counted edge and puts it into one that becomes traced, while another reads the first: `Edge::get`,
    /// beside `Edge::replace` and `Gc::new`. The windows of both keep the object; a handle that was read counts.
    fn read_and_taken(link: bool) {
        loom::model(move || {
            let shared = Arc::new((counts(), AtomicU32::new(1)));
            let theirs = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                let (counts, edge) = &*theirs;
                let read = edge.load(Ordering::Acquire) != 0;
                if read {
                    counts.count.fetch_add(1, Ordering::SeqCst); // bits::raise
                }
                u32::from(read)
            });
            let (counts, edge) = &*shared;
            assert_eq!(edge.swap(0, Ordering::AcqRel), 1);
            counts.count.fetch_add(1, Ordering::SeqCst); // bits::raise
            if link {
                counts.link();
            }
            counts.release();
            counts.release_linked();
            let handles = thread.join().expect("does not panic");
            assert_eq!(counts.count.load(Ordering::Relaxed), handles);
        });
    }

    #[test]
    fn loom_gc_counts_of_what_was_taken_out() {
        read_and_taken(true);
    }

    #[test]
    #[should_panic(expected = "left == right")]
    fn loom_gc_counts_need_the_link_of_what_was_taken_out() {
        read_and_taken(false);
    }
}
