//! The bytes of the generation at hand.
//!
//! Batches are found, and tables decoded, in one buffer, which holds one generation and whatever the source gave beyond it. It grows
//! by what the source gives and by nothing that a file says.
//!
//! - L1: of a file, which can be read at any place, the events stay where they are until they are wanted: the buffer has *holes* where
//!   their batches are, which take no memory ([`pages`](crate::pages)). Nothing but [`Source::body`] MUST look into one.
//! - L2: whoever wants to look anywhere, as the search in a damaged file does, has the holes filled first ([`Source::fill_holes`]).

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};

use super::error::{Broken, Error, Resource};
use super::rule::Rule;
use crate::pages::Buffer;

/// How much room a read is offered.
const CHUNK: usize = 256 << 10;

/// The same where what follows is to stay in the file: enough for a batch's header.
const GLANCE: usize = 256;

/// So many bytes of no meaning follow those that came from the source, so that a look ahead needs no care.
pub(crate) const PAD: usize = 64;

/// What a trace can be read from: whatever is [`Read`], and a [`TraceFile`].
pub trait Input {
    /// As [`Read::read`].
    fn read_next(&mut self, buf: &mut [u8]) -> io::Result<usize>;

    /// How many bytes there are, if they can be had in any order, by [`Input::read_at`]. Then `read_next` is not called.
    fn size(&self) -> Option<u64> {
        None
    }

    /// Reads the bytes from `offset` on, of those that `read_next` would give. May give fewer than `buf` has room for; none at the end.
    fn read_at(&self, _buf: &mut [u8], _offset: u64) -> io::Result<usize> {
        Err(ErrorKind::Unsupported.into())
    }
}

impl<R: Read> Input for R {
    fn read_next(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.read(buf)
    }
}

/// A file that is read where it lies: of a generation only the tables are in memory, and of each M the batch at hand. A [`File`] by itself
/// is read from its beginning to its end, with a whole generation in memory.
///
/// Somebody who cuts the file meanwhile makes an error and nothing worse.
#[derive(Debug)]
pub struct TraceFile {
    file: File,
    start: u64,
    size: u64,
}

impl TraceFile {
    /// The rest of `file`, from where it stands. `None` if it is none that can be read in any order: a pipe, or a device.
    pub fn new(mut file: File) -> io::Result<Option<TraceFile>> {
        let metadata = file.metadata()?;
        if !metadata.is_file() || cfg!(not(any(unix, windows))) {
            return Ok(None);
        }
        let start = file.stream_position()?;
        Ok(Some(TraceFile { file, start, size: metadata.len().saturating_sub(start) }))
    }
}

impl Input for TraceFile {
    fn read_next(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read(buf)
    }

    fn size(&self) -> Option<u64> {
        Some(self.size)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        #[cfg(unix)]
        return std::os::unix::fs::FileExt::read_at(&self.file, buf, self.start + offset);
        #[cfg(windows)]
        return std::os::windows::fs::FileExt::seek_read(&self.file, buf, self.start + offset);
        #[cfg(not(any(unix, windows)))]
        {
            let _ = (buf, offset);
            Err(ErrorKind::Unsupported.into())
        }
    }
}

/// A source and the part of it that is in memory.
#[derive(Debug)]
pub(crate) struct Source<R> {
    from: R,
    buf: Buffer,
    /// `buf[..filled]` came from the source, but for holes; [`PAD`] more follow, once something has come.
    filled: usize,
    /// Where `buf[0]` stands in the file.
    base: u64,
    eof: bool,
    /// How many bytes the source has, if it can be read at any place.
    size: Option<u64>,
    /// Events stay where they are (L1).
    leaves: bool,
}

impl<R: Input> Source<R> {
    pub fn new(from: R) -> Source<R> {
        let size = from.size();
        Source { from, buf: Buffer::new(), filled: 0, base: 0, eof: false, size, leaves: size.is_some() }
    }

    /// The bytes that are in memory, and holes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buf[..self.filled]
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
            self.buf.resize(self.filled + bytes + PAD);
            self.buf.shrink_to_fit();
        }
    }

    /// Reads once. At the end of the source this sets [`Source::at_end`].
    pub fn fill(&mut self) -> Result<(), Error> {
        self.fill_by(0)
    }

    /// Reads once, so many bytes if they are there.
    fn fill_by(&mut self, wanted: usize) -> Result<(), Error> {
        self.check_size(self.filled)?;
        let want = if self.leaves { wanted.max(GLANCE) } else { CHUNK };
        if self.filled + PAD >= self.buf.len() {
            self.buf.resize(self.filled + want + PAD);
        }
        // No more than that, whatever room a generation before has left: what is read too early is moved each time that something is consumed.
        let room = self.filled..(self.filled + want).min(self.buf.len() - PAD);
        let (from, offset, buf) = (&mut self.from, self.base + self.filled as u64, &mut self.buf[room]);
        let n = match self.size {
            Some(_) => uninterrupted(|| from.read_at(buf, offset))?,
            None => uninterrupted(|| from.read_next(buf))?,
        };
        self.filled += n;
        self.eof |= n == 0;
        Ok(())
    }

    /// Reads until `end` bytes are in memory or the source ends; says whether they are.
    pub fn fill_to(&mut self, end: usize) -> Result<bool, Error> {
        while self.filled < end && !self.eof {
            self.fill_by(end - self.filled)?;
        }
        Ok(self.filled >= end)
    }

    /// The same for the body of a batch of events, which may stay where it is (L1).
    pub fn pass_to(&mut self, end: usize) -> Result<bool, Error> {
        let is_there = self.size.is_some_and(|size| self.base.saturating_add(end as u64) <= size);
        if !self.leaves || !is_there || end <= self.filled {
            return self.fill_to(end);
        }
        self.check_size(end)?;
        if self.buf.len() < end + PAD {
            self.buf.resize(end + PAD);
        }
        self.filled = end;
        Ok(true)
    }

    fn check_size(&self, end: usize) -> Result<(), Error> {
        if end > u32::MAX as usize - CHUNK - PAD {
            return Err(Broken::new(Rule::GenerationSize, Resource::Trace, self.base).into());
        }
        Ok(())
    }

    /// The bytes of a batch of events, and [`PAD`] of no meaning.
    pub fn body(&self, start: u32, end: u32, body: &mut Vec<u8>) -> Result<(), Error> {
        let len = (end - start) as usize;
        if !self.leaves {
            body.clear();
            body.extend_from_slice(&self.buf[start as usize..end as usize + PAD]);
            return Ok(());
        }
        body.resize(len + PAD, 0);
        Ok(read_whole(&self.from, &mut body[..len], self.base + u64::from(start))?)
    }

    /// Fills the holes, and makes no more from now on (L2).
    pub fn fill_holes(&mut self) -> Result<(), Error> {
        if self.leaves {
            read_whole(&self.from, &mut self.buf[..self.filled], self.base)?;
            self.leaves = false;
        }
        Ok(())
    }
}

/// Reads what lies at `offset`, all of it.
fn read_whole<R: Input>(from: &R, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !buf.is_empty() {
        match uninterrupted(|| from.read_at(buf, offset))? {
            0 => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the file has become shorter")),
            n => (buf, offset) = (&mut buf[n..], offset + n as u64),
        }
    }
    Ok(())
}

/// Reads, again if a signal came between.
fn uninterrupted(mut read: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match read() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
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

    /// Otherwise whoever consumes little by little afterwards moves all the rest each time.
    #[test]
    fn a_large_buffer_is_no_reason_to_read_much() {
        let mut source = Source::new(std::io::repeat(7));
        let large = 8 << 20;
        assert!(source.fill_to(large).expect("the source is good"));
        source.consume(source.bytes().len());
        source.fill().expect("the source is good");
        assert!(source.bytes().len() <= CHUNK, "{}", source.bytes().len());
        assert_eq!(source.base() / CHUNK as u64, large as u64 / CHUNK as u64);
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
