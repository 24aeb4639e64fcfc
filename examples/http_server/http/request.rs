//! The head of a request: what a server has to know of it, and whether it is one.
//!
//! Where the length of a body can be read in two ways, somebody between the client and us may read it in the other one, and take the
//! rest for a request. Such heads are refused, however well meant.

use super::Status;
use super::body::Framing;
use httparse::{Error, Header};
use std::mem::MaybeUninit;

/// Headers of one request.
const HEADERS: usize = 100;

/// A request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'b> {
    pub method: &'b str,
    /// Path and query.
    pub target: &'b str,
    /// HTTP/1.0, which has neither chunks nor keep-alive unless asked for.
    pub is_old: bool,
    pub keep_alive: bool,
    /// The client waits for a word before it sends the body.
    pub expects_continue: bool,
    pub framing: Framing,
}

/// The head that `bytes` begins with, and its length; `None` if there is more to come.
///
/// # Errors
///
/// The status to refuse it with.
pub fn parse(bytes: &[u8]) -> Result<Option<(Request<'_>, usize)>, Status> {
    let mut headers = [const { MaybeUninit::uninit() }; HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(bytes, &mut headers) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(Error::TooManyHeaders) => return Err(Status::HEADERS_TOO_LARGE),
        Err(Error::Version) => return Err(Status::VERSION_NOT_SUPPORTED),
        Err(_) => return Err(Status::BAD_REQUEST),
    };
    let (Some(method), Some(target), Some(version)) = (parsed.method, parsed.path, parsed.version) else {
        return Err(Status::BAD_REQUEST);
    };
    let is_old = version == 0;
    let mut seen = Seen::default();
    for header in parsed.headers.iter() {
        seen.header(header)?;
    }
    // RFC 9112, 3.2: exactly one, since HTTP/1.1.
    if seen.hosts > 1 || (seen.hosts == 0 && !is_old) {
        return Err(Status::BAD_REQUEST);
    }
    let framing = match (seen.length, seen.is_chunked) {
        (Some(_), true) => return Err(Status::BAD_REQUEST),
        (None, true) if is_old => return Err(Status::BAD_REQUEST),
        (None, true) => Framing::Chunked,
        (Some(length), false) => Framing::Length(length),
        (None, false) => Framing::Length(0),
    };
    let request = Request {
        method,
        target: origin_form(target),
        is_old,
        keep_alive: !seen.close && (!is_old || seen.keep_alive),
        expects_continue: seen.expects_continue && !is_old,
        framing,
    };
    Ok(Some((request, length)))
}

/// What the headers say that matters here.
#[derive(Default)]
struct Seen {
    hosts: usize,
    length: Option<u64>,
    is_chunked: bool,
    close: bool,
    keep_alive: bool,
    expects_continue: bool,
}

impl Seen {
    #[inline]
    fn header(&mut self, header: &Header<'_>) -> Result<(), Status> {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        // By length first: of a browser's dozen headers hardly one is compared.
        match header.name.len() {
            4 if is("host") => self.hosts += 1,
            6 if is("expect") => match header.value.eq_ignore_ascii_case(b"100-continue") {
                true => self.expects_continue = true,
                false => return Err(Status::EXPECTATION_FAILED),
            },
            10 if is("connection") => self.connection(header.value),
            14 if is("content-length") => match (self.length, number(header.value)) {
                (None, Some(length)) => self.length = Some(length),
                _ => return Err(Status::BAD_REQUEST),
            },
            17 if is("transfer-encoding") => {
                if self.is_chunked {
                    return Err(Status::BAD_REQUEST);
                }
                if !header.value.eq_ignore_ascii_case(b"chunked") {
                    return Err(Status::NOT_IMPLEMENTED);
                }
                self.is_chunked = true;
            }
            _ => {}
        }
        Ok(())
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|byte| *byte == b',') {
            let option = option.trim_ascii();
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }
}

/// Digits and nothing else.
pub fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Path and query of a target that names the host as well, as for a proxy.
fn origin_form(target: &str) -> &str {
    let Some((scheme, rest)) = target.split_once("://") else { return target };
    if !scheme.eq_ignore_ascii_case("http") {
        return target;
    }
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => &rest[at..],
        _ => "/",
    }
}
