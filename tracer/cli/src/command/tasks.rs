//! `gort tasks`: how long the program's tasks took, and what they waited for.

use std::io::Write;

use serde::Serialize;
use tracer::analyze::{Log, Task, TaskGroup};

use super::{Durations, Head, Print, SpentNs, to_u64};
use crate::Outcome;
use crate::args::Named;
use crate::text::Column::{Left, Right};
use crate::text::{BOLD, Out, Table, number, percent, plural, time, time_cell};

/// Goroutines of a task that are named in a line.
const GOROUTINES: usize = 8;

pub(crate) fn run(args: &Named, progress: bool, out: &mut Out) -> Outcome {
    let (summary, end) = super::analyze(&args.trace, progress)?;
    let wanted = |group: &&TaskGroup| args.name.as_ref().is_none_or(|name| group.name.contains(name.as_str()));
    let groups: Vec<&TaskGroup> = summary.users.tasks.iter().filter(wanted).collect();
    if args.trace.json {
        let tasks = groups.iter().map(|group| Json::of(group, summary.start)).collect();
        out.json(&All { trace: Head::of(&summary, &end), tasks, logs_outside_tasks: summary.users.logged_outside })?;
        return Ok(end.verdict());
    }
    if groups.is_empty() {
        out.aside("no tasks: the program begins them with trace::Task::begin, or trace.NewTask in Go")?;
    }
    for group in groups.iter().take(args.top) {
        print(group, summary.start, args.details, out)?;
    }
    if groups.len() > args.top {
        out.aside(&format!("{} more names: --top {}", groups.len() - args.top, groups.len()))?;
    }
    Ok(end.verdict())
}

fn name_of(group: &TaskGroup) -> &str {
    if group.name.is_empty() { "(began before the trace)" } else { &group.name }
}

fn print(group: &TaskGroup, start: i64, details: bool, out: &mut Out) -> Print {
    let h = &group.latency;
    let name = out.paint(BOLD, name_of(group));
    let open = if h.open() > 0 { format!(", {} open at the end", number(h.open())) } else { String::new() };
    writeln!(out, "{name}: {}{open}", plural(h.count(), "task"))?;
    let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| time(h.quantile(q)));
    writeln!(out, "  took p50 {p50}, p90 {p90}, p99 {p99}, longest {}; {} in all", time(h.max()), time(h.total()))?;
    let (regions, logs) = (plural(group.regions, "region"), plural(group.logged, "message"));
    write!(out, "  {regions}, {logs}")?;
    let (spent, whole) = (&group.spent, group.spent.all());
    if whole > 0 {
        let parts = [spent.running, spent.runnable, spent.blocked, spent.syscall].map(|ns| percent(ns, whole));
        let [running, runnable, blocked, calls] = parts;
        write!(
            out,
            "; of the time in regions {running} running, {runnable} waiting for a P, {blocked} blocked, {calls} in calls"
        )?;
    }
    writeln!(out)?;
    let columns = [
        ("id", Right),
        ("from", Right),
        ("took", Right),
        ("running", Right),
        ("wait for P", Right),
        ("blocked", Right),
        ("in calls", Right),
        ("regions", Right),
        ("goroutines", Left),
    ];
    let mut table = Table::new(&columns);
    let shown = &group.slowest[..if details { group.slowest.len() } else { group.slowest.len().min(3) }];
    for task in shown {
        let from =
            task.begin.map_or("before".into(), |at| format!("+{}", time(at.saturating_sub(start).max(0) as u64)));
        let took = if task.open { format!("> {}", time(task.ns)) } else { time(task.ns) };
        let spent = [task.spent.running, task.spent.runnable, task.spent.blocked, task.spent.syscall].map(time_cell);
        let cells = [task.id.to_string(), from, took].into_iter().chain(spent);
        table.row(cells.chain([number(task.regions), goroutines(task)]));
    }
    table.print(out)?;
    for task in shown.iter().filter(|task| details && task.logged > 0) {
        writeln!(out, "  messages of task {}", task.id)?;
        for Log { time: at, g, key, value } in &task.logs {
            let at = format!("+{}", time(at.saturating_sub(start).max(0) as u64));
            writeln!(out, "    {at:>9}  goroutine {g}  {key}: {value}")?;
        }
        if task.logged > task.logs.len() as u64 {
            writeln!(out, "    ... {} more", number(task.logged - task.logs.len() as u64))?;
        }
    }
    writeln!(out)
}

fn goroutines(task: &Task) -> String {
    let shown: Vec<String> = task.goroutines.iter().take(GOROUTINES).map(ToString::to_string).collect();
    let more = task.goroutines.len().saturating_sub(GOROUTINES);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more}", shown.join(" "))
}

#[derive(Serialize)]
struct All<'a> {
    trace: Head<'a>,
    tasks: Vec<Json<'a>>,
    logs_outside_tasks: u64,
}

#[derive(Serialize)]
struct Json<'a> {
    name: &'a str,
    latency: Durations,
    regions: u64,
    logs: u64,
    in_regions: SpentNs,
    slowest: Vec<TaskJson<'a>>,
}

#[derive(Serialize)]
struct TaskJson<'a> {
    id: u64,
    parent: u64,
    begin_ns: Option<i64>,
    ns: u64,
    open: bool,
    children: u64,
    regions: u64,
    in_regions: SpentNs,
    goroutines: Vec<i64>,
    logs: u64,
    first_logs: Vec<LogJson<'a>>,
}

#[derive(Serialize)]
struct LogJson<'a> {
    at_ns: u64,
    goroutine: i64,
    key: &'a str,
    value: &'a str,
}

impl<'a> Json<'a> {
    fn of(group: &'a TaskGroup, start: i64) -> Json<'a> {
        let after = |at: i64| to_u64(at.saturating_sub(start).max(0) as u128);
        let log = |log: &'a Log| LogJson { at_ns: after(log.time), goroutine: log.g, key: &log.key, value: &log.value };
        let slowest = group.slowest.iter().map(|task| TaskJson {
            id: task.id,
            parent: task.parent,
            begin_ns: task.begin.map(|at| at.saturating_sub(start)),
            ns: task.ns,
            open: task.open,
            children: task.children,
            regions: task.regions,
            in_regions: (&task.spent).into(),
            goroutines: task.goroutines.iter().copied().collect(),
            logs: task.logged,
            first_logs: task.logs.iter().map(log).collect(),
        });
        Json {
            name: &group.name,
            latency: (&group.latency).into(),
            regions: group.regions,
            logs: group.logged,
            in_regions: (&group.spent).into(),
            slowest: slowest.collect(),
        }
    }
}
