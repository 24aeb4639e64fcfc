//! Checks and explains traces: `cargo run -p gort-tracer --example check -- FILE...`
//!
//! For each file it prints a verdict (is it a valid trace, did the recorder keep its promises) and a summary. The exit
//! code is 0 if all are good, 1 if one is damaged but what came before the damage could be read, 2 if one cannot be
//! read.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use tracer::read::{Broken, Error, Reader, summary, validate};

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
    let verdicts = files.iter().map(|file| check(Path::new(file)));
    ExitCode::from(verdicts.max().map_or(0, |worst| worst as u8))
}

fn check(path: &Path) -> Verdict {
    let path_text = path.display();
    let mut reader = match File::open(path).map_err(Error::from).and_then(Reader::new) {
        Ok(reader) => reader,
        Err(error) => {
            println!("{path_text}: unreadable: {error}");
            return Verdict::Unreadable;
        }
    };
    let begin = Instant::now();
    let mut validator = validate::Validator::default();
    let mut builder = summary::Builder::new(reader.version());
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
    let findings = validator.finish();
    let summary = builder.finish();
    let verdict = match &damage {
        None if findings.total == 0 => Verdict::Good,
        Some(_) if summary.generations.is_empty() => Verdict::Unreadable,
        _ => Verdict::Damaged,
    };
    match (&damage, verdict) {
        (Some(error), Verdict::Unreadable) => println!("{path_text}: unreadable: {error}"),
        (Some(error), _) => println!("{path_text}: damaged: {error}"),
        (None, Verdict::Good) => println!("{path_text}: good"),
        (None, _) => println!("{path_text}: readable, but its recorder broke {} promises", findings.total),
    }
    for finding in findings.first.iter().take(FINDINGS) {
        println!("  {finding}");
    }
    if findings.total > FINDINGS as u64 {
        println!("  ... {} findings in all", findings.total);
    }
    if reader.unfinished_bytes() > 0 {
        println!("  {} bytes at the end belong to a generation without events", reader.unfinished_bytes());
    }
    if let Some(Broken { offset, .. }) = damage.as_ref().and_then(Error::broken) {
        println!("  {} whole generations, {} events before byte {offset}", summary.generations.len(), summary.events());
    }
    if !summary.generations.is_empty() {
        println!("\n{summary}");
        println!("(read in {:.2} s, {:.0} MB/s)\n", seconds, summary.bytes() as f64 / 1e6 / seconds.max(1e-9));
    }
    verdict
}
