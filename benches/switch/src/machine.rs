//! What a figure depends on: the machine, the toolchains, the versions of the rivals.

use crate::workload::Suite;
use std::process::Command;

/// Processor, cores, memory, kernel.
pub fn machine() -> String {
    let cpus = read("/proc/cpuinfo");
    let model = value(&cpus, "model name").unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = value(&read("/proc/meminfo"), "MemTotal").and_then(|kib| kib.split(' ').next()?.parse::<u64>().ok());
    let memory = memory.map_or("?".into(), |kib| format!("{} GiB", (kib as f64 / (1 << 20) as f64).round()));
    let kernel = read("/proc/sys/kernel/osrelease");
    let cores = if cores == 1 { "1 core".into() } else { format!("{cores} cores") };
    format!("{model}, {cores}, {memory}, Linux {}", kernel.trim())
}

/// The Rust compiler that cargo uses here.
pub fn rustc() -> String {
    says("rustc", &["--version"]).unwrap_or_else(|| "an unknown rustc".into())
}

/// The day, and what is checked out.
pub fn when() -> String {
    let day = says("date", &["-u", "+%Y-%m-%d"]).unwrap_or_else(|| "on an unknown day".into());
    let commit = says("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty", "--exclude=*"]);
    format!("{day}, commit {}", commit.unwrap_or_else(|| "unknown".into()))
}

/// The versions of what is compared, from the lock file that this was built with.
pub fn crates(suite: Suite) -> String {
    let names: &[&str] = match suite {
        Suite::Switch => &[
            "tokio",
            "may",
            "smol",
            "async-executor",
            "async-channel",
            "async-lock",
            "async-io",
            "parking_lot",
            "crossbeam-channel",
        ],
        Suite::Net => &["tokio", "may", "smol", "async-executor", "async-io", "async-net", "mio"],
        Suite::Http => &["tokio", "hyper", "hyper-util"],
        Suite::Gc => &[],
    };
    let lock = include_str!("../../../Cargo.lock");
    let versions: Vec<String> =
        names.iter().map(|name| format!("{name} {}", version(lock, name).unwrap_or("?"))).collect();
    versions.join(", ")
}

fn version<'a>(lock: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
    rest.split('"').next()
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

fn says(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rivals_have_versions() {
        for suite in Suite::ALL {
            assert!(!crates(suite).contains('?'), "{}", crates(suite));
        }
    }

    #[test]
    fn reads_tables_of_the_kernel() {
        assert_eq!(value("a : b\nmodel name\t: X 1\nmodel name\t: Y\n", "model name"), Some("X 1"));
        assert_eq!(value("MemTotal:   12 kB\n", "MemTotal"), Some("12 kB"));
    }
}
