//! `gort goroutines`: how the time of goroutines was spent, by the function they were started with.

use std::io::Write;

use serde::Serialize;
use tracer::analyze::{Group, Histogram};

use super::{Durations, Head, is_own, or_unknown, to_u64};
use crate::Outcome;
use crate::args::Goroutines;
use crate::text::Column::{Left, Right};
use crate::text::{BOLD, Out, Table, number, percent, plural, time};

pub(crate) fn run(args: &Goroutines, progress: bool, out: &mut Out) -> Outcome {
    let (summary, end) = super::analyze(&args.trace, progress)?;
    let wanted = |group: &&Group| {
        let by_name = args.function.as_ref().is_none_or(|part| group.name.contains(part.as_str()));
        by_name && (args.all || args.function.is_some() || !is_own(&group.name))
    };
    let groups: Vec<&Group> = summary.goroutines.groups.iter().filter(wanted).collect();
    if args.trace.json {
        let groups = groups.iter().map(|group| Json::of(group)).collect();
        out.json(&All { trace: Head::of(&summary, &end), groups })?;
        return Ok(end.verdict());
    }
    for group in groups.iter().take(args.top) {
        print(group, out)?;
    }
    if groups.len() > args.top {
        out.aside(&format!("{} more start functions: --top {}", groups.len() - args.top, groups.len()))?;
    }
    if groups.is_empty() {
        out.aside("no such goroutines; --all shows the runtime's own, too")?;
    }
    Ok(end.verdict())
}

fn print(group: &Group, out: &mut Out) -> super::Print {
    let name = out.paint(BOLD, or_unknown(&group.name));
    writeln!(out, "{name}: {}, {} alive at the end", plural(group.count, "goroutine"), number(group.alive))?;
    let columns = [
        ("", Left),
        ("in all", Right),
        ("share", Right),
        ("times", Right),
        ("p50", Right),
        ("p90", Right),
        ("p99", Right),
        ("longest", Right),
        ("open", Right),
    ];
    let mut table = Table::new(&columns);
    let whole = group.spent().all();
    let mut row = |what: String, h: &Histogram| {
        if h.count() > 0 {
            let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| time(h.quantile(q)));
            let share = percent(h.total(), whole);
            table.row([
                what,
                time(h.total()),
                share,
                number(h.count()),
                p50,
                p90,
                p99,
                time(h.max()),
                number(h.open()),
            ]);
        }
    };
    row("running".into(), &group.running);
    row("waiting for a P".into(), &group.runnable);
    for (reason, waits) in &group.blocked {
        row(format!("blocked: {}", or_unknown(reason)), waits);
    }
    row("in blocking calls".into(), &group.syscall);
    row("assisting the GC, meanwhile".into(), &group.assist);
    table.print(out)?;
    if group.runnable_idle + group.runnable_stopped > 0 {
        let (idle, stopped) = (time(group.runnable_idle), time(group.runnable_stopped));
        out.aside(&format!(
            "of the wait for a P, idle ones could have saved {idle}; {stopped} was for a stopped world"
        ))?;
    }
    writeln!(out)
}

#[derive(Serialize)]
struct All<'a> {
    trace: Head<'a>,
    groups: Vec<Json<'a>>,
}

#[derive(Serialize)]
struct Json<'a> {
    function: &'a str,
    count: u64,
    alive: u64,
    running: Durations,
    runnable: Durations,
    runnable_idle_ps_could_have_saved_ns: u64,
    runnable_world_stopped_ns: u64,
    blocked: Vec<Blocked<'a>>,
    syscall: Durations,
    gc_assist: Durations,
}

#[derive(Serialize)]
struct Blocked<'a> {
    reason: &'a str,
    #[serde(flatten)]
    durations: Durations,
}

impl<'a> Json<'a> {
    fn of(group: &'a Group) -> Json<'a> {
        let blocked = group.blocked.iter().map(|(reason, waits)| Blocked { reason, durations: waits.into() });
        Json {
            function: &group.name,
            count: group.count,
            alive: group.alive,
            running: (&group.running).into(),
            runnable: (&group.runnable).into(),
            runnable_idle_ps_could_have_saved_ns: to_u64(group.runnable_idle),
            runnable_world_stopped_ns: to_u64(group.runnable_stopped),
            blocked: blocked.collect(),
            syscall: (&group.syscall).into(),
            gc_assist: (&group.assist).into(),
        }
    }
}
