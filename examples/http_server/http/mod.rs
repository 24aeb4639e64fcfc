//! HTTP/1.1 as a server speaks it.
//!
//! ```text
//!   bytes -> request (a head, checked) -> body (skipped) -> answer (what to say) -> bytes
//!            \_________________________ connection: reads, writes, time ________________/
//! ```
//!
//! Only `connection` knows of a socket, and even that only by the few calls of `Transport`; the others are functions of bytes. So the tests
//! can send anything, cut anywhere.

pub mod answer;
pub mod body;
pub mod connection;
pub mod date;
pub mod request;

use std::time::Duration;

/// A status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status(pub u16);

impl Status {
    pub const OK: Status = Status(200);
    pub const BAD_REQUEST: Status = Status(400);
    pub const NOT_FOUND: Status = Status(404);
    pub const METHOD_NOT_ALLOWED: Status = Status(405);
    pub const REQUEST_TIMEOUT: Status = Status(408);
    pub const CONTENT_TOO_LARGE: Status = Status(413);
    pub const EXPECTATION_FAILED: Status = Status(417);
    pub const HEADERS_TOO_LARGE: Status = Status(431);
    pub const NOT_IMPLEMENTED: Status = Status(501);
    pub const VERSION_NOT_SUPPORTED: Status = Status(505);

    pub fn reason(self) -> &'static str {
        match self.0 {
            200 => "OK",
            400 => "Bad Request",
            404 => "Not Found",
            405 => "Method Not Allowed",
            408 => "Request Timeout",
            413 => "Content Too Large",
            417 => "Expectation Failed",
            431 => "Request Header Fields Too Large",
            501 => "Not Implemented",
            505 => "HTTP Version Not Supported",
            _ => "Unknown",
        }
    }
}

/// What a client may take of us.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long a connection may be idle between requests.
    pub idle: Duration,
    /// How long a request may take to arrive, from its first byte to its last, however the bytes drip in.
    pub request: Duration,
    /// How long a client may take for each [`answer::CHUNK`] of a response.
    pub write: Duration,
    /// Bytes of a request's head; 4 KiB at least.
    pub head_bytes: usize,
    /// Bytes of a request's body.
    pub body_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            idle: Duration::from_secs(60),
            request: Duration::from_secs(10),
            write: Duration::from_secs(10),
            head_bytes: 16 << 10,
            body_bytes: 4 << 20,
        }
    }
}
