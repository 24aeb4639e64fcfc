//! `cargo xtask bench read`: our reader beside Go's own library, on traces of Go programs of 100 MB and more.
//!
//! The traces and Go's reader are made once, under target/xtask/bench-read. Go's library is internal; the reader is built
//! as if it were one of Go's own commands, through an overlay, so that nothing is written where Go is installed.

use crate::golang::Go;
use crate::run::Run;
use crate::{Step, project};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The programs that `benches/read/go/traces.go` knows, and the least size of their traces.
const PROGRAMS: [&str; 3] = ["pingpong", "skynet", "echo"];
const MEGABYTES: u64 = 110;

/// The bench itself, all rounds.
const LIMIT: Duration = Duration::from_secs(3600);

pub(crate) fn run(args: &[String]) -> Step {
    let go = Go::ensure()?;
    let folder = project::work("bench-read")?;
    project::make_dir(&folder)?;
    let reader = gos_reader(&go, &folder)?;
    let traces = traces(&go, &folder)?;
    let bench = Run::cargo(&["run", "--quiet", "--release", "--package", "gort-read-bench", "--", "--go"]);
    bench.args([&reader]).args(args).args(&traces).limit(LIMIT).status()?;
    Ok(String::new())
}

fn gos_reader(go: &Go, folder: &Path) -> Result<PathBuf, String> {
    let (source, overlay) = (project::root().join("benches/read/go/reader.go"), folder.join("overlay.json"));
    let place = go.root().join("src/cmd/gortreader/main.go");
    let text = format!("{{\"Replace\":{{{:?}:{:?}}}}}", place.display().to_string(), source.display().to_string());
    std::fs::write(&overlay, text).map_err(|error| format!("cannot write {}: {error}", project::short(&overlay)))?;
    let program = folder.join("goreader");
    let overlay = format!("-overlay={}", overlay.display());
    go.run(&["build", &overlay, "-o"]).args([program.as_path(), Path::new("cmd/gortreader")]).capture()?.success()?;
    Ok(program)
}

fn traces(go: &Go, folder: &Path) -> Result<Vec<PathBuf>, String> {
    let (source, maker) = (project::root().join("benches/read/go/traces.go"), folder.join("traces"));
    go.run(&["build", "-o"]).args([&maker, &source]).capture()?.success()?;
    let mut traces = Vec::new();
    for program in PROGRAMS {
        let trace = folder.join(format!("{program}.trace"));
        if !trace.metadata().is_ok_and(|file| file.len() > MEGABYTES << 20) {
            let half = folder.join("unfinished");
            let make = Run::new(&maker).args([program]).args([&half]).args([MEGABYTES.to_string()]);
            make.capture()?.success()?;
            std::fs::rename(&half, &trace)
                .map_err(|error| format!("cannot make {}: {error}", project::short(&trace)))?;
        }
        traces.push(trace);
    }
    Ok(traces)
}
