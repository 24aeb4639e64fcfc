//! Where traces come from: files and standard input, packed or not, and how far reading has come.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ruzstd::decoding::StreamingDecoder;
use tracer::read::salvage::{Report, Salvage};
use tracer::read::{self, Event, Info, Tables, TraceFile, Version};
use tracer::wire::Ev;

use crate::{Verdict, say};

/// Files from this size on have a progress bar.
const PROGRESS_BYTES: u64 = 32 << 20;

/// How much is read at once: the reader asks for this much.
const BUFFER_BYTES: usize = 256 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Damages of one trace that are told on standard error.
const DAMAGES_SHOWN: u64 = 3;

/// A file that is open, unpacked.
pub(crate) struct Source {
    /// What to call it.
    pub name: String,
    pub bytes: Box<dyn Read>,
    bar: ProgressBar,
}

/// A trace that is open.
pub(crate) struct Input {
    name: String,
    salvage: Salvage<Bytes>,
    bar: ProgressBar,
}

/// How reading a trace ended.
#[derive(Debug)]
pub(crate) struct End {
    pub name: String,
    /// Events that were given, the boundaries between generations not counted.
    pub events: u64,
    pub report: Report,
}

/// What a trace is read from.
enum Bytes {
    /// In order: what is packed, and what is no file.
    Stream(Box<dyn Read>),
    /// In any order.
    File(TraceFile, ProgressBar),
}

impl read::Input for Bytes {
    fn read_next(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Bytes::Stream(from) => from.read(buf),
            Bytes::File(file, _) => file.read_next(buf),
        }
    }

    fn size(&self) -> Option<u64> {
        match self {
            Bytes::Stream(_) => None,
            Bytes::File(file, _) => file.size(),
        }
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            Bytes::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
            Bytes::File(file, bar) => {
                let n = file.read_at(buf, offset)?;
                // Headers are read a second time, with what they are headers of.
                let end = bar.length().unwrap_or(u64::MAX);
                bar.set_position(bar.position().saturating_add(n as u64).min(end));
                Ok(n)
            }
        }
    }
}

impl Bytes {
    /// The file at `path`, if it can be read in any order and is not packed.
    fn of_file(path: &Path, progress: bool) -> io::Result<Option<Bytes>> {
        // Not even opened: whoever writes to a pipe sees that somebody comes and goes.
        if path == Path::new("-") || !std::fs::metadata(path)?.is_file() {
            return Ok(None);
        }
        let Some(file) = TraceFile::new(File::open(path)?)? else { return Ok(None) };
        let mut head = [0; ZSTD.len()];
        let n = read::Input::read_at(&file, &mut head, 0)?;
        if head[..n].starts_with(&GZIP) || head[..n] == ZSTD {
            return Ok(None);
        }
        let bar = progress_bar(read::Input::size(&file), progress);
        Ok(Some(Bytes::File(file, bar)))
    }
}

impl Source {
    /// Opens a file. The error is a sentence.
    pub fn open(path: &Path, progress: bool) -> Result<Source, String> {
        let (name, from, bytes): (String, Box<dyn Read>, _) = if path == Path::new("-") {
            ("standard input".into(), Box::new(io::stdin().lock()), None)
        } else {
            let name = path.display().to_string();
            let file = File::open(path).map_err(|error| format!("{name}: cannot open it: {error}"))?;
            let metadata = file.metadata().map_err(|error| format!("{name}: cannot look at it: {error}"))?;
            if metadata.is_dir() {
                return Err(format!("{name}: this is a folder; name a trace in it"));
            }
            (name, Box::new(file), Some(metadata.len()).filter(|_| metadata.is_file()))
        };
        let bar = progress_bar(bytes, progress);
        let bytes = unpack(bar.wrap_read(from)).map_err(|error| format!("{name}: cannot read it: {error}"))?;
        Ok(Source { name, bytes, bar })
    }
}

impl Input {
    /// Opens a trace. The error is a sentence.
    pub fn open(path: &Path, progress: bool) -> Result<Input, String> {
        // Whatever is wrong with it, the other way says, too.
        let (name, bytes, bar) = match Bytes::of_file(path, progress) {
            Ok(Some(Bytes::File(file, bar))) => (path.display().to_string(), Bytes::File(file, bar.clone()), bar),
            _ => {
                let Source { name, bytes, bar } = Source::open(path, progress)?;
                (name, Bytes::Stream(bytes), bar)
            }
        };
        match Salvage::new(bytes) {
            Ok(salvage) => Ok(Input { name, salvage, bar }),
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    pub fn version(&self) -> Version {
        self.salvage.version()
    }

    /// Gives all events, `Sync`s included, and nothing where the trace is broken: what follows is a trace of its own. Up to the
    /// end, or an error of `each`.
    pub fn each<E>(mut self, mut each: impl FnMut(Option<&Event>, &Info, &Tables) -> Result<(), E>) -> Result<End, E> {
        let mut events = 0;
        self.salvage.each(|event, info, tables| {
            events += u64::from(event.is_some_and(|event| event.kind != Ev::Sync));
            each(event, info, tables)
        })?;
        self.bar.finish_and_clear();
        Ok(End { name: self.name, events, report: self.salvage.finish() })
    }
}

impl End {
    /// What the state of the trace comes to.
    pub fn state(&self) -> Verdict {
        match self.report.is_whole() {
            true => Verdict::Good,
            false if self.events == 0 => Verdict::Unreadable,
            false => Verdict::Damaged,
        }
    }

    /// Says on standard error what is wrong with the trace, if something is, and answers what that comes to.
    pub fn verdict(&self) -> Verdict {
        let End { name, events, report } = self;
        let verdict = self.state();
        let word = match verdict {
            Verdict::Good if *events == 0 => return say(verdict, &format!("{name}: a trace without events")),
            Verdict::Good => return verdict,
            Verdict::Damaged => "damaged",
            Verdict::Unreadable => "unreadable",
        };
        for damage in report.damage.iter().take(DAMAGES_SHOWN as usize) {
            say(verdict, &format!("{name}: {word}: {damage}"));
        }
        if report.damages > DAMAGES_SHOWN {
            say(verdict, &format!("{name}: {word}: in {} places in all", report.damages));
        }
        if verdict == Verdict::Damaged {
            let whole = report.generations;
            say(
                verdict,
                &format!("{name}: this is of the {events} events that could be read, {whole} generations being whole"),
            );
        }
        verdict
    }
}

fn progress_bar(bytes: Option<u64>, wanted: bool) -> ProgressBar {
    let Some(bytes) = bytes.filter(|&bytes| bytes >= PROGRESS_BYTES && wanted && io::stderr().is_terminal()) else {
        return ProgressBar::hidden();
    };
    let bar = ProgressBar::with_draw_target(Some(bytes), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{wide_bar} {bytes}/{total_bytes} {bytes_per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

/// Whatever is in `from`, unpacked if it is packed.
fn unpack(from: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut from = BufReader::with_capacity(BUFFER_BYTES, from);
    // One look at a pipe may bring less than four bytes: read until there are, or there are no more.
    let mut head = Vec::new();
    (&mut from).take(ZSTD.len() as u64).read_to_end(&mut head)?;
    let (gzip, zstd) = (head.starts_with(&GZIP), head == ZSTD);
    let whole = BufReader::with_capacity(BUFFER_BYTES, io::Cursor::new(head).chain(from));
    Ok(if gzip {
        Box::new(MultiGzDecoder::new(whole))
    } else if zstd {
        Box::new(Zstd::Between(Some(whole)))
    } else {
        Box::new(whole)
    })
}

/// The frames of a zstd file, one after the other.
enum Zstd<R: BufRead> {
    /// Before a frame, or at the end of the file.
    Between(Option<R>),
    Inside(Box<StreamingDecoder<R, ruzstd::decoding::FrameDecoder>>),
}

impl<R: BufRead> Read for Zstd<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            match self {
                Zstd::Between(from) => {
                    let Some(mut whole) = from.take_if(|_| true) else { return Ok(0) };
                    if whole.fill_buf()?.is_empty() {
                        return Ok(0);
                    }
                    let decoder = StreamingDecoder::new(whole).map_err(io::Error::other)?;
                    *self = Zstd::Inside(Box::new(decoder));
                }
                Zstd::Inside(decoder) => {
                    let n = decoder.read(buf)?;
                    if n > 0 || buf.is_empty() {
                        return Ok(n);
                    }
                    let Zstd::Inside(decoder) = std::mem::replace(self, Zstd::Between(None)) else { unreachable!() };
                    *self = Zstd::Between(Some(decoder.into_inner()));
                }
            }
        }
    }
}
