//! Reading: from bytes to events in order, and what they say.
//!
//! [`Reader`] gives the events of a trace one by one, each with the goroutine, the P and the M it happened on, after it
//! has found the one order in which they can have happened (or that there is none). [`validate`] looks at the outcome a
//! second time, with other eyes. [`salvage`] reads on behind what is broken, [`print`](mod@print) writes what
//! `go tool trace -d=parsed` does, [`analyze`](crate::analyze) counts and explains.
//!
//! ```no_run
//! # fn main() -> Result<(), tracer::read::Error> {
//! // A `TraceFile` would leave events in the file until they are wanted.
//! let mut reader = tracer::read::Reader::new(std::fs::File::open("trace.out")?)?;
//! while let Some(event) = reader.next() {
//!     let event = event?;
//!     let frames = reader.tables().stack(event.stack());
//!     println!("{} M {} P {} G {} {}", event.time, event.m, event.p, event.g, event.kind.name());
//!     for frame in frames {
//!         println!("    {} {}:{}", frame.func, frame.file, frame.line);
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Invariants:
//!
//! D1. A reader MUST hold one generation at a time at most (of a [`TraceFile`], less: see `source`), and take no memory that the bytes it has read do not account for.
//!     Otherwise a trace as long as a day, or a file made for harm, ends the process that looks at it.
//! D2. Nothing in a file may panic. What cannot be is an [`Error`] that says the rule, the resource and the byte.
//! D3. An error MUST come after the events of every whole generation before it: a cut or damaged file tells what it
//!     can.
#![forbid(unsafe_code)]

pub mod alloc_free;
mod batch;
mod error;
mod event;
mod frontier;
mod generation;
pub(crate) mod hash;
mod idtable;
pub mod order;
pub mod print;
mod reader;
mod resync;
mod rule;
pub mod salvage;
pub(crate) mod slots;
mod source;
mod tables;
pub mod validate;
mod version;

pub use error::{Broken, Error, Facts, Resource};
pub use event::{Event, Kind, NONE, Prior, Raw, State, Transition};
pub use generation::Info;
pub use reader::Reader;
pub use rule::Rule;
pub use source::{Input, TraceFile};
pub use tables::{ClockSnapshot, ExtRecord, Frame, Tables};
pub use version::Version;
