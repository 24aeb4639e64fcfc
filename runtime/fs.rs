//! Files and directories: std's functions and types, each call in [`blocking`].
//!
//! The kernel has no way to wait for a file but to block a thread. So every function and method here that asks the file system something is
//! a declared blocking call: while it waits the others go on, and in the trace it shows as a system call with its stack.
//! Names, arguments and errors are those of `std::fs`.
//!
//! ```
//! rt::run(|| {
//!     let dir = std::env::temp_dir().join(format!("rt-fs-{}", std::process::id()));
//!     rt::fs::create_dir_all(&dir)?;
//!     rt::fs::write(dir.join("greeting"), "hello")?;
//!     assert_eq!(rt::fs::read_to_string(dir.join("greeting"))?, "hello");
//!     rt::fs::remove_dir_all(&dir)
//! }).unwrap();
//! ```
//!
//! # What it costs
//!
//! A declared call costs a goroutine about 30 ns more than the system call, which takes ten times that. On a thread that is not a
//! goroutine the function is just called. A read or write of a few bytes is dear because it is a system call; `BufReader`,
//! `BufWriter` and the whole-file functions help, as with std.
//!
//! # What is left in plain code
//!
//! - What std does without asking the file system: [`OpenOptions`]'s setters, [`File::try_clone`], descriptors.
//! - Closing, which happens on drop. On a network file system it may take its time; then the processor is handed on
//!   after 10 ms, as with all plain code.
//! - Arguments. A path's `AsRef` is the program's code: it is called before the blocking call begins.

use std::ffi::OsString;
use std::fmt;
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt, DirEntryExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};

use crate::io::{IoSlice, IoSliceMut, Read, Result, Seek, SeekFrom, Write, fd_of};
use crate::sched::outside::blocking;

/// A function of one path.
macro_rules! of_path {
    ($($(#[$doc:meta])* $name:ident -> $out:ty;)+) => {
        $(
            $(#[$doc])*
            ///
            /// # Errors
            ///
            #[doc = concat!("As [`std::fs::", stringify!($name), "`].")]
            pub fn $name(path: impl AsRef<Path>) -> Result<$out> {
                let path = path.as_ref();
                blocking(|| std::fs::$name(path))
            }
        )+
    };
}

of_path! {
    /// The absolute path, without symbolic links and dots.
    canonicalize -> PathBuf;
    /// Makes a directory.
    create_dir -> ();
    /// Makes a directory, and those above it that do not exist.
    create_dir_all -> ();
    /// Whether there is something at the path. Links are followed: one that leads nowhere counts as nothing.
    exists -> bool;
    /// What the file system knows of a file. Links are followed.
    metadata -> Metadata;
    /// The whole contents of a file.
    read -> Vec<u8>;
    /// Where a symbolic link leads.
    read_link -> PathBuf;
    /// The whole contents of a file, which must be UTF-8.
    read_to_string -> String;
    /// Removes an empty directory.
    remove_dir -> ();
    /// Removes a directory and everything in it. Links in it are removed, not followed.
    remove_dir_all -> ();
    /// Removes a file.
    remove_file -> ();
    /// What the file system knows of a file, or of the link itself if it is one.
    symlink_metadata -> Metadata;
}

/// Copies the contents and the permissions of a file; gives the number of bytes.
///
/// # Errors
///
/// As [`std::fs::copy`].
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    blocking(|| std::fs::copy(from, to))
}

/// Gives a file another name, which must be on the same file system. What was there before is replaced.
///
/// # Errors
///
/// As [`std::fs::rename`].
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
    let (from, to) = (from.as_ref(), to.as_ref());
    blocking(|| std::fs::rename(from, to))
}

/// Gives a file one more name.
///
/// # Errors
///
/// As [`std::fs::hard_link`].
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    blocking(|| std::fs::hard_link(original, link))
}

/// Makes a symbolic link.
///
/// # Errors
///
/// As [`std::os::unix::fs::symlink`].
#[cfg(unix)]
pub fn symlink(original: impl AsRef<Path>, link: impl AsRef<Path>) -> Result<()> {
    let (original, link) = (original.as_ref(), link.as_ref());
    blocking(|| std::os::unix::fs::symlink(original, link))
}

/// Changes a file's permissions.
///
/// # Errors
///
/// As [`std::fs::set_permissions`].
pub fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> Result<()> {
    let path = path.as_ref();
    blocking(|| std::fs::set_permissions(path, permissions))
}

/// Makes a file with these contents, in the place of what it had if there is one.
///
/// # Errors
///
/// As [`std::fs::write`].
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> Result<()> {
    let (path, contents) = (path.as_ref(), contents.as_ref());
    blocking(|| std::fs::write(path, contents))
}

/// An iterator over what is in a directory.
///
/// # Errors
///
/// As [`std::fs::read_dir`].
pub fn read_dir(path: impl AsRef<Path>) -> Result<ReadDir> {
    let path = path.as_ref();
    blocking(|| std::fs::read_dir(path)).map(ReadDir)
}

/// An open file: as [`std::fs::File`], each call in [`blocking`].
///
/// Reads and writes go straight to the system: wrap it in a `BufReader` or `BufWriter` where they are small. Made from std's by `From`,
/// and back.
#[derive(Debug)]
pub struct File(std::fs::File);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        blocking(|| std::fs::File::open(path)).map(File)
    }

    /// Opens a file for writing: a new one, or one that is there, whose contents go.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::create`].
    pub fn create(path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        blocking(|| std::fs::File::create(path)).map(File)
    }

    /// Makes a new file, for reading and writing.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::create_new`]: if there is something of that name, among others.
    pub fn create_new(path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        blocking(|| std::fs::File::create_new(path)).map(File)
    }

    /// As [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until contents and metadata are on the disk.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::sync_all`]: also those of earlier writes, which show here.
    pub fn sync_all(&self) -> Result<()> {
        blocking(|| self.0.sync_all())
    }

    /// Waits until the contents are on the disk, with as much of the metadata as it takes to read them.
    ///
    /// # Errors
    ///
    /// As [`File::sync_all`].
    pub fn sync_data(&self) -> Result<()> {
        blocking(|| self.0.sync_data())
    }

    /// Makes the file so many bytes long. What is new are zeros.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::set_len`].
    pub fn set_len(&self, bytes: u64) -> Result<()> {
        blocking(|| self.0.set_len(bytes))
    }

    /// What the file system knows of the file.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::metadata`].
    pub fn metadata(&self) -> Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Another handle of the same open file, with the same position.
    ///
    /// # Errors
    ///
    /// If the process has no descriptors left.
    pub fn try_clone(&self) -> Result<File> {
        self.0.try_clone().map(File)
    }

    /// Changes the permissions.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::set_permissions`].
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        blocking(|| self.0.set_permissions(permissions))
    }

    /// Changes the times of the last access and the last change.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::set_times`].
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        blocking(|| self.0.set_times(times))
    }

    /// Changes the time of the last change.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::set_modified`].
    pub fn set_modified(&self, time: std::time::SystemTime) -> Result<()> {
        blocking(|| self.0.set_modified(time))
    }

    /// Waits for the file's lock and holds it alone. The lock is the open file's, not the goroutine's: it is for keeping out other
    /// processes, and ends by [`File::unlock`] or when the last handle is closed.
    ///
    /// The wait keeps a thread.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::lock`].
    pub fn lock(&self) -> Result<()> {
        blocking(|| self.0.lock())
    }

    /// Waits for the file's lock and shares it with others that do so.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::lock_shared`].
    pub fn lock_shared(&self) -> Result<()> {
        blocking(|| self.0.lock_shared())
    }

    /// [`File::lock`], if that is possible without waiting.
    ///
    /// # Errors
    ///
    /// [`TryLockError::WouldBlock`] if somebody else has it; otherwise as [`std::fs::File::try_lock`].
    pub fn try_lock(&self) -> std::result::Result<(), TryLockError> {
        blocking(|| self.0.try_lock())
    }

    /// [`File::lock_shared`], if that is possible without waiting.
    ///
    /// # Errors
    ///
    /// As [`File::try_lock`].
    pub fn try_lock_shared(&self) -> std::result::Result<(), TryLockError> {
        blocking(|| self.0.try_lock_shared())
    }

    /// Lets go of the file's lock.
    ///
    /// # Errors
    ///
    /// As [`std::fs::File::unlock`].
    pub fn unlock(&self) -> Result<()> {
        blocking(|| self.0.unlock())
    }
}

/// The traits of std's, for a file and for a reference to one.
macro_rules! file_io {
    ($($t:ty),+) => {
        $(
            impl Read for $t {
                fn read(&mut self, buf: &mut [u8]) -> Result<usize> {
                    blocking(|| (&self.0).read(buf))
                }

                fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> Result<usize> {
                    blocking(|| (&self.0).read_vectored(bufs))
                }

                fn read_to_end(&mut self, buf: &mut Vec<u8>) -> Result<usize> {
                    blocking(|| (&self.0).read_to_end(buf))
                }

                fn read_to_string(&mut self, buf: &mut String) -> Result<usize> {
                    blocking(|| (&self.0).read_to_string(buf))
                }

                fn read_exact(&mut self, buf: &mut [u8]) -> Result<()> {
                    blocking(|| (&self.0).read_exact(buf))
                }
            }

            impl Write for $t {
                fn write(&mut self, buf: &[u8]) -> Result<usize> {
                    blocking(|| (&self.0).write(buf))
                }

                fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> Result<usize> {
                    blocking(|| (&self.0).write_vectored(bufs))
                }

                fn write_all(&mut self, buf: &[u8]) -> Result<()> {
                    blocking(|| (&self.0).write_all(buf))
                }

                /// Does nothing: a file has no buffer here.
                fn flush(&mut self) -> Result<()> {
                    Ok(())
                }
            }

            impl Seek for $t {
                fn seek(&mut self, to: SeekFrom) -> Result<u64> {
                    blocking(|| (&self.0).seek(to))
                }
            }
        )+
    };
}

file_io!(File, &File);
fd_of!(File, std::fs::File);

#[cfg(unix)]
impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        blocking(|| self.0.read_at(buf, offset))
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        blocking(|| self.0.read_exact_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<usize> {
        blocking(|| self.0.write_at(buf, offset))
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        blocking(|| self.0.write_all_at(buf, offset))
    }
}

/// How a file is to be opened: as [`std::fs::OpenOptions`].
///
/// ```
/// rt::run(|| {
///     let path = std::env::temp_dir().join(format!("rt-options-{}", std::process::id()));
///     let file = rt::fs::OpenOptions::new().write(true).create_new(true).open(&path)?;
///     file.set_len(100)?;
///     assert_eq!(rt::fs::metadata(&path)?.len(), 100);
///     rt::fs::remove_file(&path)
/// }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(std::fs::OpenOptions);

impl OpenOptions {
    /// Nothing is set. One of read, write and append must be.
    #[expect(clippy::new_without_default, reason = "std's has none: options that open nothing are no default")]
    pub fn new() -> OpenOptions {
        OpenOptions(std::fs::OpenOptions::new())
    }

    /// For reading.
    pub fn read(&mut self, yes: bool) -> &mut OpenOptions {
        self.0.read(yes);
        self
    }

    /// For writing.
    pub fn write(&mut self, yes: bool) -> &mut OpenOptions {
        self.0.write(yes);
        self
    }

    /// For writing, always at the end.
    pub fn append(&mut self, yes: bool) -> &mut OpenOptions {
        self.0.append(yes);
        self
    }

    /// Throws away what is in the file. Needs `write`.
    pub fn truncate(&mut self, yes: bool) -> &mut OpenOptions {
        self.0.truncate(yes);
        self
    }

    /// Makes the file if there is none. Needs `write` or `append`.
    pub fn create(&mut self, yes: bool) -> &mut OpenOptions {
        self.0.create(yes);
        self
    }

    /// Makes the file, which must not exist. Needs `write` or `append`.
    pub fn create_new(&mut self, yes: bool) -> &mut OpenOptions {
        self.0.create_new(yes);
        self
    }

    /// Opens the file. Opening a named pipe waits for the other side.
    ///
    /// # Errors
    ///
    /// As [`std::fs::OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File> {
        let path = path.as_ref();
        blocking(|| self.0.open(path)).map(File)
    }
}

impl From<std::fs::OpenOptions> for OpenOptions {
    fn from(std: std::fs::OpenOptions) -> OpenOptions {
        OpenOptions(std)
    }
}

#[cfg(unix)]
impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }
}

/// How a directory is to be made: as [`std::fs::DirBuilder`].
#[derive(Debug)]
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// One directory, with the permissions that the process gives by default.
    #[expect(clippy::new_without_default, reason = "std's has none")]
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Whether those above it are made too, and it is no error if it exists.
    pub fn recursive(&mut self, yes: bool) -> &mut DirBuilder {
        self.0.recursive(yes);
        self
    }

    /// Makes the directory.
    ///
    /// # Errors
    ///
    /// As [`std::fs::DirBuilder::create`].
    pub fn create(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        blocking(|| self.0.create(path))
    }
}

#[cfg(unix)]
impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }
}

/// What is in a directory: see [`read_dir`]. The order is the file system's.
#[derive(Debug)]
pub struct ReadDir(std::fs::ReadDir);

impl Iterator for ReadDir {
    type Item = Result<DirEntry>;

    /// Each step is a blocking call, though the system is asked for many entries at a time.
    fn next(&mut self) -> Option<Result<DirEntry>> {
        blocking(|| self.0.next()).map(|entry| entry.map(DirEntry))
    }
}

/// Something in a directory.
pub struct DirEntry(std::fs::DirEntry);

impl DirEntry {
    /// Its path: that of the directory, as it was given to [`read_dir`], and its name.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Its name.
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// What the file system knows of it. Links are not followed.
    ///
    /// # Errors
    ///
    /// As [`std::fs::DirEntry::metadata`].
    pub fn metadata(&self) -> Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// What kind of file it is. Links are not followed. Most file systems have told already, and are not asked again.
    ///
    /// # Errors
    ///
    /// As [`std::fs::DirEntry::file_type`].
    pub fn file_type(&self) -> Result<FileType> {
        blocking(|| self.0.file_type())
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(unix)]
impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.0.ino()
    }
}
