//! Every rule of the reader: a trace that breaks it and nothing else, and its twin that does not.
#![cfg(feature = "read")]

mod common;

use common::*;
use tracer::read::Rule;
use tracer::wire::{Ev, MAX_BATCH_BYTES, MAX_FRAMES, MAX_STRING_BYTES, NO_M};

/// Builds a trace that breaks the rule if `bad`.
type Build = fn(bad: bool) -> Vec<u8>;

/// With `GORT_RULE_TRACES=DIR` the traces are also written there, for Go's reader to judge.
fn check(name: &str, cases: &[(Rule, Build)]) {
    let dir = std::env::var_os("GORT_RULE_TRACES").map(std::path::PathBuf::from);
    for (i, &(rule, build)) in cases.iter().enumerate() {
        for bad in [true, false] {
            if let Some(dir) = &dir {
                let verdict = if bad { "bad" } else { "good" };
                let file = dir.join(format!("{name}-{i}-{rule}.{verdict}"));
                std::fs::write(&file, build(bad)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
            }
        }
        assert_eq!(broken_rule(&build(true)), Some(rule), "{rule}");
        assert_eq!(broken_rule(&build(false)), None, "the twin of {rule}");
    }
}

fn one(build: impl FnOnce(&mut Gen)) -> Vec<u8> {
    Trace::new().generation(1, build).0
}

fn two(first: impl FnOnce(&mut Gen), second: impl FnOnce(&mut Gen)) -> Vec<u8> {
    Trace::new().generation(1, first).generation(2, second).0
}

/// A bare batch with a header of its own.
fn batch(generation: u64, data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put_batch(&mut out, generation, NO_M, 1, data);
    out
}

const CONTAINER: &[(Rule, Build)] = &[
    (Rule::BatchKind, |bad| Trace::new().raw(if bad { &[Ev::GoStart as u8] } else { &[] }).0),
    (Rule::BatchHeader, |bad| {
        let mut number = [0xff; 10];
        number[9] = if bad { 2 } else { 1 };
        // A generation number of u64::MAX is legal.
        let mut trace = Trace::new().raw(&[Ev::EventBatch as u8]).raw(&number).raw(&[1, 1, 0]);
        for sync in [frequency(1), snapshot()] {
            trace = trace.raw(&batch(u64::MAX, &[vec![Ev::Sync as u8], sync].concat()));
        }
        trace.raw(&[Ev::EndOfGeneration as u8]).0
    }),
    (Rule::BatchSize, |bad| {
        // Nobody looks into the batch of an experiment.
        let size = MAX_BATCH_BYTES + usize::from(bad);
        let header = event(Ev::ExperimentalBatch, &[1, 1, NO_M, 1, size as u64]);
        Trace::new().raw(&header).raw(&vec![0xff; size]).generation(1, |_| {}).0
    }),
    (Rule::BatchCut, |bad| {
        let mut trace = one(|_| {});
        trace.extend([Ev::EventBatch as u8, 1].iter().take(if bad { 2 } else { 0 }));
        trace
    }),
    (Rule::GenerationZero, |bad| Trace::new().generation(u64::from(!bad), |_| {}).0),
    (Rule::GenerationMixed, |bad| {
        let number = if bad { 2 } else { 1 };
        Trace::new().raw(&batch(number, &[Ev::Stacks as u8])).generation(1, |_| {}).0
    }),
    (Rule::GenerationCut, |bad| {
        one(|g| {
            g.running(0);
            if bad {
                g.end.clear();
            }
        })
    }),
    (Rule::GenerationOrder, |bad| {
        let mut trace = Trace::version(b"go 1.22 trace\0\0\0");
        for number in [1, if bad { 3 } else { 2 }] {
            trace = trace.raw(&batch(number, &frequency(1)));
        }
        trace.0
    }),
    (Rule::FrequencyMissing, |bad| {
        one(|g| {
            if bad {
                g.sync[0] = [vec![Ev::Sync as u8], snapshot()].concat();
            }
        })
    }),
    (Rule::FrequencyRepeated, |bad| {
        one(|g| {
            if bad {
                g.sync.push([vec![Ev::Sync as u8], frequency(7)].concat());
            }
        })
    }),
    (Rule::SnapshotMissing, |bad| {
        one(|g| {
            if bad {
                g.sync[0] = [vec![Ev::Sync as u8], frequency(1)].concat();
            }
        })
    }),
    (Rule::SnapshotRepeated, |bad| {
        one(|g| {
            if bad {
                g.sync.push([vec![Ev::Sync as u8], snapshot()].concat());
            }
        })
    }),
    (Rule::SyncEvent, |bad| {
        one(|g| {
            if bad {
                g.sync[0].push(Ev::GoStart as u8);
            }
        })
    }),
    (Rule::TableEvent, |bad| {
        one(|g| {
            let entry = if bad { Ev::Stack } else { Ev::String };
            g.sync.push([vec![Ev::Strings as u8], event(entry, &[9, 0])].concat());
        })
    }),
    (Rule::TableEntry, |bad| {
        one(|g| {
            let mut data = [vec![Ev::Strings as u8], event(Ev::String, &[9, 2]), vec![b'x', b'y']].concat();
            data.truncate(data.len() - usize::from(bad));
            g.sync.push(data);
        })
    }),
    (Rule::StringSize, |bad| one(|g| g.strings.push((9, vec![b'x'; MAX_STRING_BYTES + usize::from(bad)])))),
    (Rule::StackSize, |bad| one(|g| g.stacks.push((9, vec![[1; 4]; MAX_FRAMES + usize::from(bad)])))),
    (Rule::StringRepeated, |bad| one(|g| g.strings.push((if bad { 2 } else { 9 }, b"two".to_vec())))),
    (Rule::StackRepeated, |bad| one(|g| g.stacks.push((if bad { 1 } else { 9 }, Vec::new())))),
    (Rule::FrameString, |bad| one(|g| g.stacks.push((2, vec![[5, 1, if bad { 99 } else { 2 }, 1]])))),
    (Rule::EventKind, |bad| one(|g| g.running(0).raw(if bad { &[100, 1] } else { &[] }).done())),
    (Rule::EventTimed, |bad| one(|g| g.running(0).raw(if bad { &[Ev::Frequency as u8, 1] } else { &[] }).done())),
    (Rule::EventArgs, |bad| {
        one(|g| g.running(0).raw(if bad { &[Ev::GoDestroy as u8] } else { &[Ev::GoDestroy as u8, 0] }).done())
    }),
    (Rule::EventString, |bad| one(|g| g.running(0).ev(Ev::GoLabel, &[if bad { 99 } else { 1 }]).done())),
    (Rule::EventStack, |bad| one(|g| g.running(0).ev(Ev::GoStop, &[1, if bad { 99 } else { 1 }]).done())),
];

const ORDER: &[(Rule, Build)] = &[
    (Rule::Stuck, |bad| {
        one(|g| {
            g.m(0).ev(Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::GoStart, &[7, if bad { 2 } else { 1 }]);
            g.running(1).ev(Ev::GoCreate, &[7, 0, 0]);
        })
    }),
    (Rule::Orderable, |bad| {
        one(|g| g.running(0).raw(&if bad { event(Ev::ClockSnapshot, &[1, 1, 1, 1]) } else { Vec::new() }).done())
    }),
    (Rule::NeedsM, |bad| {
        one(|g| {
            g.m(if bad { NO_M } else { 0 }).ev(Ev::ProcStatus, &[0, P_IDLE]).ev(Ev::ProcStart, &[0, 1]);
        })
    }),
    (Rule::NeedsP, |bad| one(|g| g.m(0).ev_if(!bad, Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::HeapAlloc, &[1]).done())),
    (Rule::NeedsG, |bad| {
        one(|g| {
            g.m(0)
                .ev(Ev::ProcStatus, &[0, P_RUNNING])
                .ev_if(!bad, Ev::GoStatus, &[1, 0, RUNNING])
                .ev(Ev::GoLabel, &[1]);
        })
    }),
    (Rule::ForbidsG, |bad| {
        one(|g| {
            g.running(0)
                .ev(Ev::GoStatus, &[7, NO_M, RUNNABLE])
                .ev_if(!bad, Ev::GoStop, &[1, 0])
                .ev(Ev::GoStart, &[7, 1]);
        })
    }),
    (Rule::ProcStatusKnown, |bad| one(|g| g.m(0).ev(Ev::ProcStatus, &[0, if bad { 5 } else { P_IDLE }]).done())),
    (Rule::ProcStatusSame, |bad| {
        two(|g| g.running(0).done(), |g| g.m(0).ev(Ev::ProcStatus, &[0, if bad { P_IDLE } else { P_RUNNING }]).done())
    }),
    (Rule::ProcBound, |bad| {
        one(|g| {
            // M 0 takes another P without having lost P 0.
            g.m(0).ev(Ev::ProcStatus, &[0, P_SYSCALL]).ev_if(bad, Ev::ProcStatus, &[1, P_RUNNING]);
            g.m(1).ev(Ev::ProcStatus, &[0, P_ABANDONED]);
        })
    }),
    (Rule::ProcUnknown, |bad| {
        one(|g| {
            g.m(0).ev_if(!bad, Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::GcSweepActive, &[0]);
        })
    }),
    (Rule::ProcRunning, |bad| {
        one(|g| {
            g.batch(0, 100).ev(Ev::ProcStatus, &[0, P_RUNNING]).after(50, Ev::ProcStop, &[]);
            let p = if bad { 0 } else { 1 };
            g.batch(1, 101).ev(Ev::ProcStatus, &[p, P_RUNNING]).after(90, Ev::ProcStop, &[]);
        })
    }),
    (Rule::StealOwn, |bad| {
        one(|g| {
            g.m(0).ev(Ev::ProcStatus, &[0, P_SYSCALL]).ev(Ev::GoStatus, &[1, 0, SYSCALL]);
            g.m(1).ev(Ev::ProcSteal, &[0, 1, u64::from(bad)]);
        })
    }),
    (Rule::StealM, |bad| {
        one(|g| {
            g.m(0).ev(Ev::ProcStatus, &[0, P_SYSCALL]);
            g.m(1).ev(Ev::ProcSteal, &[0, 1, if bad { 55 } else { 0 }]);
        })
    }),
    (Rule::StealP, |bad| {
        one(|g| {
            g.m(0).ev(Ev::ProcStatus, &[0, P_SYSCALL]);
            g.m(2).ev(Ev::ProcStatus, &[2, P_SYSCALL]);
            g.m(1).ev(Ev::ProcSteal, &[0, 1, if bad { 2 } else { 0 }]);
        })
    }),
    (Rule::GoStatusKnown, |bad| one(|g| g.m(0).ev(Ev::GoStatus, &[1, NO_M, if bad { 5 } else { WAITING }]).done())),
    (Rule::GoStatusSame, |bad| {
        two(
            |g| g.m(0).ev(Ev::GoStatus, &[1, NO_M, WAITING]).done(),
            |g| g.m(0).ev(Ev::GoStatus, &[1, NO_M, if bad { RUNNABLE } else { WAITING }]).done(),
        )
    }),
    (Rule::GoStatusNew, |bad| {
        two(
            |g| g.m(0).ev(Ev::GoStatus, &[1, NO_M, WAITING]).done(),
            |g| g.m(0).ev(Ev::GoStatus, &[if bad { 2 } else { 1 }, NO_M, WAITING]).done(),
        )
    }),
    (Rule::SyscallM, |bad| one(|g| g.m(0).ev(Ev::GoStatus, &[1, if bad { NO_M } else { 5 }, SYSCALL]).done())),
    (Rule::SyscallOwner, |bad| {
        two(
            |g| g.m(0).ev(Ev::GoStatus, &[1, 0, SYSCALL]).done(),
            |g| g.m(1).ev(Ev::GoStatus, &[1, if bad { 1 } else { 0 }, SYSCALL]).done(),
        )
    }),
    (Rule::GoCreateRunner, |bad| {
        one(|g| {
            g.running(0)
                .ev(Ev::GoSyscallBegin, &[1, 0])
                .ev_if(!bad, Ev::GoSyscallEnd, &[])
                .ev(Ev::GoCreate, &[7, 0, 0]);
        })
    }),
    (Rule::GoExists, |bad| {
        one(|g| g.running(0).ev(Ev::GoCreate, &[7, 0, 0]).ev(Ev::GoCreate, &[if bad { 7 } else { 8 }, 0, 0]).done())
    }),
    (Rule::GoUnknown, |bad| {
        one(|g| {
            g.m(0).ev_if(!bad, Ev::GoStatus, &[1, NO_M, WAITING]).ev(Ev::GcMarkAssistActive, &[1]);
        })
    }),
    (Rule::GoRunning, |bad| {
        one(|g| g.running(0).ev_if(bad, Ev::GoSyscallBegin, &[1, 0]).ev(Ev::GoBlock, &[1, 0]).done())
    }),
    (Rule::GoInSyscall, |bad| {
        one(|g| g.running(0).ev_if(!bad, Ev::GoSyscallBegin, &[1, 0]).ev(Ev::GoSyscallEnd, &[]).done())
    }),
    (Rule::ProcInSyscall, |bad| {
        one(|g| {
            let p = if bad { P_RUNNING } else { P_SYSCALL };
            g.m(0).ev(Ev::ProcStatus, &[0, p]).ev(Ev::GoStatus, &[1, 0, SYSCALL]).ev(Ev::GoSyscallEnd, &[]);
        })
    }),
    (Rule::SyscallSeq, |bad| one(|g| g.running(0).ev(Ev::GoSyscallBegin, &[if bad { 2 } else { 1 }, 0]).done())),
    (Rule::TaskConflict, |bad| {
        one(|g| {
            g.running(0)
                .ev(Ev::UserTaskBegin, &[5, 0, 1, 0])
                .ev_if(!bad, Ev::UserTaskEnd, &[5, 0])
                .ev(Ev::UserTaskBegin, &[5, 0, 1, 0]);
        })
    }),
    (Rule::RegionNesting, |bad| {
        one(|g| {
            g.running(0)
                .ev(Ev::UserRegionBegin, &[0, 1, 0])
                .ev(Ev::UserRegionBegin, &[0, 2, 0])
                .ev(Ev::UserRegionEnd, &[0, if bad { 1 } else { 2 }, 0]);
        })
    }),
    (Rule::GcActiveFirst, |bad| one(|g| g.running(0).ev_if(bad, Ev::GcBegin, &[1, 0]).ev(Ev::GcActive, &[1]).done())),
    (Rule::GcRunning, |bad| {
        one(|g| {
            g.running(0).ev(Ev::GcBegin, &[1, 0]).ev(Ev::GcEnd, &[2]).ev_if(bad, Ev::GcEnd, &[3]);
        })
    }),
    (Rule::GcIdle, |bad| {
        one(|g| {
            let next = if bad { 2 } else { 3 };
            g.running(0).ev(Ev::GcBegin, &[1, 0]).ev_if(!bad, Ev::GcEnd, &[2]).ev(Ev::GcBegin, &[next, 0]);
        })
    }),
    (Rule::RangeOpen, |bad| {
        one(|g| g.running(0).ev(Ev::StwBegin, &[1, 0]).ev(Ev::StwBegin, &[if bad { 1 } else { 2 }, 0]).done())
    }),
    (Rule::RangeMissing, |bad| {
        two(
            |g| g.running(0).ev_if(!bad, Ev::GcMarkAssistBegin, &[0]).done(),
            |g| {
                g.running(0).ev(Ev::GcMarkAssistActive, &[100]);
            },
        )
    }),
    (Rule::RangeEnd, |bad| {
        one(|g| g.running(0).ev_if(!bad, Ev::GcSweepBegin, &[0]).ev(Ev::GcSweepEnd, &[1, 1]).done())
    }),
];

/// The limit that a test cannot reach, and what salvage alone has a rule for (its tests have a case).
const UNTESTED: [Rule; 2] = [Rule::GenerationSize, Rule::Header];

#[test]
fn container_rules() {
    check("container", CONTAINER);
}

#[test]
fn order_rules() {
    check("order", ORDER);
}

#[test]
fn every_rule_has_a_case() {
    let tested: Vec<Rule> = CONTAINER.iter().chain(ORDER).map(|case| case.0).chain(UNTESTED).collect();
    for rule in Rule::ALL {
        assert_eq!(tested.iter().filter(|&other| other == rule).count(), 1, "{rule}");
    }
}

/// The same rule, where other events have it too.
const MORE: &[(Rule, Build)] = &[
    (Rule::StringRepeated, |bad| one(|g| g.strings.push((if bad { 0 } else { 9 }, Vec::new())))),
    (Rule::StackRepeated, |bad| one(|g| g.stacks.push((if bad { 0 } else { 9 }, Vec::new())))),
    (Rule::TableEvent, |bad| {
        one(|g| {
            let entry = if bad { Ev::String } else { Ev::CpuSample };
            g.sync.push([vec![Ev::CpuSamples as u8], event(entry, &[1; 5])].concat());
        })
    }),
    (Rule::TableEntry, |bad| {
        one(|g| {
            g.sync.push([vec![Ev::Stacks as u8], event(Ev::Stack, if bad { &[9, 1, 1, 1] } else { &[9, 0] })].concat())
        })
    }),
    (Rule::Stuck, |bad| {
        one(|g| {
            // A goroutine that nobody made runnable.
            let status = if bad { WAITING } else { RUNNABLE };
            g.m(0).ev(Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::GoStatus, &[7, NO_M, status]).ev(Ev::GoStart, &[7, 1]);
        })
    }),
    (Rule::Stuck, |bad| {
        one(|g| {
            // A blocking call that lost its P, of which no M tells that it took it.
            g.running(0).ev(Ev::GoSyscallBegin, &[1, 0]).ev(Ev::GoSyscallEndBlocked, &[]);
            if !bad {
                g.m(1).ev(Ev::ProcSteal, &[0, 2, 0]);
            }
        })
    }),
    (Rule::Stuck, |bad| {
        one(|g| {
            // A P that is still in use is not started.
            g.m(0).ev(Ev::ProcStatus, &[0, P_RUNNING]).ev_if(!bad, Ev::ProcStop, &[]);
            g.m(1).ev(Ev::ProcStart, &[0, 1]);
        })
    }),
    (Rule::Stuck, |bad| {
        one(|g| g.running(0).ev(Ev::GcBegin, &[1, 0]).ev(Ev::GcEnd, &[if bad { 3 } else { 2 }]).done())
    }),
    (Rule::Stuck, |bad| {
        // Sequence numbers restart: without a status in the second generation, the goroutine's is that of the first.
        two(
            |g| g.running(0).ev(Ev::GoCreate, &[7, 0, 0]).ev(Ev::GoStop, &[1, 0]).done(),
            |g| {
                g.m(0)
                    .ev(Ev::ProcStatus, &[0, P_RUNNING])
                    .ev_if(!bad, Ev::GoStatus, &[7, NO_M, RUNNABLE])
                    .ev(Ev::GoStart, &[7, 1]);
            },
        )
    }),
    (Rule::Stuck, |bad| {
        one(|g| {
            g.running(0).ev(Ev::GoCreateBlocked, &[8, 0, 0]).ev(Ev::GoSwitch, &[8, if bad { 2 } else { 1 }]);
        })
    }),
    (Rule::NeedsP, |bad| one(|g| g.running(0).ev_if(bad, Ev::ProcStop, &[]).ev(Ev::GoCreate, &[7, 0, 0]).done())),
    (Rule::NeedsP, |bad| one(|g| g.running(0).ev_if(bad, Ev::ProcStop, &[]).ev(Ev::ProcStop, &[]).done())),
    (Rule::NeedsG, |bad| {
        one(|g| g.m(0).ev_if(!bad, Ev::GoStatus, &[1, 0, SYSCALL]).ev(Ev::GoSyscallEndBlocked, &[]).done())
    }),
    (Rule::NeedsG, |bad| one(|g| g.m(0).ev_if(!bad, Ev::GoCreateSyscall, &[1]).ev(Ev::GoDestroySyscall, &[]).done())),
    (Rule::ForbidsG, |bad| {
        one(|g| g.running(0).ev_if(!bad, Ev::GoBlock, &[1, 0]).ev(Ev::GoCreateSyscall, &[7]).done())
    }),
    (Rule::GoExists, |bad| {
        one(|g| g.m(0).ev(Ev::GoStatus, &[7, NO_M, WAITING]).ev(Ev::GoCreateSyscall, &[if bad { 7 } else { 8 }]).done())
    }),
    (Rule::GoUnknown, |bad| {
        one(|g| {
            // Two Ms run the same goroutine, and on one of them it ends.
            g.batch(0, 100).ev(Ev::ProcStatus, &[0, P_RUNNING]).ev(Ev::GoStatus, &[1, 0, RUNNING]).after(
                90,
                Ev::GoDestroy,
                &[],
            );
            let m = g
                .batch(1, 100)
                .ev(Ev::ProcStatus, &[1, P_RUNNING])
                .ev(Ev::GoStatus, &[if bad { 1 } else { 2 }, 1, RUNNING]);
            m.after(500, Ev::GoBlock, &[1, 0]);
        })
    }),
    (Rule::GoRunning, |bad| {
        one(|g| {
            let begin = g.running(0).ev(Ev::GoCreateBlocked, &[8, 0, 0]).ev(Ev::GoSyscallBegin, &[1, 0]);
            begin.ev_if(!bad, Ev::GoSyscallEnd, &[]).ev(Ev::GoSwitchDestroy, &[8, 1]);
        })
    }),
    (Rule::GoRunning, |bad| {
        one(|g| {
            g.running(0)
                .ev_if(bad, Ev::GoSyscallBegin, &[1, 0])
                .ev(Ev::GoSyscallBegin, &[if bad { 2 } else { 1 }, 0])
                .done()
        })
    }),
    (Rule::ProcInSyscall, |bad| {
        one(|g| {
            let m = g.m(0).ev_if(bad, Ev::ProcStatus, &[0, P_RUNNING]).ev_if(!bad, Ev::ProcStatus, &[0, P_SYSCALL]);
            m.ev(Ev::GoStatus, &[1, 0, SYSCALL]).ev(Ev::GoDestroySyscall, &[]);
        })
    }),
    (Rule::SyscallOwner, |bad| {
        // Another M tells of a blocking call.
        two(
            |g| {
                g.m(0).ev(Ev::GoStatus, &[1, 0, SYSCALL]);
                g.m(1).ev(Ev::GoStatus, &[2, 1, SYSCALL]);
            },
            |g| g.m(5).ev(Ev::GoStatus, &[1, if bad { 1 } else { 0 }, SYSCALL]).done(),
        )
    }),
    (Rule::GcRunning, |bad| {
        two(
            |g| g.running(0).ev(Ev::GcBegin, &[1, 0]).ev_if(bad, Ev::GcEnd, &[2]).done(),
            |g| g.running(0).ev(Ev::GcActive, &[if bad { 3 } else { 2 }]).done(),
        )
    }),
    (Rule::RangeOpen, |bad| one(|g| g.running(0).ev(Ev::GcSweepBegin, &[0]).ev_if(bad, Ev::GcSweepBegin, &[0]).done())),
    (Rule::RangeOpen, |bad| {
        one(|g| g.running(0).ev_if(bad, Ev::GcSweepBegin, &[0]).ev(Ev::GcSweepActive, &[0]).done())
    }),
    (Rule::RangeOpen, |bad| {
        one(|g| g.running(0).ev_if(bad, Ev::GcMarkAssistBegin, &[0]).ev(Ev::GcMarkAssistActive, &[100]).done())
    }),
    (Rule::RangeMissing, |bad| {
        two(
            |g| g.running(0).ev_if(!bad, Ev::GcSweepBegin, &[0]).done(),
            |g| g.running(0).ev(Ev::GcSweepActive, &[0]).done(),
        )
    }),
    (Rule::RangeEnd, |bad| one(|g| g.running(0).ev_if(!bad, Ev::StwBegin, &[1, 0]).ev(Ev::StwEnd, &[]).done())),
    (Rule::EventString, |bad| one(|g| g.running(0).ev(Ev::UserLog, &[0, 1, if bad { 99 } else { 2 }, 0]).done())),
    (Rule::EventString, |bad| one(|g| g.running(0).ev(Ev::UserTaskBegin, &[0, 0, if bad { 99 } else { 2 }, 0]).done())),
    (Rule::EventString, |bad| one(|g| g.running(0).ev(Ev::UserRegionEnd, &[0, if bad { 99 } else { 2 }, 0]).done())),
    (Rule::EventStack, |bad| one(|g| g.running(0).ev(Ev::GoCreate, &[7, if bad { 99 } else { 1 }, 1]).done())),
    (Rule::NeedsM, |bad| {
        one(|g| {
            // To unblock a goroutine needs no M, to steal a P does.
            g.m(0).ev(Ev::ProcStatus, &[0, P_SYSCALL]);
            let m = g.m(if bad { NO_M } else { 1 }).ev(Ev::GoStatus, &[7, NO_M, WAITING]);
            m.ev(Ev::GoUnblock, &[7, 1, 0]).ev(Ev::ProcSteal, &[0, 1, 0]);
        })
    }),
];

#[test]
fn the_same_rules_elsewhere() {
    check("more", MORE);
}
