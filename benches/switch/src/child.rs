//! A child process: one contender in one workload.

use crate::options::Child;
use crate::rivals::{Contender, Sink, crossbeam, gort, may, parking_lot, smol, stdlib, threads, tokio};

/// Runs it and prints its values, and for traced ones the bytes per operation. `go/main.go` prints the same.
pub fn run(child: &Child) -> Result<(), String> {
    let Child { contender, workload, procs, at_least } = *child;
    let on_threads = |once| threads::run(workload, procs, at_least, once);
    let sink = match contender {
        Contender::GortSink => Some(Sink::Discard),
        Contender::GortFile => Some(Sink::File),
        _ => None,
    };
    let outcome = match contender {
        Contender::Gort | Contender::GortSink | Contender::GortFile => {
            let (mut outcome, bytes) = gort::run(workload, procs, at_least, sink)?;
            outcome.values.extend(sink.map(|_| bytes as f64 / outcome.ops_all as f64));
            outcome
        }
        Contender::May => may::run(workload, procs, at_least),
        Contender::Tokio => tokio::run(workload, procs, at_least)?,
        Contender::Smol => smol::run(workload, procs, at_least),
        Contender::Std => on_threads(stdlib::once),
        Contender::ParkingLot => on_threads(parking_lot::once),
        Contender::Crossbeam => on_threads(crossbeam::once),
        Contender::Go => return Err("Go runs in a program of its own".into()),
    };
    let values: Vec<String> = outcome.values.iter().map(f64::to_string).collect();
    println!("{}", values.join(" "));
    Ok(())
}
