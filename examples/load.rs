//! A load generator for the servers of the other examples, or for others: how many requests a second, and how long each took.
//!
//!     cargo run --release --example http_server &
//!     cargo run --release --example load -- --connections 64 --seconds 5
//!     cargo run --release --example load -- --connections 64 --rate 20000
//!     cargo run --release --example load -- --mode echo --addr 127.0.0.1:7777 --size 1000
//!
//! Without `--rate` the loop is closed: each connection sends its next request when it has the answer to the last. That finds out how
//! much a server can do. Its latencies flatter, though: while the server pauses, the requests that would have met the
//! pause are not sent, and so not measured ("coordinated omission").
//!
//! With `--rate` the loop is open: requests are due by the clock, whatever the server does, and the latency of each counts from when
//! it was due, not from when a connection was free to send it. Those are the latencies that users of a server see. If the
//! server cannot keep up they grow without end; then the rate is too high, and requests that were due and never sent are reported.
//!
//! With `--trace load.trace` look at `go tool trace load.trace`: the clients wait for the network, and with `--rate` sleep until the
//! next request is due. If they were runnable for long instead ("Sched wait time"), this program would be the slow one:
//! then its figures say nothing of the server.

use body::{Body, Framing};
use hdrhistogram::Histogram;
use rt::net::TcpStream;
use rt::sync::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::Failure;

#[path = "http_server/http/body.rs"]
mod body;
#[path = "support/mod.rs"]
#[allow(dead_code)]
mod support;

const HELP: &str = "\
Sends requests to a server and tells how many it answered, and how fast.

    --addr HOST:PORT    the server [127.0.0.1:8080]
    --mode http|echo    what it speaks [http]
    --path PATH         what to GET from an HTTP server [/]
    --size BYTES        what to send to an echo server, at most 65536 [64]
    --connections N     how many at once [16]
    --seconds S         for how long [5, unless --requests is given]
    --requests N        how many in all
    --rate R            so many a second by the clock (open loop) instead of as many as possible
    --timeout SECONDS   how long to wait for a server that is silent [10]
    --json              print one JSON object
    --trace FILE        record an execution trace
";

/// The largest message to echo: it must fit into the sockets' buffers, since it is sent whole before the answer is read.
const SIZE: usize = 64 << 10;

/// How long after the end requests are still sent that were due before it.
const ARREARS: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Http,
    Echo,
}

struct Options {
    addr: String,
    mode: Mode,
    path: String,
    size: usize,
    connections: usize,
    time: Option<Duration>,
    requests: Option<u64>,
    rate: Option<f64>,
    timeout: Duration,
    is_json: bool,
    trace: Option<PathBuf>,
}

fn parse(mut args: lexopt::Parser) -> Result<Option<Options>, Failure> {
    use lexopt::prelude::*;
    let mut options = Options {
        addr: "127.0.0.1:8080".into(),
        mode: Mode::Http,
        path: "/".into(),
        size: 64,
        connections: 16,
        time: None,
        requests: None,
        rate: None,
        timeout: Duration::from_secs(10),
        is_json: false,
        trace: None,
    };
    while let Some(arg) = args.next()? {
        match arg {
            Long("addr") => options.addr = args.value()?.string()?,
            Long("mode") => {
                options.mode = match &*args.value()?.string()? {
                    "http" => Mode::Http,
                    "echo" => Mode::Echo,
                    other => return Err(format!("--mode wants http or echo, not {other:?}").into()),
                }
            }
            Long("path") => options.path = args.value()?.string()?,
            Long("size") => options.size = support::value(&mut args, "--size", "a number of bytes")?,
            Long("connections") => options.connections = support::value(&mut args, "--connections", "a number")?,
            Long("seconds") => options.time = Some(support::seconds(&mut args, "--seconds")?),
            Long("requests") => options.requests = Some(support::value(&mut args, "--requests", "a number")?),
            Long("rate") => options.rate = Some(support::value(&mut args, "--rate", "requests per second")?),
            Long("timeout") => options.timeout = support::seconds(&mut args, "--timeout")?,
            Long("json") => options.is_json = true,
            Long("trace") => options.trace = Some(args.value()?.into()),
            Short('h') | Long("help") => return Ok(None),
            _ => return Err(arg.unexpected().into()),
        }
    }
    if options.time.is_none() && options.requests.is_none() {
        options.time = Some(Duration::from_secs(5));
    }
    check(&options)?;
    Ok(Some(options))
}

fn check(options: &Options) -> Result<(), String> {
    if !options.path.starts_with('/') || !options.path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!("--path wants a path from / on, without spaces, not {:?}", options.path));
    }
    if !(1..=SIZE).contains(&options.size) {
        return Err(format!("--size wants 1 to {SIZE}, not {}", options.size));
    }
    if options.connections == 0 || options.requests == Some(0) {
        return Err("--connections and --requests want at least 1".to_owned());
    }
    match options.rate {
        Some(rate) if !(rate.is_finite() && rate >= 0.001) => Err(format!("--rate wants 0.001 or more, not {rate}")),
        _ => Ok(()),
    }
}

/// What all clients share.
struct Run {
    options: Options,
    addr: SocketAddr,
    /// What each request sends.
    request: Vec<u8>,
    begin: Instant,
    end: Option<Instant>,
    /// The number of the next request.
    next: AtomicU64,
    tally: Mutex<Tally>,
}

impl Run {
    /// Waits until the next request is due, and says when that was; `None` when all is done.
    fn next(&self) -> Option<Instant> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.options.requests.is_some_and(|requests| number >= requests) {
            return None;
        }
        let now = Instant::now();
        let Some(rate) = self.options.rate else {
            return Some(now).filter(|now| self.end.is_none_or(|end| *now < end));
        };
        let due = self.begin.checked_add(Duration::try_from_secs_f64(number as f64 / rate).ok()?)?;
        // What is due in time is sent, late or not, unless it is hopeless.
        if self.end.is_some_and(|end| due >= end || now.duration_since(end) > ARREARS) {
            return None;
        }
        if due > now {
            rt::time::sleep_until(due);
        }
        Some(due)
    }

    /// How many requests were due.
    fn due(&self) -> Option<u64> {
        let rate = self.options.rate?;
        let in_time = self.options.time.map_or(u64::MAX, |time| (time.as_secs_f64() * rate).ceil() as u64);
        Some(in_time.min(self.options.requests.unwrap_or(u64::MAX)))
    }
}

/// What came out.
struct Tally {
    latency_ns: Histogram<u64>,
    sent: u64,
    bytes: u64,
    errors: BTreeMap<String, u64>,
}

/// What one client has seen and not yet told.
#[derive(Default)]
struct Batch {
    latencies_ns: Vec<u64>,
    sent: u64,
    bytes: u64,
}

/// So many at a time, so that the lock is hardly ever taken.
const BATCH: usize = 256;

impl Batch {
    fn flush(&mut self, into: &Mutex<Tally>) {
        let mut tally = into.lock();
        for ns in self.latencies_ns.drain(..) {
            tally.latency_ns.saturating_record(ns);
        }
        tally.sent += std::mem::take(&mut self.sent);
        tally.bytes += std::mem::take(&mut self.bytes);
    }
}

/// How a request ended that was answered.
#[derive(PartialEq, Eq)]
enum Outcome {
    Good,
    Status(u16),
}

/// Sends requests until all is done. A connection that fails is made anew.
fn client(run: &Run, mut connection: Option<Connection>) {
    let mut batch = Batch::default();
    let error = |what: String| *run.tally.lock().errors.entry(what).or_default() += 1;
    while let Some(due) = run.next() {
        batch.sent += 1;
        let mut current = match connection.take().map_or_else(|| Connection::open(run), Ok) {
            Ok(connection) => connection,
            Err(e) => {
                error(format!("connect: {}", name(&e)));
                // There is no use in asking as fast as one can.
                rt::time::sleep(Duration::from_millis(10));
                continue;
            }
        };
        match current.exchange(run) {
            Ok((outcome, bytes)) => {
                batch.bytes += bytes;
                match outcome {
                    Outcome::Good => batch.latencies_ns.push(due.elapsed().as_nanos() as u64),
                    Outcome::Status(status) => error(format!("status {status}")),
                }
                connection = Some(current).filter(|connection| !connection.is_over);
            }
            Err(e) => error(name(&e)),
        }
        if batch.latencies_ns.len() >= BATCH {
            batch.flush(&run.tally);
        }
    }
    batch.flush(&run.tally);
}

/// An error's kind, in few words.
fn name(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "refused".into(),
        ErrorKind::ConnectionReset | ErrorKind::ConnectionAborted | ErrorKind::BrokenPipe => "reset".into(),
        ErrorKind::TimedOut | ErrorKind::WouldBlock => "timed out".into(),
        ErrorKind::UnexpectedEof => "closed before the answer".into(),
        _ => error.to_string(),
    }
}

fn bad(what: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, what)
}

/// What matters of the head of a response.
struct Head {
    status: u16,
    /// `None`: the body goes up to the end of the connection.
    framing: Option<Framing>,
    /// It is the last of its connection.
    is_last: bool,
    length: usize,
}

struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    /// The server takes no other request.
    is_over: bool,
}

impl Connection {
    fn open(run: &Run) -> io::Result<Connection> {
        Connection::connect(run.addr, run.options.timeout)
    }

    fn connect(addr: SocketAddr, timeout: Duration) -> io::Result<Connection> {
        let stream = TcpStream::connect_timeout(&addr, timeout)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        Ok(Connection { stream, buffer: vec![0; SIZE], is_over: false })
    }

    /// Sends one request and reads the answer: how it ended, and its bytes.
    fn exchange(&mut self, run: &Run) -> io::Result<(Outcome, u64)> {
        self.stream.write_all(&run.request)?;
        match run.options.mode {
            Mode::Http => self.response(),
            Mode::Echo => {
                let answer = &mut self.buffer[..run.request.len()];
                self.stream.read_exact(answer)?;
                if answer != run.request {
                    return Err(bad("not what was sent"));
                }
                Ok((Outcome::Good, answer.len() as u64))
            }
        }
    }

    fn response(&mut self) -> io::Result<(Outcome, u64)> {
        let mut filled = 0;
        let mut read = 0;
        let head = loop {
            match self.fill(filled)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => (filled, read) = (filled + n, read + n as u64),
            }
            let mut start = 0;
            let head = loop {
                match head(&self.buffer[start..filled])? {
                    // An interim response: the real one follows.
                    Some(Head { status: 100..200, length, .. }) => start += length,
                    other => break other,
                }
            };
            if let Some(head) = head {
                break Head { length: start + head.length, ..head };
            }
        };
        self.is_over = head.is_last;
        self.buffer.copy_within(head.length..filled, 0);
        read += self.skip(head.framing, filled - head.length)?;
        Ok((if (200..300).contains(&head.status) { Outcome::Good } else { Outcome::Status(head.status) }, read))
    }

    /// Skips a body whose first bytes are in the buffer; gives how many more were read.
    fn skip(&mut self, framing: Option<Framing>, mut filled: usize) -> io::Result<u64> {
        let mut read = 0;
        let mut body = framing.map(|framing| Body::new(framing, u64::MAX)).transpose().map_err(|_| bad("bad body"))?;
        loop {
            let skipped = match &mut body {
                Some(body) => body.skip(&self.buffer[..filled]).map_err(|_| bad("bad chunks"))?,
                None => filled,
            };
            self.buffer.copy_within(skipped..filled, 0);
            filled -= skipped;
            if body.as_ref().is_some_and(Body::is_done) {
                return if filled == 0 { Ok(read) } else { Err(bad("more than the answer")) };
            }
            match self.fill(filled)? {
                0 if body.is_none() => return Ok(read),
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => (filled, read) = (filled + n, read + n as u64),
            }
        }
    }

    fn fill(&mut self, filled: usize) -> io::Result<usize> {
        if filled == self.buffer.len() {
            return Err(bad("a head of more than 64 KiB"));
        }
        self.stream.read(&mut self.buffer[filled..])
    }
}

/// The head that `bytes` begin with; `None` if there is more to come.
fn head(bytes: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(_) => return Err(bad("not an HTTP response: is it another kind of server?")),
    };
    let status = response.code.ok_or_else(|| bad("no status"))?;
    let header = |name: &str| response.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
    let has = |name: &str, value: &str| {
        header(name).is_some_and(|header| header.value.eq_ignore_ascii_case(value.as_bytes()))
    };
    let framing = match header("content-length") {
        _ if matches!(status, 100..200 | 204 | 304) => Some(Framing::Length(0)),
        _ if has("transfer-encoding", "chunked") => Some(Framing::Chunked),
        Some(length) => {
            let length = std::str::from_utf8(length.value).ok().and_then(|text| text.parse().ok());
            Some(Framing::Length(length.ok_or_else(|| bad("bad Content-Length"))?))
        }
        None => None,
    };
    let is_old = response.version == Some(0);
    let is_last = framing.is_none() || has("connection", "close") || (is_old && !has("connection", "keep-alive"));
    Ok(Some(Head { status, framing, is_last, length }))
}

/// Makes all connections before the clock starts. Those that fail are tried again under load.
fn connect(options: &Options, addr: SocketAddr) -> Result<Vec<Option<Connection>>, Failure> {
    let timeout = options.timeout;
    let made: Vec<_> = (0..options.connections).map(|_| rt::go(move || Connection::connect(addr, timeout))).collect();
    let mut connections = Vec::new();
    let mut failure = None;
    for connection in made {
        match connection.join().map_err(|_| "a client panicked")? {
            Ok(connection) => connections.push(Some(connection)),
            Err(e) => {
                failure = Some(e);
                connections.push(None);
            }
        }
    }
    match failure {
        Some(e) if connections.iter().all(Option::is_none) => Err(format!(
            "cannot connect to {addr}: {e}; start a server first, such as cargo run --release --example {}",
            if options.mode == Mode::Http { "http_server" } else { "echo_server" }
        )
        .into()),
        _ => Ok(connections),
    }
}

fn load(options: Options) -> Result<(), Failure> {
    let mut addrs = rt::net::ToSocketAddrs::to_socket_addrs(&options.addr)
        .map_err(|e| format!("--addr {}: {e}; it wants HOST:PORT", options.addr))?;
    let addr = addrs.next().ok_or_else(|| format!("--addr {}: the name has no address", options.addr))?;
    let connections = connect(&options, addr)?;

    let request = match options.mode {
        Mode::Http => format!("GET {} HTTP/1.1\r\nHost: {}\r\n\r\n", options.path, options.addr).into_bytes(),
        Mode::Echo => (0..options.size).map(|i| b"0123456789abcdef\n"[i % 17]).collect(),
    };
    let begin = Instant::now();
    let end = options.time.and_then(|time| begin.checked_add(time));
    let tally = Tally {
        // From a nanosecond to an hour, to a thousandth.
        latency_ns: Histogram::new_with_bounds(1, 3_600_000_000_000, 3)?,
        sent: 0,
        bytes: 0,
        errors: BTreeMap::new(),
    };
    let run = Arc::new(Run { options, addr, request, begin, end, next: AtomicU64::new(0), tally: Mutex::new(tally) });
    let clients: Vec<_> = connections
        .into_iter()
        .map(|connection| {
            let run = run.clone();
            rt::go(move || client(&run, connection))
        })
        .collect();
    for client in clients {
        client.join().map_err(|_| "a client panicked")?;
    }
    report(&run, begin.elapsed())
}

/// The percentiles that are told.
const QUANTILES: [(&str, f64); 5] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)];

fn report(run: &Run, took: Duration) -> Result<(), Failure> {
    let tally = run.tally.lock();
    let unsent = run.due().map(|due| due.saturating_sub(tally.sent));
    let text = if run.options.is_json { json(run, &tally, took, unsent) } else { table(run, &tally, took, unsent) };
    println!("{text}");
    if tally.latency_ns.is_empty() {
        return Err("not one request was answered as it should be".into());
    }
    Ok(())
}

fn table(run: &Run, tally: &Tally, took: Duration, unsent: Option<u64>) -> String {
    let options = &run.options;
    let what = match options.mode {
        Mode::Http => format!("http://{}{}", run.addr, options.path),
        Mode::Echo => format!("echo of {} bytes by {}", options.size, run.addr),
    };
    let pace = match options.rate {
        Some(rate) => format!("open loop at {rate}/s"),
        None => "closed loop".to_owned(),
    };
    let seconds = took.as_secs_f64();
    let good = tally.latency_ns.len();
    let mut text = format!("{what}, {} connections, {pace}, {seconds:.2} s\n\n", options.connections);
    // Writing to a String does not fail.
    let _ = writeln!(text, "{:>12} {:>14} {:>14}", "requests", "requests/s", "received/s");
    let mib = tally.bytes as f64 / seconds / f64::from(1 << 20);
    let _ = writeln!(text, "{good:>12} {:>14.0} {:>14}\n", good as f64 / seconds, format!("{mib:.1} MiB"));
    for (name, _) in QUANTILES {
        let _ = write!(text, "{name:>12}");
    }
    text.push('\n');
    for (_, quantile) in QUANTILES {
        let value = if good == 0 { "-".into() } else { time(tally.latency_ns.value_at_quantile(quantile)) };
        let _ = write!(text, "{value:>12}");
    }
    text += match options.rate {
        Some(_) => "\n(from when a request was due to its answer)\n",
        None => "\n(from sending to the answer; what was not sent while the server paused is left out: see --rate)\n",
    };
    if let Some(unsent @ 1..) = unsent {
        let _ = writeln!(text, "\n{unsent} requests were due and never sent: the rate is too high for this");
    }
    text += "\nerrors: ";
    if tally.errors.is_empty() {
        text += "none";
    }
    for (what, count) in &tally.errors {
        let _ = write!(text, "\n{count:>12} {what}");
    }
    text
}

fn json(run: &Run, tally: &Tally, took: Duration, unsent: Option<u64>) -> String {
    let options = &run.options;
    let seconds = took.as_secs_f64();
    let good = tally.latency_ns.len();
    let quantiles: Vec<String> = QUANTILES
        .iter()
        .map(|(name, quantile)| format!("{}:{}", quoted(name), tally.latency_ns.value_at_quantile(*quantile)))
        .collect();
    let errors: Vec<String> = tally.errors.iter().map(|(what, count)| format!("{}:{count}", quoted(what))).collect();
    format!(
        "{{\"mode\":{},\"addr\":{},\"connections\":{},\"rate\":{},\"seconds\":{seconds:.3},\"requests\":{good},\
         \"requests_per_second\":{:.1},\"bytes\":{},\"latency_ns\":{{{}}},\"unsent\":{},\"errors\":{{{}}}}}",
        quoted(if options.mode == Mode::Http { "http" } else { "echo" }),
        quoted(&run.addr.to_string()),
        options.connections,
        options.rate.map_or("null".to_owned(), |rate| rate.to_string()),
        good as f64 / seconds,
        tally.bytes,
        quantiles.join(","),
        unsent.map_or("null".to_owned(), |unsent| unsent.to_string()),
        errors.join(","),
    )
}

/// A JSON string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            '\0'..' ' => _ = write!(quoted, "\\u{:04x}", u32::from(char)),
            _ => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

/// A time with three digits.
fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (number, unit) = match ns {
        ..1e3 => (ns, "ns"),
        ..1e6 => (ns / 1e3, "µs"),
        ..1e9 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = if number >= 100.0 {
        0
    } else if number >= 10.0 {
        1
    } else {
        2
    };
    format!("{number:.digits$} {unit}")
}

fn main() -> ExitCode {
    support::main("load", HELP, parse, |options| support::run(options.trace.clone(), move || load(options)))
}
