//! The judge of `gort pprof` and `gort gc`: what `go tool trace` makes of the same trace.
//!
//! For each kind that both have, the two profiles must hold the same stacks with the same counts and times, as `go tool
//! pprof -raw` prints them. The curve of minimum mutator utilisation must go through the points that the page /mmu draws;
//! mark workers are left out there, as Go counts those that run twice for ever (see tracer/analyze/mmu.rs).

use crate::golang::Go;
use crate::run::Run;
use crate::{http, project};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The kinds that Go's tool has.
const KINDS: [&str; 4] = ["net", "sync", "syscall", "sched"];

/// A profile that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(600);

/// Of stacks that differ, so many are shown.
const SHOWN: usize = 3;

/// How far two points of a curve may be apart: both are computed in doubles, in another order.
const MMU_TOLERANCE: f64 = 1e-6;

/// By stack, as text: how often, and for how many ns.
type Profile = BTreeMap<Vec<String>, (u64, u64)>;

/// The tool, built.
fn gort() -> Result<PathBuf, String> {
    Run::cargo(&["build", "--quiet", "--release", "--package", "gort-cli"]).quiet().capture()?.success()?;
    Ok(project::target()?.join("release/gort"))
}

/// Compares all profiles of these traces. Answers how many there were, and how many samples.
pub(crate) fn profiles(go: &Go, traces: &[PathBuf]) -> Result<(usize, u64), String> {
    println!("    gort pprof beside go tool trace -pprof on {} files", traces.len());
    let (gort, folder) = (gort()?, project::fresh("judge-pprof")?);
    let (mut compared, mut samples) = (0, 0);
    for trace in traces {
        for kind in KINDS {
            let (theirs, ours) = (folder.join("go.pprof"), folder.join("gort.pprof"));
            let made = go.run(&["tool", "trace", &format!("-pprof={kind}")]).args([trace]).quiet().limit(LIMIT);
            let made = made.capture()?;
            if !made.status.is_some_and(|status| status.success()) {
                return Err(made.failure(&made.ending()));
            }
            std::fs::write(&theirs, &made.stdout)
                .map_err(|error| format!("cannot write {}: {error}", project::short(&theirs)))?;
            let make = Run::new(&gort).args(["pprof", "--kind", kind, "--output"]).args([&ours, trace]);
            make.quiet().limit(LIMIT).capture()?.success()?;
            let (theirs, ours) = (raw(go, &theirs)?, raw(go, &ours)?);
            compare(&theirs, &ours).map_err(|why| format!("{kind} of {}: {why}", trace.display()))?;
            compared += 1;
            samples += theirs.values().map(|(count, _)| count).sum::<u64>();
        }
    }
    if samples == 0 {
        return Err("all profiles were empty: nothing was compared".into());
    }
    Ok((compared, samples))
}

fn raw(go: &Go, profile: &Path) -> Result<Profile, String> {
    let text = go.run(&["tool", "pprof", "-raw"]).args([profile]).quiet().limit(LIMIT).capture()?.success()?;
    parse_raw(&text).ok_or_else(|| format!("cannot read what go tool pprof -raw says of {}", project::short(profile)))
}

/// `count time: location...` under "Samples:", `location: address M=1 function file:line ...` under "Locations".
fn parse_raw(text: &str) -> Option<Profile> {
    let section = |name: &'static str, end: &'static str| {
        let lines = text.lines().skip_while(move |line| !line.starts_with(name)).skip(1);
        lines.take_while(move |line| !line.starts_with(end))
    };
    let mut locations: BTreeMap<&str, &str> = BTreeMap::new();
    for line in section("Locations", "Mappings") {
        let (id, place) = line.trim().split_once(": ")?;
        locations.insert(id, place);
    }
    let mut profile = Profile::new();
    // The first line names the values.
    for line in section("Samples:", "Locations").skip(1) {
        let (values, stack) = line.split_once(':')?;
        let mut values = values.split_whitespace().map(str::parse::<u64>);
        let (count, time) = (values.next()?.ok()?, values.next()?.ok()?);
        let frames = stack.split_whitespace().map(|id| locations.get(id).map(|place| place.to_string()));
        let sum = profile.entry(frames.collect::<Option<_>>()?).or_default();
        *sum = (sum.0 + count, sum.1 + time);
    }
    Some(profile)
}

fn compare(theirs: &Profile, ours: &Profile) -> Result<(), String> {
    let total = |profile: &Profile| profile.values().fold((0, 0), |sum, value| (sum.0 + value.0, sum.1 + value.1));
    let stacks = || theirs.keys().chain(ours.keys().filter(|stack| !theirs.contains_key(*stack)));
    let differ: Vec<&Vec<String>> = stacks().filter(|stack| theirs.get(*stack) != ours.get(*stack)).collect();
    if differ.is_empty() {
        return Ok(());
    }
    let mut why = format!(
        "{} stacks of {} differ; count and ns in all: Go's {:?}, ours {:?}",
        differ.len(),
        stacks().count(),
        total(theirs),
        total(ours)
    );
    for stack in differ.iter().take(SHOWN) {
        why += &format!("\n  Go's {:?}, ours {:?}:", theirs.get(*stack), ours.get(*stack));
        stack.iter().for_each(|frame| why += &format!("\n    {frame}"));
    }
    Err(why)
}

/// Compares the curves of minimum mutator utilisation of a trace with GC cycles. Answers how many points there were.
pub(crate) fn utilization(go: &Go, trace: &Path) -> Result<usize, String> {
    println!("    gort gc beside the page /mmu of go tool trace");
    let gort = gort()?;
    let viewer = go.run(&["tool", "trace", "-http=127.0.0.1:0"]).args([trace]).env_hidden("BROWSER", "true");
    let mut viewer = viewer.background()?;
    let listening = BufReader::new(viewer.stderr()).lines().map_while(Result::ok);
    let address = listening.filter_map(|line| Some(line.split_once("listening on http://")?.1.to_owned())).next();
    let address = address.ok_or("go tool trace serves nothing")?;
    let mut points = 0;
    for (flags, causes) in [("stw%7Cassist", "stops,assists"), ("stw%7Cassist%7Csweep", "stops,assists,sweeps")] {
        let (status, body) = http::get(&address, &format!("/mmu?mode=plot&flags={flags}"))?;
        let curve = numbers_after(&body, "\"curve\":").filter(|_| status == 200);
        let curve = curve.ok_or_else(|| format!("the page /mmu answers {status}: {body}"))?;
        let windows: Vec<u64> = curve.chunks(2).map(|point| point[0] as u64).collect();
        let asked: Vec<String> = windows.iter().map(|window| format!("{window}ns")).collect();
        let run = Run::new(&gort).args(["gc", "--json", "--count", causes, "--window", &asked.join(",")]).args([trace]);
        let json = run.quiet().capture()?.success()?;
        let ours: Vec<f64> = json.split("\"utilization\":").skip(1).filter_map(leading_number).collect();
        if ours.len() != windows.len() || ours.iter().all(|&mmu| mmu == ours[0]) {
            return Err(format!("gort gc answers {} of {} windows, or all alike", ours.len(), windows.len()));
        }
        for (point, mmu) in curve.chunks(2).zip(ours) {
            if (point[1] - mmu).abs() > MMU_TOLERANCE {
                let (window, theirs) = (point[0] as u64, point[1]);
                return Err(format!("{}: {causes}, window {window} ns: Go's {theirs}, ours {mmu}", trace.display()));
            }
            points += 1;
        }
    }
    Ok(points)
}

/// The number that a text begins with.
fn leading_number(text: &str) -> Option<f64> {
    let text = text.trim_start();
    text[..text.find(|c: char| !c.is_ascii_digit() && !".-+eE".contains(c)).unwrap_or(text.len())].parse().ok()
}

/// All numbers of the arrays that follow this word.
fn numbers_after(text: &str, word: &str) -> Option<Vec<f64>> {
    let arrays = text.split_once(word)?.1;
    let arrays = &arrays[..arrays.find("]]")?];
    arrays.split(['[', ',', ']']).filter(|part| !part.trim().is_empty()).map(|part| part.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const RAW: &str = "PeriodType: trace count\nPeriod: 1\nSamples:\ncontentions/count delay/nanoseconds\n         \
        2         30: 1 2 \n         1          5: \nLocations\n     1: 0x10 M=1 a a.go:1:0 s=0\n     \
        2: 0x20 M=1 b b.go:2:0 s=0\nMappings\n1: 0x0/0x0/0x0   \n";

    #[test]
    fn raw_profiles_are_read() {
        let profile = parse_raw(RAW).expect("a profile");
        assert_eq!(profile.len(), 2);
        assert_eq!(profile[&Vec::new()], (1, 5));
        assert_eq!(profile[&vec!["0x10 M=1 a a.go:1:0 s=0".to_owned(), "0x20 M=1 b b.go:2:0 s=0".to_owned()]], (2, 30));
    }

    #[test]
    fn a_difference_is_found() {
        let profile = parse_raw(RAW).expect("a profile");
        assert_eq!(compare(&profile, &profile), Ok(()));
        let other = parse_raw(&RAW.replace(" 30:", " 31:")).expect("a profile");
        assert!(compare(&profile, &other).is_err_and(|why| why.contains("1 stacks of 2 differ")));
        assert!(compare(&profile, &Profile::new()).is_err());
    }

    #[test]
    fn curves_are_read() {
        let numbers = numbers_after("{\"x\":1,\"curve\":[[999,0],[1e3,0.25]],\"y\":2}", "\"curve\":");
        assert_eq!(numbers, Some(vec![999.0, 0.0, 1000.0, 0.25]));
        assert_eq!(leading_number(" 0.5,\n"), Some(0.5));
    }
}
