//! The body of a message: where it ends. The bytes themselves are skipped.

/// How the head says where the body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    Length(u64),
    Chunked,
}

/// A line with a chunk's size, extensions included.
const SIZE_LINE: usize = 256;

/// Headers after the last chunk.
const TRAILERS: usize = 16;

/// Bytes of those headers.
const TRAILER_BYTES: usize = 2 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Not as the framing has it.
    Malformed,
    /// Longer than allowed.
    TooLarge,
}

/// A body that is being read.
#[derive(Debug)]
pub struct Body {
    state: State,
    /// Bytes that may still come.
    allowance: u64,
}

#[derive(Debug)]
enum State {
    /// So many bytes, and that was it.
    Length(u64),
    /// The line with a chunk's size.
    Size,
    /// So many bytes of a chunk.
    Data(u64),
    /// The line end after a chunk.
    DataEnd,
    Trailers,
    Done,
}

impl Body {
    /// A body of at most `allowance` bytes.
    ///
    /// # Errors
    ///
    /// `TooLarge` if it says itself that it has more.
    pub fn new(framing: Framing, allowance: u64) -> Result<Body, Fault> {
        let state = match framing {
            Framing::Length(0) => State::Done,
            Framing::Length(length) if length > allowance => return Err(Fault::TooLarge),
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
        };
        Ok(Body { state, allowance })
    }

    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// How many of `bytes` belong to the body. What is left over has to come again, with more behind it, unless the body is done.
    ///
    /// # Errors
    ///
    /// See [`Fault`].
    pub fn skip(&mut self, bytes: &[u8]) -> Result<usize, Fault> {
        let mut at = 0;
        loop {
            let rest = &bytes[at..];
            let (skipped, next) = match self.state {
                State::Length(left) => match take(left, rest) {
                    (n, 0) => (n, State::Done),
                    (n, left) => {
                        self.state = State::Length(left);
                        return Ok(at + n);
                    }
                },
                State::Size => match self.size(rest)? {
                    Some((n, 0)) => (n, State::Trailers),
                    Some((n, size)) => (n, State::Data(size)),
                    None => return Ok(at),
                },
                State::Data(left) => match take(left, rest) {
                    (n, 0) => (n, State::DataEnd),
                    (n, left) => {
                        self.state = State::Data(left);
                        return Ok(at + n);
                    }
                },
                State::DataEnd => match rest {
                    [b'\r', b'\n', ..] => (2, State::Size),
                    [] | [b'\r'] => return Ok(at),
                    _ => return Err(Fault::Malformed),
                },
                State::Trailers => match trailers(rest)? {
                    Some(n) => (n, State::Done),
                    None => return Ok(at),
                },
                State::Done => return Ok(at),
            };
            at += skipped;
            self.state = next;
        }
    }

    /// A line with a chunk's size: its length, and the size.
    fn size(&mut self, bytes: &[u8]) -> Result<Option<(usize, u64)>, Fault> {
        let Some(first) = bytes.first() else { return Ok(None) };
        // The parser takes a line without a number for a zero.
        if !first.is_ascii_hexdigit() {
            return Err(Fault::Malformed);
        }
        match httparse::parse_chunk_size(&bytes[..bytes.len().min(SIZE_LINE)]) {
            Ok(httparse::Status::Complete((n, size))) => {
                self.allowance = self.allowance.checked_sub(size).ok_or(Fault::TooLarge)?;
                Ok(Some((n, size)))
            }
            Ok(httparse::Status::Partial) if bytes.len() < SIZE_LINE => Ok(None),
            _ => Err(Fault::Malformed),
        }
    }
}

/// What comes after the last chunk: its length.
fn trailers(bytes: &[u8]) -> Result<Option<usize>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; TRAILERS];
    match httparse::parse_headers(&bytes[..bytes.len().min(TRAILER_BYTES)], &mut headers) {
        Ok(httparse::Status::Complete((n, _))) => Ok(Some(n)),
        Ok(httparse::Status::Partial) if bytes.len() < TRAILER_BYTES => Ok(None),
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => Err(Fault::TooLarge),
        Err(_) => Err(Fault::Malformed),
    }
}

/// How many of the `left` bytes are there, and how many are to come.
fn take(left: u64, bytes: &[u8]) -> (usize, u64) {
    let n = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
    (n, left - n as u64)
}
