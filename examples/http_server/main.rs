//! An HTTP/1.1 server: keep-alive, pipelining, and limits that hold against whatever a client sends.
//!
//!     cargo run --release --example http_server -- --addr 127.0.0.1:8080
//!     curl -i http://127.0.0.1:8080/
//!     curl -i 'http://127.0.0.1:8080/slow?ms=500'              the goroutine sleeps, nobody else does
//!     curl -o /dev/null 'http://127.0.0.1:8080/download?mb=100'    in chunks, as fast as the client takes them
//!     cargo run --release --example load -- --addr 127.0.0.1:8080 --connections 64
//!
//! A connection is a goroutine that reads, answers and reads again; `http/connection.rs` is that loop. A request that comes in one
//! packet costs one read, a response one write, and neither allocates. Requests that come together are answered together.
//!
//! With `--trace http.trace --for 5` look at `go tool trace http.trace`, or at the summary of
//! `cargo run -p gort-cli -- stat http.trace`: goroutines of a closure in `http_server::server` wait for the
//! network, nearly always where `Input::fill` reads, once a request; for sleep where `/slow` was asked for; and in `write_all` where a client
//! takes its download slowly.

use http::Limits;
use http::connection::Connection;
use rt::net::TcpStream;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use support::{Connections, Failure, Until};

mod http;
#[path = "../support/mod.rs"]
#[allow(dead_code)]
mod support;

const HELP: &str = "\
Serves over HTTP/1.1: GET and HEAD of /, /slow?ms=N and /download?mb=N.

    --addr HOST:PORT    where to listen; port 0 takes a free one [127.0.0.1:8080]
    --idle SECONDS      how long a connection may wait for its next request [60]
    --trace FILE        record an execution trace
";

/// How long requests that are being answered may take when the server ends.
const GRACE: Duration = Duration::from_secs(5);

struct Options {
    addr: String,
    limits: Limits,
    trace: Option<PathBuf>,
    until: Until,
}

fn parse(mut args: lexopt::Parser) -> Result<Option<Options>, Failure> {
    use lexopt::prelude::*;
    let mut options =
        Options { addr: "127.0.0.1:8080".into(), limits: Limits::default(), trace: None, until: Until::default() };
    while let Some(arg) = args.next()? {
        match arg {
            Long("addr") => options.addr = args.value()?.string()?,
            Long("idle") => options.limits.idle = support::seconds(&mut args, "--idle")?,
            Long("trace") => options.trace = Some(args.value()?.into()),
            Long("for") => options.until.time = Some(support::seconds(&mut args, "--for")?),
            Long("until-eof") => options.until.end_of_input = true,
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected().into()),
        }
    }
    Ok(Some(options))
}

/// Serves one client to its end. Why that was, a busy server does not want to know.
fn serve(stream: &TcpStream, limits: &Limits, ending: &AtomicBool) {
    if stream.set_nodelay(true).is_ok() {
        let _ = Connection::new(stream, limits, ending).serve();
    }
}

fn server(options: Options) -> Result<(), Failure> {
    let listener = support::listen(&options.addr)?;
    let connections = Arc::new(Connections::default());

    let (acceptor, accepted, limits) = (listener.try_clone()?, connections.clone(), Arc::new(options.limits));
    let acceptor = rt::go(move || {
        support::accept_all(&acceptor, |stream, _| {
            let Some(open) = accepted.open(stream) else { return };
            let limits = limits.clone();
            rt::go(move || serve(open.stream(), &limits, open.ending()));
        });
    });

    options.until.wait();
    listener.close()?;
    acceptor.join().map_err(|_| "the acceptor panicked")?;
    connections.end(GRACE);
    Ok(())
}

fn main() -> ExitCode {
    let help = format!("{HELP}{}", Until::HELP);
    support::main("http_server", &help, parse, |options| support::run(options.trace.clone(), move || server(options)))
}
