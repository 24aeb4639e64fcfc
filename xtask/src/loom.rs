//! The loom models, in a target folder of their own: `--cfg loom` would otherwise rebuild everything twice.

use crate::run::Run;
use crate::{Step, project};

/// Our packages and their folders.
const PACKAGES: [(&str, &str); 3] = [("gort", "."), ("gort-tracer", "tracer"), ("gort-netpoll", "netpoll")];

/// Enough for the bugs that models find in practice; a deeper search is LOOM_MAX_PREEMPTIONS=3 or more.
const PREEMPTIONS: &str = "2";

pub(crate) fn run() -> Step {
    let preemptions = std::env::var("LOOM_MAX_PREEMPTIONS").unwrap_or_else(|_| PREEMPTIONS.to_owned());
    let (mut passed, mut packages) = (0, Vec::new());
    for (package, folder) in PACKAGES {
        if !depends_on_loom(folder)? {
            continue;
        }
        // Release: the search is the time. Only what is named for loom: other tests would use its types outside a model.
        let run = Run::cargo(&["test", "--release", "--package", package, "--lib"]);
        let done = run
            .args(loom_tests(folder).iter().flat_map(|name| ["--test", name]))
            .args(["loom"])
            .env("LOOM_MAX_PREEMPTIONS", &preemptions)
            .env("RUSTFLAGS", "--cfg loom")
            .env_hidden("CARGO_TARGET_DIR", project::target()?.join("loom"))
            .capture()?;
        let took = done.elapsed;
        let stdout = done.success()?;
        let count = count_passed(&stdout);
        if count == 0 {
            return Err(format!("{package} depends on loom, but no test of its has loom in its name"));
        }
        stdout.lines().filter(|line| line.starts_with("test ")).for_each(|line| println!("    {line}"));
        println!("    {package}: {count} models in {:.1} s", took.as_secs_f64());
        passed += count;
        packages.push(package);
    }
    if packages.is_empty() {
        return Err("no package depends on loom".into());
    }
    Ok(format!("{passed} models in {}, LOOM_MAX_PREEMPTIONS={preemptions}", packages.join(", ")))
}

fn depends_on_loom(folder: &str) -> Result<bool, String> {
    let path = project::root().join(folder).join("Cargo.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(text.lines().any(|line| line.starts_with("loom ") || line.starts_with("loom=") || line.starts_with("loom.")))
}

/// Integration tests with loom in their file's name.
fn loom_tests(folder: &str) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(project::root().join(folder).join("tests")) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|path| Some(path.file_stem()?.to_str()?.to_owned()))
        .filter(|name| name.contains("loom"))
        .collect()
}

/// The sum of libtest's closing lines.
fn count_passed(stdout: &str) -> usize {
    stdout
        .lines()
        .filter_map(|line| line.strip_prefix("test result: ok. "))
        .filter_map(|rest| rest.split_once(" passed")?.0.parse::<usize>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_closing_lines() {
        let stdout = "test result: ok. 3 passed; 0 failed\nnoise\ntest result: ok. 0 passed; 0 failed\n";
        assert_eq!(count_passed(stdout), 3);
    }
}
