//! Go: where it is, and our programs for it.

use crate::workload::Suite;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A built rival.
#[derive(Debug)]
pub struct Golang {
    /// Our program.
    pub program: PathBuf,
    /// What `go version` says.
    pub version: String,
}

/// Builds our program for a suite; the error says why there is no Go.
pub fn build(suite: Suite, asked_for: Option<&Path>) -> Result<Golang, String> {
    let own = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let folder = own.parent().unwrap_or(Path::new("."));
    let (go, version) = find(asked_for, folder)?;
    let (name, files) = program(suite);
    let program = folder.join(name);
    let sources = files.iter().map(|file| Path::new(env!("CARGO_MANIFEST_DIR")).join("go").join(file));
    let built = go_command(&go, folder).args(["build", "-o"]).arg(&program).args(sources).output();
    let built = built.map_err(|error| format!("cannot run {}: {error}", go.display()))?;
    if !built.status.success() {
        return Err(format!("go build fails:\n{}", String::from_utf8_lossy(&built.stderr)));
    }
    Ok(Golang { program, version })
}

/// Its name, and all its files: named one by one, they need no module around them. A program for each suite, so that none
/// carries what only another one needs.
fn program(suite: Suite) -> (&'static str, &'static [&'static str]) {
    match suite {
        Suite::Switch | Suite::Gc => ("switch-go", &["main.go", "measure.go", "workloads.go", "heap.go"]),
        Suite::Net => ("switch-net-go", &["net.go", "measure.go"]),
        Suite::Http => ("switch-http-go", &["http.go"]),
    }
}

fn find(asked_for: Option<&Path>, folder: &Path) -> Result<(PathBuf, String), String> {
    let mut tried = Vec::new();
    for go in candidates(asked_for, folder) {
        let version = go_command(&go, folder).arg("version").output();
        match version {
            Ok(output) if output.status.success() => {
                return Ok((go, String::from_utf8_lossy(&output.stdout).trim().to_owned()));
            }
            Ok(output) => tried.push(format!("{}: {}", go.display(), output.status)),
            Err(error) => tried.push(format!("{}: {error}", go.display())),
        }
    }
    Err(format!("no go command works ({}); cargo xtask go version installs one", tried.join("; ")))
}

/// The one asked for alone; else $GO, the PATH, and what `cargo xtask conformance` installs.
fn candidates(asked_for: Option<&Path>, folder: &Path) -> Vec<PathBuf> {
    if let Some(go) = asked_for {
        return vec![go.to_path_buf()];
    }
    let mut candidates = Vec::new();
    candidates.extend(std::env::var_os("GO").map(PathBuf::from));
    candidates.push(PathBuf::from("go"));
    let installed = std::env::var_os("GORT_GO_DIR").map(PathBuf::from);
    let installed = installed.or_else(|| Some(folder.parent()?.join("go")));
    if let Some(libs) = installed.and_then(|dir| std::fs::read_dir(dir.join("venv/lib")).ok()) {
        candidates.extend(libs.flatten().map(|lib| lib.path().join("site-packages/go/bin/go")));
    }
    candidates
}

fn go_command(go: &Path, folder: &Path) -> Command {
    let mut command = Command::new(go);
    // Its own toolchain, no network, and a cache that goes away with the target folder.
    command.envs([("GOTOOLCHAIN", "local"), ("GOFLAGS", "-mod=mod"), ("GOPROXY", "off"), ("GOENV", "off")]);
    command.env("GOCACHE", folder.join("switch-go-cache")).env_remove("GOROOT");
    command
}
