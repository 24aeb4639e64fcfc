//! What the bench prints: medians with their range, and ratios of medians.

use crate::ALLOCATOR_NAME;
use crate::options::Options;
use crate::results::{Key, Results, figure, rows};
use crate::rivals::Contender;
use crate::rivals::golang::Golang;
use crate::workload::{Suite, Workload};
use crate::{http, machine};

/// How to read it.
const NET_NOTE: &str = "\
Client and server are one process, on loopback, so most of the time is the kernel's and the same for all. On two cores that
somebody else may use, too, only ratios within this run mean something, from 0.8 to 1.25 not even they. mio is a floor: a loop
that does nothing but this; P is its number of threads, and for std the number of processors it may use.";
const HTTP_NOTE: &str = "\
wrk (one thread, 64 connections) takes a core of its own: with as many Ps as cores, client and server compete for one. Only
ratios within this run mean something, from 0.8 to 1.25 not even they. tokio is hyper on tokio, go is net/http.";

const GC_NOTE: &str = "\
std has boxes for the trees, and for the graphs counted references of which those that close cycles are weak: somebody has to know which.
P is its number of processors. The memory is the most that the process had, of all it has. A pause is one stop of the world, for go all of one collection.";

/// What is compared with what.
pub fn head(options: &Options, go: Option<&Result<Golang, String>>) {
    let (suite, rounds) = (options.suite, options.rounds);
    println!(
        "{}: medians (least .. most) of {rounds} round(s){}",
        suite.word(),
        match suite {
            Suite::Switch => "; ns are per operation",
            Suite::Net => "; ns are per round trip, or per connection",
            Suite::Http => "",
            Suite::Gc => "; ns are per object that is made, counted and left to the collector",
        }
    );
    println!("{}", machine::machine());
    println!("{}; allocator of gort and the Rust rivals: {ALLOCATOR_NAME}; seed {}", machine::rustc(), options.seed);
    println!("{}", machine::crates(suite));
    match go {
        Some(Ok(go)) => println!("Go: {}", go.version),
        Some(Err(why)) => println!("Go is LEFT OUT: {why}"),
        None => println!("Go is left out: not asked for"),
    }
    if suite == Suite::Http {
        println!("wrk: {}", http::find_wrk().unwrap_or_else(|why| why));
    }
    match suite {
        Suite::Switch => {}
        Suite::Net => println!("{NET_NOTE}"),
        Suite::Http => println!("{HTTP_NOTE}"),
        Suite::Gc => println!("{GC_NOTE}"),
    }
    if options.quick {
        println!("quick: THESE FIGURES SAY NOTHING, only that it works");
    }
}

/// A block for each workload and number of Ps, and a table of ratios.
pub fn body(options: &Options, results: &Results) {
    print!("{}", blocks(options, results));
    if options.contenders.contains(&Contender::Gort) {
        table(options, results);
    }
    results.remarks.iter().for_each(|remark| println!("\n{remark}"));
    if let Some(warning) = results.disturbed().filter(|_| !options.quick) {
        println!("\n{warning}");
    }
}

/// Everything, by workload.
pub fn blocks(options: &Options, results: &Results) -> String {
    let mut text = String::new();
    for &workload in &options.workloads {
        for procs in workload.procs(&options.procs) {
            text.push_str(&format!("\n{workload}, P={procs}\n"));
            for &contender in Contender::ALL.iter().filter(|one| options.contenders.contains(one)) {
                text.push_str(&lines(results, workload, procs, contender));
            }
        }
    }
    text
}

/// A line for each column that has a row in tables, and one for what is missing.
fn lines(results: &Results, workload: Workload, procs: usize, contender: Contender) -> String {
    let mut text = String::new();
    let key = (workload, procs, contender);
    for (i, column) in rows(workload) {
        let (Some(all), Some(median)) = (results.sorted(key, i), results.median(key, i)) else { continue };
        let word = if i == 0 { contender.word() } else { "" };
        let range = format!("({} .. {})", figure(all[0]), figure(all[all.len() - 1]));
        let also = if i == 0 { told(results, key) } else { String::new() };
        let against = against(results, key, i).unwrap_or_default();
        let unit = format!("{}{also}", column.unit);
        let line = format!("  {word:<12} {:>8}  {range:<22} {unit:<24} {against}", figure(median));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if let Some(why) = results.why_not(key) {
        text.push_str(&format!("  {:<12} {:>8}  {why}\n", contender.word(), "-"));
    }
    text
}

/// The columns that have no line of their own.
fn told(results: &Results, key: Key) -> String {
    let mut text = String::new();
    for (i, column) in key.0.spec().columns.iter().enumerate().skip(1).filter(|(_, column)| !column.has_row) {
        let median = results.median(key, i).map_or("?".into(), figure);
        text.push_str(&format!(", {median} {}", column.unit));
    }
    if key.2.is_traced() {
        let bytes = results.trace_bytes(key).map_or("?".into(), figure);
        text.push_str(&format!(", {bytes} bytes"));
    }
    text
}

fn against(results: &Results, (workload, procs, contender): Key, column: usize) -> Option<String> {
    let spec = workload.spec();
    if !spec.columns[column].compared {
        return None;
    }
    let ratio = |of, by| results.ratio(workload, procs, column, of, by);
    let mut said = Vec::new();
    match contender.untraced() {
        _ if contender == Contender::Gort => {}
        Some(untraced) => {
            said.extend(ratio(contender, untraced).map(|ratio| format!("{ratio:.2} x untraced")));
            let added = |traced: Contender, untraced| {
                let median = |of| results.median((workload, procs, of), column);
                Some(median(traced)? - median(untraced)?)
            };
            said.extend(added(contender, untraced).map(|added| format!("{added:+.0} {}", spec.columns[column].unit)));
            let go = if contender == Contender::GortFlight { Contender::GoFlight } else { Contender::GoSink };
            if contender.is_ours()
                && let (Some(ours), Some(theirs)) = (added(contender, untraced), added(go, Contender::Go))
            {
                said.push(format!("added: gort / {} = {:.2}", go.word(), ours / theirs));
            }
        }
        None => said
            .extend(ratio(Contender::Gort, contender).map(|ratio| format!("gort / {} = {ratio:.2}", contender.word()))),
    }
    if contender != Contender::Mio && !contender.is_traced() {
        said.extend(ratio(contender, Contender::Mio).map(|ratio| format!("{ratio:.2} x the floor")));
    }
    Some(said.join(", "))
}

fn table(options: &Options, results: &Results) {
    let there = Contender::all(options.suite);
    let rivals: Vec<Contender> = there.iter().copied().filter(|one| !one.is_traced() && !one.is_ours()).collect();
    let traced: Vec<(Contender, Contender)> = there.iter().filter_map(|&one| Some((one, one.untraced()?))).collect();
    println!("\nratios of medians: gort / rival (under 1: gort takes less), traced / untraced");
    print!("{:<40} {:>3} {:>9}", "", "P", "gort");
    let heads = rivals.iter().chain(traced.iter().map(|(contender, _)| contender));
    heads.for_each(|contender| print!(" {:>11}", contender.word()));
    println!("  target");
    for &workload in &options.workloads {
        for procs in workload.procs(&options.procs) {
            for (i, column) in rows(workload) {
                let title = if i == 0 { workload.to_string() } else { String::new() };
                let ours = results.median((workload, procs, Contender::Gort), i);
                print!("{title:<40} {procs:>3} {:>9}", ours.map_or("-".into(), figure));
                let ratio = |of, by| match results.ratio(workload, procs, i, of, by).filter(|_| column.compared) {
                    Some(ratio) => format!("{ratio:.2}"),
                    None => "-".into(),
                };
                rivals.iter().for_each(|&rival| print!(" {:>11}", ratio(Contender::Gort, rival)));
                traced.iter().for_each(|&(traced, untraced)| print!(" {:>11}", ratio(traced, untraced)));
                let target = match results.target(workload, procs, i) {
                    Some((wanted, Some(true))) => format!("{wanted}: met"),
                    Some((wanted, Some(false))) => format!("{wanted}: NOT MET"),
                    Some((wanted, None)) => wanted,
                    None => String::new(),
                };
                println!("  {:<24} {target}", column.unit);
            }
        }
    }
}
