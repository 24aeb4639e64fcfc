//! Goroutines: created, started, stopped, blocked, unblocked, destroyed, switched.

use super::state::{Context, GState};
use super::{At, Need, Order, Step, Verdict, has_g};
use crate::read::error::Resource;
use crate::read::event::NONE;
use crate::read::rule::Rule;
use crate::wire::{Ev, GoStatus};

impl Order {
    #[inline(always)] // Most events are of these kinds.
    pub(super) fn go_create(&mut self, at: At<'_>, cx: Context, status: GoStatus) -> Verdict {
        at.needs(cx, Need::P)?;
        if let Some(creator) = self.gs.get_mut(cx.g).filter(|state| state.status != GoStatus::Running) {
            let detail = format!("It is {}.", creator.status.name());
            return Err(at.broken(Rule::GoCreateRunner, Resource::G(cx.g)).detail(detail));
        }
        let id = self.event.args[0] as i64;
        if self.gs.contains(id) {
            return Err(at.broken(Rule::GoExists, Resource::G(id)));
        }
        self.gs.insert(id, GState::new(status, at.generation));
        self.happen(cx);
        Ok(Step::Done)
    }

    /// GoDestroy, GoStop, GoBlock: the running goroutine leaves the M.
    #[inline(always)] // Most events are of these kinds.
    pub(super) fn go_leave(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        let state = self.current_g_in(at, cx, GoStatus::Running)?;
        match at.kind {
            Ev::GoStop => state.status = GoStatus::Runnable,
            Ev::GoBlock => state.status = GoStatus::Waiting,
            _ => {
                self.gs.remove(cx.g);
            }
        }
        self.happen(cx);
        self.set_g(cx, NONE);
        Ok(Step::Done)
    }

    #[inline(always)] // Most events are of these kinds.
    pub(super) fn go_start(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let [id, number, ..] = self.event.args;
        let seq = at.seq(number);
        let Some(state) = self.gs.get_mut(id as i64) else { return Ok(Step::NotYet) };
        if state.status != GoStatus::Runnable || !seq.follows(state.seq) {
            return Ok(Step::NotYet);
        }
        at.needs(cx, Need::P)?;
        if cx.g != NONE {
            return Err(has_g(at.broken(Rule::ForbidsG, Resource::M(cx.m)), cx.g));
        }
        state.status = GoStatus::Running;
        state.seq = seq;
        self.happen(cx);
        self.set_g(cx, id as i64);
        Ok(Step::Done)
    }

    #[inline(always)] // Most events are of these kinds.
    pub(super) fn go_unblock(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let [id, number, ..] = self.event.args;
        let seq = at.seq(number);
        let Some(state) = self.gs.get_mut(id as i64) else { return Ok(Step::NotYet) };
        if state.status != GoStatus::Waiting || !seq.follows(state.seq) {
            return Ok(Step::NotYet);
        }
        state.status = GoStatus::Runnable;
        state.seq = seq;
        self.happen(cx); // Anybody may unblock: no P is needed, nor even an M.
        Ok(Step::Done)
    }

    /// GoSwitch, GoSwitchDestroy: unblock the next goroutine, block or destroy this one, start the next.
    #[inline(never)]
    pub(super) fn go_switch(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        self.current_g_in(at, cx, GoStatus::Running)?;
        let [id, number, ..] = self.event.args;
        let (id, seq) = (id as i64, at.seq(number));
        let Some(next) = self.gs.get_mut(id) else { return Ok(Step::NotYet) };
        if next.status != GoStatus::Waiting || !seq.follows(next.seq) {
            return Ok(Step::NotYet);
        }
        next.status = GoStatus::Running;
        next.seq = seq;
        let ends = at.kind == Ev::GoSwitchDestroy;
        if ends {
            self.gs.remove(cx.g);
        } else {
            self.current_g(at, cx)?.status = GoStatus::Waiting;
        }
        self.happen(cx);
        let left = if ends { Ev::GoDestroy } else { Ev::GoBlock };
        self.happen_too(cx, left, [0; 4]);
        let nobody = Context { g: NONE, ..cx };
        self.happen_too(nobody, Ev::GoStart, [self.event.args[0], number, 0, 0]);
        self.set_g(cx, id);
        Ok(Step::Done)
    }
}
