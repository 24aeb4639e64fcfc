//! What goroutines and their sockets cost: ours beside Go, tokio, may, smol, and plain threads.
//!
//! For: yield, spawn, channel, mutex and timer changes, memory, idleness, and the tracer's price (suite `switch`); sockets,
//! with client and server in one process (suite `net`, see `net`); a server of HTTP beside wrk (suite `http`, see `http`).
//! No figure on these may be quoted without its rivals' from the same run. Not for: other I/O.
//!
//! A run is a number of rounds. Each round starts every contender once for every workload and number of Ps, in random
//! order, as a child process of its own: frequency, cache and neighbours hit all alike. Shown are medians over the rounds
//! with the least and the most, and ratios of medians; a ratio between 0.8 and 1.25 is a tie. A contender that fails or
//! hangs (it is killed) is not started again in that row, and the row says why.
//!
//! What each contender runs is as its own users would write it (see `rivals/`), to the same table of workloads: the same
//! counts, the same buffers, nothing elided (sums and counts are checked). Where a library has no equal, the nearest thing
//! stands in:
//!
//! - tokio's and smol's channels have room for one at least: one stands for none in ping-pong. In skynet they have room for
//!   a message of each child; with room for one, smol would take three times as long.
//! - may's channels have no bound: a semaphore makes one where there is a buffer. In ping-pong and skynet nobody can run
//!   ahead by more than a message.
//! - tokio's channel has one receiver; where more receive, it is async-channel's.
//! - Go has no join handles, so it joins by a wait group; tokio and smol have no wait group, so they count down and notify.
//! - For plain threads, P is the number of processors that the process may use.

mod child;
mod drive;
mod http;
mod machine;
mod markdown;
mod net;
mod options;
mod probe;
mod report;
mod results;
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
    "glibc malloc"
} else {
    "the system's malloc"
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match options::parse(&args) {
        Ok(options::Command::Help) => {
            print!("{}", options::HELP);
            Ok(())
        }
        Ok(options::Command::Child(child)) => child::run(&child),
        Ok(options::Command::Serve(serve)) => http::hyper::serve(&serve),
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
