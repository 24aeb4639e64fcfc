//! `gort stat`: the answers, on one screen.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;
use tracer::analyze::{Group, Histogram, Site, Summary, WaitKind};
use tracer::wire::reason;

use super::{Durations, Head, Print, SpentNs, Totals, is_own, or_unknown, short_place, to_u64};
use crate::Outcome;
use crate::args::Stat;
use crate::input::End;
use crate::text::Column::{Left, Right};
use crate::text::{BAD, GOOD, Out, Table, WARN, bytes, number, percent, plural, time, time_cell};

/// Rows of a table: two of them, and the rest, fit on a screen of 40 lines.
const ROWS: usize = 8;

pub(crate) fn run(args: &Stat, progress: bool, out: &mut Out) -> Outcome {
    let (summary, end) = super::analyze(&args.trace, progress)?;
    if summary.events() > 0 {
        match args.trace.json {
            true => out.json(&json(&summary, &end))?,
            false => print(&summary, &end, args.all, out)?,
        }
    }
    Ok(end.verdict())
}

/// Places at which goroutines wait or call, the longest in total first; and the sleeps among them.
fn sites(summary: &Summary) -> (Vec<&Site>, Vec<&Site>) {
    let all = summary.waits.by_site.iter().chain(&summary.calls.by_site);
    let (mut sites, sleeps): (Vec<&Site>, Vec<&Site>) = all.partition(|site| &*site.reason != reason::SLEEP);
    sites.sort_by_key(|site| std::cmp::Reverse(site.stat.total));
    (sites, sleeps)
}

fn print(summary: &Summary, end: &End, all: bool, out: &mut Out) -> Print {
    head(summary, end, out)?;
    short(summary, out)?;
    groups(summary, all, out)?;
    waits(summary, out)?;
    scheduler(summary, out)?;
    world(summary, out)?;
    writeln!(out)?;
    let file = if end.name.contains(' ') { format!("'{}'", end.name) } else { end.name.clone() };
    out.aside(&format!("more: gort goroutines, blocked, sched, tasks, regions, gc {file}; and gort help"))
}

fn head(summary: &Summary, end: &End, out: &mut Out) -> Print {
    let procs = summary.world.gomaxprocs.unwrap_or(summary.world.ps);
    let (took, gs) = (time(summary.duration()), &summary.goroutines);
    let version = summary.version;
    let title = format!("{}: {took} on {} (GOMAXPROCS), {version}", end.name, plural(procs, "P"));
    let title = out.paint(crate::text::BOLD, &title);
    writeln!(out, "{title}")?;
    let (events, generations) = (number(summary.events()), plural(summary.generations.len() as u64, "generation"));
    out.aside(&format!(
        "{}, at most {} at once, {} alive at the end; {}; {events} events, {generations}, {}",
        plural(gs.seen, "goroutine"),
        number(gs.peak),
        number(gs.alive()),
        plural(summary.world.ms, "thread"),
        bytes(summary.bytes())
    ))
}

/// `tour.rs:77 tour::enter`, or that there is no stack.
fn place(site: &Site) -> String {
    match &*site.func {
        "" => "(no stack)".to_owned(),
        func => format!("{} {func}", short_place(&site.file, site.line)),
    }
}

/// The answers, in a sentence each.
fn short(summary: &Summary, out: &mut Out) -> Print {
    let (sites, _) = sites(summary);
    if let Some(site) = sites.first() {
        let total: u128 = sites.iter().map(|site| site.stat.total).sum();
        let (reason, share) = (or_unknown(&site.reason), percent(site.stat.total, total));
        let most = format!("{} ({share}) for {reason} at {}", time(site.stat.total), place(site));
        let most = out.paint(BAD, &most);
        writeln!(out, "  most waiting, sleep aside: {most}")?;
    }
    let (style, verdict) = match blame(summary) {
        Blame::Nobody => (GOOD, "not to blame: a goroutine that could run did so nearly at once"),
        Blame::TooFewPs => {
            (WARN, "not to blame, but goroutines waited behind others: more could run than there are Ps")
        }
        Blame::Scheduler => {
            (BAD, "to blame for a part: goroutines waited for a P while idle ones could have taken them")
        }
        Blame::StoppedWorld => (BAD, "not to blame, but the world was stopped while goroutines waited: see gort gc"),
    };
    let verdict = out.paint(style, verdict);
    writeln!(out, "  the scheduler: {verdict}")
}

/// What a group did for most of its time.
fn mostly(group: &Group) -> String {
    let spent = group.spent();
    let plain = [(spent.running, "running"), (spent.runnable, "waiting for a P"), (spent.syscall, "blocking calls")];
    let blocked = group.blocked.iter().map(|(reason, waits)| (waits.total(), &**reason));
    let most = plain.into_iter().chain(blocked).max_by_key(|(ns, _)| *ns);
    most.map_or(String::new(), |(ns, what)| format!("{} {}", percent(ns, spent.all()), or_unknown(what)))
}

fn groups(summary: &Summary, all: bool, out: &mut Out) -> Print {
    out.title("What did the goroutines do?")?;
    let shown: Vec<&Group> = summary.goroutines.groups.iter().filter(|group| all || !is_own(&group.name)).collect();
    let columns = [
        ("running", Right),
        ("wait for P", Right),
        ("blocked", Right),
        ("in calls", Right),
        ("goroutines", Right),
        ("mostly", Left),
        ("started with", Left),
    ];
    let mut table = Table::new(&columns);
    for group in shown.iter().take(ROWS) {
        let spent = group.spent();
        let times = [spent.running, spent.runnable, spent.blocked, spent.syscall].map(time_cell);
        table.row(times.into_iter().chain([number(group.count), mostly(group), or_unknown(&group.name).to_owned()]));
    }
    table.print(out)?;
    let (more, hidden) = (shown.len().saturating_sub(ROWS), summary.goroutines.groups.len() - shown.len());
    let notes = [(more, "more start functions: gort goroutines"), (hidden, "of the runtime's own: --all")];
    let notes: Vec<String> = notes.iter().filter(|(n, _)| *n > 0).map(|(n, text)| format!("{n} {text}")).collect();
    if notes.is_empty() { Ok(()) } else { out.aside(&format!("not shown: {}", notes.join("; "))) }
}

fn waits(summary: &Summary, out: &mut Out) -> Print {
    let (sites, sleeps) = sites(summary);
    out.title("What did they wait for, and where?")?;
    if sites.is_empty() {
        out.aside("nothing: no goroutine blocked, and none made a blocking call")?;
    } else {
        let columns = [
            ("in all", Right),
            ("times", Right),
            ("mean", Right),
            ("longest", Right),
            ("open", Right),
            ("for", Left),
            ("at", Left),
        ];
        let mut table = Table::new(&columns);
        for (i, site) in sites.iter().take(ROWS).enumerate() {
            let stat = &site.stat;
            let mean = stat.total.checked_div(u128::from(stat.count)).unwrap_or(0);
            let at = place(site);
            let reason = or_unknown(&site.reason).to_owned();
            let style = if i == 0 { BAD } else { anstyle::Style::new() };
            table.styled(
                style,
                [time(stat.total), number(stat.count), time(mean), time(stat.max), number(stat.open), reason, at],
            );
        }
        table.print(out)?;
    }
    let slept: u128 = sleeps.iter().map(|site| site.stat.total).sum();
    let more = sites.len().saturating_sub(ROWS);
    let notes = [
        (more > 0, format!("{} more: gort blocked", plural(more as u64, "place"))),
        (slept > 0, format!("{} of sleep at {}", time(slept), plural(sleeps.len() as u64, "place"))),
    ];
    let notes: Vec<String> = notes.into_iter().filter(|(yes, _)| *yes).map(|(_, text)| text).collect();
    if notes.is_empty() { Ok(()) } else { out.aside(&format!("not shown: {}", notes.join("; "))) }
}

/// Whether goroutines waited for a P, and whose fault it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Blame {
    /// They hardly waited.
    Nobody,
    /// The Ps had something else to do.
    TooFewPs,
    /// Idle Ps could have taken them.
    Scheduler,
    /// The world was stopped meanwhile.
    StoppedWorld,
}

/// A program hardly waits if its goroutines waited for less than this share of the time in which they could go on (they ran,
/// called, or waited for a P), or of the time that there was of all Ps together.
const HARDLY: f64 = 0.05;
/// A part of the wait that is more than this is worth a word.
const MUCH: f64 = 0.25;

pub(crate) fn blame(summary: &Summary) -> Blame {
    let (spent, latency) = (summary.spent(), &summary.latency);
    let wait = latency.all.total();
    let share = |part: u128, whole: u128| part as f64 / whole.max(1) as f64;
    let could = wait + spent.running + spent.syscall;
    let procs = summary.world.gomaxprocs.unwrap_or(summary.world.ps).max(1);
    let there_was = u128::from(summary.duration()) * u128::from(procs);
    if share(wait, could) < HARDLY || share(wait, there_was) < HARDLY {
        Blame::Nobody
    } else if share(latency.idle, wait) > MUCH {
        Blame::Scheduler
    } else if share(latency.stopped, wait) > MUCH {
        Blame::StoppedWorld
    } else {
        Blame::TooFewPs
    }
}

fn scheduler(summary: &Summary, out: &mut Out) -> Print {
    let (latency, procs) = (&summary.latency, &summary.procs);
    let total = latency.all.total();
    out.title("How long did they wait for a P?")?;
    if latency.all.count() > 0 {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| time(latency.all.quantile(q)));
        let (starts, longest) = (number(latency.all.count()), time(latency.all.max()));
        writeln!(
            out,
            "  from runnable to running, {starts} times: p50 {p50}, p90 {p90}, p99 {p99}, longest {longest}"
        )?;
        let part = |ns: u128| format!("{} ({})", time(ns), percent(ns, total));
        let (busy, idle, stopped) = (part(latency.busy()), part(latency.idle), part(latency.stopped));
        write!(
            out,
            "  of {} in all, {busy} for Ps that ran others, {idle} that idle Ps could have saved",
            time(total)
        )?;
        match latency.stopped {
            0 => writeln!(out)?,
            _ => writeln!(out, ", {stopped} for a stopped world")?,
        }
    }
    let all = procs.all();
    let whole = all.running + all.calls + all.held + all.idle;
    let [running, calls, held, idle] = [all.running, all.calls, all.held, all.idle].map(|ns| percent(ns, whole));
    write!(out, "  Ps: {running} running, {calls} in blocking calls, {held} between goroutines, {idle} idle")?;
    writeln!(out, "; {} idle while one was runnable", percent(procs.lost, whole))?;
    let ext = &summary.ext;
    if ext.steals + ext.handed_off() > 0 {
        let causes: Vec<String> = ext.hand_offs.iter().map(|(cause, n)| format!("{} {cause}", number(*n))).collect();
        let (steals, handed) = (plural(ext.steals, "steal"), plural(ext.handed_off(), "hand-off"));
        let causes = if causes.is_empty() { String::new() } else { format!(" ({})", causes.join(", ")) };
        writeln!(out, "  {steals} of {}, {handed}{causes}", plural(ext.stolen, "goroutine"))?;
    }
    if ext.stalls.count > 0 {
        let (stalls, longest) = (plural(ext.stalls.count, "stay"), time(ext.stalls.max));
        let stalls =
            out.paint(WARN, &format!("{stalls} in plain code that the watchdog reported, the longest {longest}"));
        writeln!(out, "  {stalls}")?;
    }
    Ok(())
}

/// GC, stops of the world, tasks and losses, if there are any.
fn world(summary: &Summary, out: &mut Out) -> Print {
    let (world, duration) = (&summary.world, u128::from(summary.duration()));
    let line = |what: &str, one: &str, h: &Histogram| {
        let share = percent(h.total(), duration);
        let (p50, longest) = (time(h.quantile(0.5)), time(h.max()));
        format!(
            "  {what}: {}, {} ({share} of the time), p50 {p50}, longest {longest}",
            plural(h.count(), one),
            time(h.total())
        )
    };
    if world.gc.count() > 0 || !world.stops.is_empty() || !summary.users.tasks.is_empty() || summary.ext.lost_bytes > 0
    {
        out.title("What else?")?;
    }
    if world.gc.count() > 0 {
        writeln!(out, "{}", line("GC", "cycle", &world.gc))?;
        if world.assists.count() > 0 {
            let (assists, took) = (plural(world.assists.count(), "assist"), time(world.assists.total()));
            writeln!(out, "  {assists} to the GC by goroutines that allocate, {took} in all")?;
        }
    }
    if !world.stops.is_empty() {
        let mut all = Histogram::default();
        world.stops.iter().for_each(|(_, stops)| all.merge(stops));
        writeln!(out, "{}", line("stopped world", "time", &all))?;
    }
    for group in summary.users.tasks.iter().take(3) {
        writeln!(out, "{}", line(&format!("tasks {:?}", &*group.name), "task", &group.latency))?;
    }
    if summary.ext.lost_bytes > 0 {
        let lost = format!("the recorder lost {} of events", bytes(summary.ext.lost_bytes));
        let lost = out.paint(BAD, &lost);
        writeln!(out, "  {lost}")?;
    }
    Ok(())
}

#[derive(Serialize)]
struct Json<'a> {
    trace: Head<'a>,
    gomaxprocs: u64,
    threads: u64,
    goroutines: Goroutines,
    /// By start function.
    groups: Vec<GroupJson<'a>>,
    /// By kind: chan, select, sync, network, sleep, syscall, gc, other.
    waits: BTreeMap<&'static str, Totals>,
    /// By place, the longest in total first; the runtime's own duties are left out.
    places: Vec<SiteJson<'a>>,
    scheduler: Scheduler,
    gc: Durations,
    stops: BTreeMap<&'a str, Durations>,
    lost_bytes: u64,
}

#[derive(Serialize)]
struct Goroutines {
    seen: u64,
    created: u64,
    ended: u64,
    alive: u64,
    peak: u64,
}

#[derive(Serialize)]
struct GroupJson<'a> {
    function: &'a str,
    count: u64,
    alive: u64,
    #[serde(flatten)]
    spent: SpentNs,
}

#[derive(Serialize)]
pub(crate) struct SiteJson<'a> {
    reason: &'a str,
    kind: &'static str,
    function: &'a str,
    file: &'a str,
    line: u64,
    #[serde(flatten)]
    stat: Totals,
}

impl<'a> SiteJson<'a> {
    pub fn of(site: &'a Site, call: bool) -> SiteJson<'a> {
        let kind = if call { WaitKind::Syscall } else { WaitKind::of(&site.reason) }.name();
        let Site { reason, func, file, line, stat } = site;
        SiteJson { reason, kind, function: func, file, line: *line, stat: Totals::from(stat) }
    }
}

#[derive(Serialize)]
struct Scheduler {
    blame: Blame,
    latency: Durations,
    waited_behind_others_ns: u64,
    waited_idle_ps_could_have_saved_ns: u64,
    waited_world_stopped_ns: u64,
    ps_running_ns: u64,
    ps_in_calls_ns: u64,
    ps_held_ns: u64,
    ps_idle_ns: u64,
    idle_while_runnable_ns: u64,
    steals: u64,
    stolen: u64,
    hand_offs: u64,
}

fn json<'a>(summary: &'a Summary, end: &'a End) -> Json<'a> {
    let gs = &summary.goroutines;
    let mut kinds: BTreeMap<&'static str, Histogram> = BTreeMap::new();
    for (reason, waits) in &summary.waits.by_reason {
        kinds.entry(WaitKind::of(reason).name()).or_default().merge(waits);
    }
    kinds.entry(WaitKind::Syscall.name()).or_default().merge(&summary.syscalls());
    let groups = gs.groups.iter().map(|group| GroupJson {
        function: &group.name,
        count: group.count,
        alive: group.alive,
        spent: SpentNs::from(&group.spent()),
    });
    let calls = summary.calls.by_site.iter().map(|site| SiteJson::of(site, true));
    let (latency, all) = (&summary.latency, summary.procs.all());
    Json {
        trace: Head::of(summary, end),
        gomaxprocs: summary.world.gomaxprocs.unwrap_or(summary.world.ps),
        threads: summary.world.ms,
        goroutines: Goroutines {
            seen: gs.seen,
            created: gs.created,
            ended: gs.ended,
            alive: gs.alive(),
            peak: gs.peak,
        },
        groups: groups.collect(),
        waits: kinds.iter().map(|(kind, waits)| (*kind, Totals::from(&waits.stat()))).collect(),
        places: summary.waits.by_site.iter().map(|site| SiteJson::of(site, false)).chain(calls).collect(),
        scheduler: Scheduler {
            blame: blame(summary),
            latency: Durations::from(&latency.all),
            waited_behind_others_ns: to_u64(latency.busy()),
            waited_idle_ps_could_have_saved_ns: to_u64(latency.idle),
            waited_world_stopped_ns: to_u64(latency.stopped),
            ps_running_ns: to_u64(all.running),
            ps_in_calls_ns: to_u64(all.calls),
            ps_held_ns: to_u64(all.held),
            ps_idle_ns: to_u64(all.idle),
            idle_while_runnable_ns: to_u64(summary.procs.lost),
            steals: summary.ext.steals,
            stolen: summary.ext.stolen,
            hand_offs: summary.ext.handed_off(),
        },
        gc: Durations::from(&summary.world.gc),
        stops: summary.world.stops.iter().map(|(reason, stops)| (&**reason, Durations::from(stops))).collect(),
        lost_bytes: summary.ext.lost_bytes,
    }
}
