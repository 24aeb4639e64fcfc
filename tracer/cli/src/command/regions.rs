//! `gort regions`: how long the program's regions took, and how the time in them was spent.

use serde::Serialize;
use tracer::analyze::RegionGroup;

use super::{Durations, FrameJson, Head, SpentNs, site};
use crate::Outcome;
use crate::args::Named;
use crate::text::Column::{Left, Right};
use crate::text::{Out, Table, number, time, time_cell};

pub(crate) fn run(args: &Named, progress: bool, out: &mut Out) -> Outcome {
    let (summary, end) = super::analyze(&args.trace, progress)?;
    let wanted = |group: &&RegionGroup| args.name.as_ref().is_none_or(|name| group.name.contains(name.as_str()));
    let groups: Vec<&RegionGroup> = summary.users.regions.iter().filter(wanted).collect();
    if args.trace.json {
        let regions = groups.iter().map(|group| Json::of(group)).collect();
        out.json(&All { trace: Head::of(&summary, &end), regions })?;
        return Ok(end.verdict());
    }
    if groups.is_empty() {
        out.aside("no regions: the program marks them with trace::region, or trace.WithRegion in Go")?;
        return Ok(end.verdict());
    }
    let columns = [
        ("in all", Right),
        ("times", Right),
        ("p50", Right),
        ("p99", Right),
        ("longest", Right),
        ("open", Right),
        ("running", Right),
        ("wait for P", Right),
        ("blocked", Right),
        ("in calls", Right),
        ("region", Left),
        ("begins at", Left),
    ];
    let mut table = Table::new(&columns);
    for group in groups.iter().take(args.top) {
        let h = &group.latency;
        let [p50, p99] = [0.5, 0.99].map(|q| time(h.quantile(q)));
        let spent =
            [group.spent.running, group.spent.runnable, group.spent.blocked, group.spent.syscall].map(time_cell);
        let cells = [time(h.total()), number(h.count()), p50, p99, time(h.max()), number(h.open())];
        let name = if group.name.is_empty() { "(no name)" } else { &group.name };
        table.row(cells.into_iter().chain(spent).chain([name.to_owned(), site(group.site.as_ref())]));
    }
    table.print(out)?;
    if groups.len() > args.top {
        out.aside(&format!("{} more: --top {}", groups.len() - args.top, groups.len()))?;
    }
    let before: u64 = groups.iter().map(|group| group.began_before).sum();
    if before > 0 {
        out.aside(&format!("{} that began before the trace are left out", number(before)))?;
    }
    Ok(end.verdict())
}

#[derive(Serialize)]
struct All<'a> {
    trace: Head<'a>,
    regions: Vec<Json<'a>>,
}

#[derive(Serialize)]
struct Json<'a> {
    name: &'a str,
    site: Option<FrameJson>,
    latency: Durations,
    spent: SpentNs,
    began_before_trace: u64,
}

impl<'a> Json<'a> {
    fn of(group: &'a RegionGroup) -> Json<'a> {
        Json {
            name: &group.name,
            site: group.site.as_ref().map(FrameJson::from),
            latency: (&group.latency).into(),
            spent: (&group.spent).into(),
            began_before_trace: group.began_before,
        }
    }
}
