//! What goroutines cost: ours beside may, tokio and Go.
//!
//! For: yield, spawn, channel and mutex changes, and the tracer's price; no figure on these may be quoted without its
//! rivals' from the same run. Not for: I/O, timers, memory.
//!
//! A run is a number of rounds. Each round starts every contender once for every workload and number of Ps, in random
//! order, as a child process of its own: frequency, cache and neighbours hit all alike. Shown are medians over the rounds
//! with the least and the most, and ratios of medians; under 100 ns a ratio between 0.8 and 1.25 is a tie.
//!
//! What each contender runs is as its own users would write it (see `rivals/`). Where they have no equal, the nearest
//! thing stands in: tokio's channel has room for one, may's is unbounded (never more than one in it here); Go has no
//! join handles, so it joins by a wait group; may and tokio have no wait group and sit that workload out.

mod child;
mod options;
mod report;
mod rivals;
mod rounds;
mod workload;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator of ours and of the Rust rivals.
const ALLOCATOR_NAME: &str = if cfg!(feature = "mimalloc") {
    "mimalloc"
} else if cfg!(target_env = "gnu") {
    "the system's (glibc malloc)"
} else {
    "the system's"
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match options::parse(&args) {
        Ok(options::Command::Help) => {
            print!("{}", options::HELP);
            Ok(())
        }
        Ok(options::Command::Child(child)) => child::run(&child),
        Ok(options::Command::Bench(options)) => rounds::run(&options),
        Err(why) => Err(why),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("switch: {why}");
            ExitCode::FAILURE
        }
    }
}
