//! The reader: generations in, events out.
//!
//! ```text
//!           Source ── load ──> Generation ── a Cursor per M ──> Frontier ── Order ──> Event
//!  (bytes of one generation)   (tables, batches)          (next event of each M)
//! ```
//!
//! Each step offers the earliest event of the frontier to [`Order`]; if it cannot happen yet, the others in the order
//! of their times. If none can, the trace is broken. A generation ends when the frontier is empty.

use std::ops::Range;
use std::sync::Arc;

use super::error::{Broken, Error, Resource};
use super::event::{Event, NONE, Prior, Raw};
use super::frontier::{Cursor, Frontier};
use super::generation::{self, Generation, Info, Outcome, Reached, Sample};
use super::order::{Attempt, Order, Step};
use super::resync;
use super::rule::Rule;
use super::source::{Input, Source};
use super::tables::{Tables, to_ns};
use super::version::Version;
use crate::wire::{ArgKind, Ev, SPECS};

/// How many Ms a report of a stuck trace names.
const STUCK_REPORTS: usize = 16;

/// Reads a trace, event by event.
///
/// As an iterator it ends after the first error. [`Reader::tables`] and [`Reader::generation`] are those of the event
/// that was given last.
#[derive(Debug)]
pub struct Reader<R> {
    source: Source<R>,
    version: Version,
    generation: Generation,
    /// The bytes of `generation` at the beginning of the source's.
    taken: usize,
    /// How far the last attempt at a generation came.
    reached: Reached,
    /// The generation at hand comes once more.
    again: bool,
    /// The next generation has to be whole by itself before an event of it is told.
    on_trial: bool,
    frontier: Frontier,
    next_sample: usize,
    /// Its time; the last there is if there is none.
    sample_time: i64,
    order: Order,
    last_time: i64,
    syncs: u64,
    /// What comes when the generation at hand is over, instead of the next; first comes a `Sync`, if it has not yet.
    ahead: Option<Error>,
    ahead_synced: bool,
    done: bool,
    unfinished: u64,
}

impl<R: Input> Reader<R> {
    /// A reader of the trace that `from` gives, which it reads in large pieces; of a [`TraceFile`](super::TraceFile), where it lies. Fails if
    /// that does not begin as a trace does.
    pub fn new(from: R) -> Result<Reader<R>, Error> {
        let mut source = Source::new(from);
        let version = Version::from_header(&header(&mut source)?)?;
        Ok(Reader::at_first_batch(source, version))
    }

    /// The same for a trace whose first bytes may be damaged; then that comes with the reader.
    pub(super) fn new_without_header(from: R) -> Result<(Reader<R>, Option<Broken>), Error> {
        let mut source = Source::new(from);
        let header = header(&mut source)?;
        let (version, broken) = match Version::from_header(&header) {
            Ok(version) => (version, None),
            Err(error) => {
                let version = Version::nearest(&header);
                if !resync::begins(&mut source, version)? {
                    return Err(error);
                }
                let what = format!("There stands {}. It is read as {version}.", header.escape_ascii());
                (version, Some(Broken::new(Rule::Header, Resource::Trace, 0).detail(what)))
            }
        };
        Ok((Reader::at_first_batch(source, version), broken))
    }

    fn at_first_batch(source: Source<R>, version: Version) -> Reader<R> {
        Reader {
            source,
            version,
            generation: Generation::default(),
            taken: 0,
            reached: Reached::default(),
            again: false,
            on_trial: false,
            frontier: Frontier::default(),
            next_sample: 0,
            sample_time: i64::MAX,
            order: Order::new(),
            last_time: 0,
            syncs: 0,
            ahead: None,
            ahead_synced: false,
            done: false,
            unfinished: 0,
        }
    }

    /// The version of the trace.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The generation of the last event. The `Sync` event that ends the trace still belongs to the last generation.
    pub fn generation(&self) -> &Info {
        &self.generation.info
    }

    /// What the ids of the last event stand for. A clone of the `Arc` keeps the tables after their generation.
    pub fn tables(&self) -> &Arc<Tables> {
        &self.generation.tables
    }

    /// After the end: so many bytes at the end of the file belong to a generation of which the file has no event. Go's
    /// reader passes over them in silence.
    pub fn unfinished_bytes(&self) -> u64 {
        self.unfinished
    }

    /// Nothing comes any more: the trace has ended, or broken.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Takes wrong use of tasks and regions from now on, and keeps account of it.
    pub(super) fn tolerate_annotations(&mut self) {
        self.order.tolerate_annotations();
    }

    /// How much was tolerated since this was asked for the last time, and the first of it.
    pub(super) fn take_tolerated(&mut self) -> (u64, Vec<Broken>) {
        self.order.take_tolerated()
    }

    /// How many bytes the source has given.
    pub(super) fn bytes_read(&self) -> u64 {
        self.source.base() + self.source.bytes().len() as u64
    }

    /// After an error: goes on with the next generation that seems to begin behind what is broken, as if the trace began
    /// there. Answers the bytes that were passed over, and whether there is one.
    ///
    /// That may be the very generation that broke, if it is whole by itself and only does not follow from those before.
    /// `last` is the number of the last generation that was whole.
    pub(super) fn resume(&mut self, last: u64) -> Result<(Range<u64>, bool), Error> {
        let carried = self.taken > 0 && self.order.first_generation() != self.generation.info.number;
        self.order = self.order.anew();
        if carried && self.generation.info.number > last && self.try_alone().is_ok() {
            (self.again, self.done) = (true, false);
            self.set_next_sample(self.generation.samples.len()); // First it begins anew.
            let at = self.source.base();
            return Ok((at..at, true));
        }
        let (pos, damaged) = match std::mem::take(&mut self.taken) {
            0 => (self.reached.pos, self.reached.number),
            taken => (taken, self.generation.info.number),
        };
        let from = self.source.base() + pos as u64;
        self.source.consume(pos);
        self.source.fill_holes()?; // L2
        let found = resync::find(&mut self.source, self.version, last, damaged)?;
        self.order = self.order.anew();
        self.frontier.clear();
        self.generation.samples.clear();
        self.set_next_sample(0);
        (self.ahead, self.ahead_synced) = (None, false);
        (self.done, self.on_trial) = (!found, true);
        Ok((from..self.source.base(), found))
    }

    /// Whether all events of the generation at hand can happen, with nothing before them. Leaves an order in which nothing has.
    fn try_alone(&mut self) -> Result<(), Error> {
        let tolerated = self.order.take_tolerated();
        let result = self.try_events();
        self.order.set_tolerated(tolerated);
        self.order = self.order.anew();
        result
    }

    fn try_events(&mut self) -> Result<(), Error> {
        self.open_frontier()?;
        while self.frontier.first_time().is_some() {
            if !self.attempt(0)? {
                self.attempt_rest()?;
            }
            loop {
                let event = self.order.event();
                let ids = &IDS[event.kind as usize];
                if !ids.are_in(&event.args, &self.generation.tables) {
                    return Err(ids.missing(event, &self.generation.tables).into());
                }
                let Some(next) = self.order.pop() else { break };
                *self.order.event() = next;
            }
        }
        Ok(())
    }

    /// How many goroutines, Ps and Ms exist at this moment of the trace, as far as it has told.
    pub fn alive(&self) -> (usize, usize, usize) {
        self.order.sizes()
    }

    /// Goes on to the next event, which [`Reader::event`] then is. `false` is the end; after an error there is nothing more.
    ///
    /// This costs less than the iterator, which copies each event.
    #[inline]
    pub fn advance(&mut self) -> Result<bool, Error> {
        if self.done {
            return Ok(false);
        }
        let result = self.step();
        if result.is_err() {
            self.done = true;
        }
        result
    }

    /// The event that [`Reader::advance`] or the iterator has come to. After an error it says nothing.
    #[inline]
    pub fn event(&self) -> &Event {
        self.order.last()
    }

    /// The next event, in the order in which they happened, is in `order`; `false` at the end.
    #[inline]
    fn step(&mut self) -> Result<bool, Error> {
        if self.order.has_more() {
            return self.give_more();
        }
        // No sample comes first, and there is an event.
        if self.frontier.first_time().is_some_and(|first| first <= self.sample_time) {
            self.step_first()?;
            return Ok(true);
        }
        self.step_slow()
    }

    /// Goes on to the event that is next by its time, or another one if that cannot happen yet.
    #[inline(always)] // Loops over events are few, and the rest of theirs is small.
    fn step_first(&mut self) -> Result<(), Error> {
        if !self.attempt(0)? {
            self.attempt_rest()?;
        }
        Ok(self.give()?)
    }

    #[cold]
    fn give_more(&mut self) -> Result<bool, Error> {
        match self.order.pop() {
            Some(event) => self.give_other(event),
            None => self.step_slow(),
        }
    }

    #[cold]
    fn step_slow(&mut self) -> Result<bool, Error> {
        match self.generation.samples.get(self.next_sample).copied() {
            Some(sample) => self.give_sample(sample),
            None => self.turn(),
        }
    }

    /// Offers the next event of the M at this place of the frontier.
    #[inline(always)] // There are two callers; one has most of the events.
    fn attempt(&mut self, place: usize) -> Result<bool, Error> {
        let generation = &self.generation;
        let cursor = self.frontier.at_mut(place);
        let event = self.order.event();
        // In place: to copy what has just been written in smaller pieces makes the processor wait.
        let end = cursor.args(&mut event.args)?;
        (event.kind, event.time, event.file_time) = (cursor.kind(), cursor.time, cursor.time);
        event.offset = cursor.offset();
        let (number, tables) = (generation.info.number, &*generation.tables);
        match self.order.advance_here(cursor.m, &mut cursor.slot, number, tables) {
            Ok(Step::NotYet) => Ok(false),
            Ok(Step::Done) => {
                let goes_on = cursor.advance(end, generation, &self.source)?;
                let time = cursor.time;
                self.frontier.moved(place, time, goes_on);
                Ok(true)
            }
            Err(broken) => Err(broken.into()),
        }
    }

    /// The same for another than the first.
    #[inline(never)]
    fn attempt_other(&mut self, place: usize) -> Result<bool, Error> {
        self.attempt(place)
    }

    /// The event of the M at this place of the frontier, for a report.
    fn raw_at(&self, place: usize) -> Result<Raw, Broken> {
        let cursor = self.frontier.at(place);
        let mut args = [0; 4];
        cursor.args(&mut args)?;
        Ok(Raw { kind: cursor.kind(), time: cursor.time, args, offset: cursor.offset() })
    }

    /// The earliest event cannot happen yet: somebody else's must.
    #[cold]
    fn attempt_rest(&mut self) -> Result<(), Error> {
        self.frontier.sort();
        for place in 1..self.frontier.len() {
            if self.attempt_other(place)? {
                return Ok(());
            }
        }
        let first = self.frontier.at(0);
        let broken = Broken::new(Rule::Stuck, Resource::M(first.m), first.offset()).event(first.kind());
        let mut detail = format!("None of the {} Ms can go on:", self.frontier.len());
        for place in 0..self.frontier.len().min(STUCK_REPORTS) {
            let (m, raw) = (self.frontier.at(place).m, self.raw_at(place)?);
            let (generation, tables) = (self.generation.info.number, &*self.generation.tables);
            let attempt = Attempt { raw: &raw, m, generation, tables };
            detail += "\n    ";
            detail += &self.order.why_not_yet(attempt);
        }
        Err(broken.detail(detail).into())
    }

    /// Goes on to the next generation, or to the end.
    #[cold]
    fn turn(&mut self) -> Result<bool, Error> {
        if std::mem::take(&mut self.again) {
            return self.begin();
        }
        if let Some(error) = self.ahead.take_if(|_| self.ahead_synced) {
            return Err(error);
        }
        if self.ahead.is_some() {
            self.ahead_synced = true;
            return self.sync(self.last_time, false);
        }
        self.source.consume(std::mem::take(&mut self.taken));
        match generation::load(&mut self.source, self.version, &mut self.reached) {
            Ok(Outcome::Generation(generation, after)) => {
                self.ahead = after;
                self.install(generation)
            }
            Ok(Outcome::End(unfinished)) => {
                self.unfinished = unfinished;
                self.done = true;
                self.sync(self.last_time, false)
            }
            Err(error) => {
                self.ahead = Some(error);
                self.ahead_synced = true;
                self.sync(self.last_time, false)
            }
        }
    }

    fn install(&mut self, generation: Generation) -> Result<bool, Error> {
        self.taken = generation.info.bytes as usize;
        self.generation = generation;
        if std::mem::take(&mut self.on_trial) {
            self.try_alone()?;
        }
        self.begin()
    }

    /// Goes to the beginning of the generation at hand.
    fn begin(&mut self) -> Result<bool, Error> {
        self.set_next_sample(0);
        self.open_frontier()?;
        self.sync(to_ns(self.generation.min_time, self.generation.tables.ns_per_unit), true)
    }

    fn open_frontier(&mut self) -> Result<(), Error> {
        self.frontier.clear();
        for m in &self.generation.ms {
            self.frontier.push(Cursor::open(m, &self.generation, &self.source)?);
        }
        Ok(())
    }

    fn sync(&mut self, time: i64, begins: bool) -> Result<bool, Error> {
        self.syncs += 1;
        let offset = self.source.base() + if self.done { self.source.bytes().len() as u64 } else { 0 };
        let number = if begins { self.generation.info.number } else { 0 };
        let args = [self.syncs, u64::from(begins), number, 0];
        let prior = Prior::Implied;
        self.give_other(Event { time, file_time: time, m: NONE, p: NONE, g: NONE, kind: Ev::Sync, prior, args, offset })
    }

    fn give_sample(&mut self, sample: Sample) -> Result<bool, Error> {
        self.set_next_sample(self.next_sample + 1);
        let Sample { time, m, p, g, stack, offset } = sample;
        let (kind, prior) = (Ev::CpuSample, Prior::Implied);
        // That the stack exists is not checked, as Go does not: `validate` does.
        self.give_other(Event { time, file_time: time, m, p, g, kind, prior, args: [stack, 0, 0, 0], offset })
    }

    /// The next sample is that one.
    fn set_next_sample(&mut self, next: usize) {
        self.next_sample = next;
        self.sample_time = self.generation.samples.get(next).map_or(i64::MAX, |sample| sample.time);
    }

    /// What is in `order` is given, whatever was there.
    fn give_other(&mut self, event: Event) -> Result<bool, Error> {
        *self.order.event() = event;
        self.give()?;
        Ok(true)
    }

    /// What is in `order` is given.
    #[inline(always)]
    fn give(&mut self) -> Result<(), Broken> {
        let event = self.order.event();
        let ids = &IDS[event.kind as usize];
        if !ids.are_in(&event.args, &self.generation.tables) {
            return Err(ids.missing(event, &self.generation.tables));
        }
        if event.time <= self.last_time {
            event.time = self.last_time.wrapping_add(1);
        }
        self.last_time = event.time;
        Ok(())
    }
}

/// Takes the header out of the source.
fn header<R: Input>(source: &mut Source<R>) -> Result<[u8; Version::HEADER_BYTES], Error> {
    source.fill_to(Version::HEADER_BYTES)?;
    let header = *source.bytes().first_chunk().ok_or(Error::NotATrace)?;
    source.consume(Version::HEADER_BYTES);
    Ok(header)
}

impl<R: Input> Iterator for Reader<R> {
    type Item = Result<Event, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(true) => Some(Ok(*self.event())),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

/// The index of no argument.
const NO_ARG: u8 = u8::MAX;

/// Which arguments of an event, `dt` not counted, are ids of stacks and strings. No event has more than two of a kind.
#[derive(Clone, Copy)]
struct Ids {
    stacks: [u8; 2],
    strings: [u8; 2],
    /// There is a second of a kind.
    more: bool,
}

impl Ids {
    /// What the event names is in the tables.
    #[inline(always)]
    fn are_in(&self, args: &[u64; 4], tables: &Tables) -> bool {
        let arg = |i: u8| args.get(usize::from(i)).copied();
        // The first of a kind is that of an event with only one.
        arg(self.stacks[0]).is_none_or(|id| tables.has_stack(id))
            && arg(self.strings[0]).is_none_or(|id| tables.has_string(id))
            && (!self.more
                || arg(self.stacks[1]).is_none_or(|id| tables.has_stack(id))
                    && arg(self.strings[1]).is_none_or(|id| tables.has_string(id)))
    }

    #[cold]
    fn missing(&self, event: &Event, tables: &Tables) -> Broken {
        let arg = |&i: &u8| event.args.get(usize::from(i)).copied();
        let stack = self.stacks.iter().filter_map(arg).find(|&id| !tables.has_stack(id));
        let string = self.strings.iter().filter_map(arg).find(|&id| !tables.has_string(id)).unwrap_or_default();
        let (rule, resource) = match stack {
            Some(id) => (Rule::EventStack, Resource::Stack(id)),
            None => (Rule::EventString, Resource::String(string)),
        };
        Broken::new(rule, resource, event.offset).event(event.kind)
    }
}

static IDS: [Ids; 256] = {
    const NONE: Ids = Ids { stacks: [NO_ARG; 2], strings: [NO_ARG; 2], more: false };
    let mut ids = [NONE; 256];
    let mut i = 0;
    while i < SPECS.len() {
        let spec = &SPECS[i];
        let (mut stacks, mut strings) = (0, 0);
        let mut arg = 1;
        while arg < spec.args.len() && spec.timed {
            let place = &mut ids[spec.ev as usize];
            match spec.args[arg].kind {
                ArgKind::Stack => {
                    place.stacks[stacks] = arg as u8 - 1;
                    stacks += 1;
                }
                ArgKind::String => {
                    place.strings[strings] = arg as u8 - 1;
                    strings += 1;
                }
                _ => {}
            }
            place.more |= stacks > 1 || strings > 1;
            arg += 1;
        }
        i += 1;
    }
    ids
};
