//! The tables for docs/BENCHMARKS.md. The file's own text stays; what stands between the marks of an allocator is written
//! anew:
//!
//! ```text
//! <!-- switch: glibc malloc -->
//! <!-- switch: end -->
//! ```
//!
//! Another suite has its own word in place of `switch`.

use crate::options::Options;
use crate::results::{Results, figure, is_tie, rows};
use crate::rivals::Contender;
use crate::workload::{Column, Kind, Net, Suite, Workload};
use crate::{ALLOCATOR_NAME, http, machine, report};
use std::fmt::Write;
use std::path::Path;

/// Writes the tables into a file that has the marks, or into a new one.
pub fn write(path: &Path, options: &Options, results: &Results, go: Option<&str>) -> Result<(), String> {
    let text = with_tables(path, options.suite, &tables(options, results, go))?;
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

/// Whether it has the marks: a question to ask before half an hour of measuring.
pub fn check(path: &Path, suite: Suite) -> Result<(), String> {
    with_tables(path, suite, "").map(drop)
}

/// The file's text with these tables.
fn with_tables(path: &Path, suite: Suite, tables: &str) -> Result<String, String> {
    let begin = format!("<!-- {}: {ALLOCATOR_NAME} -->", suite.word());
    let end = format!("<!-- {}: end -->", suite.word());
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => format!("{begin}\n{end}\n"),
        Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
    };
    replaced(&text, &begin, &end, tables)
        .ok_or_else(|| format!("{} has no lines {begin:?} and {end:?} to write between", path.display()))
}

fn replaced(text: &str, begin: &str, end: &str, new: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{new}{end}{after}"))
}

/// A row of a table.
struct Row {
    workload: Workload,
    procs: usize,
    column: usize,
    spec: &'static Column,
}

impl Row {
    fn title(&self) -> String {
        format!("{}, {}", self.workload, self.spec.unit)
    }
}

fn tables(options: &Options, results: &Results, go: Option<&str>) -> String {
    let mut text = String::new();
    let go = go.map_or("no Go".into(), |go| go.trim_start_matches("go version ").replacen("go", "Go ", 1));
    let _ = writeln!(text, "\nMeasured {}, with {ALLOCATOR_NAME}; rounds: {}.\n", machine::when(), options.rounds);
    let _ = writeln!(text, "- {}", machine::machine());
    let _ = writeln!(text, "- {}; {go}", machine::rustc());
    let _ = writeln!(text, "- {}", machine::crates(options.suite));
    if let (Suite::Http, Ok(wrk)) = (options.suite, http::find_wrk()) {
        let _ = writeln!(text, "- {wrk}");
    }
    results.remarks.iter().for_each(|remark| text.push_str(&format!("- {remark}\n")));
    text.push('\n');
    if let Some(warning) = results.disturbed() {
        let _ = writeln!(text, "**{warning}**\n");
    }
    let all: Vec<Row> = options.workloads.iter().flat_map(|&workload| rows_of(workload, options)).collect();
    let mut notes = Notes::default();
    match options.suite {
        Suite::Switch => {
            main_table(&mut text, &all, results, &mut notes);
            threads_table(&mut text, &all, results, &mut notes);
        }
        Suite::Net | Suite::Http | Suite::Gc => socket_table(&mut text, options.suite, &all, results, &mut notes),
    }
    traced_table(&mut text, &all, results);
    for (i, note) in notes.0.iter().enumerate() {
        let _ = writeln!(text, "[{}] {note}  ", i + 1);
    }
    let details = report::blocks(options, results);
    let _ = writeln!(text, "\n<details><summary>All medians, with the least and the most</summary>\n");
    let _ = writeln!(text, "```text\n{}\n```\n\n</details>\n", details.trim());
    text
}

fn rows_of(workload: Workload, options: &Options) -> Vec<Row> {
    let mut all = Vec::new();
    for (column, spec) in rows(workload) {
        all.extend(workload.procs(&options.procs).into_iter().map(|procs| Row { workload, procs, column, spec }));
    }
    all
}

/// Why cells are empty, each once.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    /// A median, or a number that leads to the reason.
    fn cell(&mut self, results: &Results, row: &Row, contender: Contender) -> String {
        let key = (row.workload, row.procs, contender);
        let median = results.median(key, row.column).map(figure);
        let Some(why) = results.why_not(key) else { return median.unwrap_or_default() };
        let note = format!("{}, {}: {}", contender.word(), row.workload, why.replace('|', "/"));
        let at = self.0.iter().position(|known| *known == note).unwrap_or_else(|| {
            self.0.push(note);
            self.0.len() - 1
        });
        format!("{} [{}]", median.unwrap_or_else(|| "-".into()), at + 1).trim().to_owned()
    }
}

fn main_table(text: &mut String, all: &[Row], results: &Results, notes: &mut Notes) {
    text.push_str("| | P | gort | Go | tokio | may | smol | gort / Go | target | gort / best of tokio, may, smol |\n");
    text.push_str("|---|---|---|---|---|---|---|---|---|---|\n");
    for row in all {
        let Row { workload, procs, column, spec } = *row;
        let mut cells = vec![row.title(), procs.to_string()];
        let columns = [Contender::Gort, Contender::Go].into_iter().chain(Contender::LIBRARIES);
        cells.extend(columns.map(|contender| notes.cell(results, row, contender)));
        let ratio = |by| results.ratio(workload, procs, column, Contender::Gort, by).filter(|_| spec.compared);
        cells.push(ratio(Contender::Go).map_or(String::new(), said));
        cells.push(reached(results, row));
        cells.push(against_best(results, row, &Contender::LIBRARIES));
        line(text, &cells);
    }
    text.push('\n');
}

/// Everybody, and gort by each.
fn socket_table(text: &mut String, suite: Suite, all: &[Row], results: &Results, notes: &mut Notes) {
    let there: Vec<Contender> = Contender::all(suite).into_iter().filter(|one| !one.is_traced()).collect();
    let rivals: Vec<Contender> = there.iter().copied().filter(|one| !one.is_ours()).collect();
    let mut heads = vec![String::new(), "P".into()];
    heads.extend(there.iter().map(|one| one.word().to_owned()));
    heads.extend(rivals.iter().map(|one| format!("gort / {}", one.word())));
    heads.push("target".into());
    line(text, &heads);
    line(text, &vec!["---".to_owned(); heads.len()]);
    for row in all {
        let Row { workload, procs, column, spec } = *row;
        let mut cells = vec![row.title(), procs.to_string()];
        cells.extend(there.iter().map(|&contender| notes.cell(results, row, contender)));
        let ratio = |by| results.ratio(workload, procs, column, Contender::Gort, by).filter(|_| spec.compared);
        cells.extend(rivals.iter().map(|&rival| ratio(rival).map_or(String::new(), said)));
        cells.push(reached(results, row));
        line(text, &cells);
    }
    text.push('\n');
}

/// What is wanted, and whether it is so.
fn reached(results: &Results, row: &Row) -> String {
    match results.target(row.workload, row.procs, row.column) {
        Some((wanted, Some(true))) => format!("{wanted}: met"),
        Some((wanted, Some(false))) => format!("{wanted}: not met"),
        Some((wanted, None)) => wanted,
        None => String::new(),
    }
}

fn threads_table(text: &mut String, all: &[Row], results: &Results, notes: &mut Notes) {
    let has = |row: &&Row| results.best(row.workload, row.procs, row.column, &Contender::THREADS).is_some();
    let all: Vec<&Row> = all.iter().filter(has).collect();
    if all.is_empty() {
        return;
    }
    text.push_str("Beside plain threads (P is the number of processors they may use):\n\n");
    text.push_str(
        "| | P | gort | std | parking_lot | crossbeam-channel | gort / best |\n|---|---|---|---|---|---|---|\n",
    );
    for row in all {
        let mut cells = vec![row.title(), row.procs.to_string()];
        let columns = [Contender::Gort].into_iter().chain(Contender::THREADS);
        cells.extend(columns.map(|contender| notes.cell(results, row, contender)));
        cells.push(against_best(results, row, &Contender::THREADS));
        line(text, &cells);
    }
    text.push('\n');
}

fn traced_table(text: &mut String, all: &[Row], results: &Results) {
    let traced = |row: &&Row| results.rounds((row.workload, row.procs, Contender::GortSink)) > 0;
    let is_rate = |kind| matches!(kind, Kind::Rate | Kind::Burst(_) | Kind::Net(Net::Echo(_)));
    let rates = |row: &&Row| row.column == 0 && is_rate(row.workload.spec().kind);
    let all: Vec<&Row> = all.iter().filter(rates).filter(traced).collect();
    if all.is_empty() {
        return;
    }
    let has_go = all.iter().any(|row| results.rounds((row.workload, row.procs, Contender::GoSink)) > 0);
    text.push_str("What the tracer adds (traced / not: to nowhere, to a file, with a flight recorder), and how that compares in ns:\n\n");
    let mut heads = vec!["", "P", "gort", "to nowhere", "to a file", "recorder", "bytes per operation"];
    if has_go {
        heads.extend([
            "Go",
            "to nowhere",
            "recorder",
            "bytes per operation",
            "added, gort / Go",
            "recorder, gort / Go",
        ]);
    }
    line(text, &heads.iter().map(|&head| head.to_owned()).collect::<Vec<_>>());
    line(text, &vec!["---".to_owned(); heads.len()]);
    for row in all {
        let key = |contender| (row.workload, row.procs, contender);
        let median = |contender| results.median(key(contender), row.column).map_or(String::new(), figure);
        let ratio = |traced, untraced| {
            let ratio = results.ratio(row.workload, row.procs, row.column, traced, untraced);
            ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"))
        };
        let bytes = |contender| results.trace_bytes(key(contender)).map_or(String::new(), figure);
        let mut cells = vec![row.title(), row.procs.to_string(), median(Contender::Gort)];
        cells.extend(
            [Contender::GortSink, Contender::GortFile, Contender::GortFlight]
                .map(|traced| ratio(traced, Contender::Gort)),
        );
        cells.push(bytes(Contender::GortSink));
        if has_go {
            cells.push(median(Contender::Go));
            cells.extend([Contender::GoSink, Contender::GoFlight].map(|traced| ratio(traced, Contender::Go)));
            cells.push(bytes(Contender::GoSink));
            let added = |traced: Contender| {
                let median = |of| results.median(key(of), row.column);
                Some(median(traced)? - median(traced.untraced()?)?)
            };
            let pairs = [(Contender::GortSink, Contender::GoSink), (Contender::GortFlight, Contender::GoFlight)];
            // Less than a twentieth of the whole cannot be told from nothing.
            let least = results.median(key(Contender::Go), row.column).map_or(0.0, |go| go / 20.0);
            cells.extend(pairs.map(|(ours, theirs)| match (added(ours), added(theirs)) {
                (Some(ours), Some(theirs)) if theirs > least => format!("{:.2}", ours / theirs),
                _ => String::new(),
            }));
        }
        line(text, &cells);
    }
    text.push('\n');
}

fn against_best(results: &Results, row: &Row, among: &[Contender]) -> String {
    let Row { workload, procs, column, spec } = *row;
    let best = results.best(workload, procs, column, among).filter(|_| spec.compared);
    let ratio = best.and_then(|best| Some((best, results.ratio(workload, procs, column, Contender::Gort, best)?)));
    ratio.map_or(String::new(), |(best, ratio)| format!("{} ({})", said(ratio), best.word()))
}

/// A ratio, and whether it tells anything.
fn said(ratio: f64) -> String {
    if is_tie(ratio) { format!("{ratio:.2}, tie") } else { format!("{ratio:.2}") }
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{self, Command};

    const END: &str = "<!-- switch: end -->";

    fn options(line: &str) -> Options {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let Ok(Command::Bench(options)) = options::parse(&words) else { panic!("refused") };
        options
    }

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = "a\n<!-- switch: x -->\nold\n<!-- switch: end -->\nb\n<!-- switch: y -->\n<!-- switch: end -->\n";
        let wanted = "a\n<!-- switch: x -->\nnew\n<!-- switch: end -->\nb\n<!-- switch: y -->\n<!-- switch: end -->\n";
        assert_eq!(replaced(text, "<!-- switch: x -->", END, "new\n").as_deref(), Some(wanted));
        assert_eq!(replaced(text, "<!-- switch: z -->", END, "new\n"), None);
    }

    #[test]
    fn tables_hold_medians_ratios_targets_and_reasons() {
        let mut results = Results::default();
        for (contender, ns) in [(Contender::Gort, 34.0), (Contender::Go, 100.0), (Contender::Smol, 30.0)] {
            results.add((Workload::PingPong, 1, contender), Ok(vec![ns, 1.0]));
        }
        results.add((Workload::PingPong, 1, Contender::May), Err("no stack".into()));
        let text =
            tables(&options("--workloads ping-pong --procs 1"), &results, Some("go version go1.27.3 linux/amd64"));
        let row = "| unbuffered ping-pong, round trip, ns | 1 | 34.0 | 100 |  | - [1] | 30.0 | 0.34 | 0.35 of Go: met | \
                   1.13, tie (smol) |\n";
        assert!(text.contains(row), "{text}");
        assert!(text.contains("[1] may, unbuffered ping-pong, round trip: fails: no stack"), "{text}");
        assert!(text.contains("Go 1.27.3 linux/amd64"), "{text}");
    }

    #[test]
    fn tables_of_sockets_hold_all_ratios_and_the_floor() {
        let mut results = Results::default();
        for (contender, ns) in [(Contender::Gort, 20.0), (Contender::Go, 40.0), (Contender::Mio, 10.0)] {
            results.add((Workload::Echo64, 1, contender), Ok(vec![ns, 1.0]));
        }
        results.add((Workload::Echo64, 1, Contender::GortSink), Ok(vec![30.0, 1.0, 78.0]));
        results.add((Workload::Echo64, 1, Contender::GoSink), Ok(vec![44.0, 1.0, 70.0]));
        results.add((Workload::Dial, 4, Contender::Gort), Ok(vec![0.5, 3.0]));
        let text = tables(&options("--workloads echo-64,dial --procs 1"), &results, None);
        for row in [
            "|  | P | gort | go | tokio | may | smol | std | mio | gort / go | gort / tokio | gort / may | gort / smol | \
             gort / std | gort / mio | target |\n",
            "| echo, 64 connections, round trip, ns | 1 | 20.0 | 40.0 |  |  |  |  | 10.0 | 0.50 |  |  |  |  | 2.00 |  |\n",
            "| echo, 64 connections, round trip, ns | 1 | 20.0 | 1.50 |  |  | 78.0 | 40.0 | 1.10 |  | 70.0 | 2.50 |  |\n",
            "ms, p99 | 4 | 3.00 |  |  |  |  |  |  |  |  |  |  |  |  | 2 at most: not met |\n",
        ] {
            assert!(text.contains(row), "{row}{text}");
        }
    }
}
