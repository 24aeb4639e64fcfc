//! Why a text or a trace could not be turned into the other.

use std::{fmt, io};

use crate::read;

/// Why there is no more.
#[derive(Debug)]
pub enum Error {
    /// Reading or writing failed.
    Io(io::Error),
    /// The trace's header is not one.
    Header(read::Error),
    /// What stands at this byte of a trace is no event.
    Binary {
        /// Where the event begins.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// What stands in this line of a text is no event.
    Text {
        /// Which line, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
}

impl Error {
    pub(super) fn line(line: u64, what: impl Into<String>) -> Error {
        Error::Text { line, what: what.into() }
    }

    pub(super) fn byte(offset: u64, what: impl Into<String>) -> Error {
        Error::Binary { offset, what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(e) => e.fmt(f),
            Error::Header(e) => e.fmt(f),
            Error::Binary { offset, what } => write!(f, "byte {offset}: {what}"),
            Error::Text { line, what } => write!(f, "line {line}: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => Some(e),
            Error::Header(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Io(e)
    }
}
