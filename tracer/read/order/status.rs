//! Statuses: what a G or P was doing when it is first named in a generation. They restart its sequence numbers.
//!
//! In the first generation a status brings its resource into the world; later it must say what is known already.

use super::state::{Context, GState, MState, PState, Seq};
use super::{At, Order, Step, Verdict};
use crate::read::error::Resource;
use crate::read::event::{NONE, Prior};
use crate::read::rule::Rule;
use crate::wire::{GoStatus, ProcStatus};

impl Order {
    pub(super) fn proc_status(&mut self, at: At<'_>, mut cx: Context) -> Verdict {
        let [id, status, ..] = self.event.args;
        let id = id as i64;
        let Some(status) = ProcStatus::from_u8(status as u8) else {
            let detail = format!("It is {status}.");
            return Err(at.broken(Rule::ProcStatusKnown, Resource::P(id)).detail(detail));
        };
        let seq = Seq { generation: at.generation, number: 0 };
        let first = self.in_first_generation(at);
        let mut args = self.event.args;
        let mut prior = Prior::Implied;
        let mut owner = None;
        if let Some(state) = self.ps.get_mut(id) {
            if status == ProcStatus::SyscallAbandoned && state.status == ProcStatus::Syscall {
                // Nothing was lost: the blocking call is known. The P is about to be stolen, and whoever says so is not
                // the one who has it.
                args[1] = ProcStatus::Syscall as u64;
                let Some(found) = self.ms.with_p(id) else {
                    return Err(at.broken(Rule::ProcBound, Resource::P(id)));
                };
                owner = Some(found);
            } else if state.status != status {
                let detail = format!("It was {} and is said to be {}.", state.status.name(), status.name());
                return Err(at.broken(Rule::ProcStatusSame, Resource::P(id)).detail(detail));
            }
            state.seq = seq;
        } else {
            self.ps.insert(id, PState { seq, status, sweeping: false });
            prior = if first { Prior::Undetermined } else { Prior::NotExist };
        }
        if matches!(status, ProcStatus::Running | ProcStatus::Syscall) {
            self.set_p(cx, id);
        }
        if let Some((m, MState { g, .. })) = owner {
            cx = Context { m, p: id, g, ..cx };
        }
        self.happen_as(cx, at.kind, args, prior);
        Ok(Step::Done)
    }

    pub(super) fn go_status(&mut self, at: At<'_>, mut cx: Context) -> Verdict {
        let [id, m, status, _] = self.event.args;
        let (id, m) = (id as i64, m as i64);
        let Some(status) = GoStatus::from_u8(status as u8) else {
            return Err(at.broken(Rule::GoStatusKnown, Resource::G(id)).detail(format!("It is {status}.")));
        };
        let first = self.in_first_generation(at);
        let mut prior = Prior::Implied;
        match self.gs.get_mut(id) {
            Some(state) if state.status != status => {
                let detail = format!("It was {} and is said to be {}.", state.status.name(), status.name());
                return Err(at.broken(Rule::GoStatusSame, Resource::G(id)).detail(detail));
            }
            Some(state) => state.seq = Seq { generation: at.generation, number: 0 },
            None if first => {
                self.gs.insert(id, GState::new(status, at.generation));
                prior = Prior::Undetermined;
            }
            None => return Err(at.broken(Rule::GoStatusNew, Resource::G(id))),
        }
        match status {
            GoStatus::Running => self.set_g(cx, id),
            GoStatus::Syscall if m == NONE => return Err(at.broken(Rule::SyscallM, Resource::G(id))),
            GoStatus::Syscall if m == cx.m => {
                if !first && cx.g != id {
                    return Err(self.wrong_owner(at, id, m, cx.g));
                }
                self.set_g(cx, id);
            }
            GoStatus::Syscall => {
                // The goroutine has been in its blocking call for the whole generation, and somebody else tells of it.
                match self.ms.get(m).map(|state| state.g) {
                    Some(g) if g != id => return Err(self.wrong_owner(at, id, m, g)),
                    Some(g) => cx.g = g,
                    None => {
                        let slot = self.ms.slot(m);
                        self.set_g(Context { slot, ..cx }, id);
                    }
                }
                cx.m = m;
            }
            GoStatus::Bad | GoStatus::Runnable | GoStatus::Waiting => {}
        }
        self.happen_as(cx, at.kind, self.event.args, prior);
        Ok(Step::Done)
    }

    fn wrong_owner(&self, at: At<'_>, id: i64, m: i64, has: i64) -> crate::read::error::Broken {
        at.broken(Rule::SyscallOwner, Resource::G(id)).detail(format!("M {m} has G {has}."))
    }
}
