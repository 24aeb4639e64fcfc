//! The events: one table, from which the writer takes the number of arguments, the reader how to decode them, the text
//! form their names, and FORMAT.md its chapter.
//!
//! An event is its number ([`Ev`], one byte) and its arguments, each a varint. *Timed* events stand in the M's batches
//! and their first argument `dt` is the time since the event before (or since the batch's base). All others are
//! structure: they introduce batches and fill tables. A number that has no line here cannot be decoded, as its length
//! is unknown.

/// What an argument means. Go encodes it in the argument's name; so does [`Arg::name`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// A plain number.
    Number,
    /// Time units since the event before.
    Delta,
    /// An absolute time.
    Time,
    /// A sequence number of a G, a P or the GC.
    Seq,
    /// A [`ProcStatus`](super::ProcStatus).
    ProcStatus,
    /// A [`GoStatus`](super::GoStatus).
    GoStatus,
    /// A goroutine id.
    G,
    /// An M: the id of an OS thread.
    M,
    /// A P's id.
    P,
    /// An id of the generation's string table; 0 is the empty string.
    String,
    /// An id of the generation's stack table; 0 is no stack.
    Stack,
    /// A user task's id.
    Task,
}

/// One argument of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg {
    /// As Go spells it, for instance `new_g`.
    pub name: &'static str,
    /// What the number means.
    pub kind: ArgKind,
}

/// What there is to know about an event.
#[derive(Debug)]
pub struct Spec {
    /// Its number.
    pub ev: Ev,
    /// As Go spells it, for instance `STWBegin`.
    pub name: &'static str,
    /// One line about it.
    pub doc: &'static str,
    /// Its arguments in order, `dt` included.
    pub args: &'static [Arg],
    /// For the end of a range of time, and for "this range is open": the event that begins the range.
    pub start: Option<Ev>,
    /// It stands in an M's batches, and `dt` is its first argument.
    pub timed: bool,
    /// Its arguments are followed by a varint length and that many bytes.
    pub data: bool,
    /// Its arguments are followed by `nframes` times four varints: PC, function, file (strings) and line.
    pub frames: bool,
    /// The Go 1.x that introduced it.
    pub since: u8,
    /// The experiment it belongs to (1 is AllocFree), 0 for none.
    pub experiment: u8,
}

impl Spec {
    /// The indexes in `args` of those of `kind`, in order.
    pub fn args_of(&self, kind: ArgKind) -> impl Iterator<Item = usize> + '_ {
        self.args.iter().enumerate().filter(move |(_, a)| a.kind == kind).map(|(i, _)| i)
    }

    /// The index in `args` of the stack of whoever the event happened to: the last one, as `GoCreate` first names the
    /// new goroutine's.
    pub fn main_stack(&self) -> Option<usize> {
        self.args.iter().rposition(|a| a.kind == ArgKind::Stack)
    }
}

/// How many numbers there are: one more than the greatest.
pub const NUMBERS: usize = 137;

macro_rules! events {
    ($($(#[doc = $doc:literal])+ $ev:ident = $num:literal $name:literal
       $kind:ident since $since:literal [$($arg:ident : $ak:ident),*] $(start $start:ident)?;)*) => {
        /// The number of an event. The order is Go's (W2).
        #[repr(u8)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Ev {
            $($(#[doc = $doc])+ $ev = $num,)*
        }

        impl Ev {
            /// The event with this number.
            #[inline]
            pub const fn from_u8(v: u8) -> Option<Ev> {
                match v {
                    $($num => Some(Ev::$ev),)*
                    _ => None,
                }
            }
        }

        /// All events in the order of their numbers.
        pub static SPECS: &[Spec] = &[$(Spec {
            ev: Ev::$ev,
            name: $name,
            doc: concat!($($doc),+).trim_ascii(),
            args: &[$(Arg { name: stringify!($arg), kind: ArgKind::$ak }),*],
            start: events!(@start $($start)?),
            timed: events!(@timed $kind),
            data: events!(@data $kind),
            frames: events!(@frames $kind),
            since: $since,
            experiment: events!(@experiment $kind),
        }),*];
    };
    (@start) => { None };
    (@start $start:ident) => { Some(Ev::$start) };
    (@timed timed) => { true };
    (@timed alloc_free) => { true };
    (@timed $other:ident) => { false };
    (@data data) => { true };
    (@data $other:ident) => { false };
    (@frames frames) => { true };
    (@frames $other:ident) => { false };
    (@experiment alloc_free) => { 1 };
    (@experiment $other:ident) => { 0 };
}

events! {
    /// A batch: `size` bytes that one M wrote. `time` is the base of its first `dt`.
    EventBatch = 1 "EventBatch" structure since 22 [gen: Number, m: M, time: Time, size: Number];
    /// First byte of a batch that holds stacks and nothing else.
    Stacks = 2 "Stacks" structure since 22 [];
    /// A stack, innermost frame first.
    Stack = 3 "Stack" frames since 22 [id: Stack, nframes: Number];
    /// First byte of a batch that holds strings and nothing else.
    Strings = 4 "Strings" structure since 22 [];
    /// A string: its length and its bytes follow.
    String = 5 "String" data since 22 [id: String];
    /// First byte of a batch that holds CPU samples and nothing else.
    CpuSamples = 6 "CPUSamples" structure since 22 [];
    /// A sample of the CPU profile. Goroutine 0 is none.
    CpuSample = 7 "CPUSample" structure since 22 [time: Time, m: M, p: P, g: G, stack: Stack];
    /// Time units in a second.
    Frequency = 8 "Frequency" structure since 22 [freq: Number];

    /// GOMAXPROCS is now this.
    ProcsChange = 9 "ProcsChange" timed since 22 [dt: Delta, procs_value: Number, stack: Stack];
    /// The M takes an idle P.
    ProcStart = 10 "ProcStart" timed since 22 [dt: Delta, p: P, p_seq: Seq];
    /// The M gives its P up.
    ProcStop = 11 "ProcStop" timed since 22 [dt: Delta];
    /// A P in a blocking call is taken away from M `m` and becomes idle.
    ProcSteal = 12 "ProcSteal" timed since 22 [dt: Delta, p: P, p_seq: Seq, m: M];
    /// What the P was doing when it is first named in a generation.
    ProcStatus = 13 "ProcStatus" timed since 22 [dt: Delta, p: P, pstatus: ProcStatus];

    /// A goroutine is created, runnable.
    GoCreate = 14 "GoCreate" timed since 22 [dt: Delta, new_g: G, new_stack: Stack, stack: Stack];
    /// A goroutine appears on this M in a blocking call (a callback from foreign code).
    GoCreateSyscall = 15 "GoCreateSyscall" timed since 22 [dt: Delta, new_g: G];
    /// A runnable goroutine runs on this M.
    GoStart = 16 "GoStart" timed since 22 [dt: Delta, g: G, g_seq: Seq];
    /// The running goroutine ends.
    GoDestroy = 17 "GoDestroy" timed since 22 [dt: Delta];
    /// A goroutine that came with `GoCreateSyscall` ends, in its blocking call.
    GoDestroySyscall = 18 "GoDestroySyscall" timed since 22 [dt: Delta];
    /// The running goroutine gives its P up and stays runnable.
    GoStop = 19 "GoStop" timed since 22 [dt: Delta, reason_string: String, stack: Stack];
    /// The running goroutine blocks.
    GoBlock = 20 "GoBlock" timed since 22 [dt: Delta, reason_string: String, stack: Stack];
    /// A waiting goroutine becomes runnable.
    GoUnblock = 21 "GoUnblock" timed since 22 [dt: Delta, g: G, g_seq: Seq, stack: Stack];
    /// The running goroutine enters a blocking call and keeps its P until somebody steals it.
    GoSyscallBegin = 22 "GoSyscallBegin" timed since 22 [dt: Delta, p_seq: Seq, stack: Stack];
    /// The blocking call is over, and the P is still there.
    GoSyscallEnd = 23 "GoSyscallEnd" timed since 22 [dt: Delta] start GoSyscallBegin;
    /// The blocking call is over, and the P is gone: the goroutine is runnable.
    GoSyscallEndBlocked = 24 "GoSyscallEndBlocked" timed since 22 [dt: Delta] start GoSyscallBegin;
    /// What the goroutine was doing when it is first named in a generation.
    GoStatus = 25 "GoStatus" timed since 22 [dt: Delta, g: G, m: M, gstatus: GoStatus];

    /// The running goroutine begins to stop the world.
    StwBegin = 26 "STWBegin" timed since 22 [dt: Delta, kind_string: String, stack: Stack];
    /// The world runs again.
    StwEnd = 27 "STWEnd" timed since 22 [dt: Delta] start StwBegin;

    /// A GC cycle was running when the generation began.
    GcActive = 28 "GCActive" timed since 22 [dt: Delta, gc_seq: Seq] start GcBegin;
    /// A GC cycle begins to mark.
    GcBegin = 29 "GCBegin" timed since 22 [dt: Delta, gc_seq: Seq, stack: Stack];
    /// A GC cycle has marked everything.
    GcEnd = 30 "GCEnd" timed since 22 [dt: Delta, gc_seq: Seq] start GcBegin;
    /// The P was sweeping when the generation began.
    GcSweepActive = 31 "GCSweepActive" timed since 22 [dt: Delta, p: P] start GcSweepBegin;
    /// The P begins to sweep.
    GcSweepBegin = 32 "GCSweepBegin" timed since 22 [dt: Delta, stack: Stack];
    /// The P has swept so many bytes and reclaimed so many of them.
    GcSweepEnd = 33 "GCSweepEnd" timed since 22 [dt: Delta, swept_value: Number, reclaimed_value: Number] start GcSweepBegin;
    /// The goroutine was assisting the GC when the generation began.
    GcMarkAssistActive = 34 "GCMarkAssistActive" timed since 22 [dt: Delta, g: G] start GcMarkAssistBegin;
    /// The goroutine begins to assist the GC.
    GcMarkAssistBegin = 35 "GCMarkAssistBegin" timed since 22 [dt: Delta, stack: Stack];
    /// The goroutine has assisted enough.
    GcMarkAssistEnd = 36 "GCMarkAssistEnd" timed since 22 [dt: Delta] start GcMarkAssistBegin;
    /// Bytes in live objects.
    HeapAlloc = 37 "HeapAlloc" timed since 22 [dt: Delta, heapalloc_value: Number];
    /// Bytes at which the next GC cycle should be over.
    HeapGoal = 38 "HeapGoal" timed since 22 [dt: Delta, heapgoal_value: Number];

    /// A label for the running goroutine.
    GoLabel = 39 "GoLabel" timed since 22 [dt: Delta, label_string: String];
    /// A user task begins.
    UserTaskBegin = 40 "UserTaskBegin" timed since 22 [dt: Delta, task: Task, parent_task: Task, name_string: String, stack: Stack];
    /// A user task ends.
    UserTaskEnd = 41 "UserTaskEnd" timed since 22 [dt: Delta, task: Task, stack: Stack];
    /// A region of the running goroutine begins.
    UserRegionBegin = 42 "UserRegionBegin" timed since 22 [dt: Delta, task: Task, name_string: String, stack: Stack];
    /// The innermost region of the running goroutine ends.
    UserRegionEnd = 43 "UserRegionEnd" timed since 22 [dt: Delta, task: Task, name_string: String, stack: Stack] start UserRegionBegin;
    /// A user's message.
    UserLog = 44 "UserLog" timed since 22 [dt: Delta, task: Task, key_string: String, value_string: String, stack: Stack];

    /// The running goroutine blocks and `g`, which waited, runs in its place.
    GoSwitch = 45 "GoSwitch" timed since 23 [dt: Delta, g: G, g_seq: Seq];
    /// The running goroutine ends and `g`, which waited, runs in its place.
    GoSwitchDestroy = 46 "GoSwitchDestroy" timed since 23 [dt: Delta, g: G, g_seq: Seq];
    /// A goroutine is created, waiting.
    GoCreateBlocked = 47 "GoCreateBlocked" timed since 23 [dt: Delta, new_g: G, new_stack: Stack, stack: Stack];
    /// As `GoStatus`, and where the goroutine waits.
    GoStatusStack = 48 "GoStatusStack" timed since 23 [dt: Delta, g: G, m: M, gstatus: GoStatus, stack: Stack];
    /// A batch of an experiment: as `EventBatch`, after the experiment's number (a byte).
    ExperimentalBatch = 49 "ExperimentalBatch" data since 23 [exp: Number, gen: Number, m: M, time: Time];
    /// First byte of the batch that holds the frequency and the clock snapshot.
    Sync = 50 "Sync" structure since 25 [];
    /// What the trace clock, the monotonic clock (ns) and the wall clock said at one moment.
    ClockSnapshot = 51 "ClockSnapshot" timed since 25 [dt: Delta, mono: Number, sec: Number, nsec: Number];
    /// Stands alone, outside any batch: the generation is complete.
    EndOfGeneration = 52 "EndOfGeneration" structure since 26 [];

    /// A span of the heap existed when tracing began.
    Span = 128 "Span" alloc_free since 23 [dt: Delta, id: Number, npages_value: Number, kindclass: Number];
    /// A span is allocated.
    SpanAlloc = 129 "SpanAlloc" alloc_free since 23 [dt: Delta, id: Number, npages_value: Number, kindclass: Number];
    /// A span is freed.
    SpanFree = 130 "SpanFree" alloc_free since 23 [dt: Delta, id: Number];
    /// An object existed when tracing began.
    HeapObject = 131 "HeapObject" alloc_free since 23 [dt: Delta, id: Number, type: Number];
    /// An object is allocated.
    HeapObjectAlloc = 132 "HeapObjectAlloc" alloc_free since 23 [dt: Delta, id: Number, type: Number];
    /// An object is freed.
    HeapObjectFree = 133 "HeapObjectFree" alloc_free since 23 [dt: Delta, id: Number];
    /// A goroutine's stack existed when tracing began.
    GoroutineStack = 134 "GoroutineStack" alloc_free since 23 [dt: Delta, id: Number, order: Number];
    /// A stack is allocated.
    GoroutineStackAlloc = 135 "GoroutineStackAlloc" alloc_free since 23 [dt: Delta, id: Number, order: Number];
    /// A stack is freed.
    GoroutineStackFree = 136 "GoroutineStackFree" alloc_free since 23 [dt: Delta, id: Number];
}

/// From the number to the place in [`SPECS`]; 255 where there is no such event.
static PLACE: [u8; 256] = {
    let mut place = [u8::MAX; 256];
    let mut i = 0;
    while i < SPECS.len() {
        place[SPECS[i].ev as usize] = i as u8;
        i += 1;
    }
    place
};

impl Ev {
    /// What there is to know about it.
    #[inline]
    pub fn spec(self) -> &'static Spec {
        &SPECS[PLACE[self as usize] as usize]
    }

    /// As Go spells it.
    #[inline]
    pub fn name(self) -> &'static str {
        self.spec().name
    }

    /// The event that Go spells so.
    pub fn from_name(name: &str) -> Option<Ev> {
        SPECS.iter().find(|s| s.name == name).map(|s| s.ev)
    }
}

/// What a reader wants to know of a number where a timed event is to stand.
#[derive(Clone, Copy, Debug)]
pub struct Timed {
    /// The event; any, if there is no timed one with this number.
    pub ev: Ev,
    /// How many varints follow, `dt` included; 0 if there is no timed event with this number.
    pub numbers: u8,
}

/// Of every number.
pub static TIMED: [Timed; 256] = {
    let mut timed = [Timed { ev: Ev::EventBatch, numbers: 0 }; 256];
    let mut i = 0;
    while i < SPECS.len() {
        if SPECS[i].timed {
            timed[SPECS[i].ev as usize] = Timed { ev: SPECS[i].ev, numbers: SPECS[i].args.len() as u8 };
        }
        i += 1;
    }
    timed
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::MAX_TIMED_ARGS;

    #[test]
    fn the_table_is_in_order_and_found_by_number_and_name() {
        assert!(SPECS.windows(2).all(|w| w[0].ev < w[1].ev));
        assert_eq!(SPECS.last().map(|s| s.ev as usize + 1), Some(NUMBERS));
        for v in 0..=u8::MAX {
            let found = SPECS.iter().find(|s| s.ev as u8 == v);
            assert_eq!(Ev::from_u8(v), found.map(|s| s.ev));
            if let Some(s) = found {
                assert!(std::ptr::eq(s.ev.spec(), s));
                assert_eq!(Ev::from_name(s.name), Some(s.ev));
            }
        }
    }

    #[test]
    fn timed_events_begin_with_dt_and_have_at_most_five_arguments() {
        for s in SPECS {
            assert_eq!(s.timed, s.args.first().is_some_and(|a| a.kind == ArgKind::Delta), "{}", s.name);
            assert!(!s.timed || s.args.len() <= MAX_TIMED_ARGS, "{}", s.name);
            let Timed { ev, numbers } = TIMED[s.ev as usize];
            assert_eq!((numbers > 0, usize::from(numbers)), (s.timed, if s.timed { s.args.len() } else { 0 }));
            assert!(!s.timed || ev == s.ev);
        }
    }

    #[test]
    fn a_typed_name_says_its_kind() {
        for arg in SPECS.iter().flat_map(|s| s.args) {
            let kind = match arg.name.rsplit('_').next() {
                Some("g") => ArgKind::G,
                Some("m") => ArgKind::M,
                Some("p") => ArgKind::P,
                Some("seq") => ArgKind::Seq,
                Some("pstatus") => ArgKind::ProcStatus,
                Some("gstatus") => ArgKind::GoStatus,
                Some("string") => ArgKind::String,
                Some("stack") => ArgKind::Stack,
                Some("task") => ArgKind::Task,
                Some("dt") => ArgKind::Delta,
                Some("time") => ArgKind::Time,
                _ => continue,
            };
            assert_eq!(arg.kind, kind, "{}", arg.name);
        }
    }

    #[test]
    fn the_main_stack_is_the_last() {
        assert_eq!(Ev::GoCreate.spec().main_stack(), Some(3));
        assert_eq!(Ev::GoBlock.spec().main_stack(), Some(2));
        assert_eq!(Ev::GoDestroy.spec().main_stack(), None);
    }
}
