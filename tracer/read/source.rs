//! The bytes of the generation at hand.
//!
//! Everything is decoded from one buffer, which holds one generation and whatever the source gave beyond it. It grows
//! by what the source gives and by nothing that a file says.

use std::io::{ErrorKind, Read};

use super::error::{Broken, Error, Resource};
use super::rule::Rule;

/// How much room a read is offered.
const CHUNK: usize = 256 << 10;

/// So many bytes of no meaning follow those that came from the source, so that a look ahead needs no care.
pub(crate) const PAD: usize = 64;

/// A source and the part of it that is in memory.
#[derive(Debug)]
pub(crate) struct Source<R> {
    from: R,
    buf: Vec<u8>,
    /// `buf[..filled]` came from the source; [`PAD`] more follow, once something has come.
    filled: usize,
    /// Where `buf[0]` stands in the file.
    base: u64,
    eof: bool,
}

impl<R: Read> Source<R> {
    pub fn new(from: R) -> Source<R> {
        Source { from, buf: Vec::new(), filled: 0, base: 0, eof: false }
    }

    /// The bytes that are in memory.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.filled]
    }

    /// The same and [`PAD`] bytes of no meaning.
    #[inline]
    pub fn padded(&self) -> &[u8] {
        &self.buf
    }

    /// Where the first of [`Source::bytes`] stands in the file.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// The source has no more than what is in memory.
    pub fn at_end(&self) -> bool {
        self.eof
    }

    /// Drops the first `bytes`.
    pub fn consume(&mut self, bytes: usize) {
        self.buf.copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
        self.base += bytes as u64;
        // One large generation must not keep its memory for the whole file.
        if self.buf.len() > 4 * (self.filled + bytes) + CHUNK + PAD {
            self.buf.truncate(self.filled + bytes + PAD);
            self.buf.shrink_to_fit();
        }
    }

    /// Reads once. At the end of the source this sets [`Source::at_end`].
    pub fn fill(&mut self) -> Result<(), Error> {
        if self.filled > u32::MAX as usize - CHUNK - PAD {
            return Err(Broken::new(Rule::GenerationSize, Resource::Trace, self.base).into());
        }
        if self.filled + PAD >= self.buf.len() {
            self.buf.resize(self.filled + CHUNK + PAD, 0);
        }
        loop {
            let room = self.filled..self.buf.len() - PAD;
            match self.from.read(&mut self.buf[room]) {
                Ok(n) => {
                    self.filled += n;
                    self.eof |= n == 0;
                    return Ok(());
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Reads until `end` bytes are in memory or the source ends; says whether they are.
    pub fn fill_to(&mut self, end: usize) -> Result<bool, Error> {
        while self.filled < end && !self.eof {
            self.fill()?;
        }
        Ok(self.filled >= end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives its bytes one at a time, and an interruption before each.
    struct Drip<'a>(&'a [u8], bool);

    impl Read for Drip<'_> {
        fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(ErrorKind::Interrupted.into());
            }
            let n = self.0.len().min(1);
            buf[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn bytes_are_kept_until_consumed() {
        let mut source = Source::new(Drip(b"hello world", false));
        assert!(source.fill_to(5).expect("the source is good"));
        assert_eq!(source.bytes(), b"hello");
        source.consume(3);
        assert_eq!((source.bytes(), source.base()), (&b"lo"[..], 3));
        assert!(!source.fill_to(100).expect("the source is good"));
        assert_eq!(source.bytes(), b"lo world");
        assert!(source.at_end());
    }
}
