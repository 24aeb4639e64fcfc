//! The lines of a text, as events.

use std::io::{BufRead, ErrorKind, Write};

use super::Widths;
use super::error::Error;
use super::event::{FRAME, RawEvent, knows};
use super::quote::{quote, unquote};
use crate::read::Version;
use crate::wire::{Ev, varint};

/// A line that begins so says how many bytes the numbers of the event after it take.
const WIDTHS: &str = "#widths";

/// Reads the events of a text.
#[derive(Debug)]
pub struct TextReader<R> {
    from: R,
    version: Version,
    line: String,
    /// The number of `line`, from 1.
    number: u64,
    /// `line` has been read and is still to come.
    kept: bool,
    /// What a line before the event said, and which.
    widths: Option<(u64, Vec<u8>)>,
    event: RawEvent,
}

impl<R: BufRead> TextReader<R> {
    /// A reader of this text. Fails if its first line is not `Trace Go1.N` with a known N.
    pub fn new(from: R) -> Result<TextReader<R>, Error> {
        let (line, event) = (String::new(), RawEvent::empty());
        let mut reader =
            TextReader { from, version: Version::Go126, line, number: 0, kept: false, widths: None, event };
        if !reader.next_line()? {
            return Err(Error::line(reader.number.max(1), "the text is empty; its first line must be `Trace Go1.26`"));
        }
        let mut tokens = Tokens(&reader.line);
        let minor = (tokens.next() == Some("Trace")).then(|| tokens.next()).flatten();
        let minor = minor.and_then(|word| word.strip_prefix("Go1.")).and_then(|digits| digits.parse().ok());
        let Some(minor) = minor.filter(|_| tokens.next().is_none()) else {
            return Err(reader.wrong("the first line must be `Trace Go1.26`, or with 22, 23 or 25"));
        };
        let Some(version) = Version::from_minor(minor) else {
            return Err(reader.wrong(format!("Go1.{minor} has no text form; 22, 23, 25 and 26 have")));
        };
        reader.version = version;
        Ok(reader)
    }

    /// The version of the trace.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The line, from 1, that was read last.
    pub fn line_number(&self) -> u64 {
        self.number
    }

    /// The next event; `None` at the end. What comes after an error is not told.
    pub fn next_event(&mut self) -> Result<Option<&RawEvent>, Error> {
        self.event.args.clear();
        self.event.data.clear();
        self.event.widths.clear();
        if !self.next_line()? {
            return match &self.widths {
                Some((line, _)) => Err(Error::line(*line, format!("no event follows {WIDTHS}"))),
                None => Ok(None),
            };
        }
        let mut tokens = Tokens(&self.line);
        let name = tokens.next().unwrap_or_default();
        let Some(kind) = Ev::from_name(name).filter(|&kind| knows(self.version, kind)) else {
            return Err(self.wrong(format!("{name:?} is no event of {}", self.version)));
        };
        self.event.kind = kind;
        let spec = kind.spec();
        let names = spec.args.iter().map(|arg| arg.name);
        arguments(tokens, names, &mut self.event.args).map_err(|what| self.wrong(format!("{name}: {what}")))?;
        if spec.frames {
            let frames = self.event.args[1];
            for i in 0..frames {
                if !self.next_line()? {
                    return Err(self.wrong(format!("the text ends in a stack: {i} of {frames} frames are there")));
                }
                let done = arguments(Tokens(&self.line), FRAME, &mut self.event.args);
                done.map_err(|what| self.wrong(format!("frame {} of {frames}: {what}", i + 1)))?;
            }
        }
        let widths = self.widths.take();
        if spec.data && self.next_line()? {
            match data(&self.line) {
                Some(data) => self.event.data = data.map_err(|what| self.wrong(what))?,
                None => self.kept = true, // Go leaves empty data out.
            }
        }
        self.set_widths(widths)?;
        Ok(Some(&self.event))
    }

    fn wrong(&self, what: impl Into<String>) -> Error {
        Error::line(self.number, what)
    }

    /// What a line before the event said of its numbers.
    fn set_widths(&mut self, widths: Option<(u64, Vec<u8>)>) -> Result<(), Error> {
        let Some((line, widths)) = widths else { return Ok(()) };
        let (said, has) = (widths.len(), self.event.numbers());
        if said != has {
            return Err(Error::line(line, format!("{said} widths, but the event after it has {has} numbers")));
        }
        let len = self.event.kind.spec().data.then_some(self.event.data.len() as u64);
        let numbers = self.event.args.iter().copied().chain(len);
        if let Some((&width, number)) =
            widths.iter().zip(numbers).find(|&(&width, number)| usize::from(width) < varint::len(number))
        {
            return Err(Error::line(line, format!("{number} does not fit {width} bytes")));
        }
        self.event.widths = widths;
        Ok(())
    }

    /// The next line that is neither empty nor a comment.
    fn next_line(&mut self) -> Result<bool, Error> {
        if std::mem::take(&mut self.kept) {
            return Ok(true);
        }
        loop {
            self.line.clear();
            match self.from.read_line(&mut self.line) {
                Ok(0) => return Ok(false),
                Ok(_) => self.number += 1,
                Err(e) if e.kind() == ErrorKind::InvalidData => {
                    return Err(Error::line(self.number + 1, "the line is not UTF-8"));
                }
                Err(e) => return Err(e.into()),
            }
            if let Some(widths) = self.line.strip_prefix(WIDTHS).filter(|rest| rest.starts_with([' ', '\t'])) {
                let widths: Option<Vec<u8>> = widths
                    .split_whitespace()
                    .map(|width| width.parse().ok().filter(|width| (1..=varint::MAX_BYTES as u8).contains(width)))
                    .collect();
                let widths = widths.ok_or_else(|| self.wrong(format!("{WIDTHS} takes numbers from 1 to 10")))?;
                self.widths = Some((self.number, widths));
            }
            if Tokens(&self.line).next().is_some() {
                return Ok(true);
            }
        }
    }
}

/// The words of a line up to a comment.
struct Tokens<'t>(&'t str);

impl<'t> Iterator for Tokens<'t> {
    type Item = &'t str;

    fn next(&mut self) -> Option<&'t str> {
        let text = self.0.trim_start();
        let end = text.find(|c: char| c.is_whitespace() || c == '#').unwrap_or(text.len());
        let (token, rest) = text.split_at(end);
        self.0 = rest;
        (!token.is_empty()).then_some(token)
    }
}

/// Appends the values of the arguments with these names; there must be no other.
fn arguments<'n>(
    mut tokens: Tokens<'_>,
    names: impl IntoIterator<Item = &'n str>,
    args: &mut Vec<u64>,
) -> Result<(), String> {
    for name in names {
        let token = tokens.next().ok_or_else(|| format!("{name}= is missing"))?;
        let (found, value) = token.split_once('=').ok_or_else(|| format!("{token:?} stands where {name}= must"))?;
        if found != name {
            return Err(format!("{found}= stands where {name}= must"));
        }
        let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
        let value = if digits { value.parse().ok() } else { None };
        args.push(value.ok_or_else(|| format!("{token:?} is no number of 64 bits"))?);
    }
    match tokens.next() {
        Some(more) => Err(format!("{more:?} is too much")),
        None => Ok(()),
    }
}

/// The bytes of a line `data="..."`; `None` if it is no such line.
fn data(line: &str) -> Option<Result<Vec<u8>, String>> {
    let quoted = line.trim_start().strip_prefix("data")?.trim_start().strip_prefix('=')?;
    Some(match unquote(quoted.trim_start()) {
        Err(what) => Err(format!("data: {what}")),
        Ok((bytes, rest)) => match Tokens(rest).next() {
            Some(more) => Err(format!("{more:?} is too much")),
            None => Ok(bytes),
        },
    })
}

/// Writes events as text.
#[derive(Debug)]
pub struct TextWriter<W> {
    to: W,
    widths: Widths,
    buf: String,
}

/// How much is written at once.
const CHUNK: usize = 64 << 10;

impl<W: Write> TextWriter<W> {
    /// A writer of a text of this version.
    pub fn new(to: W, version: Version, widths: Widths) -> Result<TextWriter<W>, Error> {
        Ok(TextWriter { to, widths, buf: format!("Trace Go1.{}\n", version.minor()) })
    }

    /// Adds an event.
    pub fn write(&mut self, event: &RawEvent) -> Result<(), Error> {
        use std::fmt::Write;
        let buf = &mut self.buf;
        if self.widths == Widths::Keep && !event.widths.is_empty() {
            *buf += WIDTHS;
            for width in &event.widths {
                let _ = write!(buf, " {width}");
            }
            buf.push('\n');
        }
        let spec = event.kind.spec();
        *buf += spec.name;
        for (arg, value) in spec.args.iter().zip(&event.args) {
            let _ = write!(buf, " {}={value}", arg.name);
        }
        for frame in event.args.get(spec.args.len()..).unwrap_or_default().chunks(FRAME.len()) {
            for (i, (name, value)) in FRAME.iter().zip(frame).enumerate() {
                let _ = write!(buf, "{}{name}={value}", if i == 0 { "\n\t" } else { " " });
            }
        }
        if spec.data && (self.widths == Widths::Keep || !event.data.is_empty()) {
            *buf += "\n\tdata=";
            quote(buf, &event.data);
        }
        buf.push('\n');
        if buf.len() >= CHUNK {
            self.to.write_all(buf.as_bytes())?;
            buf.clear();
        }
        Ok(())
    }

    /// Writes what is not written yet.
    pub fn finish(mut self) -> Result<(), Error> {
        self.to.write_all(self.buf.as_bytes())?;
        Ok(self.to.flush()?)
    }
}
