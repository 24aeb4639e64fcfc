//! A goroutine that recurses without end, and what is left of it.
//!
//! Stacks do not grow: they have a size, and a guard at its end. Prints a report on stderr that names the goroutine, the
//! size of its stack and the function that recurses, and then dies of SIGSEGV, as a thread would.
//!
//! The program traces itself into overflow.trace in the current folder. What was written before the end can be read:
//! `cargo run -p gort-cli -- print overflow.trace`.

use std::error::Error;
use std::fs::File;
use std::time::Duration;

const TRACE: &str = "overflow.trace";

/// For each folder the one it is in. The mistake: the last two are in each other.
const INSIDE: [Option<usize>; 4] = [None, Some(0), Some(3), Some(2)];

/// A folder, and the way from there to where the search began.
struct Way<'a> {
    folder: usize,
    inner: Option<&'a Way<'a>>,
}

/// How deep a folder lies.
fn depth(way: &Way<'_>) -> usize {
    match INSIDE[way.folder] {
        Some(outer) => depth(&Way { folder: outer, inner: Some(way) }),
        None => std::iter::successors(way.inner, |way| way.inner).count(),
    }
}

fn survey() {
    for folder in 0..INSIDE.len() {
        println!("folder {folder} lies {} deep", depth(&Way { folder, inner: None }));
    }
}

/// Something to see in the trace until then.
fn heartbeat() {
    loop {
        rt::time::sleep(Duration::from_millis(10));
    }
}

fn program() -> Result<(), Box<dyn Error + Send + Sync>> {
    rt::trace::start(File::create(TRACE)?)?;
    rt::Builder::new().name("heartbeat").spawn(heartbeat)?;
    // The trace is written in generations of about a second: wait for a whole one.
    rt::time::sleep(Duration::from_millis(1200));
    println!("{TRACE} holds what happened until now");
    let surveyor = rt::Builder::new().name("surveyor").stack_size(64 << 10).spawn(survey)?;
    surveyor.join().map_err(|_| "the surveyor panicked")?;
    Ok(()) // Never.
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    rt::run(program)
}
