//! The command line.

use crate::rivals::Contender;
use crate::workload::Workload;
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` prints.
pub const HELP: &str = "\
What goroutines cost: ours beside Go, tokio, may, smol and plain threads, in one run.

usage: cargo xtask bench [OPTION...]

  --rounds N         rounds of which the median is shown (7; 3 at most where goroutines are parked)
  --millis N         least length of a measured run (100)
  --procs N,...      numbers of Ps (1,2)
  --only WORD,...    contenders: gort go tokio may smol std parking_lot crossbeam gort-sink gort-file (all)
  --workloads W,...  yield-1 yield-1000 spawn-join spawn-group spawn-million ping-pong buffered-1x1 buffered-4x4 mutex
                     mutex-8 skynet timers memory memory-64k idle cores (all)
  --limit N          seconds after which a child is killed (120)
  --markdown FILE    also write the tables there, between the marks for this allocator
  --go PATH          the go command (else $GO, the PATH, or the one that conformance installs)
  --seed N           order of the children (from the clock)

With mimalloc in place of the system's allocator:
  cargo run --release --package gort-switch --features mimalloc -- [OPTION...]

docs/BENCHMARKS.md anew, with both allocators, in half an hour:
  cargo xtask bench publish [OPTION...]
";

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Print the help text.
    Help,
    /// Be one contender in one workload, and print what it cost.
    Child(Child),
    /// Run the rounds.
    Bench(Options),
}

/// One contender in one workload.
#[derive(Debug, Clone, Copy)]
pub struct Child {
    /// Who.
    pub contender: Contender,
    /// What.
    pub workload: Workload,
    /// With how many Ps.
    pub procs: usize,
    /// For how long at least.
    pub at_least: Duration,
}

/// The whole bench.
#[derive(Debug)]
pub struct Options {
    /// How often each child runs.
    pub rounds: usize,
    /// For how long at least.
    pub at_least: Duration,
    /// Numbers of Ps.
    pub procs: Vec<usize>,
    /// Who takes part.
    pub contenders: Vec<Contender>,
    /// In what.
    pub workloads: Vec<Workload>,
    /// After which a child is killed.
    pub limit: Duration,
    /// Where the tables go, besides the terminal.
    pub markdown: Option<PathBuf>,
    /// The go command asked for.
    pub go: Option<PathBuf>,
    /// Seed of the order.
    pub seed: u64,
}

/// Reads the command line.
pub fn parse(args: &[String]) -> Result<Command, String> {
    let mut options = Options {
        rounds: 7,
        at_least: Duration::from_millis(100),
        procs: vec![1, 2],
        contenders: Contender::ALL.to_vec(),
        workloads: Workload::all(),
        limit: Duration::from_secs(120),
        markdown: None,
        go: None,
        seed: std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.subsec_nanos().into()),
    };
    let mut child = false;
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if matches!(arg.as_str(), "--help" | "-h") {
            return Ok(Command::Help);
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value; --help lists the options"))?;
        match arg.as_str() {
            "--rounds" => options.rounds = number(arg, value)?,
            "--millis" => options.at_least = Duration::from_millis(number(arg, value)? as u64),
            "--procs" => options.procs = list(value, |word| number(arg, word))?,
            "--only" => options.contenders = list(value, contender)?,
            "--workloads" => options.workloads = list(value, workload)?,
            "--limit" => options.limit = Duration::from_secs(number(arg, value)? as u64),
            "--markdown" => options.markdown = Some(value.into()),
            "--go" => options.go = Some(value.into()),
            "--seed" => options.seed = number(arg, value)? as u64,
            // For the children of a run; not in the help text.
            "--child" => {
                child = true;
                options.contenders = vec![contender(value)?];
            }
            _ => return Err(format!("no option {arg:?}; --help lists them")),
        }
    }
    if child {
        let one = "a child has one workload and one number of Ps";
        let ([contender], [workload], [procs]) = (&options.contenders[..], &options.workloads[..], &options.procs[..])
        else {
            return Err(one.into());
        };
        let at_least = options.at_least;
        return Ok(Command::Child(Child { contender: *contender, workload: *workload, procs: *procs, at_least }));
    }
    Ok(Command::Bench(options))
}

fn number(option: &str, word: &str) -> Result<usize, String> {
    match word.parse() {
        Ok(0) | Err(_) => Err(format!("{option} takes numbers from 1, not {word:?}")),
        Ok(number) => Ok(number),
    }
}

fn list<T>(value: &str, one: impl Fn(&str) -> Result<T, String>) -> Result<Vec<T>, String> {
    value.split(',').map(|word| one(word.trim())).collect()
}

fn contender(word: &str) -> Result<Contender, String> {
    Contender::of(word).ok_or_else(|| format!("no contender {word:?}; --help lists them"))
}

fn workload(word: &str) -> Result<Workload, String> {
    Workload::of(word).ok_or_else(|| format!("no workload {word:?}; --help lists them"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_words(line: &str) -> Result<Command, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn parses_lists() {
        let Ok(Command::Bench(options)) = parse_words("--procs 2,4 --only gort,go --workloads mutex --rounds 3") else {
            panic!("refused");
        };
        assert_eq!((options.procs, options.rounds), (vec![2, 4], 3));
        assert_eq!(options.contenders, [Contender::Gort, Contender::Go]);
        assert_eq!(options.workloads, [Workload::Mutex]);
    }

    #[test]
    fn parses_a_child() {
        let child = parse_words("--child may --workloads mutex --procs 2 --millis 5");
        assert!(matches!(child, Ok(Command::Child(Child { contender: Contender::May, procs: 2, .. }))));
        assert!(parse_words("--child may --workloads mutex").is_err(), "two numbers of Ps");
    }

    #[test]
    fn the_help_names_all() {
        let words = Workload::all().into_iter().map(Workload::word);
        for word in words.chain(Contender::ALL.map(Contender::word)) {
            assert!(HELP.split_whitespace().any(|known| known == word), "{word}");
        }
    }

    #[test]
    fn refuses_nonsense() {
        for line in ["--rounds", "--rounds 0", "--rounds x", "--only goo", "--procs 1,,2", "--frobnicate 1"] {
            assert!(parse_words(line).is_err(), "{line}");
        }
    }
}
