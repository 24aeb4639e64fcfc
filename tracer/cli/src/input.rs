//! Where traces come from: files and standard input, packed or not, and how far reading has come.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal, Read};
use std::path::Path;
use std::time::Duration;

use flate2::bufread::MultiGzDecoder;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use ruzstd::decoding::StreamingDecoder;
use tracer::read::{Error, Event, Info, Reader, Tables, Version};

use crate::{Verdict, say};

/// Files from this size on have a progress bar.
const PROGRESS_BYTES: u64 = 32 << 20;

/// How much is read at once: the reader asks for this much.
const BUFFER_BYTES: usize = 256 << 10;

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// A trace that is open.
pub(crate) struct Input {
    /// What to call it.
    pub name: String,
    reader: Reader<Box<dyn Read>>,
    bar: ProgressBar,
}

/// How reading a trace ended.
#[derive(Debug)]
pub(crate) struct End {
    pub name: String,
    /// Why it ended before the trace did.
    pub damage: Option<Error>,
    /// Events that were given, the boundaries between generations not counted.
    pub events: u64,
    /// Bytes at the end that belong to a generation without events.
    pub unfinished_bytes: u64,
}

/// The bytes of a file, unpacked if they are packed.
pub(crate) struct Source {
    /// What to call it.
    pub name: String,
    pub from: Box<dyn Read>,
    pub bar: ProgressBar,
}

impl Source {
    /// Opens a file, or standard input. The error is a sentence.
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
        let from = unpack(bar.wrap_read(from)).map_err(|error| format!("{name}: cannot read it: {error}"))?;
        Ok(Source { name, from, bar })
    }
}

impl Input {
    /// Opens a trace. The error is a sentence.
    pub fn open(path: &Path, progress: bool) -> Result<Input, String> {
        let Source { name, from, bar } = Source::open(path, progress)?;
        match Reader::new(from) {
            Ok(reader) => Ok(Input { name, reader, bar }),
            Err(error) => Err(format!("{name}: {error}")),
        }
    }

    pub fn version(&self) -> Version {
        self.reader.version()
    }

    /// Gives all events, `Sync`s included, up to the end of the trace, or the damage, or an error of `each`.
    pub fn each<E>(mut self, mut each: impl FnMut(&Event, &Info, &Tables) -> Result<(), E>) -> Result<End, E> {
        let mut events = 0;
        let damage = loop {
            match self.reader.advance() {
                Ok(true) => {
                    let event = self.reader.event();
                    events += u64::from(event.kind != tracer::wire::Ev::Sync);
                    each(event, self.reader.generation(), self.reader.tables())?;
                }
                Ok(false) => break None,
                Err(error) => break Some(error),
            }
        };
        self.bar.finish_and_clear();
        let unfinished_bytes = self.reader.unfinished_bytes();
        Ok(End { name: self.name, damage, events, unfinished_bytes })
    }
}

impl End {
    /// Says on standard error what is wrong with the trace, if something is, and answers what that comes to.
    pub fn verdict(&self) -> Verdict {
        let (name, events) = (&self.name, self.events);
        let (verdict, word) = match &self.damage {
            None if events == 0 => return say(Verdict::Good, &format!("{name}: a trace without events")),
            None => return Verdict::Good,
            Some(_) if events == 0 => (Verdict::Unreadable, "unreadable"),
            Some(_) => (Verdict::Damaged, "damaged"),
        };
        let damage = self.damage.as_ref().map(ToString::to_string).unwrap_or_default();
        say(verdict, &format!("{name}: {word}: {damage}"));
        if verdict == Verdict::Damaged {
            say(verdict, &format!("{name}: this is of the {events} events before the damage"));
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
