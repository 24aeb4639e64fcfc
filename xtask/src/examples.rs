//! The examples, built in release and run: each must end as the table says, say what it says, and leave what it says.

use crate::run::{Captured, Run};
use crate::{Step, project};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const SIGSEGV: i32 = 11;

/// How a program must end.
#[derive(Clone, Copy)]
enum End {
    Code(i32),
    Signal(i32),
}

/// One line of the table.
struct Example {
    name: &'static str,
    end: End,
    /// Each must be somewhere in what it prints, on either stream.
    says: &'static [&'static str],
    /// Files that it must leave in its working folder, not empty.
    leaves: &'static [&'static str],
}

const DEADLOCK: &str = "all goroutines are asleep - deadlock!";

#[rustfmt::skip]
const EXAMPLES: [Example; 8] = [
    Example { name: "hello",         end: End::Code(0),         says: &["hello from goroutine 3"],                        leaves: &[] },
    Example { name: "ping_pong",     end: End::Code(0),         says: &["two goroutines", "two threads"],                 leaves: &[] },
    Example { name: "pipeline",      end: End::Code(0),         says: &["starts at 837799 and has 525 numbers"],          leaves: &[] },
    Example { name: "blocking_call", end: End::Code(0),         says: &["rt::blocking(fs write, sync)"],                  leaves: &[] },
    Example { name: "hog",           end: End::Code(0),         says: &["HandOff", "outside too long", "ProcSteal"],      leaves: &[] },
    Example { name: "stuck",         end: End::Code(2),         says: &[DEADLOCK, "\"clerk\" [chan receive, ", "\"counter\" [sync, ", ", held by goroutine", ", on wait group at"], leaves: &[] },
    Example { name: "overflow",      end: End::Signal(SIGSEGV), says: &["stack overflow", "surveyor", "overflow::depth"], leaves: &[] },
    Example { name: "tour",          end: End::Code(0),         says: &["SHOP.ledger.lock()", "hand-offs", "outside too long"], leaves: &["tour.trace"] },
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
    let build = Run::cargo(&["build", "--release", "--package", "gort"]);
    build.args(chosen.iter().flat_map(|example| ["--example", example.name])).status()?;
    let mut failures = Vec::new();
    for example in &chosen {
        if let Err(why) = run_one(example) {
            println!("    {:<14} FAILED", example.name);
            failures.push(why);
        }
    }
    if failures.is_empty() { Ok(format!("{} run", chosen.len())) } else { Err(failures.join("\n")) }
}

/// The table names each file in examples/, and no other.
fn table_is_complete() -> Result<(), String> {
    let dir = project::root().join("examples");
    let entries = std::fs::read_dir(&dir).map_err(|error| format!("cannot read {}: {error}", dir.display()))?;
    let there: BTreeSet<String> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .collect();
    let named: BTreeSet<String> = EXAMPLES.iter().map(|example| example.name.to_owned()).collect();
    if let Some(missing) = there.difference(&named).next() {
        return Err(format!("examples/{missing}.rs is not in the table in xtask/src/examples.rs"));
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
    let program = project::target()?.join("release/examples").join(example.name);
    let done = Run::new(program).dir(&folder).limit(LIMIT).quiet().capture()?;
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
