//! Memory: a reader takes a small multiple of the bytes it has read, whatever a file says.
#![cfg(feature = "read")]

mod common;
mod counting;

use std::io::Read;

use common::*;
use counting::peak;
use tracer::analyze;
use tracer::read::Reader;
use tracer::wire::{Ev, NO_M};

fn read_all(source: impl Read) {
    if let Ok(mut reader) = Reader::new(source) {
        let (summary, _) = analyze::summarize(&mut reader);
        drop(summary);
    }
}

/// What a reader may take for a file of this many bytes: the fixed part, and a multiple that the smallest possible
/// entries need (a goroutine of five bytes gets a place in three maps).
fn allowed(bytes: usize) -> usize {
    (2 << 20) + 60 * bytes
}

#[test]
fn lengths_that_lie() {
    let huge = |kind: Ev, args: &[u64]| Trace::new().raw(&event(kind, args)).0;
    let in_table = |first: Ev, entry: Vec<u8>| {
        let mut trace = Trace::new().0;
        put_batch(&mut trace, 1, NO_M, 1, &[vec![first as u8], entry].concat());
        trace
    };
    let traces = [
        huge(Ev::EventBatch, &[1, 1, 1, u64::MAX]),
        huge(Ev::EventBatch, &[1, 1, 1, 65_536]),
        in_table(Ev::Strings, event(Ev::String, &[1, u64::MAX])),
        in_table(Ev::Stacks, event(Ev::Stack, &[1, u64::MAX])),
        in_table(Ev::Strings, event(Ev::String, &[u64::MAX, 0])),
    ];
    for trace in traces {
        assert!(peak(|| read_all(&trace[..])) <= 1 << 20);
    }
}

#[test]
fn many_small_things() {
    let n = if cfg!(miri) { 50 } else { 100_000 };
    let chunks = |build: &dyn Fn(u64) -> Vec<u8>, first: Option<Ev>| {
        let mut trace = Trace::new().0;
        let mut data: Vec<u8> = first.map(|ev| ev as u8).into_iter().collect();
        for i in 1..=n {
            data.extend(build(i));
            if data.len() > 60_000 || i == n {
                put_batch(&mut trace, 1, if first.is_some() { NO_M } else { 0 }, 1, &data);
                data.truncate(usize::from(first.is_some()));
            }
        }
        trace.extend(Trace::new().generation(1, |_| {}).0.drain(16..));
        trace
    };
    let running = |i: u64| {
        let status = if i == 1 {
            [event(Ev::ProcStatus, &[0, 0, P_RUNNING]), event(Ev::GoStatus, &[0, 1, 0, RUNNING])].concat()
        } else {
            Vec::new()
        };
        [status, event(Ev::GoCreate, &[0, i + 1, 0, 0])].concat()
    };
    let ms = |n: u64, data: &dyn Fn(u64) -> Vec<u8>| {
        let mut trace = Trace::new().0;
        for m in 0..n {
            put_batch(&mut trace, 1, m * 977, 1, &data(m));
        }
        trace.extend(Trace::new().generation(1, |_| {}).0.drain(16..));
        trace
    };
    let traces = [
        ("strings", chunks(&|i| event(Ev::String, &[i + 10, 0]), Some(Ev::Strings))),
        ("sparse strings", chunks(&|i| event(Ev::String, &[i << 40, 0]), Some(Ev::Strings))),
        ("stacks", chunks(&|i| event(Ev::Stack, &[i + 10, 0]), Some(Ev::Stacks))),
        (
            "frames",
            chunks(
                &|i| event(Ev::Stack, &[i + 10, 4, i, 0, 0, 0, i, 0, 0, 0, i, 0, 0, 0, i, 0, 0, 0]),
                Some(Ev::Stacks),
            ),
        ),
        ("samples", chunks(&|_| event(Ev::CpuSample, &[1, 0, 0, 0, 0]), Some(Ev::CpuSamples))),
        ("goroutines", chunks(&running, None)),
        ("statuses", chunks(&|i| event(Ev::GoStatus, &[0, i, 0, WAITING]), None)),
        ("Ms", ms(n / 10, &|m| event(Ev::GoStatus, &[0, m, 5, WAITING]))),
        ("regions", chunks(&|i| if i == 1 { running(1) } else { event(Ev::UserRegionBegin, &[0, 0, 1, 0]) }, None)),
        ("empty batches", ms(n / 10, &|_| Vec::new())),
    ];
    for (name, trace) in traces {
        let peak = peak(|| read_all(&trace[..])) + trace.len();
        println!("{name}: {} bytes, {:.1} times as much memory", trace.len(), peak as f64 / trace.len() as f64);
        assert!(peak <= allowed(trace.len()), "{name}: {peak} for {}", trace.len());
    }
}

#[test]
fn one_generation_at_a_time() {
    let text = "x".repeat(1000);
    let generations = if cfg!(miri) { 3 } else { 200 };
    let mut trace = Trace::new();
    for number in 1..=generations {
        trace = trace.generation(number, |g| {
            for i in 0..60 {
                g.string(&format!("{number} {i} {text}"));
            }
            let m = g.m(0).ev(Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::GoStatus, &[1, 0, RUNNING]);
            m.ev(Ev::GoLabel, &[5]).ev(Ev::GoStop, &[6, 1]).ev(Ev::GoStart, &[1, 1]);
        });
    }
    let (one, all) = (trace.0.len() / generations as usize, trace.0.len());
    assert!(peak(|| read_all(&trace.0[..])) < (2 << 20) + 8 * one, "{one} of {all}");
}
