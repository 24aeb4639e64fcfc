//! The commands, one file each: read the trace, then print a view of it.

pub(crate) mod blocked;
pub(crate) mod check;
mod chrome;
pub(crate) mod export;
pub(crate) mod gc;
pub(crate) mod goroutines;
pub(crate) mod manual;
pub(crate) mod pprof;
pub(crate) mod print;
pub(crate) mod regions;
pub(crate) mod sched;
pub(crate) mod stat;
pub(crate) mod tasks;
pub(crate) mod text;

use std::convert::Infallible;
use std::io;

use serde::Serialize;
use tracer::analyze::{Builder, Frame, Histogram, Spent, Stat, Summary, is_library};

use crate::Failure;
use crate::args::Trace;
use crate::input::{End, Input};

/// Reads a trace to its end and analyses it.
fn analyze(trace: &Trace, progress: bool) -> Result<(Summary, End), Failure> {
    let input = Input::open(&trace.file, progress)?;
    let mut builder = Builder::new(input.version());
    let end = input.each(|event, info, tables| {
        match event {
            Some(event) => builder.event(event, info, tables),
            None => builder.gap(),
        }
        Ok::<_, Infallible>(())
    });
    let end = end.unwrap_or_else(|never| match never {});
    Ok((builder.finish(), end))
}

/// How printing ends.
pub(crate) type Print = io::Result<()>;

/// A goroutine or function of the runtime's own, which is left out unless it is asked for.
fn is_own(name: &str) -> bool {
    is_library(name)
}

/// What there is no word for.
fn or_unknown(name: &str) -> &str {
    if name.is_empty() { "(unknown)" } else { name }
}

/// `file.rs:12` of a path.
fn short_place(file: &str, line: u64) -> String {
    format!("{}:{line}", file.rsplit('/').next().unwrap_or_default())
}

/// `function (file.rs:12)`, or that there is no stack.
fn site(frame: Option<&Frame>) -> String {
    match frame {
        Some(frame) if !frame.func.is_empty() => format!("{} ({})", frame.func, short_place(&frame.file, frame.line)),
        _ => "(no stack)".into(),
    }
}

fn to_u64(ns: u128) -> u64 {
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// What is told of a trace in every command's JSON.
#[derive(Serialize)]
struct Head<'a> {
    file: &'a str,
    version: String,
    /// Of the first event to the last.
    duration_ns: u64,
    events: u64,
    generations: usize,
    bytes: u64,
    /// Where it is broken, and why.
    damages: Vec<String>,
}

impl<'a> Head<'a> {
    fn of(summary: &Summary, end: &'a End) -> Head<'a> {
        Head {
            file: &end.name,
            version: summary.version.to_string(),
            duration_ns: summary.duration(),
            events: summary.events(),
            generations: summary.generations.len(),
            bytes: summary.bytes(),
            damages: end.report.damage.iter().map(ToString::to_string).collect(),
        }
    }
}

/// Durations, in ns.
#[derive(Serialize)]
struct Durations {
    count: u64,
    open: u64,
    total_ns: u64,
    mean_ns: u64,
    p50_ns: u64,
    p90_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

impl From<&Histogram> for Durations {
    fn from(h: &Histogram) -> Durations {
        Durations {
            count: h.count(),
            open: h.open(),
            total_ns: to_u64(h.total()),
            mean_ns: h.mean(),
            p50_ns: h.quantile(0.5),
            p90_ns: h.quantile(0.9),
            p99_ns: h.quantile(0.99),
            max_ns: h.max(),
        }
    }
}

/// Durations of which the percentiles are not known, in ns.
#[derive(Serialize)]
struct Totals {
    count: u64,
    open: u64,
    total_ns: u64,
    max_ns: u64,
}

impl From<&Stat> for Totals {
    fn from(stat: &Stat) -> Totals {
        Totals { count: stat.count, open: stat.open, total_ns: to_u64(stat.total), max_ns: stat.max }
    }
}

/// How time was spent, in ns.
#[derive(Serialize)]
struct SpentNs {
    running_ns: u64,
    runnable_ns: u64,
    blocked_ns: u64,
    syscall_ns: u64,
}

impl From<&Spent> for SpentNs {
    fn from(spent: &Spent) -> SpentNs {
        let [running_ns, runnable_ns, blocked_ns, syscall_ns] =
            [spent.running, spent.runnable, spent.blocked, spent.syscall].map(to_u64);
        SpentNs { running_ns, runnable_ns, blocked_ns, syscall_ns }
    }
}

/// A frame of a stack.
#[derive(Serialize)]
pub(crate) struct FrameJson {
    pub func: String,
    pub file: String,
    pub line: u64,
}

impl From<&Frame> for FrameJson {
    fn from(frame: &Frame) -> FrameJson {
        FrameJson { func: frame.func.to_string(), file: frame.file.to_string(), line: frame.line }
    }
}
