//! The examples, built in release and run: each must end as the table says, say what it says, and leave what it says. Traces that
//! they leave must pass our checker.
//!
//! A server listens at a free port, of which it tells in its first line, and ends when its standard input does. Meanwhile the load
//! generator, an example too, calls on it.

use crate::run::{Captured, Run};
use crate::{Step, conformance, project};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SIGSEGV: i32 = 11;

/// The example that calls on servers.
const LOAD: &str = "load";

/// How a program must end.
#[derive(Clone, Copy)]
enum End {
    Code(i32),
    Signal(i32),
}

/// How a program is run.
enum How {
    /// With these arguments.
    Alone(&'static [&'static str]),
    /// With [`SERVE`] and these arguments, while the load generator runs with each of those.
    Serving(&'static [&'static str], &'static [&'static [&'static str]]),
}

/// One line of the table.
struct Example {
    name: &'static str,
    how: How,
    end: End,
    /// Each must be somewhere in what it prints, on either stream. What the load generator prints counts as well.
    says: &'static [&'static str],
    /// Files that it must leave in its working folder, not empty.
    leaves: &'static [&'static str],
}

const DEADLOCK: &str = "all goroutines are asleep - deadlock!";
const ALONE: How = How::Alone(&[]);
const SERVE: [&str; 3] = ["--addr", "127.0.0.1:0", "--until-eof"];

#[rustfmt::skip]
const EXAMPLES: [Example; 14] = [
    Example { name: "hello",         how: ALONE, end: End::Code(0),         says: &["hello from goroutine 3"],                        leaves: &[] },
    Example { name: "ping_pong",     how: ALONE, end: End::Code(0),         says: &["two goroutines", "two threads"],                 leaves: &[] },
    Example { name: "pipeline",      how: ALONE, end: End::Code(0),         says: &["starts at 837799 and has 525 numbers"],          leaves: &[] },
    Example { name: "blocking_call", how: ALONE, end: End::Code(0),         says: &["rt::blocking(fs write, sync)"],                  leaves: &[] },
    Example { name: "hog",           how: ALONE, end: End::Code(0),         says: &["HandOff", "outside too long", "ProcSteal"],      leaves: &[] },
    Example { name: "stuck",         how: ALONE, end: End::Code(2),         says: &[DEADLOCK, "\"clerk\" [chan receive, ", "\"counter\" [sync, ", ", held by goroutine", ", on wait group at"], leaves: &[] },
    Example { name: "overflow",      how: ALONE, end: End::Signal(SIGSEGV), says: &["stack overflow", "surveyor", "overflow::depth"], leaves: &[] },
    Example { name: "tour",          how: ALONE, end: End::Code(0),         says: &["SHOP.ledger.lock()", "hand-offs", "outside too long"], leaves: &["tour.trace"] },
    Example { name: "gc_tree",       how: ALONE, end: End::Code(0),         says: &["256 trees of depth 10: 524032 nodes", "the long-lived tree of depth 14: 32767 nodes", "collections freed"], leaves: &[] },
    Example { name: "gc_cache",      how: How::Alone(&["--trace", "gc_cache.trace"]), end: End::Code(0), says: &["640000 requests, 64 % of them hits", "32000 entries are left", "left 0 bytes"], leaves: &["gc_cache.trace"] },
    Example {
        name: "echo_server",
        how: How::Serving(&["--trace", "echo_server.trace"], &[&["--mode", "echo", "--requests", "2000", "--connections", "8", "--trace", "echo_load.trace"]]),
        end: End::Code(0),
        says: &["listening on 127.0.0.1:", "closed loop", "        2000 ", "errors: none"],
        leaves: &["echo_server.trace", "echo_load.trace"],
    },
    Example {
        name: "http_server",
        how: How::Serving(&["--trace", "http_server.trace"], &[
            &["--requests", "2000", "--connections", "8", "--json"],
            &["--path", "/slow?ms=1", "--requests", "500", "--rate", "1000", "--trace", "http_load.trace"],
            &["--path", "/download?mb=1", "--requests", "8", "--connections", "2"],
        ]),
        end: End::Code(0),
        says: &["\"requests\":2000,", "\"errors\":{}", "open loop at 1000/s", "         500 ", "           8 ", "errors: none"],
        leaves: &["http_server.trace", "http_load.trace"],
    },
    // Nobody listens at port 1.
    Example { name: "load",          how: How::Alone(&["--addr", "127.0.0.1:1"]), end: End::Code(1), says: &["refused", "start a server first"], leaves: &[] },
    Example {
        name: "chat",
        how: How::Alone(&["--demo", "--trace", "chat.trace"]),
        end: End::Code(0),
        says: &["bob | ann: hello, bob", "ann | *** bob is now known as robert", "here: ann, robert, eve", "ann has pasted 400 lines", "ann | *** sleeper was too slow", "sleeper | *** you are too slow: goodbye", "ann | *** the room closes"],
        leaves: &["chat.trace"],
    },
];

/// A program that has not ended by then hangs: they are all done in a second or two.
const LIMIT: Duration = Duration::from_secs(60);

/// Where an example runs and what it leaves.
pub(crate) fn folder(name: &str) -> Result<PathBuf, String> {
    project::work(&format!("examples/{name}"))
}

/// Runs the named examples, all without names.
pub(crate) fn run(names: &[String]) -> Step {
    if let Some(unknown) = names.iter().find(|name| !EXAMPLES.iter().any(|example| example.name == **name)) {
        return Err(format!("no example {unknown:?} in the table in xtask/src/examples.rs"));
    }
    table_is_complete()?;
    let chosen: Vec<&Example> =
        EXAMPLES.iter().filter(|example| names.is_empty() || names.iter().any(|name| name == example.name)).collect();
    let build = Run::cargo(&["build", "--release", "--package", "gort", "--features", "gc"]);
    let callers = chosen.iter().filter(|example| matches!(example.how, How::Serving(..))).map(|_| LOAD);
    build
        .args(chosen.iter().map(|example| example.name).chain(callers).flat_map(|name| ["--example", name]))
        .status()?;
    let mut failures = Vec::new();
    for example in &chosen {
        if let Err(why) = run_one(example) {
            println!("    {:<14} FAILED", example.name);
            failures.push(why);
        }
    }
    let traces: Vec<PathBuf> = chosen
        .iter()
        .flat_map(|example| example.leaves.iter().map(|name| (example.name, name)))
        .map(|(example, name)| folder(example).map(|folder| folder.join(name)))
        .collect::<Result<_, _>>()?;
    let is_trace = |file: &PathBuf| file.extension().is_some_and(|extension| extension == "trace") && file.is_file();
    let traces: Vec<PathBuf> = traces.into_iter().filter(is_trace).collect();
    if let Err(why) = conformance::our_reader(&traces) {
        failures.push(why);
    }
    match failures.is_empty() {
        true => Ok(format!("{} run, {} traces judged", chosen.len(), traces.len())),
        false => Err(failures.join("\n")),
    }
}

/// The table names each file in examples/ and each folder with a main.rs, and no other.
fn table_is_complete() -> Result<(), String> {
    let dir = project::root().join("examples");
    let entries = std::fs::read_dir(&dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
    let there: BTreeSet<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs") || path.join("main.rs").is_file())
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let named: BTreeSet<String> = EXAMPLES.iter().map(|example| example.name.to_owned()).collect();
    if let Some(missing) = there.difference(&named).next() {
        return Err(format!("the example {missing} is not in the table in xtask/src/examples.rs"));
    }
    match named.difference(&there).next() {
        Some(missing) => {
            Err(format!("the table in xtask/src/examples.rs names {missing}, but there is no such example"))
        }
        None => Ok(()),
    }
}

fn run_one(example: &Example) -> Result<(), String> {
    let folder = project::fresh(&format!("examples/{}", example.name))?;
    let program = |name: &str| -> Result<Run, String> {
        let program = project::target()?.join("release/examples").join(name);
        Ok(Run::new(program).dir(&folder).limit(LIMIT).quiet())
    };
    let done = match example.how {
        How::Alone(args) => program(example.name)?.args(args).capture()?,
        How::Serving(args, loads) => {
            let server = program(example.name)?.args(SERVE).args(args).serve()?;
            let address = server.first_line().strip_prefix("listening on ").unwrap_or_default().to_owned();
            let mut said = Vec::new();
            for load in loads {
                // Of a server that has failed we want to hear why, too.
                match program(LOAD)?.args(["--addr", &address]).args(*load).capture()?.success() {
                    Ok(text) => said.extend(text.into_bytes()),
                    Err(why) => return Err(server.finish()?.failure(&format!("its caller failed: {why}"))),
                }
            }
            let mut done = server.finish()?;
            done.stdout.append(&mut said);
            done
        }
    };
    check(example, &done, &folder).map_err(|why| done.failure(&why))?;
    println!("    {:<14} {} in {:.2} s", example.name, done.ending(), done.elapsed.as_secs_f64());
    Ok(())
}

fn check(example: &Example, done: &Captured, folder: &Path) -> Result<(), String> {
    let as_expected = done.status.is_some_and(|status| match example.end {
        End::Code(code) => status.code() == Some(code),
        End::Signal(signal) => status.signal() == Some(signal),
    });
    if !as_expected {
        let expected = match example.end {
            End::Code(code) => format!("exit code {code}"),
            End::Signal(signal) => format!("killed by signal {signal}"),
        };
        return Err(format!("{}, expected: {expected}", done.ending()));
    }
    let stdout = String::from_utf8_lossy(&done.stdout);
    if let Some(missing) = example.says.iter().find(|text| !stdout.contains(**text) && !done.stderr.contains(**text)) {
        return Err(format!("did not say {missing:?}"));
    }
    let is_there = |name: &&str| std::fs::metadata(folder.join(name)).is_ok_and(|file| file.len() > 0);
    match example.leaves.iter().find(|name| !is_there(name)) {
        Some(missing) => Err(format!("left no {missing}, or an empty one")),
        None => Ok(()),
    }
}
