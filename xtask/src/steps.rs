//! The steps that are one or two calls of cargo.

use crate::Step;
use crate::project;
use crate::run::Run;
use std::path::Path;
use std::time::Duration;

pub(crate) fn fmt() -> Step {
    Run::cargo(&["fmt", "--all", "--check"])
        .status()
        .map_err(|why| format!("{why}; cargo fmt --all puts the files above in order"))?;
    Ok("formatted".into())
}

pub(crate) fn clippy() -> Step {
    // With everything, and as most programs have it.
    for features in [&["--all-features"][..], &[]] {
        let args = [&["clippy", "--workspace", "--all-targets"], features, &["--", "-D", "warnings"]].concat();
        Run::cargo(&args).status()?;
    }
    Ok("no warnings, with all features and with none".into())
}

pub(crate) fn doc() -> Step {
    Run::cargo(&["doc", "--workspace", "--all-features", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings").status()?;
    Ok("no warnings".into())
}

/// Whether `cargo nextest` is there; `cargo test` stands in for it.
fn has_nextest() -> bool {
    Run::cargo(&["nextest", "--version"]).quiet().capture().is_ok_and(|done| done.success().is_ok())
}

/// Unit and integration tests of some packages, in an environment that `set` completes. nextest runs each in a process of its own and
/// ends those that hang.
pub(crate) fn tests(select: &[&str], set: impl FnOnce(Run) -> Run) -> Result<&'static str, String> {
    let (runner, run) = if has_nextest() {
        let run = Run::cargo(&["nextest", "run", "--config-file", "xtask/nextest.toml", "--all-features"]);
        ("nextest", run.args(select))
    } else {
        println!("    cargo-nextest is not installed: cargo test, and a test that hangs ends with the whole step");
        ("cargo test", Run::cargo(&["test", "--all-features", "--lib", "--bins", "--tests"]).args(select))
    };
    set(run.env_remove("RT_BORDER")).status()?;
    Ok(runner)
}

pub(crate) fn test() -> Step {
    Ok(format!("whole workspace, by {}", tests(&["--workspace"], |run| run)?))
}

/// The runtime's tests again with the border that works without membarrier. Of all packages' tests these, so that nothing is built for
/// them: alone the runtime would have fewer features of its dependencies.
pub(crate) fn test_fence() -> Step {
    let select: &[&str] = if has_nextest() { &["--workspace", "-E", "package(gort)"] } else { &["--package", "gort"] };
    Ok(format!("runtime with RT_BORDER=fence, by {}", tests(select, |run| run.env("RT_BORDER", "fence"))?))
}

pub(crate) fn doctest() -> Step {
    Run::cargo(&["test", "--workspace", "--all-features", "--doc"]).status()?;
    Ok("all run".into())
}

/// A goroutine that migrates must not find a stale thread-local address, also when everything is inlined.
pub(crate) fn lto() -> Step {
    let tests = ["--test", "migrate", "--test", "local", "--test", "os_thread"];
    Run::cargo(&["test", "--package", "gort", "--profile", "lto"]).args(tests).status()?;
    Ok("migration tests passed".into())
}

const SUITES: [&str; 4] = ["switch", "net", "http", "gc"];

/// The benches; `publish` writes docs/BENCHMARKS.md.
pub(crate) fn bench(args: &[String]) -> Step {
    let (first, rest) = args.split_first().map_or(("", args), |(first, rest)| (first.as_str(), rest));
    if first == "publish" {
        return publish(rest);
    }
    match SUITES.into_iter().find(|suite| *suite == first) {
        Some(suite) => suite_of_benches(suite, &[], &[], rest),
        None => suite_of_benches("", &[], &[], args),
    }
}

/// One suite, or all; the goroutines' also with another allocator, where that matters.
fn publish(args: &[String]) -> Step {
    let chosen = args.first().and_then(|first| SUITES.into_iter().find(|suite| suite == first));
    let rest = if chosen.is_some() { &args[1..] } else { args };
    if chosen.is_none() && rest.iter().any(|arg| arg == "--workloads" || arg == "--suite") {
        return Err("workloads belong to one suite: bench publish switch, net, http or gc, and then --workloads".into());
    }
    let file = project::root().join("docs/BENCHMARKS.md").display().to_string();
    let mut failures = Vec::new();
    let mut run = |suite, features: &[&str], own: &[&str]| {
        let own = [&["--markdown", file.as_str()], own].concat();
        failures.extend(suite_of_benches(suite, features, &own, rest).err());
    };
    for suite in SUITES.into_iter().filter(|suite| chosen.is_none_or(|chosen| chosen == *suite)) {
        run(suite, &[], &[]);
        if suite == "switch" {
            let workloads = ["--workloads", "spawn-join,spawn-group,spawn-million,skynet"];
            run(suite, &["--features", "mimalloc"], &workloads);
        }
    }
    // One that fails leaves the tables of all others.
    if failures.is_empty() {
        Ok(format!("wrote {}", project::short(Path::new(&file))))
    } else {
        Err(failures.join("\n"))
    }
}

/// Without a suite: what the arguments ask for.
fn suite_of_benches(suite: &str, features: &[&str], own: &[&str], args: &[String]) -> Step {
    let asks_for_help = args.iter().any(|arg| arg == "--help" || arg == "-h");
    if suite == "http" && !asks_for_help {
        // Ours is an example; the bench looks for it beside itself.
        Run::cargo(&["build", "--quiet", "--release", "--package", "gort", "--example", "http_server"]).status()?;
    }
    // A Go that conformance has installed is a rival too; the bench says so when there is none.
    let go = project::target()?.join("go");
    let run = Run::cargo(&["run", "--quiet", "--release", "--package", "gort-switch"]).args(features).args(["--"]);
    let run = if suite.is_empty() { run } else { run.args(["--suite", suite]) };
    run.args(own).args(args).env_hidden("GORT_GO_DIR", go).limit(BENCH_LIMIT).status()?;
    Ok(String::new())
}

/// The benches end their children when those hang; this is for a bench that hangs itself.
const BENCH_LIMIT: Duration = Duration::from_secs(4 * 3600);
