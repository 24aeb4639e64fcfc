//! `gort print`: events as text, in our form or Go's, or as a JSON object each.

use std::io::{self, IsTerminal, Write};

use tracer::read::print::Printer;
use tracer::read::{Event, Kind, NONE, Transition};
use tracer::wire::Ev;

use super::Print;
use crate::args;
use crate::input::Input;
use crate::record::Record;
use crate::text::{BAD, DIM, Out};
use crate::{Failure, Outcome};

/// Which events to show.
struct Filter<'a> {
    args: &'a args::Print,
    kinds: Vec<Wanted>,
}

enum Wanted {
    Event(Ev),
    Kind(Kind),
}

/// The events that Go's tools have no other word for than their kind.
const KINDS: [Kind; 14] = [
    Kind::Sync,
    Kind::Metric,
    Kind::Label,
    Kind::StackSample,
    Kind::RangeBegin,
    Kind::RangeActive,
    Kind::RangeEnd,
    Kind::TaskBegin,
    Kind::TaskEnd,
    Kind::RegionBegin,
    Kind::RegionEnd,
    Kind::Log,
    Kind::StateTransition,
    Kind::Experimental,
];

impl Filter<'_> {
    fn new(args: &args::Print) -> Result<Filter<'_>, Failure> {
        let events = || (0..=u8::MAX).filter_map(Ev::from_u8);
        let wanted = |name: &String| {
            let event = events().find(|ev| ev.name().eq_ignore_ascii_case(name)).map(Wanted::Event);
            let kind = KINDS.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(name)).map(Wanted::Kind);
            event.or(kind).ok_or_else(|| {
                let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name()).collect();
                format!("no kind {name:?}: name an event (GoBlock, STWBegin) or one of {}", kinds.join(", "))
            })
        };
        Ok(Filter { args, kinds: args.kind.iter().map(wanted).collect::<Result<_, _>>()? })
    }

    fn takes(&self, event: &Event, at: u64) -> bool {
        let Filter { args, kinds } = self;
        let is = |wanted: &Wanted| match wanted {
            Wanted::Event(ev) => *ev == event.kind,
            Wanted::Kind(kind) => *kind == event.category(),
        };
        let about = match event.transition() {
            Some(Transition::G { id, .. }) => id,
            _ => NONE,
        };
        let of = |wanted: &i64| *wanted == event.g || *wanted == about;
        at >= args.from
            && args.to.is_none_or(|to| at <= to)
            && (kinds.is_empty() || kinds.iter().any(is))
            && (args.goroutine.is_empty() || args.goroutine.iter().any(of))
    }
}

pub(crate) fn run(args: &args::Print, progress: bool, out: &mut Out) -> Outcome {
    let filter = Filter::new(args)?;
    let input = Input::open(&args.trace.file, progress && !io::stdout().is_terminal())?;
    let mut start = None;
    let mut go = args.as_go.then(Printer::default);
    let mut text = Vec::new();
    let end = input.each(|event, _, tables| {
        let Some(event) = event else {
            if !args.trace.json && !args.as_go {
                writeln!(out, "{}", out.paint(BAD, "-- the trace is broken here --"))?;
            }
            return Ok::<_, Failure>(());
        };
        // A Sync at the beginning has the time of the first batch, which may be earlier than any event.
        if start.is_none() && event.kind != Ev::Sync {
            start = Some(event.time);
        }
        let since = start.unwrap_or(event.time);
        if !filter.takes(event, event.time.saturating_sub(since).max(0) as u64) {
            if let Some(go) = &mut go {
                go.skip(event, tables);
            }
            return Ok(());
        }
        if let Some(go) = &mut go {
            text.clear();
            go.print(event, tables, &mut text);
            return Ok(out.write_all(&text)?);
        }
        let record = Record::new(event, since, tables, args.stacks);
        match args.trace.json {
            true => out.json_line(&record)?,
            false => print(&record, out)?,
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(end.verdict())
}

fn id(id: Option<i64>) -> String {
    id.map_or("-".into(), |id| id.to_string())
}

fn print(record: &Record<'_>, out: &mut Out) -> Print {
    let Record { at_ns, m, p, g, event, change, text, args, stack, .. } = record;
    let (seconds, ns) = (at_ns.div_euclid(1_000_000_000), at_ns.rem_euclid(1_000_000_000));
    write!(out, "{seconds:>4}.{ns:09}  M {:<7} P {:<3} G {:<6} {event:<18}", id(*m), id(*p), id(*g))?;
    if let Some(change) = change {
        match change.from == change.to {
            true => write!(out, "  {} {} is {}", change.of, change.id, change.to)?,
            false => write!(out, "  {} {}: {} -> {}", change.of, change.id, change.from, change.to)?,
        }
    }
    for text in text {
        write!(out, "  {text:?}")?;
    }
    for (name, value) in args {
        write!(out, "  {name}={value}")?;
    }
    writeln!(out)?;
    for frame in stack.iter().flatten() {
        let line = out.paint(DIM, &format!("{:>16}{} {}:{}", "", frame.func, frame.file, frame.line));
        writeln!(out, "{line}")?;
    }
    Ok(())
}
