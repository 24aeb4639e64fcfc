//! The descriptors: a place for each socket in the poll set, reused and never freed.
//!
//! A place has a token, index and sequence, under which the socket is registered. The sequence changes whenever the place is
//! given back, so an event that was on its way meanwhile is recognised as late ([`Slot`], S3). Places are never freed: whoever holds a
//! reference, or looks one up for a late event, finds memory that is still a descriptor.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::slot::Slot;

/// Places in the first chunk; each further chunk has twice as many as the one before.
const FIRST: usize = 64;
const CHUNKS: usize = 25;
/// The lower half of a token is the index, the upper one the sequence.
const INDEX_BITS: u32 = usize::BITS / 2;
const INDEX_MASK: usize = (1 << INDEX_BITS) - 1;
/// One bit less than there is room for: the tokens at the top are the poller's own.
const SEQUENCE_MASK: u32 = ((1u64 << (INDEX_BITS - 1)) - 1) as u32;

/// The descriptors of one poller, each with data of the user's.
pub struct Descriptors<T: 'static> {
    chunks: [OnceLock<Box<[Descriptor<T>]>>; CHUNKS],
    free: Mutex<Free>,
    used: AtomicUsize,
}

struct Free {
    indices: Vec<u32>,
    /// Places that were ever used.
    made: usize,
}

/// One place: two [`Slot`]s and the user's data, which stay when the place is reused.
#[repr(align(64))]
pub struct Descriptor<T> {
    /// Whether there is something to read (or to accept).
    pub read: Slot,
    /// Whether there is room to write (or a connection has been made).
    pub write: Slot,
    /// The user's.
    pub data: T,
    index: u32,
    sequence: AtomicU32,
}

impl<T> Descriptor<T> {
    /// What to register the socket under, in this use.
    pub fn token(&self) -> usize {
        self.index as usize | (self.sequence.load(Ordering::Relaxed) as usize) << INDEX_BITS
    }
}

impl<T: Default> Descriptors<T> {
    /// None yet; memory is taken as they are needed.
    pub const fn new() -> Descriptors<T> {
        Descriptors {
            chunks: [const { OnceLock::new() }; CHUNKS],
            free: Mutex::new(Free { indices: Vec::new(), made: 0 }),
            used: AtomicUsize::new(0),
        }
    }

    /// How many are in use.
    #[inline]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes a place, whose slots are ready to be tried. It is the caller's until [`Descriptors::put`].
    ///
    /// # Panics
    ///
    /// When two thousand million are in use.
    pub fn take(&'static self) -> &'static Descriptor<T> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let index = free.indices.pop().map_or(free.made, |i| i as usize);
        let d = self.at_or_make(index);
        free.made = free.made.max(index + 1);
        self.used.fetch_add(1, Ordering::SeqCst);
        d
    }

    /// Gives a place back. Events for this use that come from now on are late.
    pub fn put(&'static self, d: &'static Descriptor<T>) {
        let sequence = d.sequence.load(Ordering::Relaxed).wrapping_add(1) & SEQUENCE_MASK;
        d.sequence.store(sequence, Ordering::Relaxed);
        d.read.renew(sequence);
        d.write.renew(sequence);
        self.used.fetch_sub(1, Ordering::SeqCst);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).indices.push(d.index);
    }

    /// The place an event is for, with the sequence that [`Slot::notify`] wants; `None` for a token that is nobody's.
    #[inline]
    pub fn find(&'static self, token: usize) -> Option<(&'static Descriptor<T>, u32)> {
        let (chunk, i) = place(token & INDEX_MASK)?;
        let d = self.chunks[chunk].get()?.get(i)?;
        Some((d, (token >> INDEX_BITS) as u32))
    }

    /// Whether somebody waits at any of them.
    pub fn any_waiting(&'static self) -> bool {
        let places = self.chunks.iter().map_while(OnceLock::get).flat_map(|chunk| chunk.iter());
        self.used() != 0 && places.into_iter().any(|d| d.read.is_waiting() || d.write.is_waiting())
    }

    fn at_or_make(&'static self, index: usize) -> &'static Descriptor<T> {
        let (chunk, i) = place(index).expect("gort: more sockets than there are places for");
        let make = |i| Descriptor {
            read: Slot::new(),
            write: Slot::new(),
            data: T::default(),
            index: (first_of(chunk) + i) as u32,
            sequence: AtomicU32::new(0),
        };
        &self.chunks[chunk].get_or_init(|| (0..FIRST << chunk).map(make).collect())[i]
    }
}

impl<T: Default> Default for Descriptors<T> {
    fn default() -> Descriptors<T> {
        Descriptors::new()
    }
}

/// The chunk an index is in, and where.
#[inline]
fn place(index: usize) -> Option<(usize, usize)> {
    let chunk = ((index / FIRST + 1).ilog2()) as usize;
    (chunk < CHUNKS).then(|| (chunk, index - first_of(chunk)))
}

/// The first index of a chunk.
#[inline]
fn first_of(chunk: usize) -> usize {
    FIRST * ((1 << chunk) - 1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::slot::Notified;

    #[test]
    fn places() {
        let mut expected = (0, 0);
        for index in 0..10_000 {
            assert_eq!(place(index), Some(expected), "index {index}");
            expected.1 += 1;
            if expected.1 == FIRST << expected.0 {
                expected = (expected.0 + 1, 0);
            }
        }
        assert_eq!(place(INDEX_MASK), None);
    }

    #[test]
    fn a_place_is_found_by_its_token_until_it_is_given_back() {
        static ALL: Descriptors<u32> = Descriptors::new();
        let many: Vec<_> = (0..1000).map(|_| ALL.take()).collect();
        assert_eq!(ALL.used(), 1000);
        for d in &many {
            let (found, sequence) = ALL.find(d.token()).unwrap();
            assert!(std::ptr::eq(found, *d));
            assert_eq!(found.read.notify(sequence, false), Notified::Nobody);
        }
        let d = many[500];
        let token = d.token();
        ALL.put(d);
        assert!(std::ptr::eq(ALL.take(), d), "reused");
        assert_ne!(d.token(), token);
        let (found, sequence) = ALL.find(token).unwrap();
        assert_eq!(found.read.notify(sequence, false), Notified::Stale);
        assert_eq!(found.write.notify(sequence, false), Notified::Stale);
        assert!(ALL.find(usize::MAX).is_none());
        assert!(ALL.find(100_000).is_none(), "no such chunk yet");
        for d in many {
            ALL.put(d);
        }
        assert_eq!(ALL.used(), 0);
    }

    #[test]
    fn the_sequence_wraps() {
        static ALL: Descriptors<()> = Descriptors::new();
        let d = ALL.take();
        d.sequence.store(SEQUENCE_MASK, Ordering::Relaxed);
        assert!(d.token() < usize::MAX - 1, "the poller's own tokens are not met");
        ALL.put(d);
        assert_eq!(ALL.take().token(), 0);
    }

    #[test]
    fn somebody_waits() {
        static ALL: Descriptors<()> = Descriptors::new();
        let (a, _b) = (ALL.take(), ALL.take());
        assert!(!ALL.any_waiting());
        a.write.spent(a.write.look());
        let _ = a.write.begin_wait();
        assert!(ALL.any_waiting());
        ALL.put(a);
        assert!(!ALL.any_waiting());
    }
}
