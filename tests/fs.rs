//! `rt::fs`: what std's does, in blocking calls that let the others go on.

mod common;

use std::fs::FileTimes;
use std::io::{IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

use common::{Actor, child_passes, count, is_child, scratch_file, traced, wait_for};
use rt::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use rt::io::ErrorKind;
use tracer::wire::Ev;

/// A directory of this test's own, removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path = scratch_file(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir(&path).unwrap();
        Dir(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn functions(dir: &Dir) {
    let (a, b) = (dir.at("a"), dir.at("b"));
    assert!(!fs::exists(&a).unwrap());
    assert_eq!(fs::read(&a).unwrap_err().kind(), ErrorKind::NotFound);
    fs::write(&a, [b'x'; 10_000]).unwrap();
    assert_eq!(fs::read(&a).unwrap(), [b'x'; 10_000]);
    assert_eq!(fs::copy(&a, &b).unwrap(), 10_000);
    fs::write(&a, "two").unwrap();
    assert_eq!(fs::read_to_string(&a).unwrap(), "two");
    assert_eq!(fs::read_to_string(&b).unwrap().len(), 10_000);
    fs::rename(&a, &b).unwrap();
    assert!(!fs::exists(&a).unwrap());
    assert_eq!(fs::read_to_string(&b).unwrap(), "two");
    fs::write(&a, [0xff]).unwrap();
    assert_eq!(fs::read_to_string(&a).unwrap_err().kind(), ErrorKind::InvalidData);

    fs::hard_link(&b, dir.at("hard")).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().nlink(), 2);
    fs::symlink("b", dir.at("soft")).unwrap();
    assert_eq!(fs::read_link(dir.at("soft")).unwrap(), Path::new("b"));
    assert!(fs::metadata(dir.at("soft")).unwrap().is_file());
    assert!(fs::symlink_metadata(dir.at("soft")).unwrap().is_symlink());
    assert_eq!(fs::canonicalize(dir.at("soft")).unwrap(), b.canonicalize().unwrap());
    fs::set_permissions(&b, Permissions::from_mode(0o640)).unwrap();
    assert_eq!(fs::metadata(&b).unwrap().mode() & 0o777, 0o640);
    fs::remove_file(&b).unwrap();
    assert!(!fs::exists(dir.at("soft")).unwrap(), "the link leads nowhere now");
}

fn directories(dir: &Dir) {
    let deep = dir.at("deep");
    assert_eq!(fs::create_dir(deep.join("er")).unwrap_err().kind(), ErrorKind::NotFound);
    fs::create_dir_all(deep.join("er")).unwrap();
    fs::create_dir(deep.join("x")).unwrap();
    DirBuilder::new().recursive(true).mode(0o700).create(deep.join("y/z")).unwrap();
    assert_eq!(fs::metadata(deep.join("y/z")).unwrap().mode() & 0o777, 0o700);
    fs::write(deep.join("file"), "").unwrap();
    let mut seen = Vec::new();
    for entry in fs::read_dir(&deep).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.path(), deep.join(entry.file_name()));
        assert_eq!(entry.metadata().unwrap().ino(), entry.ino());
        seen.push((entry.file_name().into_string().unwrap(), entry.file_type().unwrap().is_dir()));
    }
    seen.sort();
    let seen: Vec<_> = seen.iter().map(|(name, is_dir)| (name.as_str(), *is_dir)).collect();
    assert_eq!(seen, [("er", true), ("file", false), ("x", true), ("y", true)]);
    fs::remove_dir(deep.join("x")).unwrap();
    assert!(fs::remove_dir(&deep).is_err(), "it is not empty");
    fs::remove_dir_all(&deep).unwrap();
    assert!(!fs::exists(&deep).unwrap());
    assert!(fs::read_dir(&deep).is_err());
}

fn files(dir: &Dir) {
    let path = dir.at("file");
    assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    let mut f = File::create_new(&path).unwrap();
    assert_eq!(File::create_new(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(f.write(b"hello").unwrap(), 5);
    f.write_all(b" world").unwrap();
    assert_eq!(f.write_vectored(&[IoSlice::new(b"! "), IoSlice::new(b"!")]).unwrap(), 3);
    writeln!(f, " {}", 42).unwrap();
    f.flush().unwrap();
    f.sync_data().unwrap();
    f.sync_all().unwrap();
    assert_eq!(f.stream_position().unwrap(), 18);
    f.rewind().unwrap();
    let mut text = String::new();
    assert_eq!((&f).read_to_string(&mut text).unwrap(), 18);
    assert_eq!(text, "hello world! ! 42\n");

    assert_eq!((&f).seek(SeekFrom::Start(6)).unwrap(), 6);
    let (mut one, mut two) = ([0; 3], [0; 2]);
    assert_eq!(f.read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)]).unwrap(), 5);
    assert_eq!((&one, &two), (b"wor", b"ld"));
    let mut exact = [0; 2];
    f.read_exact(&mut exact).unwrap();
    assert_eq!(&exact, b"! ");
    assert_eq!(f.read_exact(&mut [0; 100]).unwrap_err().kind(), ErrorKind::UnexpectedEof);

    f.write_all_at(b"HELLO", 0).unwrap();
    assert_eq!(f.write_at(b"W", 6).unwrap(), 1);
    assert_eq!(f.read_at(&mut exact, 6).unwrap(), 2);
    assert_eq!(&exact, b"Wo");
    f.read_exact_at(&mut exact, 3).unwrap();
    assert_eq!(&exact, b"LO");
    f.set_len(5).unwrap();
    assert_eq!(f.metadata().unwrap().len(), 5);

    // A clone has the same position.
    let mut clone = f.try_clone().unwrap();
    clone.seek(SeekFrom::Start(1)).unwrap();
    let mut rest = Vec::new();
    f.read_to_end(&mut rest).unwrap();
    assert_eq!(rest, b"ELLO");

    let then = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
    f.set_times(FileTimes::new().set_accessed(then).set_modified(then)).unwrap();
    assert_eq!(f.metadata().unwrap().modified().unwrap(), then);
    f.set_modified(then + Duration::from_secs(1)).unwrap();
    assert_eq!(f.metadata().unwrap().mtime(), 1_000_001);
    f.set_permissions(Permissions::from_mode(0o600)).unwrap();
    assert_eq!(f.metadata().unwrap().mode() & 0o777, 0o600);
    assert!(format!("{f:?}").contains("file"), "{f:?}");

    let mut appended = OpenOptions::new().append(true).read(true).open(&path).unwrap();
    appended.write_all(b"!").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"HELLO!");
    drop(File::create(&path).unwrap());
    assert_eq!(fs::read(&path).unwrap(), b"");
    let made = dir.at("made");
    let options = OpenOptions::new().write(true).create(true).truncate(true).mode(0o400).clone();
    options.open(&made).unwrap();
    assert_eq!(fs::metadata(&made).unwrap().mode() & 0o777, 0o400);
    let flagged = File::options().read(true).custom_flags(libc::O_DIRECTORY).open(&made);
    assert_eq!(flagged.unwrap_err().kind(), ErrorKind::NotADirectory);
}

fn descriptors(dir: &Dir) {
    fs::write(dir.at("fd"), "abc").unwrap();
    let file = File::open(dir.at("fd")).unwrap();
    assert_eq!(file.as_fd().as_raw_fd(), file.as_raw_fd());
    let fd = file.as_raw_fd();
    let std: std::fs::File = file.into();
    assert_eq!(std.as_raw_fd(), fd);
    let owned = OwnedFd::from(File::from(std));
    let mut file = File::from(owned);
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!((text.as_str(), file.into_raw_fd()), ("abc", fd));
    // SAFETY: into_raw_fd has given it up.
    unsafe { libc::close(fd) };
}

fn locks(dir: &Dir) {
    let path = dir.at("locked");
    let (a, b) = (File::create(&path).unwrap(), File::open(&path).unwrap());
    a.lock().unwrap();
    assert!(matches!(b.try_lock(), Err(TryLockError::WouldBlock)));
    assert!(matches!(b.try_lock_shared(), Err(TryLockError::WouldBlock)));
    a.unlock().unwrap();
    a.lock_shared().unwrap();
    b.try_lock_shared().unwrap();
    assert!(matches!(b.try_lock(), Err(TryLockError::WouldBlock)));
    a.unlock().unwrap();
    b.try_lock().unwrap();
}

/// All of it does what std's does, on goroutines and on threads.
#[test]
fn smoke() {
    let (_, trace) = traced("rt::fs", || {
        for actor in Actor::BOTH {
            let run = move || {
                let dir = Dir::new(&format!("fs-{actor:?}"));
                for part in [functions, directories, files, descriptors, locks] {
                    part(&dir);
                }
            };
            actor.start(run).join();
        }
    });
    let calls = count(&trace, Ev::GoSyscallBegin);
    assert!(calls >= 100, "{calls} system calls in the trace");
}

/// A path whose conversion is code that waits.
struct Slow(PathBuf);

impl AsRef<Path> for Slow {
    fn as_ref(&self) -> &Path {
        rt::yield_now();
        rt::time::sleep(Duration::from_millis(1));
        &self.0
    }
}

impl AsRef<[u8]> for Slow {
    fn as_ref(&self) -> &[u8] {
        rt::yield_now();
        b"slow"
    }
}

/// Arguments are the program's code, and may do anything.
#[test]
fn arguments_that_wait() {
    traced("arguments that wait", || {
        let dir = Dir::new("fs-slow");
        let slow = |name: &str| Slow(dir.at(name));
        fs::write(slow("a"), slow("")).unwrap();
        assert_eq!(fs::read(slow("a")).unwrap(), b"slow");
        fs::copy(slow("a"), slow("b")).unwrap();
        fs::rename(slow("b"), slow("c")).unwrap();
        assert!(OpenOptions::new().read(true).open(slow("c")).is_ok());
        assert_eq!(fs::read_dir(slow("")).unwrap().count(), 2);
    });
}

/// Opening a named pipe waits for the other side, and reading for its words. With one processor that works
/// only if those who wait give it up.
#[test]
fn a_wait_gives_up_the_processor() {
    const NAME: &str = "a_wait_gives_up_the_processor";
    if !is_child(NAME) {
        return child_passes(NAME, &[("GOMAXPROCS", "1")]);
    }
    traced("named pipes", || {
        let dir = Dir::new("fs-fifo");
        let path = dir.at("fifo");
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(fs::metadata(&path).unwrap().file_type().is_fifo());
        let waiting = Arc::new(AtomicUsize::new(0));
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let (path, waiting) = (path.clone(), waiting.clone());
                rt::go(move || {
                    waiting.fetch_add(1, SeqCst);
                    let mut file = File::open(path).unwrap();
                    let mut word = [0; 4];
                    file.read_exact(&mut word).unwrap();
                    word
                })
            })
            .collect();
        wait_for("three readers", || waiting.load(SeqCst) == 3);
        // They are in the call now or will be; either way this goes on.
        for _ in 0..20 {
            rt::time::sleep(Duration::from_millis(1));
        }
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        writer.write_all(b"wordwordword").unwrap();
        for reader in readers {
            assert_eq!(&reader.join().unwrap(), b"word");
        }
    });
}

/// Many goroutines and threads on one file.
#[test]
fn stress() {
    const ACTORS: usize = 8;
    const ROUNDS: usize = 50;
    traced("one file", || {
        let dir = Dir::new("fs-stress");
        let file = Arc::new(File::options().read(true).write(true).create_new(true).open(dir.at("f")).unwrap());
        let all: Vec<_> = (0..ACTORS)
            .map(|i| {
                let file = file.clone();
                Actor::mixed(i).start(move || {
                    for round in 0..ROUNDS {
                        let at = ((i * ROUNDS + round) * 8) as u64;
                        file.write_all_at(&at.to_le_bytes(), at).unwrap();
                        let mut back = [0; 8];
                        file.read_exact_at(&mut back, at).unwrap();
                        assert_eq!(u64::from_le_bytes(back), at);
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|a| a.join());
        let mut whole = Vec::new();
        (&*file).read_to_end(&mut whole).unwrap();
        for (i, word) in whole.chunks(8).enumerate() {
            assert_eq!(word, (i as u64 * 8).to_le_bytes());
        }
        assert_eq!(whole.len(), ACTORS * ROUNDS * 8);
    });
}
