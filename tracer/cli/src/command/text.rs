//! `gort text`: a trace as lines, and lines as a trace.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Write};

use tracer::text::{Error, Widths, to_text, to_trace};

use crate::args::Text;
use crate::input::Source;
use crate::text::Out;
use crate::{Failure, Outcome, Verdict, say};

pub(crate) fn run(args: &Text, progress: bool, out: &mut Out) -> Outcome {
    // What shows on the terminal must not be mixed with the bar.
    let source = Source::open(&args.file, progress && args.output.is_some())?;
    match &args.output {
        Some(path) if path.as_os_str() != "-" => {
            let cannot = |error: io::Error| Failure::Other(format!("{}: cannot write it: {error}", path.display()));
            let mut file = BufWriter::with_capacity(64 << 10, File::create(path).map_err(cannot)?);
            let verdict = convert(args, source, &mut file)?;
            file.flush().map_err(cannot)?;
            Ok(verdict)
        }
        _ => convert(args, source, out),
    }
}

fn convert(args: &Text, source: Source, to: &mut impl Write) -> Outcome {
    let Source { name, bytes, .. } = source;
    let mut counted = Counted { to, bytes: 0 };
    let result = match args.back {
        true => to_trace(BufReader::new(bytes), &mut counted),
        false => to_text(bytes, &mut counted, if args.plain { Widths::Drop } else { Widths::Keep }),
    };
    match result {
        Ok(()) => Ok(Verdict::Good),
        // Nobody reads on.
        Err(Error::Io(error)) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        Err(error) if counted.bytes == 0 => Err(Failure::Other(format!("{name}: {error}"))),
        Err(error) => Ok(say(Verdict::Damaged, &format!("{name}: {error}; what came before it is written"))),
    }
}

/// Knows whether anything was written.
struct Counted<'w, W> {
    to: &'w mut W,
    bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.to.write(buf)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}
