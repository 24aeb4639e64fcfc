//! `gort sched`: how long goroutines waited for a P, and what the Ps did meanwhile.

use std::io::Write;

use serde::Serialize;
use tracer::analyze::{Delay, Group, Histogram, Proc, Summary};

use super::{Durations, Head, Print, or_unknown, to_u64};
use crate::Outcome;
use crate::args::Sched;
use crate::input::End;
use crate::text::Column::{Left, Right};
use crate::text::{GOOD, Out, Table, number, percent, plural, time, time_cell};

/// Cells of a full bar.
const BAR: u64 = 40;

pub(crate) fn run(args: &Sched, progress: bool, out: &mut Out) -> Outcome {
    let (summary, end) = super::analyze(&args.trace, progress)?;
    match args.trace.json {
        true => out.json(&json(&summary, &end))?,
        false => {
            latency(&summary, out)?;
            by_group(&summary, args.top, out)?;
            longest(&summary, args.top, out)?;
            procs(&summary, out)?;
            records(&summary, out)?;
        }
    }
    Ok(end.verdict())
}

/// A histogram as bars, a line for each power of two.
pub(super) fn bars(histogram: &Histogram, out: &mut Out) -> Print {
    let octaves = histogram.octaves();
    let most = octaves.iter().map(|(_, _, count)| *count).max().unwrap_or(0).max(1);
    for (from, to, count) in octaves {
        let cells = (count * BAR).div_ceil(most) as usize;
        let bar = out.paint(GOOD, &"█".repeat(cells));
        let line = format!("  {:>8} to {:>8}  {:>10}  {bar}", time(from), time(to), number(count));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

fn latency(summary: &Summary, out: &mut Out) -> Print {
    let latency = &summary.latency;
    let all = &latency.all;
    out.title(&format!("From runnable to running: {}", plural(all.count(), "wait")))?;
    if all.count() == 0 {
        return out.aside("no goroutine became runnable and ran within the trace");
    }
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|q| time(all.quantile(q)));
    writeln!(
        out,
        "  p50 {p50}, p90 {p90}, p99 {p99}, p99.9 {p999}, longest {}; {} in all",
        time(all.max()),
        time(all.total())
    )?;
    let part = |ns: u128| format!("{} ({})", time(ns), percent(ns, all.total()));
    let (busy, idle, stopped) = (part(latency.busy()), part(latency.idle), part(latency.stopped));
    writeln!(
        out,
        "  of it {busy} for Ps that ran others, {idle} that idle Ps could have saved, {stopped} for a stopped world"
    )?;
    bars(all, out)
}

fn by_group(summary: &Summary, top: usize, out: &mut Out) -> Print {
    let mut groups: Vec<&Group> = summary.goroutines.groups.iter().filter(|g| g.runnable.count() > 0).collect();
    groups.sort_by(|a, b| b.runnable.total().cmp(&a.runnable.total()).then_with(|| a.name.cmp(&b.name)));
    out.title("Who waited for a P")?;
    let columns = [
        ("in all", Right),
        ("times", Right),
        ("p50", Right),
        ("p99", Right),
        ("longest", Right),
        ("idle Ps' part", Right),
        ("started with", Left),
    ];
    let mut table = Table::new(&columns);
    for group in groups.iter().take(top) {
        let h = &group.runnable;
        let [p50, p99] = [0.5, 0.99].map(|q| time(h.quantile(q)));
        let idle = percent(group.runnable_idle, h.total());
        let name = or_unknown(&group.name).to_owned();
        table.row([time(h.total()), number(h.count()), p50, p99, time(h.max()), idle, name]);
    }
    table.print(out)
}

fn longest(summary: &Summary, top: usize, out: &mut Out) -> Print {
    out.title("The longest waits for a P")?;
    let columns = [
        ("from", Right),
        ("for", Right),
        ("idle Ps' part", Right),
        ("stopped", Right),
        ("goroutine", Right),
        ("started with", Left),
    ];
    let mut table = Table::new(&columns);
    for delay in summary.latency.longest.iter().take(top) {
        let Delay { g, name, begin, ns, idle, stopped } = delay;
        let at = format!("+{}", time(begin.saturating_sub(summary.start).max(0) as u64));
        let name = or_unknown(name.as_deref().unwrap_or_default()).to_owned();
        table.row([at, time(*ns), time(*idle), time(*stopped), g.to_string(), name]);
    }
    table.print(out)
}

fn procs(summary: &Summary, out: &mut Out) -> Print {
    let procs = &summary.procs;
    out.title("What the Ps did")?;
    let columns = [
        ("P", Right),
        ("running", Right),
        ("in calls", Right),
        ("between", Right),
        ("idle", Right),
        ("busy", Right),
        ("starts", Right),
    ];
    let mut table = Table::new(&columns);
    let mut row = |name: String, p: &Proc| {
        let times = [p.running, p.calls, p.held, p.idle].map(time_cell);
        let busy = percent(p.running + p.calls, p.running + p.calls + p.held + p.idle);
        table.row([name].into_iter().chain(times).chain([busy, number(p.starts)]));
    };
    procs.each.iter().for_each(|p| row(p.id.to_string(), p));
    if procs.each.len() > 1 {
        row("all".into(), &procs.all());
    }
    table.print(out)?;
    let (both, runnable) = (time(procs.idle_while_runnable), time(procs.runnable));
    writeln!(out, "  some goroutine was runnable for {runnable}; for {both} of that a P was idle at the same time")?;
    writeln!(out, "  lost by that: {} of a P's time", time(procs.lost))
}

/// What gort tells beyond Go's format.
fn records(summary: &Summary, out: &mut Out) -> Print {
    let ext = &summary.ext;
    let lines = [
        (ext.steals, format!("{} of {}", plural(ext.steals, "steal"), plural(ext.stolen, "goroutine"))),
        (
            ext.polls,
            format!("{} at the network made {} runnable", plural(ext.polls, "look"), plural(ext.polled, "goroutine")),
        ),
        (
            ext.timer_batches,
            format!("{} at which {} were due", plural(ext.timer_batches, "look"), plural(ext.timers, "timer")),
        ),
        (
            ext.queue_looks,
            format!(
                "the longest run queue of a P had {}, the global one {}",
                number(ext.longest_queue),
                number(ext.longest_global_queue)
            ),
        ),
        (
            ext.stalls.count,
            format!(
                "{} in plain code, the longest {}",
                plural(ext.stalls.count, "reported stay"),
                time(ext.stalls.max)
            ),
        ),
    ];
    if lines.iter().all(|(n, _)| *n == 0) && ext.hand_offs.is_empty() {
        return Ok(());
    }
    out.title("What the recorder says beside")?;
    for (_, line) in lines.iter().filter(|(n, _)| *n > 0) {
        writeln!(out, "  {line}")?;
    }
    for (cause, count) in &ext.hand_offs {
        writeln!(out, "  {} of a P: {cause}", plural(*count, "hand-off"))?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Json<'a> {
    trace: Head<'a>,
    latency: Durations,
    /// From, to (excluded), count.
    octaves_ns: Vec<(u64, u64, u64)>,
    behind_others_ns: u64,
    idle_ps_could_have_saved_ns: u64,
    world_stopped_ns: u64,
    groups: Vec<GroupJson<'a>>,
    longest: Vec<DelayJson<'a>>,
    procs: Vec<ProcJson>,
    runnable_ns: u64,
    idle_while_runnable_ns: u64,
    lost_ns: u64,
    steals: u64,
    stolen: u64,
    hand_offs: Vec<(String, u64)>,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    function: &'a str,
    idle_ps_could_have_saved_ns: u64,
    world_stopped_ns: u64,
    #[serde(flatten)]
    waits: Durations,
}

#[derive(Serialize)]
struct DelayJson<'a> {
    goroutine: i64,
    function: Option<&'a str>,
    begin_ns: i64,
    ns: u64,
    idle_ps_could_have_saved_ns: u64,
    world_stopped_ns: u64,
}

#[derive(Serialize)]
struct ProcJson {
    id: i64,
    running_ns: u64,
    in_calls_ns: u64,
    between_ns: u64,
    idle_ns: u64,
    starts: u64,
}

fn json<'a>(summary: &'a Summary, end: &'a End) -> Json<'a> {
    let (latency, procs) = (&summary.latency, &summary.procs);
    let groups = summary.goroutines.groups.iter().filter(|group| group.runnable.count() > 0).map(|group| GroupJson {
        function: &group.name,
        idle_ps_could_have_saved_ns: to_u64(group.runnable_idle),
        world_stopped_ns: to_u64(group.runnable_stopped),
        waits: (&group.runnable).into(),
    });
    let longest = latency.longest.iter().map(|delay| DelayJson {
        goroutine: delay.g,
        function: delay.name.as_deref(),
        begin_ns: delay.begin.saturating_sub(summary.start),
        ns: delay.ns,
        idle_ps_could_have_saved_ns: delay.idle,
        world_stopped_ns: delay.stopped,
    });
    let each = procs.each.iter().map(|p| ProcJson {
        id: p.id,
        running_ns: to_u64(p.running),
        in_calls_ns: to_u64(p.calls),
        between_ns: to_u64(p.held),
        idle_ns: to_u64(p.idle),
        starts: p.starts,
    });
    Json {
        trace: Head::of(summary, end),
        latency: (&latency.all).into(),
        octaves_ns: latency.all.octaves(),
        behind_others_ns: to_u64(latency.busy()),
        idle_ps_could_have_saved_ns: to_u64(latency.idle),
        world_stopped_ns: to_u64(latency.stopped),
        groups: groups.collect(),
        longest: longest.collect(),
        procs: each.collect(),
        runnable_ns: to_u64(procs.runnable),
        idle_while_runnable_ns: to_u64(procs.idle_while_runnable),
        lost_ns: to_u64(procs.lost),
        steals: summary.ext.steals,
        stolen: summary.ext.stolen,
        hand_offs: summary.ext.hand_offs.iter().map(|(cause, count)| (cause.to_string(), *count)).collect(),
    }
}
