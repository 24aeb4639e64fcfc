//! What the server says to a request.

use super::Status;
use super::date::Date;
use super::request::{Request, number};
use rt::sync::LazyLock;
use std::io::Write;
use std::time::Duration;

/// The end of the head, and the body.
const HELLO: (&[u8], &[u8]) = (b"Content-Length: 13\r\n\r\n", b"Hello, world!");

/// The longest sleep that can be asked for.
const SLOW_MS: u64 = 60_000;

/// The longest download, in MiB.
const DOWNLOAD_MB: u64 = 4096;

/// Bytes that a download sends at a time.
pub const CHUNK: usize = 64 << 10;

/// A chunk as it goes over the wire: size, data, line end.
pub static WIRE_CHUNK: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut wire = format!("{CHUNK:x}\r\n").into_bytes();
    wire.extend((0..CHUNK).map(|i| b"0123456789abcdef\n"[i % 17]));
    wire.extend(b"\r\n");
    wire
});

/// The data in [`WIRE_CHUNK`].
pub fn plain_chunk() -> &'static [u8] {
    let wire = &WIRE_CHUNK[..];
    &wire[wire.len() - CHUNK - 2..wire.len() - 2]
}

pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// What to say. It borrows nothing of the request, whose bytes may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Hello,
    /// Hello, after a sleep.
    Slow(Duration),
    /// So many chunks.
    Download(u64),
    Error(Status),
}

impl Answer {
    /// What is said to a request.
    pub fn to(request: &Request<'_>) -> Answer {
        let (path, query) = request.target.split_once('?').unwrap_or((request.target, ""));
        let answer = match path {
            "/" => Some(Answer::Hello),
            "/slow" => parameter(query, "ms", 100, SLOW_MS).map(|ms| Answer::Slow(Duration::from_millis(ms))),
            "/download" => {
                parameter(query, "mb", 1, DOWNLOAD_MB).map(|mb| Answer::Download(mb * ((1 << 20) / CHUNK as u64)))
            }
            _ => return Answer::Error(Status::NOT_FOUND),
        };
        match request.method {
            "GET" | "HEAD" => answer.unwrap_or(Answer::Error(Status::BAD_REQUEST)),
            _ => Answer::Error(Status::METHOD_NOT_ALLOWED),
        }
    }
}

/// The number of a query's `name=number`; `None` if it is none, or too large.
fn parameter(query: &str, name: &str, default: u64, most: u64) -> Option<u64> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    match pairs.find(|(key, _)| *key == name) {
        Some((_, value)) => number(value.as_bytes()).filter(|number| *number <= most),
        None => Some(default),
    }
}

/// How a response is to be written.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// No body: the request was HEAD.
    pub head_only: bool,
    pub is_old: bool,
    pub keep_alive: bool,
}

/// Writes a whole response, or the head of a download, whose body is the connection's.
pub fn write(out: &mut Vec<u8>, answer: Answer, manner: Manner, date: &mut Date) {
    match answer {
        Answer::Hello | Answer::Slow(_) => {
            begin(out, Status::OK, manner, date);
            out.extend_from_slice(HELLO.0);
            if !manner.head_only {
                out.extend_from_slice(HELLO.1);
            }
        }
        Answer::Download(_) => {
            begin(out, Status::OK, manner, date);
            if !manner.is_old {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            }
            out.extend_from_slice(b"\r\n");
        }
        Answer::Error(status) => {
            let mut text = [0; 64];
            let mut rest = &mut text[..];
            // As much as there is room for; the longest reason has 31 characters.
            let _ = writeln!(rest, "{} {}", status.0, status.reason());
            let length = 64 - rest.len();
            begin(out, status, manner, date);
            // Writing to a Vec does not fail.
            let _ = write!(out, "Content-Length: {length}\r\n\r\n");
            if !manner.head_only {
                out.extend_from_slice(&text[..length]);
            }
        }
    }
}

fn begin(out: &mut Vec<u8>, status: Status, manner: Manner, date: &mut Date) {
    match status {
        Status::OK => out.extend_from_slice(b"HTTP/1.1 200 OK\r\n"),
        _ => {
            let _ = write!(out, "HTTP/1.1 {} {}\r\n", status.0, status.reason());
        }
    }
    out.extend_from_slice(b"Date: ");
    out.extend_from_slice(date.now());
    out.extend_from_slice(b"\r\nContent-Type: text/plain\r\n");
    if status == Status::METHOD_NOT_ALLOWED {
        out.extend_from_slice(b"Allow: GET, HEAD\r\n");
    }
    match (manner.keep_alive, manner.is_old) {
        (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
        (true, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
        (true, false) => {}
    }
}
