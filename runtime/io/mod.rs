//! Input and output that block the goroutine and not its processor: standard streams, pipes, and std's traits.
//!
//! [`stdin`], [`stdout`] and [`stderr`] are std's streams behind locks of our own. The traits and adapters are std's own, and work on
//! everything here: `BufReader`, `copy`, `read_to_string` and the rest.
//!
//! ```no_run
//! use rt::io::{BufRead, Write};
//!
//! rt::run(|| {
//!     for line in rt::io::stdin().lock().lines() {
//!         writeln!(rt::io::stdout(), "{}", line?.to_uppercase())?;
//!     }
//!     Ok::<(), rt::io::Error>(())
//! }).unwrap();
//! ```
//!
//! # Why not std's handles
//!
//! `std::io::stdin().lock()` and `std::io::stdout().lock()` are guards of locks that belong to the thread. A goroutine that holds one and
//! calls into this library may go on on another thread, where the guard unlocks what that thread does not hold, and where
//! std's lock of stdout, which its owner may take again, lets in the goroutine that runs on the first thread now. The locks here belong to
//! the goroutine, and may be held across anything.
//!
//! `println!` and `eprintln!` are all right: they take the lock and let go of it without a call into this library (unless what is
//! printed calls it). They write to the same buffer as [`stdout`] does, so what one goroutine prints in both ways comes out in order.
//! But a full pipe holds them up in plain code, and the locks here do not keep them out.
//!
//! How a stream waits: `io/stream.rs`.

pub(crate) mod stream;

use std::fmt;
use std::marker::PhantomData;
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

pub use std::io::{
    BufRead, BufReader, BufWriter, Bytes, Chain, Cursor, Empty, Error, ErrorKind, IntoInnerError, IoSlice, IoSliceMut,
    IsTerminal, LineWriter, Lines, Read, Repeat, Result, Seek, SeekFrom, Sink, Split, Take, Write, copy, empty,
    prelude, read_to_string, repeat, sink,
};

use crate::sync::{LazyLock, Mutex, MutexGuard};
use stream::{Way, when_ready};
pub(crate) use stream::{fd_of, read_stream, write_stream};

// ------------------------------------------------------------------------------------------------ standard input

/// Where [`STDIN`]'s buffer is filled from: std's, which reads past its own buffer when that is empty and ours is as large.
struct Source(std::io::Stdin);

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        // IO1
        when_ready(&self.0, Way::Read, |mut stdin| stdin.read(buf))
    }
}

static STDIN: LazyLock<Mutex<BufReader<Source>>> =
    LazyLock::new(|| Mutex::new(BufReader::new(Source(std::io::stdin()))));

/// The process's standard input. All handles share a buffer and a lock.
///
/// What this has in its buffer is not seen by `std::io::stdin()`: a program should use one of them. (What std's has read before
/// comes first.)
pub fn stdin() -> Stdin {
    Stdin { std: std::io::stdin() }
}

/// A handle of the standard input: see [`stdin`].
///
/// Each call locks it. Who reads line by line, or several things that belong together, [locks](Stdin::lock) it once.
pub struct Stdin {
    std: std::io::Stdin,
}

/// The standard input, locked until this is dropped.
///
/// The lock belongs to the goroutine (or thread): this may be held across anything that waits.
pub struct StdinLock<'a> {
    reader: MutexGuard<'static, BufReader<Source>>,
    _handle: PhantomData<&'a ()>,
}

impl Stdin {
    /// Waits until no other goroutine or thread has it locked, and locks it. Who has it locked already waits for ever.
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock { reader: STDIN.lock(), _handle: PhantomData }
    }

    /// Reads a line, with its line break, and appends it to `line`; gives the number of bytes, 0 at the end of the input.
    ///
    /// # Errors
    ///
    /// As [`BufRead::read_line`].
    pub fn read_line(&self, line: &mut String) -> Result<usize> {
        self.lock().read_line(line)
    }

    /// An iterator over the lines, without their line breaks. The input stays locked while it lives.
    #[must_use = "nothing is read before the iterator is used"]
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }

    /// Whether it is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.std.is_terminal()
    }
}

impl Read for Stdin {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.lock().read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.lock().read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> Result<usize> {
        self.lock().read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> Result<usize> {
        self.lock().read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.lock().read_exact(buf)
    }
}

impl Read for &Stdin {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.lock().read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.lock().read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> Result<usize> {
        self.lock().read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> Result<usize> {
        self.lock().read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.lock().read_exact(buf)
    }
}

impl Read for StdinLock<'_> {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
        self.reader.read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.reader.read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> Result<usize> {
        self.reader.read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> Result<usize> {
        self.reader.read_to_string(buf)
    }

    fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
        self.reader.read_exact(buf)
    }
}

impl BufRead for StdinLock<'_> {
    fn fill_buf(&mut self) -> Result<&[u8]> {
        self.reader.fill_buf()
    }

    fn consume(&mut self, n: usize) {
        self.reader.consume(n);
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdin").finish_non_exhaustive()
    }
}

impl fmt::Debug for StdinLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StdinLock").finish_non_exhaustive()
    }
}

// ------------------------------------------------------------------------------------------------ standard output

static STDOUT: Mutex<()> = Mutex::new(());
static STDERR: Mutex<()> = Mutex::new(());

/// Formats first and writes then, so that what is printed may print itself, and comes out in one piece.
fn write_formatted(text: fmt::Arguments<'_>, write: impl FnOnce(&[u8]) -> Result<()>) -> Result<()> {
    match text.as_str() {
        Some(s) => write(s.as_bytes()),
        None => {
            let mut s = String::new();
            fmt::write(&mut s, text).map_err(|_| {
                Error::other("an implementation of Display or Debug gave an error: nothing was written")
            })?;
            write(s.as_bytes())
        }
    }
}

macro_rules! output {
    ($make:ident, $handle:ident, $lock:ident, $mutex:ident, $what:literal, $buffered:literal) => {
        #[doc = concat!("The process's standard ", $what, ". All handles share a lock.")]
        ///
        #[doc = $buffered]
        pub fn $make() -> $handle {
            $handle { std: std::io::$make() }
        }

        #[doc = concat!("A handle of the standard ", $what, ": see [`", stringify!($make), "`].")]
        ///
        /// Each call locks it. What is written by one `write!` comes out in one piece, as far as others use this library's handles; what is
        /// printed is formatted before anything is locked.
        pub struct $handle {
            std: std::io::$handle,
        }

        #[doc = concat!("The standard ", $what, ", locked until this is dropped.")]
        ///
        /// The lock belongs to the goroutine (or thread): this may be held across anything that waits. It keeps out who uses this
        /// library's handles, not `println!`, `eprintln!` or std's handles.
        pub struct $lock<'a> {
            std: std::io::$handle,
            _held: MutexGuard<'static, ()>,
            _handle: PhantomData<&'a ()>,
        }

        impl $handle {
            /// Waits until no other goroutine or thread has it locked, and locks it. Unlike std's, who has it locked already waits for
            /// ever, also when it writes through another handle.
            pub fn lock(&self) -> $lock<'static> {
                $lock { std: std::io::$make(), _held: $mutex.lock(), _handle: PhantomData }
            }

            /// Whether it is a terminal.
            pub fn is_terminal(&self) -> bool {
                self.std.is_terminal()
            }
        }

        impl Write for $lock<'_> {
            fn write(&mut self, buf: &[u8]) -> Result<usize> {
                // IO1
                when_ready(&self.std, Way::Write, |mut out| out.write(buf))
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> Result<usize> {
                when_ready(&self.std, Way::Write, |mut out| out.write_vectored(bufs))
            }

            fn flush(&mut self) -> Result<()> {
                when_ready(&self.std, Way::Write, |mut out| out.flush())
            }

            fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<()> {
                write_formatted(text, |bytes| self.write_all(bytes))
            }
        }

        impl Write for &$handle {
            fn write(&mut self, buf: &[u8]) -> Result<usize> {
                self.lock().write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> Result<usize> {
                self.lock().write_vectored(bufs)
            }

            fn flush(&mut self) -> Result<()> {
                self.lock().flush()
            }

            fn write_all(&mut self, buf: &[u8]) -> Result<()> {
                self.lock().write_all(buf)
            }

            fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<()> {
                write_formatted(text, |bytes| self.lock().write_all(bytes))
            }
        }

        impl Write for $handle {
            fn write(&mut self, buf: &[u8]) -> Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> Result<()> {
                (&*self).flush()
            }

            fn write_all(&mut self, buf: &[u8]) -> Result<()> {
                (&*self).write_all(buf)
            }

            fn write_fmt(&mut self, text: fmt::Arguments<'_>) -> Result<()> {
                (&*self).write_fmt(text)
            }
        }

        impl fmt::Debug for $handle {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($handle)).finish_non_exhaustive()
            }
        }

        impl fmt::Debug for $lock<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($lock)).finish_non_exhaustive()
            }
        }
    };
}

output!(
    stdout,
    Stdout,
    StdoutLock,
    STDOUT,
    "output",
    "It has std's buffer, which is written at each line break, when it is full, by a flush, and when the process ends by the return of \
     `main` or by [`exit`](crate::process::exit)."
);
output!(stderr, Stderr, StderrLock, STDERR, "error output", "It has no buffer.");

#[cfg(unix)]
macro_rules! standard_fd {
    ($($handle:ty: $this:ident => $std:expr),+ $(,)?) => {
        $(
            impl AsFd for $handle {
                fn as_fd(&self) -> BorrowedFd<'_> {
                    let $this = self;
                    $std.as_fd()
                }
            }

            impl AsRawFd for $handle {
                fn as_raw_fd(&self) -> RawFd {
                    self.as_fd().as_raw_fd()
                }
            }
        )+
    };
}

#[cfg(unix)]
standard_fd!(
    Stdin: this => this.std,
    StdinLock<'_>: this => this.reader.get_ref().0,
    Stdout: this => this.std,
    StdoutLock<'_>: this => this.std,
    Stderr: this => this.std,
    StderrLock<'_>: this => this.std,
);

// ------------------------------------------------------------------------------------------------ pipes

/// An anonymous pipe: what is written to the one end can be read at the other. Reads give 0 bytes when all writing ends are closed
/// and everything was read.
///
/// # Errors
///
/// If the process has no descriptors left.
///
/// ```
/// use rt::io::{Read, Write};
///
/// rt::run(|| {
///     let (mut reader, mut writer) = rt::io::pipe().unwrap();
///     rt::go(move || writer.write_all(b"through the pipe"));
///     let mut text = String::new();
///     reader.read_to_string(&mut text).unwrap();
///     assert_eq!(text, "through the pipe");
/// });
/// ```
pub fn pipe() -> Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = std::io::pipe()?;
    Ok((PipeReader(reader), PipeWriter(writer)))
}

/// The end of a [`pipe`] that is read from.
#[derive(Debug)]
pub struct PipeReader(std::io::PipeReader);

/// The end of a [`pipe`] that is written to.
#[derive(Debug)]
pub struct PipeWriter(std::io::PipeWriter);

impl PipeReader {
    /// Another handle of the same end.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> Result<PipeReader> {
        self.0.try_clone().map(PipeReader)
    }
}

impl PipeWriter {
    /// Another handle of the same end.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> Result<PipeWriter> {
        self.0.try_clone().map(PipeWriter)
    }
}

read_stream!(shared PipeReader);
write_stream!(PipeWriter);
fd_of!(PipeReader, std::io::PipeReader);
fd_of!(PipeWriter, std::io::PipeWriter);
