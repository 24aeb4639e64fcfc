//! Who a goroutine is: the function it was started with, as far as the trace has told.
//!
//! Memory: 16 bytes for each live goroutine, and the distinct stacks that named one.

use super::intern::{NameId, Stacks};
use crate::read::hash::IdMap;
use crate::read::{Event, Tables};
use crate::wire::Ev;

/// The names of the goroutines that are alive.
#[derive(Debug, Default)]
pub struct Names {
    stacks: Stacks,
    of: IdMap<NameId>,
}

impl Names {
    /// Takes the next event. What it says of a goroutine's name is known from then on; one that ends in it is forgotten.
    pub fn event(&mut self, event: &Event, tables: &Tables) {
        match event.kind {
            Ev::Sync => self.stacks.turn(),
            Ev::GoCreate | Ev::GoCreateBlocked => {
                let stack = self.stacks.stack(event.args[1], tables);
                if let Some(name) = self.stacks.site_func(stack) {
                    self.of.insert(event.args[0] as i64, name);
                }
            }
            Ev::GoBlock | Ev::GoStop | Ev::GoSyscallBegin => self.learn(event.g, event, tables),
            Ev::GoStatusStack => self.learn(event.args[0] as i64, event, tables),
            Ev::GoDestroy | Ev::GoDestroySyscall => drop(self.of.remove(&event.g)),
            _ => {}
        }
    }

    fn learn(&mut self, g: i64, event: &Event, tables: &Tables) {
        if !self.of.contains_key(&g) {
            let stack = self.stacks.stack(event.stack(), tables);
            if let Some(name) = self.stacks.root_func(stack) {
                self.of.insert(g, name);
            }
        }
    }

    /// The trace is broken behind the last event: ids may be anybody's.
    pub fn gap(&mut self) {
        self.of.clear();
    }

    /// The function that a goroutine was started with.
    pub fn get(&self, g: i64) -> Option<&str> {
        self.of.get(&g).map(|&name| &**self.stacks.text(name))
    }
}
