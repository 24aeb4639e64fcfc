//! The rules that a trace must keep, each with the sentence that FORMAT.md and every error print.
//!
//! The rules from [`Rule::Stuck`] on are those of [`order`](super::order); the ones before are about the container.
//! They are Go's, so that our verdict is Go's; only the words are ours.

macro_rules! rules {
    ($($rule:ident $name:literal $text:literal;)*) => {
        /// A rule of the format. Its text says what must hold.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule {
            $(#[doc = $text] $rule,)*
        }

        impl Rule {
            /// Every rule, in order.
            pub const ALL: &[Rule] = &[$(Rule::$rule),*];

            /// A short name that does not change, to search for.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Rule::$rule => $name,)*
                }
            }

            /// What must hold.
            pub const fn text(self) -> &'static str {
                match self {
                    $(Rule::$rule => $text,)*
                }
            }
        }
    };
}

rules! {
    Header "header" "A trace begins with `go 1.N trace` and three zero bytes.";
    BatchKind "batch-kind" "A batch begins with EventBatch or ExperimentalBatch; only EndOfGeneration may stand in between.";
    BatchHeader "batch-header" "The numbers of a batch header are varints of at most 64 bits.";
    BatchSize "batch-size" "A batch has at most 65,536 bytes.";
    BatchCut "batch-cut" "A batch is complete: the file does not end inside it.";
    GenerationZero "generation-zero" "A generation's number is not 0.";
    GenerationMixed "generation-mixed" "The batches between two EndOfGeneration bytes are of one generation.";
    GenerationCut "generation-cut" "A generation ends with EndOfGeneration: the file does not end before it.";
    GenerationOrder "generation-order" "Before Go 1.26, generations follow each other by number.";
    GenerationSize "generation-size" "A generation has less than 4 GiB (a limit of this reader).";
    FrequencyMissing "frequency-missing" "A generation has a Frequency event.";
    FrequencyRepeated "frequency-repeated" "A generation has only one Frequency event.";
    SnapshotMissing "snapshot-missing" "Since Go 1.25, a generation has a ClockSnapshot event.";
    SnapshotRepeated "snapshot-repeated" "A generation has only one ClockSnapshot event.";
    SyncEvent "sync-event" "A sync batch holds whole Frequency and ClockSnapshot events and nothing else.";
    TableEvent "table-event" "A batch of strings, stacks or CPU samples holds nothing else.";
    TableEntry "table-entry" "An entry of a table is complete, and its numbers are varints of at most 64 bits.";
    StringSize "string-size" "A string has at most 1,024 bytes.";
    StackSize "stack-size" "A stack has at most 128 frames.";
    StringRepeated "string-repeated" "A string's id is not 0 and stands once in a generation.";
    StackRepeated "stack-repeated" "A stack's id is not 0 and stands once in a generation.";
    FrameString "frame-string" "The function and the file of a frame are in the string table.";
    EventKind "event-kind" "A batch of events holds events with known numbers.";
    EventTimed "event-timed" "A batch of events holds timed events only.";
    EventArgs "event-args" "The arguments of an event are complete, and varints of at most 64 bits.";
    EventString "event-string" "The strings that an event names are in the string table.";
    EventStack "event-stack" "The stacks that an event names are in the stack table.";

    Stuck "stuck" "There is an order in which every M's events can happen.";
    Orderable "orderable" "An event in an M's batch is one that happens to a G, a P or an M.";
    NeedsM "needs-m" "The event happens on an M.";
    NeedsP "needs-p" "The event happens on an M that has a P.";
    NeedsG "needs-g" "The event happens on an M that has a goroutine.";
    ForbidsG "forbids-g" "The event happens on an M that has no goroutine.";
    ProcStatusKnown "proc-status-known" "A P's status is one of those that there are.";
    ProcStatusSame "proc-status-same" "A status event says of a P what the events before said.";
    ProcBound "proc-bound" "A P that is about to be stolen belongs to an M.";
    ProcUnknown "proc-unknown" "The P has been named before, by a status event.";
    ProcRunning "proc-running" "Only a P that runs or is in a blocking call stops.";
    StealOwn "steal-own" "An M that steals its own P has it.";
    StealM "steal-m" "The M from which a P is stolen exists.";
    StealP "steal-p" "The M from which a P is stolen has this P.";
    GoStatusKnown "go-status-known" "A goroutine's status is one of those that there are.";
    GoStatusSame "go-status-same" "A status event says of a goroutine what the events before said.";
    GoStatusNew "go-status-new" "After the first generation, a goroutine comes into the world by being created.";
    SyscallM "syscall-m" "A goroutine in a blocking call is on an M.";
    SyscallOwner "syscall-owner" "A goroutine in a blocking call is on the M on which it went into it.";
    GoCreateRunner "go-create-runner" "A goroutine that creates another is running.";
    GoExists "go-exists" "A goroutine is created once.";
    GoUnknown "go-unknown" "The goroutine exists.";
    GoRunning "go-running" "The goroutine is running.";
    GoInSyscall "go-in-syscall" "The goroutine is in a blocking call.";
    ProcInSyscall "proc-in-syscall" "The P is in a blocking call.";
    SyscallSeq "syscall-seq" "A blocking call takes the next sequence number of its P.";
    TaskConflict "task-conflict" "A task that is open does not begin again.";
    RegionNesting "region-nesting" "The region that ends is the innermost open one of its goroutine.";
    GcActiveFirst "gc-active-first" "In the first generation, GCActive is the first event about the GC.";
    GcRunning "gc-running" "A GC cycle is running.";
    GcIdle "gc-idle" "No GC cycle is running.";
    RangeOpen "range-open" "A range of time that is open does not begin again.";
    RangeMissing "range-missing" "A range of time that is said to be open is open.";
    RangeEnd "range-end" "A range of time that ends is open.";
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
