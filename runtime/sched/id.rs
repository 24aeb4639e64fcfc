//! The number of a goroutine, for the program.

use std::fmt;
use std::num::NonZeroU64;

/// A goroutine's number, as the trace and dumps show it. No two goroutines of a process have the same.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Id(NonZeroU64);

impl Id {
    pub(crate) fn new(id: u64) -> Id {
        Id(NonZeroU64::new(id).expect("ids begin at 1"))
    }

    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Id({})", self.0)
    }
}
