//! One buffer of events from one thread in one generation, in wire form from the first byte.
//!
//! ```text
//! EventBatch                      | gen | m | base time | length (10 bytes, patched by seal) | events ...
//! ExperimentalBatch | experiment  | gen | m | base time | length                             | data ...
//! ```

use crate::record::block::{BLOCK_BYTES, Block, Piece};
use crate::wire::{Ev, MAX_EVENT_BYTES, MAX_TIMED_ARGS, varint};

/// A batch under construction.
#[derive(Debug)]
pub struct Batch {
    buf: Block,
    pos: usize,
    /// Where the length's ten bytes are; the data begin right after them.
    len_at: usize,
    last_ticks: u64,
    r#gen: u64,
    m: u64,
}

impl Batch {
    /// Starts a batch in `buf` for thread `m` (`u64::MAX`: no thread) at `ticks`.
    pub(crate) fn open(mut buf: Block, r#gen: u64, m: u64, ticks: u64) -> Batch {
        buf[0] = Ev::EventBatch as u8;
        Batch::open_after(buf, 1, r#gen, m, ticks)
    }

    /// As [`Batch::open`], of an experiment's data.
    pub(crate) fn open_experiment(mut buf: Block, experiment: u8, r#gen: u64, m: u64, ticks: u64) -> Batch {
        buf[..2].copy_from_slice(&[Ev::ExperimentalBatch as u8, experiment]);
        Batch::open_after(buf, 2, r#gen, m, ticks)
    }

    fn open_after(mut buf: Block, pos: usize, r#gen: u64, m: u64, ticks: u64) -> Batch {
        let mut pos = varint::put_at(&mut *buf, pos, r#gen);
        pos = varint::put_at(&mut *buf, pos, m);
        pos = varint::put_at(&mut *buf, pos, ticks);
        let len_at = pos;
        Batch { buf, pos: len_at + 10, len_at, last_ticks: ticks, r#gen, m }
    }

    /// Whether `n` more bytes fit.
    #[inline]
    pub(crate) fn has_room(&self, n: usize) -> bool {
        self.pos + n <= BLOCK_BYTES
    }

    /// Appends an event that happened at `ticks`; time never goes backwards within a batch (T7). Answers false, and does nothing, if
    /// the batch has no room for the longest of events.
    #[inline(always)]
    #[must_use]
    pub(crate) fn event<const N: usize>(&mut self, ev: Ev, ticks: u64, args: &[u64; N]) -> bool {
        const { assert!(N < MAX_TIMED_ARGS) };
        if self.pos > BLOCK_BYTES - MAX_EVENT_BYTES {
            return false;
        }
        let ticks = ticks.max(self.last_ticks + 1);
        // SAFETY: MAX_EVENT_BYTES follow `pos`, and the kind and at most MAX_TIMED_ARGS numbers (the time is one) take no more.
        self.pos = unsafe {
            let begin = self.buf.as_mut_ptr();
            let mut at = begin.add(self.pos);
            at.write(ev as u8);
            at = put(at.add(1), ticks - self.last_ticks);
            for &arg in args {
                at = put(at, arg);
            }
            at.offset_from_unsigned(begin)
        };
        self.last_ticks = ticks;
        true
    }

    /// Appends a byte that is not an event with a time (the structural batches).
    pub(crate) fn byte(&mut self, b: u8) {
        self.buf[self.pos] = b;
        self.pos += 1;
    }

    /// Appends a bare varint.
    pub(crate) fn varint(&mut self, v: u64) {
        self.pos = varint::put_at(&mut *self.buf, self.pos, v);
    }

    /// Appends raw bytes.
    pub(crate) fn bytes(&mut self, b: &[u8]) {
        self.buf[self.pos..self.pos + b.len()].copy_from_slice(b);
        self.pos += b.len();
    }

    /// The time of the last event.
    pub(crate) fn last_ticks(&self) -> u64 {
        self.last_ticks
    }

    /// Bytes of content so far.
    pub(crate) fn data_len(&self) -> usize {
        self.pos - self.len_at - 10
    }

    /// Patches the length; this is what is written to the stream.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let n = self.data_len() as u64;
        varint::put_padded10(&mut *self.buf, self.len_at, n);
        self.buf.written(self.pos);
        &self.buf[..self.pos]
    }

    /// Makes it ready for the sink.
    pub(crate) fn seal(mut self) -> Sealed {
        self.finish();
        Sealed { piece: Piece::new(self.buf, self.pos), r#gen: self.r#gen, m: self.m }
    }
}

/// Writes a varint where `at` points to, and answers where it ends.
///
/// # Safety
///
/// [`varint::MAX_BYTES`] bytes from `at` on can be written.
#[inline(always)]
unsafe fn put(mut at: *mut u8, mut v: u64) -> *mut u8 {
    // SAFETY: seven bits go into each byte, so that there are at most MAX_BYTES of them.
    unsafe {
        if v < 1 << 7 {
            at.write(v as u8);
            return at.add(1);
        }
        // Two at once.
        while v >= 1 << 14 {
            at.cast::<[u8; 2]>().write((spread(v) | 0x8080).to_le_bytes());
            v >>= 14;
            at = at.add(2);
            if v < 1 << 7 {
                at.write(v as u8);
                return at.add(1);
            }
        }
        at.cast::<[u8; 2]>().write((spread(v) | 0x80).to_le_bytes());
        at.add(2)
    }
}

/// The lowest fourteen bits, seven of them in each byte.
#[inline(always)]
fn spread(v: u64) -> u16 {
    (v & 0x7f | v << 1 & 0x7f00) as u16
}

/// A finished batch on its way to the sink.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) piece: Piece,
    pub(crate) r#gen: u64,
    /// The thread that wrote it.
    pub(crate) m: u64,
}

impl Sealed {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.piece.as_bytes()
    }
}
