//! The command as a user has it: exit codes, what goes where, packed files, pipes, damage.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::Value;
use tempfile::TempDir;
use tracer::read::print::Printer;
use tracer::read::{Kind, Reader};
use tracer::wire::Ev;

use common::Trace;

/// A folder with the traces of the tests.
struct Traces(TempDir);

impl Traces {
    fn new() -> Traces {
        let dir = Traces(TempDir::new().expect("a folder for the test"));
        dir.put("rich", &common::rich());
        dir
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, bytes).expect("the folder can be written");
        path
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }
}

fn gort(args: &[&str]) -> Output {
    Command::cargo_bin("gort").expect("it is built").args(args).output().expect("it starts")
}

fn gort_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut command = Command::cargo_bin("gort").expect("it is built");
    let mut child = (command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()))
        .spawn()
        .expect("it starts");
    // It may end before it has read all.
    let _ = child.stdin.take().expect("piped").write_all(input);
    child.wait_with_output().expect("it ends")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("text is UTF-8")
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("text is UTF-8")
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {}\n{}", out(output), err(output)))
}

/// Every command that reads a trace, with what it needs beside the file.
const COMMANDS: [&[&str]; 20] = [
    &["stat"],
    &["goroutines", "--all"],
    &["sched"],
    &["blocked", "--all"],
    &["tasks", "--details"],
    &["regions"],
    &["gc"],
    &["pprof", "--kind", "sync"],
    &["pprof", "--kind", "sched", "--complete"],
    &["pprof", "--kind", "running"],
    &["pprof", "--kind", "syscall", "--json"],
    &["print", "--stacks"],
    &["print", "--json"],
    &["print", "--as-go"],
    &["export", "--format", "csv"],
    &["export", "--format", "json", "--stacks"],
    &["export", "--format", "chrome"],
    &["export", "--json"],
    &["stat", "--json"],
    &["blocked", "--json"],
];

#[test]
fn good_traces_are_good_everywhere() {
    let traces = Traces::new();
    for command in COMMANDS {
        let output = gort(&[command, &[&*traces.path("rich")]].concat());
        assert_eq!((code(&output), err(&output).as_str()), (0, ""), "{command:?}");
        assert!(!output.stdout.is_empty(), "{command:?}");
    }
}

/// The printer, which is compared with Go's own, makes the lines; of the events that are wanted.
#[test]
fn events_in_gos_form() {
    let traces = Traces::new();
    let (mut printer, mut all, mut ends) = (Printer::default(), Vec::new(), Vec::new());
    let bytes = common::rich();
    let mut reader = Reader::new(&bytes[..]).expect("the header is good");
    while let Some(event) = reader.next() {
        let event = event.expect("the trace is good");
        let start = all.len();
        printer.print(&event, reader.tables(), &mut all);
        if event.category() == Kind::TaskEnd {
            ends.extend_from_slice(&all[start..]);
        }
    }
    let rich = traces.path("rich");
    assert_eq!(gort(&["print", "--as-go", &rich]).stdout, all);
    assert!(!ends.is_empty(), "there are tasks");
    // What the end of a task says, its begin has said.
    assert_eq!(gort(&["print", "--as-go", "--kind", "TaskEnd", &rich]).stdout, ends);
    assert_eq!(code(&gort(&["print", "--as-go", "--json", &rich])), 2);
}

/// Wrong use of regions is the program's affair, unless one asks what Go's tools would say.
#[test]
fn strict_checks_are_gos() {
    let traces = Traces::new();
    let wrong = Trace::new().generation(1, |g| {
        let (outer, inner) = (g.string("outer"), g.string("inner"));
        let m = g.running(0).ev(Ev::UserRegionBegin, &[0, outer, 0]).ev(Ev::UserRegionBegin, &[0, inner, 0]);
        m.ev(Ev::UserRegionEnd, &[0, outer, 0]).done();
    });
    traces.put("wrong", &wrong.0);
    for (name, strict, expected, word) in [
        ("wrong", false, 0, ": good\n"),
        ("wrong", true, 1, ": readable, but Go's tools would refuse it\n"),
        ("rich", true, 0, ": good\n"),
    ] {
        let output = gort(&[&["check"][..], if strict { &["--strict"] } else { &[] }, &[&traces.path(name)]].concat());
        assert_eq!(code(&output), expected, "{name}: {}", out(&output));
        assert!(out(&output).contains(word), "{}", out(&output));
        assert_eq!(out(&output).contains("warning: "), name == "wrong", "{}", out(&output));
    }
}

#[test]
fn two_runs_print_the_same_bytes() {
    let traces = Traces::new();
    let rich = traces.path("rich");
    for command in COMMANDS {
        let args = [command, &[&*rich]].concat();
        let first = gort(&args).stdout;
        for _ in 0..3 {
            assert!(gort(&args).stdout == first, "{command:?}");
        }
    }
}

#[test]
fn packed_and_piped_traces_are_the_same() {
    let traces = Traces::new();
    let bytes = common::rich();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&bytes[..100]).expect("memory");
    let mut packed = gzip.finish().expect("memory");
    // Two members, one after the other: what `cat a.gz b.gz` makes.
    let mut gzip = GzEncoder::new(&mut packed, Compression::fast());
    gzip.write_all(&bytes[100..]).expect("memory");
    gzip.finish().expect("memory");
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let frames = [&bytes[..70], &bytes[70..]].map(|part| ruzstd::encoding::compress_to_vec(part, level));
    let zstd = frames.concat();
    let expected = out(&gort(&["print", &traces.path("rich")]));
    for (name, packed) in [("rich.gz", &packed), ("rich.zst", &zstd)] {
        traces.put(name, packed);
        assert_eq!(out(&gort(&["print", &traces.path(name)])), expected, "{name}");
        assert_eq!(out(&gort_with_input(&["print", "-"], packed)), expected, "{name} through a pipe");
    }
    assert_eq!(out(&gort_with_input(&["print", "-"], &bytes)), expected);
    let check = gort_with_input(&["check", "-"], &bytes);
    assert!(out(&check).starts_with("standard input: good\n"), "{}", out(&check));
}

#[test]
fn a_damaged_trace_is_shown_up_to_the_damage() {
    let traces = Traces::new();
    let bytes = common::rich();
    // The second generation is cut.
    traces.put("cut", &bytes[..bytes.len() - 10]);
    for command in COMMANDS {
        let output = gort(&[command, &[&*traces.path("cut")]].concat());
        assert_eq!(code(&output), 1, "{command:?}: {}", err(&output));
        assert!(err(&output).contains("damaged: byte "), "{command:?}: {}", err(&output));
        assert!(!output.stdout.is_empty(), "{command:?}");
    }
    // Who was alive at the cut is so at the end of what there is.
    let cut = json(&gort(&["stat", "--json", &traces.path("cut")]));
    assert!(cut["goroutines"]["alive"].as_u64().is_some_and(|alive| alive > 0), "{cut}");
    let check = gort(&["check", "--json", &traces.path("cut"), &traces.path("rich")]);
    assert_eq!(code(&check), 1);
    let reports = json(&check);
    assert_eq!((&reports[0]["verdict"], &reports[1]["verdict"]), (&"damaged".into(), &"good".into()));
    assert_eq!(reports[0]["generations"], 1);
    assert!(reports[0]["offset"].as_u64().is_some_and(|at| at > 0), "{reports}");
    let stat = json(&gort(&["stat", "--json", &traces.path("cut")]));
    assert!(stat["trace"]["damages"][0].as_str().is_some_and(|why| why.contains("byte")), "{stat}");
    assert_eq!(json(&gort(&["stat", "--json", &traces.path("rich")]))["trace"]["damages"], serde_json::json!([]));
}

#[test]
fn what_follows_a_damage_is_shown_too() {
    let traces = Traces::new();
    // Three generations, of which the second breaks in its middle.
    let one = |g: &mut common::Gen| {
        let number = g.number;
        let m = g.running(0).ev(tracer::wire::Ev::HeapAlloc, &[number]);
        m.ev_if(number == 2, tracer::wire::Ev::GoUnblock, &[999, 1, 0]).ev(tracer::wire::Ev::HeapGoal, &[7]).done();
    };
    let trace = (1..=3).fold(common::Trace::new(), |trace, number| trace.generation(number, one));
    traces.put("broken", &trace.0);
    let print = gort(&["print", "--kind", "HeapAlloc", &traces.path("broken")]);
    assert_eq!(code(&print), 1);
    let text = out(&print);
    let heaps = ["heapalloc_value=1", "heapalloc_value=3"];
    assert!(heaps.iter().all(|heap| text.contains(heap)) && text.contains("the trace is broken here"), "{text}");
    for command in COMMANDS {
        let output = gort(&[command, &[&*traces.path("broken")]].concat());
        assert_eq!(code(&output), 1, "{command:?}: {}", err(&output));
    }
    let check = json(&gort(&["check", "--json", &traces.path("broken")]));
    assert_eq!((&check[0]["damages"], &check[0]["generations"]), (&1.into(), &2.into()), "{check}");
    let stat = json(&gort(&["stat", "--json", &traces.path("broken")]));
    // Each part has its own goroutine of that id.
    assert_eq!((&stat["goroutines"]["seen"], &stat["goroutines"]["alive"]), (&2.into(), &1.into()), "{stat}");
}

#[test]
fn text_goes_both_ways() {
    let traces = Traces::new();
    let bytes = common::rich();
    let text = gort(&["text", &traces.path("rich")]);
    assert_eq!((code(&text), err(&text).as_str()), (0, ""));
    assert!(out(&text).starts_with("Trace Go1.26\n"), "{}", out(&text));
    let back = gort_with_input(&["text", "--back", "-"], &text.stdout);
    assert!(code(&back) == 0 && back.stdout == bytes);
    let plain = out(&gort(&["text", "--plain", &traces.path("rich")]));
    assert!(plain.lines().any(|line| line.trim_start().starts_with("GoBlock dt=")), "{plain}");
    traces.put("cut", &bytes[..bytes.len() - 10]);
    for form in [&[][..], &["--json"]] {
        let cut = gort(&[&["text", &*traces.path("cut")], form].concat());
        assert_eq!(code(&cut), 1, "{}", err(&cut));
        assert!(!cut.stdout.is_empty());
    }
    assert_eq!(code(&gort_with_input(&["text", "-"], b"no trace")), 2);
    assert_eq!(code(&gort_with_input(&["text", "--back", "-"], b"no text")), 2);
}

/// As many objects as the text has events, with the same in them, and each where it says.
#[test]
fn text_as_json_is_the_same_text() {
    let traces = Traces::new();
    let bytes = common::rich();
    let plain = out(&gort(&["text", "--plain", &traces.path("rich")]));
    let mut lines = plain.lines().skip(1).peekable();
    let objects = out(&gort(&["text", "--json", &traces.path("rich")]));
    for object in objects.lines() {
        let object: Value = serde_json::from_str(object).expect("JSON in each line");
        let args = object["args"].as_array().expect("a list");
        let args = args.iter().map(|arg| format!(" {}={}", arg[0].as_str().expect("a name"), arg[1]));
        let line = format!("{}{}", object["event"].as_str().expect("a name"), args.collect::<String>());
        assert_eq!(lines.next(), Some(&*line));
        let offset = object["offset"].as_u64().expect("a place") as usize;
        assert_eq!(tracer::wire::Ev::from_u8(bytes[offset]).map(|kind| kind.name()), object["event"].as_str());
        let frames = object["frames"].as_array().map_or(0, Vec::len);
        let data = object["data"].as_str().map(|data| format!("\tdata={data:?}"));
        for _ in 0..frames {
            assert!(lines.next().is_some_and(|line| line.starts_with("\tpc=")));
        }
        if lines.peek().is_some_and(|line| line.starts_with("\tdata=")) {
            let line = lines.next().map(str::to_owned);
            assert!(line == data || object["bytes"].is_array(), "{line:?} and {object}");
        }
    }
    assert_eq!(lines.next(), None);
}

#[test]
fn a_packed_trace_that_is_cut_is_damaged_too() {
    let traces = Traces::new();
    // Noise does not pack, so that the cut is behind the first generation.
    let mut random = common::Random(7);
    let noise: Vec<u64> = (0..4_000).map(|_| random.next()).collect();
    let second = |g: &mut common::Gen| {
        let mut m = g.running(0);
        for &value in &noise {
            m = m.ev(tracer::wire::Ev::HeapAlloc, &[value]);
        }
        m.done();
    };
    let trace = common::Trace::new().generation(1, |g| g.running(0).done()).generation(2, second);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&trace.0).expect("memory");
    let packed = gzip.finish().expect("memory");
    traces.put("cut.gz", &packed[..packed.len() - 1_000]);
    let output = gort(&["check", &traces.path("cut.gz")]);
    assert_eq!(code(&output), 1, "{}{}", out(&output), err(&output));
}

#[test]
fn what_cannot_be_read_is_2_with_a_sentence() {
    let traces = Traces::new();
    traces.put("empty", b"");
    traces.put("text", b"hello, this is no trace at all, but some text of a page");
    traces.put("header", &common::rich()[..16]);
    traces.put("old", b"go 1.11 trace\0\0\0");
    traces.put("short", &common::rich()[..30]);
    let header = gort(&["stat", &traces.path("header")]);
    assert_eq!((code(&header), out(&header).as_str()), (0, ""));
    assert!(err(&header).contains("a trace without events"), "{}", err(&header));
    let folder = traces.0.path().display().to_string();
    for (name, why) in [
        ("nothing", "cannot open it"),
        ("empty", "not a Go execution trace"),
        ("text", "not a Go execution trace"),
        ("old", "a trace of Go 1.11"),
        ("short", "byte 16"),
    ] {
        for command in ["stat", "check", "print"] {
            let output = gort(&[command, &traces.path(name)]);
            let said = out(&output) + &err(&output);
            assert_eq!(code(&output), 2, "{command} {name}: {said}");
            assert!(said.contains(why) && said.contains(name), "{command} {name}: {said}");
        }
    }
    let output = gort(&["stat", &folder]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("this is a folder"), "{}", err(&output));
    for usage in [&["stat"][..], &["pprof", "x"], &["print", "--from", "5", "x"], &["frobnicate"], &[]] {
        assert_eq!(code(&gort(usage)), 2, "{usage:?}");
    }
    let kind = gort(&["print", "--kind", "GoBlok", &traces.path("rich")]);
    assert_eq!(code(&kind), 2);
    assert!(err(&kind).contains("no kind \"GoBlok\""), "{}", err(&kind));
}

#[test]
fn nobody_reads_on() {
    let traces = Traces::new();
    // More than a pipe holds.
    let long = |g: &mut common::Gen| {
        let mut m = g.running(0);
        for value in 0..50_000 {
            m = m.ev(tracer::wire::Ev::HeapAlloc, &[value]);
            if value % 10_000 == 9_999 {
                // A batch is at most 64 KiB.
                m = g.m(0);
            }
        }
        m.done();
    };
    traces.put("long", &common::Trace::new().generation(1, long).0);
    let mut command = Command::cargo_bin("gort").expect("it is built");
    let mut child = (command.args(["print", &traces.path("long")]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut some = [0; 100];
    child.stdout.take().expect("piped").read_exact(&mut some).expect("it prints");
    // Its end of the pipe is closed now.
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((code(&output), err(&output).as_str()), (0, ""));
}

#[test]
fn a_full_disk_is_told() {
    let traces = Traces::new();
    let full = Path::new("/dev/full");
    if !full.exists() {
        println!("left out: this system has no /dev/full");
        return;
    }
    let output = gort(&["pprof", "--kind", "sync", "--output", "/dev/full", &traces.path("rich")]);
    assert_eq!(code(&output), 2);
    assert!(err(&output).contains("/dev/full: cannot write it"), "{}", err(&output));
}

#[test]
fn json_says_what_text_says() {
    let traces = Traces::new();
    let rich = traces.path("rich");
    let stat = json(&gort(&["stat", "--json", &rich]));
    assert_eq!(stat["goroutines"]["created"], 2);
    assert_eq!(stat["scheduler"]["steals"], 1);
    let gs = json(&gort(&["goroutines", "--json", "--all", &rich]));
    let names: Vec<&str> =
        gs["groups"].as_array().expect("groups").iter().filter_map(|g| g["function"].as_str()).collect();
    assert!(names.contains(&"app::worker"), "{names:?}");
    let tasks = json(&gort(&["tasks", "--json", &rich]));
    assert_eq!((&tasks["tasks"][0]["name"], &tasks["tasks"][0]["latency"]["count"]), (&"request".into(), &1.into()));
    assert_eq!(tasks["tasks"][0]["slowest"][0]["goroutines"], serde_json::json!([100]));
    let blocked = json(&gort(&["blocked", "--json", "--kind", "chan,sleep", &rich]));
    let reasons: Vec<&str> =
        blocked["stacks"].as_array().expect("stacks").iter().filter_map(|s| s["reason"].as_str()).collect();
    assert!(reasons.contains(&"sleep") && reasons.contains(&"chan receive"), "{reasons:?}");
    let gc = json(&gort(&["gc", "--json", "--window", "10ns,1us", &rich]));
    assert_eq!((&gc["cycles"]["count"], gc["mmu"].as_array().map(Vec::len)), (&1.into(), Some(2)));
    let sched = json(&gort(&["sched", "--json", &rich]));
    assert_eq!(sched["hand_offs"], serde_json::json!([["blocking call", 1]]));
}

#[test]
fn events_are_filtered() {
    let traces = Traces::new();
    let rich = traces.path("rich");
    let lines = |args: &[&str]| -> Vec<String> {
        let output = gort(&[&["print"], args, &[&*rich]].concat());
        assert_eq!(code(&output), 0);
        out(&output).lines().map(str::to_owned).collect()
    };
    let all = lines(&[]);
    assert!(all.len() > 40, "{all:?}");
    let blocks = lines(&["--kind", "goblock,RangeBegin"]);
    assert!(
        blocks.iter().all(|line| ["GoBlock", "STWBegin", "GCBegin", "GCSweepBegin", "GCMarkAssistBegin"]
            .iter()
            .any(|k| line.contains(k))),
        "{blocks:?}"
    );
    assert!(blocks.len() > 4);
    let seven = lines(&["--goroutine", "7"]);
    assert!(seven.iter().any(|line| line.contains("G 7: NotExist -> Runnable")), "{seven:?}");
    assert!(seven.iter().all(|line| line.contains(" 7")), "{seven:?}");
    let late = lines(&["--from", "1ms"]);
    let early = lines(&["--to", "999999ns"]);
    assert!(!late.is_empty() && !early.is_empty());
    assert_eq!(late.len() + early.len(), all.len());
}

#[test]
fn exports_are_what_they_say() {
    let traces = Traces::new();
    let rich = traces.path("rich");
    let events = out(&gort(&["print", &rich])).lines().filter(|line| !line.contains(" Sync")).count();
    let lines = out(&gort(&["export", "--format", "json", &rich]));
    let objects: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).expect("JSON in each line")).collect();
    assert_eq!(objects.len(), events);
    assert!(
        objects.iter().any(|event| event["event"] == "GoBlock" && event["text"] == serde_json::json!(["chan receive"]))
    );
    let table = out(&gort(&["export", "--format", "csv", &rich]));
    let mut csv = csv::Reader::from_reader(table.as_bytes());
    assert_eq!(csv.headers().expect("a head").iter().next(), Some("at_ns"));
    assert_eq!(csv.records().filter(Result::is_ok).count(), events);

    let file = traces.path("timeline.json");
    assert_eq!(code(&gort(&["export", "--format", "chrome", "--output", &file, &rich])), 0);
    let timeline: Value = serde_json::from_slice(&fs::read(&file).expect("it is there")).expect("it is JSON");
    let events = timeline["traceEvents"].as_array().expect("a list");
    let named = |ph: &str, part: &str| {
        events.iter().filter(|e| e["ph"] == ph && e["name"].as_str().is_some_and(|name| name.contains(part))).count()
    };
    assert!(named("X", "app::worker G7") >= 2, "slices of G 7");
    assert_eq!((named("X", "GOMAXPROCS"), named("X", "mark")), (1, 1));
    assert_eq!((named("b", "request"), named("e", ""), named("i", "one: two")), (1, 1, 1));
    assert!(events.iter().filter(|e| e["ph"] == "X").all(|e| e["dur"].as_f64().is_some_and(|dur| dur >= 0.0)));
}

#[test]
fn colours_only_where_they_are_wanted() {
    let traces = Traces::new();
    let rich = traces.path("rich");
    assert!(!out(&gort(&["stat", &rich])).contains('\x1b'));
    assert!(out(&gort(&["stat", "--color", "always", &rich])).contains("\x1b["));
}

#[test]
fn manuals_and_completions_are_made() {
    let traces = Traces::new();
    let dir = traces.path("man");
    assert_eq!(code(&gort(&["man", &dir])), 0);
    let pages: Vec<String> = fs::read_dir(&dir)
        .expect("it is there")
        .map(|e| e.expect("an entry").file_name().to_string_lossy().into())
        .collect();
    for page in ["gort.1", "gort-stat.1", "gort-pprof.1"] {
        assert!(pages.iter().any(|name| name == page), "{pages:?}");
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = out(&gort(&["completions", shell]));
        assert!(script.contains("goroutines") && script.contains("pprof"), "{shell}");
    }
}

#[test]
fn help_fits_and_names_the_exit_codes() {
    let help = out(&gort(&["--help"]));
    assert!(help.contains("Exit codes:") && help.contains("stat"), "{help}");
}
