//! All steps in a row.

use crate::{Step, chaos, conformance, disk, examples, loom, run, steps};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Its name, what it does, and the folders of the target folder that no step behind it needs.
type Check = (&'static str, fn() -> Step, &'static [&'static str]);

const CHECKS: [Check; 11] = [
    ("fmt", steps::fmt, &[]),
    ("clippy", steps::clippy, &[]),
    ("doc", steps::doc, &["doc"]),
    ("test", steps::test, &[]),
    ("test with RT_BORDER=fence", steps::test_fence, &[]),
    ("doctest", steps::doctest, &["debug"]),
    ("examples", || examples::run(&[]), &[]),
    ("loom", loom::run, &["loom"]),
    ("chaos", chaos::run, &["chaos"]),
    ("lto", steps::lto, &["lto"]),
    (CONFORMANCE, conformance::run, &[]),
];

const CONFORMANCE: &str = "conformance";
const LEFT_OUT: &str = "conformance with Go's tools was LEFT OUT (--no-go)";

/// What the command line asks for.
#[derive(Default)]
pub(crate) struct Options {
    no_go: bool,
    keep_going: bool,
}

impl Options {
    pub(crate) fn parse(args: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        for arg in args {
            match arg.as_str() {
                "--no-go" => options.no_go = true,
                "--keep-going" => options.keep_going = true,
                other => return Err(format!("no option {other:?}; cargo xtask help lists them")),
            }
        }
        Ok(options)
    }
}

struct Done {
    name: &'static str,
    took: Duration,
    result: Step,
}

pub(crate) fn run(options: Options) -> Step {
    let checks: Vec<Check> = CHECKS.into_iter().filter(|(name, ..)| !(options.no_go && *name == CONFORMANCE)).collect();
    run::BUILDS_ONCE.store(true, Relaxed);
    let start = Instant::now();
    let mut done: Vec<Done> = Vec::new();
    disk::warn();
    for (i, (name, check, spent)) in checks.iter().enumerate() {
        println!("\n==> [{}/{}] {name}", i + 1, checks.len());
        let start = Instant::now();
        let result = check();
        let took = start.elapsed();
        match &result {
            Ok(summary) => println!("<== {name}: ok in {:.1} s: {summary}", took.as_secs_f64()),
            // The first line here, all of it at the end.
            Err(why) => println!(
                "<== {name}: FAILED after {:.1} s: {}",
                took.as_secs_f64(),
                why.lines().next().unwrap_or_default()
            ),
        }
        disk::make_room(spent);
        let failed = result.is_err();
        done.push(Done { name, took, result });
        if failed && !options.keep_going {
            break;
        }
    }
    report(&done, checks.len(), options.no_go, start.elapsed())
}

fn report(done: &[Done], checks: usize, no_go: bool, took: Duration) -> Step {
    println!("\n==> what was checked, in {:.0} s", took.as_secs_f64());
    for Done { name, took, result } in done {
        match result {
            Ok(summary) => println!("    ok      {name:<28} {:>6.1} s  {summary}", took.as_secs_f64()),
            Err(_) => println!("    FAILED  {name:<28} {:>6.1} s", took.as_secs_f64()),
        }
    }
    if done.len() < checks {
        println!("    {} more not run; --keep-going runs them after a failure too", checks - done.len());
    }
    if no_go {
        println!("    {LEFT_OUT}");
    }
    let failed: Vec<&Done> = done.iter().filter(|done| done.result.is_err()).collect();
    if failed.is_empty() {
        let names: Vec<&str> = done.iter().map(|done| done.name).collect();
        println!("ci: {} passed, 0 failed", done.len());
        return Ok(format!("passed: {}{}", names.join(", "), if no_go { "; conformance LEFT OUT" } else { "" }));
    }
    for Done { name, result, .. } in &failed {
        println!("\n--- {name}\n{}", result.as_ref().err().map_or("", String::as_str));
    }
    println!("ci: {} passed, {} failed", done.len() - failed.len(), failed.len());
    let names: Vec<&str> = failed.iter().map(|done| done.name).collect();
    Err(names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_options() {
        let parse = |args: &[&str]| Options::parse(&args.iter().map(|arg| arg.to_string()).collect::<Vec<_>>());
        assert!(parse(&["--no-go"]).unwrap().no_go);
        assert!(!parse(&[]).unwrap().no_go);
        assert!(parse(&["--nogo"]).is_err());
    }
}
