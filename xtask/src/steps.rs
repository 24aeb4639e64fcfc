//! The steps that are one or two calls of cargo.

use crate::Step;
use crate::project;
use crate::run::Run;
use std::path::Path;

pub(crate) fn fmt() -> Step {
    Run::cargo(&["fmt", "--all", "--check"])
        .status()
        .map_err(|why| format!("{why}; cargo fmt --all puts the files above in order"))?;
    Ok("formatted".into())
}

pub(crate) fn clippy() -> Step {
    let args = ["clippy", "--workspace", "--all-targets", "--all-features", "--", "-D", "warnings"];
    Run::cargo(&args).status()?;
    Ok("no warnings".into())
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

/// The runtime's tests again with the border that works without membarrier.
pub(crate) fn test_fence() -> Step {
    Ok(format!(
        "runtime with RT_BORDER=fence, by {}",
        tests(&["--package", "gort"], |run| run.env("RT_BORDER", "fence"))?
    ))
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

/// The benches; `publish` runs them with both allocators and writes docs/BENCHMARKS.md.
pub(crate) fn bench(args: &[String]) -> Step {
    let Some((_, rest)) = args.split_first().filter(|(first, _)| *first == "publish") else {
        return switch(&[], args);
    };
    let file = project::root().join("docs/BENCHMARKS.md").display().to_string();
    let with = |own: &[&str]| own.iter().map(|&arg| arg.to_owned()).chain(rest.iter().cloned()).collect::<Vec<_>>();
    let system = switch(&[], &with(&["--markdown", &file]));
    // Where the allocator matters.
    let workloads = "spawn-join,spawn-group,spawn-million,skynet";
    let mimalloc = switch(&["--features", "mimalloc"], &with(&["--markdown", &file, "--workloads", workloads]));
    // Ours failing in one place leaves the tables of all others.
    system.and(mimalloc)?;
    Ok(format!("wrote {}", project::short(Path::new(&file))))
}

fn switch(features: &[&str], args: &[String]) -> Step {
    // A Go that conformance has installed is a rival too; the bench says so when there is none.
    let go = project::target()?.join("go");
    Run::cargo(&["run", "--quiet", "--release", "--package", "gort-switch"])
        .args(features)
        .args(["--"])
        .args(args)
        .env_hidden("GORT_GO_DIR", go)
        .status()?;
    Ok(String::new())
}
