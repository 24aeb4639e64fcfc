//! The two judges: Go's own reader on our traces, our reader on Go's.
//!
//! Forward: the tour's trace must give profiles and pages that name its functions and lines; a sample of the storm
//! test's traces, and every trace that an example or a test has left, must pass `go tool trace -d=parsed` and our own
//! checker. Back: programs of ours in Go, under xtask/go, record what Go's tracer can record; our checker must accept it.
//! On all of these, and on Go's own tests, both readers must say the same ([`mod@judge_reader`]); what `gort` computes must be what
//! Go's tools do ([`mod@judge_pprof`]).

use crate::golang::Go;
use crate::run::Run;
use crate::{Step, examples, http, judge_pprof, judge_reader, project};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Storm traces that Go's reader must see at least, over all runs of the storm.
const STORM_SAMPLE: usize = 48;
const STORM_MIN: usize = 40;

/// Go's readers run two at a time; each takes the cores that it finds.
const READERS: usize = 2;

/// A reader that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// Refused traces that an error describes.
const SHOWN: usize = 4;

/// One run of the storm, the build included.
const STORM_LIMIT: Duration = Duration::from_secs(900);

/// Storm traces whose profiles are compared.
const PPROF_STORMS: usize = 4;

/// What must be in the tour's profiles and pages.
const TOUR_FUNCTION: &str = "tour::";
const TOUR_FILE: &str = "examples/tour.rs:";

/// Examples whose traces Go's tools make profiles of, the kinds, and what must be in them.
const PROFILED: [(&str, &[&str], [&str; 2]); 2] = [
    ("tour", &["sync", "sched", "syscall"], [TOUR_FUNCTION, TOUR_FILE]),
    ("chat", &["net"], ["chat::", "examples/chat"]),
];

/// Everything.
pub(crate) fn run() -> Step {
    let go = Go::ensure()?;
    let from_go = go_programs(&go)?;
    let tour = trace_of("tour")?;
    let storm = storm()?;
    let others = left_behind()?;

    let sample = spread(&storm, STORM_SAMPLE);
    if sample.len() < STORM_MIN {
        return Err(format!("the storm left {} traces, {STORM_MIN} are needed", sample.len()));
    }
    println!("    {} traces of the storm and {} others", storm.values().map(Vec::len).sum::<usize>(), others.len());
    let all: Vec<PathBuf> = storm.values().flatten().chain(&others).cloned().collect();
    our_reader(&all)?;
    let for_go: Vec<PathBuf> = sample.iter().chain(&others).cloned().collect();
    let events = go_reader(&go, &for_go)?;
    let same = judge_reader::run(&go, &for_go)?;
    profiles(&go)?;
    pages(&go, &tour)?;
    let judged: Vec<PathBuf> = from_go.iter().chain([&tour]).chain(sample.iter().take(PPROF_STORMS)).cloned().collect();
    let (profiles, samples) = judge_pprof::profiles(&go, &judged)?;
    let with_gc = from_go.iter().find(|trace| trace.ends_with("gc.trace")).ok_or("no trace with GC cycles")?;
    let points = judge_pprof::utilization(&go, with_gc)?;
    Ok(format!(
        "{same}; Go's reader took {} traces of ours ({events} events) and made profiles and pages of them; \
         ours took {} of ours and {} of Go's; {profiles} profiles ({samples} samples) and {points} points of MMU curves \
         are the same",
        for_go.len(),
        all.len(),
        from_go.len()
    ))
}

/// Only the comparison of the readers, on what traces there are.
pub(crate) fn judge_reader() -> Step {
    judge_reader::run(&Go::ensure()?, &left_behind()?)
}

/// Both readers on files of the user's.
pub(crate) fn judge_files(files: &[String]) -> Step {
    let files: Vec<PathBuf> =
        files.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.into())).collect();
    if let Some(missing) = files.iter().find(|file| !file.is_file()) {
        return Err(format!("no file {}", missing.display()));
    }
    let go = Go::ensure()?;
    // Both, also when the first refuses: two opinions are better than one.
    let (ours, theirs) = (our_reader(&files), go_reader(&go, &files));
    match (ours, theirs) {
        (Ok(()), Ok(events)) => {
            let (profiles, samples) = judge_pprof::profiles(&go, &files)?;
            Ok(format!(
                "both readers took {} files ({events} events), and made the same {profiles} profiles of them \
                 ({samples} samples)",
                files.len()
            ))
        }
        (ours, theirs) => Err([ours.err(), theirs.err()].into_iter().flatten().collect::<Vec<_>>().join("\n")),
    }
}

/// Builds and runs each program under xtask/go; both readers must take its trace. Answers the traces.
fn go_programs(go: &Go) -> Result<Vec<PathBuf>, String> {
    let folder = project::fresh("go")?;
    let sources = project::files_below(&project::root().join("xtask/go"));
    let mut traces = Vec::new();
    for source in sources.iter().filter(|source| source.extension().is_some_and(|extension| extension == "go")) {
        let name = source.file_stem().unwrap_or_default().to_string_lossy();
        let (program, trace) = (folder.join(&*name), folder.join(format!("{name}.trace")));
        go.run(&["build", "-o"]).args([&program, source]).capture()?.success()?;
        Run::new(&program).args([&trace]).quiet().limit(LIMIT).capture()?.success()?;
        traces.push(trace);
    }
    // Go's reader on Go's traces: a check of the installation, and it builds the trace command before we need it.
    go_reader(go, traces.get(..1).ok_or("no program under xtask/go")?)?;
    our_reader(&traces)?;
    Ok(traces)
}

/// The trace of an example, made now unless the examples have run.
fn trace_of(example: &str) -> Result<PathBuf, String> {
    let trace = examples::folder(example)?.join(format!("{example}.trace"));
    if !trace.is_file() {
        examples::run(&[example.to_owned()])?;
    }
    Ok(trace)
}

/// Runs the storm for each number of Ps and each border. Answers each run's traces.
fn storm() -> Result<BTreeMap<String, Vec<PathBuf>>, String> {
    let folder = project::fresh("storm")?;
    let mut traces = BTreeMap::new();
    for procs in ["1", "2", "8"] {
        for border in [None, Some("fence")] {
            let name = format!("p{procs}-{}", border.unwrap_or("default"));
            let dir = folder.join(&name);
            project::make_dir(&dir)?;
            let run = Run::cargo(&["test", "--package", "gort", "--test", "storm"])
                .env("GOMAXPROCS", procs)
                .env_hidden("RT_STORM_DIR", &dir)
                .limit(STORM_LIMIT);
            let run = match border {
                Some(border) => run.env("RT_BORDER", border),
                None => run.env_remove("RT_BORDER"),
            };
            run.capture()?.success()?;
            let files = project::files_below(&dir);
            if files.is_empty() {
                return Err(format!("the storm left no trace in {}", project::short(&dir)));
            }
            traces.insert(name, files);
        }
    }
    Ok(traces)
}

/// Traces of examples, and of tests that write into cargo's folder for that.
fn left_behind() -> Result<Vec<PathBuf>, String> {
    let tests = project::target()?.join("tmp");
    let files = project::files_below(&project::work("examples")?).into_iter().chain(project::files_below(&tests));
    Ok(files.filter(|file| file.extension().is_some_and(|extension| extension == "trace")).collect())
}

/// About `count` files, evenly from all runs.
fn spread(runs: &BTreeMap<String, Vec<PathBuf>>, count: usize) -> Vec<PathBuf> {
    let each = count.div_ceil(runs.len().max(1));
    let pick = |files: &Vec<PathBuf>| -> Vec<PathBuf> {
        let take = each.min(files.len());
        (0..take).map(|i| files[i * files.len() / take].clone()).collect()
    };
    runs.values().flat_map(pick).collect()
}

/// Our checker.
pub(crate) fn our_reader(files: &[PathBuf]) -> Result<(), String> {
    const AT_ONCE: usize = 100;
    println!("    our checker on {} files", files.len());
    for some in files.chunks(AT_ONCE) {
        let check = Run::cargo(&["run", "--quiet", "--release", "--package", "gort-cli", "--", "check", "--strict"]);
        check.args(some).quiet().capture()?.success().map_err(|why| format!("our reader refuses: {why}"))?;
    }
    Ok(())
}

/// Go's reader: each file must be read to its end without a word on stderr. Answers the number of events.
fn go_reader(go: &Go, files: &[PathBuf]) -> Result<usize, String> {
    println!("    go tool trace -d=parsed on {} files", files.len());
    let (next, events, refused) = (AtomicUsize::new(0), AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..READERS.min(files.len()) {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    match parse_with_go(go, file) {
                        Ok(count) => _ = events.fetch_add(count, Ordering::Relaxed),
                        Err(why) => refused.lock().expect("no panic above").push(why),
                    }
                }
            });
        }
    });
    let refused = refused.into_inner().expect("no panic above");
    match refused.len() {
        0 => Ok(events.into_inner()),
        count => {
            let shown = refused[..count.min(SHOWN)].join("\n");
            Err(format!(
                "Go's reader refuses {count} of {} files, of which up to {SHOWN} follow:\n{shown}",
                files.len()
            ))
        }
    }
}

fn parse_with_go(go: &Go, file: &Path) -> Result<usize, String> {
    let done = go.run(&["tool", "trace", "-d=parsed"]).args([file]).quiet().limit(LIMIT).keep_tail().capture()?;
    if !done.status.is_some_and(|status| status.success()) {
        return Err(done.failure(&done.ending()));
    }
    if !done.stderr.trim().is_empty() {
        return Err(done.failure("read to the end, but with complaints"));
    }
    match done.lines_starting_with_m {
        0 => Err(done.failure("no events")),
        count => Ok(count),
    }
}

/// The profiles that `go tool trace` makes of our traces, as `go tool pprof` reads them.
fn profiles(go: &Go) -> Result<(), String> {
    let folder = project::fresh("profiles")?;
    let all =
        PROFILED.iter().flat_map(|(example, kinds, wanted)| kinds.iter().map(move |kind| (example, kind, wanted)));
    for (example, kind, wanted) in all {
        let trace = trace_of(example)?;
        let made = go.run(&["tool", "trace", &format!("-pprof={kind}")]).args([&trace]).limit(LIMIT).capture()?;
        if !made.status.is_some_and(|status| status.success()) {
            return Err(made.failure(&made.ending()));
        }
        let profile = folder.join(format!("{kind}.pprof"));
        std::fs::write(&profile, &made.stdout)
            .map_err(|error| format!("cannot write {}: {error}", profile.display()))?;
        for view in [["-raw"].as_slice(), &["-top", "-lines"]] {
            let text = go.run(&["tool", "pprof"]).args(view).args([&profile]).quiet().capture()?.success()?;
            for wanted in wanted {
                if !text.contains(wanted) {
                    let view = view.join(" ");
                    return Err(format!("the {kind} profile of {example} ({view}) has no {wanted:?} in it:\n{text}"));
                }
            }
        }
        println!("    {kind} profile of {example}: names and lines are there");
    }
    Ok(())
}

/// The pages that a person sees who opens the tour in `go tool trace`.
fn pages(go: &Go, tour: &Path) -> Result<(), String> {
    let viewer = go.run(&["tool", "trace", "-http=127.0.0.1:0"]).args([tour]).env_hidden("BROWSER", "true");
    let mut viewer = viewer.background()?;
    let mut address = None;
    let mut said = String::new();
    for line in BufReader::new(viewer.stderr()).lines().map_while(Result::ok) {
        address = line.split_once("listening on http://").map(|(_, address)| address.to_owned());
        said += &line;
        said.push('\n');
        if address.is_some() {
            break;
        }
    }
    let address = address.ok_or_else(|| format!("go tool trace serves nothing:\n{said}"))?;
    if said.contains("rror") {
        return Err(format!("go tool trace complains:\n{said}"));
    }
    let has = [("/", "View trace by proc"), ("/goroutines", TOUR_FUNCTION), ("/jsontrace?view=proc", TOUR_FUNCTION)];
    let exists = [("/usertasks", ""), ("/userregions", ""), ("/mmu", "")];
    for (path, wanted) in has.into_iter().chain(exists) {
        let (status, body) = http::get(&address, path)?;
        if status != 200 || !body.contains(wanted) {
            let body: String = body.chars().take(2_000).collect();
            return Err(format!("the viewer's page {path} answers {status} and should have {wanted:?} in it:\n{body}"));
        }
    }
    println!("    go tool trace -http serves its pages");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_comes_from_all_runs() {
        let files = |run: &str, count: usize| (0..count).map(|i| PathBuf::from(format!("{run}/{i}"))).collect();
        let runs = BTreeMap::from([("a".to_owned(), files("a", 100)), ("b".to_owned(), files("b", 3))]);
        let sample = spread(&runs, 20);
        assert_eq!(sample.iter().filter(|file| file.starts_with("a")).count(), 10);
        assert_eq!(sample.iter().filter(|file| file.starts_with("b")).count(), 3);
        assert!(sample.contains(&PathBuf::from("a/90")));
    }
}
