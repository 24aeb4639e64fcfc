//! `gort export`: all events as JSON or CSV, or a timeline for Chrome's viewer and Perfetto.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Write};

use tracer::wire::Ev;

use super::chrome::Chrome;
use crate::args::{Export, Format};
use crate::input::{End, Input};
use crate::record::Record;
use crate::text::Out;
use crate::{Failure, Outcome};

const COLUMNS: [&str; 12] = ["at_ns", "m", "p", "g", "event", "kind", "of", "id", "from", "to", "text", "args"];

pub(crate) fn run(args: &Export, progress: bool, out: &mut Out) -> Outcome {
    let to_terminal = args.output.is_none() && io::stdout().is_terminal();
    let input = Input::open(&args.file, progress && !to_terminal)?;
    let end = match &args.output {
        Some(path) if path.as_os_str() != "-" => {
            let cannot = |error: io::Error| Failure::Other(format!("{}: cannot write it: {error}", path.display()));
            let mut file = BufWriter::with_capacity(64 << 10, File::create(path).map_err(cannot)?);
            let in_file = |failure| match failure {
                Failure::Output(error) => cannot(error),
                other => other,
            };
            let end = write(args, input, &mut file).map_err(in_file)?;
            file.flush().map_err(cannot)?;
            end
        }
        _ => write(args, input, out)?,
    };
    Ok(end.verdict())
}

fn write(args: &Export, input: Input, to: &mut impl Write) -> Result<End, Failure> {
    match args.format {
        None | Some(Format::Json) => json(args, input, to),
        Some(Format::Csv) => csv(input, to),
        Some(Format::Chrome) => {
            let mut chrome = Chrome::begin(to)?;
            let end = input.each(|event, _, tables| match event {
                Some(event) => chrome.event(event, tables),
                None => chrome.gap(),
            })?;
            chrome.finish()?;
            Ok(end)
        }
    }
}

/// An object in each line.
fn json(args: &Export, input: Input, to: &mut impl Write) -> Result<End, Failure> {
    let mut start = None;
    input.each(|event, _, tables| {
        let Some(event) = event.filter(|event| event.kind != Ev::Sync) else { return Ok(()) };
        let start = *start.get_or_insert(event.time);
        serde_json::to_writer(&mut *to, &Record::new(event, start, tables, args.stacks)).map_err(io::Error::from)?;
        Ok(writeln!(to)?)
    })
}

fn csv(input: Input, to: &mut impl Write) -> Result<End, Failure> {
    let mut csv = csv::Writer::from_writer(to);
    csv.write_record(COLUMNS).map_err(io::Error::from)?;
    let mut start = None;
    let end = input.each(|event, _, tables| {
        let Some(event) = event.filter(|event| event.kind != Ev::Sync) else { return Ok::<_, Failure>(()) };
        let start = *start.get_or_insert(event.time);
        let record = Record::new(event, start, tables, false);
        let id = |id: Option<i64>| id.map_or(String::new(), |id| id.to_string());
        let change = record.change.as_ref();
        let args: Vec<String> = record.args.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let cells: [&str; COLUMNS.len()] = [
            &record.at_ns.to_string(),
            &id(record.m),
            &id(record.p),
            &id(record.g),
            record.event,
            record.kind,
            change.map_or("", |change| change.of),
            &id(change.map(|change| change.id)),
            change.map_or("", |change| change.from),
            change.map_or("", |change| change.to),
            &record.text.join(" "),
            &args.join(" "),
        ];
        csv.write_record(cells).map_err(io::Error::from)?;
        Ok(())
    })?;
    csv.flush()?;
    Ok(end)
}
