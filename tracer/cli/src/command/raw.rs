//! `gort text`: a trace as lines of text, and such lines as a trace.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, IsTerminal, Read, Write};

use tracer::text::{self, Error, Widths};

use crate::args::Text;
use crate::input::Source;
use crate::text::Out;
use crate::{Failure, Outcome, Verdict};

/// A trace begins so; everything else is taken for text.
const TRACE: &[u8] = b"go 1.";

pub(crate) fn run(args: &Text, progress: bool, out: &mut Out) -> Outcome {
    let source = Source::open(&args.file, progress)?;
    let mut from = BufReader::new(source.from);
    let cannot = |error: io::Error| format!("{}: cannot read it: {error}", source.name);
    // One look may bring less.
    let mut head = Vec::new();
    (&mut from).take(TRACE.len() as u64).read_to_end(&mut head).map_err(cannot)?;
    let is_trace = head == TRACE;
    let from = BufReader::new(io::Cursor::new(head).chain(from));
    let outcome = match &args.output {
        Some(path) if path.as_os_str() != "-" => {
            let cannot = |error: io::Error| format!("{}: cannot write it: {error}", path.display());
            let mut file = BufWriter::new(File::create(path).map_err(cannot)?);
            convert(is_trace, from, &mut file, args.plain)
        }
        _ if !is_trace && io::stdout().is_terminal() => {
            return Err(Failure::Other("a trace is not for terminals: name a file with --output".into()));
        }
        _ => convert(is_trace, from, out, args.plain),
    };
    source.bar.finish_and_clear();
    let (written, result) = outcome;
    match result {
        Ok(()) => Ok(Verdict::Good),
        Err(Error::Io(error)) if written.is_none() => Err(Failure::Output(error)),
        Err(error) => {
            eprintln!("gort: {}: {error}", source.name);
            let none = written == Some(0) || is_of_the_first_line(&error);
            Ok(if none { Verdict::Unreadable } else { Verdict::Damaged })
        }
    }
}

/// A text whose first line is wrong, or a trace without a header, is no damaged one.
fn is_of_the_first_line(error: &Error) -> bool {
    matches!(error, Error::Header(_) | Error::Text { line: 1, .. })
}

/// How many bytes were written, `None` if that failed; and how the conversion ended.
fn convert(is_trace: bool, from: impl BufRead, to: &mut dyn Write, plain: bool) -> (Option<u64>, Result<(), Error>) {
    let mut to = Counted { to, bytes: Some(0) };
    let result = if is_trace {
        text::to_text(from, &mut to, if plain { Widths::Drop } else { Widths::Keep })
    } else {
        text::to_trace(from, &mut to)
    };
    (to.bytes, result)
}

/// Counts what is written, until that fails: then the error is not the trace's.
struct Counted<'a> {
    to: &'a mut dyn Write,
    bytes: Option<u64>,
}

impl Write for Counted<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self.to.write(buf) {
            Ok(n) => {
                self.bytes = self.bytes.map(|bytes| bytes + n as u64);
                Ok(n)
            }
            Err(error) => {
                if error.kind() != io::ErrorKind::Interrupted {
                    self.bytes = None;
                }
                Err(error)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().inspect_err(|_| self.bytes = None)
    }
}
