//! What the bench prints: medians with their range, and ratios of medians.

use crate::ALLOCATOR_NAME;
use crate::options::Options;
use crate::results::{Key, Results, figure, rows};
use crate::rivals::Contender;
use crate::rivals::golang::Golang;
use crate::workload::Workload;

/// What is compared with what.
pub fn head(options: &Options, go: Option<&Result<Golang, String>>) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("goroutines: medians (least .. most) of {} round(s); ns are per operation", options.rounds);
    println!("{cores} cores; allocator of gort and the Rust rivals: {ALLOCATOR_NAME}; seed {}", options.seed);
    match go {
        Some(Ok(go)) => println!("Go: {}", go.version),
        Some(Err(why)) => println!("Go is LEFT OUT: {why}"),
        None => println!("Go is left out: not asked for"),
    }
}

/// A block for each workload and number of Ps, and a table of ratios.
pub fn body(options: &Options, results: &Results) {
    print!("{}", blocks(options, results));
    if options.contenders.contains(&Contender::Gort) {
        table(options, results);
    }
    if let Some(warning) = results.disturbed() {
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
    for (i, column) in key.0.spec().columns.iter().enumerate().skip(1).filter(|(_, column)| !column.compared) {
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
    let (ours, theirs) = (Contender::Gort, contender);
    if theirs == ours || !workload.spec().columns[column].compared {
        return None;
    }
    Some(if theirs.is_traced() {
        format!("{:.2} x untraced", results.ratio(workload, procs, column, theirs, ours)?)
    } else {
        format!("gort / {} = {:.2}", theirs.word(), results.ratio(workload, procs, column, ours, theirs)?)
    })
}

fn table(options: &Options, results: &Results) {
    let rivals: Vec<Contender> = Contender::ALL.into_iter().filter(|one| !one.is_ours()).collect();
    println!("\nratios of medians: gort / rival (under 1: gort takes less), traced / untraced");
    print!("{:<40} {:>3} {:>9}", "", "P", "gort");
    rivals.iter().chain(&Contender::TRACED).for_each(|contender| print!(" {:>11}", contender.word()));
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
                Contender::TRACED.iter().for_each(|&traced| print!(" {:>11}", ratio(traced, Contender::Gort)));
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
