//! A server of HTTP beside wrk. Here a child is a server, a process of its own; wrk asks it for `/` through 64 connections and
//! tells how often and how fast it was answered.
//!
//! Each server must answer `Hello, world!` to a request of ours before wrk may ask; an answer that wrk takes for an error is
//! one. gort's server is `examples/http_server.rs`, Go's is net/http, tokio's is hyper.

pub mod hyper;

use crate::options::Options;
use crate::results::Key;
use crate::rivals::Contender;
use crate::rounds::{gist, output, undisturbed};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

const BODY: &str = "Hello, world!";
/// Until a server must listen, and answer its first request.
const START: Duration = Duration::from_secs(10);

/// Its version; the error says where to get it.
pub fn find_wrk() -> Result<String, String> {
    // It takes `--version` for a mistake and exits with 1, but says it.
    match Command::new("wrk").arg("--version").stdin(Stdio::null()).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            let words: Vec<&str> = said.split_whitespace().take(3).collect();
            Ok(words.join(" "))
        }
        Err(error) => Err(format!("this suite needs wrk, and there is none on the PATH ({error}): apt install wrk")),
    }
}

/// Starts a server and lets wrk measure it; answers the values of the workload. `program` is Go's, or this one.
pub fn measure(program: &Path, (_, procs, contender): Key, options: &Options) -> Result<Vec<f64>, String> {
    // Free just now; nobody else takes ports from this range by number.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let address = port.map_err(|error| format!("no port: {error}"))?.to_string();
    let mut command = match contender {
        Contender::Gort => {
            let own = program.parent().unwrap_or(Path::new(".")).join("examples/http_server");
            if !own.exists() {
                let build = "cargo build --release --package gort --example http_server";
                return Err(format!("there is no {}: {build}", own.display()));
            }
            Command::new(own)
        }
        _ => Command::new(program),
    };
    undisturbed(&mut command);
    match contender {
        Contender::Tokio => command.args(["--serve", &address, "--procs", &procs.to_string()]),
        _ => command.args(["--addr", &address]).env("GOMAXPROCS", procs.to_string()),
    };
    let mut server = Server::start(command)?;
    let result = server.listens().and_then(|address| {
        greet(&address)?;
        let seconds = options.at_least.as_secs().max(1);
        if !options.quick {
            wrk(&address, 1, options.limit)?;
        }
        wrk(&address, seconds, options.limit)
    });
    result.map_err(|why| server.end(&why))
}

/// A server; it ends with this value.
struct Server {
    child: Child,
    /// All it says on its standard error.
    errors: Option<std::thread::JoinHandle<String>>,
}

impl Server {
    fn start(mut command: Command) -> Result<Server, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
        let mut stderr = child.stderr.take().expect("piped");
        let errors = std::thread::spawn(move || {
            let mut text = Vec::new();
            let _ = stderr.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        Ok(Server { child, errors: Some(errors) })
    }

    /// The address in its first line.
    fn listens(&mut self) -> Result<String, String> {
        let stdout = self.child.stdout.take().expect("asked once");
        let (first, line) = channel();
        std::thread::spawn(move || {
            let mut stdout = BufReader::new(stdout);
            let mut text = String::new();
            let _ = stdout.read_line(&mut text);
            let _ = first.send(text);
            // What it says later must not fill the pipe.
            let _ = std::io::copy(&mut stdout, &mut std::io::sink());
        });
        let line = line.recv_timeout(START).map_err(|_| format!("did not listen within {START:?}"))?;
        let address = line.trim().strip_prefix("listening on ");
        address
            .map(str::to_owned)
            .ok_or_else(|| format!("its first line is {:?}, not \"listening on ...\"", line.trim()))
    }

    /// Ends it; why it failed, with what it said.
    fn end(&mut self, why: &str) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let said = self.errors.take().map(|errors| errors.join().expect("does not panic")).unwrap_or_default();
        let said = gist(&said);
        if said.is_empty() { why.to_owned() } else { format!("{why}; it said: {said}") }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// One request: it must be answered as all others are.
fn greet(address: &str) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("http://{address}/: {error}");
    let mut stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_read_timeout(Some(START)).map_err(failed)?;
    write!(stream, "GET / HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").map_err(failed)?;
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).map_err(failed)?;
    let reply = String::from_utf8_lossy(&reply);
    match reply.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") && body.trim_end() == BODY => Ok(()),
        _ => Err(format!("it does not answer {BODY:?}, but {:?}", gist(&reply))),
    }
}

/// The values of the workload: requests per second, microseconds per request, the 99th percentile in milliseconds.
fn wrk(address: &str, seconds: u64, limit: Duration) -> Result<Vec<f64>, String> {
    let mut command = Command::new("wrk");
    command.args(["-t1", "-c64", &format!("-d{seconds}s"), "--latency", &format!("http://{address}/")]);
    let (status, stdout, stderr) = output(command, limit)?;
    if !status.success() {
        return Err(format!("wrk: {status}: {}", gist(&(stderr + &stdout))));
    }
    let (rate, p99) = parse(&stdout)?;
    Ok(vec![rate, 1e6 / rate, p99])
}

/// Requests per second and the 99th percentile in milliseconds.
fn parse(said: &str) -> Result<(f64, f64), String> {
    let value = |key: &str| said.lines().find_map(|line| line.trim().strip_prefix(key)).map(str::trim);
    for trouble in ["Socket errors:", "Non-2xx or 3xx responses:"] {
        if let Some(count) = value(trouble) {
            return Err(format!("wrk counts {trouble} {count}"));
        }
    }
    let rate = value("Requests/sec:").and_then(|rate| rate.parse().ok()).filter(|&rate| rate > 0.0);
    match (rate, value("99%").and_then(milliseconds)) {
        (Some(rate), Some(p99)) => Ok((rate, p99)),
        _ => Err(format!("wrk prints {:?}", gist(said))),
    }
}

/// wrk chooses the unit.
fn milliseconds(text: &str) -> Option<f64> {
    let units = [("us", 1e-3), ("ms", 1.0), ("s", 1e3), ("m", 60e3)];
    let (number, factor) = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))?;
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
Running 5s test @ http://127.0.0.1:8080/
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   667.77us  106.06us   4.87ms   93.51%
    Req/Sec    95.89k     3.93k  100.29k    88.24%
  Latency Distribution
     50%  649.00us
     75%  683.00us
     90%  737.00us
     99%    1.07ms
  486489 requests in 5.10s, 60.31MB read
Requests/sec:  95389.57
Transfer/sec:     11.83MB
";

    #[test]
    fn reads_what_wrk_says() {
        assert_eq!(parse(SAID), Ok((95_389.57, 1.07)));
        assert_eq!(
            ["12.00us", "1.50s", "2.00m", "x"].map(milliseconds),
            [Some(0.012), Some(1_500.0), Some(120e3), None]
        );
    }

    #[test]
    fn errors_are_not_figures() {
        let socket =
            SAID.replace("Requests/sec", "  Socket errors: connect 0, read 3, write 0, timeout 0\nRequests/sec");
        assert!(parse(&socket).unwrap_err().contains("read 3"));
        let status = SAID.replace("Requests/sec", "  Non-2xx or 3xx responses: 7\nRequests/sec");
        assert!(parse(&status).unwrap_err().ends_with(" 7"));
        assert!(parse("unable to connect").is_err());
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_first_line_is_the_address() {
        let mut server = Server::start(shell("echo listening on 127.0.0.1:1; exec sleep 1000")).unwrap();
        assert_eq!(server.listens().as_deref(), Ok("127.0.0.1:1"));
        let mut server = Server::start(shell("echo no >&2; echo port taken")).unwrap();
        let why = server.listens().unwrap_err();
        assert!(why.contains("port taken"), "{why}");
        assert!(server.end(&why).ends_with("; it said: no"));
    }

    #[test]
    fn another_body_is_refused() {
        let answers = |body: &'static str| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap().to_string();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    request.push(byte[0]);
                }
                write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).unwrap();
            });
            let result = greet(&address);
            server.join().unwrap();
            result
        };
        assert_eq!(answers("Hello, world!\n"), Ok(()));
        assert!(answers("Hello").unwrap_err().contains("does not answer"));
    }
}
