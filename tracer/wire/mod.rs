//! The wire format: the words that the recorder writes and the reader reads.
//!
//! A trace is a header and then generations; a generation is a run of batches closed by one `EndOfGeneration` byte; a
//! batch is a header of four varints and at most [`MAX_BATCH_BYTES`] of events that one M wrote in order. FORMAT.md has
//! the whole story. Here are only the facts, each of them once: the recorder, the reader, the text form and the
//! documents all take them from this module.
//!
//! Invariants:
//!
//! W1. A limit here MUST NOT be exceeded by the writer. Otherwise Go's reader refuses the whole file.
//! W2. The numbers of [`Ev`], [`GoStatus`] and [`ProcStatus`] MUST NOT change: they are the file format.
//! W3. Reasons and labels MUST be spelled as in [`reason`]: the tools find what they know by comparing strings.
#![forbid(unsafe_code)]

pub mod ext;
pub mod reason;
pub mod spec;
pub mod varint;

pub use spec::{Arg, ArgKind, Ev, SPECS, Spec};

/// The first 16 bytes of a trace that we write.
pub const HEADER: [u8; 16] = *b"go 1.26 trace\0\0\0";

/// The number of the AllocFree experiment.
pub const ALLOC_FREE: u8 = 1;

/// The first byte of that experiment's batches of types.
pub const ALLOC_FREE_TYPES: u8 = 0;

/// The first byte of its batch that tells where its numbers count from.
pub const ALLOC_FREE_LAYOUT: u8 = 1;

/// The largest batch, counted without its header (the value of the batch's `size` argument).
pub const MAX_BATCH_BYTES: usize = 64 << 10;

/// The most frames that one stack of the stack table may have.
pub const MAX_FRAMES: usize = 128;

/// The longest string of the string table, in bytes.
pub const MAX_STRING_BYTES: usize = 1 << 10;

/// The most arguments that a timed event has, its time delta included.
pub const MAX_TIMED_ARGS: usize = 5;

/// The M of a batch that no thread wrote: tables, the sync batch, the statuses that the advancer adds for the census.
pub const NO_M: u64 = u64::MAX;

/// The most bytes that a batch's header takes: the type byte and four varints (the length always takes ten).
pub const MAX_BATCH_HEADER_BYTES: usize = 1 + 4 * varint::MAX_BYTES;

/// The most bytes that one timed event takes.
pub const MAX_EVENT_BYTES: usize = 1 + MAX_TIMED_ARGS * varint::MAX_BYTES;

/// What a goroutine is doing, as `GoStatus` and `GoStatusStack` say it.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoStatus {
    /// No status. Go's reader takes it as one all the same, so it has a name.
    Bad = 0,
    /// On a run queue, waiting for a P.
    Runnable = 1,
    /// Running on an M that has a P.
    Running = 2,
    /// In a blocking call on an M that may or may not still have its P.
    Syscall = 3,
    /// Blocked until somebody unblocks it.
    Waiting = 4,
}

impl GoStatus {
    /// The status with this wire value.
    pub const fn from_u8(v: u8) -> Option<GoStatus> {
        Some(match v {
            0 => GoStatus::Bad,
            1 => GoStatus::Runnable,
            2 => GoStatus::Running,
            3 => GoStatus::Syscall,
            4 => GoStatus::Waiting,
            _ => return None,
        })
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            GoStatus::Bad => "Bad",
            GoStatus::Runnable => "Runnable",
            GoStatus::Running => "Running",
            GoStatus::Syscall => "Syscall",
            GoStatus::Waiting => "Waiting",
        }
    }
}

/// What a P is doing, as `ProcStatus` says it.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcStatus {
    /// No status. Go's reader takes it as one all the same, so it has a name.
    Bad = 0,
    /// An M runs with it.
    Running = 1,
    /// Nobody has it.
    Idle = 2,
    /// Its M is in a blocking call and may lose it.
    Syscall = 3,
    /// As `Syscall`, but the call began before anything in the trace tells of it: it is about to be stolen, and no
    /// `GoSyscallEndBlocked` belongs to the theft.
    SyscallAbandoned = 4,
}

impl ProcStatus {
    /// The status with this wire value.
    pub const fn from_u8(v: u8) -> Option<ProcStatus> {
        Some(match v {
            0 => ProcStatus::Bad,
            1 => ProcStatus::Running,
            2 => ProcStatus::Idle,
            3 => ProcStatus::Syscall,
            4 => ProcStatus::SyscallAbandoned,
            _ => return None,
        })
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            ProcStatus::Bad => "Bad",
            ProcStatus::Running => "Running",
            ProcStatus::Idle => "Idle",
            ProcStatus::Syscall => "Syscall",
            ProcStatus::SyscallAbandoned => "SyscallAbandoned",
        }
    }
}

/// `s`, cut to at most [`MAX_STRING_BYTES`] at a character boundary.
pub fn cut_string(s: &str) -> &str {
    &s[..s.floor_char_boundary(MAX_STRING_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_survive_the_wire() {
        for v in 0..=u8::MAX {
            if let Some(s) = GoStatus::from_u8(v) {
                assert_eq!(s as u8, v);
            }
            if let Some(s) = ProcStatus::from_u8(v) {
                assert_eq!(s as u8, v);
            }
        }
        assert_eq!(GoStatus::from_u8(5), None);
        assert_eq!(ProcStatus::from_u8(5), None);
    }

    #[test]
    fn strings_are_cut_between_characters() {
        let long = "x".repeat(MAX_STRING_BYTES - 1) + "é";
        assert_eq!(cut_string(&long).len(), MAX_STRING_BYTES - 1);
        assert_eq!(cut_string("short"), "short");
    }
}
