//! Events, in order and in context.

use std::borrow::Cow;

use super::tables::Tables;
use crate::wire::{ArgKind, Ev, GoStatus, ProcStatus, SPECS};

/// No G, no P or no M.
pub const NONE: i64 = -1;

/// Something that happened.
///
/// Plain data: what its ids stand for, the tables of its generation know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in ns on the trace's clock. Strictly increasing: where the file has equal or falling times, they are
    /// spread by a nanosecond each.
    pub time: i64,
    /// When, in ns, as the file has it.
    pub file_time: i64,
    /// The M it happened on, or [`NONE`].
    pub m: i64,
    /// The P that the M had before it, or [`NONE`].
    pub p: i64,
    /// The goroutine that the M ran before it, or [`NONE`].
    pub g: i64,
    /// What happened.
    ///
    /// Of the structural events there are `CpuSample` (its arguments: the stack) and `Sync`: the first event of each
    /// generation, and the last of the trace (its arguments: its number, from 1; 1 if a generation begins; that
    /// one's number).
    pub kind: Ev,
    /// What was known of the G or P that a status, or a theft, is about.
    pub prior: Prior,
    /// The arguments without `dt`, as [`Spec::args`](crate::wire::Spec::args) names them. The end of a stop of the
    /// world has the reason of its begin as its first.
    pub args: [u64; 4],
    /// Where it stands in the file.
    pub offset: u64,
}

/// What was known of a resource before an event that does not imply it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prior {
    /// The event implies it, or it is what the event says.
    #[default]
    Implied,
    /// Nothing: the resource existed before the trace did.
    Undetermined,
    /// It did not exist.
    NotExist,
    /// It was idle, as far as one can see.
    Idle,
}

/// The kinds of event that Go's tools show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A boundary between generations.
    Sync,
    /// A number has changed.
    Metric,
    /// A goroutine has got a label.
    Label,
    /// A sample of the CPU profile.
    StackSample,
    /// A range of time begins.
    RangeBegin,
    /// A range of time is open.
    RangeActive,
    /// A range of time ends.
    RangeEnd,
    /// A user task begins.
    TaskBegin,
    /// A user task ends.
    TaskEnd,
    /// A region begins.
    RegionBegin,
    /// A region ends.
    RegionEnd,
    /// A user's message.
    Log,
    /// A G or a P changes its state.
    StateTransition,
    /// An event of an experiment.
    Experimental,
}

impl Kind {
    /// As Go writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Sync => "Sync",
            Kind::Metric => "Metric",
            Kind::Label => "Label",
            Kind::StackSample => "StackSample",
            Kind::RangeBegin => "RangeBegin",
            Kind::RangeActive => "RangeActive",
            Kind::RangeEnd => "RangeEnd",
            Kind::TaskBegin => "TaskBegin",
            Kind::TaskEnd => "TaskEnd",
            Kind::RegionBegin => "RegionBegin",
            Kind::RegionEnd => "RegionEnd",
            Kind::Log => "Log",
            Kind::StateTransition => "StateTransition",
            Kind::Experimental => "Experimental",
        }
    }

    /// The kind of an event that [`Reader`](super::Reader) gives.
    #[inline]
    pub fn of(ev: Ev) -> Kind {
        KINDS[ev as usize]
    }

    const fn find(ev: Ev) -> Kind {
        match ev {
            Ev::CpuSample => Kind::StackSample,
            Ev::ProcsChange | Ev::HeapAlloc | Ev::HeapGoal => Kind::Metric,
            Ev::GoLabel => Kind::Label,
            Ev::StwBegin | Ev::GcBegin | Ev::GcSweepBegin | Ev::GcMarkAssistBegin => Kind::RangeBegin,
            Ev::GcActive | Ev::GcSweepActive | Ev::GcMarkAssistActive => Kind::RangeActive,
            Ev::StwEnd | Ev::GcEnd | Ev::GcSweepEnd | Ev::GcMarkAssistEnd => Kind::RangeEnd,
            Ev::UserTaskBegin => Kind::TaskBegin,
            Ev::UserTaskEnd => Kind::TaskEnd,
            Ev::UserRegionBegin => Kind::RegionBegin,
            Ev::UserRegionEnd => Kind::RegionEnd,
            Ev::UserLog => Kind::Log,
            _ => Kind::Sync,
        }
    }
}

/// Of every number; a look costs less than a choice between many.
static KINDS: [Kind; 256] = {
    let mut kinds = [Kind::Sync; 256];
    let mut i = 0;
    while i < SPECS.len() {
        let spec = &SPECS[i];
        kinds[spec.ev as usize] = match Kind::find(spec.ev) {
            Kind::Sync if spec.experiment != 0 => Kind::Experimental,
            Kind::Sync if spec.timed && spec.ev as u8 != Ev::ClockSnapshot as u8 => Kind::StateTransition,
            kind => kind,
        };
        i += 1;
    }
    kinds
};

/// A state of a G or a P, as Go's tools name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing is known.
    Undetermined,
    /// It does not exist.
    NotExist,
    /// A goroutine waits for a P.
    Runnable,
    /// A goroutine or a P runs.
    Running,
    /// A goroutine is in a blocking call.
    Syscall,
    /// A goroutine is blocked.
    Waiting,
    /// A P is nobody's.
    Idle,
}

impl State {
    /// As Go writes it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Undetermined => "Undetermined",
            State::NotExist => "NotExist",
            State::Runnable => "Runnable",
            State::Running => "Running",
            State::Syscall => "Syscall",
            State::Waiting => "Waiting",
            State::Idle => "Idle",
        }
    }

    fn of_go(status: u64) -> State {
        match GoStatus::from_u8(status as u8) {
            Some(GoStatus::Runnable) => State::Runnable,
            Some(GoStatus::Running) => State::Running,
            Some(GoStatus::Syscall) => State::Syscall,
            Some(GoStatus::Waiting) => State::Waiting,
            Some(GoStatus::Bad) | None => State::Undetermined,
        }
    }

    fn of_proc(status: u64) -> State {
        match ProcStatus::from_u8(status as u8) {
            Some(ProcStatus::Running | ProcStatus::Syscall) => State::Running,
            Some(ProcStatus::Idle | ProcStatus::SyscallAbandoned) => State::Idle,
            Some(ProcStatus::Bad) | None => State::Undetermined,
        }
    }
}

/// A change of state. One to the same state is a status: it was seen, not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// Of a goroutine.
    G {
        /// Which.
        id: i64,
        /// The state before.
        from: State,
        /// The state after.
        to: State,
    },
    /// Of a P.
    P {
        /// Which.
        id: i64,
        /// The state before.
        from: State,
        /// The state after.
        to: State,
    },
}

impl Event {
    /// A place for an event.
    pub(crate) const BLANK: Event = Event {
        time: 0,
        file_time: 0,
        m: NONE,
        p: NONE,
        g: NONE,
        kind: Ev::Sync,
        prior: Prior::Implied,
        args: [0; 4],
        offset: 0,
    };

    /// The kind that Go's tools show it as.
    #[inline]
    pub fn category(&self) -> Kind {
        Kind::of(self.kind)
    }

    /// The id in the stack table of where its goroutine was; 0 if it does not say.
    #[inline]
    pub fn stack(&self) -> u64 {
        self.args.get(usize::from(STACK_ARG[self.kind as usize])).copied().unwrap_or(0)
    }

    /// The argument of this kind, the first if there are two.
    pub fn arg(&self, kind: ArgKind) -> Option<u64> {
        self.kind.spec().args_of(kind).next().filter(|_| self.kind.spec().timed).map(|i| self.args[i - 1])
    }

    /// Its first string: the reason of a block or stop, a label, a name, the key of a message.
    pub fn text<'t>(&self, tables: &'t Tables) -> Option<Cow<'t, str>> {
        let id = if self.kind == Ev::StwEnd { Some(self.args[0]) } else { self.arg(ArgKind::String) };
        id.and_then(|id| tables.string(id))
    }

    /// The change of state that it is, if it is one.
    #[inline]
    pub fn transition(&self) -> Option<Transition> {
        use State::*;
        let [first, second, third, _] = self.args;
        let g = |id, from, to| Some(Transition::G { id, from, to });
        let p = |id, from, to| Some(Transition::P { id, from, to });
        let before = |implied| match self.prior {
            Prior::Implied => implied,
            Prior::Undetermined => Undetermined,
            Prior::NotExist => NotExist,
            Prior::Idle => Idle,
        };
        match self.kind {
            Ev::ProcStart => p(first as i64, Idle, Running),
            Ev::ProcStop => p(self.p, Running, Idle),
            Ev::ProcSteal => p(first as i64, before(Running), Idle),
            Ev::ProcStatus => p(first as i64, before(State::of_proc(second)), State::of_proc(second)),
            Ev::GoCreate => g(first as i64, NotExist, Runnable),
            Ev::GoCreateBlocked => g(first as i64, NotExist, Waiting),
            Ev::GoCreateSyscall => g(first as i64, NotExist, Syscall),
            Ev::GoStart => g(first as i64, Runnable, Running),
            Ev::GoDestroy => g(self.g, Running, NotExist),
            Ev::GoDestroySyscall => g(self.g, Syscall, NotExist),
            Ev::GoStop => g(self.g, Running, Runnable),
            Ev::GoBlock => g(self.g, Running, Waiting),
            Ev::GoUnblock | Ev::GoSwitch | Ev::GoSwitchDestroy => g(first as i64, Waiting, Runnable),
            Ev::GoSyscallBegin => g(self.g, Running, Syscall),
            Ev::GoSyscallEnd => g(self.g, Syscall, Running),
            Ev::GoSyscallEndBlocked => g(self.g, Syscall, Runnable),
            Ev::GoStatus | Ev::GoStatusStack => g(first as i64, before(State::of_go(third)), State::of_go(third)),
            _ => None,
        }
    }
}

/// For each number of an event, which of its arguments, `dt` not counted, is [`Spec::main_stack`](crate::wire::Spec::main_stack);
/// beyond the last if there is none.
static STACK_ARG: [u8; 256] = {
    let mut place = [u8::MAX; 256];
    let mut i = 0;
    while i < SPECS.len() {
        let spec = &SPECS[i];
        let mut arg = 1;
        while arg < spec.args.len() {
            if matches!(spec.args[arg].kind, ArgKind::Stack) && spec.timed {
                place[spec.ev as usize] = arg as u8 - 1;
            }
            arg += 1;
        }
        i += 1;
    }
    place[Ev::CpuSample as usize] = 0;
    place
};

/// An event as the file has it: before it has found its place and its context.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    /// What happened.
    pub kind: Ev,
    /// When, in ns.
    pub time: i64,
    /// The arguments without `dt`.
    pub args: [u64; 4],
    /// Where it stands in the file.
    pub offset: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stack_is_the_main_one() {
        for spec in SPECS.iter().filter(|spec| spec.timed) {
            let args = [11, 12, 13, 14];
            let (prior, kind) = (Prior::Implied, spec.ev);
            let event = Event { time: 0, file_time: 0, m: 0, p: 0, g: 0, kind, prior, args, offset: 0 };
            assert_eq!(event.stack(), spec.main_stack().map_or(0, |i| args[i - 1]), "{}", spec.name);
        }
    }
}
