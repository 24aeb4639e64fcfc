//! Events as text: the form that `go tool trace -d=parsed` prints, to the byte.
//!
//! ```text
//! M=4 P=0 G=7 StateTransition Time=1200 GoID=7 Running->Waiting Reason="chan receive"
//! TransitionStack=
//!         main.worker @ 0x1234
//!                 /src/main.go:17
//!
//! Stack=
//!         main.worker @ 0x1234
//!                 /src/main.go:17
//! ```
//!
//! Times of day are in UTC.

use std::collections::HashMap;
use std::io::Write;

use super::event::{Event, Kind, Transition};
use super::hash::Seed;
use super::tables::Tables;
use crate::text::quote::quote;
use crate::wire::{ArgKind, Ev};

/// What Go calls the task that none is.
const NO_TASK: u64 = u64::MAX;

/// Prints the events of one trace.
///
/// The end of a task says what its begin said, so a printer sees every event, also those that it does not print.
#[derive(Debug, Default)]
pub struct Printer {
    /// The open tasks: the parent and the type of each.
    tasks: HashMap<u64, (u64, Vec<u8>), Seed>,
}

impl Printer {
    /// Appends the event and a line feed. Takes the tables of its generation.
    pub fn print(&mut self, event: &Event, tables: &Tables, out: &mut Vec<u8>) {
        let kind = event.category();
        let Event { m, p, g, time, args, .. } = *event;
        let _ = write!(out, "M={m} P={p} G={g} {} Time={time}", kind.name());
        match kind {
            Kind::Metric => {
                let name = match event.kind {
                    Ev::ProcsChange => "/sched/gomaxprocs:threads",
                    Ev::HeapAlloc => "/memory/classes/heap/objects:bytes",
                    _ => "/gc/heap/goal:bytes",
                };
                let _ = write!(out, " Name=\"{name}\" Value={}", value(args[0]));
            }
            Kind::Label => {
                put_quoted(out, " Label=", string(tables, args[0]));
                let _ = write!(out, " Resource=Goroutine({g})");
            }
            Kind::RangeBegin | Kind::RangeActive | Kind::RangeEnd => put_range(out, event, kind, tables),
            Kind::TaskBegin => {
                let parent = if args[1] == 0 { NO_TASK } else { args[1] };
                put_task(out, args[0], parent, string(tables, args[2]));
                self.skip(event, tables);
            }
            Kind::TaskEnd => {
                let (parent, name) = self.tasks.remove(&args[0]).unwrap_or((NO_TASK, Vec::new()));
                put_task(out, args[0], parent, &name);
            }
            Kind::RegionBegin | Kind::RegionEnd => {
                let _ = write!(out, " Task={}", args[0]);
                put_quoted(out, " Type=", string(tables, args[1]));
            }
            Kind::Log => {
                let _ = write!(out, " Task={}", args[0]);
                put_quoted(out, " Category=", string(tables, args[1]));
                put_quoted(out, " Message=", string(tables, args[2]));
            }
            Kind::StateTransition => put_transition(out, event, tables),
            Kind::Experimental => {
                let _ = write!(out, " Name={} Args=[", event.kind.name());
                for (i, (arg, v)) in event.kind.spec().args[1..].iter().zip(args).enumerate() {
                    let _ = write!(out, "{}{}={}", if i == 0 { "" } else { ", " }, arg.name, value(v));
                }
                out.push(b']');
            }
            Kind::Sync => put_sync(out, event, tables),
            Kind::StackSample => {}
        }
        if event.stack() != 0 || kind == Kind::StackSample {
            out.extend_from_slice(b"\nStack=\n");
            put_stack(out, tables, event.stack());
        }
        out.push(b'\n');
    }

    /// Takes note of an event that is not printed.
    pub fn skip(&mut self, event: &Event, tables: &Tables) {
        let [task, parent, name, _] = event.args;
        match event.kind {
            Ev::UserTaskBegin => {
                let parent = if parent == 0 { NO_TASK } else { parent };
                self.tasks.insert(task, (parent, string(tables, name).to_vec()));
            }
            Ev::UserTaskEnd => {
                self.tasks.remove(&task);
            }
            _ => {}
        }
    }
}

fn string(tables: &Tables, id: u64) -> &[u8] {
    tables.string_bytes(id).unwrap_or_default()
}

fn value(v: u64) -> String {
    format!("Value{{Uint64({v})}}")
}

fn put_quoted(out: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let mut text = name.to_owned();
    quote(&mut text, bytes);
    out.extend_from_slice(text.as_bytes());
}

fn put_task(out: &mut Vec<u8>, id: u64, parent: u64, name: &[u8]) {
    let _ = write!(out, " ID={id} Parent={parent}");
    put_quoted(out, " Type=", name);
}

fn put_range(out: &mut Vec<u8>, event: &Event, kind: Kind, tables: &Tables) {
    let Event { p, g, args, .. } = *event;
    match event.kind {
        Ev::StwBegin | Ev::StwEnd => {
            let name = [b"stop-the-world (", string(tables, args[0]), b")"].concat();
            put_quoted(out, " Name=", &name);
            let _ = write!(out, " Scope=Goroutine({g})");
        }
        Ev::GcBegin | Ev::GcActive | Ev::GcEnd => {
            out.extend_from_slice(b" Name=\"GC concurrent mark phase\" Scope=None");
        }
        Ev::GcSweepBegin | Ev::GcSweepActive | Ev::GcSweepEnd => {
            let p = if event.kind == Ev::GcSweepActive { args[0] as i64 } else { p };
            let _ = write!(out, " Name=\"GC incremental sweep\" Scope=Proc({p})");
        }
        _ => {
            let g = if event.kind == Ev::GcMarkAssistActive { args[0] as i64 } else { g };
            let _ = write!(out, " Name=\"GC mark assist\" Scope=Goroutine({g})");
        }
    }
    if kind == Kind::RangeEnd {
        out.extend_from_slice(b" Attributes=[");
        if event.kind == Ev::GcSweepEnd {
            let (swept, reclaimed) = (value(args[0]), value(args[1]));
            let _ = write!(out, "\"bytes swept\"={swept} \"bytes reclaimed\"={reclaimed}");
        }
        out.push(b']');
    }
}

fn put_transition(out: &mut Vec<u8>, event: &Event, tables: &Tables) {
    match event.transition() {
        Some(Transition::G { id, from, to }) => {
            let _ = write!(out, " GoID={id} {}->{}", from.name(), to.name());
        }
        Some(Transition::P { id, from, to }) => {
            let _ = write!(out, " ProcID={id} {}->{}", from.name(), to.name());
        }
        None => {}
    }
    let reason = event.arg(ArgKind::String).map_or(&b""[..], |id| string(tables, id));
    put_quoted(out, " Reason=", reason);
    let stack = match event.kind {
        // Where the new goroutine begins; Go prints the word even if it does not know.
        Ev::GoCreate | Ev::GoCreateBlocked => Some(event.args[1]),
        // The goroutine that moves is the one that was running.
        Ev::GoStop | Ev::GoBlock | Ev::GoSyscallBegin | Ev::GoStatusStack => Some(event.stack()).filter(|&id| id != 0),
        _ => None,
    };
    if let Some(id) = stack {
        out.extend_from_slice(b"\nTransitionStack=\n");
        put_stack(out, tables, id);
    }
}

fn put_stack(out: &mut Vec<u8>, tables: &Tables, id: u64) {
    for (pc, func, file, line) in tables.stack_numbers(id) {
        out.push(b'\t');
        out.extend_from_slice(string(tables, func));
        let _ = write!(out, " @ 0x{pc:x}\n\t\t");
        out.extend_from_slice(string(tables, file));
        let _ = writeln!(out, ":{line}");
    }
}

fn put_sync(out: &mut Vec<u8>, event: &Event, tables: &Tables) {
    let _ = write!(out, " N={}", event.args[0]);
    // The last one of a trace has no generation.
    if let Some(clock) = tables.clock_snapshot().filter(|_| event.args[1] != 0) {
        let wall = rfc3339(clock.wall_sec as i64, clock.wall_nsec);
        let _ = write!(out, " Trace={} Mono={} Wall={wall}", clock.trace_ns, clock.mono_ns);
    }
}

/// A time of day as Go's `time.RFC3339Nano` has it, in UTC.
pub fn rfc3339(sec: i64, nsec: u64) -> String {
    const NS: i128 = 1_000_000_000;
    let ns = i128::from(sec) * NS + i128::from(nsec as i64);
    let (sec, ns) = (ns.div_euclid(NS), ns.rem_euclid(NS));
    let (days, second) = (sec.div_euclid(86_400), sec.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let mut text =
        format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60);
    if ns != 0 {
        text += format!(".{ns:09}").trim_end_matches('0');
    }
    text + "Z"
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar.
fn civil(days: i128) -> (i128, i128, i128) {
    // Years begin in March, so that the leap day is their last; eras have 400 of them.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (year + 400 * era + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_of_day() {
        for (sec, nsec, text) in [
            (0, 0, "1970-01-01T00:00:00Z"),
            (-1, 999_999_999, "1969-12-31T23:59:59.999999999Z"),
            (951_782_400, 500_000_000, "2000-02-29T00:00:00.5Z"),
            (1_740_755_049, 123, "2025-02-28T15:04:09.000000123Z"),
            (1_709_251_199, 1_000_000_010, "2024-03-01T00:00:00.00000001Z"),
            (4_107_542_400, 0, "2100-03-01T00:00:00Z"),
            (253_402_300_799, 0, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(sec, nsec), text);
        }
    }
}
