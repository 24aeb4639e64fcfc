//! `gort check`: is it a valid trace?

use std::convert::Infallible;
use std::io::Write;
use std::path::Path;

use serde::Serialize;
use tracer::analyze::{Builder, Summary};
use tracer::read::validate::{Findings, Validator};

use super::Print;
use crate::args::Check;
use crate::input::{End, Input};
use crate::text::{BAD, GOOD, Out, WARN, bytes, number, plural, time};
use crate::{Outcome, Verdict};

/// What was found in one file.
#[derive(Serialize)]
struct Report {
    file: String,
    verdict: &'static str,
    /// Why it is unreadable, or where it is damaged.
    errors: Vec<String>,
    /// Places where it is damaged.
    damages: u64,
    /// The byte at which the first is.
    offset: Option<u64>,
    /// The rule that is broken there.
    rule: Option<&'static str>,
    events: u64,
    /// Those that are whole, and their bytes.
    generations: u64,
    bytes: u64,
    /// All bytes, unpacked.
    file_bytes: u64,
    duration_ns: u64,
    unfinished_bytes: u64,
    lost_bytes: u64,
    /// Promises that its recorder broke.
    findings: u64,
    first_findings: Vec<String>,
    /// Wrong uses of tasks and regions by the program.
    warnings: u64,
    first_warnings: Vec<String>,
}

pub(crate) fn run(args: &Check, progress: bool, out: &mut Out) -> Outcome {
    let mut worst = Verdict::Good;
    let mut reports = Vec::new();
    for file in &args.files {
        let (verdict, report) = check(file, progress, args);
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

fn check(file: &Path, progress: bool, args: &Check) -> (Verdict, Report) {
    let input = match Input::open(file, progress) {
        Ok(input) => input,
        Err(why) => return (Verdict::Unreadable, unreadable(file, why)),
    };
    let mut validator = Validator::default();
    // Of each part between damages.
    let mut findings = Vec::new();
    let mut builder = Builder::new(input.version());
    let end = input.each(|event, info, tables| {
        match event {
            Some(event) => {
                validator.event(event, tables);
                builder.event(event, info, tables);
            }
            None => {
                findings.push(std::mem::take(&mut validator).finish());
                builder.gap();
            }
        }
        Ok::<_, Infallible>(())
    });
    findings.push(validator.finish());
    report(end.unwrap_or_else(|never| match never {}), &findings, &builder.finish(), args)
}

fn unreadable(file: &Path, why: String) -> Report {
    Report {
        file: file.display().to_string(),
        verdict: "unreadable",
        errors: vec![why],
        damages: 0,
        offset: None,
        rule: None,
        events: 0,
        generations: 0,
        bytes: 0,
        file_bytes: 0,
        duration_ns: 0,
        unfinished_bytes: 0,
        lost_bytes: 0,
        findings: 0,
        first_findings: Vec::new(),
        warnings: 0,
        first_warnings: Vec::new(),
    }
}

fn report(end: End, findings: &[Findings], summary: &Summary, args: &Check) -> (Verdict, Report) {
    let (found, shown) = (findings.iter().map(|findings| findings.total).sum(), args.findings);
    let is_wrong = found > 0 || args.strict && end.report.warnings > 0;
    let verdict = end.state().max(if is_wrong { Verdict::Damaged } else { Verdict::Good });
    let salvaged = end.report;
    let broken = salvaged.first_bad();
    let report = Report {
        verdict: match verdict {
            Verdict::Good => "good",
            Verdict::Damaged => "damaged",
            Verdict::Unreadable => "unreadable",
        },
        errors: salvaged.damage.iter().take(shown).map(ToString::to_string).collect(),
        damages: salvaged.damages,
        offset: broken.map(|broken| broken.offset),
        rule: broken.map(|broken| broken.rule.name()),
        events: end.events,
        generations: salvaged.generations,
        bytes: salvaged.bytes,
        file_bytes: salvaged.file_bytes,
        duration_ns: summary.duration(),
        unfinished_bytes: salvaged.unfinished_bytes,
        lost_bytes: summary.ext.lost_bytes,
        findings: found,
        first_findings: findings.iter().flat_map(|f| &f.first).take(shown).map(ToString::to_string).collect(),
        warnings: salvaged.warnings,
        first_warnings: salvaged.warned.iter().take(shown).map(ToString::to_string).collect(),
        file: end.name,
    };
    (verdict, report)
}

fn print(report: &Report, verdict: Verdict, out: &mut Out) -> Print {
    let (style, word) = match verdict {
        Verdict::Good => (GOOD, "good"),
        Verdict::Damaged if report.findings > 0 && report.errors.is_empty() => {
            (WARN, "readable, but its recorder broke promises")
        }
        Verdict::Damaged if report.errors.is_empty() => (WARN, "readable, but Go's tools would refuse it"),
        Verdict::Damaged => (BAD, "damaged"),
        Verdict::Unreadable => (BAD, "unreadable"),
    };
    let word = out.paint(style, word);
    writeln!(out, "{}: {word}", report.file)?;
    if report.events > 0 {
        let (events, generations) = (number(report.events), plural(report.generations, "whole generation"));
        let (size, all, took) = (bytes(report.bytes), bytes(report.file_bytes), time(report.duration_ns));
        writeln!(out, "  {events} events, {generations} in {size} of {all}, {took}")?;
    }
    for error in &report.errors {
        writeln!(out, "  {error}")?;
    }
    if report.damages > report.errors.len() as u64 {
        writeln!(out, "  ... damaged in {} in all", plural(report.damages, "place"))?;
    }
    for finding in &report.first_findings {
        writeln!(out, "  {finding}")?;
    }
    if report.findings > report.first_findings.len() as u64 {
        writeln!(out, "  ... {} findings in all", number(report.findings))?;
    }
    for warning in &report.first_warnings {
        writeln!(out, "  warning: {warning}")?;
    }
    if report.warnings > report.first_warnings.len() as u64 {
        writeln!(out, "  ... {} warnings in all", number(report.warnings))?;
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
