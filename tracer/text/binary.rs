//! The events of a trace, one after the other, without a look at what they mean.

use std::io::{BufRead, BufReader, Read, Write};

use super::error::Error;
use super::event::{RawEvent, knows};
use crate::read::{self, Version};
use crate::wire::{Ev, varint};

/// Reads the events of a trace as they stand in it.
#[derive(Debug)]
pub struct BinaryReader<R> {
    from: BufReader<R>,
    version: Version,
    /// Where the next byte stands.
    offset: u64,
    event: RawEvent,
}

impl<R: Read> BinaryReader<R> {
    /// A reader of this trace. Fails if it does not begin as a trace does.
    pub fn new(from: R) -> Result<BinaryReader<R>, Error> {
        let mut from = BufReader::new(from);
        let mut header = Vec::with_capacity(Version::HEADER_BYTES);
        from.by_ref().take(Version::HEADER_BYTES as u64).read_to_end(&mut header)?;
        let version = read::Version::from_header(&header).map_err(Error::Header)?;
        Ok(BinaryReader { from, version, offset: header.len() as u64, event: RawEvent::empty() })
    }

    /// The version of the trace.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where the next event begins.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// The next event; `None` at the end. What comes after an error is not told.
    pub fn next_event(&mut self) -> Result<Option<&RawEvent>, Error> {
        let start = self.offset;
        let Some(number) = self.byte()? else { return Ok(None) };
        let Some(kind) = Ev::from_u8(number).filter(|&kind| knows(self.version, kind)) else {
            return Err(Error::byte(start, format!("number {number} is no event of {}", self.version)));
        };
        let spec = kind.spec();
        self.event.kind = kind;
        self.event.args.clear();
        self.event.data.clear();
        self.event.widths.clear();
        let mut shortest = true;
        for _ in spec.args {
            let number = self.number(start, kind, &mut shortest)?;
            self.event.args.push(number);
        }
        if spec.frames {
            // X3: as many as there are, not as many as are promised.
            for _ in 0..self.event.args[1].saturating_mul(4) {
                let number = self.number(start, kind, &mut shortest)?;
                self.event.args.push(number);
            }
        }
        if spec.data {
            let len = self.number(start, kind, &mut shortest)?;
            let has = self.from.by_ref().take(len).read_to_end(&mut self.event.data)? as u64;
            self.offset += has;
            if has < len {
                let what = format!("the trace ends in the bytes of {}: {has} of {len} are there", kind.name());
                return Err(Error::byte(start, what));
            }
        }
        if shortest {
            self.event.widths.clear();
        }
        Ok(Some(&self.event))
    }

    fn byte(&mut self) -> Result<Option<u8>, Error> {
        let byte = loop {
            match self.from.fill_buf() {
                Ok(bytes) => break bytes.first().copied(),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        };
        if byte.is_some() {
            self.from.consume(1);
            self.offset += 1;
        }
        Ok(byte)
    }

    /// The next number of the event that began at `start`.
    fn number(&mut self, start: u64, kind: Ev, shortest: &mut bool) -> Result<u64, Error> {
        let mut bytes = [0; varint::MAX_BYTES];
        for i in 0..bytes.len() {
            let Some(byte) = self.byte()? else {
                return Err(Error::byte(start, format!("the trace ends in the numbers of {}", kind.name())));
            };
            bytes[i] = byte;
            if byte < 0x80 {
                let Some(number) = varint::read(&bytes[..=i], &mut 0) else { break };
                self.event.widths.push(i as u8 + 1);
                *shortest &= varint::len(number) == i + 1;
                return Ok(number);
            }
        }
        Err(Error::byte(start, format!("a number of {} has more than 64 bits", kind.name())))
    }
}

/// Writes events as a trace.
#[derive(Debug)]
pub struct BinaryWriter<W> {
    to: W,
    buf: Vec<u8>,
}

/// How much is written at once.
const CHUNK: usize = 64 << 10;

impl<W: Write> BinaryWriter<W> {
    /// A writer of a trace of this version.
    pub fn new(to: W, version: Version) -> Result<BinaryWriter<W>, Error> {
        Ok(BinaryWriter { to, buf: version.header().to_vec() })
    }

    /// Adds an event.
    ///
    /// Fails, besides when writing does, if its arguments are not as many as its kind has.
    pub fn write(&mut self, event: &RawEvent) -> Result<(), Error> {
        if !event.is_whole() {
            let what = format!("{} cannot have {} numbers", event.kind.name(), event.args.len());
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, what).into());
        }
        event.encode(&mut self.buf);
        if self.buf.len() >= CHUNK {
            self.to.write_all(&self.buf)?;
            self.buf.clear();
        }
        Ok(())
    }

    /// Writes what is not written yet.
    pub fn finish(mut self) -> Result<(), Error> {
        self.to.write_all(&self.buf)?;
        Ok(self.to.flush()?)
    }
}
