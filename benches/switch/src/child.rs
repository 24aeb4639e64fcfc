//! A child process: one contender in one workload.

use crate::drive::Outcome;
use crate::net;
use crate::options::Child;
use crate::rivals::{
    Contender, Sink, counted, crossbeam, gort, gort_heap, may, parking_lot, smol, stdlib, threads, tokio,
};
use crate::workload::{Kind, Suite};

/// Runs it and prints its values, and for traced ones the bytes per operation. The Go programs print the same.
pub fn run(child: &Child) -> Result<(), String> {
    let sink = child.contender.sink();
    let (mut outcome, bytes) = match child.workload.spec().suite {
        Suite::Switch => switch(child, sink)?,
        Suite::Gc => heap(child, sink)?,
        Suite::Net => net::run(child, sink)?,
        Suite::Http => return Err("wrk measures it".into()),
    };
    outcome.values.extend(sink.map(|_| bytes as f64 / outcome.ops_all as f64));
    let values: Vec<String> = outcome.values.iter().map(f64::to_string).collect();
    println!("{}", values.join(" "));
    Ok(())
}

fn heap(child: &Child, sink: Option<Sink>) -> Result<(Outcome, u64), String> {
    let Child { contender, workload, procs, at_least, .. } = *child;
    match contender {
        ours if ours.is_ours() => match workload.spec().kind {
            Kind::Pauses(bytes) => gort::inside(procs, sink, move || gort_heap::pauses(bytes)),
            _ => gort::run(workload, procs, at_least, sink),
        },
        Contender::Std => Ok((threads::run(workload, procs, at_least, counted::once), 0)),
        _ => Err("has no part in it, or a program of its own".into()),
    }
}

fn switch(child: &Child, sink: Option<Sink>) -> Result<(Outcome, u64), String> {
    let Child { contender, workload, procs, at_least, .. } = *child;
    let on_threads = |once| threads::run(workload, procs, at_least, once);
    let outcome = match contender {
        ours if ours.is_ours() => {
            return gort::run(workload, procs, at_least, sink);
        }
        Contender::May => may::run(workload, procs, at_least),
        Contender::Tokio => tokio::run(workload, procs, at_least)?,
        Contender::Smol => smol::run(workload, procs, at_least),
        Contender::Std => on_threads(stdlib::once),
        Contender::ParkingLot => on_threads(parking_lot::once),
        Contender::Crossbeam => on_threads(crossbeam::once),
        Contender::Mio => return Err("mio has nothing to run here".into()),
        _ => return Err("Go runs in a program of its own".into()),
    };
    Ok((outcome, 0))
}
