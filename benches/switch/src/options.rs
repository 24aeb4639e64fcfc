//! The command line.

use crate::rivals::Contender;
use crate::workload::{Suite, Workload};
use std::path::PathBuf;
use std::time::Duration;

/// What `--help` prints.
pub const HELP: &str = "\
What goroutines and their sockets cost: ours beside Go, tokio, may, smol and plain threads, in one run.

usage: cargo xtask bench [net|http|gc] [OPTION...]

  --suite WORD       switch: the scheduler and its primitives; net: sockets; http: a server beside wrk; gc: the collected
                     heap (switch, or what --workloads belong to)
  --rounds N         rounds of which the median is shown (7; 3 at most where goroutines are parked or dial)
  --millis N         least length of a measured run (switch 100, net 500, http 5000)
  --procs N,...      numbers of Ps (1,2)
  --only WORD,...    contenders (all that take part)
             everywhere: gort go
             switch:     tokio may smol std parking_lot crossbeam gort-sink gort-file gort-flight go-sink go-flight
             net:        tokio may smol std mio gort-sink gort-file gort-flight go-sink go-flight
             http:       tokio
             gc:         std gort-sink go-sink
  --workloads W,...  some of a suite (all)
             switch:     yield-1 yield-1000 spawn-join spawn-group spawn-million ping-pong buffered-1x1 buffered-4x4 mutex
                         mutex-8 mutex-storm skynet timers memory memory-64k idle cores
             net:        echo-64 echo-1000 churn stream connected dial
             http:       hello
             gc:         gc-trees gc-graph gc-pause-10m gc-pause-1g
  --limit N          seconds after which a child is killed (120)
  --markdown FILE    also write the tables there, between the marks for this suite and allocator
  --go PATH          the go command (else $GO, the PATH, or the one that conformance installs)
  --seed N           order of the children (from the clock)
  --quick            one round of a moment, with less of everything in net: whether it works, not what it costs

With mimalloc in place of the system's allocator:
  cargo run --release --package gort-switch --features mimalloc -- [OPTION...]

docs/BENCHMARKS.md anew, all suites and both allocators, in an hour:
  cargo xtask bench publish [OPTION...]
";

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Print the help text.
    Help,
    /// Be one contender in one workload, and print what it cost.
    Child(Child),
    /// Be a server of HTTP.
    Serve(Serve),
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
    /// Only whether it works.
    pub quick: bool,
    /// How many idle connections, where fewer are allowed than the workload has.
    pub connections: Option<usize>,
}

/// A server of HTTP.
#[derive(Debug)]
pub struct Serve {
    /// Where it listens.
    pub address: String,
    /// With how many Ps.
    pub procs: usize,
}

/// The whole bench.
#[derive(Debug)]
pub struct Options {
    /// What all the workloads belong to.
    pub suite: Suite,
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
    /// Only whether it works.
    pub quick: bool,
}

/// Reads the command line.
pub fn parse(args: &[String]) -> Result<Command, String> {
    let (mut suite, mut rounds, mut at_least) = (None, None, None);
    let (mut contenders, mut workloads) = (None, None);
    let (mut child, mut serve, mut connections) = (None, None, None);
    let mut options = Options {
        suite: Suite::Switch,
        rounds: 7,
        at_least: Duration::ZERO,
        procs: vec![1, 2],
        contenders: Vec::new(),
        workloads: Vec::new(),
        limit: Duration::from_secs(120),
        markdown: None,
        go: None,
        seed: std::time::UNIX_EPOCH.elapsed().map_or(1, |since| since.subsec_nanos().into()),
        quick: false,
    };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--help" | "-h" => return Ok(Command::Help),
            "--quick" => {
                options.quick = true;
                continue;
            }
            _ => {}
        }
        let value = args.next().ok_or_else(|| format!("{arg} needs a value; --help lists the options"))?;
        match arg.as_str() {
            "--suite" => suite = Some(suite_of(value)?),
            "--rounds" => rounds = Some(number(arg, value)?),
            "--millis" => at_least = Some(Duration::from_millis(number(arg, value)? as u64)),
            "--procs" => options.procs = list(value, |word| number(arg, word))?,
            "--only" => contenders = Some(list(value, contender)?),
            "--workloads" => workloads = Some(list(value, workload)?),
            "--limit" => options.limit = Duration::from_secs(number(arg, value)? as u64),
            "--markdown" => options.markdown = Some(value.into()),
            "--go" => options.go = Some(value.into()),
            "--seed" => options.seed = number(arg, value)? as u64,
            // For the children of a run; not in the help text.
            "--child" => child = Some(contender(value)?),
            "--connections" => connections = Some(number(arg, value)?),
            "--serve" => serve = Some(value.clone()),
            _ => return Err(format!("no option {arg:?}; --help lists them")),
        }
    }
    options.suite = suite.or_else(|| Some(workloads.as_ref()?.first()?.spec().suite)).unwrap_or(Suite::Switch);
    options.workloads = workloads.unwrap_or_else(|| Workload::all(options.suite));
    options.contenders = contenders.unwrap_or_else(|| Contender::all(options.suite));
    let (usual_rounds, usual_length) =
        if options.quick { (1, Duration::from_millis(1)) } else { (7, options.suite.at_least()) };
    options.rounds = rounds.unwrap_or(usual_rounds);
    options.at_least = at_least.unwrap_or(usual_length);
    if let Some(stray) = options.workloads.iter().find(|workload| workload.spec().suite != options.suite) {
        let suite = stray.spec().suite.word();
        return Err(format!("{} is of the suite {suite}, not {}: they run apart", stray.word(), options.suite.word()));
    }
    if options.quick && options.markdown.is_some() {
        return Err("--quick measures nothing that belongs into tables: leave out --markdown".into());
    }
    let one_procs = |options: &Options| match options.procs[..] {
        [procs] => Ok(procs),
        _ => Err("a child has one number of Ps".to_owned()),
    };
    if let Some(address) = serve {
        return Ok(Command::Serve(Serve { address, procs: one_procs(&options)? }));
    }
    if let Some(contender) = child {
        let [workload] = options.workloads[..] else { return Err("a child has one workload".into()) };
        let procs = one_procs(&options)?;
        let Options { at_least, quick, .. } = options;
        return Ok(Command::Child(Child { contender, workload, procs, at_least, quick, connections }));
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

fn suite_of(word: &str) -> Result<Suite, String> {
    Suite::of(word).ok_or_else(|| format!("no suite {word:?}: switch, net, http or gc"))
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
    fn the_suite_follows_from_the_workloads() {
        let Ok(Command::Bench(options)) = parse_words("--workloads churn,echo-64") else { panic!("refused") };
        assert_eq!((options.suite, options.at_least), (Suite::Net, Duration::from_millis(500)));
        assert!(options.contenders.contains(&Contender::Mio) && !options.contenders.contains(&Contender::ParkingLot));
        assert!(parse_words("--workloads churn,mutex").is_err(), "two suites");
        assert!(parse_words("--suite net --workloads mutex").is_err(), "two suites");
    }

    #[test]
    fn quick_is_one_round_unless_asked_otherwise() {
        let Ok(Command::Bench(options)) = parse_words("--quick --suite net --rounds 2") else { panic!("refused") };
        assert_eq!((options.rounds, options.at_least), (2, Duration::from_millis(1)));
        assert!(parse_words("--quick --markdown x.md").is_err(), "its figures are none");
    }

    #[test]
    fn the_help_names_all() {
        let words = Suite::ALL.into_iter().flat_map(Workload::all).map(Workload::word);
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
