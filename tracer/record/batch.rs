//! One buffer of events from one thread in one generation, in wire form from the first byte.
//!
//! ```text
//! EventBatch | gen | m | base time | length (10 bytes, patched by seal) | events ...
//! ```

use crate::wire::{Ev, MAX_BATCH_BYTES, varint};

/// A batch under construction.
#[derive(Debug)]
pub struct Batch {
    buf: Box<[u8]>,
    pos: usize,
    /// Where the length's ten bytes are; the data begin right after them.
    len_at: usize,
    last_ticks: u64,
    r#gen: u64,
}

impl Batch {
    /// A buffer for [`Batch::open`], without any content.
    pub(crate) fn buffer() -> Box<[u8]> {
        vec![0; MAX_BATCH_BYTES].into_boxed_slice()
    }

    /// Starts a batch in `buf` for thread `m` (`u64::MAX`: no thread) at `ticks`.
    pub(crate) fn open(mut buf: Box<[u8]>, r#gen: u64, m: u64, ticks: u64) -> Batch {
        buf[0] = Ev::EventBatch as u8;
        let mut pos = varint::put_at(&mut buf, 1, r#gen);
        pos = varint::put_at(&mut buf, pos, m);
        pos = varint::put_at(&mut buf, pos, ticks);
        let len_at = pos;
        Batch { buf, pos: len_at + 10, len_at, last_ticks: ticks, r#gen }
    }

    /// Whether `n` more bytes fit.
    #[inline]
    pub(crate) fn has_room(&self, n: usize) -> bool {
        self.pos + n <= self.buf.len()
    }

    /// Appends an event that happened at `ticks`; time never goes backwards within a batch (T7).
    #[inline]
    pub(crate) fn event(&mut self, ev: Ev, ticks: u64, args: &[u64]) -> u64 {
        let ticks = ticks.max(self.last_ticks + 1);
        let buf = &mut self.buf;
        let mut pos = self.pos;
        buf[pos] = ev as u8;
        pos = varint::put_at(buf, pos + 1, ticks - self.last_ticks);
        for &a in args {
            pos = varint::put_at(buf, pos, a);
        }
        self.pos = pos;
        self.last_ticks = ticks;
        ticks
    }

    /// Appends a byte that is not an event with a time (the structural batches).
    pub(crate) fn byte(&mut self, b: u8) {
        self.buf[self.pos] = b;
        self.pos += 1;
    }

    /// Appends a bare varint.
    pub(crate) fn varint(&mut self, v: u64) {
        self.pos = varint::put_at(&mut self.buf, self.pos, v);
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

    /// Patches the length; what is written to the stream is `as_bytes` afterwards. A batch that is far from full goes into a
    /// buffer of its own size, and its large one comes back: what waits for the stream then takes the memory it is counted for.
    pub(crate) fn seal(mut self) -> (Sealed, Option<Box<[u8]>>) {
        let n = self.data_len() as u64;
        varint::put_padded10(&mut self.buf, self.len_at, n);
        let (len, r#gen) = (self.pos, self.r#gen);
        if len < self.buf.len() / 2 {
            return (Sealed { buf: self.buf[..len].into(), len, r#gen }, Some(self.buf));
        }
        (Sealed { buf: self.buf, len, r#gen }, None)
    }
}

/// A finished batch on its way to the sink.
#[derive(Debug)]
pub(crate) struct Sealed {
    buf: Box<[u8]>,
    len: usize,
    pub(crate) r#gen: u64,
}

impl Sealed {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.buf[..self.len]
    }

    /// Its buffer, if it is one of full size.
    pub(crate) fn into_buffer(self) -> Option<Box<[u8]>> {
        (self.buf.len() == MAX_BATCH_BYTES).then_some(self.buf)
    }
}
