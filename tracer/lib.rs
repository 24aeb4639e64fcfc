//! The Go execution trace, format v2 (go 1.26): recording, reading and checking.
#![warn(missing_docs)]

pub mod atomic;
pub mod barrier;
pub mod clock;
pub mod wire;
pub mod unwind;
pub mod symbol;
pub mod record;
#[cfg(feature = "read")]
pub mod read;
