//! What can be wrong with a trace, and where.

use std::fmt;
use std::io;

use super::rule::Rule;
use crate::wire::Ev;

/// The thing that a rule was broken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Resource {
    /// Nothing smaller than the file.
    Trace,
    /// A generation, by its number.
    Generation(u64),
    /// A goroutine.
    G(i64),
    /// A P.
    P(i64),
    /// An M.
    M(i64),
    /// An id of the string table.
    String(u64),
    /// An id of the stack table.
    Stack(u64),
    /// A user task.
    Task(u64),
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Resource::Trace => f.write_str("trace"),
            Resource::Generation(n) => write!(f, "generation {n}"),
            Resource::G(id) => write!(f, "G {id}"),
            Resource::P(id) => write!(f, "P {id}"),
            Resource::M(id) => write!(f, "M {id}"),
            Resource::String(id) => write!(f, "string {id}"),
            Resource::Stack(id) => write!(f, "stack {id}"),
            Resource::Task(id) => write!(f, "task {id}"),
        }
    }
}

/// A rule that the trace breaks. What there is to say about it are its fields, those of [`Facts`].
///
/// It is a pointer, as it is a part of every step's result and hardly ever there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(Box<Facts>);

/// Which rule is broken, for what, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The rule.
    pub rule: Rule,
    /// What it was broken for.
    pub resource: Resource,
    /// The byte of the file at which the offending event, entry or batch begins.
    pub offset: u64,
    /// The event, if it was one.
    pub event: Option<Ev>,
    /// What was found instead, in words; may be empty and may have many lines.
    pub detail: String,
}

impl Broken {
    /// A broken rule without a detail and not about an event.
    #[cold]
    pub fn new(rule: Rule, resource: Resource, offset: u64) -> Broken {
        Broken(Box::new(Facts { rule, resource, offset, event: None, detail: String::new() }))
    }

    /// The same, with what was found.
    pub fn detail(mut self, detail: impl Into<String>) -> Broken {
        self.0.detail = detail.into();
        self
    }

    /// The same, about this event.
    pub fn event(mut self, event: Ev) -> Broken {
        self.0.event = Some(event);
        self
    }
}

impl std::ops::Deref for Broken {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        &self.0
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.resource)?;
        if let Some(event) = self.event {
            write!(f, ", {},", event.name())?;
        }
        write!(f, " breaks [{}]: {}", self.rule.name(), self.rule.text())?;
        if !self.detail.is_empty() {
            write!(f, " {}", self.detail)?;
        }
        Ok(())
    }
}

/// Why reading ended before the trace did.
#[derive(Debug)]
pub enum Error {
    /// The source failed.
    Io(io::Error),
    /// The file does not begin with the header of a Go execution trace.
    NotATrace,
    /// The file is a Go execution trace of a version that this reader does not know (`go 1.N`).
    Version(u32),
    /// The trace breaks a rule. What was read before is good.
    Broken(Broken),
}

impl Error {
    /// The broken rule, if it is one.
    pub fn broken(&self) -> Option<&Broken> {
        match self {
            Error::Broken(broken) => Some(broken),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Io(e) => write!(f, "cannot read the trace: {e}"),
            Error::NotATrace => f.write_str("not a Go execution trace"),
            Error::Version(n @ ..22) => {
                write!(
                    f,
                    "a trace of Go 1.{n}, in the format before v2; this reader knows the versions 1.22, 1.23, 1.25 and \
                     1.26: open it with `go tool trace`, or record it anew with Go 1.22 or later"
                )
            }
            Error::Version(n) => write!(
                f,
                "a trace in the version of Go 1.{n}, which this reader does not know; it knows 1.22, 1.23, 1.25 and \
                 1.26: a newer one may be needed"
            ),
            Error::Broken(broken) => broken.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Io(e)
    }
}

impl From<Broken> for Error {
    fn from(broken: Broken) -> Error {
        Error::Broken(broken)
    }
}
