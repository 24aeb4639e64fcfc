//! What the tour prints: the answers that a trace gives, taken from the file alone.

use super::Failure;
use std::fs::File;
use std::io::{IsTerminal, stdout};
use std::path::Path;
use tracer::analyze::{Group, Site, Spent, Summary, is_library, summarize};
use tracer::read::Reader;
use tracer::wire::{Ev, reason};

/// Cells of a full bar.
const BAR: usize = 30;
const PLACES: usize = 8;
const EVENTS: usize = 12;

/// How a share of time is drawn: running, waiting for a P, blocked, in blocking calls.
const SHARES: [(char, Style); 4] = [('█', Style::Good), ('▒', Style::Warn), ('·', Style::Dim), ('=', Style::Call)];

#[derive(Clone, Copy)]
enum Style {
    Bold,
    Dim,
    Good,
    Warn,
    Bad,
    Call,
}

/// Colours, if somebody looks and wants them.
struct Paint(bool);

impl Paint {
    fn for_stdout() -> Paint {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|v| v == "dumb");
        Paint(stdout().is_terminal() && !unwanted && !dumb)
    }

    fn text(&self, style: Style, text: &str) -> String {
        let code = match style {
            Style::Bold => "1",
            Style::Dim => "2",
            Style::Good => "32",
            Style::Warn => "33",
            Style::Bad => "1;31",
            Style::Call => "35",
        };
        if self.0 && !text.is_empty() { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn title(&self, title: &str) {
        println!("\n{}", self.text(Style::Bold, title));
    }

    fn aside(&self, text: &str) {
        println!("  {}", self.text(Style::Dim, text));
    }
}

/// `1.23 ms`
fn time(ns: u128) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// `1,234,567`
fn number(n: u64) -> String {
    let digits = n.to_string();
    let threes: Vec<&str> = digits.as_bytes().rchunks(3).rev().filter_map(|d| std::str::from_utf8(d).ok()).collect();
    threes.join(",")
}

/// `worker` for `tour::worker`
fn short(func: &str) -> &str {
    func.strip_prefix("tour::").unwrap_or(func)
}

/// `examples/tour.rs:77`
fn place(site: &Site) -> String {
    let file = Path::new(&*site.file);
    let file = std::env::current_dir().ok().and_then(|dir| file.strip_prefix(dir).ok()).unwrap_or(file);
    let parts: Vec<_> = file.iter().map(|part| part.to_string_lossy()).collect();
    format!("{}:{}", parts[parts.len().saturating_sub(2)..].join("/"), site.line)
}

/// The line of the program, if its source is here.
fn source(site: &Site) -> Option<String> {
    let text = std::fs::read_to_string(&*site.file).ok()?;
    let line = text.lines().nth(usize::try_from(site.line).ok()?.checked_sub(1)?)?;
    Some(line.trim().to_owned())
}

/// Reads a trace and prints what it says.
pub(crate) fn print(trace: &str) -> Result<(), Failure> {
    let paint = Paint::for_stdout();
    let mut reader = Reader::new(File::open(trace)?)?;
    let (summary, damage) = summarize(&mut reader);
    if let Some(error) = damage {
        return Err(format!("{trace}: {error}").into());
    }
    headline(&paint, &summary, trace);
    spent(&paint, &summary);
    waits(&paint, &summary);
    scheduler(&paint, &summary);
    events(&paint, &summary);
    commands(&paint, trace);
    Ok(())
}

fn headline(paint: &Paint, summary: &Summary, trace: &str) {
    paint.title(&format!("{trace}: {} events in {}", number(summary.events()), time(summary.duration().into())));
    let (gs, world) = (&summary.goroutines, &summary.world);
    println!(
        "  {} KB in {} generations; {} goroutines, at most {} at once, on {} Ps and {} Ms",
        number(summary.bytes() / 1000),
        summary.generations.len(),
        number(gs.seen),
        number(gs.peak),
        world.ps,
        world.ms
    );
}

/// A bar of the shares of a goroutine's time. What is not nothing has a cell.
fn bar(paint: &Paint, group: &Group) -> String {
    let Spent { running, runnable, blocked, syscall } = group.spent();
    let spent = [running, runnable, blocked, syscall];
    let all = spent.iter().sum::<u128>().max(1);
    let mut cells = spent.map(|ns| ((ns * BAR as u128 + all / 2) / all) as usize);
    for (cell, ns) in cells.iter_mut().zip(spent) {
        *cell = (*cell).max(usize::from(ns * 200 > all));
    }
    // The longest share takes what rounding left or lacks.
    let longest = (0..4).max_by_key(|&i| spent[i]).unwrap_or(0);
    let others: usize = (0..4).filter(|&i| i != longest).map(|i| cells[i]).sum();
    cells[longest] = BAR.saturating_sub(others);
    let parts = cells.iter().zip(SHARES).map(|(&n, (cell, style))| paint.text(style, &cell.to_string().repeat(n)));
    parts.collect()
}

fn spent(paint: &Paint, summary: &Summary) {
    paint.title("where the time of the goroutines went");
    let heads = ["running", "no P", "blocked", "in calls"];
    let heads = SHARES.iter().zip(heads).map(|(&(cell, style), head)| {
        let head = format!("{cell} {head}");
        paint.text(style, &format!("{head:>10}"))
    });
    println!("  {:<9} {:>5} {:BAR$} {}", "", "", "", heads.collect::<Vec<_>>().join(" "));
    for group in summary.goroutines.groups.iter().filter(|group| !is_library(&group.name)) {
        let spent = group.spent();
        let [running, runnable, blocked, calls] =
            [spent.running, spent.runnable, spent.blocked, spent.syscall].map(time);
        println!(
            "  {:<9} {:>5} {} {running:>10} {runnable:>10} {blocked:>10} {calls:>10}",
            short(&group.name),
            number(group.count),
            bar(paint, group)
        );
    }
}

fn waits(paint: &Paint, summary: &Summary) {
    paint.title("why was it slow? who waited most, for what, where");
    paint.aside(&format!("{:>8} {:>7} {:>9}  {:<13} {:<9} at", "in all", "times", "longest", "for", "in"));
    // Who sleeps wants to wait.
    let (sleeps, mut sites): (Vec<&Site>, Vec<&Site>) =
        summary.waits.by_site.iter().partition(|site| &*site.reason == reason::SLEEP);
    sites.retain(|site| !site.func.is_empty());
    sites.truncate(PLACES);
    for (i, site) in sites.iter().enumerate() {
        let row = format!(
            "{:>8} {:>7} {:>9}  {:<13} {:<9} {}",
            time(site.stat.total),
            number(site.stat.count),
            time(site.stat.max.into()),
            site.reason,
            short(&site.func),
            place(site)
        );
        println!("  {}", if i == 0 { paint.text(Style::Bad, &row) } else { row });
        if i == 0
            && let Some(line) = source(site)
        {
            println!("  {:>27} {}", "", paint.text(Style::Warn, &line));
        }
    }
    let asleep: u128 = sleeps.iter().map(|site| site.stat.total).sum();
    paint.aside(&format!("{:>8} of sleep, at {} places, are left out", time(asleep), sleeps.len()));
}

fn scheduler(paint: &Paint, summary: &Summary) {
    paint.title("what the scheduler did");
    let latency = &summary.latency.all;
    let calls = summary.syscalls();
    let [p50, p99] = [0.5, 0.99].map(|q| time(latency.quantile(q).into()));
    let row = |what: &str, count: u64, more: String| println!("  {what:<15} {:>8}  {more}", number(count));
    row(
        "starts",
        latency.count(),
        format!("from runnable to running: p50 {p50}, p99 {p99}, longest {}", time(latency.max().into())),
    );
    row(
        "steals",
        summary.ext.steals,
        format!("of {} goroutines that another P had in its queue", number(summary.ext.stolen)),
    );
    let causes: Vec<String> =
        summary.ext.hand_offs.iter().map(|(cause, n)| format!("{} {cause}", number(*n))).collect();
    row("hand-offs", summary.ext.handed_off(), format!("of a P whose M could not use it: {}", causes.join(", ")));
    row(
        "blocking calls",
        calls.count(),
        format!("{} in all, longest {}", time(calls.total()), time(calls.max().into())),
    );
}

fn events(paint: &Paint, summary: &Summary) {
    paint.title("events by type");
    let mut counts: Vec<(u64, Ev)> = (0..=u8::MAX).filter_map(Ev::from_u8).map(|ev| (summary.count(ev), ev)).collect();
    counts.retain(|&(count, ev)| count > 0 && ev != Ev::Sync);
    counts.sort_by_key(|&(count, ev)| (std::cmp::Reverse(count), ev));
    let most = counts.first().map_or(1, |&(count, _)| count);
    let shown = &counts[..counts.len().min(EVENTS)];
    let rows = shown.len().div_ceil(2);
    for i in 0..rows {
        let cells: Vec<String> = [i, i + rows]
            .iter()
            .filter_map(|&i| shown.get(i))
            .map(|&(count, ev)| {
                let bar = "█".repeat((count * 12).div_ceil(most) as usize);
                format!("{:<20} {:>7} {}", ev.name(), number(count), paint.text(Style::Good, &format!("{bar:<12}")))
            })
            .collect();
        println!("  {}", cells.join("   ").trim_end());
    }
    let rest = &counts[shown.len()..];
    let more: u64 = rest.iter().map(|(count, _)| count).sum();
    paint.aside(&format!("and {} of {} more types", number(more), rest.len()));
}

fn commands(paint: &Paint, trace: &str) {
    paint.title("see for yourself");
    let rows = [
        (format!("go tool trace {trace}"), "the timeline, in a browser"),
        (format!("go tool trace -pprof=sync {trace} > sync.pprof"), "who waited for whom; also =sched, =syscall"),
        ("go tool pprof -top -lines sync.pprof".into(), "that as a table"),
        (format!("cargo run --release -p gort-cli -- stat {trace}"), "more of this; also check, blocked, sched, pprof"),
    ];
    let width = rows.iter().map(|(command, _)| command.len()).max().unwrap_or(0);
    for (command, what) in rows {
        println!("  {}  {}", paint.text(Style::Good, &format!("{command:<width$}")), paint.text(Style::Dim, what));
    }
    paint.aside(&format!("no Go here? `cargo xtask go` brings one along: cargo xtask go tool trace {trace}"));
}
