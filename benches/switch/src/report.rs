//! What the bench prints: medians with their range, and ratios of medians.

use crate::ALLOCATOR_NAME;
use crate::options::Options;
use crate::results::{Results, figure, rows};
use crate::rivals::Contender;
use crate::rivals::golang::Golang;
use crate::workload::Workload;

/// What is compared with what.
pub fn head(options: &Options, go: Option<&Result<Golang, String>>) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!("goroutines: median of {} rounds (least .. most); ns are per operation", options.rounds);
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

/// A line for each column, and one for what is missing.
fn lines(results: &Results, workload: Workload, procs: usize, contender: Contender) -> String {
    let mut text = String::new();
    let key = (workload, procs, contender);
    for (i, column) in workload.spec().columns.iter().enumerate() {
        let (Some(all), Some(median)) = (results.sorted(key, i), results.median(key, i)) else { continue };
        let range = format!("({} .. {})", figure(all[0]), figure(all[all.len() - 1]));
        let (ours, theirs) = (Contender::Gort, contender);
        let against = match contender {
            Contender::Gort => String::new(),
            _ if i != 0 && !column.compared => String::new(),
            traced if traced.is_traced() => match results.ratio(workload, procs, i, theirs, ours) {
                Some(ratio) => format!("{ratio:.2} x untraced"),
                None => String::new(),
            },
            _ => match results.ratio(workload, procs, i, ours, theirs) {
                Some(ratio) => format!("gort / {} = {ratio:.2}", contender.word()),
                None => String::new(),
            },
        };
        let word = if i == 0 { contender.word() } else { "" };
        let line = format!("  {word:<12} {:>8}  {range:<22} {:<24} {against}", figure(median), column.unit);
        text.push_str(line.trim_end());
        text.push('\n');
    }
    if contender.is_traced()
        && let Some(bytes) = results.trace_bytes(key)
    {
        text.push_str(&format!("  {:<12} {:>8}  bytes of trace per operation\n", "", figure(bytes)));
    }
    if let Some(why) = results.why_not(key) {
        text.push_str(&format!("  {:<12} {:>8}  {why}\n", contender.word(), "-"));
    }
    text
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
