//! `gort gc`: cycles, stops of the world, assists, and how much of the processors the GC left.

use std::convert::Infallible;
use std::io::Write;

use serde::Serialize;
use tracer::analyze::mmu::{self, Causes, Curve};
use tracer::analyze::{Builder, Cycle, Histogram, Summary};

use super::{Durations, Head, Print};
use crate::Outcome;
use crate::args::{Cause, Gc};
use crate::input::{End, Input};
use crate::text::Column::{Left, Right};
use crate::text::{GOOD, Out, Table, bytes, number, percent, plural, time};

/// Cells of a full bar.
const BAR: f64 = 40.0;

pub(crate) fn run(args: &Gc, progress: bool, out: &mut Out) -> Outcome {
    let input = Input::open(&args.trace.file, progress)?;
    let mut builder = Builder::new(input.version());
    let counts = |cause| args.count.contains(&cause);
    let mut utilization = mmu::Builder::new(Causes {
        stops: counts(Cause::Stops),
        workers: counts(Cause::Workers),
        assists: counts(Cause::Assists),
        sweeps: counts(Cause::Sweeps),
    });
    let end = input.each(|event, info, tables| {
        match event {
            Some(event) => {
                builder.event(event, info, tables);
                utilization.event(event, tables);
            }
            None => {
                builder.gap();
                utilization.gap();
            }
        }
        Ok::<_, Infallible>(())
    });
    let end = end.unwrap_or_else(|never| match never {});
    let (summary, curve) = (builder.finish(), utilization.finish());
    match args.trace.json {
        true => out.json(&json(&summary, &end, &curve, &args.window))?,
        false => print(&summary, &curve, args, out)?,
    }
    Ok(end.verdict())
}

/// 1, 2 and 5 times the powers of ten, from 1 us to the length of the trace, and the length.
fn windows(curve: &Curve) -> Vec<u64> {
    let whole = curve.duration_ns();
    let steps = (3..19).flat_map(|power| [1, 2, 5].map(|step| step * 10u64.pow(power)));
    steps.take_while(|&window| window < whole).chain((whole > 0).then_some(whole)).collect()
}

fn print(summary: &Summary, curve: &Curve, args: &Gc, out: &mut Out) -> Print {
    let world = &summary.world;
    overview(summary, out)?;
    if !world.cycles.is_empty() {
        cycles(summary, args.top, out)?;
    }
    utilization(summary, curve, args, out)
}

fn overview(summary: &Summary, out: &mut Out) -> Print {
    let (world, whole) = (&summary.world, u128::from(summary.duration()));
    out.title("What the GC did")?;
    let columns = [
        ("in all", Right),
        ("of the time", Right),
        ("times", Right),
        ("p50", Right),
        ("p99", Right),
        ("longest", Right),
        ("open", Right),
        ("", Left),
    ];
    let mut table = Table::new(&columns);
    let mut row = |what: String, h: &Histogram| {
        if h.count() > 0 {
            let [p50, p99] = [0.5, 0.99].map(|q| time(h.quantile(q)));
            let share = percent(h.total(), whole);
            table.row([time(h.total()), share, number(h.count()), p50, p99, time(h.max()), number(h.open()), what]);
        }
    };
    row("cycles, while they mark".into(), &world.gc);
    row("assists by goroutines that allocate".into(), &world.assists);
    row("sweeping".into(), &world.sweeps);
    for (reason, stops) in &world.stops {
        row(format!("stopped world: {reason}"), stops);
    }
    table.print(out)?;
    if world.gc.count() == 0 {
        out.aside("the trace has no GC cycle")?;
    }
    if let (Some(alloc), goal) = (world.heap_alloc, world.heap_goal) {
        let goal = goal.map(|goal| format!(", its goal {}", bytes(goal))).unwrap_or_default();
        writeln!(out, "  the heap: {} at the end{goal}, at most {}", bytes(alloc), bytes(world.heap_max))?;
    }
    if world.swept.0 > 0 {
        writeln!(out, "  swept {}, of which {} became free", bytes(world.swept.0), bytes(world.swept.1))?;
    }
    Ok(())
}

fn cycles(summary: &Summary, top: usize, out: &mut Out) -> Print {
    out.title("The longest cycles")?;
    let columns = [
        ("from", Right),
        ("marked for", Right),
        ("stopped for", Right),
        ("assisted for", Right),
        ("heap", Right),
        ("goal", Right),
    ];
    let mut cycles: Vec<&Cycle> = summary.world.cycles.iter().collect();
    cycles.sort_by_key(|cycle| (std::cmp::Reverse(cycle.ns), cycle.begin));
    let mut table = Table::new(&columns);
    for cycle in cycles.iter().take(top) {
        let from = format!("+{}", time(cycle.begin.saturating_sub(summary.start).max(0) as u64));
        let size = |size: Option<u64>| size.map_or("-".into(), bytes);
        let took = if cycle.open { format!("> {}", time(cycle.ns)) } else { time(cycle.ns) };
        table.row([from, took, time(cycle.stopped), time(cycle.assisted), size(cycle.heap), size(cycle.goal)]);
    }
    table.print(out)
}

fn utilization(summary: &Summary, curve: &Curve, args: &Gc, out: &mut Out) -> Print {
    out.title("What it left to the program: minimum mutator utilisation")?;
    if summary.world.gc.count() == 0 || curve.duration_ns() == 0 {
        return out.aside("everything");
    }
    out.aside("in the worst window of each length, and when that begins")?;
    let all = windows(curve);
    let windows = if args.window.is_empty() { &all } else { &args.window };
    let known: Vec<(u64, f64, i64)> =
        windows.iter().filter_map(|&w| curve.mmu(w).map(|(mmu, at)| (w, mmu, at))).collect();
    // Of the windows in which there was nothing left, the longest says it all.
    let first = if args.window.is_empty() { known.iter().rposition(|(_, mmu, _)| *mmu < 1e-4).unwrap_or(0) } else { 0 };
    for (window, mmu, at) in &known[first..] {
        let bar = out.paint(GOOD, &"█".repeat((mmu * BAR).round() as usize));
        let at = time(at.saturating_sub(summary.start).max(0) as u64);
        let line = format!("  {:>8}  {:>5.1} %  +{at:<9} {bar}", time(*window), mmu * 100.0);
        writeln!(out, "{}", line.trim_end())?;
    }
    out.aside(&format!("the utilisation changed {}", plural(curve.changes().len() as u64, "time")))
}

#[derive(Serialize)]
struct Json<'a> {
    trace: Head<'a>,
    cycles: Durations,
    assists: Durations,
    sweeps: Durations,
    stops: Vec<Stop<'a>>,
    each_cycle: Vec<CycleJson>,
    heap_alloc_bytes: Option<u64>,
    heap_goal_bytes: Option<u64>,
    heap_max_bytes: u64,
    swept_bytes: u64,
    reclaimed_bytes: u64,
    mmu: Vec<Window>,
}

#[derive(Serialize)]
struct Stop<'a> {
    reason: &'a str,
    #[serde(flatten)]
    stops: Durations,
}

#[derive(Serialize)]
struct CycleJson {
    begin_ns: i64,
    ns: u64,
    stopped_ns: u64,
    assisted_ns: u64,
    heap_bytes: Option<u64>,
    goal_bytes: Option<u64>,
    open: bool,
}

#[derive(Serialize)]
struct Window {
    window_ns: u64,
    utilization: f64,
    begin_ns: i64,
}

fn json<'a>(summary: &'a Summary, end: &'a End, curve: &Curve, asked: &[u64]) -> Json<'a> {
    let world = &summary.world;
    let all = windows(curve);
    let windows = if asked.is_empty() { &all } else { asked };
    let mmu = windows.iter().filter_map(|&window_ns| {
        let (utilization, at) = curve.mmu(window_ns)?;
        Some(Window { window_ns, utilization, begin_ns: at.saturating_sub(summary.start) })
    });
    let each = world.cycles.iter().map(|cycle| CycleJson {
        begin_ns: cycle.begin.saturating_sub(summary.start),
        ns: cycle.ns,
        stopped_ns: cycle.stopped,
        assisted_ns: cycle.assisted,
        heap_bytes: cycle.heap,
        goal_bytes: cycle.goal,
        open: cycle.open,
    });
    Json {
        trace: Head::of(summary, end),
        cycles: (&world.gc).into(),
        assists: (&world.assists).into(),
        sweeps: (&world.sweeps).into(),
        stops: world.stops.iter().map(|(reason, stops)| Stop { reason, stops: stops.into() }).collect(),
        each_cycle: each.collect(),
        heap_alloc_bytes: world.heap_alloc,
        heap_goal_bytes: world.heap_goal,
        heap_max_bytes: world.heap_max,
        swept_bytes: world.swept.0,
        reclaimed_bytes: world.swept.1,
        mmu: mmu.collect(),
    }
}
