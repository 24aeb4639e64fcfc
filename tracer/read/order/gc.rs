//! Ranges of time: GC cycles (of the whole program), sweeps (of a P), assists and stops of the world (of a goroutine).
//!
//! A GC cycle may begin on one M and end on another, so its events are ordered by sequence numbers. The other ranges
//! stay with the resource that they belong to.

use super::state::Context;
use super::{At, Need, Order, Step, Verdict};
use crate::read::error::Resource;
use crate::read::event::Prior;
use crate::read::rule::Rule;
use crate::wire::Ev;

/// What is known of the GC.
#[derive(Debug, Default)]
pub(super) struct Gc {
    pub seq: u64,
    /// A cycle is running; `None` before the first event about it.
    running: Option<bool>,
}

impl Gc {
    fn is_next(&self, seq: u64) -> bool {
        seq == self.seq.wrapping_add(1)
    }
}

impl Order {
    pub(super) fn gc_active(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let seq = self.event.args[0];
        if self.in_first_generation(at) {
            if self.gc.running.is_some() {
                return Err(at.broken(Rule::GcActiveFirst, Resource::Trace));
            }
            self.gc = Gc { seq, running: Some(true) };
            self.happen(cx);
            return Ok(Step::Done);
        }
        if !self.gc.is_next(seq) {
            return Ok(Step::NotYet);
        }
        if self.gc.running != Some(true) {
            return Err(at.broken(Rule::GcRunning, Resource::Trace));
        }
        self.gc.seq = seq;
        self.instant(at, cx, Need::G)
    }

    pub(super) fn gc_begin(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let seq = self.event.args[0];
        if self.gc.running.is_none() {
            self.gc = Gc { seq, running: Some(true) };
            self.happen(cx);
            return Ok(Step::Done);
        }
        if !self.gc.is_next(seq) {
            return Ok(Step::NotYet);
        }
        if self.gc.running == Some(true) {
            return Err(at.broken(Rule::GcIdle, Resource::Trace));
        }
        self.gc = Gc { seq, running: Some(true) };
        self.instant(at, cx, Need::G)
    }

    pub(super) fn gc_end(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let seq = self.event.args[0];
        if !self.gc.is_next(seq) {
            return Ok(Step::NotYet);
        }
        if self.gc.running != Some(true) {
            return Err(at.broken(Rule::GcRunning, Resource::Trace));
        }
        self.gc = Gc { seq, running: Some(false) };
        self.instant(at, cx, Need::G)
    }

    pub(super) fn sweep_begin(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::P)?;
        let state = self.current_p(at, cx)?;
        if std::mem::replace(&mut state.sweeping, true) {
            return Err(at.broken(Rule::RangeOpen, Resource::P(cx.p)));
        }
        self.happen(cx);
        Ok(Step::Done)
    }

    pub(super) fn sweep_active(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let id = self.event.args[0] as i64;
        let first = self.in_first_generation(at);
        let Some(state) = self.ps.get_mut(id) else {
            return Err(at.broken(Rule::ProcUnknown, Resource::P(id)));
        };
        if state.sweeping == first {
            let rule = if first { Rule::RangeOpen } else { Rule::RangeMissing };
            return Err(at.broken(rule, Resource::P(id)));
        }
        state.sweeping = true;
        self.happen(cx);
        Ok(Step::Done)
    }

    pub(super) fn sweep_end(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::P)?;
        let state = self.current_p(at, cx)?;
        if !std::mem::replace(&mut state.sweeping, false) {
            return Err(at.broken(Rule::RangeEnd, Resource::P(cx.p)));
        }
        self.happen(cx);
        Ok(Step::Done)
    }

    /// STWBegin, GCMarkAssistBegin.
    pub(super) fn go_range_begin(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        let reason = if at.kind == Ev::StwBegin { self.event.args[0] } else { 0 };
        if !self.current_g(at, cx)?.extra().ranges.begin((at.kind, reason)) {
            return Err(at.broken(Rule::RangeOpen, Resource::G(cx.g)));
        }
        self.happen(cx);
        Ok(Step::Done)
    }

    /// GCMarkAssistActive. The goroutine that it is about need not be running.
    pub(super) fn go_range_active(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let id = self.event.args[0] as i64;
        let first = self.in_first_generation(at);
        let Some(state) = self.gs.get_mut(id) else {
            return Err(at.broken(Rule::GoUnknown, Resource::G(id)));
        };
        let range = (Ev::GcMarkAssistBegin, 0);
        let ok = if first {
            state.extra().ranges.begin(range)
        } else {
            state.with_extra(|extra| extra.ranges.has(range)) == Some(true)
        };
        if !ok {
            let rule = if first { Rule::RangeOpen } else { Rule::RangeMissing };
            return Err(at.broken(rule, Resource::G(id)));
        }
        self.happen(cx);
        Ok(Step::Done)
    }

    /// STWEnd, GCMarkAssistEnd.
    pub(super) fn go_range_end(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        let begin = if at.kind == Ev::StwEnd { Ev::StwBegin } else { Ev::GcMarkAssistBegin };
        let ended = self.current_g(at, cx)?.with_extra(|extra| extra.ranges.end(begin)).flatten();
        let Some(reason) = ended else {
            return Err(at.broken(Rule::RangeEnd, Resource::G(cx.g)));
        };
        let mut args = self.event.args;
        if at.kind == Ev::StwEnd {
            args[0] = reason;
        }
        self.happen_as(cx, at.kind, args, Prior::Implied);
        Ok(Step::Done)
    }
}
