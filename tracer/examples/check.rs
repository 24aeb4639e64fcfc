//! Checks and explains traces: `cargo run -p gort-tracer --example check -- FILE...`
//!
//! For each file it prints a verdict (is it a valid trace, did the recorder keep its promises) and a summary. The exit
//! code is 0 if all are good, 1 if one is damaged but what came before the damage could be read, 2 if one cannot be
//! read.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use tracer::analyze;
use tracer::read::{Error, Reader, validate};

/// How many findings are printed for a file.
const FINDINGS: usize = 10;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Verdict {
    Good = 0,
    Damaged = 1,
    Unreadable = 2,
}

fn main() -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        eprintln!("usage: check FILE...");
        return ExitCode::from(Verdict::Unreadable as u8);
    }
    let mut out = io::stdout().lock();
    let mut worst = Verdict::Good;
    for file in &files {
        match check(Path::new(file), &mut out) {
            Ok(verdict) => worst = worst.max(verdict),
            // Nobody reads on: `check FILE | head`.
            Err(_) => return ExitCode::from(Verdict::Unreadable as u8),
        }
    }
    ExitCode::from(worst as u8)
}

/// Checks one file. An error is one of `out`.
fn check(path: &Path, out: &mut impl Write) -> io::Result<Verdict> {
    let name = path.display();
    let mut reader = match File::open(path).map_err(Error::from).and_then(Reader::new) {
        Ok(reader) => reader,
        Err(error) => {
            writeln!(out, "{name}: unreadable: {error}")?;
            return Ok(Verdict::Unreadable);
        }
    };
    let begin = Instant::now();
    let mut validator = validate::Validator::default();
    let mut builder = analyze::Builder::new(reader.version());
    let mut damage = None;
    while let Some(event) = reader.next() {
        match event {
            Ok(event) => {
                validator.event(&event, reader.tables());
                builder.event(&event, reader.generation(), reader.tables());
            }
            Err(error) => damage = Some(error),
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    let (findings, summary) = (validator.finish(), builder.finish());

    let verdict = match &damage {
        Some(error) if summary.generations.is_empty() => {
            writeln!(out, "{name}: unreadable: {error}")?;
            return Ok(Verdict::Unreadable);
        }
        Some(error) => {
            writeln!(out, "{name}: damaged: {error}")?;
            Verdict::Damaged
        }
        None if findings.total > 0 => {
            writeln!(out, "{name}: readable, but its recorder broke {} promises", findings.total)?;
            Verdict::Damaged
        }
        None => {
            writeln!(out, "{name}: good")?;
            Verdict::Good
        }
    };
    for finding in findings.first.iter().take(FINDINGS) {
        writeln!(out, "  {finding}")?;
    }
    if findings.total > FINDINGS as u64 {
        writeln!(out, "  ... {} findings in all", findings.total)?;
    }
    if reader.unfinished_bytes() > 0 {
        writeln!(out, "  {} bytes at the end belong to a generation without events", reader.unfinished_bytes())?;
    }
    if damage.is_some() {
        writeln!(out, "  the summary is of the {} events before the damage", summary.events())?;
    }
    if !summary.generations.is_empty() {
        writeln!(out, "\n{summary}")?;
        writeln!(out, "(read in {seconds:.2} s, {:.0} MB/s)\n", summary.bytes() as f64 / 1e6 / seconds.max(1e-9))?;
    }
    Ok(verdict)
}
