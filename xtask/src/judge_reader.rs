//! Our reader beside Go's: on real traces both must give the same events, field by field, and on the traces of Go's own
//! tests the verdict that stands in them.
//!
//! The traces are made now: by the programs that Go's tests of its reader are made from, each with several settings of
//! its tracer, by ours under xtask/go, and by our examples and tests, whatever those have left. The inputs are read where
//! Go is installed. The comparison itself is tracer/tests/go.rs.

use crate::golang::Go;
use crate::run::Run;
use crate::{Step, project};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// So many traces at least.
const TRACES_MIN: usize = 30;

/// So many of ours are compared at most; the rest of them only have to be good.
const OURS_MAX: usize = 40;

/// A program that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// What Go's tests set: as it comes, generations as short as can be, and what the heap does.
const SETTINGS: [(&str, &str); 4] = [
    ("default", ""),
    ("short-generations", "traceadvanceperiod=0"),
    ("alloc-free", "traceallocfree=1"),
    ("no-preemption", "asyncpreemptoff=1"),
];

/// `ours`: traces that our own programs have left.
pub(crate) fn run(go: &Go, ours: &[PathBuf]) -> Step {
    let folder = project::fresh("reader")?;
    let traces = folder.join("traces");
    project::make_dir(&traces)?;
    let tool = folder.join("gotrace");
    go.run(&["build", "-o"]).args([tool.as_path(), Path::new("cmd/trace")]).capture()?.success()?;
    let testdata = go.root().join("src/internal/trace/testdata");
    let of_go =
        gos_programs(go, &testdata.join("testprog"), &folder, &traces)? + our_go_programs(go, &folder, &traces)?;
    let step = ours.len().div_ceil(OURS_MAX).max(1);
    for (i, trace) in ours.iter().step_by(step).enumerate() {
        let copy = traces.join(format!("ours-{i}.trace"));
        std::fs::copy(trace, &copy).map_err(|error| format!("cannot copy {}: {error}", project::short(trace)))?;
    }
    let count = of_go + ours.len().div_ceil(step);
    if count < TRACES_MIN {
        return Err(format!("{count} traces are not enough, {TRACES_MIN} are needed"));
    }
    println!("    comparing our reader with Go's on {count} traces, {of_go} of them from Go programs");
    let test = Run::cargo(&["test", "--quiet", "--release", "--package", "gort-tracer", "--test", "go", "--"])
        .args(["--ignored", "--nocapture", "--test-threads=2"])
        .env_hidden("GORT_GO_TRACE", &tool)
        .env_hidden("GORT_GO_TRACES", &traces)
        .env_hidden("GORT_GO_TESTDATA", &testdata);
    let said = test.capture()?.success()?;
    // The test runner's dots stand before them.
    let said = said.lines().map(|line| line.trim_start_matches('.'));
    let said: Vec<&str> = said.filter(|line| line.starts_with(|c: char| c.is_ascii_digit())).collect();
    Ok(said.join("; "))
}

/// Go's test programs with each setting. Answers how many traces there are.
fn gos_programs(go: &Go, sources: &Path, folder: &Path, traces: &Path) -> Result<usize, String> {
    let mut made = 0;
    for source in go_sources(sources)? {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let program = folder.join(&name);
        let build = go.run(&["build", "-o"]).args([&program, &source]).quiet().capture()?;
        // One of them is in C by half.
        let needs_c = std::fs::read_to_string(&source).is_ok_and(|text| text.contains("import \"C\""));
        if let Err(why) = build.success() {
            if !needs_c || has_c() {
                return Err(why);
            }
            println!("    no C compiler: without {name}");
            continue;
        }
        for (setting, godebug) in SETTINGS {
            let run = Run::new(&program).env_hidden("GODEBUG", godebug).quiet().limit(LIMIT).capture()?;
            if !run.status.is_some_and(|status| status.success()) {
                return Err(run.failure(&run.ending()));
            }
            let trace = traces.join(format!("{name}-{setting}.trace"));
            std::fs::write(&trace, &run.stdout)
                .map_err(|error| format!("cannot write {}: {error}", project::short(&trace)))?;
            made += 1;
        }
    }
    Ok(made)
}

/// The programs under xtask/go. Answers how many traces there are.
fn our_go_programs(go: &Go, folder: &Path, traces: &Path) -> Result<usize, String> {
    let sources = go_sources(&project::root().join("xtask/go"))?;
    for source in &sources {
        let name = source.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let (program, trace) = (folder.join(&name), traces.join(format!("{name}.trace")));
        go.run(&["build", "-o"]).args([&program, source]).quiet().capture()?.success()?;
        Run::new(&program).args([&trace]).quiet().limit(LIMIT).capture()?.success()?;
    }
    Ok(sources.len())
}

fn go_sources(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut sources = project::files_below(folder);
    sources.retain(|source| source.extension().is_some_and(|extension| extension == "go"));
    if sources.is_empty() { Err(format!("no Go programs in {}", folder.display())) } else { Ok(sources) }
}

fn has_c() -> bool {
    Run::new("cc").args(["--version"]).quiet().capture().is_ok_and(|done| done.success().is_ok())
}
