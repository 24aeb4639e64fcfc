//! Extension records: what a gort trace says beyond Go's format, where Go's tools do not look.
//!
//! They travel as entries of the generation's string table that no event refers to. An entry is [`MAGIC`] and then
//! records:
//!
//! ```text
//! record = type (1 byte)  length (varint: the bytes that follow)  time (varint)  arguments (varints)
//! ```
//!
//! `time` of the first record, which is a `Base`, is absolute, in the units and on the clock of the batches; that of
//! every other is the time since the record before. What a record has beyond the arguments that a reader knows, it
//! skips; of a type that it does not know, it reads the time and skips the rest.
//!
//! Invariants:
//!
//! X1. An entry MUST NOT exceed [`MAX_STRING_BYTES`]. Otherwise no reader takes the file.
//! X2. An entry MUST begin with `Base`. It is read alone: the order of entries in a table means nothing.
//! X3. A type's number and the order of its arguments MUST NOT change; new arguments go to the end.
//! X4. Ids of entries MUST come from [`id`]: the top of the id space, which no string of an event can reach.
//!
//! Rejected: a batch of an experiment of our own (the format's carrier for such things). Go's reader takes it, but the
//! first tool that asks a `Sync` event for it indexes its table of known experiments and panics.

use super::{MAX_STRING_BYTES, varint};

/// The first bytes of every entry: no text begins so. The last one is the version of this layout.
pub const MAGIC: [u8; 6] = *b"\0gort\x01";

/// The most bytes that one record of a type defined here takes: type, length, time, and three arguments.
const MAX_RECORD_BYTES: usize = 2 + 4 * varint::MAX_BYTES;

/// The type byte of `Base`.
const BASE: u8 = 1;
/// The type byte of [`Record::Steal`].
const STEAL: u8 = 2;
/// The type byte of [`Record::HandOff`].
const HAND_OFF: u8 = 3;
/// The type byte of [`Record::Labels`].
const LABELS: u8 = 4;
/// The type byte of [`Record::Stall`].
const STALL: u8 = 5;
/// The type byte of [`Record::LockCycle`].
const LOCK_CYCLE: u8 = 6;
/// The type byte of [`Record::Netpoll`].
const NETPOLL: u8 = 7;
/// The type byte of [`Record::Name`].
const NAME: u8 = 8;
/// The type byte of [`Record::Timers`].
const TIMERS: u8 = 9;
/// The type byte of [`Record::RunQueue`].
const RUN_QUEUE: u8 = 10;
/// The type byte of [`Record::Lost`].
const LOST: u8 = 11;

/// The `p` of a [`Record::RunQueue`] that is about the global queue.
pub const GLOBAL_QUEUE: u64 = u64::MAX;

/// The string id of the `n`th entry (from 0) of a generation.
pub const fn id(n: u64) -> u64 {
    u64::MAX - n
}

/// Why a P was taken from an M and given to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The goroutine is in a declared blocking call.
    BlockingCall,
    /// The goroutine has been in plain code, outside the runtime, for too long.
    OutsideTooLong,
    /// The goroutine is locked to another M, which gets the P.
    LockedThread,
    /// The M ends, or has no more use for a P.
    ThreadDone,
    /// GOMAXPROCS became smaller: nobody gets the P.
    Gomaxprocs,
    /// A cause that this version has no word for.
    Other(u64),
}

impl Cause {
    /// The wire value.
    pub const fn code(self) -> u64 {
        match self {
            Cause::BlockingCall => 1,
            Cause::OutsideTooLong => 2,
            Cause::LockedThread => 3,
            Cause::ThreadDone => 4,
            Cause::Gomaxprocs => 5,
            Cause::Other(code) => code,
        }
    }

    /// The cause with this wire value.
    pub const fn from_code(code: u64) -> Cause {
        match code {
            1 => Cause::BlockingCall,
            2 => Cause::OutsideTooLong,
            3 => Cause::LockedThread,
            4 => Cause::ThreadDone,
            5 => Cause::Gomaxprocs,
            _ => Cause::Other(code),
        }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Cause::BlockingCall => f.write_str("blocking call"),
            Cause::OutsideTooLong => f.write_str("outside too long"),
            Cause::LockedThread => f.write_str("locked thread"),
            Cause::ThreadDone => f.write_str("thread done"),
            Cause::Gomaxprocs => f.write_str("GOMAXPROCS"),
            Cause::Other(code) => write!(f, "cause {code}"),
        }
    }
}

/// What a record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// P `thief_p` took `count` goroutines from the run queue of `victim_p`.
    Steal {
        /// The P that had nothing to do.
        thief_p: u64,
        /// The P that had something to do.
        victim_p: u64,
        /// How many.
        count: u64,
    },
    /// P `p` was taken from M `from_m` and handed on.
    HandOff {
        /// The P.
        p: u64,
        /// Why.
        cause: Cause,
        /// The M that had it.
        from_m: u64,
    },
    /// The labels of goroutine `g` are now these; they take the place of those it had.
    Labels {
        /// The goroutine.
        g: u64,
        /// The id of a string of the generation's table, `{"key": "value", ...}`, or 0 for no labels.
        labels: u64,
    },
    /// The watchdog: goroutine `g` has stayed in plain code, on M `m`, for `for_ns` nanoseconds. Once for each such stay.
    Stall {
        /// The goroutine.
        g: u64,
        /// For how long, in nanoseconds.
        for_ns: u64,
        /// The M.
        m: u64,
    },
    /// The watchdog: goroutine `g` waits for the lock `object`, which `holder` holds, and so on in a cycle: a record for each
    /// goroutine of the cycle, one after the other.
    LockCycle {
        /// The goroutine that waits.
        g: u64,
        /// The goroutine that holds what it waits for.
        holder: u64,
        /// The address of the lock.
        object: u64,
    },
    /// A look at the network brought `events` events, and `goroutines` goroutines became runnable.
    Netpoll {
        /// Events of sockets.
        events: u64,
        /// Goroutines that waited for them.
        goroutines: u64,
        /// 1 if the M had slept until then, 0 if it was a look in passing.
        slept: u64,
    },
    /// The name of goroutine `g`, which never changes.
    Name {
        /// The goroutine.
        g: u64,
        /// The id of a string of the generation's table.
        name: u64,
    },
    /// Several timers of P `p` were due at once.
    Timers {
        /// The P whose timers they were; another one may have seen to them.
        p: u64,
        /// Goroutines that became runnable: their sleep, or the time limit of their wait, was over.
        goroutines: u64,
        /// Timers of the program's, whose channels got a message or were closed.
        alarms: u64,
    },
    /// So many goroutines queued for P `p`, or in the global queue ([`GLOBAL_QUEUE`]).
    RunQueue {
        /// The P.
        p: u64,
        /// Goroutines that were runnable there.
        len: u64,
    },
    /// Between the last generation and this one, `bytes` of events could not be kept.
    Lost {
        /// How many.
        bytes: u64,
    },
}

impl Record {
    fn parts(self) -> (u8, [u64; 3]) {
        match self {
            Record::Steal { thief_p, victim_p, count } => (STEAL, [thief_p, victim_p, count]),
            Record::HandOff { p, cause, from_m } => (HAND_OFF, [p, cause.code(), from_m]),
            Record::Labels { g, labels } => (LABELS, [g, labels, 0]),
            Record::Stall { g, for_ns, m } => (STALL, [g, for_ns, m]),
            Record::LockCycle { g, holder, object } => (LOCK_CYCLE, [g, holder, object]),
            Record::Netpoll { events, goroutines, slept } => (NETPOLL, [events, goroutines, slept]),
            Record::Name { g, name } => (NAME, [g, name, 0]),
            Record::Timers { p, goroutines, alarms } => (TIMERS, [p, goroutines, alarms]),
            Record::RunQueue { p, len } => (RUN_QUEUE, [p, len, 0]),
            Record::Lost { bytes } => (LOST, [bytes, 0, 0]),
        }
    }

    /// How many arguments a type has; `None` for one that this version does not know.
    fn args(kind: u8) -> Option<usize> {
        match kind {
            STEAL | HAND_OFF | STALL | LOCK_CYCLE | NETPOLL | TIMERS => Some(3),
            LABELS | NAME | RUN_QUEUE => Some(2),
            LOST => Some(1),
            _ => None,
        }
    }

    fn from_parts(kind: u8, args: [u64; 3]) -> Option<Record> {
        let [a, b, c] = args;
        match kind {
            STEAL => Some(Record::Steal { thief_p: a, victim_p: b, count: c }),
            HAND_OFF => Some(Record::HandOff { p: a, cause: Cause::from_code(b), from_m: c }),
            LABELS => Some(Record::Labels { g: a, labels: b }),
            STALL => Some(Record::Stall { g: a, for_ns: b, m: c }),
            LOCK_CYCLE => Some(Record::LockCycle { g: a, holder: b, object: c }),
            NETPOLL => Some(Record::Netpoll { events: a, goroutines: b, slept: c }),
            NAME => Some(Record::Name { g: a, name: b }),
            TIMERS => Some(Record::Timers { p: a, goroutines: b, alarms: c }),
            RUN_QUEUE => Some(Record::RunQueue { p: a, len: b }),
            LOST => Some(Record::Lost { bytes: a }),
            _ => None,
        }
    }
}

/// Writes records into as few entries as they fit in.
///
/// The entries lie one after the other in one buffer. A record whose time is before that of the record before gets that
/// record's time.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Where each entry but the first begins.
    cuts: Vec<usize>,
    last: u64,
}

impl Writer {
    /// A writer without records. It allocates at the first one.
    pub const fn new() -> Writer {
        Writer { bytes: Vec::new(), cuts: Vec::new(), last: 0 }
    }

    /// Appends a record that happened at `time`, in units of the trace clock.
    pub fn push(&mut self, time: u64, record: Record) {
        let entry_bytes = self.bytes.len() - self.cuts.last().copied().unwrap_or(0);
        if entry_bytes == 0 || entry_bytes + MAX_RECORD_BYTES > MAX_STRING_BYTES {
            self.begin_entry(time);
        }
        let time = time.max(self.last);
        let (kind, args) = record.parts();
        let n = Record::args(kind).expect("a type of ours");
        put_record(&mut self.bytes, kind, time - self.last, &args[..n]);
        self.last = time;
    }

    fn begin_entry(&mut self, time: u64) {
        if !self.bytes.is_empty() {
            self.cuts.push(self.bytes.len());
        }
        self.bytes.extend_from_slice(&MAGIC);
        self.last = time.max(self.last);
        put_record(&mut self.bytes, BASE, self.last, &[]); // X2
    }

    /// No record was pushed.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes of all entries together.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The entries: each is the data of one string of the table, with [`id`] of its index as the id.
    pub fn entries(&self) -> impl Iterator<Item = &[u8]> {
        let starts = (!self.is_empty()).then_some(0).into_iter().chain(self.cuts.iter().copied());
        let ends = self.cuts.iter().copied().chain([self.bytes.len()]);
        starts.zip(ends).map(|(start, end)| &self.bytes[start..end])
    }

    /// Forgets the records and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.cuts.clear();
        self.last = 0;
    }
}

fn put_record(buf: &mut Vec<u8>, kind: u8, time: u64, args: &[u64]) {
    let bytes = varint::len(time) + args.iter().map(|&a| varint::len(a)).sum::<usize>();
    buf.push(kind);
    varint::put(buf, bytes as u64);
    varint::put(buf, time);
    for &arg in args {
        varint::put(buf, arg);
    }
}

/// A record and when it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamped {
    /// In units of the trace clock.
    pub time: u64,
    /// What happened; `None` for a type that this version does not know.
    pub record: Option<Record>,
}

/// An entry that begins with [`MAGIC`] but is not made of records. What came before the break was good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where in the entry.
    pub at: usize,
}

/// The records of one entry, in order.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    entry: &'a [u8],
    pos: usize,
    time: Option<u64>,
}

/// The records of a string of the table, or `None` if it is an ordinary string.
pub fn records(string: &[u8]) -> Option<Records<'_>> {
    string.starts_with(&MAGIC).then_some(Records { entry: string, pos: MAGIC.len(), time: None })
}

impl Records<'_> {
    /// `Ok(None)` for a `Base`, which only sets the time.
    fn read(&mut self) -> Option<Option<Stamped>> {
        let kind = *self.entry.get(self.pos)?;
        let mut pos = self.pos + 1;
        let bytes = usize::try_from(varint::read(self.entry, &mut pos)?).ok()?;
        let body = self.entry.get(pos..)?.get(..bytes)?;
        let mut at = 0;
        let delta = varint::read(body, &mut at)?;
        let time = match (kind, self.time) {
            (BASE, None) => delta,
            (_, None) => return None, // X2
            (_, Some(last)) => last.checked_add(delta)?,
        };
        let record = match Record::args(kind) {
            Some(n) => {
                let mut args = [0; 3];
                for arg in &mut args[..n] {
                    *arg = varint::read(body, &mut at)?;
                }
                Record::from_parts(kind, args)
            }
            None => None,
        };
        self.pos = pos + bytes;
        self.time = Some(time);
        Some((kind != BASE).then_some(Stamped { time, record }))
    }
}

impl Iterator for Records<'_> {
    type Item = Result<Stamped, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.pos < self.entry.len() {
            match self.read() {
                Some(Some(stamped)) => return Some(Ok(stamped)),
                Some(None) => {}
                None => {
                    let at = std::mem::replace(&mut self.pos, self.entry.len());
                    return Some(Err(Malformed { at }));
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steal(count: u64) -> Record {
        Record::Steal { thief_p: 1, victim_p: 2, count }
    }

    #[test]
    fn records_come_back_from_their_entries() {
        let mut writer = Writer::new();
        assert_eq!(writer.entries().count(), 0);
        let pushed: Vec<(u64, Record)> = (0..500u64)
            .map(|i| {
                let record = match i % 10 {
                    0 => steal(i),
                    5 => Record::Name { g: i, name: u64::MAX - i },
                    6 => Record::Timers { p: i, goroutines: u64::MAX, alarms: i + 2 },
                    7 => Record::RunQueue { p: GLOBAL_QUEUE, len: i },
                    8 => Record::Lost { bytes: u64::MAX - i },
                    4 => Record::Labels { g: i, labels: u64::MAX - i },
                    1 => Record::HandOff { p: i, cause: Cause::from_code(i % 6), from_m: u64::MAX - i },
                    2 => Record::Stall { g: i, for_ns: u64::MAX, m: i + 1 },
                    3 => Record::LockCycle { g: i, holder: i + 1, object: u64::MAX },
                    _ => Record::Steal { thief_p: u64::MAX, victim_p: u64::MAX, count: u64::MAX },
                };
                ((1 << 40) + i * i * 1000, record)
            })
            .collect();
        for &(time, record) in &pushed {
            writer.push(time, record);
        }
        assert!(writer.entries().count() > 5);
        assert_eq!(writer.entries().map(<[u8]>::len).sum::<usize>(), writer.len());
        let mut read = Vec::new();
        for entry in writer.entries() {
            assert!(entry.len() <= MAX_STRING_BYTES); // X1
            for stamped in records(entry).expect("an entry has the magic") {
                let stamped = stamped.expect("an entry is well formed");
                read.push((stamped.time, stamped.record.expect("the type is known")));
            }
        }
        assert_eq!(read, pushed);
        writer.clear();
        assert!(writer.is_empty());
        assert_eq!(writer.entries().count(), 0);
    }

    #[test]
    fn time_does_not_go_back() {
        let mut writer = Writer::new();
        for time in [100, 50, 120] {
            writer.push(time, steal(1));
        }
        let entry = writer.entries().next().expect("one entry");
        let times: Vec<u64> = records(entry).expect("magic").map(|r| r.expect("good").time).collect();
        assert_eq!(times, [100, 100, 120]);
    }

    #[test]
    fn unknown_types_and_extra_arguments_are_skipped() {
        let mut entry = MAGIC.to_vec();
        put_record(&mut entry, BASE, 1000, &[7]);
        put_record(&mut entry, 200, 5, &[1, 2, 3, 4, 5]);
        put_record(&mut entry, STEAL, 5, &[1, 2, 9, 77, 78]);
        let read: Vec<Stamped> = records(&entry).expect("magic").map(|r| r.expect("good")).collect();
        assert_eq!(read, [Stamped { time: 1005, record: None }, Stamped { time: 1010, record: Some(steal(9)) }]);
    }

    #[test]
    fn a_broken_entry_gives_what_came_before_the_break() {
        assert!(records(b"sync").is_none());
        let mut without_base = MAGIC.to_vec();
        put_record(&mut without_base, STEAL, 5, &[1, 2, 3]);
        assert_eq!(records(&without_base).expect("magic").collect::<Vec<_>>(), [Err(Malformed { at: MAGIC.len() })]);

        let mut writer = Writer::new();
        writer.push(10, steal(1));
        let good = writer.len();
        writer.push(11, steal(2));
        let entry = writer.entries().next().expect("one entry").to_vec();
        for cut in good + 1..entry.len() {
            let read: Vec<_> = records(&entry[..cut]).expect("magic").collect();
            assert_eq!(read, [Ok(Stamped { time: 10, record: Some(steal(1)) }), Err(Malformed { at: good })]);
        }
    }
}
