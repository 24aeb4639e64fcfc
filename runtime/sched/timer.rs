//! Timers of one P: a 4-ary heap of what is to happen, by time.
//!
//! Three kinds of thing are in it: sleeping goroutines, which nothing but the timer wakes; time limits of waits, which lie on
//! their waiter's stack and are mostly taken out again; alarms, which are counted and fire a function of the runtime.
//!
//! - T-1: `next_ns` is the earliest time in the heap, `u64::MAX` for none; written under the lock, read by anybody who wants
//!   to know whether a look is worth it.
//! - T-2: a sleeper's goroutine is Waiting and nobody else readies it; whoever takes the entry out does.
//! - T-3: a time limit's entry is alive while it is in the heap. Whoever takes it out because it is due wins its wait's race under
//!   the lock, and readies the goroutine if it did. A waiter that goes on for another reason takes its entry out under the lock
//!   before its frame goes (Z2).
//! - T-4: a time limit and an alarm know their place in the heap, so taking them out costs what putting them in does, and
//!   nothing is left behind. Sleepers do not: moving their entries touches no other memory.
//! - T-5: a timer stays with the P whose heap it was put into, whatever becomes of that P. Everybody who looks for what is due
//!   looks at all Ps.

use std::cell::Cell;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::sched::g::{G, GList};
use crate::sched::park::Caller;
use crate::sync::race::TIME_UP;
use crate::sync::waiter::{Ending, Waiter};

/// Not in a heap.
const NOWHERE: usize = usize::MAX;
const CHILDREN: usize = 4;

/// The heap with its earliest time.
pub(crate) struct Timers {
    next_ns: AtomicU64,
    heap: Mutex<Heap>,
}

#[derive(Default)]
struct Heap(Vec<Entry>);

#[derive(Clone, Copy)]
struct Entry {
    when_ns: u64,
    what: What,
}

/// What is to happen.
#[derive(Clone, Copy)]
enum What {
    Sleeper(&'static G),
    /// T-3
    Limit(ptr::NonNull<Limit>),
    /// A counted reference, owned by the entry.
    Alarm(ptr::NonNull<Alarm>),
}

// SAFETY: entries are used under the heap's lock; what they point to is alive (T-2, T-3, or counted).
unsafe impl Send for Heap {}

/// The time limit of a wait. Lies on its waiter's stack.
pub(crate) struct Limit {
    /// Its place in the heap. Under the heap's lock.
    place: Cell<usize>,
    home: Cell<Option<&'static Timers>>,
    ending: *const Ending,
}

impl Limit {
    /// A limit of the wait with this ending. It MUST be [taken out](Limit::cancel) before it or the ending goes, if it was put in.
    pub(crate) fn new(ending: &Ending) -> Limit {
        Limit { place: Cell::new(NOWHERE), home: Cell::new(None), ending }
    }

    /// Takes it out, if it was put in. The wait is over.
    pub(crate) fn cancel(&self) {
        let Some(home) = self.home.take() else { return };
        let mut heap = home.heap.lock();
        if self.place.get() != NOWHERE {
            heap.remove(self.place.get());
            home.publish(&heap);
        }
    }
}

/// Something that happens at a time, and can be put off.
pub(crate) struct Alarm {
    /// Its place in the heap of `home`. Under that heap's lock.
    place: AtomicUsize,
    home: AtomicPtr<Timers>,
    on_time: Box<dyn OnTime>,
}

/// What an alarm does. Called on the M's own stack: no user code, no waiting.
pub(crate) trait OnTime: Send + Sync {
    /// The time it was set for has come. `setting` is what [`Alarm::set`] was given.
    fn fire(&self, alarm: &Arc<Alarm>, caller: &Caller);
}

impl Alarm {
    pub(crate) fn new(on_time: impl OnTime + 'static) -> Arc<Alarm> {
        Arc::new(Alarm {
            place: AtomicUsize::new(NOWHERE),
            home: AtomicPtr::new(ptr::null_mut()),
            on_time: Box::new(on_time),
        })
    }

    /// Puts it into a heap. The caller sees to it that it is in none, and that nobody else sets or cancels it meanwhile; and
    /// tells whoever waits for timers, afterwards.
    pub(crate) fn set(self: &Arc<Alarm>, timers: &'static Timers, when_ns: u64) {
        let mut heap = timers.heap.lock();
        debug_assert_eq!(self.place.load(Ordering::Relaxed), NOWHERE);
        self.home.store(ptr::from_ref(timers).cast_mut(), Ordering::Relaxed);
        // SAFETY: not null.
        let alarm = unsafe { ptr::NonNull::new_unchecked(Arc::into_raw(self.clone()).cast_mut()) };
        heap.push(Entry { when_ns, what: What::Alarm(alarm) });
        timers.publish(&heap);
    }

    /// Takes it out; answers whether it was still in. The caller sees to it that nobody else sets or cancels it meanwhile.
    pub(crate) fn cancel(&self) -> bool {
        // SAFETY: null or the heap of a P, and Ps are never freed.
        let Some(home) = (unsafe { self.home.load(Ordering::Relaxed).as_ref() }) else { return false };
        let mut heap = home.heap.lock();
        let place = self.place.load(Ordering::Relaxed);
        if place == NOWHERE {
            return false;
        }
        let entry = heap.remove(place);
        home.publish(&heap);
        drop(heap);
        let What::Alarm(alarm) = entry.what else { unreachable!("an alarm knows its place") };
        // SAFETY: the entry's own count.
        drop(unsafe { Arc::from_raw(alarm.as_ptr()) });
        true
    }

    /// It is due.
    pub(crate) fn fire(self: &Arc<Alarm>, caller: &Caller) {
        self.on_time.fire(self, caller);
    }
}

/// What was due.
#[derive(Default)]
pub(crate) struct Due {
    /// Goroutines to be readied.
    pub(crate) gs: GList,
    pub(crate) alarms: Vec<Arc<Alarm>>,
}

impl Due {
    /// Whether there is more than one.
    #[inline]
    pub(crate) fn is_several(&self) -> bool {
        self.gs.len() + self.alarms.len() > 1
    }
}

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers { next_ns: AtomicU64::new(u64::MAX), heap: Mutex::new(Heap::default()) }
    }

    /// When the earliest one is due, in CLOCK_MONOTONIC nanoseconds; `u64::MAX` for never.
    #[inline]
    pub(crate) fn next_ns(&self) -> u64 {
        self.next_ns.load(Ordering::Relaxed)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.heap.lock().0.len()
    }

    /// Adds a sleeping goroutine.
    pub(crate) fn add(&self, when_ns: u64, g: &'static G) {
        let mut heap = self.heap.lock();
        heap.push(Entry { when_ns, what: What::Sleeper(g) });
        self.publish(&heap);
    }

    /// Adds the time limit of a goroutine's wait. From here on the wait may end.
    ///
    /// # Safety
    ///
    /// T-3: the limit and its ending live until [`Limit::cancel`] was called, whose waiter is a goroutine.
    pub(crate) unsafe fn add_limit(&'static self, when_ns: u64, limit: &Limit) {
        let mut heap = self.heap.lock();
        limit.home.set(Some(self));
        heap.push(Entry { when_ns, what: What::Limit(ptr::NonNull::from(limit)) });
        self.publish(&heap);
    }

    /// Takes out everything that is due at `now_ns`, earliest first.
    pub(crate) fn take_due(&self, now_ns: u64, due: &mut Due) {
        let mut heap = self.heap.lock();
        while heap.0.first().is_some_and(|e| e.when_ns <= now_ns) {
            match heap.remove(0).what {
                What::Sleeper(g) => due.gs.push_back(g),
                What::Limit(limit) => {
                    // SAFETY: T-3: it was in the heap, whose lock is held.
                    let ending = unsafe { &*limit.as_ref().ending };
                    if ending.race.win(TIME_UP) {
                        let Waiter::Goroutine(g) = ending.waiter else { unreachable!("threads time themselves") };
                        due.gs.push_back(g);
                    }
                }
                // SAFETY: the entry's own count.
                What::Alarm(a) => due.alarms.push(unsafe { Arc::from_raw(a.as_ptr()) }),
            }
        }
        self.publish(&heap);
    }

    fn publish(&self, heap: &Heap) {
        let next = heap.0.first().map_or(u64::MAX, |e| e.when_ns);
        self.next_ns.store(next, Ordering::Relaxed);
    }
}

impl Entry {
    /// Its place in the heap is `i` now (T-4).
    #[inline]
    fn moved(&self, i: usize) {
        match self.what {
            What::Sleeper(_) => {}
            // SAFETY: alive while in the heap (T-3).
            What::Limit(l) => unsafe { l.as_ref() }.place.set(i),
            // SAFETY: counted by the entry.
            What::Alarm(a) => unsafe { a.as_ref() }.place.store(i, Ordering::Relaxed),
        }
    }
}

impl Heap {
    fn push(&mut self, entry: Entry) {
        self.0.push(entry);
        self.up(self.0.len() - 1, entry);
    }

    /// Takes out the entry at `i`.
    fn remove(&mut self, i: usize) -> Entry {
        let entry = self.0[i];
        entry.moved(NOWHERE);
        let last = self.0.pop().expect("there is one");
        if i < self.0.len() {
            if i > 0 && last.when_ns < self.0[(i - 1) / CHILDREN].when_ns {
                self.up(i, last);
            } else {
                self.down(i, last);
            }
        }
        entry
    }

    /// Puts `entry` where it belongs between the hole at `i` and the root.
    fn up(&mut self, mut i: usize, entry: Entry) {
        while i > 0 {
            let parent = (i - 1) / CHILDREN;
            if self.0[parent].when_ns <= entry.when_ns {
                break;
            }
            self.put(i, self.0[parent]);
            i = parent;
        }
        self.put(i, entry);
    }

    /// Puts `entry` where it belongs between the hole at `i` and the leaves.
    fn down(&mut self, mut i: usize, entry: Entry) {
        loop {
            let first = i * CHILDREN + 1;
            let children = self.0.get(first..self.0.len().min(first + CHILDREN)).unwrap_or(&[]);
            let Some((n, least)) = children.iter().enumerate().min_by_key(|(_, e)| e.when_ns) else { break };
            if least.when_ns >= entry.when_ns {
                break;
            }
            let (child, least) = (first + n, *least);
            self.put(i, least);
            i = child;
        }
        self.put(i, entry);
    }

    #[inline]
    fn put(&mut self, i: usize, entry: Entry) {
        self.0[i] = entry;
        entry.moved(i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;
    impl OnTime for Nothing {
        fn fire(&self, _: &Arc<Alarm>, _: &Caller) {}
    }

    /// Random sets, cancels and takes, against a sorted list.
    #[test]
    fn heap_against_model() {
        let timers: &'static Timers = Box::leak(Box::new(Timers::new()));
        let mut seed = 12345u64;
        let mut random = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        let mut model: Vec<(u64, Arc<Alarm>)> = Vec::new();
        for _ in 0..if cfg!(miri) { 300 } else { 20_000 } {
            match random(5) {
                0..=2 => {
                    let (a, when) = (Alarm::new(Nothing), random(1000));
                    a.set(timers, when);
                    model.push((when, a));
                }
                3 if !model.is_empty() => {
                    let (_, a) = model.swap_remove(random(model.len() as u64) as usize);
                    assert!(a.cancel());
                    assert!(!a.cancel());
                    assert_eq!(Arc::strong_count(&a), 1);
                }
                _ => {
                    let now = random(1000);
                    let mut due = Due::default();
                    timers.take_due(now, &mut due);
                    let mut expected: Vec<u64> = model.iter().map(|m| m.0).filter(|w| *w <= now).collect();
                    expected.sort_unstable();
                    let when = |a: &Arc<Alarm>| model.iter().find(|m| Arc::ptr_eq(&m.1, a)).unwrap().0;
                    assert_eq!(due.alarms.iter().map(when).collect::<Vec<_>>(), expected);
                    model.retain(|m| m.0 > now);
                    if random(50) == 0 {
                        for (_, a) in model.drain(..) {
                            assert!(a.cancel());
                        }
                    }
                }
            }
            assert_eq!(timers.next_ns(), model.iter().map(|m| m.0).min().unwrap_or(u64::MAX));
            assert_eq!(timers.len(), model.len());
        }
        for (_, a) in model {
            assert!(a.cancel());
        }
    }
}
