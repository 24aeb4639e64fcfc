//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use tracer::analyze::profile::ProfileKind;

/// Reads, checks and explains execution traces of Go (1.22 and later) and gort programs.
///
/// A trace is a file, or `-` for standard input; `.gz` and `.zst` are unpacked on the way. Start with `gort stat FILE`.
#[derive(Debug, Parser)]
#[command(name = "gort", version, propagate_version = true, after_help = EXIT_CODES)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub command: Command,

    /// When to use colours; `auto` looks at the terminal and at NO_COLOR
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,

    /// No progress bar on standard error
    #[arg(long, global = true)]
    pub no_progress: bool,
}

const EXIT_CODES: &str = "\
Exit codes:
  0  the trace is good
  1  the trace is damaged; what came before the damage was shown
  2  nothing could be read, or the command line is wrong";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Is it a valid trace? What is wrong with it, and where?
    Check(Check),
    /// On one screen: what did the program wait for, where, and was it the scheduler's fault?
    Stat(Stat),
    /// A profile of waits by stack, for `go tool pprof`
    Pprof(Pprof),
}

/// A trace, and how to show what is in it.
#[derive(Debug, clap::Args)]
pub(crate) struct Trace {
    /// The trace; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// JSON instead of text; times are in nanoseconds
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// The traces; `-` is standard input
    #[arg(value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,

    /// JSON instead of text: an object for each file
    #[arg(long)]
    pub json: bool,

    /// How many findings to show for each file
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub findings: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Stat {
    #[command(flatten)]
    pub trace: Trace,

    /// The runtime's own goroutines, too
    #[arg(long)]
    pub all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Pprof {
    #[command(flatten)]
    pub trace: Trace,

    /// What to count
    #[arg(long, value_enum, value_name = "KIND")]
    pub kind: Kind,

    /// Where to write it; `-` is standard output, the default
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Count also what `go tool trace -pprof` leaves out: waits open at the trace's begin or end, and each goroutine's wait
    /// for its first turn
    #[arg(long)]
    pub complete: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// Waits for sockets and pipes
    Net,
    /// Waits for channels, selects, locks and conditions
    Sync,
    /// Blocking calls
    Syscall,
    /// From runnable to running, by where it was made runnable
    Sched,
    /// Waits for channels and selects alone
    Chan,
    /// Running, by where it stopped
    Running,
}

impl From<Kind> for ProfileKind {
    fn from(kind: Kind) -> ProfileKind {
        match kind {
            Kind::Net => ProfileKind::Net,
            Kind::Sync => ProfileKind::Sync,
            Kind::Syscall => ProfileKind::Syscall,
            Kind::Sched => ProfileKind::Sched,
            Kind::Chan => ProfileKind::Chan,
            Kind::Running => ProfileKind::Running,
        }
    }
}
