//! The Go execution trace, format v2 (go 1.26): recording, reading and checking.
#![warn(missing_docs)]

#[cfg(feature = "read")]
pub mod analyze;
pub mod atomic;
pub mod barrier;
pub mod clock;
#[cfg(feature = "read")]
mod pages;
#[cfg(feature = "read")]
pub mod read;
pub mod record;
pub mod symbol;
#[cfg(feature = "read")]
pub mod text;
pub mod unwind;
pub mod wire;
