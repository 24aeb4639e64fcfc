//! Workloads with sockets: what is measured of them, and how. `go/net.go` does the same.
//!
//! Client and server are one process, on loopback. What a contender runs:
//!
//! - *echo*: connections that stay open, a task at each end. The server's writes back whatever it reads, with a buffer of
//!   1,024 bytes; the client's sends 64 bytes, waits for as many, compares them, and so on. No two messages are alike. At the
//!   end the server's count of bytes must be right.
//! - *churn*: eight clients, each of which connects, sends a byte, waits for it and closes, again and again. The server
//!   accepts, starts a task for each connection, and closes it, too. The client's close is a reset (`SO_LINGER` 0), which
//!   leaves no port in TIME_WAIT: else the ports would be used up within seconds, for a minute.
//! - *stream*: 64 KiB buffers into one end, and out of the other. The count must be right, and the ends of each piece.
//! - *idle*: a task at the server's end of each connection waits for something to read; the client's end is only held.
//! - *dial*: as many tasks compute as there are Ps, without pause. Somebody connects, sends a byte and waits for it, two
//!   milliseconds after the last time.
//!
//! mio has no tasks: each of its threads has a poll, both ends of its share of the connections, and no queue, waker or
//! allocation. No library does without those, so it is a floor.

pub mod gort;
pub mod may;
pub mod mio;
pub mod smol;
pub mod talk;
pub mod threads;
pub mod tokio;

use crate::drive::{Measured, Outcome, SETTLE, measure, timed};
use crate::options::Child;
use crate::probe;
use crate::rivals::{Contender, Sink};
use crate::workload::{Kind, Net};
use std::time::Duration;

/// Where all listen: on loopback, on a port that is free.
pub const LOCAL: (&str, u16) = ("127.0.0.1", 0);
/// Bytes in a message of echo.
pub const MESSAGE: usize = 64;
/// What an echoing server reads at once at most.
pub const ECHO_BUFFER: usize = 1_024;
/// Clients that connect at the same time in churn.
pub const CHURNERS: u64 = 8;
/// Bytes per write and read of a stream.
pub const STREAM_BUFFER: usize = 64 << 10;
/// Between one dial and the next.
pub const DIAL_PAUSE: Duration = Duration::from_millis(2);

/// What a library has to do. Who does not take part in a workload leaves it out.
pub trait Sockets {
    /// Opens so many connections with an echoing server at their far ends.
    fn echo(&self, _connections: usize) -> Box<dyn Echo + '_> {
        unreachable!("does not take part in it")
    }

    /// Starts a server that returns a byte; what it answers makes so many connections to that.
    fn churn(&self) -> Box<dyn FnMut(u64) + '_> {
        unreachable!("does not take part in it")
    }

    /// So many bytes through one connection; returns when all have been read.
    fn stream(&self, _bytes: u64) {
        unreachable!("does not take part in it")
    }

    /// Opens so many connections at which a server waits. The answer closes them and returns when each has noticed.
    fn connect(&self, _connections: usize) -> Box<dyn FnOnce() + '_> {
        unreachable!("does not take part in it")
    }

    /// Makes so many connections while so many others compute; how long each took until its byte was back.
    fn dial(&self, _busy: usize, _dials: usize) -> Vec<Duration> {
        unreachable!("does not take part in it")
    }

    /// Lets the caller of all these wait, as waiting is done where it runs.
    fn pause(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// Open connections.
pub trait Echo {
    /// So many round trips, shared out among the connections; returns when all are done.
    fn run(&mut self, round_trips: u64);

    /// Closes them; how many bytes the server has echoed.
    fn end(self: Box<Self>) -> u64;
}

/// Runs a child.
pub fn run(child: &Child, sink: Option<Sink>) -> Result<(Outcome, u64), String> {
    let Child { contender, workload, procs, at_least, quick, connections } = *child;
    let Kind::Net(kind) = workload.spec().kind else { unreachable!("of another suite") };
    let kind = if quick { shortened(kind) } else { kind };
    let kind = match (kind, connections) {
        (Net::Idle(_), Some(allowed)) => Net::Idle(allowed),
        _ => kind,
    };
    let work = Work { kind, procs, at_least, quick };
    let outcome = match contender {
        ours if ours.is_ours() => return gort::run(work, sink),
        Contender::Tokio => tokio::run(work)?,
        Contender::May => may::run(work)?,
        Contender::Smol => smol::run(work)?,
        Contender::Std => threads::run(work)?,
        Contender::Mio => mio::run(work)?,
        _ => {
            unreachable!("has nothing to run here")
        }
    };
    Ok((outcome, 0))
}

/// What a child measures.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    kind: Net,
    procs: usize,
    at_least: Duration,
    /// Only whether it works.
    quick: bool,
}

/// The same with less of it, to see that it works.
fn shortened(kind: Net) -> Net {
    match kind {
        Net::Echo(connections) => Net::Echo(connections.min(100)),
        Net::Churn => Net::Churn,
        Net::Stream(_) => Net::Stream(16 << 20),
        Net::Idle(_) => Net::Idle(100),
        Net::Dial(_) => Net::Dial(10),
    }
}

/// Measures it.
pub fn drive(rival: &impl Sockets, work: Work) -> Result<Outcome, String> {
    probe::allow_files(files(work.kind))?;
    Ok(match work.kind {
        Net::Echo(connections) => {
            let each = if work.quick { 2 } else { (6_400 / connections).max(10) };
            echo(rival, connections, each, work.at_least).outcome()
        }
        // By hundreds, so that each client has as many; the first run is long enough to start what is started once.
        Net::Churn => measure(work.at_least, 100 * CHURNERS, rival.churn()).outcome(),
        Net::Stream(bytes) => stream(rival, bytes),
        Net::Idle(count) => idle(rival, count, work.quick),
        Net::Dial(count) => dial(rival, work.procs, count),
    })
}

/// Open files besides connections.
const OTHER_FILES: u64 = 100;

/// Open files that it takes: two for each connection, and some for the rest.
pub fn files(kind: Net) -> u64 {
    match kind {
        Net::Echo(connections) | Net::Idle(connections) => 2 * connections as u64 + OTHER_FILES,
        Net::Churn | Net::Stream(_) | Net::Dial(_) => 2 * OTHER_FILES,
    }
}

/// How many idle connections this process and its children may have, of so many; if fewer, why, and what to type.
pub fn connections(wanted: usize) -> (usize, Option<String>) {
    let Err(why) = probe::allow_files(files(Net::Idle(wanted))) else { return (wanted, None) };
    let allowed = probe::allow_most_files().saturating_sub(OTHER_FILES) as usize / 2;
    let allowed = (allowed / 100 * 100).min(wanted);
    (allowed, Some(format!("idle connections: {allowed} instead of {wanted}: {why}")))
}

/// Multiples of `each` round trips per connection.
fn echo(rival: &impl Sockets, connections: usize, each: usize, at_least: Duration) -> Measured {
    let mut echo = rival.echo(connections);
    let unit = (connections * each) as u64;
    let measured = measure(at_least, unit, |round_trips| echo.run(round_trips));
    assert_eq!(echo.end(), measured.ops_all * MESSAGE as u64, "the server has echoed another number of bytes");
    measured
}

fn stream(rival: &impl Sockets, bytes: u64) -> Outcome {
    rival.stream(bytes / 16);
    let (took, measured) = timed(bytes, &mut |bytes| rival.stream(bytes));
    let megabytes = bytes as f64 / 1e6 / took.as_secs_f64();
    // In milliseconds for 2^30 bytes, however many there were.
    let ms = measured.ns * f64::from(1 << 30) / 1e6;
    Outcome { values: vec![megabytes, ms, measured.cores], ops_all: bytes }
}

fn idle(rival: &impl Sockets, count: usize, quick: bool) -> Outcome {
    // A few before, which start what is started once.
    rival.connect(10)();
    rival.pause(SETTLE);
    let before = probe::memory();
    let end = rival.connect(count);
    rival.pause(2 * SETTLE);
    let connected = probe::memory();
    let (busy, start) = (probe::cpu_time(), std::time::Instant::now());
    rival.pause(if quick { SETTLE } else { Duration::from_secs(3) });
    let busy = probe::cpu_time() - busy;
    let percent = 100.0 * busy.as_secs_f64() / start.elapsed().as_secs_f64();
    end();
    let each = connected.all().saturating_sub(before.all()) as f64 / count as f64;
    Outcome { values: vec![each, percent], ops_all: count as u64 }
}

fn dial(rival: &impl Sockets, busy: usize, count: usize) -> Outcome {
    let mut took = rival.dial(busy, count);
    assert_eq!(took.len(), count, "not all have been dialled");
    took.sort_unstable();
    let ms = |percent: usize| took[count * percent / 100].as_secs_f64() * 1e3;
    Outcome { values: vec![ms(50), ms(99)], ops_all: count as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_connections_as_files_allow() {
        assert_eq!(connections(10), (10, None));
        let (count, why) = connections(1 << 40);
        assert!(count > 0 && count % 100 == 0 && count < 1 << 40, "{count}");
        assert!(why.is_some_and(|why| why.contains("prlimit")));
        assert_eq!(probe::allow_files(files(Net::Idle(count))), Ok(()));
    }
}
