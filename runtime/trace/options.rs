//! What a subscriber wants in its trace.

/// What is to be in a trace, for [`Stream::start_with`](crate::trace::Stream::start_with) and
/// [`trace::start_with`](crate::trace::start_with).
///
/// All who record at the same time get the same events: what one of them wants, the others have too. So an option that leaves
/// something out makes recording cheaper, and is no promise that it is not there.
///
/// What has happened to a goroutine cannot be left out, nor goroutines: no reader takes a trace in which somebody runs who was not
/// made runnable, or a processor is taken from a call that did not begin. Readers that want less of these pass over them.
///
/// ```
/// use rt::trace::{Options, Stream};
///
/// rt::run(|| {
///     let stream = Stream::start_with(std::io::sink(), Options::new().stacks(false)).unwrap();
///     rt::go(|| {}).join().unwrap();
///     stream.stop().unwrap();
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Options {
    pub(crate) stacks: bool,
}

impl Options {
    /// Everything.
    pub const fn new() -> Options {
        Options { stacks: true }
    }

    /// Whether events say where in the code they happened: yes, if not said otherwise. It is the larger part of what recording costs. The
    /// function that a goroutine begins with is there in any case.
    pub const fn stacks(mut self, yes: bool) -> Options {
        self.stacks = yes;
        self
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}
