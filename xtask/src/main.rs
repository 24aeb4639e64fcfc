//! The project's checks: `cargo xtask ci` runs them all, `cargo xtask STEP` one of them. No dependencies, so that it
//! builds in a second.

mod bench_read;
mod chaos;
mod ci;
mod conformance;
mod disk;
mod examples;
mod golang;
mod http;
mod judge_pprof;
mod judge_reader;
mod loom;
mod project;
mod run;
mod steps;

use std::process::ExitCode;

const HELP: &str = "\
The project's checks.

usage: cargo xtask COMMAND

  ci [--no-go] [--keep-going]   everything below except bench, in this order, up to the first failure
        --no-go                 leave conformance out (and say so): it needs python3, and the network once
        --keep-going            run the remaining steps after a failure too

  fmt                           cargo fmt --check over the workspace
  clippy                        all targets, all features, warnings are errors
  doc                           rustdoc, warnings are errors
  test                          unit and integration tests; those of the runtime again with RT_BORDER=fence
  doctest                       the programs in the documentation
  examples [NAME...]            build the examples in release, run them, check how they end and what they say
  loom                          the models, with LOOM_MAX_PREEMPTIONS (2 unless set)
  chaos                         the runtime's tests with --cfg rt_chaos, for RT_CHAOS_ROUNDS seeds (2 unless set), or with RT_CHAOS_SEED
  lto                           the migration test under fat LTO
  conformance [FILE...]         Go's reader and ours on traces of ours, and ours on traces of Go's; what gort computes
                                of them beside what Go's tools do; with files: all that on these
  conformance reader            the events that our reader finds beside those that Go's finds, and Go's own tests of its reader
  go ARGS...                    the go command that conformance uses (installed on first use under target/go)
  bench [ARGS...]               benches/switch: ours beside its rivals in one run (--help for its options)
  bench net [ARGS...]           the same with sockets: echo, connecting, a stream, idle connections, dialling beside busy Ps
  bench http [ARGS...]          the same with servers of HTTP beside wrk
  bench gc [ARGS...]            the same with the collected heap
  bench read [--rounds N]       decoding and ordering traces of 110 MB: our reader beside Go's library
  bench publish [switch|net|http|gc] [ARGS...]
                                all of them, the first with two allocators too, or one; and docs/BENCHMARKS.md anew

Checks that run programs keep what those leave behind under target/xtask.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let Some((command, rest)) = args.split_first() else {
        eprint!("{HELP}");
        return ExitCode::from(2);
    };
    if rest.iter().any(|arg| arg == "--help" || arg == "-h") && command != "bench" && command != "go" {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    let result = match command.as_str() {
        "ci" => ci::Options::parse(rest).and_then(ci::run),
        "fmt" => none(rest, steps::fmt),
        "clippy" => none(rest, steps::clippy),
        "doc" => none(rest, steps::doc),
        "test" => none(rest, || {
            let first = steps::test()?;
            Ok(format!("{first}; {}", steps::test_fence()?))
        }),
        "doctest" => none(rest, steps::doctest),
        "examples" => examples::run(rest),
        "loom" => none(rest, loom::run),
        "chaos" => none(rest, chaos::run),
        "lto" => none(rest, steps::lto),
        "conformance" if rest.is_empty() => conformance::run(),
        "conformance" if rest == ["reader"] => conformance::judge_reader(),
        "conformance" => conformance::judge_files(rest),
        "go" => golang::pass_through(rest),
        "bench" if rest.first().is_some_and(|first| first == "read") => bench_read::run(&rest[1..]),
        "bench" => steps::bench(rest),
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        other => Err(format!("no command {other:?}; cargo xtask help lists them")),
    };
    match result {
        Ok(summary) => {
            if !summary.is_empty() {
                println!("xtask {command}: {summary}");
            }
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("xtask {command}: FAILED: {why}");
            ExitCode::FAILURE
        }
    }
}

/// What a step answers: a line on what passed, or why it failed.
type Step = Result<String, String>;

fn none(rest: &[String], step: impl FnOnce() -> Step) -> Step {
    match rest.first() {
        Some(extra) => Err(format!("takes no argument, but got {extra:?}")),
        None => step(),
    }
}
