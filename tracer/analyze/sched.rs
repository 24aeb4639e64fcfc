//! How long goroutines waited for a P, and for what.

use std::sync::Arc;

use super::histogram::Histogram;
use super::intern::{NameId, Stacks};

/// How many of the longest waits are kept.
const LONGEST_MAX: usize = 20;

/// One wait of one goroutine for a P.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Which goroutine.
    pub g: i64,
    /// What it is called: the function it was started with.
    pub name: Option<Arc<str>>,
    /// When it became runnable, in ns on the trace's clock.
    pub begin: i64,
    /// Until it ran, in ns.
    pub ns: u64,
    /// Idle Ps could have saved so much of that, in ns.
    pub idle: u64,
    /// So much of it passed while the world was stopped, in ns.
    pub stopped: u64,
}

/// Scheduling latency: from being made runnable to running, for each time that both are in the trace.
///
/// The wait of each goroutine splits into three. What idle Ps could have saved is the scheduler's (or the system's, which did
/// not run the thread that was woken): while I Ps are idle and R goroutines wait, that is I / R of the time, at most all of
/// it, and I / P if more wait than there are Ps. The second part is a stopped world. In the rest the Ps had something else
/// to do.
#[derive(Clone, Debug, Default)]
pub struct Delays {
    /// How often and how long.
    pub all: Histogram,
    /// The sum of [`Delay::idle`].
    pub idle: u128,
    /// The sum of [`Delay::stopped`].
    pub stopped: u128,
    /// The longest, the longest first.
    pub longest: Vec<Delay>,
    names: Vec<Option<NameId>>,
}

impl Delays {
    /// The part of all waits that was for Ps that had something else to do, in ns.
    pub fn busy(&self) -> u128 {
        self.all.total().saturating_sub(self.idle + self.stopped)
    }

    #[inline]
    pub(super) fn add(&mut self, delay: Delay, name: Option<NameId>) {
        self.all.add(delay.ns);
        self.idle += u128::from(delay.idle);
        self.stopped += u128::from(delay.stopped);
        if self.longest.len() < LONGEST_MAX || self.longest[LONGEST_MAX - 1].ns < delay.ns {
            let at = self.longest.partition_point(|other| other.ns >= delay.ns);
            self.longest.insert(at, delay);
            self.names.insert(at, name);
            self.longest.truncate(LONGEST_MAX);
            self.names.truncate(LONGEST_MAX);
        }
    }

    pub(super) fn finish(&mut self, stacks: &Stacks) {
        for (delay, name) in self.longest.iter_mut().zip(self.names.drain(..)) {
            delay.name = name.map(|name| stacks.text(name).clone());
        }
    }
}
