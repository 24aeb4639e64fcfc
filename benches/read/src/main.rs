//! What it costs to decode a trace and put it in order: ours beside Go's `internal/trace` in one run, on the same files.
//!
//! ```text
//! read --go GOREADER [--rounds N] FILE...    the table
//! read --only FILE                           reads it once with ours: events, check sum, ns
//! ```
//!
//! Each reader runs in a process of its own, the two in turn, and the best of the rounds counts: what disturbs a reader
//! makes it slower, never faster. Both loop over all events and add up their times and kinds, with one thread. The check
//! sums must be the same, so both have seen the same events. `cargo xtask bench read` makes the files and Go's reader.

use std::fs::File;
use std::io::Read;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use tracer::read::{Kind, Reader, TraceFile};

const USAGE: &str = "usage: read --go GOREADER [--rounds N] FILE...";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match &args[..] {
        [only, file] if only == "--only" => read(file),
        args => Options::parse(args).and_then(|options| table(&options)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("read: {why}");
            ExitCode::FAILURE
        }
    }
}

struct Options {
    go: String,
    rounds: usize,
    files: Vec<String>,
}

impl Options {
    fn parse(args: &[String]) -> Result<Options, String> {
        let mut options = Options { go: String::new(), rounds: 3, files: Vec::new() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--go" => options.go = args.next().ok_or(USAGE)?.clone(),
                "--rounds" => options.rounds = args.next().and_then(|n| n.parse().ok()).ok_or(USAGE)?,
                flag if flag.starts_with('-') => return Err(USAGE.into()),
                file => options.files.push(file.to_owned()),
            }
        }
        if options.go.is_empty() || options.files.is_empty() || options.rounds == 0 {
            return Err(USAGE.into());
        }
        Ok(options)
    }
}

/// The number that Go has for a kind of event.
fn go_number(kind: Kind) -> u64 {
    match kind {
        Kind::Sync => 1,
        Kind::Metric => 2,
        Kind::Label => 3,
        Kind::StackSample => 4,
        Kind::RangeBegin => 5,
        Kind::RangeActive => 6,
        Kind::RangeEnd => 7,
        Kind::TaskBegin => 8,
        Kind::TaskEnd => 9,
        Kind::RegionBegin => 10,
        Kind::RegionEnd => 11,
        Kind::Log => 12,
        Kind::StateTransition => 13,
        Kind::Experimental => 14,
    }
}

fn read(file: &str) -> Result<(), String> {
    let why = |e: &dyn std::fmt::Display| format!("{file}: {e}");
    let start = Instant::now();
    let (mut events, mut sum) = (0u64, 0u64);
    let trace = TraceFile::new(File::open(file).map_err(|e| why(&e))?).map_err(|e| why(&e))?;
    let mut reader = Reader::new(trace.ok_or("not a regular file")?).map_err(|e| why(&e))?;
    while reader.advance().map_err(|e| why(&e))? {
        let event = reader.event();
        events += 1;
        sum = sum.wrapping_add(event.time as u64 ^ go_number(event.category()));
    }
    println!("{events} {sum} {}", start.elapsed().as_nanos());
    Ok(())
}

/// What a reader said, and the most memory it had.
#[derive(Clone, Copy)]
struct Run {
    events: u64,
    sum: u64,
    ns: u64,
    memory_bytes: u64,
}

fn run(mut command: Command) -> Result<Run, String> {
    let name = format!("{command:?}");
    let mut child = command.stdout(Stdio::piped()).spawn().map_err(|e| format!("{name}: {e}"))?;
    let mut said = String::new();
    let mut pipe = child.stdout.take().ok_or("no pipe")?;
    pipe.read_to_string(&mut said).map_err(|e| format!("{name}: {e}"))?;
    let mut status = 0;
    // SAFETY: `usage` is plain numbers, for which zeros are good; wait4 writes to it and to `status`, and to nothing else. The
    // child is ours and nobody else waits for it: `child` is not asked for its end.
    let memory_bytes = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(child.id() as libc::pid_t, &mut status, 0, &mut usage) < 0 {
            return Err(format!("{name}: {}", std::io::Error::last_os_error()));
        }
        usage.ru_maxrss as u64 * 1024
    };
    if status != 0 {
        return Err(format!("{name} failed"));
    }
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers[..] {
        [events, sum, ns] => Ok(Run { events, sum, ns, memory_bytes }),
        _ => Err(format!("{name} said {said:?}")),
    }
}

fn table(options: &Options) -> Result<(), String> {
    let ours = std::env::current_exe().map_err(|e| e.to_string())?;
    println!("| trace | MB | events | ours MB/s | Go MB/s | ratio | ours MB of memory | Go MB |");
    println!("|---|---|---|---|---|---|---|---|");
    for file in &options.files {
        let bytes = std::fs::metadata(file).map_err(|e| format!("{file}: {e}"))?.len();
        let mut best: [Option<Run>; 2] = [None; 2];
        for _ in 0..options.rounds {
            let mut one = Command::new(&ours);
            one.args(["--only", file]);
            let mut other = Command::new(&options.go);
            other.arg(file);
            for (best, command) in best.iter_mut().zip([one, other]) {
                let run = run(command)?;
                if best.is_none_or(|best| run.ns < best.ns) {
                    *best = Some(run);
                }
            }
        }
        let [Some(our), Some(go)] = best else { return Err(USAGE.into()) };
        if (our.events, our.sum) != (go.events, go.sum) {
            return Err(format!("{file}: {} events of ours are not the {} of Go's", our.events, go.events));
        }
        let name = std::path::Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
        let rate = |run: Run| bytes as f64 * 1e3 / run.ns as f64;
        println!(
            "| {name} | {:.0} | {} | {:.0} | {:.0} | {:.1} | {:.0} | {:.0} |",
            bytes as f64 / 1e6,
            our.events,
            rate(our),
            rate(go),
            rate(our) / rate(go),
            our.memory_bytes as f64 / 1e6,
            go.memory_bytes as f64 / 1e6
        );
    }
    Ok(())
}
