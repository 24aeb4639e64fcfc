//! What a subscriber wants in its trace.

use crate::sched::advance::Wishes;

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
    stacks: bool,
    #[cfg(feature = "gc")]
    heap_objects: bool,
}

impl Options {
    /// Everything, but for what has to be asked for.
    pub const fn new() -> Options {
        Options {
            stacks: true,
            #[cfg(feature = "gc")]
            heap_objects: false,
        }
    }

    /// Whether events say where in the code they happened: yes, if not said otherwise. It is the larger part of what recording costs. The
    /// function that a goroutine begins with is there in any case.
    pub const fn stacks(mut self, yes: bool) -> Options {
        self.stacks = yes;
        self
    }

    /// Whether each object of the [collected heap](crate::gc) is recorded when it is made and when it is freed, with its type and address, and each
    /// block of memory that they lie in: no, if not said otherwise. What exists when the recording begins is listed then, in a stopped world
    /// (some forty nanoseconds for each object). All this goes into the events of Go's AllocFree experiment, with Go's meaning; `gort print` and
    /// `tracer::read::alloc_free` show it.
    ///
    /// Meanwhile an object costs two events, and takes two to three times as long to make. When nobody asks for it it costs nothing.
    ///
    /// A flight recorder that has forgotten its first generations has lost the list, too; it then has only what was made since.
    #[cfg(feature = "gc")]
    pub const fn heap_objects(mut self, yes: bool) -> Options {
        self.heap_objects = yes;
        self
    }
}

impl Options {
    pub(crate) fn wishes(self) -> Wishes {
        Wishes {
            stacks: self.stacks,
            #[cfg(feature = "gc")]
            heap_objects: self.heap_objects,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}
