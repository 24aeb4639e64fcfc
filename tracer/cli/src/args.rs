//! The command line.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use tracer::analyze::WaitKind;
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
  1  the trace is damaged; what could be read of it was shown
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
    /// How goroutines spent their time, by the function they were started with
    Goroutines(Goroutines),
    /// How long goroutines waited for a P, and what the Ps did meanwhile
    Sched(Sched),
    /// Where goroutines waited, for what and how long, with stacks
    Blocked(Blocked),
    /// The program's tasks: how long they took, on which goroutines
    Tasks(Named),
    /// The program's regions: how long they took, and how that time was spent
    Regions(Named),
    /// GC cycles, stops of the world, and what was left to the program
    Gc(Gc),
    /// A profile of waits by stack, for `go tool pprof`
    Pprof(Pprof),
    /// The events, one in each line
    Print(Print),
    /// The events for other tools: JSON, CSV, or a timeline for chrome://tracing and Perfetto
    Export(Export),
    /// The bytes of a trace as lines, in the form of Go's internal/trace/raw; and lines as a trace
    Text(Text),
    /// A completion script for a shell
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Man pages, one for each command
    Man {
        /// The folder to write them into; it is made if it is not there
        #[arg(value_name = "DIR")]
        dir: PathBuf,
    },
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

    /// Wrong use of tasks and regions by the program is damage, as Go's tools have it
    #[arg(long)]
    pub strict: bool,
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

#[derive(Debug, clap::Args)]
pub(crate) struct Goroutines {
    #[command(flatten)]
    pub trace: Trace,

    /// Only those whose start function has this in its name
    #[arg(long, short, value_name = "PART")]
    pub function: Option<String>,

    /// The runtime's own goroutines, too
    #[arg(long)]
    pub all: bool,

    /// How many start functions to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Sched {
    #[command(flatten)]
    pub trace: Trace,

    /// How many start functions and waits to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Blocked {
    #[command(flatten)]
    pub trace: Trace,

    /// Only waits of these kinds; by default all but sleep
    #[arg(long, value_parser = wait_kind(), value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<WaitKind>,

    /// Also what the runtime's own goroutines wait for
    #[arg(long)]
    pub all: bool,

    /// How many stacks and waits to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,

    /// How many frames of each stack to show
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub frames: usize,
}

/// The kinds of waits, by their names.
fn wait_kind() -> impl TypedValueParser<Value = WaitKind> {
    PossibleValuesParser::new(WaitKind::ALL.map(WaitKind::name)).map(|name| {
        let named = |kind: &WaitKind| kind.name() == name;
        WaitKind::ALL.into_iter().find(named).expect("clap takes no other name")
    })
}

#[derive(Debug, clap::Args)]
pub(crate) struct Named {
    #[command(flatten)]
    pub trace: Trace,

    /// Only those that have this in their name
    #[arg(long, short, value_name = "PART")]
    pub name: Option<String>,

    /// How many names to show
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,

    /// More of each: the ten slowest, and messages
    #[arg(long, short)]
    pub details: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Gc {
    #[command(flatten)]
    pub trace: Trace,

    /// Lengths of windows to ask for, such as 500us or 10ms; by default from 1us to the length of the trace
    #[arg(long, value_name = "TIME", value_delimiter = ',', value_parser = parse_ns)]
    pub window: Vec<u64>,

    /// What counts as taken from the program
    #[arg(long, value_enum, value_name = "CAUSE", value_delimiter = ',', default_values_t = [Cause::Stops, Cause::Workers, Cause::Assists])]
    pub count: Vec<Cause>,

    /// How many cycles to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cause {
    /// Stops of the world for the GC: all Ps
    Stops,
    /// Mark workers, but for idle ones: their Ps
    Workers,
    /// Goroutines that assist: their Ps
    Assists,
    /// Sweeping: the Ps on which it happens
    Sweeps,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Print {
    #[command(flatten)]
    pub trace: Trace,

    /// Only events from this time on, such as 1.5s, counted from the first event
    #[arg(long, value_name = "TIME", value_parser = parse_ns, default_value = "0")]
    pub from: u64,

    /// Only events up to this time
    #[arg(long, value_name = "TIME", value_parser = parse_ns)]
    pub to: Option<u64>,

    /// Only events that happen on this goroutine, or to it; may be given several times
    #[arg(long, short, value_name = "ID", value_delimiter = ',')]
    pub goroutine: Vec<i64>,

    /// Only these: an event of the format (GoBlock) or a kind of Go's tools (RangeBegin); may be given several times
    #[arg(long, short, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<String>,

    /// With stacks
    #[arg(long)]
    pub stacks: bool,

    /// To the byte what `go tool trace -d=parsed` prints, of the events that are wanted
    #[arg(long, conflicts_with_all = ["json", "stacks"])]
    pub as_go: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Export {
    /// The trace; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// What to write
    #[arg(long, value_enum, value_name = "FORMAT", required_unless_present = "json")]
    pub format: Option<Format>,

    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,

    /// Where to write it; `-` is standard output, the default
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// With stacks (json; chrome has them, csv does not)
    #[arg(long)]
    pub stacks: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Text {
    /// The trace, or the text with --back; `-` is standard input
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// From text to trace
    #[arg(long)]
    pub back: bool,

    /// Exactly the lines that Go writes: without how many bytes each number takes, so that the way back gives the same
    /// trace, but not the same bytes
    #[arg(long, conflicts_with = "back")]
    pub plain: bool,

    /// An object in each line, with the place of its event in the file; there is no way back from that
    #[arg(long, conflicts_with_all = ["back", "plain"])]
    pub json: bool,

    /// Where to write it; `-` is standard output, the default
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// A timeline, for chrome://tracing and ui.perfetto.dev
    Chrome,
    /// An object in each line
    Json,
    /// A table with a head
    Csv,
}

/// A time with a unit as nanoseconds: `1.5ms`.
fn parse_ns(text: &str) -> Result<u64, String> {
    let text = text.strip_prefix('+').unwrap_or(text).trim();
    let unit_at = text.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(text.len());
    let (value, unit) = text.split_at(unit_at);
    let scale = match unit.trim() {
        "ns" => 1.0,
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "m" | "min" => 60e9,
        "" if value == "0" => 1.0,
        "" => return Err("say the unit: ns, us, ms, s or m".into()),
        other => return Err(format!("{other:?} is not a unit; there are ns, us, ms, s and m")),
    };
    let value: f64 = value.parse().map_err(|_| format!("{value:?} is not a number"))?;
    Ok((value * scale).round() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Args::command().debug_assert();
    }

    #[test]
    fn times_need_a_unit() {
        let times = ["0", "15ns", "1.5ms", "+2 us", "3s", "1m"].map(parse_ns);
        assert_eq!(times, [0, 15, 1_500_000, 2_000, 3_000_000_000, 60_000_000_000].map(Ok));
        assert!(["", "5", "x", "1.2.3s", "-1s", "3 weeks"].iter().all(|text| parse_ns(text).is_err()));
    }
}
