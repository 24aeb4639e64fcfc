//! Go is the judge: its tool must find the same events as we do, in the same order, at the same times, in the same
//! context, with the same strings and stacks; and its own test traces must get the verdict that stands in them.
//!
//! Needs Go and traces, so it runs only when asked; `cargo xtask conformance reader` has them and asks.
//!
//! ```text
//! GORT_GO_TRACE=/path/to/trace GORT_GO_TESTDATA=GOROOT/src/internal/trace/testdata GORT_GO_TRACES=DIR \
//!     cargo test --release -p gort-tracer --test go -- --ignored --nocapture
//! ```
//!
//! `GORT_GO_TRACE` is the program behind `go tool trace` (`go build -o trace cmd/trace`); DIR has traces, of any
//! program, whole or damaged. Files over 8 MB are left out: the tool's text is a hundred times as large.
#![cfg(feature = "read")]

mod common;
mod counting;

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use counting::peak;
use tracer::read::alloc_free::AllocFree;
use tracer::read::print::Printer;
use tracer::read::{Error, Reader, Rule};
use tracer::text::{self, TextReader, Widths};
use tracer::wire::Ev;

const FILE_BYTES_MAX: u64 = 8 << 20;

fn var(name: &str) -> PathBuf {
    std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set")).into()
}

fn files_below(dir: &Path) -> Vec<PathBuf> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_path_buf()]);
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display())) {
            let path = entry.expect("its entries can be read").path();
            if path.is_dir() { dirs.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    files
}

/// What the tool prints, compared as it comes.
struct Tool {
    child: Child,
    from: BufReader<std::process::ChildStdout>,
    name: String,
    buf: Vec<u8>,
}

impl Tool {
    fn start(mode: &str, path: &Path) -> Tool {
        let mut child = Command::new(var("GORT_GO_TRACE"))
            .arg(format!("-d={mode}"))
            .arg(path)
            .env("TZ", "UTC")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the tool runs");
        let from = BufReader::with_capacity(1 << 20, child.stdout.take().expect("it is piped"));
        Tool { child, from, name: format!("{} as {mode}", path.display()), buf: Vec::new() }
    }

    /// The tool says the same next.
    fn expect(&mut self, ours: &[u8]) {
        self.buf.clear();
        let has = self.from.by_ref().take(ours.len() as u64).read_to_end(&mut self.buf).expect("the pipe is good");
        if self.buf != ours {
            let _ = self.from.by_ref().take(200).read_to_end(&mut self.buf);
            let (ours, go) = (String::from_utf8_lossy(ours), String::from_utf8_lossy(&self.buf));
            panic!("{}:\n  ours {ours}\n  Go's {go}\n  ({has} bytes)", self.name);
        }
    }

    /// The tool says no more. Answers whether it calls the trace good.
    fn end(mut self) -> bool {
        self.buf.clear();
        let _ = self.from.by_ref().take(400).read_to_end(&mut self.buf);
        let more = String::from_utf8_lossy(&self.buf);
        assert!(more.is_empty(), "{}: Go goes on with {more}", self.name);
        self.child.wait().expect("the tool can be waited for").success()
    }
}

/// With more Ms than this Go's sort is not stable: where some have the same time, several orders are right, and Go's may be
/// another than ours.
const MS_IN_ORDER: usize = 12;

fn ms(path: &Path) -> usize {
    let Ok(mut reader) = File::open(path).map_err(Error::from).and_then(Reader::new) else { return 0 };
    while reader.advance().unwrap_or(false) {}
    reader.alive().2
}

/// An event without its time and its context, which depend on what comes before: of a status, whether its M is known yet.
fn hash_without_time(text: &[u8]) -> u64 {
    use std::hash::{DefaultHasher, Hasher};
    let text = String::from_utf8_lossy(text);
    let (before, rest) = text.split_once(" Time=").expect("an event has a time");
    let mut hasher = DefaultHasher::new();
    hasher.write(before.rsplit(' ').next().unwrap_or_default().as_bytes());
    hasher.write(rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-').trim_end().as_bytes());
    hasher.finish()
}

/// The same events in any order: how many, and a sum over all of them.
fn compare_events_in_any_order(path: &Path) -> (u64, Option<Error>) {
    let (mut ours, mut printer, mut text) = ((0u64, 0u64), Printer::default(), Vec::new());
    let add = |(count, sum): (u64, u64), text: &[u8]| (count + 1, sum.wrapping_add(hash_without_time(text)));
    let mut reader = Reader::new(File::open(path).expect("the file is there")).expect("it has Ms");
    let error = loop {
        match reader.advance() {
            Ok(false) => break None,
            Err(error) => break Some(error),
            Ok(true) => {
                text.clear();
                printer.print(reader.event(), reader.tables(), &mut text);
                ours = add(ours, &text);
            }
        }
    };
    let mut tool = Tool::start("parsed", path);
    let (mut theirs, mut line) = ((0, 0), Vec::new());
    text.clear();
    loop {
        line.clear();
        let len = tool.from.read_until(b'\n', &mut line).expect("the pipe is good");
        if (len == 0 || line.starts_with(b"M=")) && !text.is_empty() {
            theirs = add(theirs, &text);
            text.clear();
        }
        if len == 0 {
            break;
        }
        text.extend_from_slice(&line);
    }
    let (name, go_likes_it) = (tool.name.clone(), tool.end());
    // A refusal comes at another event if the order is another.
    assert!(ours == theirs || error.is_some() && !go_likes_it, "{name}: ours {ours:?}, Go's {theirs:?}");
    assert_eq!(error.is_none(), go_likes_it, "{name}: ours says {error:?}");
    (ours.0, error)
}

/// Both read the same events, and come to the same verdict. Answers how many there are, and ours.
fn compare_events(path: &Path) -> (u64, Option<Error>) {
    if ms(path) > MS_IN_ORDER {
        return compare_events_in_any_order(path);
    }
    let mut tool = Tool::start("parsed", path);
    let (mut events, mut printer, mut text) = (0, Printer::default(), Vec::new());
    let error = match File::open(path).map_err(Error::from).and_then(Reader::new) {
        Err(error) => Some(error),
        Ok(mut reader) => loop {
            match reader.next() {
                None => break None,
                Some(Err(error)) => break Some(error),
                Some(Ok(event)) => {
                    text.clear();
                    printer.print(&event, reader.tables(), &mut text);
                    tool.expect(&text);
                    events += 1;
                }
            }
        },
    };
    let (name, go_likes_it) = (tool.name.clone(), tool.end());
    assert_eq!(error.is_none(), go_likes_it, "{name}: ours says {error:?}");
    (events, error)
}

/// Our text form is Go's, and a trace comes back from it to the byte.
fn compare_text(path: &Path) {
    let trace = fs::read(path).expect("the file can be read");
    let mut ours = Vec::new();
    let error = text::to_text(&trace[..], &mut ours, Widths::Drop).err();
    let mut tool = Tool::start("wire", path);
    let first_line = ours.iter().position(|&byte| byte == b'\n').map_or(0, |i| i + 1);
    // A line at a time, so that a difference is easy to see.
    ours[first_line..].split_inclusive(|&byte| byte == b'\n').for_each(|line| tool.expect(line));
    let (name, go_likes_it) = (tool.name.clone(), tool.end());
    assert_eq!(error.is_none(), go_likes_it, "{name}: ours says {error:?}");
    let (mut kept, mut again) = (Vec::new(), Vec::new());
    let _ = text::to_text(&trace[..], &mut kept, Widths::Keep);
    text::to_trace(&kept[..], &mut again).expect("our text can be read");
    assert!(trace.starts_with(&again) && (error.is_some() || again.len() == trace.len()), "{name}: bytes");
}

#[test]
#[ignore = "needs Go's trace tool and a directory of traces"]
fn the_same_events_as_go() {
    let (mut files, mut events, mut large) = (0, 0, 0);
    for path in files_below(&var("GORT_GO_TRACES")) {
        if path.metadata().is_ok_and(|m| m.len() > FILE_BYTES_MAX) {
            large += 1;
            continue;
        }
        files += 1;
        events += compare_events(&path).0;
    }
    assert!(files > 0, "there were no traces");
    println!("{files} traces agree in {events} events, {large} were too large");
}

#[test]
#[ignore = "needs Go's trace tool and a directory of traces"]
fn the_same_text_as_go() {
    let paths = files_below(&var("GORT_GO_TRACES"));
    let paths: Vec<_> = paths.iter().filter(|path| path.metadata().is_ok_and(|m| m.len() <= FILE_BYTES_MAX)).collect();
    assert!(!paths.is_empty(), "there were no traces");
    paths.iter().for_each(|path| compare_text(path));
    println!("{} traces have the same text", paths.len());
}

/// What Go's tests expect an error to say, and the rule that it is about.
const REASONS: [(&str, Rule); 1] = [("expected a proc but didn't have one", Rule::NeedsP)];

/// The two files of a test: what is expected, and the trace as text.
fn parts(test: &str) -> (&str, &str) {
    let rest = test.split_once("-- expect --\n").expect("it says what it expects").1;
    rest.split_once("-- trace --\n").expect("it has a trace")
}

#[test]
#[ignore = "needs Go's trace tool and its sources"]
fn gos_tests_have_their_verdicts() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gos-tests");
    fs::create_dir_all(&folder).expect("there is place for traces");
    let (mut tests, mut failures) = (0, 0);
    for path in files_below(&var("GORT_GO_TESTDATA").join("tests")) {
        let name = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        let test = fs::read_to_string(&path).expect("the test can be read");
        let (expected, text) = parts(&test);
        let mut trace = Vec::new();
        text::to_trace(text.as_bytes(), &mut trace).unwrap_or_else(|e| panic!("{name}: {e}"));
        let file = folder.join(format!("{name}.bin"));
        fs::write(&file, &trace).expect("the trace can be written");
        compare_text(&file);
        let (_, error) = compare_events(&file);
        tests += 1;
        match (expected.trim().split_once(' '), error) {
            (None, None) => assert_eq!(expected.trim(), "SUCCESS", "{name}"),
            (Some(("FAILURE", why)), Some(error)) => {
                let rule = REASONS.iter().find(|reason| why.contains(reason.0)).map(|reason| reason.1);
                let rule = rule.unwrap_or_else(|| panic!("{name}: which rule is {why}?"));
                assert_eq!(error.broken().map(|broken| broken.rule), Some(rule), "{name}: {error}");
                failures += 1;
            }
            (expected, error) => panic!("{name}: expected {expected:?}, got {error:?}"),
        }
    }
    assert!(tests >= 20 && failures > 0, "{tests} tests, {failures} of them traces to be refused");
    println!("{tests} tests have their verdicts, {failures} of them to be refused");
}

/// The bytes of an input of Go's fuzzer.
fn fuzz_input(file: &str) -> Option<Vec<u8>> {
    let quoted = file.split_once("[]byte(")?.1.trim_end().strip_suffix(')')?;
    let text = format!("Trace Go1.26\nString id=1\n\tdata={quoted}\n");
    let mut reader = TextReader::new(text.as_bytes()).ok()?;
    Some(reader.next_event().ok()??.data.clone())
}

#[test]
#[ignore = "needs Go's sources"]
fn gos_fuzz_inputs_do_no_harm() {
    let mut inputs = 0;
    for path in files_below(&var("GORT_GO_TESTDATA").join("fuzz")) {
        let file = fs::read_to_string(&path).expect("the input can be read");
        let input = fuzz_input(&file).unwrap_or_else(|| panic!("{}: not understood", path.display()));
        let bytes = peak(|| {
            let _ = common::read(&input);
            let _ = text::to_text(&input[..], std::io::sink(), Widths::Keep);
        });
        assert!(bytes < 4 << 20, "{}: {bytes} bytes of memory", path.display());
        inputs += 1;
    }
    assert!(inputs > 0, "there were no inputs");
    println!("{inputs} inputs of Go's fuzzer do no harm");
}

/// In Go's traces of the experiment every object has a place in memory, and every type that is named is told.
#[test]
#[ignore = "needs a directory of traces"]
fn gos_heap_is_understood() {
    let (mut objects, mut typed, mut files) = (0u64, 0u64, 0);
    for path in files_below(&var("GORT_GO_TRACES")) {
        let Ok(mut reader) = File::open(&path).map_err(Error::from).and_then(Reader::new) else { continue };
        let (mut heap, before) = (AllocFree::default(), objects);
        while reader.advance().unwrap_or(false) {
            let event = reader.event();
            match event.kind {
                Ev::Sync => heap.update(reader.tables()),
                Ev::HeapObject | Ev::HeapObjectAlloc => {
                    objects += 1;
                    assert!(heap.address(event).is_some(), "{}: no place for {event:?}", path.display());
                    let named = event.args[1] != 0;
                    typed += u64::from(named);
                    assert_eq!(heap.type_of(event).is_some(), named, "{}: {event:?}", path.display());
                }
                _ => {}
            }
        }
        assert_eq!(heap.malformed(), 0, "{}", path.display());
        files += u32::from(objects > before);
    }
    assert!(files > 0 && typed > 0, "{files} traces of the experiment, {objects} objects");
    println!("{files} traces tell of {objects} objects, of {typed} with their types");
}
