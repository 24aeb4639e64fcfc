//! Whether marking is over (H10).
//!
//! - Q1: `busy` is raised in a window, and lowered when what was found is queued. So in a stopped world whoever is not counted has
//!   nothing in hands, and cannot begin.
//! - Q2: what queues is counted before it can be taken, and taken off the count by somebody who is busy. So a count of 0 that is read after
//!   `busy` was read as 0 is true.

use crate::prim::atomic::{AtomicUsize, Ordering};

/// Who is at work, and how much is left.
#[derive(Debug)]
pub(crate) struct Quiet {
    busy: AtomicUsize,
    left: AtomicUsize,
}

impl Quiet {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Quiet {
        Quiet { busy: AtomicUsize::new(0), left: AtomicUsize::new(0) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Quiet {
        Quiet { busy: AtomicUsize::new(0), left: AtomicUsize::new(0) }
    }

    /// Somebody begins to work, in a window.
    pub(crate) fn begin(&self) {
        self.busy.fetch_add(1, Ordering::AcqRel);
    }

    /// It has nothing in hands any more. Answers whether it was the last: then somebody MUST look whether all is over, or call others
    /// for what is left. Otherwise what was shaded just now would be nobody's.
    #[must_use]
    pub(crate) fn end(&self) -> bool {
        // ORDER: Release; pairs with the Acquire in is_quiet(): what it has queued is counted.
        self.busy.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Something is about to be queued, by somebody who is busy or in a window.
    pub(crate) fn put(&self, n: usize) {
        self.left.fetch_add(n, Ordering::AcqRel);
    }

    /// Something was taken, by somebody who is busy.
    pub(crate) fn took(&self, n: usize) {
        self.left.fetch_sub(n, Ordering::AcqRel);
    }

    pub(crate) fn left(&self) -> usize {
        self.left.load(Ordering::Acquire)
    }

    /// Whether marking is over. In a stopped world this is true for good.
    pub(crate) fn is_quiet(&self) -> bool {
        self.busy.load(Ordering::Acquire) == 0 && self.left() == 0
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use loom::sync::{Arc, Mutex, RwLock};
    use loom::thread;

    struct Model {
        /// A stopped world: windows are readers.
        windows: RwLock<bool>,
        quiet: Quiet,
        queue: Mutex<Vec<u32>>,
        marked: AtomicUsize,
    }

    /// A worker that takes an item, outside, and finds two more; a mutator that shades one in a window. Whoever sees a quiet
    /// stopped world has seen everything marked.
    #[test]
    fn loom_gc_mark_termination() {
        loom::model(|| {
            let m = Arc::new(Model {
                windows: RwLock::new(true),
                quiet: Quiet::new(),
                queue: Mutex::new(vec![1]),
                marked: AtomicUsize::new(0),
            });
            m.quiet.put(1);
            let worker = {
                let m = m.clone();
                thread::spawn(move || {
                    {
                        let marking = m.windows.read().unwrap();
                        if !*marking {
                            return;
                        }
                        m.quiet.begin();
                    }
                    let taken = m.queue.lock().unwrap().pop();
                    if let Some(item) = taken {
                        m.quiet.took(1);
                        // Outside, in no window.
                        if item == 1 {
                            m.quiet.put(1);
                            m.queue.lock().unwrap().push(2);
                        }
                        m.marked.fetch_add(1, Ordering::Relaxed);
                    }
                    let _ = m.quiet.end();
                })
            };
            {
                let mut marking = m.windows.write().unwrap();
                if m.quiet.is_quiet() {
                    assert!(m.queue.lock().unwrap().is_empty(), "something grey was left");
                    *marking = false;
                } else {
                    assert!(*marking);
                }
            }
            worker.join().unwrap();
            let ended = !*m.windows.read().unwrap();
            let marked = m.marked.load(Ordering::Relaxed);
            assert!(!ended || marked == 2, "ended with {marked} of 2 marked");
        });
    }
}
