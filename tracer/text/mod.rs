//! The text form: a trace as lines that a person can read, write and compare.
//!
//! It is that of Go's `internal/trace/raw`, which `go tool trace -d=wire` prints and Go's own test traces are kept in:
//!
//! ```text
//! Trace Go1.26
//! EventBatch gen=1 m=18446744073709551615 time=1000 size=8
//! Strings
//! String id=1
//!         data="main"
//! ```
//!
//! One event a line, its arguments by name and in order; the frames of a stack and the bytes of a string on lines of
//! their own. Nothing is interpreted: a batch's header is an event like any other, its `size` has to be right for a
//! reader to take the trace, and a broken trace has a text form as long as its bytes are events.
//!
//! ```
//! # fn main() -> Result<(), tracer::text::Error> {
//! let text = "Trace Go1.26\nEventBatch gen=1 m=7 time=1000 size=5\nProcStatus dt=1 p=0 pstatus=1\n";
//! let mut trace = Vec::new();
//! tracer::text::to_trace(text.as_bytes(), &mut trace)?;
//! assert_eq!(trace[16..], [1, 1, 7, 0xe8, 7, 5, 13, 1, 0, 1]);
//! let mut again = Vec::new();
//! tracer::text::to_text(&trace[..], &mut again, tracer::text::Widths::Keep)?;
//! assert_eq!(again, text.as_bytes());
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//!
//! X1. A trace that becomes text with [`Widths::Keep`] and a trace again MUST be the same to the byte. Otherwise a text
//!     could not stand for the file that showed an error.
//! X2. The text MUST be one that Go's reader of this form takes, as long as its lines are (64 KiB), and what that takes
//!     is taken here: what it has no word for is in comments. (Here a comment may also stand behind an event, and empty data
//!     be left out.)
//! X3. Nothing in a file, binary or text, may panic or take memory that the bytes read do not account for.
//!
//! What Go's form has no word for is how many bytes a number takes: a recorder leaves ten for a batch's size, before it
//! knows it. A line `#widths 1 1 3 10` says it of the numbers of the event that follows, where one of them is not as
//! short as it could be.
#![forbid(unsafe_code)]

mod binary;
mod error;
mod event;
mod lines;
pub(crate) mod quote;

use std::io::{BufRead, Read, Write};

pub use binary::{BinaryReader, BinaryWriter};
pub use error::Error;
pub use event::RawEvent;
pub use lines::{TextReader, TextWriter};

/// Whether a text says how many bytes each number takes in the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widths {
    /// It does, where that is not the least: a trace can be had back to the byte.
    Keep,
    /// It does not: exactly the lines that Go writes, which leave out empty data, too.
    Drop,
}

/// Writes a trace as text, event by event.
///
/// An error comes after all the events before it.
pub fn to_text<R: Read, W: Write>(trace: R, text: W, widths: Widths) -> Result<(), Error> {
    let mut reader = BinaryReader::new(trace)?;
    let mut writer = TextWriter::new(text, reader.version(), widths)?;
    let done = loop {
        match reader.next_event() {
            Ok(Some(event)) => writer.write(event)?,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    writer.finish()?;
    done
}

/// Writes a text as a trace, event by event.
///
/// Whether that is a good trace is not asked. An error comes after all the events before it.
pub fn to_trace<R: BufRead, W: Write>(text: R, trace: W) -> Result<(), Error> {
    let mut reader = TextReader::new(text)?;
    let mut writer = BinaryWriter::new(trace, reader.version())?;
    let done = loop {
        match reader.next_event() {
            Ok(Some(event)) => writer.write(event)?,
            Ok(None) => break Ok(()),
            Err(e) => break Err(e),
        }
    };
    writer.finish()?;
    done
}

#[cfg(test)]
mod tests;
