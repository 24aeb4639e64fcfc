//! What several types of sockets have in common, as macros: methods with the same docs.

/// What all sockets have. `$std` is the type of std's that wraps the same descriptor.
macro_rules! socket {
    ($type:ident, $std:ty, $behaviour:expr) => {
        impl $type {
            /// Another handle to the same socket. Time-outs and deadlines are the socket's, so all handles have the same.
            ///
            /// # Errors
            ///
            /// None: the result is there because std's has one.
            pub fn try_clone(&self) -> io::Result<$type> {
                Ok($type { handle: self.handle.duplicate() })
            }

            /// Closes the socket, for all handles. Calls that wait to send, receive or accept, and all later ones, fail with
            /// [`Closed`](crate::net::Closed).
            ///
            /// Dropping the last handle closes it, too; this is for when others have handles, or wait. The descriptor's number is kept
            /// until then: from now on it is that of a socket without a peer, which all closed sockets share.
            ///
            /// # Errors
            ///
            /// [`Closed`](crate::net::Closed) if that was done before. If the system is out of descriptors at the first `close`
            /// of the program, and then the socket stays open.
            pub fn close(&self) -> io::Result<()> {
                self.handle.close()
            }

            /// With `true`, calls that would have to wait fail with `WouldBlock` instead.
            ///
            /// # Errors
            ///
            /// None: the result is there because std's has one.
            pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
                self.handle.set_nonblocking(nonblocking);
                Ok(())
            }

            /// Takes the socket's pending error, if there is one.
            ///
            /// # Errors
            ///
            /// The system's.
            pub fn take_error(&self) -> io::Result<Option<io::Error>> {
                self.ask(|s| s.take_error())
            }

            /// Takes over a socket of std's. From now on it does not block: std's own handles to it, if there are some, will notice.
            ///
            /// # Errors
            ///
            /// When the system refuses to watch it.
            pub fn from_std(std: $std) -> io::Result<$type> {
                std.set_nonblocking(true)?;
                let fd = OwnedFd::from(std);
                let behaviour = $behaviour(&fd);
                Ok($type { handle: Handle::own(fd, behaviour)? })
            }

            /// The socket as one of std's, which blocks.
            ///
            /// # Errors
            ///
            /// [`ResourceBusy`](io::ErrorKind::ResourceBusy) if there are other handles (see `try_clone`), whose calls would block their
            /// threads; [`Closed`](crate::net::Closed) after `close`.
            pub fn into_std(self) -> io::Result<$std> {
                let std = <$std>::from(self.handle.into_fd()?);
                std.set_nonblocking(false)?;
                Ok(std)
            }

            /// A call that std's socket answers at once.
            fn ask<T>(&self, call: impl FnOnce(&$std) -> io::Result<T>) -> io::Result<T> {
                self.handle.ask(|| call(&self.std()))
            }

            /// The same socket in std's hands, for a call that does not block.
            fn std(&self) -> ManuallyDrop<$std> {
                // SAFETY: the descriptor is open as long as the handle lives, and the result neither outlives it nor closes it.
                ManuallyDrop::new(unsafe { <$std>::from_raw_fd(self.handle.fd().as_raw_fd()) })
            }
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.handle.fd()
            }
        }

        impl AsRawFd for $type {
            fn as_raw_fd(&self) -> RawFd {
                self.handle.fd().as_raw_fd()
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.std(), f)
            }
        }
    };
}

/// The time limits of one direction.
macro_rules! limits {
    ($type:ident, $direction:ident, $what:literal, $set_deadline:ident, $set_timeout:ident, $timeout:ident) => {
        impl $type {
            #[doc = concat!("The point in time at which ", $what, " fails with `TimedOut`, `None` for never.")]
            ///
            /// It holds for calls that wait already, and for all later ones, until it is set again.
            pub fn $set_deadline(&self, deadline: Option<Instant>) {
                self.handle.set_deadline(Direction::$direction, deadline);
            }

            #[doc = concat!("How long a call of ", $what, " may wait, `None` for any time. It fails with `WouldBlock` then, as std's does")]
            /// on this system. It holds for calls that begin to wait later.
            ///
            /// # Errors
            ///
            /// `InvalidInput` for zero.
            pub fn $set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
                self.handle.set_timeout(Direction::$direction, timeout)
            }

            /// What was set.
            ///
            /// # Errors
            ///
            /// None: the result is there because std's has one.
            pub fn $timeout(&self) -> io::Result<Option<Duration>> {
                Ok(self.handle.timeout(Direction::$direction))
            }
        }
    };
}

/// Both directions.
macro_rules! both_limits {
    ($type:ident) => {
        limits!($type, Read, "receiving", set_read_deadline, set_read_timeout, read_timeout);
        limits!($type, Write, "sending", set_write_deadline, set_write_timeout, write_timeout);

        impl $type {
            /// The point in time at which both receiving and sending fail with `TimedOut`, `None` for never.
            ///
            /// It holds for calls that wait already, and for all later ones, until it is set again.
            pub fn set_deadline(&self, deadline: Option<Instant>) {
                self.set_read_deadline(deadline);
                self.set_write_deadline(deadline);
            }
        }
    };
}

/// `Read` and `Write` on the type and on references to it.
macro_rules! stream {
    ($type:ident) => {
        impl Read for &$type {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                self.handle.read(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                self.handle.read_vectored(bufs)
            }
        }

        impl Write for &$type {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                self.handle.write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                self.handle.write_vectored(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }

        impl Read for $type {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                (&*self).read(buf)
            }

            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }

        impl Write for $type {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}
