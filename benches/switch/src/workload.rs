//! What is measured: the table of workloads.

use std::fmt;
use std::time::Duration;

/// Goroutines in the crowded yield and in one batch of spawns. Numbers of operations are multiples of it.
pub const CROWD: u64 = 1_000;
/// Messages that fit into a buffered channel.
pub const BUFFER: usize = 128;
/// Goroutines that want the contended mutex.
pub const RIVALRY: u64 = 8;
/// Children of a node of skynet. Where channels have a bound of one at least, there is room for one message of each.
pub const BRANCHES: u64 = 10;
/// Goroutines that sleep.
pub const SLEEPERS: usize = 100_000;
/// How often each of them does.
pub const NAPS: usize = 10;
/// For how long: all of them, ideally, for a second.
pub const NAP: Duration = Duration::from_millis(100);

/// Depths of the binary trees, in steps of two.
pub const TREE_DEPTH_MIN: u32 = 4;
/// The deepest, and the one that lives all the while.
pub const TREE_DEPTH_MAX: u32 = 18;
/// Objects of a cycle.
pub const RING: u64 = 8;
/// Cycles that each of [`RIVALRY`] goroutines keeps.
pub const RINGS: usize = 3_000;

/// Collections whose pauses are measured.
pub const COLLECTIONS: usize = 50;

/// So many trees of one depth that each depth has its share of the nodes.
pub fn trees_of_depth(depth: u32, nodes: u64) -> u64 {
    let depths = u64::from((TREE_DEPTH_MAX - TREE_DEPTH_MIN) / 2 + 1);
    (nodes / depths / ((2 << depth) - 1)).max(1)
}

/// Workloads that are run and reported together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suite {
    /// The scheduler and its primitives.
    Switch,
    /// Sockets, client and server in one process.
    Net,
    /// A server of HTTP beside wrk.
    Http,
    /// The collected heap.
    Gc,
}

impl Suite {
    /// All of them.
    pub const ALL: [Suite; 4] = [Suite::Switch, Suite::Net, Suite::Http, Suite::Gc];

    /// The word on the command line, and in the marks of the tables.
    pub fn word(self) -> &'static str {
        match self {
            Suite::Switch => "switch",
            Suite::Net => "net",
            Suite::Http => "http",
            Suite::Gc => "gc",
        }
    }

    /// The suite of a word.
    pub fn of(word: &str) -> Option<Suite> {
        Suite::ALL.into_iter().find(|suite| suite.word() == word)
    }

    /// How long a measured run is at least, unless asked otherwise. A thousand connections take longer to get into step.
    pub fn at_least(self) -> Duration {
        match self {
            Suite::Switch | Suite::Gc => Duration::from_millis(100),
            Suite::Net => Duration::from_millis(500),
            Suite::Http => Duration::from_secs(5),
        }
    }
}

/// One thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Workload {
    /// One goroutine that yields; nobody else wants to run.
    Yield1,
    /// A thousand goroutines that yield.
    Yield1000,
    /// Batches of a thousand goroutines that do nothing, each joined by its handle.
    SpawnJoin,
    /// The same, joined by one wait group.
    SpawnGroup,
    /// A million goroutines that do nothing, all spawned before the first is waited for; joined by one wait group.
    SpawnMillion,
    /// Two goroutines, two channels without a buffer.
    PingPong,
    /// A sender, a receiver, a channel with a buffer.
    Buffered1,
    /// Four senders, four receivers, a channel with a buffer.
    Buffered4,
    /// One goroutine that locks, adds one and unlocks.
    Mutex,
    /// Eight goroutines that do so, with one mutex and nothing in between.
    Mutex8,
    /// Eight goroutines that lock, yield and unlock, so that all the others wait.
    MutexStorm,
    /// A tree of goroutines, ten children a node, that sends the sum of its leaves up through channels without a buffer.
    Skynet,
    /// Many goroutines that sleep a few times.
    Timers,
    /// A million goroutines that wait for one channel.
    Memory,
    /// The same, with stacks of 64 KiB.
    Memory64K,
    /// Ten thousand goroutines that wait, and nothing else.
    Idle,
    /// Ping-pong of one pair with eight Ps.
    Cores,
    /// Messages there and back through 64 connections at once.
    Echo64,
    /// The same through a thousand.
    Echo1000,
    /// Connections that carry a byte each way and are closed.
    Churn,
    /// A gigabyte through one connection.
    Stream,
    /// Ten thousand connections, or as many as may be open, and nothing else.
    Connected,
    /// Connections made while as many goroutines as there are Ps compute.
    Dial,
    /// Requests by wrk through 64 connections.
    Hello,
    /// Binary trees of many depths, beside one that lives all the while.
    GcTrees,
    /// Rings, of which one after the other is replaced.
    GcGraph,
    /// Pauses with ten megabytes of objects.
    GcPause10M,
    /// Pauses with a gigabyte of objects.
    GcPause1G,
}

/// How it is measured (see `drive`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Operations, more and more, until a run is long enough.
    Rate,
    /// So many operations, once; before them a thousand, which start what a program starts once.
    Burst(u64),
    /// Sleeping, once.
    Sleepers,
    /// So many that wait, and then do no longer: the memory.
    Parked(usize),
    /// So many that wait: the processor time.
    Idle(usize),
    /// With sockets (see `net`).
    Net(Net),
    /// By wrk (see `http`).
    Http,
    /// So many objects, once; before them a few. How long, and how much memory at most.
    Heap(u64),
    /// Collections, one after the other, with so many bytes of objects that live, beside somebody who computes: the pauses.
    Pauses(u64),
}

/// How a workload with sockets is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Net {
    /// Round trips through so many connections, more and more, until a run is long enough.
    Echo(usize),
    /// Connections, likewise.
    Churn,
    /// So many bytes, once; before them a few.
    Stream(u64),
    /// So many connections that wait, unless fewer are allowed: memory and processor time.
    Idle(usize),
    /// So many connections, one after the other: how long each takes.
    Dial(usize),
}

/// With how many Ps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Procs {
    /// As the command line says.
    Asked,
    /// With so many: more would show nothing more, or the number is the point.
    Fixed(usize),
    /// With each of these.
    Each(&'static [usize]),
}

/// What gort wants to reach.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Target {
    /// So much of what Go takes.
    OfGo(f64),
    /// What std takes on a plain thread; a tie is enough.
    Std,
    /// So much at most.
    AtMost(f64),
}

/// One figure of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    /// The unit.
    pub unit: &'static str,
    /// What is wanted.
    pub target: Option<Target>,
    /// Whether ratios of it say something.
    pub compared: bool,
    /// Whether it has a row in the tables. The first column of a workload always has one.
    pub has_row: bool,
}

/// A row of the table.
#[derive(Debug)]
pub struct Spec {
    /// With which others.
    pub suite: Suite,
    /// Whose.
    pub workload: Workload,
    /// The word on the command line.
    pub word: &'static str,
    /// The words in a report.
    pub title: &'static str,
    /// How it is measured.
    pub kind: Kind,
    /// With how many Ps.
    pub procs: Procs,
    /// Rounds at most; the long ones are steady.
    pub rounds_max: usize,
    /// What it tells.
    pub columns: &'static [Column],
}

const fn column(unit: &'static str, target: Option<Target>) -> Column {
    Column { unit, target, compared: true, has_row: true }
}

const fn told(unit: &'static str) -> Column {
    Column { unit, target: None, compared: false, has_row: false }
}

/// A figure that has a row of its own, but no ratios: it is near nothing, or more of it is better.
const fn shown(unit: &'static str) -> Column {
    Column { unit, target: None, compared: false, has_row: true }
}

const fn of_go(ratio: f64) -> Column {
    column("ns", Some(Target::OfGo(ratio)))
}

/// Of the collected heap: the time, the memory at most, and how many cores were busy.
const HEAP: &[Column] = &[of_go(1.5), column("MB at most", None), BUSY];

/// Of pauses.
const PAUSES: &[Column] = &[column("us, p50", None), column("us, p99", Some(Target::AtMost(200.0)))];

/// How many cores were busy.
const BUSY: Column = told("cores");

const fn spec(
    workload: Workload,
    word: &'static str,
    title: &'static str,
    kind: Kind,
    procs: Procs,
    columns: &'static [Column],
) -> Spec {
    let suite = match kind {
        Kind::Net(_) => Suite::Net,
        Kind::Http => Suite::Http,
        Kind::Heap(_) | Kind::Pauses(_) => Suite::Gc,
        _ => Suite::Switch,
    };
    let is_long = matches!(kind, Kind::Parked(_) | Kind::Idle(_) | Kind::Net(Net::Idle(_) | Net::Dial(_)));
    let rounds_max = if is_long { 3 } else { usize::MAX };
    Spec { suite, workload, word, title, kind, procs, rounds_max, columns }
}

/// All of them, in the order of the report.
#[rustfmt::skip]
pub const TABLE: [Spec; 28] = {
    use {Kind::*, Procs::*, Target::*, Workload as W, super::workload::Net as N};
    const MILLION: u64 = 1_000_000;
    [
        spec(W::Yield1, "yield-1", "yield, one goroutine", Rate, Asked, &[of_go(0.30), BUSY]),
        spec(W::Yield1000, "yield-1000", "yield, 1,000 goroutines", Rate, Asked, &[of_go(0.35), BUSY]),
        spec(W::SpawnJoin, "spawn-join", "spawn + join, batches of 1,000", Rate, Asked, &[of_go(0.30), BUSY]),
        spec(W::SpawnGroup, "spawn-group", "spawn + wait group, batches of 1,000", Rate, Asked, &[of_go(0.30), BUSY]),
        spec(W::SpawnMillion, "spawn-million", "spawn a million at once", Burst(MILLION), Asked, &[of_go(0.40), BUSY]),
        spec(W::PingPong, "ping-pong", "unbuffered ping-pong, round trip", Rate, Asked, &[of_go(0.35), BUSY]),
        spec(W::Buffered1, "buffered-1x1", "buffered channel (128), 1x1", Rate, Asked, &[of_go(0.60), BUSY]),
        spec(W::Buffered4, "buffered-4x4", "buffered channel (128), 4x4", Rate, Asked, &[of_go(0.60), BUSY]),
        spec(W::Mutex, "mutex", "mutex, uncontended", Rate, Fixed(1), &[column("ns", Some(Std)), BUSY]),
        spec(W::Mutex8, "mutex-8", "mutex, 8 goroutines, short section", Rate, Asked, &[of_go(0.50), BUSY]),
        spec(W::MutexStorm, "mutex-storm", "mutex, 8 goroutines, a yield in the section", Rate, Asked, &[column("ns", None), BUSY]),
        spec(W::Skynet, "skynet", "skynet, a million leaves, per leaf", Burst(MILLION), Asked, &[of_go(0.45), BUSY]),
        spec(W::Timers, "timers", "100,000 sleepers, 10 x 100 ms", Sleepers, Asked, &[
            column("s", Some(OfGo(0.60))),
            column("ms late, p99.9", Some(AtMost(20.0))),
            column("ms late, worst", None),
        ]),
        spec(W::Memory, "memory", "a million parked, each", Parked(1_000_000), Fixed(2), &[
            column("bytes", None),
            column("RSS 10 s after / before", None),
        ]),
        spec(W::Memory64K, "memory-64k", "a million parked on 64 KiB stacks, each", Parked(1_000_000), Fixed(2), &[
            column("bytes", None),
            column("RSS 10 s after / before", None),
        ]),
        spec(W::Idle, "idle", "10,000 parked, nothing to do", Idle(10_000), Fixed(2), &[told("% of a core")]),
        spec(W::Cores, "cores", "ping-pong of one pair, GOMAXPROCS=8", Rate, Fixed(8), &[
            column("cores", None),
            column("ns", None),
        ]),
        spec(W::Echo64, "echo-64", "echo, 64 connections, round trip", Net(N::Echo(64)), Asked, &[column("ns", None), BUSY]),
        spec(W::Echo1000, "echo-1000", "echo, 1,000 connections, round trip", Net(N::Echo(1_000)), Asked, &[
            column("ns", None),
            BUSY,
        ]),
        spec(W::Churn, "churn", "connect, a byte each way, close", Net(N::Churn), Asked, &[column("ns", None), BUSY]),
        spec(W::Stream, "stream", "a gigabyte through one connection", Net(N::Stream(1 << 30)), Asked, &[
            shown("MB/s"),
            column("ms", None),
            BUSY,
        ]),
        spec(W::Connected, "connected", "idle connections, each", Net(N::Idle(10_000)), Fixed(2), &[
            column("bytes", None),
            shown("% of a core"),
        ]),
        spec(W::Dial, "dial", "dial + a byte each way beside busy Ps", Net(N::Dial(200)), Each(&[2, 4]), &[
            column("ms, p50", None),
            column("ms, p99", Some(AtMost(2.0))),
        ]),
        spec(W::Hello, "hello", "HTTP by wrk, 64 connections", Http, Asked, &[
            shown("requests/s"),
            column("us per request", None),
            column("ms, p99", None),
        ]),
        spec(W::GcTrees, "gc-trees", "binary trees to depth 18, per node", Heap(64 * MILLION), Asked, HEAP),
        spec(W::GcGraph, "gc-graph", "rings of 8, 24,000 live, per new node", Heap(16 * MILLION), Asked, HEAP),
        spec(W::GcPause10M, "gc-pause-10m", "pauses, 10 MB live, beside a busy goroutine", Pauses(10_000_000), Fixed(2), PAUSES),
        spec(W::GcPause1G, "gc-pause-1g", "pauses, 1 GB live, beside a busy goroutine", Pauses(1_000_000_000), Fixed(2), PAUSES),
    ]
};

impl Workload {
    /// Those of a suite, in the order of the report.
    pub fn all(suite: Suite) -> Vec<Workload> {
        TABLE.iter().filter(|spec| spec.suite == suite).map(|spec| spec.workload).collect()
    }

    /// Its row.
    pub fn spec(self) -> &'static Spec {
        static ROWS: [Spec; TABLE.len()] = TABLE;
        &ROWS[self as usize]
    }

    /// The word on the command line.
    pub fn word(self) -> &'static str {
        self.spec().word
    }

    /// The workload of a word.
    pub fn of(word: &str) -> Option<Workload> {
        TABLE.iter().find(|spec| spec.word == word).map(|spec| spec.workload)
    }

    /// The numbers of Ps to run it with.
    pub fn procs(self, asked: &[usize]) -> Vec<usize> {
        match self.spec().procs {
            Procs::Asked => asked.to_vec(),
            Procs::Fixed(procs) => vec![procs],
            Procs::Each(all) => all.to_vec(),
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.spec().title)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_found_by_workload_and_word() {
        for (i, spec) in TABLE.iter().enumerate() {
            assert_eq!(spec.workload as usize, i);
            assert_eq!(Workload::of(spec.workload.word()), Some(spec.workload));
        }
        assert_eq!(Workload::of("nap"), None);
    }

    #[test]
    fn the_crowd_can_be_shared_out() {
        assert!(CROWD.is_multiple_of(RIVALRY) && CROWD.is_multiple_of(4));
        let powers: Vec<u64> = (0..10).map(|exponent| BRANCHES.pow(exponent)).collect();
        assert!(powers.contains(&CROWD), "skynet's small run is a whole tree");
    }
}
