//! What a subscriber wants in its trace.

use crate::sched::advance::Wishes;

/// What is to be in a trace, for [`Stream::start_with`](crate::trace::Stream::start_with) and
/// [`trace::start_with`](crate::trace::start_with).
///
/// All who record at the same time get the same events: what one of them wants, the others have too. So an option that leaves
/// something out makes recording cheaper and the trace smaller, and is no promise that it is not there.
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
    syscalls: bool,
    only_labelled: bool,
    #[cfg(feature = "gc")]
    heap_objects: bool,
}

impl Options {
    /// Everything, but for what has to be asked for.
    pub const fn new() -> Options {
        Options {
            stacks: true,
            syscalls: true,
            only_labelled: false,
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

    /// Whether every [blocking call](crate::blocking) that begins is recorded as a system call, those of [`fs`](crate::fs) and [`io`](crate::io)
    /// included: yes, if not said otherwise. Without, the ones that are left are those in which the goroutine lost its processor, because it was away
    /// for longer and others wanted to run. Such a call begins, in the trace, when the processor is taken; what comes before looks like
    /// time in which the goroutine ran, and so do all other calls.
    pub const fn syscalls(mut self, yes: bool) -> Options {
        self.syscalls = yes;
        self
    }

    /// Whether only goroutines with [labels](crate::goroutine::with_labels) are recorded (and the runtime's own): no, if not said otherwise. Others
    /// have no events, neither of what happens to them nor of what they say by tasks, regions and logs; a processor that runs one looks as if it ran
    /// nothing. What is not a goroutine's own is there all the same: lengths of queues, work that is stolen, reports of the
    /// watchdog (by [`goroutine::id`](crate::goroutine::id)), objects of the collected heap, and the stack from which a goroutine without labels has woken one that has some.
    ///
    /// A goroutine that gets labels while it runs begins to exist for the trace at that moment, and ends when it gives them back. To tools each
    /// such time is a goroutine, the first since recording began with the number that [`goroutine::id`](crate::goroutine::id) says, later ones with
    /// numbers of their own. A region that does not begin and end in the same one is left out, or ends with it.
    ///
    /// Goroutines inherit labels from those that make them. So a label around the handling of one request in a hundred records all that is
    /// done for it.
    ///
    /// This holds for as long as anything is recorded: who comes later and wants all goroutines gets an error
    /// ([`ResourceBusy`](std::io::ErrorKind::ResourceBusy)), for a trace cannot begin in the middle with goroutines that nobody made. Where all
    /// goroutines are recorded already, who wants only some of them gets all.
    ///
    /// ```
    /// use rt::trace::{Options, Stream};
    ///
    /// rt::run(|| {
    ///     let stream = Stream::start_with(std::io::sink(), Options::new().only_labelled(true)).unwrap();
    ///     rt::go(|| "not recorded").join().unwrap();
    ///     rt::goroutine::with_labels(&[("request", "17")], || rt::go(|| "recorded").join().unwrap());
    ///     stream.stop().unwrap();
    /// });
    /// ```
    pub const fn only_labelled(mut self, yes: bool) -> Options {
        self.only_labelled = yes;
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
            all_calls: self.syscalls,
            only_labelled: self.only_labelled,
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
