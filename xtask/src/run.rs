//! Running programs: in the open, with their output on the terminal, or captured; always with a time-out.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Long enough for a cold build of everything on two cores.
const LIMIT: Duration = Duration::from_secs(45 * 60);

/// Set when nothing will be built a second time: what cargo would keep for that is then not worth its gigabytes.
pub(crate) static BUILDS_ONCE: AtomicBool = AtomicBool::new(false);

/// A program to run, from the root of the repository unless told otherwise.
pub(crate) struct Run {
    command: Command,
    shown: Vec<String>,
    limit: Duration,
    quiet: bool,
    keep: usize,
}

/// What is kept of a program's standard output when its end is enough.
const TAIL: usize = 64 << 10;

impl Run {
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Run {
        let name = Path::new(program.as_ref()).file_name().unwrap_or(program.as_ref()).to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).current_dir(crate::project::root());
        Run { command, shown: vec![name], limit: LIMIT, quiet: false, keep: usize::MAX }
    }

    /// The cargo that runs us.
    pub(crate) fn cargo(args: &[&str]) -> Run {
        let run = Run::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"))).args(args);
        if BUILDS_ONCE.load(Relaxed) && std::env::var_os("CARGO_INCREMENTAL").is_none() {
            return run.env_hidden("CARGO_INCREMENTAL", "0");
        }
        run
    }

    pub(crate) fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Run {
        for arg in args {
            self.shown.push(arg.as_ref().to_string_lossy().into_owned());
            self.command.arg(arg);
        }
        self
    }

    /// Sets a variable, and shows it.
    pub(crate) fn env(mut self, key: &str, value: impl AsRef<OsStr>) -> Run {
        self.shown.insert(0, format!("{key}={:?}", value.as_ref().to_string_lossy()));
        self.command.env(key, value);
        self
    }

    /// Sets a variable that nobody needs to see.
    pub(crate) fn env_hidden(mut self, key: &str, value: impl AsRef<OsStr>) -> Run {
        self.command.env(key, value);
        self
    }

    pub(crate) fn env_remove(mut self, key: &str) -> Run {
        self.command.env_remove(key);
        self
    }

    pub(crate) fn dir(mut self, dir: &Path) -> Run {
        self.command.current_dir(dir);
        self
    }

    pub(crate) fn limit(mut self, limit: Duration) -> Run {
        self.limit = limit;
        self
    }

    /// Do not print the command.
    pub(crate) fn quiet(mut self) -> Run {
        self.quiet = true;
        self
    }

    /// Keep only the end of the standard output.
    pub(crate) fn keep_tail(mut self) -> Run {
        self.keep = TAIL;
        self
    }

    fn line(&self) -> String {
        self.shown.join(" ")
    }

    fn announce(&self) {
        if !self.quiet {
            println!("    $ {}", self.line());
        }
    }

    /// Runs it with its output on our terminal. An error unless it exits with 0.
    pub(crate) fn status(mut self) -> Result<(), String> {
        self.announce();
        let line = self.line();
        let mut child = self.command.spawn().map_err(|error| format!("cannot run {line}: {error}"))?;
        match wait(&mut child, self.limit)? {
            Some(status) if status.success() => Ok(()),
            Some(status) => Err(format!("{line}: {}", describe(status))),
            None => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("{line}: not done after {:?}, killed", self.limit))
            }
        }
    }

    /// Starts it in a process group of its own, with its standard error for us to read and its standard output lost.
    pub(crate) fn background(mut self) -> Result<Background, String> {
        self.announce();
        let line = self.line();
        self.command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        self.command.spawn().map(Background).map_err(|error| format!("cannot run {line}: {error}"))
    }

    /// Runs it in a process group of its own and collects what it prints. After the time-out the group is killed.
    pub(crate) fn capture(mut self) -> Result<Captured, String> {
        self.command.stdin(Stdio::null());
        self.start(None)?.finish()
    }

    /// Starts it as [`Run::capture`] does, and waits for the first line that it prints. Until [`Serving::finish`] its standard input is
    /// open.
    pub(crate) fn serve(mut self) -> Result<Serving, String> {
        self.command.stdin(Stdio::piped());
        let limit = self.limit;
        let (told, first) = mpsc::channel();
        let mut serving = self.start(Some(told))?;
        match first.recv_timeout(limit) {
            Ok(line) => {
                serving.first_line = line.trim_end().to_owned();
                Ok(serving)
            }
            // It has ended, or hangs.
            Err(_) => {
                serving.limit = Duration::ZERO;
                let done = serving.finish()?;
                Err(done.failure("said nothing"))
            }
        }
    }

    fn start(mut self, told: Option<mpsc::Sender<String>>) -> Result<Serving, String> {
        self.announce();
        let line = self.line();
        self.command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let start = Instant::now();
        let mut child = self.command.spawn().map_err(|error| format!("cannot run {line}: {error}"))?;
        let stdout = collect(child.stdout.take().expect("piped"), self.keep, told);
        let stderr = collect(child.stderr.take().expect("piped"), usize::MAX, None);
        Ok(Serving {
            child,
            line,
            limit: self.limit,
            start,
            stdout: Some(stdout),
            stderr: Some(stderr),
            first_line: String::new(),
        })
    }
}

/// A program whose output is collected.
pub(crate) struct Serving {
    child: Child,
    line: String,
    limit: Duration,
    start: Instant,
    /// Both until it is finished.
    stdout: Option<thread::JoinHandle<Collected>>,
    stderr: Option<thread::JoinHandle<Collected>>,
    first_line: String,
}

impl Serving {
    /// The first line of its standard output.
    pub(crate) fn first_line(&self) -> &str {
        &self.first_line
    }

    /// Ends its standard input and waits until it has ended.
    pub(crate) fn finish(mut self) -> Result<Captured, String> {
        drop(self.child.stdin.take());
        let status = wait(&mut self.child, self.limit)?;
        if status.is_none() {
            kill_group(&mut self.child);
        }
        let text = |collected: Option<thread::JoinHandle<Collected>>| {
            collected.and_then(|collected| collected.join().ok()).unwrap_or_default()
        };
        let (stdout, stderr) = (text(self.stdout.take()), text(self.stderr.take()));
        Ok(Captured {
            line: std::mem::take(&mut self.line),
            status,
            limit: self.limit,
            stdout: stdout.bytes,
            lines_starting_with_m: stdout.lines_starting_with_m,
            stderr: String::from_utf8_lossy(&stderr.bytes).into_owned(),
            elapsed: self.start.elapsed(),
        })
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.stdout.is_some() {
            kill_group(&mut self.child);
        }
    }
}

/// The group is the child's, so only our own processes are in it. They may hold pipes open that we wait for.
fn kill_group(child: &mut Child) {
    let group = format!("-{}", child.id());
    let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
    let _ = child.wait();
}

/// A program in the background; it ends with this value.
pub(crate) struct Background(Child);

impl Background {
    /// Its standard error, once.
    pub(crate) fn stderr(&mut self) -> ChildStderr {
        self.0.stderr.take().expect("taken once")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        kill_group(&mut self.0);
    }
}

#[derive(Default)]
struct Collected {
    bytes: Vec<u8>,
    lines_starting_with_m: usize,
}

/// Collects what comes; `told` gets the first line.
fn collect(
    pipe: impl Read + Send + 'static,
    keep: usize,
    mut told: Option<mpsc::Sender<String>>,
) -> thread::JoinHandle<Collected> {
    thread::spawn(move || {
        let mut collected = Collected::default();
        let mut pipe = BufReader::new(pipe);
        let mut line = Vec::new();
        // What came before an error is still worth showing.
        while pipe.read_until(b'\n', &mut line).is_ok_and(|len| len > 0) {
            if let Some(told) = told.take() {
                // Whoever asked may have given up.
                let _ = told.send(String::from_utf8_lossy(&line).into_owned());
            }
            collected.lines_starting_with_m += usize::from(line.starts_with(b"M="));
            collected.bytes.append(&mut line);
            if collected.bytes.len() / 2 > keep {
                collected.bytes.drain(..collected.bytes.len() - keep);
            }
        }
        collected
    })
}

fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(500);
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if start.elapsed() >= limit => return Ok(None),
            Ok(None) => thread::sleep(pause),
            Err(error) => return Err(format!("cannot wait for a child: {error}")),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// "exit code 2", "killed by signal 11".
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("killed by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// What a captured program did.
pub(crate) struct Captured {
    pub(crate) line: String,
    /// None: killed after the time-out.
    pub(crate) status: Option<ExitStatus>,
    limit: Duration,
    pub(crate) stdout: Vec<u8>,
    /// One for each event that `go tool trace -d=parsed` prints.
    pub(crate) lines_starting_with_m: usize,
    pub(crate) stderr: String,
    pub(crate) elapsed: Duration,
}

impl Captured {
    /// How it ended.
    pub(crate) fn ending(&self) -> String {
        match self.status {
            Some(status) => describe(status),
            None => format!("not done after {:?}, killed", self.limit),
        }
    }

    /// Its standard output, if it exited with 0; otherwise an error with all it printed.
    pub(crate) fn success(self) -> Result<String, String> {
        match self.status {
            Some(status) if status.success() => Ok(String::from_utf8_lossy(&self.stdout).into_owned()),
            _ => Err(self.failure(&self.ending())),
        }
    }

    /// An error message with the output below.
    pub(crate) fn failure(&self, why: &str) -> String {
        let stdout = String::from_utf8_lossy(&self.stdout);
        format!("{}: {why}{}{}", self.line, section("stdout", &stdout), section("stderr", &self.stderr))
    }
}

/// The last lines of a program's output, indented under a title.
fn section(title: &str, text: &str) -> String {
    const LINES: usize = 60;
    let lines: Vec<&str> = text.lines().collect();
    if lines.is_empty() {
        return format!("\n  {title}: empty");
    }
    let skipped = lines.len().saturating_sub(LINES);
    let cut = if skipped > 0 { format!(" (without the first {skipped} lines)") } else { String::new() };
    let shown: String = lines[skipped..].iter().map(|line| format!("\n    | {line}")).collect();
    format!("\n  {title}{cut}:{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_output_and_ending() {
        let done = Run::new("sh").args(["-c", "echo out; echo err >&2; exit 3"]).quiet().capture().unwrap();
        assert_eq!(done.ending(), "exit code 3");
        assert_eq!(done.stdout, b"out\n");
        assert_eq!(done.stderr, "err\n");
        assert!(done.success().unwrap_err().contains("| err"));
    }

    #[test]
    fn names_the_signal() {
        let done = Run::new("sh").args(["-c", "kill -SEGV $$"]).quiet().capture().unwrap();
        assert_eq!(done.ending(), "killed by signal 11");
    }

    #[test]
    fn a_time_out_ends_the_whole_group() {
        // The grandchild holds the pipe: without the kill of the group this would take an hour.
        let run = Run::new("sh").args(["-c", "sleep 3600 & wait"]).quiet().limit(Duration::from_millis(200));
        let done = run.capture().unwrap();
        assert!(done.status.is_none());
        assert!(done.ending().contains("killed"));
    }

    #[test]
    fn a_server_ends_with_its_input() {
        let server = Run::new("sh").args(["-c", "echo here; echo more; cat; echo end"]).quiet().serve().unwrap();
        assert_eq!(server.first_line(), "here");
        assert_eq!(server.finish().unwrap().success().unwrap(), "here\nmore\nend\n");
        let failed = Run::new("sh").args(["-c", "echo why >&2"]).quiet().serve();
        assert!(failed.err().unwrap().contains("| why"));
    }

    #[test]
    fn long_output_is_cut_at_the_front() {
        let text: String = (0..100).map(|i| format!("line {i}\n")).collect();
        let shown = section("stdout", &text);
        assert!(shown.contains("without the first 40 lines"));
        assert!(shown.contains("| line 99") && !shown.contains("| line 39\n"));
    }
}
