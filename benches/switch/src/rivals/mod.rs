//! Who takes part. One file per library, which alone names it.

pub mod golang;
pub mod gort;
pub mod may;
pub mod tokio;

use crate::workload::Workload;

/// A library, ours in three states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Ours, the tracer off.
    Gort,
    /// Ours, traced to a sink that counts and discards.
    GortSink,
    /// Ours, traced to a file.
    GortFile,
    /// The crate may: stackful coroutines.
    May,
    /// The crate tokio, multi-threaded, all drivers on.
    Tokio,
    /// The language.
    Go,
}

/// Where a trace goes.
#[derive(Debug, Clone, Copy)]
pub enum Sink {
    /// Nowhere, but it is counted.
    Discard,
    /// To a temporary file.
    File,
}

impl Contender {
    /// All of them, in the order of the report.
    pub const ALL: [Contender; 6] =
        [Contender::Gort, Contender::May, Contender::Tokio, Contender::Go, Contender::GortSink, Contender::GortFile];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Contender::Gort => "gort",
            Contender::GortSink => "gort-sink",
            Contender::GortFile => "gort-file",
            Contender::May => "may",
            Contender::Tokio => "tokio",
            Contender::Go => "go",
        }
    }

    /// The contender of a word.
    pub fn of(word: &str) -> Option<Contender> {
        Contender::ALL.into_iter().find(|contender| contender.word() == word)
    }

    /// Ours, with the tracer on.
    pub fn is_traced(self) -> bool {
        matches!(self, Contender::GortSink | Contender::GortFile)
    }

    /// Whether it has something to run there.
    pub fn takes_part(self, workload: Workload) -> bool {
        !(workload == Workload::SpawnGroup && matches!(self, Contender::May | Contender::Tokio))
    }
}
