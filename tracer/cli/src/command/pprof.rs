//! `gort pprof`: a profile of waits, for `go tool pprof` and all that reads its format.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};

use serde::Serialize;
use tracer::analyze::profile::{Builder, Profile};
use tracer::read::ClockSnapshot;

use super::{FrameJson, to_u64};
use crate::args::Pprof;
use crate::input::Input;
use crate::text::Out;
use crate::{Failure, Outcome, pprof};

pub(crate) fn run(args: &Pprof, progress: bool, out: &mut Out) -> Outcome {
    let to_terminal = args.output.is_none() && !args.trace.json && io::stdout().is_terminal();
    if to_terminal {
        return Err(Failure::Other("a profile is not for terminals: name a file with --output, or use --json".into()));
    }
    let input = Input::open(&args.trace.file, progress)?;
    let mut builder = Builder::new(args.kind.into());
    if args.complete {
        builder = builder.complete();
    }
    let mut clock = None;
    let mut start = None;
    let end = input.each(|event, _, tables| {
        let Some(event) = event else {
            builder.gap();
            return Ok::<_, Infallible>(());
        };
        if start.is_none() {
            clock = tables.clock_snapshot();
            start = Some(event.time);
        }
        builder.event(event, tables);
        Ok(())
    });
    let end = end.unwrap_or_else(|never| match never {});
    let profile = builder.finish();
    if end.events > 0 {
        let time_nanos = wall(clock, start.unwrap_or(0));
        match &args.output {
            Some(path) if path.as_os_str() != "-" => {
                let cannot = |error: io::Error| format!("{}: cannot write it: {error}", path.display());
                let mut file = BufWriter::new(File::create(path).map_err(cannot)?);
                write(&profile, time_nanos, args.trace.json, &mut file).map_err(cannot)?;
            }
            _ => write(&profile, time_nanos, args.trace.json, out)?,
        }
    }
    Ok(end.verdict())
}

/// The trace's time `at` as ns since 1970; 0 if the trace does not tell.
fn wall(clock: Option<ClockSnapshot>, at: i64) -> i64 {
    clock.map_or(0, |clock| {
        let wall = i128::from(clock.wall_sec) * 1_000_000_000 + i128::from(clock.wall_nsec);
        i64::try_from(wall + i128::from(at) - i128::from(clock.trace_ns)).unwrap_or(0)
    })
}

#[derive(Serialize)]
struct Json {
    kind: &'static str,
    count: u64,
    total_ns: u64,
    stacks: Vec<StackJson>,
}

#[derive(Serialize)]
struct StackJson {
    count: u64,
    total_ns: u64,
    frames: Vec<FrameJson>,
}

fn write(profile: &Profile, time_nanos: i64, json: bool, to: &mut impl Write) -> io::Result<()> {
    if !json {
        pprof::write(&pprof::proto(profile, time_nanos), to)?;
        return to.flush();
    }
    let (count, ns) = profile.total();
    let mut records = profile.records.clone();
    records.sort_by_key(|record| (std::cmp::Reverse(record.ns), record.stack));
    let stacks = records.iter().map(|record| StackJson {
        count: record.count,
        total_ns: record.ns,
        frames: profile.stacks.frames(record.stack).map(|(_, frame)| FrameJson::from(&frame)).collect(),
    });
    let json = Json { kind: profile.kind.name(), count, total_ns: to_u64(ns), stacks: stacks.collect() };
    serde_json::to_writer_pretty(&mut *to, &json)?;
    writeln!(to)?;
    to.flush()
}
