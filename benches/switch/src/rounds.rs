//! The rounds: every child once in each, in random order.

use crate::options::Options;
use crate::report::{self, Sample, Samples};
use crate::rivals::{Contender, golang};
use crate::workload::Workload;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A child that has not ended by then hangs.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs the bench and prints the report.
pub fn run(options: &Options) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    let go = options.contenders.contains(&Contender::Go).then(|| golang::build(options.go.as_deref()));
    report::head(options, go.as_ref());
    let go_program = go.as_ref().and_then(|go| go.as_ref().ok()).map(|go| go.program.as_path());
    let mut children = children(options, go_program.is_some());
    if children.is_empty() {
        return Err("nothing to run".into());
    }
    let mut random = Random(options.seed | 1);
    let (mut samples, mut failures): (Samples, _) = (Samples::new(), BTreeMap::new());
    for round in 1..=options.rounds {
        random.shuffle(&mut children);
        for (i, key @ (workload, procs, contender)) in children.iter().enumerate() {
            progress(&format!("round {round} of {}, child {} of {}", options.rounds, i + 1, children.len()));
            let program = match (contender, go_program) {
                (Contender::Go, Some(program)) => program,
                _ => &own,
            };
            match child(program, *workload, *procs, *contender, options.at_least) {
                Ok(sample) => samples.entry(*key).or_default().push(sample),
                Err(why) => _ = failures.insert(*key, why),
            }
        }
    }
    progress("");
    report::body(options, &samples, &failures);
    match failures.len() {
        0 => Ok(()),
        count => Err(format!("{count} of the children failed; see above")),
    }
}

/// Who runs what with how many Ps.
pub type Key = (Workload, usize, Contender);

fn children(options: &Options, has_go: bool) -> Vec<Key> {
    let mut keys = Vec::new();
    for &workload in &options.workloads {
        for &procs in &options.procs {
            let there = options.contenders.iter().filter(|one| **one != Contender::Go || has_go);
            keys.extend(there.filter(|one| one.takes_part(workload)).map(|&one| (workload, procs, one)));
        }
    }
    keys
}

fn child(
    program: &Path,
    workload: Workload,
    procs: usize,
    contender: Contender,
    at_least: Duration,
) -> Result<Sample, String> {
    let mut command = Command::new(PathBuf::from(program));
    command.args(["--child", contender.word(), "--workloads", workload.word()]);
    command.args(["--procs", &procs.to_string(), "--millis", &at_least.as_millis().to_string()]);
    command.env_remove("GOMAXPROCS").env_remove("GOGC").env_remove("RT_TRACE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let start = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    let status = loop {
        match child.try_wait().map_err(|error| format!("cannot wait: {error}"))? {
            Some(status) => break status,
            None if start.elapsed() > LIMIT => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("not done after {LIMIT:?}, killed"));
            }
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    // A line each, at most a panic's message: the pipes hold it.
    let (mut stdout, mut stderr) = (String::new(), String::new());
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut stdout));
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut stderr));
    if !status.success() {
        return Err(format!("{status}: {}", stderr.trim()));
    }
    let mut numbers = stdout.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(ns)), Some(Ok(bytes))) => Ok(Sample { ns, bytes }),
        _ => Err(format!("printed {stdout:?}")),
    }
}

/// One line that is written over, on a terminal only.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
    }
}

/// xorshift64: an order, not a secret.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            let j = (self.next() % (i as u64 + 1)) as usize;
            items.swap(i, j);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_keeps_all() {
        let mut items: Vec<u32> = (0..100).collect();
        Random(1).shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
    }
}
