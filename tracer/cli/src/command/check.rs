//! `gort check`: is it a valid trace?

use std::convert::Infallible;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use tracer::analyze::{Builder, Summary};
use tracer::read::salvage::Salvage;
use tracer::read::validate::{Findings, Validator};

use super::Print;
use crate::args::Check;
use crate::input::{End, Input, Source};
use crate::text::{BAD, GOOD, Out, WARN, bytes, number, plural, time};
use crate::{Outcome, Verdict};

/// What was found in one file.
#[derive(Serialize)]
struct Report {
    file: String,
    verdict: &'static str,
    /// Why it is unreadable, or where it is damaged.
    error: Option<String>,
    /// The byte at which the damage is.
    offset: Option<u64>,
    /// The rule that it breaks.
    rule: Option<&'static str>,
    events: u64,
    generations: usize,
    bytes: u64,
    duration_ns: u64,
    unfinished_bytes: u64,
    lost_bytes: u64,
    /// Promises that its recorder broke.
    findings: u64,
    first_findings: Vec<String>,
    /// If it is damaged, and can be read a second time: what is whole, also behind the damage.
    salvage: Option<Kept>,
}

/// What is whole in a damaged file.
#[derive(Serialize)]
struct Kept {
    generations: u64,
    events: u64,
    bytes: u64,
    file_bytes: u64,
    /// Places where it is damaged.
    damages: u64,
    /// The report, a line each.
    report: Vec<String>,
}

pub(crate) fn run(args: &Check, progress: bool, out: &mut Out) -> Outcome {
    let mut worst = Verdict::Good;
    let mut reports = Vec::new();
    for file in &args.files {
        let (verdict, report) = check(file, progress, args.findings);
        worst = worst.max(verdict);
        match args.json {
            true => reports.push(report),
            false => print(&report, verdict, out)?,
        }
    }
    if args.json {
        out.json(&reports)?;
    }
    Ok(worst)
}

fn check(file: &Path, progress: bool, shown: usize) -> (Verdict, Report) {
    let input = match Input::open(file, progress) {
        Ok(input) => input,
        Err(why) => return (Verdict::Unreadable, unreadable(file, why)),
    };
    let mut validator = Validator::default();
    let mut builder = Builder::new(input.version());
    let end = input.each(|event, info, tables| {
        validator.event(event, tables);
        builder.event(event, info, tables);
        Ok::<_, Infallible>(())
    });
    let end = end.unwrap_or_else(|never| match never {});
    let (verdict, mut report) = report(end, &validator.finish(), &builder.finish(), shown);
    if report.error.is_some() && file != Path::new("-") {
        report.salvage = salvage(file, progress);
    }
    (verdict, report)
}

/// Reads a damaged file once more, and goes on behind the damage.
fn salvage(file: &Path, progress: bool) -> Option<Kept> {
    let source = Source::open(file, progress).ok()?;
    let report = Salvage::new(source.from).ok()?.finish();
    source.bar.finish_and_clear();
    Some(Kept {
        generations: report.generations,
        events: report.events,
        bytes: report.bytes,
        file_bytes: report.file_bytes,
        damages: report.damages,
        report: report.to_string().lines().map(str::to_owned).collect(),
    })
}

fn unreadable(file: &Path, why: String) -> Report {
    Report {
        file: file.display().to_string(),
        verdict: "unreadable",
        error: Some(why),
        offset: None,
        rule: None,
        events: 0,
        generations: 0,
        bytes: 0,
        duration_ns: 0,
        unfinished_bytes: 0,
        lost_bytes: 0,
        findings: 0,
        first_findings: Vec::new(),
        salvage: None,
    }
}

fn report(end: End, findings: &Findings, summary: &Summary, shown: usize) -> (Verdict, Report) {
    let verdict = match &end.damage {
        Some(_) if end.events == 0 => Verdict::Unreadable,
        Some(_) => Verdict::Damaged,
        None if findings.total > 0 => Verdict::Damaged,
        None => Verdict::Good,
    };
    let broken = end.damage.as_ref().and_then(|damage| damage.broken());
    let report = Report {
        verdict: match verdict {
            Verdict::Good => "good",
            Verdict::Damaged => "damaged",
            Verdict::Unreadable => "unreadable",
        },
        error: end.damage.as_ref().map(ToString::to_string),
        offset: broken.map(|broken| broken.offset),
        rule: broken.map(|broken| broken.rule.name()),
        events: end.events,
        generations: summary.generations.len(),
        bytes: summary.bytes(),
        duration_ns: summary.duration(),
        unfinished_bytes: end.unfinished_bytes,
        lost_bytes: summary.ext.lost_bytes,
        findings: findings.total,
        first_findings: findings.first.iter().take(shown).map(ToString::to_string).collect(),
        salvage: None,
        file: end.name,
    };
    (verdict, report)
}

fn print(report: &Report, verdict: Verdict, out: &mut Out) -> Print {
    let (style, word) = match verdict {
        Verdict::Good => (GOOD, "good"),
        Verdict::Damaged if report.error.is_none() => (WARN, "readable, but its recorder broke promises"),
        Verdict::Damaged => (BAD, "damaged"),
        Verdict::Unreadable => (BAD, "unreadable"),
    };
    let word = out.paint(style, word);
    writeln!(out, "{}: {word}", report.file)?;
    if report.events > 0 {
        let (events, generations) = (number(report.events), plural(report.generations as u64, "generation"));
        let whole = if report.error.is_some() { " before the damage" } else { "" };
        let (size, took) = (bytes(report.bytes), time(report.duration_ns));
        writeln!(out, "  {events} events in {generations}{whole}, {took}, {size}")?;
    }
    match (&report.salvage, &report.error) {
        // It says the error, too.
        (Some(kept), _) => kept.report.iter().try_for_each(|line| writeln!(out, "  {line}"))?,
        (None, Some(error)) => writeln!(out, "  {error}")?,
        (None, None) => {}
    }
    for finding in &report.first_findings {
        writeln!(out, "  {finding}")?;
    }
    if report.findings > report.first_findings.len() as u64 {
        writeln!(out, "  ... {} findings in all", number(report.findings))?;
    }
    if report.unfinished_bytes > 0 {
        let size = bytes(report.unfinished_bytes);
        writeln!(out, "  {size} at the end belong to a generation without events")?;
    }
    if report.lost_bytes > 0 {
        writeln!(out, "  the recorder lost {} of events: the program was faster", bytes(report.lost_bytes))?;
    }
    Ok(())
}
