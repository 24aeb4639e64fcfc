//! Go's own tool is the judge: on every trace it must find the same events as we do, in the same order, at the same
//! times, in the same context.
//!
//! Needs Go and traces, so it runs only when asked:
//!
//! ```text
//! GORT_GO_TRACE=/path/to/trace GORT_GO_TRACES=DIR cargo test --release -p gort-tracer --test go -- --ignored
//! ```
//!
//! `GORT_GO_TRACE` is the program behind `go tool trace` (`go build -o trace cmd/trace`); DIR has traces, of any
//! program, whole or damaged. Files over 8 MB are left out: the tool's text is a hundred times as large.
#![cfg(feature = "read")]

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use tracer::read::{Error, Event, Reader, Transition};

const FILE_BYTES_MAX: u64 = 8 << 20;

/// An event as the tool's `-d=parsed` prints the beginning of it.
fn line(event: &Event) -> String {
    let mut line = format!("M={} P={} G={} {} Time={}", event.m, event.p, event.g, event.category().name(), event.time);
    match event.transition() {
        Some(Transition::G { id, from, to }) => line += &format!(" GoID={id} {}->{}", from.name(), to.name()),
        Some(Transition::P { id, from, to }) => line += &format!(" ProcID={id} {}->{}", from.name(), to.name()),
        None => {}
    }
    line
}

/// Our events, and whether the trace is good.
fn ours(path: &Path) -> (Vec<String>, bool) {
    let Ok(reader) = File::open(path).map_err(Error::from).and_then(Reader::new) else { return (Vec::new(), false) };
    let mut lines = Vec::new();
    for event in reader {
        match event {
            Ok(event) => lines.push(line(&event)),
            Err(_) => return (lines, false),
        }
    }
    (lines, true)
}

/// Go's events, and whether it calls the trace good.
fn gos(tool: &Path, path: &Path) -> (Vec<String>, bool) {
    let output = Command::new(tool).arg("-d=parsed").arg(path).output().expect("the tool runs");
    let text = String::from_utf8_lossy(&output.stdout);
    (text.lines().filter(|line| line.starts_with("M=")).map(str::to_string).collect(), output.status.success())
}

#[test]
#[ignore = "needs Go's trace tool and a directory of traces"]
fn the_same_as_go() {
    let var = |name: &str| std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set"));
    let tool = var("GORT_GO_TRACE");
    let mut files = 0;
    for entry in fs::read_dir(var("GORT_GO_TRACES")).expect("the directory is there") {
        let path = entry.expect("its entries can be read").path();
        if !path.is_file() || path.metadata().is_ok_and(|m| m.len() > FILE_BYTES_MAX) {
            continue;
        }
        files += 1;
        let ((our_lines, we_like_it), (go_lines, go_likes_it)) = (ours(&path), gos(Path::new(&tool), &path));
        for (i, (our, go)) in our_lines.iter().zip(&go_lines).enumerate() {
            let same = go.strip_prefix(our.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '));
            assert!(same, "{}, event {i}:\n  ours {our}\n  Go's {go}", path.display());
        }
        assert_eq!(our_lines.len(), go_lines.len(), "{}: events", path.display());
        assert_eq!(we_like_it, go_likes_it, "{}: verdict", path.display());
    }
    assert!(files > 0, "there were no traces");
    println!("{files} traces agree");
}
