//! A child process: one contender in one workload.

use crate::options::Child;
use crate::rivals::{Contender, Sink, gort, may, tokio};

/// Runs it and prints the result: nanoseconds and trace bytes per operation. `go/main.go` prints the same.
pub fn run(child: &Child) -> Result<(), String> {
    let Child { contender, workload, procs, at_least } = *child;
    let (measured, bytes) = match contender {
        Contender::Gort => gort::run(workload, procs, at_least, None)?,
        Contender::GortSink => gort::run(workload, procs, at_least, Some(Sink::Discard))?,
        Contender::GortFile => gort::run(workload, procs, at_least, Some(Sink::File))?,
        Contender::May => (may::run(workload, procs, at_least)?, 0),
        Contender::Tokio => (tokio::run(workload, procs, at_least)?, 0),
        Contender::Go => return Err("Go runs in a program of its own".into()),
    };
    println!("{} {}", measured.ns, bytes as f64 / measured.ops_all as f64);
    Ok(())
}
