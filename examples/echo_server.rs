//! An echo server: each client gets back what it sends. The smallest server there is, and one that ends well.
//!
//!     cargo run --release --example echo_server -- --addr 127.0.0.1:7777
//!     nc 127.0.0.1 7777
//!     cargo run --release --example load -- --mode echo --addr 127.0.0.1:7777 --connections 64
//!
//! Each connection has a goroutine, which is written as if it had the world to itself: read, write, again. Where it has to wait, the
//! goroutine does; the threads go on with others. A thousand connections want a thousand stacks, and still only as many
//! threads as there are processors.
//!
//! With `--trace echo.trace --for 5` look at `go tool trace echo.trace`, or at the summary of
//! `cargo run -p gort-cli -- stat echo.trace`: one goroutine for each connection, of a closure in
//! `echo_server::serve`, and all of them wait for the network at the line of `echo` that reads.

use rt::net::TcpStream;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use support::{Connections, Failure, Until};

#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

const HELP: &str = "\
Sends back what it gets.

    --addr HOST:PORT    where to listen; port 0 takes a free one [127.0.0.1:7777]
    --trace FILE        record an execution trace
";

struct Options {
    addr: String,
    trace: Option<PathBuf>,
    until: Until,
}

fn parse(mut args: lexopt::Parser) -> Result<Option<Options>, Failure> {
    use lexopt::prelude::*;
    let mut options = Options { addr: "127.0.0.1:7777".into(), trace: None, until: Until::default() };
    while let Some(arg) = args.next()? {
        match arg {
            Long("addr") => options.addr = args.value()?.string()?,
            Long("trace") => options.trace = Some(args.value()?.into()),
            Long("for") => options.until.time = Some(support::seconds(&mut args, "--for")?),
            Long("until-eof") => options.until.end_of_input = true,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Some(options))
}

/// Serves one client, until it closes its side.
fn echo(mut stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = vec![0; 16 << 10];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}

fn serve(options: &Options) -> Result<(), Failure> {
    let listener = support::listen(&options.addr)?;
    let connections = Arc::new(Connections::default());

    let (acceptor, accepted) = (listener.try_clone()?, connections.clone());
    let acceptor = rt::go(move || {
        support::accept_all(&acceptor, |stream, _| {
            let Some(open) = accepted.open(stream) else { return };
            // A client that goes away in the middle is no news.
            rt::go(move || echo(open.stream()).ok());
        });
    });

    options.until.wait();
    listener.close()?;
    acceptor.join().map_err(|_| "the acceptor panicked")?;
    connections.end(Duration::from_secs(2));
    Ok(())
}

fn main() -> ExitCode {
    let help = format!("{HELP}{}", Until::HELP);
    support::main("echo_server", &help, parse, |options| support::run(options.trace.clone(), move || serve(&options)))
}
