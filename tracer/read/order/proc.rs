//! Ps: started and stopped by the M that has them, stolen by another while that M is in a blocking call.

use super::state::Context;
use super::{At, Need, Order, Step, Verdict};
use crate::read::error::Resource;
use crate::read::event::{NONE, Prior};
use crate::read::rule::Rule;
use crate::wire::ProcStatus;

impl Order {
    pub(super) fn proc_start(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let [id, number, ..] = self.event.args;
        let seq = at.seq(number);
        let Some(state) = self.ps.get_mut(id as i64) else { return Ok(Step::NotYet) };
        // With a P the M is in a blocking call, and that P's theft has not happened yet.
        if state.status != ProcStatus::Idle || !seq.follows(state.seq) || cx.p != NONE {
            return Ok(Step::NotYet);
        }
        at.needs(cx, Need::M)?; // A goroutine may be there: it comes back from a blocking call.
        state.status = ProcStatus::Running;
        state.seq = seq;
        self.happen(cx);
        self.set_p(cx, id as i64);
        Ok(Step::Done)
    }

    pub(super) fn proc_stop(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::P)?;
        let state = self.current_p(at, cx)?;
        if !matches!(state.status, ProcStatus::Running | ProcStatus::Syscall) {
            let detail = format!("It is {}.", state.status.name());
            return Err(at.broken(Rule::ProcRunning, Resource::P(cx.p)).detail(detail));
        }
        state.status = ProcStatus::Idle;
        self.happen(cx);
        self.set_p(cx, NONE);
        Ok(Step::Done)
    }

    pub(super) fn proc_steal(&mut self, at: At<'_>, cx: Context) -> Verdict {
        let [id, number, victim, _] = self.event.args;
        let (id, victim) = (id as i64, victim as i64);
        let seq = at.seq(number);
        let Some(state) = self.ps.get_mut(id) else { return Ok(Step::NotYet) };
        let abandoned = state.status == ProcStatus::SyscallAbandoned;
        if !(abandoned || state.status == ProcStatus::Syscall) || !seq.follows(state.seq) {
            return Ok(Step::NotYet);
        }
        at.needs(cx, Need::M)?;
        state.status = ProcStatus::Idle;
        state.seq = seq;
        if abandoned {
            // Which M had it has been lost. That M may be anywhere by now, so it is left alone.
            self.happen_as(cx, at.kind, self.event.args, Prior::Idle);
            return Ok(Step::Done);
        }
        if victim == cx.m {
            if cx.p != id {
                let detail = format!("The M has P {}.", cx.p);
                return Err(at.broken(Rule::StealOwn, Resource::P(id)).detail(detail));
            }
            self.happen(cx);
            self.set_p(cx, NONE);
            return Ok(Step::Done);
        }
        let Some(victim_state) = self.ms.get(victim) else {
            return Err(at.broken(Rule::StealM, Resource::M(victim)));
        };
        if victim_state.p != id {
            let detail = format!("M {victim} has P {}.", victim_state.p);
            return Err(at.broken(Rule::StealP, Resource::P(id)).detail(detail));
        }
        // The victim's GoSyscallEndBlocked waits for this.
        victim_state.p = NONE;
        self.happen(cx);
        Ok(Step::Done)
    }
}
