//! `gort` reads, checks and explains the execution traces of Go and gort programs.
//!
//! ```text
//! args (what is asked)  ->  command::*  ->  input (a file, decompressed, with its progress)  ->  tracer::read
//!                               |      ->  tracer::analyze (one pass over the events)
//!                               `----->  text (tables, colours) or serde_json
//! ```
//!
//! Invariants:
//!
//! C1. Nothing about the trace MUST be printed before the trace is read, but by commands that print events; so a table is
//!     never of a part of the file without saying so.
//! C2. Two runs over one file MUST print the same bytes: nothing comes from the order of a hash map, from a clock, or from
//!     the width of the terminal unless it is one.
//! C3. The exit code MUST be 0 if the trace is good, 1 if it is damaged and something was shown, 2 if nothing could be.
//! C4. A reader that goes away (`| head`) MUST end the program in silence.
#![forbid(unsafe_code)]

mod args;
mod command;
mod input;
mod pprof;
mod record;
mod text;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Args, Command};
use crate::text::Out;

/// How a command ends, as an exit code (C3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Good = 0,
    Damaged = 1,
    Unreadable = 2,
}

/// Why a command could not do what was asked.
#[derive(Debug)]
enum Failure {
    /// Standard output, or the file of `--output`, does not take what is written.
    Output(io::Error),
    /// The rest, as a sentence.
    Other(String),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Output(error)
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Other(why)
    }
}

type Outcome = Result<Verdict, Failure>;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut out = Out::stdout(args.color);
    let outcome = run(args, &mut out).and_then(|verdict| {
        out.flush()?;
        Ok(verdict)
    });
    let verdict = match outcome {
        Ok(verdict) => verdict,
        Err(Failure::Output(error)) if error.kind() == ErrorKind::BrokenPipe => Verdict::Good,
        Err(Failure::Output(error)) => complain(&format!("cannot write: {error}")),
        Err(Failure::Other(why)) => complain(&why),
    };
    ExitCode::from(verdict as u8)
}

fn complain(why: &str) -> Verdict {
    say(Verdict::Unreadable, why)
}

/// Says something on standard error, and hands the verdict on.
fn say(verdict: Verdict, what: &str) -> Verdict {
    // If nobody listens on stderr either, there is nobody to tell.
    let _ = writeln!(io::stderr(), "gort: {what}");
    verdict
}

fn run(args: Args, out: &mut Out) -> Outcome {
    let progress = !args.no_progress;
    match args.command {
        Command::Check(check) => command::check::run(&check, progress, out),
        Command::Stat(stat) => command::stat::run(&stat, progress, out),
        Command::Goroutines(goroutines) => command::goroutines::run(&goroutines, progress, out),
        Command::Sched(sched) => command::sched::run(&sched, progress, out),
        Command::Blocked(blocked) => command::blocked::run(&blocked, progress, out),
        Command::Tasks(tasks) => command::tasks::run(&tasks, progress, out),
        Command::Regions(regions) => command::regions::run(&regions, progress, out),
        Command::Gc(gc) => command::gc::run(&gc, progress, out),
        Command::Pprof(pprof) => command::pprof::run(&pprof, progress, out),
        Command::Print(print) => command::print::run(&print, progress, out),
        Command::Export(export) => command::export::run(&export, progress, out),
        Command::Text(text) => command::text::run(&text, progress, out),
        Command::Completions { shell } => command::manual::completions(shell, out),
        Command::Man { dir } => command::manual::man(&dir),
    }
}
