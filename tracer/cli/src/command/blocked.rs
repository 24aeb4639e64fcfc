//! `gort blocked`: where goroutines waited, with stacks.

use std::io::Write;

use serde::Serialize;
use tracer::analyze::{Frame, StackId, Stat, Summary, Wait, WaitKind};

use super::{FrameJson, Head, Print, Totals, or_unknown, site};
use crate::Outcome;
use crate::args::Blocked;
use crate::input::End;
use crate::text::Column::{Left, Right};
use crate::text::{BOLD, DIM, Out, Table, number, plural, time};

/// Waits for one reason in one stack.
struct Row<'a> {
    kind: WaitKind,
    reason: &'a str,
    stack: StackId,
    stat: Stat,
}

pub(crate) fn run(args: &Blocked, progress: bool, out: &mut Out) -> Outcome {
    let (summary, end) = super::analyze(&args.trace, progress)?;
    let rows = rows(&summary, args);
    match args.trace.json {
        true => out.json(&json(&summary, &end, &rows, args))?,
        false => print(&summary, &rows, args, out)?,
    }
    Ok(end.verdict())
}

fn wanted(kinds: &[WaitKind], kind: WaitKind) -> bool {
    if kinds.is_empty() { kind != WaitKind::Sleep } else { kinds.contains(&kind) }
}

fn rows<'a>(summary: &'a Summary, args: &Blocked) -> Vec<Row<'a>> {
    let waits = summary.waits.by_stack.iter().map(|waits| {
        let reason = &*summary.waits.by_reason[waits.reason].0;
        (WaitKind::of(reason), reason, waits)
    });
    let calls = summary.calls.by_stack.iter().map(|calls| (WaitKind::Syscall, WaitKind::Syscall.name(), calls));
    let mut rows: Vec<Row<'_>> = waits
        .chain(calls)
        .filter(|(kind, _, _)| wanted(&args.kind, *kind))
        .map(|(kind, reason, waits)| {
            let stat = if args.all { waits.all } else { waits.stat };
            Row { kind, reason, stack: waits.stack, stat }
        })
        .filter(|row| row.stat.count > 0)
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.stat.total), row.kind, row.stack));
    rows
}

fn print(summary: &Summary, rows: &[Row<'_>], args: &Blocked, out: &mut Out) -> Print {
    out.title("By reason")?;
    let columns = [
        ("in all", Right),
        ("times", Right),
        ("p50", Right),
        ("p90", Right),
        ("p99", Right),
        ("longest", Right),
        ("open", Right),
        ("kind", Left),
        ("for", Left),
    ];
    let mut table = Table::new(&columns);
    let waits = summary.waits.by_reason.iter().map(|(reason, waits)| (WaitKind::of(reason), &**reason, waits));
    let calls = summary.calls.by_reason.iter().map(|(reason, calls)| (WaitKind::Syscall, &**reason, calls));
    for (kind, reason, h) in waits.chain(calls).filter(|(kind, _, _)| wanted(&args.kind, *kind)) {
        let [p50, p90, p99] = [0.5, 0.9, 0.99].map(|q| time(h.quantile(q)));
        let reason = or_unknown(reason).to_owned();
        let (total, count, max, open) = (time(h.total()), number(h.count()), time(h.max()), number(h.open()));
        table.row([total, count, p50, p90, p99, max, open, kind.name().to_owned(), reason]);
    }
    table.print(out)?;

    out.title("By stack")?;
    for row in rows.iter().take(args.top) {
        let Stat { count, open, total, max } = row.stat;
        let (total, longest, reason) = (time(total), time(max), or_unknown(row.reason));
        let open = if open > 0 { format!(", {} still open at the end", number(open)) } else { String::new() };
        let head =
            out.paint(BOLD, &format!("{total:>8}  {reason} at {}", site(summary.stacks.site(row.stack).as_ref())));
        writeln!(out, "  {head}")?;
        writeln!(out, "            {}, the longest {longest}{open}", plural(count, "time"))?;
        let frames: Vec<Frame> = summary.stacks.frames(row.stack).map(|(_, frame)| frame).collect();
        stack(&frames, args.frames, out)?;
    }
    if rows.len() > args.top {
        out.aside(&format!("{} more: --top {}", plural((rows.len() - args.top) as u64, "stack"), rows.len()))?;
    }
    if args.kind.is_empty() {
        out.aside("not shown: sleep (--kind sleep)")?;
    }
    longest(summary, args, out)
}

fn stack(frames: &[Frame], max: usize, out: &mut Out) -> Print {
    for frame in frames.iter().take(max) {
        let line = out.paint(DIM, &format!("            {frame}"));
        writeln!(out, "{line}")?;
    }
    if frames.len() > max && max > 0 {
        out.aside(&format!("          ... {} more: --frames {}", frames.len() - max, frames.len()))?;
    }
    Ok(())
}

fn longest(summary: &Summary, args: &Blocked, out: &mut Out) -> Print {
    let waits = summary.waits.longest.iter().map(|wait| (WaitKind::of(&wait.reason), wait));
    let calls = summary.calls.longest.iter().map(|wait| (WaitKind::Syscall, wait));
    let mut longest: Vec<(WaitKind, &Wait)> =
        waits.chain(calls).filter(|(kind, _)| wanted(&args.kind, *kind)).collect();
    longest.sort_by_key(|(_, wait)| (std::cmp::Reverse(wait.ns), wait.begin));
    if longest.is_empty() {
        return Ok(());
    }
    out.title("The longest, one by one")?;
    let columns = [("from", Right), ("for", Right), ("", Left), ("goroutine", Right), ("reason", Left), ("at", Left)];
    let mut table = Table::new(&columns);
    for (_, wait) in longest.iter().take(args.top) {
        let from = format!("+{}", time(wait.begin.saturating_sub(summary.start).max(0) as u64));
        let open = if wait.open { "open" } else { "" };
        let name = wait.name.as_deref().unwrap_or_default();
        let label = wait.label.as_ref().map(|label| format!(" [{label}]")).unwrap_or_default();
        let at = format!("{} in {}{label}", site(wait.stack.site()), or_unknown(name));
        table.row([from, time(wait.ns), open.into(), wait.g.to_string(), or_unknown(&wait.reason).to_owned(), at]);
    }
    table.print(out)
}

#[derive(Serialize)]
struct Json<'a> {
    trace: Head<'a>,
    stacks: Vec<RowJson<'a>>,
    longest: Vec<WaitJson<'a>>,
}

#[derive(Serialize)]
struct RowJson<'a> {
    kind: &'static str,
    reason: &'a str,
    #[serde(flatten)]
    stat: Totals,
    frames: Vec<FrameJson>,
}

#[derive(Serialize)]
struct WaitJson<'a> {
    kind: &'static str,
    reason: &'a str,
    goroutine: i64,
    function: Option<&'a str>,
    label: Option<&'a str>,
    begin_ns: i64,
    ns: u64,
    open: bool,
    frames: Vec<FrameJson>,
}

fn json<'a>(summary: &'a Summary, end: &'a End, rows: &[Row<'a>], args: &Blocked) -> Json<'a> {
    let stacks = rows.iter().map(|row| RowJson {
        kind: row.kind.name(),
        reason: row.reason,
        stat: Totals::from(&row.stat),
        frames: summary.stacks.frames(row.stack).map(|(_, frame)| FrameJson::from(&frame)).collect(),
    });
    let waits = summary.waits.longest.iter().map(|wait| (WaitKind::of(&wait.reason), wait));
    let calls = summary.calls.longest.iter().map(|wait| (WaitKind::Syscall, wait));
    let longest = waits.chain(calls).filter(|(kind, _)| wanted(&args.kind, *kind)).map(|(kind, wait)| WaitJson {
        kind: kind.name(),
        reason: &wait.reason,
        goroutine: wait.g,
        function: wait.name.as_deref(),
        label: wait.label.as_deref(),
        begin_ns: wait.begin.saturating_sub(summary.start),
        ns: wait.ns,
        open: wait.open,
        frames: wait.stack.frames.iter().map(FrameJson::from).collect(),
    });
    Json { trace: Head::of(summary, end), stacks: stacks.collect(), longest: longest.collect() }
}
