//! The word of a read-write lock: readers against the one writer that has the writers' mutex. Pure: it knows no waiters, only
//! that there are some.
//!
//! ```text
//!   WRITER    a writer has announced itself: new readers wait. With no readers left it holds the lock
//!   WAITING   readers wait. Only together with WRITER
//!   readers   who hold the lock, in the upper bits
//! ```
//!
//! - E1: WRITER is set by the holder of the writers' mutex alone, and cleared by it. So there is one writer at a time.
//! - E2: WAITING is set under the list's lock, before a reader is listed, and cleared with WRITER, by who then lets in all the readers
//!   that are listed.
//! - E3: while WRITER is set the number of readers only falls. Whoever makes it 0 hands the lock to the writer, under the list's
//!   lock; a writer that is not listed yet looks at the number under the same lock first. One of them sees the other.
//! - E4: so a writer waits for the readers that were there when it announced itself, and readers wait for one writer at most.

use crate::prim::atomic::{AtomicU32, Ordering};

const WRITER: u32 = 1;
const WAITING: u32 = 2;
const READER: u32 = 4;
/// The bits of who has the lock or wants to write.
const HELD: u32 = !WAITING;

/// Readers at most. Readers that waited are let in beyond it: there is room for as many again.
pub(crate) const READERS_MAX: u32 = u32::MAX / READER / 2;

/// The word.
pub(crate) struct RwWord(AtomicU32);

/// How an attempt to read came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Read {
    /// The caller holds the lock.
    Held,
    /// There is a writer.
    Wait,
    /// [`READERS_MAX`] hold it already.
    Full,
}

impl RwWord {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> RwWord {
        RwWord(AtomicU32::new(0))
    }

    #[cfg(loom)]
    pub(crate) fn new() -> RwWord {
        RwWord(AtomicU32::new(0))
    }

    #[cfg(all(test, not(loom)))]
    pub(crate) fn with_readers(n: u32) -> RwWord {
        RwWord(AtomicU32::new(n * READER))
    }

    /// A reader comes.
    #[inline]
    pub(crate) fn read(&self) -> Read {
        let mut s = self.0.load(Ordering::Relaxed);
        loop {
            if s & WRITER != 0 {
                return Read::Wait;
            }
            if s / READER >= READERS_MAX {
                return Read::Full;
            }
            // ORDER: Acquire; pairs with the Release of a writer's unlock: what it wrote is visible.
            match self.0.compare_exchange_weak(s, s + READER, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Read::Held,
                Err(now) => s = now,
            }
        }
    }

    /// As [`RwWord::read`]; if it has to wait, says so (E2). Under the list's lock.
    pub(crate) fn read_or_mark(&self) -> Read {
        loop {
            match self.read() {
                Read::Wait => {}
                done => return done,
            }
            let marked = |s: u32| (s & WRITER != 0).then_some(s | WAITING);
            if self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, marked).is_ok() {
                return Read::Wait;
            }
        }
    }

    /// A reader goes; true if it was the last one and a writer waits for that (E3).
    #[inline]
    #[must_use]
    pub(crate) fn unread(&self) -> bool {
        // ORDER: Release; pairs with the Acquire in announce(), try_write() and is_drained(): what was read was read before.
        let old = self.0.fetch_sub(READER, Ordering::Release);
        debug_assert!(old >= READER, "a reader that is not counted");
        old & HELD == READER | WRITER
    }

    /// A writer that has the writers' mutex takes the lock if nobody reads.
    #[inline]
    pub(crate) fn try_write(&self) -> bool {
        // ORDER: Acquire; pairs with the Release of every unlock.
        self.0.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A writer that has the writers' mutex announces itself; true if nobody reads, and then it holds the lock.
    #[inline]
    #[must_use]
    pub(crate) fn announce(&self) -> bool {
        // ORDER: Acquire; as in try_write().
        let old = self.0.fetch_or(WRITER, Ordering::Acquire);
        debug_assert!(old & (WRITER | WAITING) == 0, "E1");
        old == 0
    }

    /// Whether the readers that a writer waits for have gone. Under the list's lock.
    pub(crate) fn is_drained(&self) -> bool {
        // ORDER: Acquire; pairs with the Release of each unread(), all of which are exchanges and so lie on one chain.
        self.0.load(Ordering::Acquire) & HELD == WRITER
    }

    /// The writer unlocks, and stays as a reader if `reading`; false if readers wait, and then it MUST [let them
    /// in](RwWord::let_in).
    #[inline]
    #[must_use]
    pub(crate) fn unwrite(&self, reading: bool) -> bool {
        // ORDER: Release; pairs with the Acquire in read() and try_write(): what was written is visible.
        let to = if reading { READER } else { 0 };
        self.0.compare_exchange(WRITER, to, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Ends the writer's turn, or its waiting for one, and makes `n` more hold the lock as readers: all that were listed. Under the
    /// list's lock (E2).
    pub(crate) fn let_in(&self, n: u32) {
        let next = |s: u32| Some((s & !(WRITER | WAITING)) + n * READER);
        // ORDER: Release; as in unwrite(). Readers that were let in are woken, which orders the rest.
        let old = self.0.fetch_update(Ordering::Release, Ordering::Relaxed, next).expect("always some");
        debug_assert!(old & WRITER != 0, "E1");
    }

    /// Whether it is held for writing, or about to be, and by how many for reading.
    #[cfg(all(test, not(loom)))]
    pub(crate) fn holders(&self) -> (bool, u32) {
        let s = self.0.load(Ordering::Relaxed);
        (s & WRITER != 0, s / READER)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn readers_are_counted_to_a_limit() {
        let w = RwWord::with_readers(READERS_MAX - 1);
        assert_eq!(w.read(), Read::Held);
        assert_eq!((w.read(), w.read_or_mark()), (Read::Full, Read::Full));
        assert!(!w.unread());
        assert_eq!(w.read(), Read::Held);
        // Those that waited have room beyond the limit, and do not run into the flags.
        assert!(!w.announce());
        assert_eq!(w.read_or_mark(), Read::Wait);
        w.let_in(READERS_MAX);
        assert_eq!(w.holders(), (false, 2 * READERS_MAX));
        assert_eq!(w.read(), Read::Full);
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::sync::race::{Race, TIME_UP};
    use loom::cell::UnsafeCell;
    use loom::sync::{Arc, Condvar, Mutex};
    use loom::thread;

    /// Somebody who waits.
    #[derive(Default)]
    struct Seat {
        woken: Mutex<bool>,
        bell: Condvar,
    }

    impl Seat {
        // A wake-up that is lost is a deadlock, which loom reports.
        fn wait(&self) {
            let mut woken = self.woken.lock().unwrap();
            while !*woken {
                woken = self.bell.wait(woken).unwrap();
            }
        }

        fn wake(&self) {
            *self.woken.lock().unwrap() = true;
            self.bell.notify_one();
        }
    }

    #[derive(Default)]
    struct Lists {
        readers: Vec<Arc<Seat>>,
        writer: Option<(Arc<Race>, Arc<Seat>)>,
    }

    struct Model {
        word: RwWord,
        writers: Mutex<()>,
        lists: Mutex<Lists>,
        owned: UnsafeCell<u32>,
    }

    fn model() -> Arc<Model> {
        Arc::new(Model {
            word: RwWord::new(),
            writers: Mutex::new(()),
            lists: Mutex::new(Lists::default()),
            owned: UnsafeCell::new(0),
        })
    }

    fn read(m: &Model) -> u32 {
        if m.word.read() != Read::Held {
            let seat = Arc::new(Seat::default());
            let mut lists = m.lists.lock().unwrap();
            if m.word.read_or_mark() == Read::Wait {
                lists.readers.push(seat.clone());
                drop(lists);
                seat.wait();
            }
        }
        let seen = m.owned.with(|p| unsafe { *p });
        if m.word.unread() {
            let mut lists = m.lists.lock().unwrap();
            if m.word.is_drained()
                && let Some((race, seat)) = lists.writer.take()
                && race.win(0)
            {
                drop(lists);
                seat.wake();
            }
        }
        seen
    }

    fn let_in(m: &Model, mut lists: loom::sync::MutexGuard<'_, Lists>) {
        let taken = std::mem::take(&mut lists.readers);
        m.word.let_in(taken.len() as u32);
        drop(lists);
        taken.iter().for_each(|s| s.wake());
    }

    /// Writes; `timer` is a thread that may end the wait for readers first. Answers whether it got the lock.
    fn write(m: &Model, timed: bool) -> bool {
        let _one = m.writers.lock().unwrap();
        if !m.word.announce() {
            let (race, seat) = (Arc::new(Race::new()), Arc::new(Seat::default()));
            let mut lists = m.lists.lock().unwrap();
            if !m.word.is_drained() {
                lists.writer = Some((race.clone(), seat.clone()));
                drop(lists);
                let timer = timed.then(|| {
                    let (race, seat) = (race.clone(), seat.clone());
                    thread::spawn(move || {
                        if race.win(TIME_UP) {
                            seat.wake();
                        }
                    })
                });
                seat.wait();
                if let Some(t) = timer {
                    t.join().unwrap();
                }
                if race.winner() == Some(TIME_UP) {
                    let mut lists = m.lists.lock().unwrap();
                    lists.writer = None;
                    let_in(m, lists);
                    return false;
                }
            }
        }
        m.owned.with_mut(|p| unsafe { *p += 1 });
        if !m.word.unwrite(false) {
            let_in(m, m.lists.lock().unwrap());
        }
        true
    }

    #[test]
    fn loom_rw_word_two_readers_one_writer() {
        loom::model(|| {
            let m = model();
            let readers: Vec<_> = (0..2)
                .map(|_| {
                    let m = m.clone();
                    thread::spawn(move || assert!(read(&m) <= 1))
                })
                .collect();
            assert!(write(&m, false));
            readers.into_iter().for_each(|r| r.join().unwrap());
            assert_eq!(read(&m), 1);
        });
    }

    #[test]
    fn loom_rw_word_two_writers_one_reader() {
        loom::model(|| {
            let m = model();
            let writer = {
                let m = m.clone();
                thread::spawn(move || assert!(write(&m, false)))
            };
            let reader = {
                let m = m.clone();
                thread::spawn(move || assert!(read(&m) <= 2))
            };
            assert!(write(&m, false));
            writer.join().unwrap();
            reader.join().unwrap();
            assert_eq!(read(&m), 2);
        });
    }

    /// A writer that runs out of time lets in the readers that waited for it, and leaves no trace.
    #[test]
    fn loom_rw_word_writer_leaves() {
        loom::model(|| {
            let m = model();
            let reader = {
                let m = m.clone();
                thread::spawn(move || assert!(read(&m) <= 1))
            };
            let wrote = write(&m, true);
            reader.join().unwrap();
            assert_eq!(read(&m), u32::from(wrote));
            assert!(m.word.try_write());
        });
    }
}
