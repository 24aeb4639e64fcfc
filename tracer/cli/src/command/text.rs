//! `gort text`: a trace as lines or objects, and lines as a trace.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Write};

use serde::Serialize;
use tracer::text::{BinaryReader, Error, RawEvent, Widths, to_text, to_trace};

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
    let result = match args {
        Text { back: true, .. } => to_trace(BufReader::new(bytes), &mut counted),
        Text { json: true, .. } => to_json(bytes, &mut counted),
        Text { plain: true, .. } => to_text(bytes, &mut counted, Widths::Drop),
        _ => to_text(bytes, &mut counted, Widths::Keep),
    };
    match result {
        Ok(()) => Ok(Verdict::Good),
        // Nobody reads on.
        Err(Error::Io(error)) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::Output(error)),
        Err(error) if counted.bytes == 0 => Err(Failure::Other(format!("{name}: {error}"))),
        Err(error) => Ok(say(Verdict::Damaged, &format!("{name}: {error}; what came before it is written"))),
    }
}

/// An event as it stands in the file.
#[derive(Serialize)]
struct Json<'e> {
    /// Where it begins.
    offset: u64,
    event: &'static str,
    args: Vec<(&'static str, u64)>,
    /// Of a stack.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    frames: Vec<FrameIds>,
    /// Of a string.
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<&'e str>,
    /// The same if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<&'e [u8]>,
}

/// A frame, its strings by number.
#[derive(Serialize)]
struct FrameIds {
    pc: u64,
    func: u64,
    file: u64,
    line: u64,
}

impl Json<'_> {
    fn new(offset: u64, event: &RawEvent) -> Json<'_> {
        let spec = event.kind.spec();
        let (args, frames) = event.args.split_at(spec.args.len().min(event.args.len()));
        let frames = frames.as_chunks().0.iter().map(|&[pc, func, file, line]| FrameIds { pc, func, file, line });
        let data = spec.data.then_some(&event.data[..]);
        let text = data.and_then(|data| std::str::from_utf8(data).ok());
        Json {
            offset,
            event: event.kind.name(),
            args: spec.args.iter().map(|arg| arg.name).zip(args.iter().copied()).collect(),
            frames: frames.collect(),
            data: text,
            bytes: data.filter(|_| text.is_none()),
        }
    }
}

fn to_json(trace: impl Read, mut to: impl Write) -> Result<(), Error> {
    let mut reader = BinaryReader::new(trace)?;
    loop {
        let offset = reader.offset();
        let Some(event) = reader.next_event()? else { return Ok(()) };
        serde_json::to_writer(&mut to, &Json::new(offset, event)).map_err(io::Error::from)?;
        writeln!(to)?;
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
