//! What the user's program says of itself: tasks and regions.
//!
//! A task may be named without having begun, and end more than once: only a second begin is wrong. Regions nest, but
//! one may end that began before the trace did.

use super::state::{Context, name_hash};
use super::{At, Need, Order, Step, Verdict};
use crate::read::error::{Broken, Resource};
use crate::read::rule::Rule;

impl Order {
    pub(super) fn task_begin(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let [task, _, name, _] = self.event.args;
        if self.tasks.contains(&task) {
            self.annotation(at.broken(Rule::TaskConflict, Resource::Task(task)))?;
        }
        self.hash_of(at, name)?;
        at.needs(cx, Need::G)?;
        self.tasks.insert(task);
        self.happen(cx);
        Ok(Step::Done)
    }

    pub(super) fn task_end(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        self.tasks.remove(&self.event.args[0]);
        self.happen(cx);
        Ok(Step::Done)
    }

    pub(super) fn region_begin(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        let [task, name, ..] = self.event.args;
        let region = (task, self.hash_of(at, name)?);
        self.current_g(at, cx)?.extra().regions.push(region);
        self.happen(cx);
        Ok(Step::Done)
    }

    pub(super) fn region_end(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        let [task, name, ..] = self.event.args;
        let region = (task, self.hash_of(at, name)?);
        let innermost = self.current_g(at, cx)?.with_extra(|extra| extra.regions.pop()).flatten();
        if innermost.is_some_and(|open| open != region) {
            self.annotation(at.broken(Rule::RegionNesting, Resource::G(cx.g)))?;
        }
        self.happen(cx);
        Ok(Step::Done)
    }

    fn hash_of(&self, at: At<'_>, name: u64) -> Result<u64, Broken> {
        name_hash(at.tables, name, &self.names).ok_or_else(|| at.broken(Rule::EventString, Resource::String(name)))
    }
}
