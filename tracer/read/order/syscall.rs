//! Blocking calls: the goroutine keeps its M, and its P until somebody steals it.

use super::state::{Context, GState};
use super::{At, Need, Order, Step, Verdict, has_g};
use crate::read::error::{Broken, Resource};
use crate::read::event::{NONE, Prior};
use crate::read::rule::Rule;
use crate::wire::{Ev, GoStatus, ProcStatus};

impl Order {
    #[inline(always)]
    pub(super) fn syscall_begin(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        self.current_g_in(at, cx, GoStatus::Running)?.status = GoStatus::Syscall;
        // The number says which of the P's blocking calls a theft belongs to, whatever the clocks say.
        let seq = at.seq(self.event.args[0]);
        let state = self.current_p(at, cx)?;
        state.status = ProcStatus::Syscall;
        if !seq.follows(state.seq) {
            let detail = format!("It takes {seq} after {}.", state.seq);
            return Err(at.broken(Rule::SyscallSeq, Resource::P(cx.p)).detail(detail));
        }
        state.seq = seq;
        self.happen(cx);
        Ok(Step::Done)
    }

    #[inline(always)]
    pub(super) fn syscall_end(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::G)?;
        self.current_g_in(at, cx, GoStatus::Syscall)?.status = GoStatus::Running;
        self.current_p_in_syscall(at, cx)?;
        self.current_p(at, cx)?.status = ProcStatus::Running;
        self.happen(cx);
        Ok(Step::Done)
    }

    pub(super) fn syscall_end_blocked(&mut self, at: At<'_>, cx: Context) -> Verdict {
        // A P that is in no blocking call is one that the M has started since.
        if cx.p != NONE && self.current_p(at, cx)?.status == ProcStatus::Syscall {
            return Ok(Step::NotYet);
        }
        self.needs_g_without_p(at, cx)?;
        self.current_g_in(at, cx, GoStatus::Syscall)?.status = GoStatus::Runnable;
        self.happen(cx);
        self.set_g(cx, NONE);
        Ok(Step::Done)
    }

    pub(super) fn go_create_syscall(&mut self, at: At<'_>, cx: Context) -> Verdict {
        at.needs(cx, Need::M)?;
        if cx.g != NONE {
            return Err(has_g(at.broken(Rule::ForbidsG, Resource::M(cx.m)), cx.g));
        }
        let id = self.event.args[0] as i64;
        if self.gs.contains(id) {
            return Err(at.broken(Rule::GoExists, Resource::G(id)));
        }
        self.gs.insert(id, GState::new(GoStatus::Syscall, at.generation));
        self.happen(cx);
        self.set_g(cx, id);
        Ok(Step::Done)
    }

    /// The callback is over. The M's id may be reused by the system, so a P that it still has is taken for lost.
    pub(super) fn go_destroy_syscall(&mut self, at: At<'_>, cx: Context) -> Verdict {
        self.needs_g_without_p(at, cx)?;
        self.current_g_in(at, cx, GoStatus::Syscall)?;
        self.gs.remove(cx.g);
        if cx.p != NONE {
            self.current_p_in_syscall(at, cx)?;
            self.current_p(at, cx)?.status = ProcStatus::SyscallAbandoned;
            let args = self.event.args;
            self.happen_as(cx, Ev::ProcSteal, [cx.p as u64, 0, 0, 0], Prior::Implied);
            self.happen_too(cx, at.kind, args);
        } else {
            self.happen(cx);
        }
        self.set_p(cx, NONE);
        self.set_g(cx, NONE);
        Ok(Step::Done)
    }

    fn needs_g_without_p(&self, at: At<'_>, cx: Context) -> Result<(), Broken> {
        at.needs(cx, Need::M)?;
        if cx.g == NONE {
            return Err(at.broken(Rule::NeedsG, Resource::M(cx.m)));
        }
        Ok(())
    }

    #[inline(always)]
    fn current_p_in_syscall(&mut self, at: At<'_>, cx: Context) -> Result<(), Broken> {
        let status = self.current_p(at, cx)?.status;
        if status == ProcStatus::Syscall {
            return Ok(());
        }
        Err(at.broken(Rule::ProcInSyscall, Resource::P(cx.p)).detail(format!("It is {}.", status.name())))
    }
}
