//! Who takes part. One file per library, which alone names it.

pub mod counted;
pub mod crossbeam;
pub mod golang;
pub mod gort;
pub mod gort_heap;
pub mod may;
pub mod parking_lot;
pub mod smol;
pub mod stdlib;
pub mod threads;
pub mod tokio;

use crate::workload::{Kind, Suite, Workload};

/// A library, ours in three states, Go in two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// Ours, the tracer off.
    Gort,
    /// The language.
    Go,
    /// The crate tokio, multi-threaded, all drivers on.
    Tokio,
    /// The crate may: stackful coroutines.
    May,
    /// The crate smol: its executor, with async-channel, async-lock and async-io.
    Smol,
    /// std on plain threads.
    Std,
    /// parking_lot on plain threads.
    ParkingLot,
    /// crossbeam-channel on plain threads.
    Crossbeam,
    /// A loop around mio's poll, which knows what it waits for: a floor, not a rival.
    Mio,
    /// Ours, traced to a sink that counts and discards.
    GortSink,
    /// Ours, traced to a file.
    GortFile,
    /// Ours, with a flight recorder that keeps 10 MiB.
    GortFlight,
    /// Go, traced to a sink that counts and discards.
    GoSink,
    /// Go, with its flight recorder.
    GoFlight,
}

/// Where a trace goes.
#[derive(Debug, Clone, Copy)]
pub enum Sink {
    /// Nowhere, but it is counted.
    Discard,
    /// To a temporary file.
    File,
    /// Into a flight recorder's memory.
    Flight,
}

/// Whether a contender has something to run in a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// It runs.
    Takes,
    /// It would be expected to, and cannot.
    Cannot(&'static str),
    /// Nobody would expect it to.
    Absent,
}

impl Contender {
    /// All of them, in the order of the report.
    pub const ALL: [Contender; 14] = [
        Contender::Gort,
        Contender::Go,
        Contender::Tokio,
        Contender::May,
        Contender::Smol,
        Contender::Std,
        Contender::ParkingLot,
        Contender::Crossbeam,
        Contender::Mio,
        Contender::GortSink,
        Contender::GortFile,
        Contender::GortFlight,
        Contender::GoSink,
        Contender::GoFlight,
    ];
    /// The other Rust libraries with tasks of their own.
    pub const LIBRARIES: [Contender; 3] = [Contender::Tokio, Contender::May, Contender::Smol];
    /// Those on plain threads. P is for them the number of processors that the process may use.
    pub const THREADS: [Contender; 3] = [Contender::Std, Contender::ParkingLot, Contender::Crossbeam];

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Contender::Gort => "gort",
            Contender::Go => "go",
            Contender::Tokio => "tokio",
            Contender::May => "may",
            Contender::Smol => "smol",
            Contender::Std => "std",
            Contender::ParkingLot => "parking_lot",
            Contender::Crossbeam => "crossbeam",
            Contender::Mio => "mio",
            Contender::GortSink => "gort-sink",
            Contender::GortFile => "gort-file",
            Contender::GortFlight => "gort-flight",
            Contender::GoSink => "go-sink",
            Contender::GoFlight => "go-flight",
        }
    }

    /// The contender of a word.
    pub fn of(word: &str) -> Option<Contender> {
        Contender::ALL.into_iter().find(|contender| contender.word() == word)
    }

    /// Those that run anything in a suite, in the order of the report.
    pub fn all(suite: Suite) -> Vec<Contender> {
        let workloads = Workload::all(suite);
        let takes_part = |one: &Contender| workloads.iter().any(|&workload| one.part(workload) == Part::Takes);
        Contender::ALL.into_iter().filter(takes_part).collect()
    }

    /// Ours, in any state.
    pub fn is_ours(self) -> bool {
        self == Contender::Gort || self.sink().is_some()
    }

    /// Ours with the tracer on: where the trace goes.
    pub fn sink(self) -> Option<Sink> {
        match self {
            Contender::GortSink => Some(Sink::Discard),
            Contender::GortFile => Some(Sink::File),
            Contender::GortFlight => Some(Sink::Flight),
            _ => None,
        }
    }

    /// Go, in any state: a program of its own.
    pub fn is_go(self) -> bool {
        matches!(self, Contender::Go | Contender::GoSink | Contender::GoFlight)
    }

    /// With the tracer on: who it is without.
    pub fn untraced(self) -> Option<Contender> {
        match self {
            Contender::GortSink | Contender::GortFile | Contender::GortFlight => Some(Contender::Gort),
            Contender::GoSink | Contender::GoFlight => Some(Contender::Go),
            _ => None,
        }
    }

    /// With the tracer on.
    pub fn is_traced(self) -> bool {
        self.untraced().is_some()
    }

    /// Whether it has something to run there.
    pub fn part(self, workload: Workload) -> Part {
        use Workload::*;
        match workload.spec().suite {
            Suite::Switch => {}
            Suite::Net => return self.part_in_net(workload),
            Suite::Http if matches!(self, Contender::Gort | Contender::Go | Contender::Tokio) => return Part::Takes,
            Suite::Http => return Part::Absent,
            Suite::Gc => {
                let takes = match self {
                    Contender::Gort | Contender::Go => true,
                    Contender::GortSink | Contender::GoSink | Contender::Std => matches!(workload, GcTrees | GcGraph),
                    _ => false,
                };
                return if takes { Part::Takes } else { Part::Absent };
            }
        }
        match (self, workload) {
            (Contender::Go, Memory64K) => {
                Part::Cannot("its stacks begin at 2 KiB and grow: there is no size to choose")
            }
            (Contender::Tokio | Contender::Smol, Memory64K) => Part::Cannot("its tasks have no stacks"),
            (Contender::Std, PingPong | Buffered1 | Mutex | Mutex8 | MutexStorm) => Part::Takes,
            (Contender::Std, Buffered4) => Part::Cannot("its channels have one receiver"),
            (Contender::ParkingLot, Mutex | Mutex8 | MutexStorm) => Part::Takes,
            (Contender::Crossbeam, PingPong | Buffered1 | Buffered4) => Part::Takes,
            (Contender::Std | Contender::ParkingLot | Contender::Crossbeam, _) => Part::Absent,
            (Contender::Mio, _) => Part::Absent,
            (traced, Cores) if traced.is_traced() => Part::Absent,
            (traced, _) if traced.is_traced() => match workload.spec().kind {
                Kind::Rate | Kind::Burst(_) => Part::Takes,
                _ => Part::Absent,
            },
            _ => Part::Takes,
        }
    }

    fn part_in_net(self, workload: Workload) -> Part {
        use Workload::*;
        let takes = match self {
            Contender::Gort | Contender::Go => true,
            Contender::Tokio => workload != Dial,
            Contender::May | Contender::Smol | Contender::Mio => matches!(workload, Echo64 | Echo1000 | Churn),
            Contender::Std => matches!(workload, Echo64 | Churn | Stream),
            Contender::ParkingLot | Contender::Crossbeam => false,
            _ => matches!(workload, Echo64 | Echo1000),
        };
        if takes { Part::Takes } else { Part::Absent }
    }
}
