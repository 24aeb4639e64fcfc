//! The rounds: every child once in each, in random order.

use crate::options::Options;
use crate::results::{Key, Results};
use crate::rivals::{Part, golang};
use crate::workload::{Kind, Net, Suite};
use crate::{http, markdown, net, probe, report};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Runs the bench and prints the report.
pub fn run(options: &Options) -> Result<(), String> {
    let own = std::env::current_exe().map_err(|error| format!("where this program is: {error}"))?;
    options.markdown.as_deref().map_or(Ok(()), |path| markdown::check(path, options.suite))?;
    let wants_go = options.contenders.iter().any(|one| one.is_go());
    let go = wants_go.then(|| golang::build(options.suite, options.go.as_deref()));
    if options.suite == Suite::Http {
        http::find_wrk()?;
    }
    report::head(options, go.as_ref());
    let mut results = Results::default();
    let (go_program, go_version) = match go {
        Some(Ok(go)) => (Some(go.program), Some(go.version)),
        Some(Err(why)) => {
            results.no_go = Some(why.lines().next().unwrap_or_default().to_owned());
            (None, None)
        }
        None => (None, None),
    };
    let mut children = children(options, go_program.is_some());
    if children.is_empty() {
        return Err("nothing to run".into());
    }
    let mut random = Random(options.seed | 1);
    for round in 1..=options.rounds {
        random.shuffle(&mut children);
        for (i, key @ (workload, _, contender)) in children.iter().enumerate() {
            progress(&format!("round {round} of {}, child {} of {}", options.rounds, i + 1, children.len()), i == 0);
            if round > workload.spec().rounds_max || results.failures.contains_key(key) {
                continue;
            }
            let program = match &go_program {
                Some(program) if contender.is_go() => program,
                _ => &own,
            };
            let result = match workload.spec().kind {
                Kind::Http => http::measure(program, *key, options),
                Kind::Net(Net::Idle(wanted)) if !options.quick => {
                    let (connections, why) = net::connections(wanted);
                    results.remarks.extend(why);
                    child(program, *key, options, Some(connections))
                }
                // The limit is for the children: they inherit it.
                Kind::Net(kind) => {
                    let raised = if options.quick { Ok(()) } else { probe::allow_files(net::files(kind)) };
                    raised.and_then(|()| child(program, *key, options, None))
                }
                _ => child(program, *key, options, None),
            };
            results.add(*key, result);
        }
    }
    progress("", false);
    report::body(options, &results);
    if let Some(path) = &options.markdown {
        markdown::write(path, options, &results, go_version.as_deref())?;
    }
    // A rival that fails is a result; ours is a bug.
    match results.failures.keys().filter(|(_, _, contender)| contender.is_ours()).count() {
        0 => Ok(()),
        count => Err(format!("gort failed {count} times; see above")),
    }
}

fn children(options: &Options, has_go: bool) -> Vec<Key> {
    let mut keys = Vec::new();
    for &workload in &options.workloads {
        for procs in workload.procs(&options.procs) {
            let there = options.contenders.iter().filter(|one| !one.is_go() || has_go);
            keys.extend(there.filter(|one| one.part(workload) == Part::Takes).map(|&one| (workload, procs, one)));
        }
    }
    keys
}

/// Runs one child; answers its values.
fn child(
    program: &Path,
    (workload, procs, contender): Key,
    options: &Options,
    connections: Option<usize>,
) -> Result<Vec<f64>, String> {
    let mut command = Command::new(program);
    command.args(["--child", contender.word(), "--workloads", workload.word()]);
    command.args(["--procs", &procs.to_string(), "--millis", &options.at_least.as_millis().to_string()]);
    if options.quick {
        command.arg("--quick");
    }
    if let Some(connections) = connections {
        command.args(["--connections", &connections.to_string()]);
    }
    undisturbed(&mut command);
    let (status, stdout, stderr) = output(command, options.limit)?;
    if !status.success() {
        return Err(format!("{status}: {}", gist(&stderr)));
    }
    let values: Result<Vec<f64>, _> = stdout.split_whitespace().map(str::parse::<f64>).collect();
    let count = workload.spec().columns.len() + usize::from(contender.is_traced());
    match values {
        Ok(values) if values.len() == count && values.iter().all(|value| value.is_finite()) => Ok(values),
        _ => Err(format!("prints {:?}", gist(&stdout))),
    }
}

/// Takes variables out of its environment that would change what is measured.
pub fn undisturbed(command: &mut Command) {
    for variable in ["GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", "RT_TRACE", "RT_BORDER"] {
        command.env_remove(variable);
    }
}

/// Its status and what it has written, if it ends in time. Nothing here wakes up meanwhile.
pub fn output(mut command: Command, limit: Duration) -> Result<(std::process::ExitStatus, String, String), String> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    let (mut stdout, mut stderr) = (child.stdout.take().expect("piped"), child.stderr.take().expect("piped"));
    let (done, ended) = channel();
    let read = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stdout.read_to_end(&mut text);
        let _ = done.send(());
        String::from_utf8_lossy(&text).into_owned()
    });
    let read_errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = stderr.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });
    // Its output ends with it.
    let hangs = ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout);
    if hangs {
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("cannot wait: {error}"))?;
    let text = |reader: std::thread::JoinHandle<String>| reader.join().expect("does not panic");
    let (stdout, stderr) = (text(read), text(read_errors));
    if hangs { Err(hung(limit, &stderr)) } else { Ok((status, stdout, stderr)) }
}

fn hung(limit: Duration, stderr: &str) -> String {
    let said = gist(stderr);
    let said = if said.is_empty() { String::new() } else { format!("; it said: {said}") };
    format!("not done after {limit:?}, killed{said}")
}

/// The first line that says something; of a panic, its message.
pub fn gist(text: &str) -> String {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let said = if first.contains("panicked at") { lines.next().unwrap_or(first) } else { first };
    said.chars().take(240).collect()
}

/// One line that is written over on a terminal; elsewhere only where something begins.
fn progress(text: &str, begins: bool) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
        let _ = std::io::stderr().flush();
    } else if begins {
        eprintln!("{text}");
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

    fn shell(script: &str, limit: Duration) -> Result<(std::process::ExitStatus, String, String), String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        output(command, limit)
    }

    #[test]
    fn a_child_that_hangs_is_killed_and_said_so() {
        let result = shell("exec sleep 1000", Duration::from_millis(500));
        assert_eq!(result.unwrap_err(), "not done after 500ms, killed");
        assert_eq!(hung(Duration::from_secs(9), "stuck\n"), "not done after 9s, killed; it said: stuck");
    }

    #[test]
    fn a_child_that_floods_its_pipes_ends() {
        let flood = "i=0; while [ $i -lt 20000 ]; do echo 123456789 >&2; i=$((i+1)); done; echo 7";
        let (status, stdout, stderr) = shell(flood, Duration::from_secs(600)).unwrap();
        assert!(status.success());
        assert_eq!((stdout.as_str(), stderr.len()), ("7\n", 200_000));
    }

    #[test]
    fn the_gist_is_short() {
        assert_eq!(gist("\nthread 'main' panicked at x.rs:\n no stack\nnote: more\n"), "no stack");
        assert_eq!(gist("switch: no such thing\n"), "switch: no such thing");
        assert_eq!(gist(&"x".repeat(1000)).len(), 240);
    }
}
