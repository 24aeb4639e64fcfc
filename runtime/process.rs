//! Child processes, and the end of one's own: std's types, with waits that block the goroutine and not its processor.
//!
//! ```
//! rt::run(|| {
//!     let out = rt::process::Command::new("echo").arg("hello").output()?;
//!     assert!(out.status.success());
//!     assert_eq!(out.stdout, b"hello\n");
//!     Ok::<(), rt::io::Error>(())
//! }).unwrap();
//! ```
//!
//! To give up waiting after a while, look now and then:
//!
//! ```
//! use std::time::Duration;
//!
//! rt::run(|| {
//!     let mut child = rt::process::Command::new("sleep").arg("1000").spawn()?;
//!     let timeout = rt::time::after(Duration::from_millis(20));
//!     let status = loop {
//!         if let Some(status) = child.try_wait()? {
//!             break status;
//!         }
//!         if timeout.try_recv().is_ok() {
//!             child.kill()?;
//!         }
//!         rt::time::sleep(Duration::from_millis(5));
//!     };
//!     assert!(!status.success());
//!     Ok::<(), rt::io::Error>(())
//! }).unwrap();
//! ```

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;

pub use std::process::{CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, Termination, abort, id};

use crate::io::{Result, fd_of, read_stream, write_stream};
use crate::sched::outside::blocking;
use crate::sched::quit;

/// A child process to be: as [`std::process::Command`], and made from one by `From` if need be.
#[derive(Debug)]
pub struct Command(std::process::Command);

impl Command {
    /// A command that runs `program`, which is looked for in `PATH` unless it has a slash, with this process's environment and directory.
    pub fn new(program: impl AsRef<OsStr>) -> Command {
        Command(std::process::Command::new(program))
    }

    /// One more argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        self.0.arg(arg);
        self
    }

    /// More arguments.
    pub fn args<S: AsRef<OsStr>>(&mut self, args: impl IntoIterator<Item = S>) -> &mut Command {
        self.0.args(args);
        self
    }

    /// Sets a variable of the child's environment.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Command {
        self.0.env(key, value);
        self
    }

    /// Sets variables of the child's environment.
    pub fn envs<K: AsRef<OsStr>, V: AsRef<OsStr>>(&mut self, vars: impl IntoIterator<Item = (K, V)>) -> &mut Command {
        self.0.envs(vars);
        self
    }

    /// Takes a variable out of the child's environment.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Command {
        self.0.env_remove(key);
        self
    }

    /// Takes all variables out of the child's environment.
    pub fn env_clear(&mut self) -> &mut Command {
        self.0.env_clear();
        self
    }

    /// The child's working directory.
    pub fn current_dir(&mut self, dir: impl AsRef<Path>) -> &mut Command {
        self.0.current_dir(dir);
        self
    }

    /// The child's standard input. By default this process's; nothing for [`Command::output`].
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Command {
        self.0.stdin(stdin);
        self
    }

    /// The child's standard output. By default this process's; a pipe for [`Command::output`].
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Command {
        self.0.stdout(stdout);
        self
    }

    /// The child's standard error output. By default this process's; a pipe for [`Command::output`].
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Command {
        self.0.stderr(stderr);
        self
    }

    /// Starts the child.
    ///
    /// # Errors
    ///
    /// As [`std::process::Command::spawn`]: if there is no such program, among others.
    pub fn spawn(&mut self) -> Result<Child> {
        blocking(|| self.0.spawn()).map(Child::from)
    }

    /// Runs the child to its end, and gives what it wrote.
    ///
    /// This keeps a thread meanwhile. Starting it with pipes and [`Child::wait_with_output`] do not.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`], or if its output cannot be read.
    pub fn output(&mut self) -> Result<Output> {
        blocking(|| self.0.output())
    }

    /// Runs the child to its end.
    ///
    /// # Errors
    ///
    /// As [`Command::spawn`].
    pub fn status(&mut self) -> Result<ExitStatus> {
        self.spawn()?.wait()
    }

    /// The program.
    pub fn get_program(&self) -> &OsStr {
        self.0.get_program()
    }

    /// The arguments.
    pub fn get_args(&self) -> CommandArgs<'_> {
        self.0.get_args()
    }

    /// The variables that were set, or taken out (`None`).
    pub fn get_envs(&self) -> CommandEnvs<'_> {
        self.0.get_envs()
    }

    /// The child's working directory, if one was set.
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.0.get_current_dir()
    }

    /// Std's command inside, for what only that has.
    ///
    /// Whatever runs between fork and exec (`pre_exec`) must not use this library: the child has one thread, and no scheduler. And
    /// `exec`, if it succeeds, ends the process without ending its trace.
    pub fn as_std_mut(&mut self) -> &mut std::process::Command {
        &mut self.0
    }
}

impl From<std::process::Command> for Command {
    fn from(std: std::process::Command) -> Command {
        Command(std)
    }
}

/// What std has for unix only, in an extension trait that is closed to others.
#[cfg(unix)]
impl Command {
    /// What the child is told to be called, in the place of the program's name.
    pub fn arg0(&mut self, arg: impl AsRef<OsStr>) -> &mut Command {
        std::os::unix::process::CommandExt::arg0(&mut self.0, arg);
        self
    }

    /// The child's user.
    pub fn uid(&mut self, id: u32) -> &mut Command {
        std::os::unix::process::CommandExt::uid(&mut self.0, id);
        self
    }

    /// The child's group.
    pub fn gid(&mut self, id: u32) -> &mut Command {
        std::os::unix::process::CommandExt::gid(&mut self.0, id);
        self
    }

    /// The child's process group; with 0, one of its own. Signals of the terminal do not reach a group in the background.
    pub fn process_group(&mut self, group: i32) -> &mut Command {
        std::os::unix::process::CommandExt::process_group(&mut self.0, group);
        self
    }
}

/// A child process: as [`std::process::Child`].
///
/// Dropping it neither ends nor waits for the child. One that has ended and was not waited for stays in the system's table until this
/// process ends.
pub struct Child {
    /// The writing end of its standard input, if that is a pipe. Closed by [`Child::wait`].
    pub stdin: Option<ChildStdin>,
    /// The reading end of its standard output, if that is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The reading end of its standard error output, if that is a pipe.
    pub stderr: Option<ChildStderr>,
    std: std::process::Child,
}

/// Waits until a child has ended: the only place where somebody does.
///
/// On Linux a descriptor tells of the end, and the goroutine waits for that in the poller. Elsewhere (and before Linux 5.3) this is a declared
/// blocking call, which keeps a thread.
fn wait_for_end(child: &mut std::process::Child) -> Result<ExitStatus> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::process::{Pid, PidfdFlags, pidfd_open};
        // A child that was waited for has a status already, and its number may be another process's.
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        // Nobody else waits for it, so the number is still its own.
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        if let Some(Ok(fd)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
            use std::os::fd::AsFd;
            crate::io::stream::wait_in_poller(fd.as_fd(), crate::io::stream::Way::Read);
        }
    }
    blocking(|| child.wait())
}

fn read_all(mut pipe: impl crate::io::Read) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    pipe.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Child {
    /// Its process id. It may belong to another process when the child has been waited for.
    pub fn id(&self) -> u32 {
        self.std.id()
    }

    /// Closes its standard input, and waits until it ends. Gives the same status again when called again.
    ///
    /// A child that fills a pipe waits for its reader, who must not wait here: read first, or use [`Child::wait_with_output`].
    ///
    /// # Errors
    ///
    /// As [`std::process::Child::wait`].
    pub fn wait(&mut self) -> Result<ExitStatus> {
        drop(self.stdin.take());
        wait_for_end(&mut self.std)
    }

    /// The status if it has ended, without waiting and without closing its standard input.
    ///
    /// # Errors
    ///
    /// As [`std::process::Child::try_wait`].
    pub fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        self.std.try_wait()
    }

    /// Closes its standard input, reads everything that it writes into pipes, and waits until it ends.
    ///
    /// # Errors
    ///
    /// As [`std::process::Child::wait_with_output`].
    pub fn wait_with_output(mut self) -> Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        // Both at once: a child that fills one waits for its reader.
        let (out, err) = match (stdout, stderr) {
            (Some(out), Some(err)) => crate::scope(|s| {
                let err = s.go(|| read_all(err));
                (read_all(out), err.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            }),
            (out, err) => (out.map_or(Ok(Vec::new()), read_all), err.map_or(Ok(Vec::new()), read_all)),
        };
        let (stdout, stderr) = (out?, err?);
        Ok(Output { status: wait_for_end(&mut self.std)?, stdout, stderr })
    }

    /// Ends it, by SIGKILL. It has to be waited for all the same. Nothing happens if it has been.
    ///
    /// # Errors
    ///
    /// As [`std::process::Child::kill`].
    pub fn kill(&mut self) -> Result<()> {
        self.std.kill()
    }
}

impl From<std::process::Child> for Child {
    fn from(mut std: std::process::Child) -> Child {
        Child {
            stdin: std.stdin.take().map(ChildStdin),
            stdout: std.stdout.take().map(ChildStdout),
            stderr: std.stderr.take().map(ChildStderr),
            std,
        }
    }
}

impl From<Child> for std::process::Child {
    fn from(child: Child) -> std::process::Child {
        let mut std = child.std;
        std.stdin = child.stdin.map(|s| s.0);
        std.stdout = child.stdout.map(|s| s.0);
        std.stderr = child.stderr.map(|s| s.0);
        std
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.id())
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}

/// The writing end of a child's standard input.
#[derive(Debug)]
pub struct ChildStdin(std::process::ChildStdin);

/// The reading end of a child's standard output.
#[derive(Debug)]
pub struct ChildStdout(std::process::ChildStdout);

/// The reading end of a child's standard error output.
#[derive(Debug)]
pub struct ChildStderr(std::process::ChildStderr);

write_stream!(ChildStdin);
read_stream!(ChildStdout);
read_stream!(ChildStderr);
fd_of!(ChildStdin, std::process::ChildStdin);
fd_of!(ChildStdout, std::process::ChildStdout);
fd_of!(ChildStderr, std::process::ChildStderr);

/// Ends the process with an exit code, after the trace that is being recorded, if there is one, and all [streams](crate::trace::Stream).
///
/// `std::process::exit` ends it too, but what was recorded since the last generation began, about a second, is lost. As
/// there, no destructor runs, and goroutines and threads stop wherever they are. While the trace is being ended the others go on.
///
/// If they cannot be ended within five seconds (a writer waits for something) the process ends without.
pub fn exit(code: i32) -> ! {
    // Ending a trace takes a goroutine's turn, for which there may be no other thread than this one, even if this were a declared blocking
    // call. So a goroutine waits, and a thread that needs nothing of the scheduler ends the process.
    if crate::goroutine::id().is_some()
        && crate::trace::has_session()
        && std::thread::Builder::new().name("gort-exit".into()).spawn(move || quit::finish(code)).is_ok()
    {
        loop {
            let _ = crate::chan::never::<()>().recv();
        }
    }
    quit::finish(code)
}
