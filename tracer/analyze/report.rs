//! The summary as text for people.

use std::fmt;

use super::histogram::Histogram;
use super::wait::{Stat, Wait};
use super::{Frame, Spent, Summary};
use crate::wire::Ev;

/// How many lines each table has at most.
const ROWS: usize = 10;
/// How many of the longest waits are told with their stacks, and how deep.
const WAITS: usize = 5;
const FRAMES: usize = 6;

/// Nanoseconds in the unit that fits: `1.23 ms`.
pub(super) fn time(ns: u128) -> String {
    let (unit, divisor) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => ("us", 1e3),
        1_000_000..1_000_000_000 => ("ms", 1e6),
        _ => ("s", 1e9),
    };
    let value = ns as f64 / divisor;
    let decimals = if value < 10.0 {
        2
    } else if value < 100.0 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {unit}")
}

/// A number with its digits in threes: `1,234,567`.
pub(super) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn bytes(n: u64) -> String {
    match n {
        0..10_000 => format!("{} B", number(n)),
        10_000..10_000_000 => format!("{} KB", number(n / 1000)),
        _ => format!("{} MB", number(n / 1_000_000)),
    }
}

fn percent(part: u128, whole: u128) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}%", part as f64 * 100.0 / whole as f64) }
}

/// Rows of cells; the first column stands left, the others right, but for the last if it is text.
struct Table<'a> {
    head: &'a [&'a str],
    text_last: bool,
    rows: Vec<Vec<String>>,
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.head.len();
        let width = |i: usize| {
            let cells = self.rows.iter().map(|row| row[i].chars().count());
            cells.chain([self.head[i].chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let head = self.head.iter().map(|s| s.to_string()).collect();
        for row in [&head].into_iter().chain(&self.rows) {
            let mut line = String::from(" ");
            for (i, cell) in row.iter().enumerate() {
                let width = widths[i];
                if i == 0 {
                    line += &format!(" {cell:width$}");
                } else if i + 1 == columns && self.text_last {
                    line += &format!("  {cell}");
                } else {
                    line += &format!("  {cell:>width$}");
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

fn stat_cells(stat: &Stat) -> [String; 5] {
    let mean = stat.total.checked_div(u128::from(stat.count)).unwrap_or(0);
    [number(stat.count), time(stat.total), time(mean), time(stat.max.into()), number(stat.open)]
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>8}  G {}", time(self.ns.into()), self.g)?;
        if let Some(name) = &self.name {
            write!(f, " {name}")?;
        }
        if let Some(label) = &self.label {
            write!(f, " [{label}]")?;
        }
        write!(f, ": {}", self.reason)?;
        if self.open {
            write!(f, ", still waiting at the end")?;
        }
        let frames = &self.stack.frames;
        // What is above the site is the runtime's business.
        let skip = self.stack.site().and_then(|site| frames.iter().position(|frame| frame == site)).unwrap_or(0);
        let shown: Vec<&Frame> = frames.iter().skip(skip).take(FRAMES).collect();
        for frame in &shown {
            write!(f, "\n              {frame}")?;
        }
        if frames.len() > skip + shown.len() {
            write!(f, "\n              ... {} more", frames.len() - skip - shown.len())?;
        }
        Ok(())
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.overview(f)?;
        self.time_split(f)?;
        self.blocking(f)?;
        self.scheduling(f)?;
        self.counts_table(f)
    }
}

impl Summary {
    fn overview(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let generations = self.generations.len();
        writeln!(
            f,
            "{}: {} in {generations} generation{}, {} events, {}",
            self.version,
            time(self.duration().into()),
            if generations == 1 { "" } else { "s" },
            number(self.events()),
            bytes(self.bytes()),
        )?;
        let gs = &self.goroutines;
        writeln!(
            f,
            "goroutines: {} seen, {} created, {} ended, {} alive at the end, at most {} at once",
            number(gs.seen),
            number(gs.created),
            number(gs.ended),
            number(gs.alive()),
            number(gs.peak),
        )?;
        let world = &self.world;
        let procs = world.gomaxprocs.unwrap_or(world.ps);
        let whole = u128::from(self.duration()) * u128::from(procs.max(1));
        writeln!(f, "Ps: {procs}, in use {}; Ms: {}", percent(world.ps_in_use, whole), world.ms)
    }

    fn time_split(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let groups = &self.goroutines.groups;
        if groups.is_empty() {
            return Ok(());
        }
        writeln!(f, "\ngoroutines by the function they were started with")?;
        let row = |name: &str, count: u64, spent: &Spent| {
            let name = if name.is_empty() { "(unknown)" } else { name };
            let cells = [time(spent.running), time(spent.runnable), time(spent.blocked), time(spent.syscall)];
            [name.to_string(), number(count)].into_iter().chain(cells).collect()
        };
        let mut rows: Vec<Vec<String>> = groups.iter().take(ROWS).map(|g| row(&g.name, g.count, &g.spent())).collect();
        if groups.len() > ROWS {
            let count = groups.iter().map(|g| g.count).sum();
            rows.push(row(&format!("all {} functions", groups.len()), count, &self.spent()));
        }
        let head = ["function", "count", "running", "runnable", "blocked", "in calls"];
        write!(f, "{}", Table { head: &head, text_last: false, rows })
    }

    fn blocking(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waits = &self.waits;
        let table = |f: &mut fmt::Formatter<'_>, title: &str, stats: &[(std::sync::Arc<str>, Histogram)]| {
            if stats.is_empty() {
                return Ok(());
            }
            writeln!(f, "\n{title}")?;
            let name = |reason: &str| if reason.is_empty() { "(none given)".to_string() } else { reason.to_string() };
            let rows = stats
                .iter()
                .take(ROWS)
                .map(|(r, s)| [name(r)].into_iter().chain(stat_cells(&s.stat())).collect())
                .collect();
            let head = ["reason", "count", "total", "mean", "longest", "open"];
            write!(f, "{}", Table { head: &head, text_last: false, rows })
        };
        table(f, "blocking", &waits.by_reason)?;
        if !waits.by_site.is_empty() {
            writeln!(f, "\nblocking by place")?;
            let row = |site: &super::Site| {
                let [count, total, _, max, _] = stat_cells(&site.stat);
                let file = site.file.rsplit('/').next().unwrap_or_default();
                let place = if site.func.is_empty() {
                    "(no stack)".into()
                } else {
                    format!("{} ({file}:{})", site.func, site.line)
                };
                vec![site.reason.to_string(), count, total, max, place]
            };
            let rows = waits.by_site.iter().take(ROWS).map(row).collect();
            write!(f, "{}", Table { head: &["reason", "count", "total", "longest", "place"], text_last: true, rows })?;
        }
        if !waits.longest.is_empty() {
            writeln!(f, "\nthe longest waits")?;
            for wait in waits.longest.iter().take(WAITS) {
                writeln!(f, "  {wait}")?;
            }
        }
        table(f, "stops of the world", &self.world.stops)
    }

    fn scheduling(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let latency = &self.latency.all;
        if latency.count() > 0 {
            let q = |q| time(latency.quantile(q).into());
            writeln!(f, "\nfrom runnable to running, {} times", number(latency.count()))?;
            let cells = [q(0.5), q(0.9), q(0.99), q(0.999)];
            writeln!(
                f,
                "  p50 {}  p90 {}  p99 {}  p99.9 {}  longest {}",
                cells[0],
                cells[1],
                cells[2],
                cells[3],
                time(latency.max().into())
            )?;
        }
        let line = |f: &mut fmt::Formatter<'_>, what: &str, stat: &Stat| {
            if stat.count == 0 {
                return Ok(());
            }
            let [count, total, mean, max, open] = stat_cells(stat);
            writeln!(f, "{what}: {count}, {total} in all, {mean} on average, the longest {max}, {open} open at the end")
        };
        line(f, "blocking calls", &self.syscalls().stat())?;
        line(f, "GC cycles", &self.world.gc.stat())?;
        line(f, "GC assists", &self.world.assists.stat())?;
        let ext = &self.ext;
        if ext.steals + ext.handed_off() > 0 {
            write!(
                f,
                "steals: {}, of {} goroutines; hand-offs: {}",
                number(ext.steals),
                number(ext.stolen),
                number(ext.handed_off())
            )?;
            for (cause, &count) in &ext.hand_offs {
                write!(f, ", {} {cause}", number(count))?;
            }
            writeln!(f)?;
        }
        if ext.polls > 0 {
            writeln!(f, "network: {} looks made {} goroutines runnable", number(ext.polls), number(ext.polled))?;
        }
        if ext.timer_batches > 0 {
            let (batches, timers) = (number(ext.timer_batches), number(ext.timers));
            writeln!(f, "timers: {timers} were due with others, at {batches} looks")?;
        }
        if ext.queue_looks > 0 {
            let (own, global) = (number(ext.longest_queue), number(ext.longest_global_queue));
            writeln!(f, "run queues: at most {own} goroutines seen for one P, {global} in the global queue")?;
        }
        if ext.lost_bytes > 0 {
            writeln!(f, "LOST: {} of events before a generation", bytes(ext.lost_bytes))?;
        }
        if ext.stalls.count > 0 {
            let [count, _, _, max, _] = stat_cells(&ext.stalls);
            writeln!(f, "stalls in plain code: {count}, the longest {max} when it was reported")?;
        }
        if ext.in_lock_cycles > 0 {
            writeln!(f, "goroutines in deadlocks by lock order: {}", number(ext.in_lock_cycles))?;
        }
        if ext.unknown + ext.malformed > 0 {
            writeln!(f, "extension records: {} of unknown types, {} broken entries", ext.unknown, ext.malformed)?;
        }
        Ok(())
    }

    fn counts_table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut counts: Vec<(u64, Ev)> = (0..=u8::MAX)
            .filter_map(Ev::from_u8)
            .map(|ev| (self.count(ev), ev))
            .filter(|&(count, ev)| count > 0 && ev != Ev::Sync)
            .collect();
        counts.sort_by_key(|&(count, ev)| (std::cmp::Reverse(count), ev));
        if counts.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nevents")?;
        for row in counts.chunks(3) {
            let cells: String =
                row.iter().map(|&(count, ev)| format!("{:>12} {:<22}", number(count), ev.name())).collect();
            writeln!(f, "{}", cells.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let times = [0, 999, 1_000, 12_345, 999_999, 1_500_000, 61_000_000_000].map(time);
        assert_eq!(times, ["0 ns", "999 ns", "1.00 us", "12.3 us", "1000 us", "1.50 ms", "61.0 s"]);
        assert_eq!([0, 999, 1000, 1_234_567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(percent(1, 3), "33.3%");
        assert_eq!(percent(1, 0), "-");
    }

    #[test]
    fn columns_are_aligned() {
        let rows = vec![vec!["a".into(), "1".into(), "x".into()], vec!["long".into(), "100".into(), "yy".into()]];
        let text = Table { head: &["name", "n", "place"], text_last: true, rows }.to_string();
        assert_eq!(text, "  name    n  place\n  a       1  x\n  long  100  yy\n");
    }
}
